//! The command line: every command, option and help text. Nothing here talks to anybody.

mod cascade;
mod containers;
mod exec;
mod jobs;
mod others;
mod sessions;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::Part;

pub(crate) use cascade::*;
pub(crate) use containers::*;
pub(crate) use exec::*;
pub(crate) use jobs::*;
pub(crate) use others::*;
pub(crate) use sessions::*;

#[derive(Debug, Parser)]
#[command(
    name = "parhelia",
    version = parhelia_core::VERSION,
    about = "See, run and end fleets of agent sandboxes, and know what they cost",
    long_about = "Parhelia knows what is really running, what should be running, what each sandbox costs and \
                  whether it is alive. It ends what drifted, and it loses nothing when a process, a container or \
                  the machine dies.\n\nEvery command is a client of one small server per home directory, which is \
                  started when it is needed. Every ID may be shortened to a unique prefix.",
    after_help = EXAMPLES,
    after_long_help = EXAMPLES_AND_EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  parhelia containers run -- sleep 600      run something, and come back when it runs
  parhelia containers                       what is there, how it is, what it costs
  parhelia containers watch                 the same, live
  parhelia containers terminate c-01k9      end one (a unique prefix of its id is enough)
  parhelia cleanup --orphans                end what nobody asked for
  parhelia run release.yaml                 a workflow of phases as a durable session, live
  parhelia inbox                            what waits for a person, and the command that answers it";

const EXAMPLES_AND_EXIT_CODES: &str = "\
Examples:
  parhelia containers run -- sleep 600      run something, and come back when it runs
  parhelia containers                       what is there, how it is, what it costs
  parhelia containers watch                 the same, live
  parhelia containers terminate c-01k9      end one (a unique prefix of its id is enough)
  parhelia cleanup --orphans                end what nobody asked for
  parhelia run release.yaml                 a workflow of phases as a durable session, live
  parhelia inbox                            what waits for a person, and the command that answers it

Exit codes:
  0 done        1 failure       2 wrong usage       3 not found     4 not allowed, or a conflict
  5 the awaited work failed     6 timed out         130 interrupted

Output:
  Data is on standard output and everything else on standard error. With -o json, jsonl or yaml an
  error is {\"code\", \"message\", \"fix\"} on standard error.";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// How to print the result
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,

    /// Print ids only, and no remarks
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,

    /// The directory of the server and its data [default: ~/.parhelia]
    #[arg(long, global = true, value_name = "DIR", env = "PARHELIA_HOME", hide_short_help = true)]
    pub(crate) home: Option<PathBuf>,

    /// Use the server at this address instead of the local one (its token comes from PARHELIA_TOKEN or a file)
    #[arg(long, global = true, value_name = "URL", env = "PARHELIA_URL", hide_short_help = true)]
    pub(crate) url: Option<String>,

    /// A file that holds the token for --url
    #[arg(long, global = true, value_name = "FILE", env = "PARHELIA_TOKEN_FILE", hide_short_help = true)]
    pub(crate) token_file: Option<PathBuf>,

    /// The server's configuration file [default: parhelia.toml in the home, if there is one]
    #[arg(long, global = true, value_name = "FILE", env = "PARHELIA_CONFIG", hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,

    /// Never colour the output (so does NO_COLOR, and output that is not a terminal)
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) no_color: bool,

    /// Log to standard error; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, hide_short_help = true)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// One JSON document
    Json,
    /// One JSON object per line
    Jsonl,
    /// One YAML document
    Yaml,
    /// Ids, one per line
    Name,
}

impl Format {
    /// For programs, which then get errors as JSON too.
    pub(crate) fn is_structured(self) -> bool {
        matches!(self, Format::Json | Format::Jsonl | Format::Yaml)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve in the foreground until Ctrl-C
    #[command(after_help = "\
Examples:
  parhelia up                       on the unix socket of the home
  parhelia up --listen 7717         and on http://127.0.0.1:7717, with a token
  parhelia up --listen 0.0.0.0:7717 --tls-cert server.pem --tls-key server.key
Commands start a server by themselves when none is there; it leaves again when it has nothing to do.")]
    Up(UpArgs),

    /// Stop the server; the sandboxes keep running
    Down,

    /// List, run, inspect and end containers
    #[command(
        visible_alias = "container",
        after_help = "\
Examples:
  parhelia containers                             all that are not terminated
  parhelia containers --state running --health degraded,dead
  parhelia containers run --name tests -- make test
  parhelia containers show c-01k9"
    )]
    Containers(Box<ContainersArgs>),

    /// Run a cascade file as a durable session, and follow it
    #[command(after_help = "\
Examples:
  parhelia run release.yaml -i version=1.2        a live tree; ends with it (0 completed, 5 failed or cancelled)
  id=$(parhelia run nightly.yaml --detach -o name)
Ctrl-C asks whether to cancel it or to leave it running. The death of the server does not end it.")]
    Run(Box<RunCascadeArgs>),

    /// Check cascade files, and print their schema
    Cascade(CascadeArgs),

    /// Run a command as a job: supervised, visible, and alive whatever becomes of the server
    #[command(
        override_usage = "parhelia exec [OPTIONS] -- <CMD>...",
        after_help = "\
Examples:
  parhelia exec -- claude                               the real thing, on this terminal
  parhelia exec --name fix --engine claude-code -- -p 'fix the tests'
  echo 'hello' | parhelia exec -- cat                   input, output and exit code are the command's
  id=$(parhelia exec --detach -o name -- ./agent)       come back at once
Ctrl-P Ctrl-Q leaves it running; 'parhelia jobs attach ID' comes back, also after the server was restarted."
    )]
    Exec(Box<ExecArgs>),

    /// List jobs, see what they wait for, read them, end them, go on with them
    #[command(
        visible_alias = "job",
        after_help = "\
Examples:
  parhelia jobs                             those that are not over, and those of the last day
  parhelia jobs --waiting                   those that need a person
  parhelia jobs logs tests -f               the output of the job named tests, as it comes
  parhelia jobs cancel 376c --wait          end one, and wait until it is gone
A job is named by its id or a unique prefix of it, its container's id, or its name."
    )]
    Jobs(Box<JobsArgs>),

    /// List sessions, see what they wait for, end them, go on with them
    #[command(
        visible_alias = "session",
        after_help = "\
Examples:
  parhelia sessions                         those that are not over, and those of the last day
  parhelia sessions show nightly            phases, tasks, and what it waits for
  parhelia sessions watch nightly           live, until it is over
  parhelia sessions cancel nightly --wait   end it and everything below it
A session is named by its id, a unique prefix of it, or its name."
    )]
    Sessions(Box<SessionsArgs>),

    /// Fire signals that sessions wait for, and see what became of them
    #[command(
        visible_alias = "signal",
        after_help = "\
Examples:
  parhelia signals fire deployed --payload '{\"version\": \"1.2\"}'
  parhelia signals list --pending           those that nobody has taken yet"
    )]
    Signals(SignalsArgs),

    /// Everything that waits for a person, and the answers
    #[command(after_help = "\
Examples:
  parhelia inbox                            what waits, and the command that answers it
  parhelia inbox --watch
  parhelia inbox answer wait-01k9 yes
  parhelia inbox approve wait-01k9 wait-01ka --reason 'looks good'")]
    Inbox(Box<InboxArgs>),

    /// End every orphan, or every dead container, after showing them
    #[command(after_help = "\
Examples:
  parhelia cleanup --orphans --dry-run      only show what would be ended
  parhelia cleanup --orphans                show, ask, end, and wait until each is confirmed gone
  parhelia cleanup --dead --older-than 2h --yes")]
    Cleanup(CleanupArgs),

    /// Read the history: every change of every container
    #[command(
        visible_alias = "event",
        after_help = "\
Examples:
  parhelia events list --since 1h
  parhelia events tail -o jsonl
  parhelia events export --since 2026-01-01 --format csv --file january.csv"
    )]
    Events(EventsArgs),

    /// Why something is as it is: the evidence, what it waits for, and who can change that
    #[command(after_help = "\
Examples:
  parhelia why c-01k9                 a container, by a unique prefix of its id
  parhelia why nightly                a session: why it is not done
  parhelia why docker                 a provider
  parhelia why tok-01k9 -o json       a token; tasks and instances have their why too")]
    Why {
        /// The id of a session, wait, container, job, task, token, instance or provider, or a unique prefix of it
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Check the configuration, the store, the providers and the machine, each with the fix
    #[command(after_help = "\
Examples:
  parhelia doctor                     this home and its server, if one runs; none is started
  parhelia --url https://host:7717 doctor -o json
It ends with 1 when something is wrong, and with 0 when there are only warnings.")]
    Doctor,

    /// See whether records and reality are being compared, or compare them now
    Reconciler(ReconcilerArgs),

    /// See what a start of the server found of the jobs, and who is silent
    #[command(after_help = "\
Examples:
  parhelia recovery status            what the last start found, and how every job is
  parhelia recovery stale
  parhelia recovery failed -o json    with the reasons, and how each could go on")]
    Recovery(RecoveryArgs),

    /// Show the last starts of the server, step by step
    StartupLog,

    /// See sandboxes of other Parhelia instances in the same accounts, and take them over
    #[command(visible_alias = "instance")]
    Instances(InstancesArgs),

    /// Make, list and revoke the tokens that people and programs come in with
    #[command(
        visible_alias = "token",
        after_help = "\
Examples:
  parhelia tokens create ci --role viewer --expires 30d > ci.token
  parhelia tokens create ann --role operator
  parhelia tokens list
  parhelia tokens revoke tok-01k9"
    )]
    Tokens(TokensArgs),

    /// Show every setting of the server: the file, the environment and the defaults, and which one won
    #[command(after_help = "\
Examples:
  parhelia config show --origin             every setting, and where its value comes from
  parhelia config show --changed --origin   only what is not at its default
  parhelia config show -o wide              with what is allowed, and what each is for")]
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },

    /// Serve agents on standard input and output (the Model Context Protocol)
    #[command(after_help = "\
Examples:
  claude mcp add parhelia -- parhelia mcp           for Claude Code, on the local server
  parhelia mcp --url https://parhelia.example.com   on another one, with its token
The same is at /mcp of the server itself, over HTTP.")]
    Mcp,

    /// See whom alerts go to and what became of them, or try one out
    #[command(
        visible_alias = "alert",
        after_help = "\
Examples:
  parhelia alerts list
  parhelia alerts test ops          send a test now, and show what the receiver answered"
    )]
    Alerts(AlertsArgs),

    /// Show which server answers, and where it keeps its data
    Info,

    /// Print the version of this program
    Version(VersionArgs),

    /// Measure what it costs on this machine, each figure beside the limit measured in the same run
    #[command(after_help = "\
Examples:
  parhelia bench
  parhelia bench --dir /var/tmp -o json     on the file system that matters to you")]
    Bench {
        /// Where to work (a directory of its own is made there, and removed); default: the temporary directory
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,

        /// A PostgreSQL to measure on, in a schema of its own; default: a private one, if its binaries are here
        #[arg(long, value_name = "URL")]
        postgres: Option<String>,

        /// Small numbers: shows that it works, measures little
        #[arg(long)]
        quick: bool,

        /// Measure only these parts, separated by commas
        #[arg(long, value_name = "PART", value_delimiter = ',')]
        only: Vec<Part>,

        /// Serve what the HTTP figures are measured against: a handler that only parses
        #[arg(long, hide = true, conflicts_with_all = ["dir", "postgres", "quick", "only"])]
        parse_only: bool,
    },

    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  source <(parhelia completions bash)
  parhelia completions fish > ~/.config/fish/completions/parhelia.fish")]
    Completions {
        /// For which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },

    /// Print the manual page, or write all of them into a directory
    Man {
        /// Where to write one page per command
        dir: Option<PathBuf>,
    },

    /// Own one job's process (started by the process provider)
    #[command(hide = true)]
    Supervise(SuperviseArgs),

    /// Claim and run the tasks of a session (started by the session itself)
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// The session whose tasks to claim
    #[arg(long)]
    pub(crate) session: String,

    /// Which worker this is
    #[arg(long)]
    pub(crate) worker: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SuperviseArgs {
    /// The directory of the job
    #[arg(long, required_unless_present = "inside", conflicts_with = "inside")]
    pub(crate) dir: Option<PathBuf>,

    /// In a container: the directory with the server's socket
    #[arg(long, value_name = "DIR", requires = "command")]
    pub(crate) inside: Option<PathBuf>,

    /// How often to beat
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) heartbeat_interval: u64,

    /// Stop after this long without output and without CPU use
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle_timeout: Option<u64>,

    /// The tmux session that it works in
    #[arg(long, value_name = "SESSION")]
    pub(crate) tmux: Option<String>,

    /// How many cores it may use
    #[arg(long, value_name = "CORES")]
    pub(crate) cpu: Option<f64>,

    /// How much memory it may use
    #[arg(long, value_name = "MB")]
    pub(crate) memory: Option<i64>,

    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

impl SuperviseArgs {
    /// Must be called before there is a runtime or a thread.
    pub(crate) fn run(self) -> i32 {
        use parhelia_providers::supervise::{Inside, run, run_inside};
        match (self.inside, self.dir) {
            (Some(door), _) => run_inside(Inside {
                door,
                heartbeat_interval_seconds: self.heartbeat_interval,
                idle_timeout_seconds: self.idle_timeout,
                tmux_session: self.tmux,
                cpu_cores: self.cpu,
                memory_mb: self.memory,
                command: self.command,
            }),
            (None, Some(dir)) => run(&dir),
            (None, None) => 2,
        }
    }
}

#[cfg(test)]
mod tests;
