//! The one binary `parhelia`: parse, dispatch, exit code. Every command but `up` and `supervise` is a client
//! of the HTTP API.

mod args;
mod attach;
mod autostart;
mod bench;
mod client;
mod commands;
mod context;
mod error;
mod give_back;
mod output;
mod quantity;
mod telemetry;
mod terminal;

use std::ffi::OsString;
use std::pin::Pin;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::commands::settings;
use crate::context::Context;
use crate::error::{CliError, Result};

fn main() {
    std::process::exit(run());
}

fn run() -> i32 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error),
    };
    if let Command::Supervise(args) = cli.command {
        return args.run();
    }
    let serving = matches!(cli.command, Command::Up(_) | Command::Bench { parse_only: true, .. });
    if cli.globals.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    // Fails only when it was done before, and nobody before us could have.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let context = Context::new(cli.globals);
    match dispatch(cli.command, &context, serving) {
        Ok(()) => context.exit_code(),
        Err(error) => {
            output::report(&error, context.out.format().is_structured());
            error.exit.code()
        }
    }
}

fn dispatch(command: Command, context: &Context, serving: bool) -> Result<()> {
    let mut builder = if serving {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|e| CliError::failure("runtime", format!("cannot start the runtime: {e}")))?;
    let telemetry = match &command {
        Command::Up(args) => {
            // What is wrong with the settings is for the command itself to say.
            let loaded = settings::load(context, settings::flags(args));
            let config = loaded.map(|loaded| loaded.config).unwrap_or_default();
            telemetry::of_server(context.globals.verbose, &config, runtime.handle())?
        }
        _ => telemetry::of_client(context.globals.verbose),
    };
    // Boxed: whatever is given to `block_on` itself is compiled once for each kind of runtime.
    let mut work: Pin<Box<dyn Future<Output = Result<()>>>> = Box::pin(commands::run(command, context));
    let result = runtime.block_on(async {
        if serving {
            // The server hears Ctrl-C itself, and ends in good order.
            return work.await;
        }
        tokio::select! {
            result = &mut work => result,
            () = interrupted(context) => Err(CliError::interrupted(&context.interrupt_note())),
        }
    });
    // The last spans still need the runtime.
    drop(telemetry);
    // A question that still waits for its answer on the terminal must not hold us.
    runtime.shutdown_background();
    result
}

/// Ctrl-C, unless that is for a job that we stand for.
async fn interrupted(context: &Context) {
    while tokio::signal::ctrl_c().await.is_err() || context.signals_are_passed_on() {}
}

/// Help and version are answers; everything else is an error in the format that was asked for.
fn wrong_usage(error: &clap::Error) -> i32 {
    if error.use_stderr() && wants_structure(std::env::args_os()) {
        let text = error.render().to_string();
        let mut parts = text.splitn(2, "\n\n");
        let message = parts.next().unwrap_or_default().trim().trim_start_matches("error: ");
        let fix = parts.next().unwrap_or_default().trim();
        output::report(&CliError::usage(message).fix(fix), true);
    } else {
        // Nobody listens: nothing to do about it.
        let _ = error.print();
    }
    error.exit_code()
}

/// Whether a command line that cannot be parsed asked for structured output.
fn wants_structure(arguments: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    let structured = |format: &str| matches!(format, "json" | "jsonl" | "yaml");
    let before_dashes = words.iter().take_while(|word| *word != "--");
    let joined = before_dashes.clone().any(|word| {
        let format = word
            .strip_prefix("--output=")
            .or_else(|| word.strip_prefix("-o="))
            .or_else(|| word.strip_prefix("-o"));
        format.is_some_and(structured)
    });
    let apart = before_dashes.clone().zip(before_dashes.skip(1));
    joined
        || apart
            .into_iter()
            .any(|(flag, format)| matches!(flag.as_str(), "-o" | "--output") && structured(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_line_still_tells_its_format() {
        let asks = |line: &str| wants_structure(line.split_whitespace().map(OsString::from));
        for line in ["p x -o json", "p -ojson x", "p --output=yaml", "p --output jsonl x"] {
            assert!(asks(line), "{line}");
        }
        for line in ["p x", "p -o table", "p run -- tool -o json"] {
            assert!(!asks(line), "{line}");
        }
    }
}
