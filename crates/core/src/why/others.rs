//! Why a sandbox of another instance, a task, a token, an instance or a provider is as it is.

use jiff::Timestamp;

use super::{ADMIN, HOST, NOBODY, OPERATOR, Page, Why, ago};
use crate::access::Token;
use crate::api::{ContainerView, ForeignView, InstanceView, ProviderStatus};
use crate::event::Event;
use crate::state::ContainerState;
use crate::time::human_age;

/// A sandbox in our account that carries the tag of another instance.
pub fn foreign(view: &ForeignView, instance: &str, now: Timestamp) -> Why {
    let state =
        format!("It belongs to another instance ({instance}): it is shown with its cost, and left alone.");
    let mut page = Page::new(&view.container_id, "foreign", now, state);
    page.evidence(
        format!("provider {}", view.provider),
        format!("sandbox {} was last seen {}", view.sandbox, ago(view.last_seen_at, now)),
    );
    page.evidence(
        "age",
        format!("{}; first seen here {}", human_age(view.age as f64), ago(view.first_seen_at, now)),
    );
    page.evidence("cost", format!("${:.4} so far, ${:.4} an hour", view.cost, view.cost_per_hour_usd));
    page.wait("its own control plane; nothing here touches it until that instance is adopted", None);
    page.remedy(
        ADMIN,
        "takes the whole instance over, for example when its data is lost",
        format!("parhelia instances adopt {instance}"),
    );
    page.0
}

#[derive(Debug, Clone)]
pub struct TaskFacts {
    pub id: String,
    pub title: String,
    pub containers: Vec<ContainerView>,
    pub events: Vec<Event>,
}

pub fn task(facts: &TaskFacts, now: Timestamp) -> Why {
    let live = |view: &&ContainerView| view.record.state != ContainerState::Terminated;
    let alive: Vec<&ContainerView> = facts.containers.iter().filter(live).collect();
    let state = match (alive.len(), facts.containers.last()) {
        (0, None) => "No container was ever made for it.".to_owned(),
        (0, Some(last)) => format!(
            "Nothing of it runs: its last container {} has ended ({}).",
            last.record.id,
            last.record.termination_reason.map_or("for no known reason", |reason| reason.as_str())
        ),
        (1, _) => "One container works on it.".to_owned(),
        (n, _) => format!("{n} containers work on it."),
    };
    let mut page = Page::new(&facts.id, "task", now, state);
    if facts.title != facts.id {
        page.evidence("title", &facts.title);
    }
    for view in facts.containers.iter().rev().take(5) {
        let record = &view.record;
        page.evidence(
            record.id.as_str(),
            format!("{}, {}, wanted {}, ${:.4}", record.state, view.health, record.desired, view.cost),
        );
    }
    for view in &alive {
        page.remedy(
            OPERATOR,
            format!("sees what {} waits for", view.record.id),
            format!("parhelia why {}", view.record.id),
        );
    }
    if alive.is_empty() {
        page.remedy(
            OPERATOR,
            "runs it again",
            format!("parhelia containers run --task {} -- COMMAND", facts.id),
        );
    }
    page.events(&facts.events)
}

pub fn token(token: &Token, now: Timestamp) -> Why {
    let state = match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("It opens nothing: it was revoked {}.", ago(at, now)),
        (None, Some(end)) if end <= now => format!("It opens nothing: it expired {}.", ago(end, now)),
        (None, Some(end)) => format!("It holds, for {} ({}), until {end}.", token.subject, token.role),
        (None, None) => format!("It holds, for {} ({}), until it is revoked.", token.subject, token.role),
    };
    let mut page = Page::new(token.id.as_str(), "token", now, state);
    page.evidence("made", format!("{} by {}", ago(token.created_at, now), token.created_by));
    let used = token.last_used_at.map_or("never".to_owned(), |at| ago(at, now));
    page.evidence("last use", used);
    if let Some(container) = &token.container_id {
        page.evidence("speaks for", container.as_str());
    }
    if token.is_valid(now) {
        page.remedy(ADMIN, "ends it for good", format!("parhelia tokens revoke {}", token.id));
    } else {
        page.remedy(
            ADMIN,
            "makes another",
            format!("parhelia tokens create {} --role {}", token.subject, token.role),
        );
    }
    page.0
}

#[derive(Debug, Clone)]
pub struct InstanceFacts {
    pub view: InstanceView,
    /// Containers of it that are ours and not over.
    pub containers: i64,
}

pub fn instance(facts: &InstanceFacts, now: Timestamp) -> Why {
    let view = &facts.view;
    let foreign = view.foreign.len();
    let state = match (view.is_self, view.adopted_at) {
        (true, _) => "It is this instance.".to_owned(),
        (false, Some(at)) => format!(
            "It was adopted {} by {}: its sandboxes are containers of this one.",
            ago(at, now),
            view.adopted_by.as_deref().unwrap_or("somebody")
        ),
        (false, None) => {
            format!("It is another instance, with {foreign} sandboxes that run in the same accounts.")
        }
    };
    let mut page = Page::new(&view.id, "instance", now, state);
    page.evidence("containers", format!("{} that are not over", facts.containers));
    if foreign > 0 {
        page.evidence(
            "foreign",
            format!("{foreign} sandboxes, ${:.4} so far, ${:.4} an hour", view.cost, view.cost_per_hour_usd),
        );
        page.wait("its own control plane; nothing here touches what is foreign", None);
        page.remedy(ADMIN, "takes it over", format!("parhelia instances adopt {}", view.id));
    }
    page.remedy(OPERATOR, "lists the instances that were seen", "parhelia instances list");
    page.0
}

#[derive(Debug, Clone)]
pub struct ProviderFacts {
    pub status: ProviderStatus,
    /// What it answered just now: who it is and how many sandboxes it shows, or why it did not.
    pub answer: Result<(String, usize), String>,
    pub answered_in_ms: f64,
    /// Containers of it that are not over.
    pub containers: i64,
    pub events: Vec<Event>,
}

pub fn provider(facts: &ProviderFacts, now: Timestamp) -> Why {
    let status = &facts.status;
    let name = &status.name;
    let state = match (&facts.answer, status.breaker_since) {
        (Err(_), _) => format!("{name} does not answer: its containers are left as they are."),
        (Ok(_), Some(_)) => format!(
            "{name} answers, and too many of its containers vanished at once: nothing is concluded yet."
        ),
        (Ok(_), None) => format!("{name} answers."),
    };
    let mut page = Page::new(name, "provider", now, state);
    match &facts.answer {
        Ok((identity, count)) => {
            page.evidence(
                "now",
                format!("{count} sandboxes in {:.0} ms, as {identity}", facts.answered_in_ms),
            );
            if let Some(before) = status.identity.as_ref().filter(|known| *known != identity) {
                page.evidence("identity", format!("it was {before} at the last pass"));
            }
        }
        Err(why) => page.evidence("now", format!("unknown: {why}")),
    }
    page.evidence("containers", format!("{} that are not over", facts.containers));
    if let Some(cycle) = &status.last_cycle {
        page.evidence(
            "last pass",
            format!(
                "{} ({}), {}: {} actions, {} failures",
                ago(cycle.finished_at, now),
                cycle.trigger,
                cycle.outcome,
                cycle.actions,
                cycle.failures
            ),
        );
        for waiting in cycle.waiting.iter().filter(|waiting| waiting.id.is_none()) {
            page.0.waiting.push(super::Wait {
                what: waiting.why.clone(),
                until: None,
                said_at: Some(cycle.finished_at),
            });
        }
    }
    if let Some(since) = status.unreachable_since {
        page.wait(
            format!("an answer; there was none since {since}, and it is asked at every pass"),
            status.last_cycle.as_ref().and_then(|c| c.next_at),
        );
    }
    if let Some(since) = status.breaker_since {
        page.wait(
            format!("three listings that agree ({} so far, open since {since})", status.breaker_agreed),
            None,
        );
        page.remedy(NOBODY, "needs to: it closes when they are there again, or are agreed to be gone", "");
    }
    if facts.answer.is_err() {
        page.remedy(HOST, "finds out what is wrong with it", "parhelia doctor");
    }
    page.remedy(OPERATOR, "has it looked at now", "parhelia reconciler run");
    page.events(&facts.events)
}
