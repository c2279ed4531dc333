//! `parhelia-sim --seeds N --hours H`: many simulated hours, and the command that replays what broke.

use clap::Parser;
use parhelia_sim::{Settings, run};

/// Tries to break the reconciler in a seeded world.
#[derive(Debug, Parser)]
struct Args {
    /// How many worlds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Simulated hours in each world
    #[arg(long, default_value_t = 6)]
    hours: u64,
    /// Break contract 1 on purpose (a failed listing is taken for an empty one)
    #[arg(long, hide = true)]
    failure_is_absence: bool,
}

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    let (mut seconds, mut faults, mut crashes, mut steps) = (0, 0, 0, 0);
    for seed in args.from..args.from + args.seeds {
        let outcome = run(Settings { seed, hours: args.hours, failure_is_absence: args.failure_is_absence });
        seconds += outcome.simulated_seconds;
        faults += outcome.faults;
        crashes += outcome.crashes;
        steps += outcome.steps;
        if let Some(broken) = outcome.broken {
            println!(
                "seed {seed} broke after {:.1} simulated hours: {broken}",
                outcome.simulated_seconds as f64 / 3600.0
            );
            println!("\nreplay: cargo run -p parhelia-sim -- --from {seed} --seeds 1 --hours {}", args.hours);
            return std::process::ExitCode::FAILURE;
        }
    }
    let hours = seconds as f64 / 3600.0;
    println!(
        "{hours:.0} simulated hours in {} worlds: {steps} steps, {faults} faults, {crashes} crashes, no invariant broken",
        args.seeds
    );
    std::process::ExitCode::SUCCESS
}
