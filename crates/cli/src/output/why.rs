//! The one screen of `parhelia why`.

use std::fmt::Write;

use parhelia_core::event::Severity;
use parhelia_core::time::{human_age, seconds_between};
use parhelia_core::why::{Wait, Why};

use super::text::{BOLD, clean, clock, painted, severity_style, time, time_utc};

pub(crate) fn screen(why: &Why) -> String {
    let heading = painted(&format!("{} {}", clean(&why.kind), clean(&why.id)), BOLD);
    let mut out = format!("{heading}\n  {}\n", clean(&why.state));
    let wide = why.evidence.iter().map(|one| one.from.chars().count()).max().unwrap_or(0).min(30);
    section(&mut out, &format!("Evidence (asked at {})", time_utc(why.asked_at)));
    for one in &why.evidence {
        let _ = writeln!(out, "    {:<wide$}  {}", clean(&one.from), clean(&one.says));
    }
    section(&mut out, "Waits for");
    if why.waiting.is_empty() {
        out.push_str("    nothing\n");
    }
    for wait in &why.waiting {
        let _ = writeln!(out, "    {}", waits(wait, why));
    }
    if !why.remedies.is_empty() {
        section(&mut out, "Who can change that");
        for one in &why.remedies {
            let _ = write!(out, "    {} {}", clean(&one.who), clean(&one.what));
            match &one.command {
                Some(command) => drop(writeln!(out, ":\n      {}", painted(&clean(command), BOLD))),
                None => out.push('\n'),
            }
        }
    }
    if !why.events.is_empty() {
        section(&mut out, "Last events");
        for event in &why.events {
            let severity: Severity = event.event_type.severity();
            let word = painted(&format!("{:<20}", event.event_type.short()), severity_style(severity));
            let _ = writeln!(out, "    {}  {word}  {}", time(event.at), clean(&event.message));
        }
    }
    out
}

fn section(out: &mut String, title: &str) {
    let _ = writeln!(out, "\n  {title}:");
}

fn waits(wait: &Wait, why: &Why) -> String {
    let mut line = match wait.said_at {
        Some(at) => format!("by the planner, at {}: {}", clock(at), clean(&wait.what)),
        None => clean(&wait.what),
    };
    if let Some(until) = wait.until {
        let left = seconds_between(why.asked_at, until);
        let when = if left > 0.0 { format!("in {}", human_age(left)) } else { "due".to_owned() };
        let _ = write!(line, " ({when}, {})", time(until));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::{at, plain};
    use parhelia_core::event::EventType;
    use parhelia_core::why::{Evidence, Happened, Remedy};

    #[test]
    fn one_screen() {
        let why = Why {
            id: "c-abc123".into(),
            kind: "container".into(),
            asked_at: at("2026-01-21T14:30:00Z"),
            state: "It is being ended: ann has asked for its end (manual) 30s ago.".into(),
            evidence: vec![
                Evidence::new("provider modal now", "it is \u{1b}[31mrunning"),
                Evidence::new("heartbeats", "the last 10s ago"),
            ],
            waiting: vec![
                Wait { what: "told to stop".into(), until: None, said_at: Some(at("2026-01-21T14:29:59Z")) },
                Wait {
                    what: "its own end; then force".into(),
                    until: Some(at("2026-01-21T14:30:30Z")),
                    said_at: None,
                },
            ],
            remedies: vec![
                Remedy { who: "nobody".into(), what: "needs to".into(), command: None },
                Remedy {
                    who: "an operator".into(),
                    what: "ends it without further grace".into(),
                    command: Some("parhelia containers terminate c-abc123 --force".into()),
                },
            ],
            events: vec![Happened {
                at: at("2026-01-21T14:29:30Z"),
                event_type: EventType::StopRequested,
                message: "Termination requested by ann".into(),
            }],
        };
        let expected = r"container c-abc123
  It is being ended: ann has asked for its end (manual) 30s ago.

  Evidence (asked at 2026-01-21 14:30:00 UTC):
    provider modal now  it is \u{1b}[31mrunning
    heartbeats          the last 10s ago

  Waits for:
    by the planner, at 14:29:59: told to stop
    its own end; then force (in 30s, 2026-01-21 14:30:30)

  Who can change that:
    nobody needs to
    an operator ends it without further grace:
      parhelia containers terminate c-abc123 --force

  Last events:
    2026-01-21 14:29:30  stop_requested        Termination requested by ann
";
        assert_eq!(plain(&screen(&why)), expected);
    }
}
