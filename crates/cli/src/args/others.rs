//! Every command that is not about containers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use parhelia_core::access::Role;
use parhelia_core::event::EventType;

use crate::quantity::{self, Moment};

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Listen on this TCP address too (a bare port is on 127.0.0.1)
    #[arg(short, long, value_name = "ADDR", value_parser = quantity::listen_address)]
    pub(crate) listen: Option<SocketAddr>,

    /// The certificate (with its chain) for the TCP address, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Listen beyond this machine without TLS: tokens then cross the network in the clear
    #[arg(long)]
    pub(crate) insecure_listen: bool,

    /// How to write the log on standard error [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    pub(crate) log_format: Option<String>,

    /// Started by a command that found no server
    #[arg(long, hide = true)]
    pub(crate) on_demand: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("kind").required(true).args(["orphans", "dead"]))]
pub(crate) struct CleanupArgs {
    /// Sandboxes with our tag that no record asked for
    #[arg(long)]
    pub(crate) orphans: bool,

    /// Containers that have been silent for too long
    #[arg(long)]
    pub(crate) dead: bool,

    /// Only those older than this
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub(crate) older_than: Option<Duration>,

    /// Show what qualifies, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// How long to wait until all are confirmed gone
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = quantity::duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(subcommand)]
    pub(crate) command: EventsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// List the latest events, oldest first
    #[command(visible_alias = "ls")]
    List(EventsListArgs),
    /// Follow events as they happen, one line each, until Ctrl-C
    Tail(EventsTailArgs),
    /// Write all events, oldest first, as JSON lines or CSV
    Export(EventsExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EventsListArgs {
    /// Only of this container
    #[arg(short, long, value_name = "ID")]
    pub(crate) container: Option<String>,

    /// Only of this task
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,

    /// Only of this session
    #[arg(short, long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// Only of this type (repeat, or separate by commas)
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = event_type())]
    pub(crate) types: Vec<EventType>,

    /// Only after this: an age (1h) or a time
    #[arg(long, value_name = "TIME", value_parser = quantity::moment)]
    pub(crate) since: Option<Moment>,

    /// Only before this: an age (1h) or a time
    #[arg(long, value_name = "TIME", value_parser = quantity::moment)]
    pub(crate) until: Option<Moment>,

    /// The latest N
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct EventsTailArgs {
    /// Begin after the event with this number, instead of now (0 is the very beginning)
    #[arg(long, value_name = "EVENT", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) after: Option<i64>,

    /// Only of this container
    #[arg(short, long, value_name = "ID")]
    pub(crate) container: Option<String>,

    /// Only of this session
    #[arg(short, long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// Only of this type (repeat, or separate by commas)
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = event_type())]
    pub(crate) types: Vec<EventType>,

    /// End after this many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct EventsExportArgs {
    /// Only after this: an age (30d) or a time
    #[arg(long, value_name = "TIME", value_parser = quantity::moment)]
    pub(crate) since: Option<Moment>,

    /// Only before this: an age or a time [default: now]
    #[arg(long, value_name = "TIME", value_parser = quantity::moment)]
    pub(crate) until: Option<Moment>,

    /// JSON lines, or comma separated values
    #[arg(long, value_enum, default_value = "jsonl")]
    pub(crate) format: ExportFormat,

    /// Where to write it; it appears only when it is complete [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Jsonl,
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct ReconcilerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ReconcilerCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReconcilerCommand {
    /// Show when it last compared records with reality, and what it found
    Status,
    /// Compare now, and wait for the result
    Run,
}

#[derive(Debug, Args)]
pub(crate) struct RecoveryArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RecoveryCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecoveryCommand {
    /// Show what the last start found of each job, and how every job is
    Status,
    /// Show the sentinel files of this home as they are now, with their locks
    Sentinels,
    /// Show when each job was last heard
    Heartbeats,
    /// Show the figures of the last recovery, and of all jobs
    Metrics,
    /// Show the jobs that failed, why, and how each could go on
    Failed,
    /// Show the jobs that are silent and not known to be dead
    Stale,
}

#[derive(Debug, Args)]
pub(crate) struct InstancesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<InstancesCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InstancesCommand {
    /// List the instances whose sandboxes were seen, and what theirs cost
    #[command(visible_alias = "ls")]
    List,
    /// Take over the sandboxes of another instance, for example one whose data was lost
    Adopt {
        /// Its id, or a unique prefix of it
        #[arg(value_name = "ID")]
        id: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    pub(crate) command: Option<TokensCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// List the tokens, the newest first (never their secrets: those are not kept)
    #[command(visible_alias = "ls")]
    List {
        /// Those that containers were given too
        #[arg(short, long)]
        all: bool,
    },
    /// Make a token; its secret is printed once, alone on standard output
    Create(TokenCreateArgs),
    /// End a token for good
    Revoke {
        /// Its id, or a unique prefix of it
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AlertsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AlertsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// List the configured alerts: where each goes, what it is for, and what became of its deliveries
    #[command(visible_alias = "ls")]
    List,
    /// Send a test to the receiver of an alert now, and show what it answered
    Test {
        /// Its name in the configuration
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// The person or program that gets it: events and limits name it
    #[arg(value_name = "SUBJECT")]
    pub(crate) subject: String,

    /// What it opens: viewer looks, operator also starts and ends, admin does everything, worker speaks for one container
    #[arg(long, value_name = "ROLE", default_value = "viewer", value_parser = role())]
    pub(crate) role: Role,

    /// The container that a worker speaks for
    #[arg(long, value_name = "ID", required_if_eq("role", "worker"))]
    pub(crate) container: Option<String>,

    /// How long it holds [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub(crate) expires: Option<Duration>,
}

fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.iter().map(|role| role.as_str()))
        .map(|word| word.parse().unwrap_or(Role::Viewer))
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the settings as a server that is started now would have them
    Show {
        /// Where each value comes from: the default, a line of the file, or a variable
        #[arg(long)]
        origin: bool,
        /// Only what is not at its default
        #[arg(long)]
        changed: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Of the server too, if one is running
    #[arg(long)]
    pub(crate) server: bool,
}

/// An event type, by its full word or the short one of the screens.
pub(crate) fn event_type() -> impl TypedValueParser<Value = EventType> {
    let words = EventType::ALL.iter().map(|t| {
        let word = PossibleValue::new(t.as_str());
        if t.short() == t.as_str() { word } else { word.alias(t.short()) }
    });
    PossibleValuesParser::new(words.collect::<Vec<_>>()).try_map(|text| {
        let of = EventType::ALL.iter().find(|t| t.short() == text);
        of.copied().map_or_else(|| text.parse::<EventType>(), Ok)
    })
}
