//! `parhelia cascade`: what is wrong with a file, and its schema. Reads files, and asks no server.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use parhelia_core::cascade::parse::{self, Mistake};
use parhelia_core::cascade::{Cascade, Work, schema};
use serde_json::Value;

use crate::args::CascadeCommand;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output::text::{clean, counted};

pub(super) fn run(ctx: &Context, command: CascadeCommand) -> Result<()> {
    match command {
        CascadeCommand::Check { files } => check(ctx, &files),
        CascadeCommand::Schema => {
            let value: Value = serde_json::from_str(schema::SCHEMA)
                .map_err(|e| CliError::failure("schema", format!("the schema cannot be read: {e}")))?;
            ctx.out.one(&value, "urn:parhelia:cascade", || schema::SCHEMA.to_owned())
        }
    }
}

fn check(ctx: &Context, files: &[PathBuf]) -> Result<()> {
    let mut mistakes = Vec::new();
    for file in files {
        match read(file) {
            Ok(cascade) => {
                ctx.out.hint(&format!("{}: {}", clean(&file.display().to_string()), summary(&cascade)));
            }
            Err(found) => mistakes.extend(found),
        }
    }
    if ctx.out.format().is_structured() {
        ctx.out.list(&mistakes, |mistake| mistake.path.clone(), String::new)?;
    } else {
        tell(&mistakes);
    }
    // Everything has been said.
    if mistakes.is_empty() { Ok(()) } else { Err(CliError::new(Exit::Failure, "mistakes", "")) }
}

/// On standard error, as compilers do: `FILE:LINE:COLUMN: what (and what to do)`.
fn tell(mistakes: &[Mistake]) {
    use std::io::Write;
    let mut stderr = anstream::stderr();
    for mistake in mistakes {
        // Nothing can be done about a standard error that is closed.
        let _ = writeln!(stderr, "{}", clean(&mistake.to_string()));
    }
}

fn summary(cascade: &Cascade) -> String {
    let tasks: usize = cascade
        .phases
        .iter()
        .map(|phase| match &phase.work {
            Work::Run(_) | Work::Agent(_) => 1,
            Work::Tasks(tasks) => tasks.len(),
            _ => 0,
        })
        .sum();
    format!(
        "{} is fine: {}, {}",
        cascade.cascade_id,
        counted(cascade.phases.len() as i64, "phase"),
        counted(tasks as i64, "task")
    )
}

/// A cascade with its sub-cascades, from their files; or every mistake in them, with the file that it is in.
fn read(path: &Path) -> Result<Cascade, Vec<Mistake>> {
    let text = contents(path).map_err(|error| {
        vec![Mistake {
            file: Some(path.display().to_string()),
            line: None,
            column: None,
            path: String::new(),
            message: error.to_string(),
            suggestion: None,
        }]
    })?;
    parsed(path, &text)
}

/// The same for whoever needs one: a file that cannot be read is not one with mistakes.
pub(super) fn needed(ctx: &Context, path: &Path) -> Result<Cascade> {
    let shown = path.display();
    let text = contents(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            CliError::new(Exit::NotFound, "not_found", format!("there is no file {shown}"))
        }
        io::ErrorKind::InvalidData => CliError::usage(format!("{shown}: {error}")),
        _ => CliError::io(format!("cannot read {shown}"), &error),
    })?;
    parsed(path, &text).map_err(|mistakes| {
        if !ctx.out.format().is_structured() {
            tell(&mistakes);
        }
        let count = counted(mistakes.len() as i64, "mistake");
        let error = CliError::usage(format!("{shown} has {count}"));
        CliError { mistakes, ..error }.fix("nothing was started; correct the file and run it again")
    })
}

fn parsed(path: &Path, text: &str) -> Result<Cascade, Vec<Mistake>> {
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut below = |below: &str| contents(&directory.join(below)).map_err(|error| error.to_string());
    parse::with_files(&name, text, &mut below).map_err(|mut mistakes| {
        for mistake in &mut mistakes {
            mistake.file = Some(match mistake.file.take() {
                Some(below) => directory.join(below).display().to_string(),
                None => path.display().to_string(),
            });
        }
        mistakes
    })
}

fn contents(path: &Path) -> io::Result<String> {
    // One byte more than may be: then it is refused for its length, and never read as a whole.
    let most = parse::LONGEST_TEXT as u64 + 1;
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))?;
    }
    if bytes.len() > parse::LONGEST_TEXT {
        // Cut where a character may be cut; it is too long all the same.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("is not UTF-8 from byte {at}"))
    })
}
