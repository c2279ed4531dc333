//! Many worlds, on as many threads as there are processors: they have nothing in common.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Breakage, Outcome, SESSIONS_IN, Settings, run};

/// Seeds `from` to `from + worlds`, each for that many simulated hours.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    pub from: u64,
    pub worlds: u64,
    pub hours: u64,
    pub sessions_in: u64,
    pub breakage: Option<Breakage>,
}

/// What all worlds of a campaign came to.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub worlds: u64,
    pub total: Outcome,
    /// The first seed that was found to break something.
    pub broken_seed: Option<u64>,
}

impl Campaign {
    /// Runs until all are done or one has broken; `progress` is called after each world.
    pub fn run(self, threads: usize, progress: impl Fn(&Tally) + Sync) -> Tally {
        let next = AtomicU64::new(self.from);
        let stop = AtomicBool::new(false);
        let tally = Mutex::new(Tally::default());
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.from + self.worlds {
                            break;
                        }
                        let Self { hours, sessions_in, breakage, .. } = self;
                        let outcome = run(Settings { seed, hours, sessions_in, breakage });
                        stop.fetch_or(outcome.broken.is_some(), Ordering::Relaxed);
                        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                        tally.add(seed, outcome);
                        progress(&tally);
                    }
                });
            }
        });
        tally.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command that runs one of its seeds again.
    pub fn replay(&self, seed: u64) -> String {
        use clap::ValueEnum;
        let contract = self.breakage.and_then(|b| b.to_possible_value());
        let contract = contract.map(|b| format!(" --break {}", b.get_name())).unwrap_or_default();
        let sessions = match self.sessions_in {
            SESSIONS_IN => String::new(),
            other => format!(" --sessions-in {other}"),
        };
        let hours = self.hours;
        format!("cargo run -p parhelia-sim -- --from {seed} --seeds 1 --hours {hours}{sessions}{contract}")
    }
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        let total = &mut self.total;
        self.worlds += 1;
        total.steps += outcome.steps;
        total.simulated_seconds += outcome.simulated_seconds;
        total.session_seconds += outcome.session_seconds;
        total.events += outcome.events;
        total.faults += outcome.faults;
        total.crashes += outcome.crashes;
        total.replaced += outcome.replaced;
        total.refused += outcome.refused;
        total.sessions += outcome.sessions;
        total.refused_owners += outcome.refused_owners;
        if self.broken_seed.is_none() && outcome.broken.is_some() {
            self.broken_seed = Some(seed);
            total.broken = outcome.broken;
        }
    }

    pub fn hours(&self) -> f64 {
        self.total.simulated_seconds as f64 / 3600.0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { steps, events, faults, crashes, replaced, refused, sessions, refused_owners, .. } =
            &self.total;
        let session_hours = self.total.session_seconds as f64 / 3600.0;
        write!(
            f,
            "{:.0} simulated hours in {} worlds: {steps} steps, {events} events, {faults} faults, {crashes} crashes, \
             {replaced} servers replaced in their sleep, {refused} late writes refused, {sessions} sessions \
             in {session_hours:.0} of the hours, {refused_owners} of their owners refused",
            self.hours(),
            self.worlds,
        )
    }
}
