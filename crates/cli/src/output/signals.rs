//! The screens of `parhelia signals`.

use jiff::Timestamp;
use parhelia_core::session::SignalRow;
use parhelia_core::time::{human_age, seconds_between};

use super::table::{Table, cell, styled};
use super::text::{GREEN, YELLOW, clean, counted, or_dash, shortened, time_utc};

pub(crate) fn fired(signal: &SignalRow) -> String {
    let whom = match &signal.session_id {
        Some(session) => format!("for {session}"),
        None => "for whoever waits for it, or else the next who does".to_owned(),
    };
    format!("{} fired: {} {whom}\n", signal.id, clean(&signal.name))
}

pub(crate) fn table(signals: &[SignalRow], now: Timestamp, wide: bool) -> String {
    let mut columns = vec![
        ("SIGNAL", 0),
        ("NAME", 0),
        ("SESSION", 0),
        ("TAKEN BY", 0),
        ("FIRED", 0),
        ("BY", 0),
        ("PAYLOAD", 0),
    ];
    if wide {
        columns.push(("TAKEN AT", 0));
    }
    let mut table = Table::new(&columns);
    for signal in signals {
        let taken = match signal.deliveries {
            0 => styled("nobody yet", YELLOW),
            n => styled(counted(n, "wait"), GREEN),
        };
        let age = seconds_between(signal.fired_at, now).max(0.0);
        let payload = if signal.payload.is_null() { "-".to_owned() } else { signal.payload.to_string() };
        let mut row = vec![
            cell(signal.id.as_str()),
            cell(&signal.name),
            cell(or_dash(signal.session_id.as_ref().map(|id| id.as_str()))),
            taken,
            cell(format!("{} ago", human_age(age))),
            cell(&signal.fired_by),
            cell(shortened(&payload, if wide { 200 } else { 40 })),
        ];
        if wide {
            row.push(cell(signal.delivered_at.map_or_else(|| "-".to_owned(), time_utc)));
        }
        table.row(row);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{at, plain};
    use parhelia_core::ids::{SessionId, SignalId};

    #[test]
    fn what_nobody_has_taken_stands_out() {
        let mut signal = SignalRow {
            id: SignalId::parse("sig-01k9z3q8xw4f").unwrap(),
            name: "deployed".into(),
            session_id: None,
            payload: serde_json::json!({"version": "1.2"}),
            fired_at: at("2026-01-21T14:30:00Z"),
            fired_by: "ann".into(),
            deliveries: 0,
            delivered_at: None,
        };
        let now = at("2026-01-21T14:32:00Z");
        let waiting = signal.clone();
        signal.session_id = Some(SessionId::parse("sess-01k9z3q8").unwrap());
        signal.deliveries = 1;
        signal.payload = serde_json::Value::Null;
        let screen = plain(&table(&[waiting.clone(), signal.clone()], now, false));
        assert_eq!(
            screen,
            "\
SIGNAL             NAME       SESSION         TAKEN BY     FIRED    BY    PAYLOAD
sig-01k9z3q8xw4f   deployed   -               nobody yet   2m ago   ann   {\"version\":\"1.2\"}
sig-01k9z3q8xw4f   deployed   sess-01k9z3q8   1 wait       2m ago   ann   -
"
        );
        assert!(fired(&waiting).contains("whoever waits"));
        assert!(fired(&signal).contains("for sess-01k9z3q8"));
    }
}
