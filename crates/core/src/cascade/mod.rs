//! Cascades: what a session is to do, phase by phase. This module owns the shape of a definition after it was read;
//! reading a file and finding its mistakes is [`parse`]'s, values are [`template`]'s. A definition is self-contained: the
//! sub-cascades that a file names are part of it, so that any process can go on with it.

mod bounds;
mod check;
mod graph;
pub mod inputs;
mod mistake;
pub mod parse;
pub mod schema;
mod shape;
pub mod template;
mod tree;

pub use mistake::Mistake;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sandbox::Resources;
use crate::word_enum;

/// How deep sub-cascades may go.
pub const DEEPEST: usize = 16;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cascade {
    pub cascade_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Input>,
    #[serde(default)]
    pub workers: Workers,
    /// Whether another server may go on with it when its own has died.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub resumable: bool,
    pub phases: Vec<Phase>,
    /// What the whole gives: templates over inputs and the phases' outputs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// Something that whoever starts a session gives it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Input {
    #[serde(rename = "type")]
    pub kind: InputKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Without one it must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Only one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Value>,
}

word_enum!(
    /// What an input must be. `-i key=value` gives text, which is read as this.
    #[derive(Default)]
    InputKind {
        #[default]
        String = "string",
        Number = "number",
        Boolean = "boolean",
        /// Anything that JSON can say.
        Json = "json",
    }
);

/// Where the tasks run, and how many at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workers {
    /// Tasks of one session that run at once.
    pub count: u32,
    pub lifetime: Lifetime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub resources: Resources,
    /// Names; the server resolves them when it makes the sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            count: 4,
            lifetime: Lifetime::Task,
            provider: None,
            image: None,
            resources: Resources::default(),
            secrets: Vec::new(),
        }
    }
}

word_enum!(
    /// How long what a task runs in lives.
    Lifetime {
        /// Container = job = one supervisor.
        Task = "task",
        /// A worker claims one task after another.
        Session = "session",
    }
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(flatten)]
    pub work: Work,
    /// The phases that come before it. Absent: the one above it. Empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Vec<String>>,
    /// An expression; what is not true skips the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Values for later phases: templates that also know `stdout`, `json`, `exit_code`, `answer` and `payload` of this one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    /// Of `run` and `agent`; each of `tasks` has its own.
    #[serde(flatten)]
    pub care: Care,
}

/// What a phase does: exactly one of these keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Run(Command),
    Agent(Agent),
    /// A level: these may run side by side.
    Tasks(Vec<Task>),
    Await(Await),
    Cascade(SubCascade),
    /// Computes outputs and starts nothing. The values are outputs of the phase.
    Set(BTreeMap<String, Value>),
}

/// A line for `sh -c`, given as one argument and never changed, or an argument vector whose parts are templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Command {
    Line(String),
    Vector(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    pub engine: String,
    /// A template; it reaches the agent as one argument.
    pub prompt: String,
    /// Further arguments, each a template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// How a task is run and when it counts as done; for `run`, `agent` and each of `tasks`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Care {
    /// Templates. Values get into a command this way, or as arguments.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Runs after it; unless this succeeds, it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Command>,
    #[serde(skip_serializing_if = "Retry::is_none")]
    pub retry: Retry,
    /// Seconds that one attempt may take (of `await`: how long it waits).
    #[serde(rename = "timeout", skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Attempts beyond the first.
    pub max: u32,
    pub backoff: Backoff,
    pub base_seconds: f64,
    pub max_seconds: f64,
}

impl Retry {
    pub fn is_none(&self) -> bool {
        self.max == 0
    }

    /// How long to wait before attempt `retry + 1`, where `retry` counts the failures, from 1.
    pub fn pause_seconds(&self, retry: u32) -> f64 {
        let n = f64::from(retry.max(1));
        let pause = match self.backoff {
            Backoff::Exponential => self.base_seconds * 2f64.powf((n - 1.0).min(40.0)),
            Backoff::Linear => self.base_seconds * n,
            Backoff::Fixed => self.base_seconds,
        };
        pause.clamp(0.0, self.max_seconds.max(0.0))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { max: 0, backoff: Backoff::Exponential, base_seconds: 1.0, max_seconds: 300.0 }
    }
}

word_enum!(Backoff { Exponential = "exponential", Linear = "linear", Fixed = "fixed" });

/// One of the tasks of a level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in its phase.
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(flatten)]
    pub work: TaskWork,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    #[serde(flatten)]
    pub care: Care,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskWork {
    Run(Command),
    Agent(Agent),
}

/// What a session waits for, and what happens when it does not come in time (the phase's `timeout`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Await {
    #[serde(flatten)]
    pub awaited: Awaited,
    /// A template, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// With `on_timeout: default`: taken as the answer or the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// Its name; a template.
    Signal(String),
    Hitl(Question),
    /// What is to be approved; a template.
    Approval(String),
    Sensor(Sensor),
    /// A person looks at what was done so far and lets it go on. What it is called; a template.
    Checkpoint(String),
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub kind: QuestionKind,
    /// A template.
    pub question: String,
    /// Of `choice` and `multi_choice`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Of `text`: a regular expression that the whole answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

word_enum!(
    QuestionKind {
        Confirmation = "confirmation",
        Choice = "choice",
        MultiChoice = "multi_choice",
        Text = "text",
        /// A whole number from `min` (1) to `max` (5).
        Rating = "rating",
    }
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Sensor {
    /// Run again and again until it succeeds.
    Command {
        run: Command,
        #[serde(default = "ten", rename = "every")]
        every_seconds: u64,
    },
    /// A moment (a template that gives an RFC 3339 time), or so many seconds from when it is reached.
    Time {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<String>,
        #[serde(default, rename = "after", skip_serializing_if = "Option::is_none")]
        after_seconds: Option<u64>,
    },
}

fn ten() -> u64 {
    10
}

word_enum!(
    /// A timeout is not a denial: what it means is said here.
    #[derive(Default)]
    OnTimeout {
        #[default]
        Fail = "fail",
        Continue = "continue",
        Default = "default",
    }
);

/// A cascade within a cascade: a session of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubCascade {
    /// As the file had it, relative to itself; only for people once the definition is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Box<Cascade>>,
    /// Templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Value>,
}

impl Cascade {
    /// Whether the phase at that place is done by tasks.
    pub fn works(&self, place: usize) -> bool {
        let work = self.phases.get(place).map(|phase| &phase.work);
        matches!(work, Some(Work::Run(_) | Work::Agent(_) | Work::Tasks(_)))
    }

    /// The engines that its agents and those of its sub-cascades are of.
    pub fn engines(&self) -> BTreeSet<&str> {
        let mut all = BTreeSet::new();
        for phase in &self.phases {
            match &phase.work {
                Work::Agent(agent) => {
                    all.insert(agent.engine.as_str());
                }
                Work::Tasks(tasks) => all.extend(tasks.iter().filter_map(|task| match &task.work {
                    TaskWork::Agent(agent) => Some(agent.engine.as_str()),
                    TaskWork::Run(_) => None,
                })),
                Work::Cascade(sub) => all.extend(sub.definition.iter().flat_map(|below| below.engines())),
                Work::Run(_) | Work::Await(_) | Work::Set(_) => {}
            }
        }
        all
    }

    /// The phases that must be over before this one, by their places.
    pub fn needs(&self, place: usize) -> Vec<usize> {
        match self.phases.get(place).map(|phase| &phase.needs) {
            Some(Some(named)) => {
                named.iter().filter_map(|name| self.phases.iter().position(|p| p.name == *name)).collect()
            }
            Some(None) if place > 0 => vec![place - 1],
            _ => Vec::new(),
        }
    }

    /// For a session with one phase with one task: `parhelia exec`.
    pub fn of_one(cascade_id: &str, command: Vec<String>) -> Self {
        Self {
            cascade_id: cascade_id.to_owned(),
            description: None,
            inputs: BTreeMap::new(),
            workers: Workers::default(),
            resumable: true,
            phases: vec![Phase {
                name: cascade_id.to_owned(),
                description: None,
                work: Work::Run(Command::Vector(command)),
                needs: None,
                when: None,
                outputs: BTreeMap::new(),
                care: Care::default(),
            }],
            outputs: BTreeMap::new(),
        }
    }
}
