//! `parhelia-sim --seeds N --hours H`: many simulated hours, and the command that replays what broke.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use parhelia_core::time::Clock;
use parhelia_providers::SystemClock;
use parhelia_sim::{Breakage, Campaign, Tally};

#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often progress is told.
const TELL_SECONDS: u64 = 60;

/// Tries to break the control plane in seeded worlds.
#[derive(Debug, Parser)]
struct Args {
    /// How many worlds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Simulated hours in each world
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// One world in so many has sessions, which take far longer; 0: none has
    #[arg(long, default_value_t = parhelia_sim::SESSIONS_IN)]
    sessions_in: u64,
    /// Worlds at once; 0: one per processor
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Break a contract on purpose, to see it noticed
    #[arg(long = "break")]
    breakage: Option<Breakage>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if args.threads == 0 { processors } else { args.threads };
    let Args { from, seeds: worlds, hours, sessions_in, breakage, .. } = args;
    let campaign = Campaign { from, worlds, hours, sessions_in, breakage };
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let seconds = || clock.monotonic().saturating_sub(began).as_secs_f64();
    let told = AtomicU64::new(0);
    let tell = |tally: &Tally| {
        let minutes = seconds() as u64 / TELL_SECONDS;
        if told.fetch_max(minutes, Ordering::Relaxed) < minutes {
            eprintln!("{tally}; {:.0} hours per second", tally.hours() / seconds());
        }
    };
    let tally = campaign.run(threads, tell);
    println!("{tally}");
    println!("{:.0}s, {:.0} simulated hours per second", seconds(), tally.hours() / seconds());
    match (tally.broken_seed, tally.total.broken) {
        (Some(seed), Some(broken)) => {
            println!("seed {seed} broke {broken}\n\nreplay: {}", campaign.replay(seed));
            ExitCode::FAILURE
        }
        _ => {
            println!("no invariant broken");
            ExitCode::SUCCESS
        }
    }
}
