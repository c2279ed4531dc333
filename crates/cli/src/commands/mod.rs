//! One function per command: ask the server, then print. No command decides what the server should decide.

mod cleanup;
mod containers;
mod events;
mod instances;
mod reconciler;
mod server;
mod shell;
mod wait;

use crate::args::{Command, EventsCommand, InstancesCommand, ReconcilerCommand};
use crate::context::Context;
use crate::error::Result;

pub(crate) async fn run(command: Command, ctx: &Context) -> Result<()> {
    match command {
        Command::Up(args) => server::up(ctx, args).await,
        Command::Down => server::down(ctx).await,
        Command::Containers(args) => containers::run(ctx, *args).await,
        Command::Cleanup(args) => cleanup::run(ctx, args).await,
        Command::Events(args) => match args.command {
            EventsCommand::List(args) => events::list(ctx, args).await,
            EventsCommand::Tail(args) => events::tail(ctx, args).await,
            EventsCommand::Export(args) => events::export(ctx, args).await,
        },
        Command::Reconciler(args) => match args.command.unwrap_or(ReconcilerCommand::Status) {
            ReconcilerCommand::Status => reconciler::status(ctx).await,
            ReconcilerCommand::Run => reconciler::run(ctx).await,
        },
        Command::Instances(args) => match args.command.unwrap_or(InstancesCommand::List) {
            InstancesCommand::List => instances::list(ctx).await,
            InstancesCommand::Adopt { id, yes } => instances::adopt(ctx, &id, yes).await,
        },
        Command::Info => server::info(ctx).await,
        Command::Version(args) => server::version(ctx, args).await,
        Command::Bench { parse_only: true, .. } => crate::bench::parse_only().await,
        Command::Bench { dir, quick, only, .. } => crate::bench::run(ctx, dir.as_deref(), quick, &only).await,
        Command::Completions { shell } => shell::completions(ctx, shell),
        Command::Man { dir } => shell::man(ctx, dir.as_deref()),
        // `main` has handed it over before there was a runtime.
        Command::Supervise(args) => std::process::exit(args.run()),
    }
}
