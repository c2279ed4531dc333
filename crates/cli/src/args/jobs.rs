//! `parhelia jobs …`

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use parhelia_core::job::JobStatus;

use crate::args::{AttachArgs, LogsArgs};
use crate::quantity;

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    pub(crate) list: JobListArgs,
    #[command(subcommand)]
    pub(crate) command: Option<JobsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs: status, what they do or wait for, age, last heartbeat
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  parhelia jobs list --status stale,dead
  parhelia jobs list --engine claude-code --all -o wide
  parhelia jobs -q --waiting"
    )]
    List(JobListArgs),

    /// Show everything about one job, with the receipts of its end
    Show {
        /// Its id or a unique prefix of it, its container's id, or its name
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Print the output of a job, as it wrote it and nothing else
    #[command(
        visible_alias = "log",
        after_help = "\
Examples:
  parhelia jobs logs 376c
  parhelia jobs logs tests -f               until it has ended
  parhelia jobs logs tests --tail 20"
    )]
    Logs(LogsArgs),

    /// Show how alive one job is: its heartbeat, its sentinel, its directory, its session
    Health {
        /// Its id or a unique prefix of it, its container's id, or its name
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Come back to a job: its screen, its input, its exit code
    #[command(after_help = "\
Examples:
  parhelia jobs attach fix
  parhelia jobs attach 376c --from-start --no-stdin     everything that it said, and nothing is typed into it
Ctrl-P Ctrl-Q leaves it running. It goes straight to the job: the server may come and go meanwhile.")]
    Attach(AttachArgs),

    /// End jobs and everything that they started: SIGTERM, then SIGKILL after the grace
    #[command(after_help = "\
Examples:
  parhelia jobs cancel 376c --wait
  parhelia jobs cancel tests --grace 60s --reason 'the tests have moved'
  parhelia jobs cancel --force $(parhelia jobs -q --status stale)
Each receipt (seen, sent, confirmed gone) is in 'parhelia jobs show'.")]
    Cancel(CancelArgs),

    /// Start a new job that goes on where an earlier one was
    #[command(
        override_usage = "parhelia jobs resume [OPTIONS] <ID> [-- ARGS...]",
        after_help = "\
Examples:
  parhelia jobs resume 376c                       the same command again, or the session of its agent
  parhelia jobs resume fix -- -p 'now the tests'  go on with that session
Nothing is ever resumed without being asked for: a restart of the server reruns no prompt."
    )]
    Resume(ResumeArgs),

    /// Remove the directories and the output of jobs that are over
    #[command(after_help = "\
Examples:
  parhelia jobs cleanup --dry-run                 only show whose would go
  parhelia jobs cleanup --older-than 2d --status failed,dead --yes
The server does it by itself after jobs.keep_days. Records and events stay.")]
    Cleanup(JobCleanupArgs),
}

#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct JobListArgs {
    /// Only with this status (repeat, or separate by commas)
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status())]
    pub(crate) status: Vec<JobStatus>,

    /// Only those that need a person
    #[arg(long)]
    pub(crate) waiting: bool,

    /// Only of this engine
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,

    /// Those too that were over more than a day ago
    #[arg(short, long)]
    pub(crate) all: bool,

    /// At most this many, the newest
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Look again every two seconds until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Their ids or unique prefixes of them, their containers' ids, or their names
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,

    /// From SIGTERM to SIGKILL [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub(crate) grace: Option<Duration>,

    /// At once: no grace
    #[arg(short, long, conflicts_with = "grace")]
    pub(crate) force: bool,

    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Wait until they are confirmed gone
    #[arg(short, long)]
    pub(crate) wait: bool,

    /// How long to wait, beyond the grace
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::duration, requires = "wait")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Its id or a unique prefix of it, its container's id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// What is new for it
    #[arg(value_name = "ARGS", last = true)]
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobCleanupArgs {
    /// Only what has been over for this long [default: the server's jobs.keep_days]
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub(crate) older_than: Option<Duration>,

    /// Only with this status: dead, finished or failed (repeat, or separate by commas)
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status())]
    pub(crate) status: Vec<JobStatus>,

    /// Only show what would go
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

fn status() -> impl TypedValueParser<Value = JobStatus> {
    PossibleValuesParser::new(JobStatus::ALL.iter().map(|s| s.as_str())).try_map(|s| s.parse::<JobStatus>())
}
