//! `parhelia instances`: whose sandboxes are in the same accounts, and taking them over.

use parhelia_core::api::{AdoptReport, ForeignView, InstanceList, InstanceView};

use crate::client::segment;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output::text::{counted, rate};
use crate::output::{self, confirm};

pub(super) async fn list(ctx: &Context) -> Result<()> {
    let found: InstanceList = ctx.client()?.get("/instances", &[]).await?;
    ctx.out.list(&found.instances, |one| one.id.clone(), || output::instances::list(&found.instances))
}

pub(super) async fn adopt(ctx: &Context, id: &str, yes: bool) -> Result<()> {
    let client = ctx.client()?;
    let found: InstanceList = client.get("/instances", &[]).await?;
    let instance = resolve(&found.instances, id)?;
    let foreign: Vec<&ForeignView> = instance.foreign.iter().collect();
    if ctx.out.is_human() && !foreign.is_empty() {
        ctx.out.text(&output::instances::sandboxes(&foreign))?;
    }
    if !yes {
        let question = format!(
            "Take over {} ({}) of instance {}? They become containers of this one.",
            counted(foreign.len() as i64, "running sandbox").replace("sandboxs", "sandboxes"),
            rate(instance.cost_per_hour_usd),
            instance.id
        );
        if !confirm(&question, &format!("parhelia instances adopt {id}")).await? {
            ctx.out.note("Nothing was taken over.");
            return Ok(());
        }
    }
    let path = format!("/instances/{}/adopt", segment(&instance.id)?);
    let report: AdoptReport = client.post_again(&path, &serde_json::json!({})).await?;
    let ids = || report.containers.iter().map(|id| format!("{id}\n")).collect::<String>();
    ctx.out.one(&report, ids().trim_end(), || {
        let count = counted(report.containers.len() as i64, "container");
        format!("Adopted instance {}: {count}.\n{}", report.instance, ids())
    })
}

/// By id or unique prefix; our own cannot be taken over.
fn resolve<'a>(instances: &'a [InstanceView], id: &str) -> Result<&'a InstanceView> {
    let exact = instances.iter().find(|one| one.id == id);
    let matches: Vec<&InstanceView> = match exact {
        Some(one) => vec![one],
        None => instances.iter().filter(|one| !id.is_empty() && one.id.starts_with(id)).collect(),
    };
    match matches[..] {
        [one] if one.is_self => {
            Err(CliError::new(Exit::Refused, "own_instance", format!("{} is this instance itself", one.id)))
        }
        [one] => Ok(one),
        [] => Err(CliError::new(Exit::NotFound, "not_found", format!("no instance '{id}' was seen"))
            .fix("see 'parhelia instances list'")),
        _ => {
            let ids: Vec<&str> = matches.iter().map(|one| one.id.as_str()).collect();
            Err(CliError::new(Exit::Refused, "ambiguous", format!("'{id}' could be {}", ids.join(" or "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_must_be_unique_and_not_our_own() {
        let instance = |id: &str, is_self| InstanceView {
            id: id.into(),
            is_self,
            adopted_at: None,
            adopted_by: None,
            foreign: vec![],
            cost: 0.0,
            cost_per_hour_usd: 0.0,
        };
        let all = [instance("aa11", true), instance("bb22", false), instance("bb33", false)];
        let code = |id| resolve(&all, id).map_or_else(|e| e.exit.code(), |_| 0);
        assert_eq!((code("bb2"), code("bb"), code("aa"), code("cc"), code("")), (0, 4, 4, 3, 3));
    }
}
