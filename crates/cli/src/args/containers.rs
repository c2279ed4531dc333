//! `parhelia containers …`

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use parhelia_core::event::EventType;
use parhelia_core::sandbox::VolumeMount;
use parhelia_core::state::{ContainerState, Health};

use crate::args::event_type;
use crate::quantity::{self, Moment};

#[derive(Debug, Args)]
pub(crate) struct ContainersArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,
    #[command(subcommand)]
    pub(crate) command: Option<ContainersCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContainersCommand {
    /// List containers: state, health, task, age and cost
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  parhelia containers list --state running --label team=core
  parhelia containers list --all --limit 20 -o wide
  parhelia containers -q --health dead"
    )]
    List(ListArgs),

    /// Show everything about one container
    Show {
        /// Its id, or a unique prefix of it
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Show what happened to one container
    Events(ContainerEventsArgs),

    /// List sandboxes that nobody asked for
    Orphans,

    /// Count containers by health
    Health,

    /// Follow state, CPU and memory until Ctrl-C
    #[command(after_help = "\
On a terminal this is a table that redraws itself. In a pipe it is one line per container and round:
  [14:32:15] c-abc123  healthy   CPU: 45%  MEM: 62%  ↑ 2h 15m")]
    Watch(WatchArgs),

    /// Run a command in a new sandbox
    #[command(
        override_usage = "parhelia containers run [OPTIONS] -- <CMD>...",
        after_help = "\
Examples:
  parhelia containers run -- sleep 600
  parhelia containers run --name tests --follow -- make test
  parhelia containers run --label team=core --memory 2g --wait -- ./agent --goal 'fix it'
  id=$(parhelia containers run -q -- ./serve)
Without --wait it returns as soon as the command runs, which outlives this program and the server."
    )]
    Run(Box<RunArgs>),

    /// Stop containers politely: SIGTERM, then SIGKILL after the grace
    Stop(StopArgs),

    /// End containers for certain, and wait until they are gone
    #[command(after_help = "\
Examples:
  parhelia containers terminate c-01k9z3
  parhelia containers terminate --force --yes $(parhelia containers -q --health dead)")]
    Terminate(TerminateArgs),

    /// Print the output of a container, as it wrote it
    #[command(
        visible_alias = "log",
        after_help = "\
Examples:
  parhelia containers logs c-01k9 --tail 50
  parhelia containers logs c-01k9 -f | grep ERROR"
    )]
    Logs(LogsArgs),

    /// Show the heartbeats of one container
    Heartbeats(HeartbeatsArgs),
}

#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct FilterArgs {
    /// Only in these states (repeat, or separate by commas)
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = container_state())]
    pub(crate) state: Vec<ContainerState>,

    /// Only with this health (repeat, or separate by commas)
    #[arg(long, value_name = "HEALTH", value_delimiter = ',', value_parser = health())]
    pub(crate) health: Vec<Health>,

    /// Only at this provider
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,

    /// Only for this task
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,

    /// Only with this label (repeat for more: all must match)
    #[arg(long, value_name = "KEY=VALUE", value_parser = quantity::pair)]
    pub(crate) label: Vec<(String, String)>,

    /// Terminated ones too
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// At most this many
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Follow them until Ctrl-C, like `containers watch`
    #[arg(short, long)]
    pub(crate) watch: bool,

    /// As they were then: an age (1h) or a time; state, health, desired state and cost come from the history
    #[arg(long, value_name = "TIME", value_parser = quantity::moment, conflicts_with = "watch")]
    pub(crate) at: Option<Moment>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// How often to look
    #[arg(short, long, value_name = "DURATION", default_value = "2s", value_parser = quantity::interval)]
    pub(crate) interval: Duration,

    /// Look this many times, then end
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ContainerEventsArgs {
    /// Its id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The latest N
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,

    /// Only of this type (repeat, or separate by commas)
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = event_type(), hide_possible_values = true)]
    pub(crate) types: Vec<EventType>,

    /// Only after this: an age (1h) or a time
    #[arg(long, value_name = "TIME", value_parser = quantity::moment)]
    pub(crate) since: Option<Moment>,
}

#[derive(Debug, Args)]
pub(crate) struct HeartbeatsArgs {
    /// Its id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The latest N
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,

    /// Only after this: an age (1h) or a time
    #[arg(long, value_name = "TIME", value_parser = quantity::moment)]
    pub(crate) since: Option<Moment>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Its id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Go on until the container has ended
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Only the last N lines
    #[arg(short, long, value_name = "LINES", conflicts_with = "tail_bytes")]
    pub(crate) tail: Option<usize>,

    /// Only the last bytes (64k, 1m)
    #[arg(long, value_name = "SIZE", value_parser = quantity::byte_count)]
    pub(crate) tail_bytes: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Their ids, or unique prefixes of them
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,

    /// From SIGTERM to SIGKILL [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub(crate) grace: Option<Duration>,

    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Return when the request is recorded
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// How long to wait for the end, beyond the grace
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct TerminateArgs {
    /// Their ids, or unique prefixes of them
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,

    /// At once: no grace
    #[arg(short, long, conflicts_with = "grace")]
    pub(crate) force: bool,

    /// From SIGTERM to SIGKILL [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub(crate) grace: Option<Duration>,

    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Return when the request is recorded
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// How long to wait for the end, beyond the grace
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Where to run it
    #[arg(short, long, value_name = "NAME", default_value = "process")]
    pub(crate) provider: String,

    /// The image, where the provider needs one
    #[arg(short, long)]
    pub(crate) image: Option<String>,

    /// A name for people
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// How many cores (a limit in docker; local processes are measured against it, not limited)
    #[arg(long, value_name = "CORES", value_parser = quantity::cpu_cores)]
    pub(crate) cpu: Option<f64>,

    /// How much memory: 512m, 2g (a limit in docker; local processes are measured against it, not limited)
    #[arg(short, long, value_name = "SIZE", value_parser = quantity::memory_mb)]
    pub(crate) memory: Option<i64>,

    /// Which GPU
    #[arg(long, value_name = "TYPE")]
    pub(crate) gpu: Option<String>,

    /// A label (repeat for more)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = quantity::pair)]
    pub(crate) label: Vec<(String, String)>,

    /// An environment variable; KEY alone passes on the value that it has here (repeat for more)
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = quantity::variable)]
    pub(crate) env: Vec<(String, Option<String>)>,

    /// The task that it works for
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,

    /// What that task is, in words
    #[arg(long, value_name = "TEXT", requires = "task")]
    pub(crate) task_title: Option<String>,

    /// Stop it after this long without output and without CPU use
    #[arg(long, value_name = "DURATION", value_parser = quantity::interval)]
    pub(crate) idle_timeout: Option<Duration>,

    /// Never end it for silence alone
    #[arg(long)]
    pub(crate) keep: bool,

    /// Its working directory [default, for local processes: this one]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,

    /// The tmux session that it works in, so that its heartbeat can tell whether that is active
    #[arg(long, value_name = "SESSION")]
    pub(crate) tmux: Option<String>,

    /// Docker: run it as this user (UID, UID:GID or names of the image)
    #[arg(short, long, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// Docker: attach it to this network [default: the engine's bridge]
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,

    /// Docker: mount a named volume (repeat for more)
    #[arg(long, value_name = "NAME:/PATH[:ro]")]
    pub(crate) volume: Vec<VolumeMount>,

    /// Give it a secret of the server: in docker the file /run/secrets/NAME, else the variable NAME (repeat for more)
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Vec<String>,

    /// Wait for its end; exit with 5 when it failed
    #[arg(long)]
    pub(crate) wait: bool,

    /// Print its output as it comes, then act like --wait
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// How long to wait for it to start
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = quantity::duration)]
    pub(crate) start_timeout: Duration,

    /// The command and its arguments; never given to a shell
    #[arg(value_name = "CMD", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
}

fn container_state() -> impl TypedValueParser<Value = ContainerState> {
    PossibleValuesParser::new(ContainerState::ALL.iter().map(|s| s.as_str()))
        .try_map(|s| s.parse::<ContainerState>())
}

fn health() -> impl TypedValueParser<Value = Health> {
    PossibleValuesParser::new(Health::ALL.iter().map(|s| s.as_str())).try_map(|s| s.parse::<Health>())
}
