//! `parhelia exec` and `parhelia jobs attach`

use std::time::Duration;

use clap::Args;

use crate::quantity;
use crate::terminal::DetachKeys;

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// A name for people; `jobs` commands take it instead of the id
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Whose templates to use: claude-code, gemini, codex or one of the configuration [default: the command as it is]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,

    /// The agent's own session, where its engine takes one
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// Come back as soon as the job is registered
    #[arg(short, long)]
    pub(crate) detach: bool,

    /// End it after this long
    #[arg(long, value_name = "DURATION", value_parser = quantity::interval)]
    pub(crate) timeout: Option<Duration>,

    /// An environment variable; KEY alone passes on the value that it has here (repeat for more)
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = quantity::variable)]
    pub(crate) env: Vec<(String, Option<String>)>,

    /// Give it a secret of the server (repeat for more)
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Vec<String>,

    /// Where to run it
    #[arg(short, long, value_name = "NAME", default_value = "process")]
    pub(crate) provider: String,

    /// The image, where the provider needs one
    #[arg(short, long)]
    pub(crate) image: Option<String>,

    /// Its working directory [default, for local processes: this one]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,

    /// A label (repeat for more)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = quantity::pair)]
    pub(crate) label: Vec<(String, String)>,

    /// Never end it for silence alone
    #[arg(long)]
    pub(crate) keep: bool,

    /// The keys that detach, one after the other
    #[arg(long, value_name = "KEYS", default_value = DetachKeys::DEFAULT)]
    pub(crate) detach_keys: DetachKeys,

    /// The command and its arguments; never given to a shell
    #[arg(value_name = "CMD", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Its id or a unique prefix of it, its container's id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Print everything that it has said, instead of the last screenful
    #[arg(long)]
    pub(crate) from_start: bool,

    /// Only look: type nothing into it
    #[arg(long)]
    pub(crate) no_stdin: bool,

    /// The keys that detach, one after the other
    #[arg(long, value_name = "KEYS", default_value = DetachKeys::DEFAULT)]
    pub(crate) detach_keys: DetachKeys,
}
