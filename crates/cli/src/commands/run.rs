//! `parhelia run`: a cascade as a session. Attached, it shows the session until it is over, whatever becomes of the
//! server meanwhile; to leave is never to end it, unless somebody says so.

use std::collections::{BTreeMap, HashSet};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use parhelia_core::cascade::Cascade;
use parhelia_core::session::api::{CancelSession, SessionTree, StartSession};
use parhelia_core::session::{Session, SessionStatus};
use parhelia_core::time::Clock;

use super::cascade;
use super::containers::watch::draw;
use super::sessions::watch::{Changes, frame, verdict};
use crate::args::RunCascadeArgs;
use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output::{self, text};

/// Until a server that is away is asked again.
const AWAY: Duration = Duration::from_secs(1);
/// What a program needs to know of its person.
const OF_PERSON: [&str; 5] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];

pub(crate) async fn run(ctx: &Context, args: RunCascadeArgs) -> Result<()> {
    let cascade = cascade::needed(ctx, &args.file)?;
    let request = request(ctx, &args, &cascade)?;
    let client = ctx.client()?;
    let session: Session = client.post_once("/sessions", &request).await?;
    let id = session.session_id.to_string();
    if args.detach {
        return ctx.out.one(&session, &id, || {
            format!("{id} {}\nFollow it with 'parhelia sessions watch {id}'.\n", session.status)
        });
    }
    Attached::new(ctx, client, id, args.timeout).until_over().await
}

fn request(ctx: &Context, args: &RunCascadeArgs, cascade: &Cascade) -> Result<StartSession> {
    let provider = args.provider.as_deref().or(cascade.workers.provider.as_deref()).unwrap_or("process");
    let here = provider == "process" && !ctx.is_remote();
    let mut env = BTreeMap::new();
    if here {
        env.extend(OF_PERSON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))));
    }
    super::variables(&args.env, &mut env)?;
    let workdir = match &args.workdir {
        Some(dir) if !here => Some(dir.clone()),
        None if !here => None,
        given => {
            let given = given.as_deref().unwrap_or(".");
            let full =
                std::path::absolute(given).map_err(|e| CliError::io(format!("cannot use {given}"), &e))?;
            Some(utf8(&full)?.to_owned())
        }
    };
    let mut input_texts = BTreeMap::new();
    for (key, value) in &args.input {
        if input_texts.insert(key.clone(), value.clone()).is_some() {
            return Err(CliError::usage(format!("the input '{key}' is given twice")));
        }
    }
    let definition = serde_json::to_value(cascade)
        .map_err(|e| CliError::failure("cascade", format!("the cascade cannot be sent: {e}")))?;
    Ok(StartSession {
        cascade: Some(definition),
        input_texts,
        name: args.name.clone(),
        workdir,
        env,
        provider: args.provider.clone(),
        auto_resume: args.no_auto_resume.then_some(false),
        ..StartSession::default()
    })
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| CliError::usage(format!("{} is not UTF-8", path.display())))
}

/// Somebody who looks on.
struct Attached<'a> {
    ctx: &'a Context,
    client: Client,
    id: String,
    deadline: Option<Duration>,
    /// The tree is drawn in place; otherwise what changes is told in lines.
    live: bool,
    frames: u64,
    told: HashSet<String>,
    /// We asked for its end.
    cancelled: bool,
}

/// What to do about a Ctrl-C.
enum Wish {
    Cancel,
    Detach,
    GoOn,
}

impl<'a> Attached<'a> {
    fn new(ctx: &'a Context, client: Client, id: String, timeout: Option<Duration>) -> Self {
        let live = ctx.out.is_human() && std::io::stdout().is_terminal();
        let deadline = timeout.map(|timeout| ctx.clock.monotonic() + timeout);
        Self { ctx, client, id, deadline, live, frames: 0, told: HashSet::new(), cancelled: false }
    }

    async fn until_over(mut self) -> Result<()> {
        // From here on Ctrl-C is a question to whoever looks on.
        self.ctx.pass_signals_on();
        if !self.live {
            self.ctx.out.note(&format!("session {} started", self.id));
        }
        let mut changes = Changes::default();
        loop {
            let next = tokio::select! {
                tree = look(&self.client, &self.id, &mut changes) => Some(tree),
                pressed = tokio::signal::ctrl_c() => {
                    pressed.map_err(|e| CliError::io("cannot listen for Ctrl-C", &e))?;
                    None
                }
                () = self.too_long() => return Err(self.timed_out()),
            };
            match next {
                Some(Ok(tree)) => {
                    if self.show(&tree)? {
                        return self.finish(&tree);
                    }
                }
                Some(Err(error)) => self.away(error).await?,
                None => match self.wish().await? {
                    Wish::Cancel => self.cancel().await?,
                    Wish::Detach => return Err(self.detached()),
                    // Drawn anew, over the question.
                    Wish::GoOn => self.frames = 0,
                },
            }
        }
    }

    async fn too_long(&self) {
        match self.deadline {
            Some(at) => tokio::time::sleep(at.saturating_sub(self.ctx.clock.monotonic())).await,
            None => std::future::pending().await,
        }
    }

    fn timed_out(&self) -> CliError {
        CliError::timeout(format!("session {} is not over yet, and goes on", self.id)).fix(format!(
            "'parhelia sessions watch {0}' waits on, 'parhelia sessions cancel {0}' ends it",
            self.id
        ))
    }

    fn detached(&self) -> CliError {
        let id = &self.id;
        CliError::interrupted(&format!(
            "session {id} goes on; 'parhelia sessions watch {id}' follows it, 'parhelia sessions cancel {id}' ends it"
        ))
    }

    /// A server that is away has not ended it: it comes back, or is started by the next question.
    async fn away(&mut self, error: CliError) -> Result<()> {
        const PASSING: [&str; 7] = [
            "no_server",
            "server_not_started",
            "connection_broken",
            "timeout",
            "unreachable",
            "unavailable",
            "busy",
        ];
        let passing = PASSING.contains(&error.code.as_str()) || error.code.starts_with("http_5");
        if !passing {
            return Err(error);
        }
        if self.told.insert(format!("away {}", error.message)) {
            self.ctx.out.note(&format!("{}; trying again, Ctrl-C leaves", error.message));
        }
        tokio::time::sleep(AWAY).await;
        Ok(())
    }

    /// Whether it is over.
    fn show(&mut self, tree: &SessionTree) -> Result<bool> {
        if self.live {
            draw(&frame(self.ctx, tree, "Ctrl-C asks whether to cancel or to detach"), self.frames == 0)?;
            self.frames += 1;
        } else {
            self.tell(tree);
        }
        let status = tree.detail.view.session.status;
        // Nobody goes on with an orphaned one before a person says so.
        Ok(status.is_over() || status == SessionStatus::Orphaned)
    }

    /// In lines: what has changed since the last look.
    fn tell(&mut self, tree: &SessionTree) {
        for line in output::session_lines::all(tree) {
            if self.told.insert(line.key) {
                self.ctx.out.note(&format!("{} {}", text::clock(self.ctx.now()), line.text));
            }
        }
    }

    fn finish(&self, tree: &SessionTree) -> Result<()> {
        let detail = &tree.detail;
        let session = &detail.view.session;
        self.ctx.out.one(detail, &self.id, || match &detail.outputs {
            serde_json::Value::Object(outputs) => outputs
                .iter()
                .map(|(key, value)| text::clean(&format!("{key}: {}", shown(value))) + "\n")
                .collect(),
            _ => String::new(),
        })?;
        if self.cancelled && session.status == SessionStatus::Cancelled {
            return Err(CliError::interrupted(&format!(
                "session {} is cancelled: all of it is gone",
                self.id
            )));
        }
        if session.status == SessionStatus::Orphaned {
            let message = format!(
                "session {} is orphaned: its server died, and nobody goes on with it by itself",
                self.id
            );
            return Err(CliError::new(Exit::WorkFailed, "orphaned", message)
                .fix(format!("'parhelia sessions resume {}' goes on with it", self.id)));
        }
        verdict(&self.id, session.status, session.error_message.as_deref())
    }

    async fn cancel(&mut self) -> Result<()> {
        let request =
            CancelSession { reason: Some("Ctrl-C".to_owned()), force: self.cancelled, grace_seconds: None };
        let _: Session = self.client.post_again(&format!("/sessions/{}/cancel", self.id), &request).await?;
        self.cancelled = true;
        self.frames = 0;
        Ok(())
    }

    /// Asks, where there is somebody to ask.
    async fn wish(&self) -> Result<Wish> {
        let somebody = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if !somebody || !self.ctx.out.is_human() {
            return Ok(Wish::Detach);
        }
        let harder = if self.cancelled { " at once" } else { "" };
        let question = format!(
            "\nSession {} runs.\n[c]ancel it{harder}, [d]etach and let it run, or Enter to go on: ",
            self.id
        );
        let mut stderr = anstream::stderr();
        write!(stderr, "{question}").and_then(|()| stderr.flush()).map_err(CliError::output)?;
        // Off the runtime's thread, so that a second Ctrl-C is heard meanwhile.
        let answer = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map(|read| (read, line))
        });
        let line = tokio::select! {
            answer = answer => match answer {
                Ok(Ok((0, _))) | Ok(Err(_)) | Err(_) => return Ok(Wish::Detach),
                Ok(Ok((_, line))) => line,
            },
            _ = tokio::signal::ctrl_c() => return Ok(Wish::Detach),
        };
        Ok(match line.trim().to_ascii_lowercase().as_str() {
            "c" | "cancel" => Wish::Cancel,
            "d" | "detach" => Wish::Detach,
            _ => Wish::GoOn,
        })
    }
}

/// As it is now, or as it is once something has happened.
async fn look(client: &Client, id: &str, changes: &mut Changes) -> Result<SessionTree> {
    changes.wait(client).await?;
    super::sessions::get_tree(client, id).await
}

fn shown(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
