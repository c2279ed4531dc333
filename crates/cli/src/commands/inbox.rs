//! `parhelia inbox`: what waits for a person, and the answers.

use std::io::IsTerminal;
use std::time::Duration;

use parhelia_core::api::EventList;
use parhelia_core::session::api::{AnswerReport, AnswerWaits, Inbox, Verdict};

use super::containers::watch;
use crate::args::{AnswerArgs, InboxArgs, InboxCommand, VerdictArgs};
use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output::{self, text};

/// How long the server may hold a question about events that have not happened yet.
const HOLD: Duration = Duration::from_secs(2);

/// How the server's refusals begin where nothing of that name is there.
const UNKNOWN: &str = "there is no such ";

pub(super) async fn run(ctx: &Context, args: InboxArgs) -> Result<()> {
    let Some(command) = args.command else {
        return if args.watch { follow(ctx).await } else { list(ctx).await };
    };
    if args.watch {
        return Err(CliError::usage("--watch is for the list alone").fix("write 'parhelia inbox --watch'"));
    }
    match command {
        InboxCommand::Answer(args) => answer(ctx, args).await,
        InboxCommand::Approve(args) => verdict(ctx, Verdict::Approve, args).await,
        InboxCommand::Deny(args) => verdict(ctx, Verdict::Deny, args).await,
    }
}

async fn list(ctx: &Context) -> Result<()> {
    let inbox: Inbox = ctx.client()?.get("/inbox", &[]).await?;
    show(ctx, &inbox)?;
    if inbox.items.is_empty() && inbox.jobs.is_empty() {
        ctx.out.hint(&match inbox.blocked_elsewhere {
            0 => "Nothing waits for a person.".to_owned(),
            n => format!("Nothing waits for a person; {} for signals or sensors.", text::counted(n, "wait")),
        });
    }
    Ok(())
}

fn show(ctx: &Context, inbox: &Inbox) -> Result<()> {
    use crate::args::Format;
    match ctx.out.format() {
        Format::Json | Format::Yaml => ctx.out.one(inbox, "", String::new),
        _ => {
            // Jobs are told apart by their own shape.
            let mut all: Vec<serde_json::Value> = Vec::new();
            for item in &inbox.items {
                all.push(serde_json::to_value(item).unwrap_or_default());
            }
            for job in &inbox.jobs {
                all.push(serde_json::to_value(job).unwrap_or_default());
            }
            let id = |item: &serde_json::Value| {
                let id = item.get("id").or_else(|| item.get("job_id"));
                id.and_then(|id| id.as_str()).unwrap_or_default().to_owned()
            };
            ctx.out.list(&all, id, || output::inbox::screen(inbox, ctx.now()))
        }
    }
}

/// On a terminal a screen that redraws itself; elsewhere what is new, once.
async fn follow(ctx: &Context) -> Result<()> {
    let client = ctx.client()?;
    let live = ctx.out.is_human() && std::io::stdout().is_terminal();
    let mut seen = std::collections::BTreeSet::new();
    let mut first = true;
    let mut after = 0;
    loop {
        let inbox: Inbox = client.get("/inbox", &[]).await?;
        if live {
            let title = format!("{} UTC; Ctrl-C ends", text::clock(ctx.now()));
            let mut lines = vec![text::painted(&title, text::DIM), String::new()];
            let screen = match inbox.items.is_empty() && inbox.jobs.is_empty() {
                true => "Nothing waits for a person.".to_owned(),
                false => output::inbox::screen(&inbox, ctx.now()),
            };
            let room = watch::terminal_rows().map_or(usize::MAX, |rows| rows.saturating_sub(3).max(2));
            lines.extend(screen.lines().take(room).map(str::to_owned));
            watch::draw(&lines, first)?;
        } else {
            for item in &inbox.items {
                if seen.insert(item.id.to_string()) {
                    ctx.out.streamed(item, item.id.as_str(), || output::inbox::line(item))?;
                }
            }
            for job in &inbox.jobs {
                if seen.insert(job.job_id.to_string()) {
                    ctx.out.streamed(job, &job.job_id.to_string(), || output::inbox::job_line(job))?;
                }
            }
        }
        first = false;
        after = news(&client, after).await?;
    }
}

/// Comes back when something has happened, or after a while.
async fn news(client: &Client, after: i64) -> Result<i64> {
    let mut query = vec![("limit", "1".to_owned()), ("order", "desc".to_owned())];
    if after > 0 {
        query = vec![
            ("after", after.to_string()),
            ("limit", "1".to_owned()),
            ("wait_seconds", HOLD.as_secs().to_string()),
        ];
    }
    let page: EventList = client.get_held("/events", &query, HOLD).await?;
    if page.events.is_empty() || after == 0 {
        return Ok(page.last_id.max(after));
    }
    // Many come at once: go on from where they end now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let latest = [("limit", "1".to_owned()), ("order", "desc".to_owned())];
    Ok(client.get::<EventList>("/events", &latest).await?.last_id.max(after))
}

fn request(ids: Vec<String>, verdict: Verdict, reason: Option<String>) -> AnswerWaits {
    AnswerWaits { ids, verdict, answer: None, text: None, choices: None, reason }
}

async fn answer(ctx: &Context, args: AnswerArgs) -> Result<()> {
    let AnswerArgs { words: mut ids, value, choice, json, reason } = args;
    let choices = Some(choice).filter(|choice| !choice.is_empty());
    let given = value.is_some() || choices.is_some() || json.is_some();
    let text = match given {
        true => value,
        false if ids.len() < 2 => {
            return Err(CliError::usage("there is no answer")
                .fix(format!("write it behind the id: 'parhelia inbox answer {} yes'", ids.concat())));
        }
        false => ids.pop(),
    };
    let request = AnswerWaits { answer: json, text, choices, ..request(ids, Verdict::Answer, reason) };
    send(ctx, &request).await
}

async fn verdict(ctx: &Context, verdict: Verdict, args: VerdictArgs) -> Result<()> {
    send(ctx, &request(args.ids, verdict, args.reason)).await
}

async fn send(ctx: &Context, request: &AnswerWaits) -> Result<()> {
    let report: AnswerReport = ctx.client()?.post_once("/inbox", request).await?;
    said(ctx, &report, request.verdict)?;
    for note in &report.notes {
        ctx.out.hint(note);
    }
    if report.refused.is_empty() {
        return Ok(());
    }
    let each: Vec<String> =
        report.refused.iter().map(|refused| format!("{}: {}", refused.id, refused.reason)).collect();
    let message = match each.as_slice() {
        [only] => format!("not answered: {only}"),
        several => format!("{} were not answered:\n  {}", several.len(), several.join("\n  ")),
    };
    let unknown = report.refused.iter().all(|refused| refused.reason.starts_with(UNKNOWN));
    let error = match unknown {
        true => CliError::new(Exit::NotFound, "not_found", message),
        false => CliError::new(Exit::Refused, "refused", message),
    };
    Err(error.fix("'parhelia inbox' shows what waits, and what each wants"))
}

/// What became of each; for programs the refusals too.
fn said(ctx: &Context, report: &AnswerReport, verdict: Verdict) -> Result<()> {
    if ctx.out.format().is_structured() {
        let answered = report.answered.iter().map(serde_json::to_value);
        let refused = report.refused.iter().map(|refused| {
            Ok(serde_json::json!({ "id": refused.id, "status": "refused", "reason": refused.reason }))
        });
        let each: Result<Vec<_>, serde_json::Error> = answered.chain(refused).collect();
        let each =
            each.map_err(|e| CliError::failure("output_failed", format!("cannot print the result: {e}")))?;
        return ctx.out.list(&each, |_| String::new(), String::new);
    }
    ctx.out.list(
        &report.answered,
        |wait| wait.id.to_string(),
        || report.answered.iter().map(|wait| output::inbox::answered(wait, verdict)).collect(),
    )
}
