//! The simulation holds, replays, and finds what it is there to find. Bigger numbers: `scripts/soak.sh`.

use parhelia_sim::{Settings, run};

#[test]
fn no_invariant_breaks_in_a_few_worlds() {
    for seed in 1..=12 {
        let outcome = run(Settings { seed, hours: 2, failure_is_absence: false });
        assert_eq!(outcome.broken, None, "seed {seed}");
        assert!(outcome.remembered > 10, "seed {seed}: {} moments", outcome.remembered);
        assert!(outcome.faults > 20, "seed {seed} was too peaceful: {} faults", outcome.faults);
    }
}

#[test]
fn a_seed_replays_exactly() {
    let settings = Settings { seed: 4711, hours: 2, failure_is_absence: false };
    let (first, second) = (run(settings), run(settings));
    assert!(first.history.len() > 50);
    assert_eq!(first, second);
}

/// Contract 1 broken on purpose: a failed listing is an empty one, a failed inspection is an absence.
#[test]
fn taking_failure_for_absence_is_caught() {
    let caught = (1..=5)
        .filter(|&seed| run(Settings { seed, hours: 6, failure_is_absence: true }).broken.is_some())
        .count();
    assert_eq!(caught, 5);
}
