//! One function per command: ask the server, then print. No command decides what the server should decide.

mod alerts;
mod cascade;
mod cleanup;
mod containers;
mod doctor;
mod events;
mod exec;
mod inbox;
mod instances;
mod jobs;
mod mcp;
mod reconciler;
mod recovery;
mod run;
mod server;
mod sessions;
pub(crate) mod settings;
mod shell;
mod signals;
mod tokens;
mod wait;
mod why;
mod worker;

use std::collections::BTreeMap;

use crate::args::{
    AlertsCommand, Command, ConfigCommand, EventsCommand, InstancesCommand, ReconcilerCommand, TokensCommand,
};
use crate::context::Context;
use crate::error::{CliError, Result};

pub(crate) async fn run(command: Command, ctx: &Context) -> Result<()> {
    match command {
        Command::Up(args) => server::up(ctx, args).await,
        Command::Down => server::down(ctx).await,
        Command::Containers(args) => containers::run(ctx, *args).await,
        Command::Run(args) => run::run(ctx, *args).await,
        Command::Cascade(args) => cascade::run(ctx, args.command),
        Command::Exec(args) => exec::run(ctx, *args).await,
        Command::Jobs(args) => jobs::run(ctx, *args).await,
        Command::Sessions(args) => sessions::run(ctx, *args).await,
        Command::Signals(args) => signals::run(ctx, args).await,
        Command::Inbox(args) => inbox::run(ctx, *args).await,
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
        Command::Recovery(args) => recovery::run(ctx, args.command).await,
        Command::StartupLog => recovery::startup_log(ctx).await,
        Command::Instances(args) => match args.command.unwrap_or(InstancesCommand::List) {
            InstancesCommand::List => instances::list(ctx).await,
            InstancesCommand::Adopt { id, yes } => instances::adopt(ctx, &id, yes).await,
        },
        Command::Tokens(args) => match args.command.unwrap_or(TokensCommand::List { all: false }) {
            TokensCommand::List { all } => tokens::list(ctx, all).await,
            TokensCommand::Create(args) => tokens::create(ctx, args).await,
            TokensCommand::Revoke { id } => tokens::revoke(ctx, &id).await,
        },
        Command::Config { command: ConfigCommand::Show { origin, changed } } => {
            settings::show(ctx, origin, changed)
        }
        Command::Mcp => mcp::run(ctx).await,
        Command::Why { id } => why::run(ctx, &id).await,
        Command::Doctor => doctor::run(ctx).await,
        Command::Alerts(args) => match args.command.unwrap_or(AlertsCommand::List) {
            AlertsCommand::List => alerts::list(ctx).await,
            AlertsCommand::Test { name } => alerts::test(ctx, &name).await,
        },
        Command::Info => server::info(ctx).await,
        Command::Version(args) => server::version(ctx, args).await,
        Command::Bench { parse_only: true, .. } => crate::bench::parse_only().await,
        Command::Bench { dir, postgres, quick, only, .. } => {
            crate::bench::run(ctx, dir.as_deref(), postgres.as_deref(), quick, &only).await
        }
        Command::Completions { shell } => shell::completions(ctx, shell),
        Command::Man { dir } => shell::man(ctx, dir.as_deref()),
        // `main` has handed it over before there was a runtime.
        Command::Worker(args) => worker::run(ctx, args).await,
        Command::Supervise(args) => std::process::exit(args.run()),
    }
}

/// What `--env` names: a value that is given, or the one that the variable has here.
fn variables(given: &[(String, Option<String>)], env: &mut BTreeMap<String, String>) -> Result<()> {
    for (key, value) in given {
        let value = match value {
            Some(value) => value.clone(),
            None => std::env::var(key).map_err(|_| {
                CliError::usage(format!("--env {key}: {key} is not set here"))
                    .fix(format!("write it like --env {key}=VALUE"))
            })?,
        };
        env.insert(key.clone(), value);
    }
    Ok(())
}
