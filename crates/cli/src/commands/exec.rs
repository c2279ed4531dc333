//! `parhelia exec`: any command as a job that is supervised, seen and outlives us; and `parhelia jobs attach`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parhelia_core::api::{ContainerView, EventList};
use parhelia_core::event::{Event, EventType};
use parhelia_core::job::api::{ExecRequest, JobView};
use parhelia_core::sandbox::Resources;
use parhelia_core::state::{ContainerState, TerminationReason};
use parhelia_core::time::Clock;
use parhelia_providers::process::jobdir::JobDir;

use super::containers::logs;
use super::wait::{self, Waited};
use crate::args::{AttachArgs, ExecArgs};
use crate::attach::{self, Options};
use crate::client::{Client, segment};
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::terminal;

/// Between two looks for the job's supervisor, which costs next to nothing.
const LOOK: Duration = Duration::from_millis(2);
/// Between two questions to the server whether it could not be made.
const ASK: Duration = Duration::from_millis(250);
/// So many answers that it runs, without a socket: it has none.
const DEAF_LOOKS: u32 = 40;
/// What a program needs to know of a terminal and of its person's language.
const OF_TERMINAL: [&str; 2] = ["TERM", "COLORTERM"];
const OF_PERSON: [&str; 5] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];

pub(crate) async fn run(ctx: &Context, args: ExecArgs) -> Result<()> {
    let here = args.provider == "process" && !ctx.is_remote();
    let client = ctx.client()?;
    let request = request(&args, here)?;
    let asked: JobView = client.post_once("/jobs", &request).await?;
    let id = asked.job.id.to_string();
    if args.detach {
        return ctx.out.one(&asked, &id, || format!("{id} {}\n", asked.job.status));
    }
    ctx.if_interrupted(format!("job {id} is not affected: see 'parhelia jobs show {id}'"));
    if !here {
        return follow(ctx, &client, &asked).await;
    }
    let dir = directory(&asked)?;
    until_there(ctx, &client, &asked, &dir).await?;
    let options = Options {
        job: id,
        from_start: true,
        stdin: true,
        detach_keys: args.detach_keys,
        in_foreground: true,
    };
    ctx.end_with(attach::run(ctx, &dir, &options).await?);
    Ok(())
}

/// Where nobody can attach, its output is followed to its end; its exit code is ours all the same.
async fn follow(ctx: &Context, client: &Client, asked: &JobView) -> Result<()> {
    let path = format!("/jobs/{}", asked.job.id);
    let begun = |view: &ContainerView| view.record.state != ContainerState::Created;
    let over = |view: &ContainerView| view.record.state == ContainerState::Terminated;
    let mut container = asked.job.container_id.clone();
    let job: JobView = loop {
        wait::until(ctx, client, &container, None, begun).await?;
        let job: JobView = client.get(&path, &[]).await?;
        // Its creation may have been lost; then another container took its place.
        if job.job.container_id == container {
            break job;
        }
        container = job.job.container_id;
    };
    let reason = job.termination_reason;
    if matches!(reason, Some(TerminationReason::CreateFailed | TerminationReason::CreateLost)) {
        return Err(not_made(client, &job).await);
    }
    logs::follow(ctx, client, container.as_str()).await?;
    let (Waited::Done(last) | Waited::TimedOut(last)) =
        wait::until(ctx, client, &container, None, over).await?;
    match last.record.exit_code.and_then(|code| i32::try_from(code).ok()) {
        Some(code) => ctx.end_with(code),
        None => {
            let why = last.record.termination_reason.map_or("unknown", |reason| reason.as_str());
            return Err(CliError::failure(
                "no_exit_code",
                format!("job {} ended without an exit code: {why}", job.job.id),
            )
            .fix(format!("see 'parhelia jobs show {}'", job.job.id)));
        }
    }
    Ok(())
}

pub(crate) async fn attach(ctx: &Context, args: AttachArgs) -> Result<()> {
    let client = ctx.client()?;
    let job: JobView = client.get(&format!("/jobs/{}", segment(&args.id)?), &[]).await?;
    let id = job.job.id.to_string();
    if ctx.is_remote() {
        return Err(CliError::usage("a job can be attached to on its own machine only")
            .fix(format!("use 'parhelia jobs logs -f {id}' here, or 'parhelia jobs attach {id}' there")));
    }
    let dir = directory(&job)?;
    until_there(ctx, &client, &job, &dir).await?;
    let options = Options {
        job: id,
        from_start: args.from_start,
        stdin: !args.no_stdin,
        detach_keys: args.detach_keys,
        in_foreground: false,
    };
    ctx.end_with(attach::run(ctx, &dir, &options).await?);
    Ok(())
}

fn directory(job: &JobView) -> Result<PathBuf> {
    let id = &job.job.id;
    let there = job.directory.as_ref().filter(|_| job.job.cleaned_at.is_none());
    there.map(PathBuf::from).ok_or_else(|| {
        CliError::failure(
            "cannot_attach",
            format!("job {id} has no files on this machine ({})", job.provider),
        )
        .fix(format!("'parhelia jobs logs -f {id}' follows its output, 'parhelia jobs show {id}' says more"))
    })
}

/// Until there is a supervisor or a result, looked for on the disk: that is quicker than to be told.
async fn until_there(ctx: &Context, client: &Client, job: &JobView, dir: &Path) -> Result<()> {
    let files = JobDir::at(dir);
    let mut ask_at = ctx.clock.monotonic() + ASK;
    let mut deaf = 0;
    loop {
        if files.control_socket().exists() || files.result().exists() {
            return Ok(());
        }
        if ctx.clock.monotonic() >= ask_at {
            ask_at = ctx.clock.monotonic() + ASK;
            // A server that is away now has not given it up.
            if let Ok(seen) = client.get::<JobView>(&format!("/jobs/{}", job.job.id), &[]).await {
                match seen.state {
                    // Its files are older than that news, if there are any.
                    ContainerState::Stopped | ContainerState::Terminated if files.path().exists() => {
                        return Ok(());
                    }
                    ContainerState::Stopped | ContainerState::Terminated => {
                        return Err(not_made(client, &seen).await);
                    }
                    // It listens before it runs; a moment before its end it does not any more.
                    ContainerState::Running => {
                        deaf += 1;
                        if deaf > DEAF_LOOKS {
                            return Err(no_socket(&seen));
                        }
                    }
                    _ => {}
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn no_socket(job: &JobView) -> CliError {
    let id = &job.job.id;
    CliError::failure("cannot_attach", format!("job {id} runs, but its supervisor has no control socket"))
        .fix(format!("'parhelia jobs logs -f {id}' follows its output; its supervisor.log says why"))
}

/// Why it could not be made, in the words of its history.
async fn not_made(client: &Client, job: &JobView) -> CliError {
    let path = format!("/containers/{}/events", job.job.container_id);
    let query = [("limit", "20".to_owned()), ("order", "desc".to_owned())];
    let found: Result<EventList> = client.get(&path, &query).await;
    let said = found.ok().and_then(|found| {
        let telling =
            |event: &&Event| matches!(event.event_type, EventType::CreateFailed | EventType::CreateLost);
        let event = found.events.iter().filter(telling).max_by_key(|event| event.id)?;
        let cause = event.details.get("cause").and_then(|cause| cause.as_str());
        cause.map(str::to_owned).or_else(|| event.message.clone())
    });
    let reason = job.termination_reason.map_or("unknown", |reason| reason.as_str());
    let why = said.unwrap_or_else(|| reason.to_owned());
    CliError::failure("not_started", format!("job {} could not start: {why}", job.job.id))
        .fix(format!("see 'parhelia jobs show {}'", job.job.id))
}

fn request(args: &ExecArgs, here: bool) -> Result<ExecRequest> {
    let terminal = (here && !args.detach && terminal::is_interactive()).then(terminal::size).flatten();
    let mut env = BTreeMap::new();
    if here {
        let of_terminal = if terminal.is_some() { &OF_TERMINAL[..] } else { &[] };
        let passed = OF_PERSON.iter().chain(of_terminal);
        env.extend(passed.filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))));
    }
    super::variables(&args.env, &mut env)?;
    let workdir = match &args.workdir {
        Some(dir) if !here => Some(dir.clone()),
        None if !here => None,
        given => {
            let given = given.as_deref().unwrap_or(".");
            let full =
                std::path::absolute(given).map_err(|e| CliError::io(format!("cannot use {given}"), &e))?;
            let text =
                full.to_str().ok_or_else(|| CliError::usage(format!("{} is not UTF-8", full.display())))?;
            Some(text.to_owned())
        }
    };
    Ok(ExecRequest {
        provider: args.provider.clone(),
        image: args.image.clone(),
        name: args.name.clone(),
        command: args.command.clone(),
        env,
        workdir,
        labels: args.label.iter().cloned().collect(),
        resources: Resources::default(),
        secrets: args.secret.clone(),
        engine: args.engine.clone(),
        session: args.session.clone(),
        terminal,
        stdin: here && !args.detach,
        timeout_seconds: args.timeout.map(|timeout| timeout.as_secs_f64().ceil() as u64),
        keep: args.keep,
    })
}
