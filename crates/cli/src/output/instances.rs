//! The screen of `parhelia instances`.

use parhelia_core::api::{ForeignView, InstanceView};
use parhelia_core::time::human_age;

use super::table::{Table, cell};
use super::text::{counted, money, or_dash, rate};

fn relation(instance: &InstanceView) -> &'static str {
    match instance {
        InstanceView { is_self: true, .. } => "this one",
        InstanceView { adopted_at: Some(_), .. } => "adopted",
        _ => "foreign",
    }
}

pub(crate) fn list(instances: &[InstanceView]) -> String {
    let mut table =
        Table::new(&[("INSTANCE", 0), ("RELATION", 0), ("SANDBOXES", 0), ("COST", 0), ("RATE", 0)]);
    for instance in instances {
        let counts = !instance.is_self || !instance.foreign.is_empty();
        table.row(vec![
            cell(&instance.id),
            cell(relation(instance)),
            cell(if counts { instance.foreign.len().to_string() } else { "-".to_owned() }),
            cell(if counts { money(instance.cost) } else { "-".to_owned() }),
            cell(if counts { rate(instance.cost_per_hour_usd) } else { "-".to_owned() }),
        ]);
    }
    let mut out = table.render();
    let foreign: Vec<&ForeignView> = instances.iter().flat_map(|instance| &instance.foreign).collect();
    if !foreign.is_empty() {
        out.push('\n');
        out.push_str(&sandboxes(&foreign));
        let count = counted(foreign.len() as i64, "foreign sandbox").replace("sandboxs", "sandboxes");
        out.push_str(&format!(
            "\n{count}. Run 'parhelia instances adopt ID' to take over those of an instance.\n"
        ));
    }
    out
}

pub(crate) fn sandboxes(foreign: &[&ForeignView]) -> String {
    let mut table = Table::new(&[
        ("SANDBOX", 0),
        ("PROVIDER", 0),
        ("CONTAINER", 0),
        ("NAME", 0),
        ("TASK", 0),
        ("AGE", 0),
        ("COST", 0),
        ("RATE", 0),
    ]);
    for one in foreign {
        table.row(vec![
            cell(&one.sandbox),
            cell(&one.provider),
            cell(&one.container_id),
            cell(or_dash(one.name.as_deref())),
            cell(or_dash(one.task.as_deref())),
            cell(human_age(one.age as f64)),
            cell(money(one.cost)),
            cell(rate(one.cost_per_hour_usd)),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at, plain};
    use super::*;

    #[test]
    fn instances_show_what_is_not_ours() {
        let own = InstanceView {
            id: "aaaa".into(),
            is_self: true,
            adopted_at: None,
            adopted_by: None,
            foreign: vec![],
            cost: 0.0,
            cost_per_hour_usd: 0.0,
        };
        let foreign = ForeignView {
            provider: "modal".into(),
            sandbox: "sb-1".into(),
            container_id: "c-zzz999".into(),
            task: None,
            name: None,
            age: 8100,
            cost: 1.5,
            cost_per_hour_usd: 0.54,
            first_seen_at: at("2026-01-21T14:30:00Z"),
            last_seen_at: at("2026-01-21T14:30:00Z"),
        };
        let other = InstanceView {
            id: "bbbb".into(),
            is_self: false,
            foreign: vec![foreign],
            cost: 1.5,
            cost_per_hour_usd: 0.54,
            ..own.clone()
        };
        assert_eq!(
            plain(&list(&[own, other])),
            "\
INSTANCE   RELATION   SANDBOXES   COST    RATE
aaaa       this one   -           -       -
bbbb       foreign    1           $1.50   $0.54/hr

SANDBOX   PROVIDER   CONTAINER   NAME   TASK   AGE      COST    RATE
sb-1      modal      c-zzz999    -      -      2h 15m   $1.50   $0.54/hr

1 foreign sandbox. Run 'parhelia instances adopt ID' to take over those of an instance.
"
        );
    }
}
