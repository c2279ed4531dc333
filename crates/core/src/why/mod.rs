//! Why something is as it is, on one screen: its state in a sentence, the evidence, what it waits for, and who can
//! change that. Pure: the service gathers the facts, one function per kind of thing says what they mean.
//!
//! Nothing here shows a secret: neither environments nor specifications are facts.

mod container;
mod job;
mod others;
mod session;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::event::{Event, EventType};
use crate::sandbox::Phase;
use crate::time::{human_age, seconds_between};

pub use container::{ContainerFacts, OtherHome, container, unreadable};
pub use job::job;
pub use others::{InstanceFacts, ProviderFacts, TaskFacts, foreign, instance, provider, task, token};
pub use session::{session, session_task, wait};

/// `GET /api/v1/why/{id}`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    pub id: String,
    /// `session`, `wait`, `task`, `container`, `job`, `foreign`, `token`, `instance`, `provider`, …
    pub kind: String,
    pub asked_at: Timestamp,
    /// How it is, in a sentence.
    pub state: String,
    pub evidence: Vec<Evidence>,
    /// Empty: it is as it should be, and waits for nothing.
    pub waiting: Vec<Wait>,
    /// Who can change it, and how.
    pub remedies: Vec<Remedy>,
    /// The latest, oldest first.
    pub events: Vec<Happened>,
}

/// Who says what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    pub from: String,
    pub says: String,
}

impl Evidence {
    pub fn new(from: impl Into<String>, says: impl Into<String>) -> Self {
        Self { from: from.into(), says: says.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Wait {
    pub what: String,
    /// When that is at the latest, where it is known.
    pub until: Option<Timestamp>,
    /// When the planner said so, where it was the planner.
    pub said_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remedy {
    /// The role that it takes, or `nobody` where it comes by itself.
    pub who: String,
    pub what: String,
    pub command: Option<String>,
}

/// An event in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Happened {
    pub at: Timestamp,
    pub event_type: EventType,
    pub message: String,
}

/// What a provider said when it was asked about one sandbox, just now.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// It was not asked, and why.
    Unasked(String),
    /// It was asked and did not answer, or could not say: that means nothing.
    Unknown(String),
    Absent,
    Present(Phase),
}

impl Word {
    fn said(&self) -> String {
        match self {
            Word::Unasked(why) => format!("not asked: {why}"),
            Word::Unknown(why) => format!("unknown: {why}"),
            Word::Absent => "it has nothing of that name".to_owned(),
            Word::Present(Phase::Starting) => "it is made, and its command does not run yet".to_owned(),
            Word::Present(Phase::Running) => "it is running".to_owned(),
            Word::Present(Phase::Broken { reason }) => {
                format!("it can never work again ({reason}), and something of it still runs")
            }
            Word::Present(Phase::Unknown { why }) => format!("it has it and cannot say how it is: {why}"),
            Word::Present(Phase::Exited(exit)) => {
                let mut text = format!("it has ended: {}", exit.reason);
                if let Some(code) = exit.code {
                    text.push_str(&format!(", exit code {code}"));
                }
                if let Some(message) = &exit.message {
                    text.push_str(&format!(" ({message})"));
                }
                text
            }
        }
    }
}

/// The pages being filled in.
struct Page(Why);

impl Page {
    fn new(id: impl Into<String>, kind: &str, now: Timestamp, state: impl Into<String>) -> Self {
        Self(Why {
            id: id.into(),
            kind: kind.to_owned(),
            asked_at: now,
            state: state.into(),
            evidence: Vec::new(),
            waiting: Vec::new(),
            remedies: Vec::new(),
            events: Vec::new(),
        })
    }

    fn evidence(&mut self, from: impl Into<String>, says: impl Into<String>) {
        self.0.evidence.push(Evidence::new(from, says));
    }

    fn wait(&mut self, what: impl Into<String>, until: Option<Timestamp>) {
        self.0.waiting.push(Wait { what: what.into(), until, said_at: None });
    }

    fn remedy(&mut self, who: &str, what: impl Into<String>, command: impl Into<String>) {
        let command = Some(command.into()).filter(|c| !c.is_empty());
        self.0.remedies.push(Remedy { who: who.to_owned(), what: what.into(), command });
    }

    fn events(mut self, events: &[Event]) -> Why {
        self.0.events = events
            .iter()
            .map(|event| Happened {
                at: event.timestamp,
                event_type: event.event_type,
                message: event.message.clone().unwrap_or_default(),
            })
            .collect();
        self.0
    }
}

const OPERATOR: &str = "an operator";
const ADMIN: &str = "an admin";
const NOBODY: &str = "nobody";
/// Whoever has the machine or the account, rather than a token.
const HOST: &str = "whoever runs the server";

fn ago(at: Timestamp, now: Timestamp) -> String {
    match seconds_between(at, now) {
        ahead if ahead < -1.0 => format!("{} ahead of our clock", human_age(-ahead)),
        seconds => format!("{} ago", human_age(seconds)),
    }
}

fn times(n: i64) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}
