//! `parhelia sessions …`, `parhelia signals …`, `parhelia inbox …`

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use parhelia_core::session::SessionStatus;

use crate::quantity;

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(flatten)]
    pub(crate) list: SessionListArgs,
    #[command(subcommand)]
    pub(crate) command: Option<SessionsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions: status, phase, progress, what they wait for
    #[command(
        visible_alias = "ls",
        after_help = "\
Examples:
  parhelia sessions list --status running,blocked
  parhelia sessions list --cascade release --all -o wide
  parhelia sessions -q --status orphaned"
    )]
    List(SessionListArgs),

    /// Show one session: phases, tasks, attempts, what it waits for and the command that answers it
    Show {
        /// Its id, a unique prefix of it, or its name
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Show a session and everything below it as a tree
    Tree {
        /// Its id, a unique prefix of it, or its name
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Follow one session until it is over, or all of them
    #[command(after_help = "\
Examples:
  parhelia sessions watch nightly           its tree, live; ends with it (0 completed, 5 failed or cancelled)
  parhelia sessions watch nightly -o jsonl  its events, one line each
  parhelia sessions watch                   the list, live; in a pipe a line whenever one changes")]
    Watch(SessionWatchArgs),

    /// End sessions and everything that they started: SIGTERM, then SIGKILL after the grace
    #[command(after_help = "\
Examples:
  parhelia sessions cancel sess-01k9 --wait
  parhelia sessions cancel nightly --reason 'the release is off' --grace 60s
  parhelia sessions cancel --force $(parhelia sessions -q --cascade release)
It is called cancelled once every process of it is confirmed gone, and stays so.")]
    Cancel(SessionCancelArgs),

    /// Go on with a session: an orphaned one in place, one that is over as a new one that keeps what was done
    #[command(after_help = "\
Examples:
  parhelia sessions resume nightly                  a failed or cancelled one: what is done is not done again
  parhelia sessions resume nightly --from test      a new one that does the phase test and those after it again")]
    Resume(SessionResumeArgs),

    /// Find sessions whose server is dead, and go on with them or call them orphaned
    #[command(after_help = "\
Examples:
  parhelia sessions cleanup --dry-run       only show them
  parhelia sessions cleanup
It happens by itself; this makes it happen now.")]
    Cleanup {
        /// Only show them
        #[arg(long)]
        dry_run: bool,
    },

    /// Print the output of its tasks, as they wrote it
    #[command(
        visible_alias = "log",
        after_help = "\
Examples:
  parhelia sessions logs nightly                    of every task, in the order in which they began
  parhelia sessions logs nightly --task build -f    of one, until it has ended
  parhelia sessions logs nightly --task test/unit --attempt 1"
    )]
    Logs(SessionLogsArgs),
}

#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct SessionListArgs {
    /// Only with this status (repeat, or separate by commas)
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status())]
    pub(crate) status: Vec<SessionStatus>,

    /// Only of this cascade
    #[arg(long, value_name = "CASCADE")]
    pub(crate) cascade: Option<String>,

    /// Only those that this session started
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,

    /// Those too that were over more than a day ago
    #[arg(short, long)]
    pub(crate) all: bool,

    /// At most this many, the newest
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Follow them until Ctrl-C, like `sessions watch`
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionWatchArgs {
    /// Its id, a unique prefix of it, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,

    /// How often to look at the list; one session is shown as things happen
    #[arg(short, long, value_name = "DURATION", default_value = "2s", value_parser = quantity::interval, conflicts_with = "id")]
    pub(crate) interval: Duration,

    /// Look this many times, then end
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "id")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct SessionCancelArgs {
    /// Their ids, unique prefixes of them, or their names
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

    /// Wait until they are cancelled: everything of them is confirmed gone
    #[arg(short, long)]
    pub(crate) wait: bool,

    /// How long to wait, beyond the grace
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = quantity::duration, requires = "wait")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct SessionResumeArgs {
    /// Its id, a unique prefix of it, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// As a new session that keeps only what came before this phase
    #[arg(long, value_name = "PHASE")]
    pub(crate) from: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SessionLogsArgs {
    /// Its id, a unique prefix of it, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Only of this task: its key, PHASE/KEY, or its id
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,

    /// Only of this attempt [default: every one; of one task its last]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) attempt: Option<i64>,

    /// Go on until the session (or the task) has ended
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Only the last N lines of each
    #[arg(short, long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
}

fn status() -> impl TypedValueParser<Value = SessionStatus> {
    PossibleValuesParser::new(SessionStatus::ALL.iter().map(|s| s.as_str()))
        .try_map(|s| s.parse::<SessionStatus>())
}

#[derive(Debug, Args)]
pub(crate) struct SignalsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SignalsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SignalsCommand {
    /// Fire a signal: it ends the waits for it, now or when they come
    #[command(after_help = "\
Examples:
  parhelia signals fire deployed                                whoever waits for it, or else the next who does
  parhelia signals fire approved --session nightly --payload '{\"by\": \"ann\"}'
A signal that is fired before its wait is not lost.")]
    Fire {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,

        /// Only for this session: its id, a unique prefix of it, or its name
        #[arg(short, long, value_name = "ID")]
        session: Option<String>,

        /// JSON for whoever takes it
        #[arg(short, long, value_name = "JSON", value_parser = json)]
        payload: Option<serde_json::Value>,
    },

    /// List the signals that were fired, the newest first
    #[command(visible_alias = "ls")]
    List(SignalListArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SignalListArgs {
    /// Only those that nobody has taken yet
    #[arg(long)]
    pub(crate) pending: bool,

    /// Only with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Only for this session
    #[arg(short, long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// At most this many, the newest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    /// Look again whenever something happens, until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,

    #[command(subcommand)]
    pub(crate) command: Option<InboxCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Answer questions
    #[command(
        override_usage = "parhelia inbox answer [OPTIONS] <ID>... <VALUE>",
        after_help = "\
Examples:
  parhelia inbox answer wait-01k9 yes                       a confirmation
  parhelia inbox answer wait-01k9 'option a'                a choice
  parhelia inbox answer wait-01k9 --choice a --choice b     several
  parhelia inbox answer wait-01k9 4                         a rating
  parhelia inbox answer wait-01k9 --value 'use the other file'
  parhelia inbox answer wait-01k9 --json '[\"a\", \"b\"]'
A session's id or name stands for its only question. The first answer holds."
    )]
    Answer(AnswerArgs),

    /// Approve what waits for an approval
    #[command(after_help = "\
Examples:
  parhelia inbox approve wait-01k9
  parhelia inbox approve wait-01k9 wait-01ka --reason 'looks good'")]
    Approve(VerdictArgs),

    /// Deny it: the phase that asked fails
    #[command(after_help = "\
Examples:
  parhelia inbox deny wait-01k9 --reason 'not on a Friday'")]
    Deny(VerdictArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The waits, and then the answer (unless an option gives it)
    #[arg(value_name = "ID... VALUE", required = true)]
    pub(crate) words: Vec<String>,

    /// The answer, as text
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["choice", "json"], allow_hyphen_values = true)]
    pub(crate) value: Option<String>,

    /// One of the options; repeat it for several
    #[arg(long, value_name = "OPTION", conflicts_with = "json", allow_hyphen_values = true)]
    pub(crate) choice: Vec<String>,

    /// The answer, as JSON
    #[arg(long, value_name = "JSON", value_parser = json, allow_hyphen_values = true)]
    pub(crate) json: Option<serde_json::Value>,

    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VerdictArgs {
    /// The waits; a session's id or name stands for its only one
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,

    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("it is not JSON: {error}; a text needs quotes: '\"{text}\"'"))
}
