//! `parhelia sessions logs`: the output of its tasks, every byte as it came. Which task it is of stands on standard
//! error, so that the output itself stays as it is.

use std::collections::BTreeSet;
use std::time::Duration;

use parhelia_core::ids::{ContainerId, TaskId};
use parhelia_core::session::api::{AttemptOutput, SessionDetail, TaskList, TaskView};

use super::{get, id_of};
use crate::args::{LogsArgs, SessionLogsArgs};
use crate::client::Client;
use crate::commands::containers::logs;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output::text;

/// One attempt that has, or had, output; or its verification.
struct Output {
    name: String,
    task: TaskId,
    attempt: i64,
    is_verify: bool,
    /// Absent: a worker ran it.
    container: Option<ContainerId>,
    began: jiff::Timestamp,
}

impl Output {
    fn key(&self) -> (TaskId, i64, bool) {
        (self.task.clone(), self.attempt, self.is_verify)
    }

    fn title(&self) -> String {
        let verify = if self.is_verify { " (verify)" } else { "" };
        text::clean(&format!("==> {}{verify} (attempt {}) <==", self.name, self.attempt))
    }
}

pub(super) async fn run(ctx: &Context, args: SessionLogsArgs) -> Result<()> {
    let client = ctx.client()?;
    let mut printed: BTreeSet<(TaskId, i64, bool)> = BTreeSet::new();
    let first = get(&client, &args.id).await?;
    let id = id_of(&first.view);
    let mut detail = first;
    loop {
        let tasks = tasks_of(&client, &detail, args.task.as_deref()).await?;
        if let Some(wanted) = &args.task {
            only_one(&tasks, wanted, &detail)?;
        }
        let mut outputs = outputs_of(&tasks, args.attempt);
        if args.task.is_some() && args.attempt.is_none() && !args.follow {
            let last = outputs.iter().map(|output| output.attempt).max();
            outputs.retain(|output| Some(output.attempt) == last);
        }
        outputs.retain(|output| !printed.contains(&output.key()));
        let named = outputs.len() + printed.len() > 1;
        for output in &outputs {
            if named {
                ctx.out.note(&output.title());
            }
            print(ctx, &client, output, &args).await?;
            printed.insert(output.key());
        }
        let over = detail.view.session.status.is_over()
            || (args.task.is_some() && tasks.iter().all(|view| view.task.state.is_over()))
            || (args.task.is_some() && args.attempt.is_some_and(|wanted| has_ended(&tasks, wanted)));
        if !args.follow || (over && outputs.is_empty()) {
            break;
        }
        if outputs.is_empty() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        detail = get(&client, &id).await?;
    }
    let origin = detail.view.session.origin_id.as_ref().filter(|_| printed.is_empty() || args.task.is_none());
    match (origin, &args.task) {
        (Some(origin), Some(task)) => ctx.out.hint(&text::clean(&format!(
            "It wrote nothing in this session. If it was done before, that is in the one that this continues: 'parhelia sessions logs {origin} --task {task}'"
        ))),
        (Some(origin), None) => ctx.out.hint(&format!("What was done before is in the one that this continues: 'parhelia sessions logs {origin}'")),
        (None, _) if printed.is_empty() => {
            ctx.out.hint("Nothing has run yet that could have written something.");
        }
        (None, _) => {}
    }
    if !detail.children.is_empty() && args.task.is_none() {
        let below: Vec<String> = detail.children.iter().map(id_of).collect();
        ctx.out.hint(&format!("The sessions below it have their own: {}", below.join(", ")));
    }
    Ok(())
}

async fn print(ctx: &Context, client: &Client, output: &Output, args: &SessionLogsArgs) -> Result<()> {
    let Output { container: Some(container), .. } = output else {
        let path = format!("/tasks/{}/attempts/{}/output", output.task, output.attempt);
        let said: AttemptOutput = client.get(&path, &[]).await?;
        let lines: Vec<&str> = said.output.split_inclusive('\n').collect();
        let from = args.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
        return ctx.out.bytes(lines[from..].concat().as_bytes());
    };
    let id = container.to_string();
    let wanted = LogsArgs { id, follow: args.follow, tail: args.tail, tail_bytes: None };
    logs::show(ctx, client, container.as_str(), &wanted).await
}

/// The tasks of every phase, or those that `wanted` may mean.
async fn tasks_of(client: &Client, detail: &SessionDetail, wanted: Option<&str>) -> Result<Vec<TaskView>> {
    let id = id_of(&detail.view);
    let mut found = Vec::new();
    for phase in &detail.phases {
        if phase.tasks_left_out == 0 {
            found.extend(phase.tasks.iter().cloned());
            continue;
        }
        let mut after: Option<i64> = None;
        loop {
            let mut query = vec![("phase", phase.name.clone()), ("limit", "1000".to_owned())];
            query.extend(after.map(|after| ("after", after.to_string())));
            let page: TaskList = client.get(&format!("/sessions/{id}/tasks"), &query).await?;
            found.extend(page.tasks);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    if let Some(wanted) = wanted {
        found.retain(|view| is_meant(view, wanted));
    }
    Ok(found)
}

fn name_of(view: &TaskView) -> String {
    match view.task.phase == view.task.key {
        true => view.task.key.clone(),
        false => format!("{}/{}", view.task.phase, view.task.key),
    }
}

fn is_meant(view: &TaskView, wanted: &str) -> bool {
    let task = &view.task;
    task.key == wanted || task.id.as_str() == wanted || format!("{}/{}", task.phase, task.key) == wanted
}

fn only_one(tasks: &[TaskView], wanted: &str, detail: &SessionDetail) -> Result<()> {
    let id = id_of(&detail.view);
    match tasks {
        [_] => Ok(()),
        [] => Err(CliError::new(
            Exit::NotFound,
            "not_found",
            format!("no task '{wanted}' of session {id} has begun"),
        )
        .fix(format!("'parhelia sessions show {id}' names its tasks"))),
        several => {
            let names: Vec<String> = several.iter().take(5).map(name_of).collect();
            Err(CliError::usage(format!("'{wanted}' is not unique: it could be {}", names.join(", "))))
        }
    }
}

/// Nothing more will come of this attempt, nor of its verification.
fn has_ended(tasks: &[TaskView], attempt: i64) -> bool {
    tasks.iter().flat_map(|view| &view.attempts).any(|one| one.attempt == attempt && one.ended_at.is_some())
}

/// In the order in which they began; each verification behind what it verified.
fn outputs_of(tasks: &[TaskView], attempt: Option<i64>) -> Vec<Output> {
    let mut outputs: Vec<Output> = Vec::new();
    for view in tasks {
        for one in view.attempts.iter().filter(|one| attempt.is_none_or(|wanted| wanted == one.attempt)) {
            let output = |container: Option<&ContainerId>, is_verify| Output {
                name: name_of(view),
                task: view.task.id.clone(),
                attempt: one.attempt,
                is_verify,
                container: container.cloned(),
                began: one.started_at,
            };
            // What a worker's task wrote comes with its end.
            if one.container_id.is_some() || one.ended_at.is_some() {
                outputs.push(output(one.container_id.as_ref(), false));
            }
            if let Some(verify) = &one.verify_container_id {
                outputs.push(output(Some(verify), true));
            }
        }
    }
    outputs.sort_by_key(|output| (output.began, output.key()));
    outputs
}
