//! `parhelia run` and `parhelia cascade`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::quantity;

#[derive(Debug, Args)]
pub(crate) struct RunCascadeArgs {
    /// The cascade file, YAML or JSON; - reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// An input of the cascade (repeat for more); it is read as the type that the cascade says
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = quantity::pair)]
    pub(crate) input: Vec<(String, String)>,

    /// Come back as soon as it is recorded
    #[arg(short, long)]
    pub(crate) detach: bool,

    /// A name for people; `sessions` commands take it instead of the id
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Where its tasks run, instead of what the cascade says
    #[arg(short, long, value_name = "NAME")]
    pub(crate) provider: Option<String>,

    /// An environment variable for every command; KEY alone passes on the value that it has here (repeat for more)
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = quantity::variable)]
    pub(crate) env: Vec<(String, Option<String>)>,

    /// Where commands without a directory of their own run [default, for local processes: this one]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,

    /// If its server dies, leave it orphaned for 'parhelia sessions resume'
    #[arg(long)]
    pub(crate) no_auto_resume: bool,

    /// Stop waiting for it after this long, with exit code 6; it goes on
    #[arg(long, value_name = "DURATION", value_parser = quantity::interval, conflicts_with = "detach")]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct CascadeArgs {
    #[command(subcommand)]
    pub(crate) command: CascadeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CascadeCommand {
    /// Find every mistake in cascade files, with its line and column
    #[command(after_help = "\
Examples:
  parhelia cascade check release.yaml
  parhelia cascade check -o json cascades/*.yaml    the mistakes as a list; exit code 1 if there are any
The files of sub-cascades are read too. No server is needed.")]
    Check {
        /// The files, YAML or JSON; - reads standard input
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },

    /// Print the JSON Schema of cascade files, for editors
    #[command(after_help = "\
Examples:
  parhelia cascade schema > cascade.schema.json
Then the first line of a file tells an editor: # yaml-language-server: $schema=cascade.schema.json")]
    Schema,
}
