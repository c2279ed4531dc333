//! Where results go: data to standard output in the format that was asked for, remarks to standard error.
//! The screens themselves are pure functions in the modules below.

pub(crate) mod alerts;
pub(crate) mod containers;
pub(crate) mod doctor;
pub(crate) mod events;
#[cfg(test)]
pub(crate) mod fixtures;
pub(crate) mod inbox;
pub(crate) mod instances;
pub(crate) mod jobs;
pub(crate) mod reconciler;
pub(crate) mod recovery;
pub(crate) mod session_lines;
pub(crate) mod session_list;
pub(crate) mod session_tree;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod tokens;
pub(crate) mod why;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::args::Format;
use crate::error::{CliError, Result};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    format: Format,
    quiet: bool,
}

impl Out {
    pub(crate) fn new(format: Format, quiet: bool) -> Self {
        let format = if quiet && !format.is_structured() { Format::Name } else { format };
        Self { format, quiet }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// A person reads the screens; everything else is read by a program.
    pub(crate) fn is_human(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    pub(crate) fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// How many columns a person's terminal has. In a pipe nothing is cut, nor where everything was asked for.
    pub(crate) fn width(&self) -> Option<usize> {
        let narrow = self.format == Format::Table && io::stdout().is_terminal();
        let size = narrow.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// Writes `text` to standard output, colours removed where they do not belong.
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        let mut stdout = anstream::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(CliError::output)
    }

    pub(crate) fn line(&self, text: &str) -> Result<()> {
        self.text(&format!("{text}\n"))
    }

    /// Writes output of a sandbox: every byte as it came.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(CliError::output)
    }

    /// A remark, which nobody's program depends on.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            // Nothing can be done about a standard error that is closed.
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    /// A remark that makes sense beside a screen only.
    pub(crate) fn hint(&self, text: &str) {
        if self.is_human() {
            self.note(text);
        }
    }

    /// A list: a screen for people, an array for programs.
    pub(crate) fn list<T: Serialize>(
        &self,
        items: &[T],
        id: impl Fn(&T) -> String,
        screen: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.format {
            Format::Table | Format::Wide => self.text(&screen()),
            Format::Name => self.text(&items.iter().map(|item| id(item) + "\n").collect::<String>()),
            Format::Json => self.line(&to_json_pretty(&items)?),
            Format::Jsonl => items.iter().try_for_each(|item| self.line(&to_json(item)?)),
            Format::Yaml => self.text(&to_yaml(&items)?),
        }
    }

    /// One thing: a screen for people, an object for programs.
    pub(crate) fn one<T: Serialize>(
        &self,
        item: &T,
        id: &str,
        screen: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.format {
            Format::Table | Format::Wide => self.text(&screen()),
            Format::Name => self.line(id),
            Format::Json => self.line(&to_json_pretty(item)?),
            Format::Jsonl => self.line(&to_json(item)?),
            Format::Yaml => self.text(&to_yaml(item)?),
        }
    }

    /// One of many things that come over time: each stands alone.
    pub(crate) fn streamed<T: Serialize>(
        &self,
        item: &T,
        id: &str,
        line: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.format {
            Format::Table | Format::Wide => self.line(&line()),
            Format::Name => self.line(id),
            Format::Json | Format::Jsonl => self.line(&to_json(item)?),
            Format::Yaml => self.text(&format!("---\n{}", to_yaml(item)?)),
        }
    }
}

/// Tells of an error: words for people, JSON for programs. Silent when there is nothing to say.
pub(crate) fn report(error: &CliError, structured: bool) {
    if error.message.is_empty() {
        return;
    }
    let mut stderr = anstream::stderr();
    // Nothing can be done about a standard error that is closed.
    let _ = match to_json(error) {
        Ok(json) if structured => writeln!(stderr, "{json}"),
        _ => {
            let message = text::clean_lines(&error.message);
            let told = writeln!(stderr, "{}error:{:#} {message}", text::RED_BOLD, text::RED_BOLD);
            if error.fix.is_empty() {
                told
            } else {
                let fix = text::clean_lines(&error.fix);
                told.and_then(|()| writeln!(stderr, "{}fix:{:#} {fix}", text::GREEN, text::GREEN))
            }
        }
    };
}

/// Asks on the terminal, with No as the answer to everything but yes. Without a terminal nobody is asked:
/// then `--yes` is needed.
pub(crate) async fn confirm(question: &str, command: &str) -> Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(CliError::usage("this needs a confirmation, and there is no terminal to ask on")
            .fix(format!("add --yes: '{command} --yes'")));
    }
    let mut stderr = anstream::stderr();
    let asked = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
    asked.map_err(CliError::output)?;
    // Off the runtime's thread, so that Ctrl-C is heard meanwhile.
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    match answer.await {
        Ok(Ok(line)) => Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")),
        Ok(Err(error)) => Err(CliError::io("cannot read the answer", &error)),
        Err(_) => Ok(false),
    }
}

fn unprintable(error: impl std::fmt::Display) -> CliError {
    CliError::failure("output_failed", format!("cannot print the result: {error}"))
}

pub(crate) fn to_json<T: Serialize>(item: &T) -> Result<String> {
    serde_json::to_string(item).map_err(unprintable)
}

fn to_json_pretty<T: Serialize>(item: &T) -> Result<String> {
    serde_json::to_string_pretty(item).map_err(unprintable)
}

fn to_yaml<T: Serialize>(item: &T) -> Result<String> {
    let mut yaml = serde_saphyr::to_string(item).map_err(unprintable)?;
    if !yaml.ends_with('\n') {
        yaml.push('\n');
    }
    Ok(yaml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_means_ids_unless_a_program_asked_for_more() {
        assert_eq!(Out::new(Format::Table, true).format(), Format::Name);
        assert_eq!(Out::new(Format::Json, true).format(), Format::Json);
        assert!(Out::new(Format::Wide, false).is_human());
    }

    #[test]
    fn yaml_is_one_document() {
        let item =
            serde_json::json!([{"id": "c-1", "task": null, "cost": 1.5, "name": "yes", "text": "a: b\nc"}]);
        let yaml = to_yaml(&item).unwrap();
        assert!(yaml.contains("id: c-1") && yaml.contains("cost: 1.5") && yaml.ends_with('\n'), "{yaml}");
        assert!(yaml.contains("name: \"yes\"") || yaml.contains("name: 'yes'"), "{yaml}");
        assert_eq!(to_yaml(&serde_json::json!([])).unwrap().trim(), "[]");
        let container = to_yaml(&fixtures::seed_container()).unwrap();
        assert!(container.starts_with("id: c-abc123\nprovider: modal\n"), "{container}");
        assert!(container.contains("\nname: null\n") && container.contains("\ncost: 1.23\n"), "{container}");
        assert!(
            container.contains("\ncreated_at: \"2026-01-21T14:30:00Z\"\n")
                || container.contains("\ncreated_at: 2026-01-21T14:30:00Z\n"),
            "{container}"
        );
    }
}
