//! `parhelia containers run`: one sandbox, from the wish until it runs, or until it has ended.

use std::collections::BTreeMap;

use parhelia_core::api::{ContainerView, EventList, RunRequest};
use parhelia_core::event::EventType;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::Resources;
use parhelia_core::state::{ContainerState, TerminationReason};
use parhelia_core::time::Clock;

use super::logs;
use crate::args::RunArgs;
use crate::client::Client;
use crate::commands::wait::{self, Waited};
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output::text;

pub(super) async fn run(ctx: &Context, args: RunArgs) -> Result<()> {
    let client = ctx.client()?;
    let request = request(&args, ctx.is_remote())?;
    let asked: ContainerView = client.post_once("/containers", &request).await?;
    let id = asked.record.id.clone();
    ctx.if_interrupted(format!("{id} is not affected: see 'parhelia containers show {id}'"));

    let deadline = ctx.clock.monotonic() + args.start_timeout;
    let begun = |view: &ContainerView| view.record.state != ContainerState::Created;
    let mut id = id;
    let started = loop {
        let waited = wait::until(ctx, &client, &id, Some(deadline), begun).await?;
        match waited {
            // Its creation was lost; another took its place and is the one that runs.
            Waited::Done(view) => match successor(&client, &view).await {
                Some(next) => id = next,
                None => break view,
            },
            Waited::TimedOut(_) => {
                let waited = args.start_timeout.as_secs();
                return Err(CliError::timeout(format!(
                "{id} has not started within {waited} seconds; the server goes on trying"
            ))
            .fix(format!(
                "see 'parhelia containers events {id}', or end it with 'parhelia containers terminate {id}'"
            )));
            }
        }
    };
    if never_ran(&started) {
        return Err(not_started(&client, &started).await);
    }

    if args.follow {
        ctx.out.note(&line(&started));
        logs::follow(ctx, &client, id.as_str()).await?;
    } else if !args.wait {
        return ctx.out.one(&started, id.as_str(), || line(&started) + "\n");
    } else if ctx.out.is_human() && !ended(&started) {
        ctx.out.line(&line(&started))?;
    }

    let last = match wait::until(ctx, &client, &id, None, ended).await? {
        Waited::Done(view) | Waited::TimedOut(view) => view,
    };
    if args.follow {
        ctx.out.note(&line(&last));
    } else {
        ctx.out.one(&last, id.as_str(), || line(&last) + "\n")?;
    }
    outcome(&last)
}

fn request(args: &RunArgs, remote: bool) -> Result<RunRequest> {
    let local_process = args.provider == "process" && !remote;
    let mut env = BTreeMap::new();
    if local_process && let Ok(path) = std::env::var("PATH") {
        env.insert("PATH".to_owned(), path);
    }
    crate::commands::variables(&args.env, &mut env)?;
    let workdir = match &args.workdir {
        Some(dir) if local_process => {
            let absolute =
                std::path::absolute(dir).map_err(|e| CliError::io(format!("cannot use {dir}"), &e))?;
            Some(path_text(&absolute)?)
        }
        Some(dir) => Some(dir.clone()),
        None if local_process => {
            let here =
                std::env::current_dir().map_err(|e| CliError::io("cannot find the current directory", &e))?;
            Some(path_text(&here)?)
        }
        None => None,
    };
    Ok(RunRequest {
        provider: args.provider.clone(),
        image: args.image.clone(),
        name: args.name.clone(),
        command: args.command.clone(),
        env,
        workdir,
        labels: args.label.iter().cloned().collect(),
        resources: Resources { cpu_cores: args.cpu, memory_mb: args.memory, gpu_type: args.gpu.clone() },
        task_id: args.task.clone(),
        task_title: args.task_title.clone(),
        idle_timeout_seconds: args.idle_timeout.map(|idle| idle.as_secs_f64().ceil() as u64),
        keep: args.keep,
        tmux_session: args.tmux.clone(),
        user: args.user.clone(),
        network: args.network.clone(),
        volumes: args.volume.clone(),
        secrets: args.secret.clone(),
    })
}

fn path_text(path: &std::path::Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| CliError::usage(format!("{} is not UTF-8", path.display())))?;
    Ok(text.to_owned())
}

fn ended(view: &ContainerView) -> bool {
    matches!(view.record.state, ContainerState::Stopped | ContainerState::Terminated)
}

fn never_ran(view: &ContainerView) -> bool {
    use TerminationReason::{CreateFailed, CreateLost, StartFailed};
    matches!(view.record.termination_reason, Some(StartFailed | CreateFailed | CreateLost)) && ended(view)
}

/// The container that took the place of one whose creation was lost.
async fn successor(client: &Client, view: &ContainerView) -> Option<ContainerId> {
    if view.record.termination_reason != Some(TerminationReason::CreateLost) {
        return None;
    }
    let query = [("limit", "1".to_owned()), ("type", EventType::CreateLost.to_string())];
    let path = format!("/containers/{}/events", view.record.id);
    let found: EventList = client.get(&path, &query).await.ok()?;
    ContainerId::parse(found.events.first()?.details.get("successor")?.as_str()?).ok()
}

async fn not_started(client: &Client, view: &ContainerView) -> CliError {
    let id = &view.record.id;
    let query = [("limit", "20".to_owned()), ("order", "desc".to_owned())];
    let found: Result<EventList> = client.get(&format!("/containers/{id}/events"), &query).await;
    let telling = |event: &&parhelia_core::event::Event| {
        use EventType::{ContainerTerminated, CreateFailed, CreateLost};
        matches!(event.event_type, CreateFailed | CreateLost | ContainerTerminated)
    };
    let said = found.ok().and_then(|found| {
        found.events.iter().filter(telling).max_by_key(|event| event.id).and_then(|event| {
            let cause = event.details.get("cause").and_then(|cause| cause.as_str());
            cause.map(str::to_owned).or_else(|| event.message.clone())
        })
    });
    let reason = view.record.termination_reason.map_or("unknown", |reason| reason.as_str());
    let why = said.unwrap_or_else(|| reason.to_owned());
    let fix = match view.record.termination_reason {
        Some(TerminationReason::StartFailed) if !view.record.provider.starts_with("process") => {
            "correct what the provider names: the command, its user, its network, or the image".to_owned()
        }
        Some(TerminationReason::StartFailed) => {
            "check that the command exists and may be run; it is not given to a shell (use: -- sh -c '…')"
                .to_owned()
        }
        _ => format!("see 'parhelia containers events {id}'"),
    };
    CliError::failure("not_started", format!("{id} could not start: {why}")).fix(fix)
}

/// `c-… running (sandbox …)`, or how it ended.
fn line(view: &ContainerView) -> String {
    let record = &view.record;
    if !ended(view) {
        let sandbox = text::clean(text::or_dash(view.sandbox.as_deref()));
        return format!("{} {} (sandbox {sandbox})", record.id, record.state);
    }
    format!("{} {} ({})", record.id, record.state, how(view))
}

fn how(view: &ContainerView) -> String {
    let reason = view.record.termination_reason.map(|reason| reason.as_str());
    match (reason, view.record.exit_code) {
        (Some(reason), Some(code)) => format!("{reason}, exit code {code}"),
        (Some(reason), None) => reason.to_owned(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

fn outcome(view: &ContainerView) -> Result<()> {
    let record = &view.record;
    let good = match record.exit_code {
        Some(code) => {
            code == 0 && matches!(record.termination_reason, None | Some(TerminationReason::Completed))
        }
        None => record.termination_reason == Some(TerminationReason::Completed),
    };
    if good {
        return Ok(());
    }
    let id = &record.id;
    Err(CliError::new(Exit::WorkFailed, "work_failed", format!("{id} did not succeed: {}", how(view)))
        .fix(format!("see 'parhelia containers logs {id}' and 'parhelia containers events {id}'")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, ContainersCommand};
    use crate::output::fixtures::seed_container;
    use clap::Parser;

    fn args(line: &str) -> RunArgs {
        let cli = Cli::try_parse_from(format!("parhelia containers run {line}").split_whitespace()).unwrap();
        let Command::Containers(containers) = cli.command else { panic!("{line}") };
        match containers.command {
            Some(ContainersCommand::Run(run)) => *run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn local_processes_get_this_directory_and_path_and_nobody_else_does() {
        let local = request(&args("-- true"), false).unwrap();
        assert_eq!(local.workdir, Some(std::env::current_dir().unwrap().to_str().unwrap().to_owned()));
        assert_eq!(local.env.get("PATH"), std::env::var("PATH").ok().as_ref());
        for (line, remote) in [("-- true", true), ("--provider docker --image x -- true", false)] {
            let other = request(&args(line), remote).unwrap();
            assert!(other.workdir.is_none() && other.env.is_empty(), "{line}");
        }
        let own = request(&args("--env PATH=/bin --workdir /tmp -- true"), false).unwrap();
        assert_eq!((own.env["PATH"].as_str(), own.workdir.as_deref()), ("/bin", Some("/tmp")));
        assert!(request(&args("--env NOBODY_SETS_THIS_ONE -- true"), false).is_err());
    }

    #[test]
    fn the_end_decides_the_exit_code() {
        let mut view = seed_container();
        view.record.state = ContainerState::Terminated;
        let mut end = |reason, code| {
            view.record.termination_reason = reason;
            view.record.exit_code = code;
            (outcome(&view).map_or_else(|e| e.exit.code(), |()| 0), line(&view))
        };
        use TerminationReason::{Completed, Crash, Failed};
        assert_eq!(end(Some(Completed), Some(0)), (0, "c-abc123 terminated (completed, exit code 0)".into()));
        assert_eq!(end(Some(Failed), Some(3)), (5, "c-abc123 terminated (failed, exit code 3)".into()));
        assert_eq!(end(Some(Crash), None), (5, "c-abc123 terminated (crash)".into()));
        assert_eq!(end(Some(TerminationReason::Manual), Some(0)).0, 5);
        assert_eq!(end(None, None).0, 5);
    }

    #[test]
    fn one_line_says_that_it_runs() {
        let view = seed_container();
        assert_eq!(line(&view), "c-abc123 running (sandbox sb-xyz789)");
        assert!(!never_ran(&view));
    }
}
