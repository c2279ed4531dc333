//! `parhelia containers stop` and `terminate`: ask for the end, then wait until it was observed. The server
//! goes on trying whether or not anybody waits.

use std::time::Duration;

use parhelia_core::api::{ContainerView, StopRequest};
use parhelia_core::state::ContainerState;
use parhelia_core::time::Clock;

use super::{get, id_of};
use crate::args::{StopArgs, TerminateArgs};
use crate::client::Client;
use crate::commands::wait::{self, Waited};
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output::{confirm, text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Stop,
    Terminate,
}

impl Verb {
    /// For the path, for the beginning, for the end.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Verb::Stop => ("stop", "Stopping", "stopped"),
            Verb::Terminate => ("terminate", "Terminating", "terminated"),
        }
    }

    fn is_done(self, view: &ContainerView) -> bool {
        match view.record.state {
            ContainerState::Terminated => true,
            ContainerState::Stopped => self == Verb::Stop,
            _ => false,
        }
    }

    fn usual_grace(self) -> Duration {
        Duration::from_secs(if self == Verb::Stop { 30 } else { 10 })
    }
}

struct Wish {
    verb: Verb,
    grace: Option<Duration>,
    reason: Option<String>,
    /// How long to wait beyond the grace; `None` does not wait.
    patience: Option<Duration>,
}

pub(super) async fn stop(ctx: &Context, args: StopArgs) -> Result<()> {
    let patience = (!args.no_wait).then_some(args.timeout);
    let wish = Wish { verb: Verb::Stop, grace: args.grace, reason: args.reason, patience };
    let client = ctx.client()?;
    let views = resolve(&client, &args.ids).await?;
    end(ctx, &client, views, &wish).await
}

pub(super) async fn terminate(ctx: &Context, args: TerminateArgs) -> Result<()> {
    let grace = if args.force { Some(Duration::ZERO) } else { args.grace };
    let patience = (!args.no_wait).then_some(args.timeout);
    let wish = Wish { verb: Verb::Terminate, grace, reason: args.reason, patience };
    let client = ctx.client()?;
    let views = resolve(&client, &args.ids).await?;
    let alive: Vec<&ContainerView> = views.iter().filter(|view| !wish.verb.is_done(view)).collect();
    if !args.yes && !alive.is_empty() {
        let command = format!("parhelia containers terminate {}", args.ids.join(" "));
        if !confirm(&question(&alive), &command).await? {
            ctx.out.note("Nothing was terminated.");
            return Ok(());
        }
    }
    end(ctx, &client, views, &wish).await
}

fn question(alive: &[&ContainerView]) -> String {
    let describe = |view: &ContainerView| {
        let task =
            view.task.as_deref().map_or_else(String::new, |task| format!(", task {}", text::clean(task)));
        let name =
            view.record.name.as_deref().map_or_else(String::new, |name| format!(", {}", text::clean(name)));
        format!("{} ({}{name}{task}, {} so far)", view.record.id, view.record.state, text::money(view.cost))
    };
    match alive {
        [one] => format!("Terminate {}?", describe(one)),
        many => {
            let rows: Vec<String> = many.iter().map(|view| format!("  {}", describe(view))).collect();
            format!("{}\nTerminate these {} containers?", rows.join("\n"), many.len())
        }
    }
}

/// Every id must be known before anything is done to any of them.
async fn resolve(client: &Client, ids: &[String]) -> Result<Vec<ContainerView>> {
    let mut views: Vec<ContainerView> = Vec::new();
    for id in ids {
        let view = get(client, id).await?;
        if views.iter().all(|known| known.record.id != view.record.id) {
            views.push(view);
        }
    }
    Ok(views)
}

async fn end(ctx: &Context, client: &Client, mut views: Vec<ContainerView>, wish: &Wish) -> Result<()> {
    let (path, beginning, done) = wish.verb.words();
    let several = views.len() > 1;
    let mut failure: Option<CliError> = None;
    let mut pending = Vec::new();
    ctx.if_interrupted("no longer waiting; the server goes on trying");
    for (index, view) in views.iter_mut().enumerate() {
        let id = view.record.id.clone();
        if wish.verb.is_done(view) {
            say(ctx, &format!("Container {id} was already {}.", view.record.state))?;
            continue;
        }
        let sandbox = text::clean(text::or_dash(view.sandbox.as_deref()));
        say(ctx, &format!("{beginning} container {id} ({sandbox})..."))?;
        let request = StopRequest {
            grace_seconds: wish.grace.map(|grace| grace.as_secs_f64().ceil() as i64),
            reason: wish.reason.clone(),
        };
        match client.post_again(&format!("/containers/{id}/{path}"), &request).await {
            Ok(answer) => {
                *view = answer;
                pending.push(index);
            }
            Err(error) => keep(ctx, &mut failure, error),
        }
    }
    let grace = wish.grace.unwrap_or(wish.verb.usual_grace());
    let deadline = wish.patience.map(|patience| ctx.clock.monotonic() + patience + grace);
    if deadline.is_none() && !pending.is_empty() {
        ctx.out.hint("Requested; not waiting for the end.");
    }
    for index in pending.into_iter().filter(|_| deadline.is_some()) {
        let id = views[index].record.id.clone();
        match wait::until(ctx, client, &id, deadline, |view| wish.verb.is_done(view)).await {
            Ok(Waited::Done(view)) => {
                let which = if several { format!("Container {id}") } else { "Container".to_owned() };
                say(ctx, &format!("{which} {done}."))?;
                views[index] = *view;
            }
            Ok(Waited::TimedOut(view)) => {
                let waited = wish.patience.unwrap_or_default() + grace;
                keep(ctx, &mut failure, still_there(&view, waited, grace.is_zero()));
                views[index] = *view;
            }
            Err(error) => keep(ctx, &mut failure, error),
        }
    }
    if !ctx.out.is_human() {
        ctx.out.list(&views, id_of, String::new)?;
    }
    failure.map_or(Ok(()), Err)
}

fn say(ctx: &Context, line: &str) -> Result<()> {
    if ctx.out.is_human() { ctx.out.line(line) } else { Ok(()) }
}

/// The last failure is the command's; the ones before it are told at once.
fn keep(ctx: &Context, failure: &mut Option<CliError>, error: CliError) {
    if let Some(earlier) = failure.replace(error) {
        crate::output::report(&earlier, ctx.out.format().is_structured());
    }
}

fn still_there(view: &ContainerView, waited: Duration, forced: bool) -> CliError {
    let id = &view.record.id;
    let why = view.record.stop_error.as_deref().map_or_else(String::new, |error| format!(" ({error})"));
    let span = text::spoken(waited.as_secs_f64());
    let message = format!("{id} is still {} after {span}{why}; the server goes on trying", view.record.state);
    let look = format!("see 'parhelia containers show {id}'");
    let harder = format!("{look}, or do not wait: 'parhelia containers terminate --force {id}'");
    CliError::timeout(message).fix(if forced { look } else { harder })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures::seed_container;

    #[test]
    fn a_stop_is_done_when_stopped_and_a_termination_only_when_terminated() {
        let mut view = seed_container();
        for (state, stop, terminate) in [
            (ContainerState::Running, false, false),
            (ContainerState::Stopped, true, false),
            (ContainerState::Terminated, true, true),
            (ContainerState::Orphaned, false, false),
        ] {
            view.record.state = state;
            assert_eq!(
                (Verb::Stop.is_done(&view), Verb::Terminate.is_done(&view)),
                (stop, terminate),
                "{state}"
            );
        }
    }

    #[test]
    fn the_question_says_what_is_at_stake() {
        let view = seed_container();
        assert_eq!(question(&[&view]), "Terminate c-abc123 (running, task ta-def456, $1.23 so far)?");
        assert!(question(&[&view, &view]).ends_with("\nTerminate these 2 containers?"));
    }

    #[test]
    fn a_timeout_says_that_the_server_goes_on() {
        let mut view = seed_container();
        view.record.stop_error = Some("modal: 503".into());
        let error = still_there(&view, Duration::from_secs(70), false);
        assert_eq!(error.exit.code(), 6);
        assert_eq!(
            error.message,
            "c-abc123 is still running after 70 seconds (modal: 503); the server goes on trying"
        );
    }
}
