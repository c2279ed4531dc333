//! `parhelia completions` and `man`: what a shell and a manual want to know of the commands.

use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::context::Context;
use crate::error::{CliError, Result};

pub(super) fn completions(ctx: &Context, shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "parhelia", &mut script);
    ctx.out.bytes(&script)
}

pub(super) fn man(ctx: &Context, dir: Option<&Path>) -> Result<()> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(CliError::output)?;
        return ctx.out.bytes(&page);
    };
    let failed =
        |e: std::io::Error| CliError::io(format!("cannot write manual pages into {}", dir.display()), &e);
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    ctx.out.note(&format!(
        "Manual pages are in {}; read one with 'man {}/parhelia.1'.",
        dir.display(),
        dir.display()
    ));
    Ok(())
}
