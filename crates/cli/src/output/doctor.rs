//! The screen of `parhelia doctor`: one line per check, with the fix under it.

use std::fmt::Write;

use parhelia_core::doctor::{DoctorReport, Verdict};

use super::text::{GREEN, RED, YELLOW, clean, counted, painted};

pub(crate) fn screen(report: &DoctorReport) -> String {
    let wide = report.checks.iter().map(|check| check.area.chars().count()).max().unwrap_or(0).min(30);
    let mut out = String::new();
    for check in &report.checks {
        let style = match check.verdict {
            Verdict::Ok => GREEN,
            Verdict::Warning => YELLOW,
            Verdict::Error => RED,
        };
        let word = painted(&format!("{:<7}", check.verdict.as_str()), style);
        let _ = writeln!(out, "{word}  {:<wide$}  {}", clean(&check.area), clean(&check.found));
        if let Some(fix) = &check.fix {
            let _ = writeln!(out, "{:9}{:<wide$}  fix: {}", "", "", clean(fix));
        }
    }
    let count = |verdict| report.checks.iter().filter(|check| check.verdict == verdict).count() as i64;
    let _ = writeln!(
        out,
        "\n{}: {}, {}.",
        counted(report.checks.len() as i64, "check"),
        counted(count(Verdict::Error), "error"),
        counted(count(Verdict::Warning), "warning")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{at, plain};
    use parhelia_core::doctor::Finding;

    #[test]
    fn every_check_has_its_line_and_what_is_wrong_its_fix() {
        let report = DoctorReport {
            asked_at: at("2026-01-21T14:30:00Z"),
            version: "1.2.3".into(),
            checks: vec![
                Finding::ok("SQLite 3.50").check("store", 1.0),
                Finding::error("no\u{7} answer", "start it").check("provider docker", 5000.0),
            ],
        };
        let expected = "ok       store            SQLite 3.50
error    provider docker  no\\u{7} answer
                          fix: start it

2 checks: 1 error, 0 warnings.
";
        assert_eq!(plain(&screen(&report)), expected);
    }
}
