//! What every command is given: where to print, which clock to read, and how to reach the server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use parhelia_core::time::Clock;
use parhelia_providers::SystemClock;

use crate::args::GlobalArgs;
use crate::autostart::Autostart;
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::output::Out;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) out: Out,
    pub(crate) clock: SystemClock,
    pub(crate) globals: GlobalArgs,
    on_interrupt: Mutex<String>,
    /// Signals are for the job that we stand for, not for us.
    signals_are_passed_on: AtomicBool,
    exit_code: AtomicI32,
}

impl Context {
    pub(crate) fn new(mut globals: GlobalArgs) -> Self {
        // An empty variable is how a shell says "not set".
        globals.url = globals.url.filter(|url| !url.trim().is_empty());
        for path in [&mut globals.home, &mut globals.config, &mut globals.token_file] {
            if path.as_ref().is_some_and(|p| p.as_os_str().is_empty()) {
                *path = None;
            }
        }
        let out = Out::new(globals.output, globals.quiet);
        Self {
            out,
            clock: SystemClock::new(),
            globals,
            on_interrupt: Mutex::default(),
            signals_are_passed_on: AtomicBool::default(),
            exit_code: AtomicI32::new(0),
        }
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.globals.url.is_some()
    }

    /// The home, absolute: a server that we start has another working directory.
    pub(crate) fn home(&self) -> Result<PathBuf> {
        let home = match &self.globals.home {
            Some(home) => home.clone(),
            None => match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
                Some(user) => PathBuf::from(user).join(".parhelia"),
                None => {
                    return Err(CliError::usage("there is no home: neither PARHELIA_HOME nor HOME is set")
                        .fix("set PARHELIA_HOME, or use --home DIR"));
                }
            },
        };
        std::path::absolute(&home)
            .map_err(|e| CliError::io(format!("cannot use the home {}", home.display()), &e))
    }

    /// The configuration that was asked for, absolute; `None` leaves it to the home.
    pub(crate) fn config(&self) -> Result<Option<PathBuf>> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|e| CliError::io(format!("cannot use {}", path.display()), &e))
        };
        self.globals.config.as_ref().map(absolute).transpose()
    }

    /// A client of the server, which is started when it is local and not there.
    pub(crate) fn client(&self) -> Result<Client> {
        match &self.globals.url {
            Some(url) => Client::remote(url, self.globals.token_file.as_deref(), self.clock, &self.out),
            None => {
                let start = Autostart { home: self.home()?, config: self.config()?, out: self.out };
                Client::local(&self.home()?, Some(start), self.clock)
            }
        }
    }

    /// A client that only talks to a server that is already there.
    pub(crate) fn client_of_running(&self) -> Result<Client> {
        match &self.globals.url {
            Some(url) => Client::remote(url, self.globals.token_file.as_deref(), self.clock, &self.out),
            None => Client::local(&self.home()?, None, self.clock),
        }
    }

    /// What to say if Ctrl-C comes now.
    pub(crate) fn if_interrupted(&self, note: impl Into<String>) {
        *self.on_interrupt.lock().unwrap_or_else(PoisonError::into_inner) = note.into();
    }

    pub(crate) fn pass_signals_on(&self) {
        self.signals_are_passed_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn signals_are_passed_on(&self) -> bool {
        self.signals_are_passed_on.load(Ordering::Relaxed)
    }

    /// The exit code of this program, when nothing fails: that of what it stood for.
    pub(crate) fn end_with(&self, code: i32) {
        self.exit_code.store(code, Ordering::Relaxed);
    }

    pub(crate) fn exit_code(&self) -> i32 {
        self.exit_code.load(Ordering::Relaxed)
    }

    pub(crate) fn interrupt_note(&self) -> String {
        self.on_interrupt.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
