//! The screen of `parhelia reconciler`.

use std::fmt::Write;

use jiff::Timestamp;
use parhelia_core::api::{CycleView, ProviderStatus, ReconcilerStatus};
use parhelia_core::time::seconds_between;

use super::text::{GREEN, RED_BOLD, YELLOW, clean, painted, spoken, time_utc};

pub(crate) fn status(status: &ReconcilerStatus, now: Timestamp) -> String {
    let word = if status.running { painted("running", GREEN) } else { painted("not running", RED_BOLD) };
    let mut out = format!("Reconciler: {word}\n");
    let last = status.last_run_at.map(|at| format!("{} ago", spoken(seconds_between(at, now))));
    let next = status.next_run_at.map(|at| match seconds_between(now, at) {
        s if s < 1.0 => "now".to_owned(),
        s => format!("in {}", spoken(s)),
    });
    let _ = writeln!(out, "  Last run:       {}", last.as_deref().unwrap_or("never"));
    let _ = writeln!(out, "  Next run:       {}", next.as_deref().unwrap_or("-"));
    let _ = writeln!(out, "  Poll interval:  {}", spoken(status.poll_interval_seconds as f64));
    out.push_str(&providers(status, now));
    out
}

/// What the last pass found, per provider; a provider that did not answer is shown loudly.
pub(crate) fn providers(status: &ReconcilerStatus, now: Timestamp) -> String {
    let several = status.providers.len() > 1;
    status.providers.iter().map(|provider| block(provider, several, now)).collect()
}

fn block(provider: &ProviderStatus, several: bool, now: Timestamp) -> String {
    let mut out = String::from("\n");
    let name = clean(&provider.name);
    if let Some(at) = provider.unreachable_since {
        let words =
            format!("{name} IS UNREACHABLE since {} ({})", time_utc(at), spoken(seconds_between(at, now)));
        let _ = writeln!(out, "  {}: nothing is changed until it answers", painted(&words, RED_BOLD));
    }
    if let Some(at) = provider.breaker_since {
        let words = format!("{name}: BREAKER TRIPPED at {}", time_utc(at));
        let agreed = provider.breaker_agreed;
        let _ = writeln!(
            out,
            "  {}: most of its containers vanished at once; nothing is changed until 3 complete listings agree ({agreed} so far)",
            painted(&words, RED_BOLD)
        );
    }
    if several {
        let _ = writeln!(out, "  Last cycle ({name}):");
    } else {
        let _ = writeln!(out, "  Last cycle:");
    }
    match &provider.last_cycle {
        Some(cycle) => out.push_str(&counts(cycle)),
        None => out.push_str("    none yet\n"),
    }
    out
}

fn counts(cycle: &CycleView) -> String {
    let mut out = String::new();
    if let Some(error) = &cycle.error {
        let _ = writeln!(
            out,
            "    {}",
            painted(&format!("{}: {}", clean(&cycle.outcome), clean(error)), RED_BOLD)
        );
    }
    let always = [
        ("Provider containers", cycle.provider_containers),
        ("DB containers", cycle.db_containers),
        ("Orphans detected", cycle.orphans_detected),
        ("Terminated", cycle.terminated),
        ("State corrections", cycle.state_corrections),
    ];
    let sometimes = [
        ("Suspected", cycle.suspected),
        ("Adopted", cycle.adopted),
        ("Started", cycle.started),
        ("Foreign", cycle.foreign),
        ("Failures", cycle.failures),
    ];
    for (label, count) in always.into_iter().chain(sometimes.into_iter().filter(|(_, count)| *count > 0)) {
        let _ = writeln!(out, "    {:<21} {count}", format!("{label}:"));
    }
    for waiting in &cycle.waiting {
        let id = waiting.id.as_ref().map_or_else(String::new, |id| format!("{id}: "));
        let _ = writeln!(out, "    {} {id}{}", painted("waiting:", YELLOW), clean(&waiting.why));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at, plain, reconciler};
    use super::*;

    #[test]
    fn the_seeds_screen_of_the_reconciler() {
        assert_eq!(
            plain(&status(&reconciler(), at("2026-01-21T14:31:00Z"))),
            "\
Reconciler: running
  Last run:       30 seconds ago
  Next run:       in 30 seconds
  Poll interval:  60 seconds

  Last cycle:
    Provider containers:  5
    DB containers:        4
    Orphans detected:     1
    Terminated:           0
    State corrections:    0
"
        );
    }

    #[test]
    fn a_provider_in_trouble_is_loud() {
        let mut view = reconciler();
        let provider = &mut view.providers[0];
        provider.unreachable_since = Some(at("2026-01-21T14:30:00Z"));
        provider.breaker_since = Some(at("2026-01-21T14:30:30Z"));
        provider.breaker_agreed = 2;
        let screen = plain(&status(&view, at("2026-01-21T14:31:00Z")));
        assert!(
            screen.contains("modal IS UNREACHABLE since 2026-01-21 14:30:00 UTC (60 seconds)"),
            "{screen}"
        );
        assert!(screen.contains("modal: BREAKER TRIPPED"), "{screen}");
        assert!(screen.contains("(2 so far)"), "{screen}");
    }

    #[test]
    fn several_providers_are_named() {
        let mut view = reconciler();
        let mut second = view.providers[0].clone();
        second.name = "process".into();
        second.last_cycle = None;
        view.providers.push(second);
        let screen = plain(&status(&view, at("2026-01-21T14:31:00Z")));
        assert!(screen.contains("  Last cycle (modal):\n    Provider containers:  5\n"), "{screen}");
        assert!(screen.ends_with("  Last cycle (process):\n    none yet\n"), "{screen}");
    }
}
