//! The screens of `parhelia signals`.

use jiff::Timestamp;
use parhelia_core::session::SignalRow;
use parhelia_core::time::{human_age, seconds_between};

use super::table::{Cell, Table, cell, styled};
use super::text::{GREEN, YELLOW, clean, counted, or_dash, time_utc};

pub(crate) fn fired(signal: &SignalRow) -> String {
    let whom = match &signal.session_id {
        Some(session) => format!("for {session}"),
        None => "for whoever waits for it, or else the next who does".to_owned(),
    };
    format!("{} fired: {} {whom}\n", signal.id, clean(&signal.name))
}

/// What was sent is worth this much room, before who sent it.
const PAYLOAD: usize = 10;

/// Which columns there are.
#[derive(Debug, Clone, Copy)]
struct Layout {
    wide: bool,
    by: bool,
    payload: bool,
    narrow: bool,
}

impl Layout {
    /// From everything to the least.
    fn ever_less(self) -> [Self; 4] {
        let less = Self { by: false, ..self };
        let narrow = Self { narrow: true, ..less };
        [self, less, narrow, Self { payload: false, ..narrow }]
    }

    fn table(self, signals: &[SignalRow], now: Timestamp) -> Table {
        let mut columns = vec![("SIGNAL", 0), ("NAME", 0), ("SESSION", 0), ("TAKEN BY", 0), ("FIRED", 0)];
        columns.extend(self.by.then_some(("BY", 0)));
        columns.extend(self.wide.then_some(("TAKEN AT", 0)));
        columns.extend(self.payload.then_some(("PAYLOAD", 0)));
        let mut table = Table::new(&columns);
        for signal in signals {
            table.row(self.row(signal, now));
        }
        if self.narrow { table.narrow() } else { table }
    }

    fn row(self, signal: &SignalRow, now: Timestamp) -> Vec<Cell> {
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
        ];
        row.extend(self.by.then(|| cell(&signal.fired_by)));
        row.extend(self.wide.then(|| cell(signal.delivered_at.map_or_else(|| "-".to_owned(), time_utc))));
        row.extend(self.payload.then(|| cell(payload)));
        row
    }
}

/// On a terminal a line for each, whatever has to be left out for that; in a pipe nothing is.
pub(crate) fn table(signals: &[SignalRow], now: Timestamp, wide: bool, width: Option<usize>) -> String {
    let all = Layout { wide, by: true, payload: true, narrow: false };
    let mut table = all.table(signals, now);
    if let Some(width) = width {
        for layout in all.ever_less() {
            table = layout.table(signals, now);
            if table.fits(width, PAYLOAD) {
                break;
            }
        }
    }
    table.render_within(width)
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
        let both = [waiting.clone(), signal.clone()];
        let screen = plain(&table(&both, now, false, None));
        assert_eq!(
            screen,
            "\
SIGNAL             NAME       SESSION         TAKEN BY     FIRED    BY    PAYLOAD
sig-01k9z3q8xw4f   deployed   -               nobody yet   2m ago   ann   {\"version\":\"1.2\"}
sig-01k9z3q8xw4f   deployed   sess-01k9z3q8   1 wait       2m ago   ann   -
"
        );
        for width in [40, 60, 70, 80] {
            let narrow = plain(&table(&both, now, false, Some(width)));
            assert!(narrow.lines().all(|line| line.chars().count() <= width), "{width}\n{narrow}");
        }
        assert!(plain(&table(&both, now, false, Some(75))).contains("2m ago  {\"vers"), "{screen}");
        assert!(fired(&waiting).contains("whoever waits"));
        assert!(fired(&signal).contains("for sess-01k9z3q8"));
    }
}
