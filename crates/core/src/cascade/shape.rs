//! From a tree of values to a definition: keys, types, words and durations. Whatever is wrong is said and something
//! harmless takes its place, so that the rest is looked at as well; nobody gets to see such a definition.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::Value;

use super::mistake::{Finding, Findings, Place, Way, brief, did_you_mean, some_of};
use super::tree::{Entry, Kind, Node};
use super::{
    Agent, Await, Awaited, Backoff, Care, Cascade, Command, Input, Phase, Question, QuestionKind, Retry,
    Sensor, SubCascade, Task, TaskWork, Work, Workers,
};
use crate::sandbox::Resources;

/// Longer than this is no duration but a mistake (ten years).
pub(super) const LONGEST_SECONDS: u64 = 315_360_000;

pub(super) const CASCADE: &[&str] =
    &["cascade_id", "description", "inputs", "workers", "resumable", "phases", "outputs"];
pub(super) const INPUT: &[&str] = &["type", "description", "default", "options"];
pub(super) const WORKERS: &[&str] = &["count", "lifetime", "provider", "image", "resources", "secrets"];
pub(super) const RESOURCES: &[&str] = &["cpu_cores", "memory_mb", "gpu_type"];
pub(super) const PHASE: &[&str] = &[
    "name",
    "description",
    "run",
    "agent",
    "tasks",
    "await",
    "cascade",
    "set",
    "needs",
    "when",
    "outputs",
    "env",
    "workdir",
    "verify",
    "retry",
    "timeout",
];
pub(super) const PHASE_WORK: &[&str] = &["run", "agent", "tasks", "await", "cascade", "set"];
pub(super) const TASK: &[&str] =
    &["id", "title", "run", "agent", "outputs", "env", "workdir", "verify", "retry", "timeout"];
pub(super) const TASK_WORK: &[&str] = &["run", "agent"];
pub(super) const AGENT: &[&str] = &["engine", "prompt", "arguments"];
pub(super) const RETRY: &[&str] = &["max", "backoff", "base_seconds", "max_seconds"];
pub(super) const AWAIT: &[&str] = &[
    "signal",
    "hitl",
    "approval",
    "sensor",
    "checkpoint",
    "description",
    "timeout",
    "on_timeout",
    "default",
];
pub(super) const AWAITED: &[&str] = &["signal", "hitl", "approval", "sensor", "checkpoint"];
pub(super) const QUESTION: &[&str] = &["kind", "question", "options", "min", "max", "pattern"];
pub(super) const SENSOR: &[&str] = &["command", "time"];
pub(super) const SENSOR_COMMAND: &[&str] = &["run", "every"];
pub(super) const SENSOR_TIME: &[&str] = &["at", "after"];
pub(super) const SUB_CASCADE: &[&str] = &["file", "definition", "inputs"];

#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) findings: Findings,
}

/// A mapping whose keys are known.
#[derive(Clone, Copy)]
struct Fields<'n> {
    node: &'n Node,
}

impl<'n> Fields<'n> {
    fn get(self, key: &str) -> Option<&'n Node> {
        self.node.entry(key).map(|entry| &entry.value)
    }
}

impl Reader {
    fn say(&mut self, node: &Node, way: &Way<'_>, message: impl Into<String>) {
        self.advise(node.at, way, message, None);
    }

    fn advise(
        &mut self,
        place: Place,
        way: &Way<'_>,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) {
        let steps = way.steps();
        self.findings.push(Finding { steps, of_key: false, place, message: message.into(), suggestion });
    }

    fn wanted(&mut self, node: &Node, way: &Way<'_>, wanted: &str) {
        self.say(node, way, format!("must be {wanted}, not {}", node.is()));
    }

    fn fields<'n>(
        &mut self,
        node: &'n Node,
        way: &Way<'_>,
        what: &str,
        known: &[&str],
    ) -> Option<Fields<'n>> {
        let Kind::Map(entries) = &node.kind else {
            let message =
                format!("{what} must be a mapping with some of {}, not {}", known.join(", "), node.is());
            self.say(node, way, message);
            return None;
        };
        for Entry { key, key_at, .. } in entries {
            if !known.contains(&key.as_str()) {
                let suggestion = did_you_mean(key, known.iter().copied())
                    .or_else(|| Some(format!("{what} knows {}", known.join(", "))));
                let message = format!("{what} has no key '{}'", brief(key));
                self.advise(*key_at, &way.key(key), message, suggestion);
            }
        }
        Some(Fields { node })
    }

    /// Says where it is missing.
    fn required<'n>(&mut self, fields: Fields<'n>, way: &Way<'_>, what: &str, key: &str) -> Option<&'n Node> {
        let found = fields.get(key);
        if found.is_none() {
            self.advise(fields.node.at, &way.key(key), format!("{what} needs '{key}'"), None);
        }
        found
    }

    pub(super) fn cascade(&mut self, node: &Node, way: &Way<'_>) -> Cascade {
        let mut cascade = Cascade {
            cascade_id: String::new(),
            description: None,
            inputs: BTreeMap::new(),
            workers: Workers::default(),
            resumable: true,
            phases: Vec::new(),
            outputs: BTreeMap::new(),
        };
        let Some(fields) = self.fields(node, way, "a cascade", CASCADE) else { return cascade };
        if let Some(id) = self.required(fields, way, "a cascade", "cascade_id") {
            cascade.cascade_id = self.text(id, &way.key("cascade_id")).unwrap_or_default();
        }
        cascade.description = self.optional_text(fields, way, "description");
        cascade.inputs = self.map(fields, way, "inputs", Self::input);
        if let Some(workers) = fields.get("workers") {
            cascade.workers = self.workers(workers, &way.key("workers"));
        }
        if let Some(resumable) = fields.get("resumable") {
            cascade.resumable = self.boolean(resumable, &way.key("resumable")).unwrap_or(true);
        }
        if let Some(phases) = self.required(fields, way, "a cascade", "phases") {
            cascade.phases = self.list(phases, &way.key("phases"), Self::phase);
        }
        cascade.outputs = self.map(fields, way, "outputs", Self::value);
        cascade
    }

    fn input(&mut self, node: &Node, way: &Way<'_>) -> Input {
        let mut input = Input::default();
        if node.kind == Kind::Null {
            return input;
        }
        let Some(fields) = self.fields(node, way, "an input", INPUT) else { return input };
        if let Some(kind) = self.word(fields, way, "type") {
            input.kind = kind;
        }
        input.description = self.optional_text(fields, way, "description");
        input.default = fields.get("default").map(Node::to_value).filter(|value| !value.is_null());
        if let Some(options) = fields.get("options") {
            input.options = self.list(options, &way.key("options"), Self::value);
        }
        input
    }

    fn workers(&mut self, node: &Node, way: &Way<'_>) -> Workers {
        let mut workers = Workers::default();
        let Some(fields) = self.fields(node, way, "workers", WORKERS) else { return workers };
        if let Some(count) = fields.get("count") {
            workers.count = self.whole(count, &way.key("count"), 1, 10_000).map_or(1, |n| n as u32);
        }
        if let Some(lifetime) = self.word(fields, way, "lifetime") {
            workers.lifetime = lifetime;
        }
        workers.provider = self.optional_text(fields, way, "provider");
        workers.image = self.optional_text(fields, way, "image");
        if let Some(resources) = fields.get("resources") {
            workers.resources = self.resources(resources, &way.key("resources"));
        }
        if let Some(secrets) = fields.get("secrets") {
            workers.secrets = self.texts(secrets, &way.key("secrets"));
        }
        workers
    }

    fn resources(&mut self, node: &Node, way: &Way<'_>) -> Resources {
        let mut resources = Resources::default();
        let Some(fields) = self.fields(node, way, "resources", RESOURCES) else { return resources };
        if let Some(cores) = fields.get("cpu_cores") {
            resources.cpu_cores = self.number(cores, &way.key("cpu_cores"), 0.001, 100_000.0);
        }
        if let Some(memory) = fields.get("memory_mb") {
            let most = i64::MAX as u64 >> 20;
            resources.memory_mb = self.whole(memory, &way.key("memory_mb"), 1, most).map(|n| n as i64);
        }
        resources.gpu_type = self.optional_text(fields, way, "gpu_type");
        resources
    }

    fn phase(&mut self, node: &Node, way: &Way<'_>) -> Phase {
        let nothing = Phase {
            name: String::new(),
            description: None,
            work: Work::Set(BTreeMap::new()),
            needs: None,
            when: None,
            outputs: BTreeMap::new(),
            care: Care::default(),
        };
        let Some(fields) = self.fields(node, way, "a phase", PHASE) else {
            // It has no name either, and that need not be said.
            self.advise(node.at, &way.key("name"), "a phase needs 'name'", None);
            return nothing;
        };
        let mut care = self.care(fields, way);
        let mut phase = nothing;
        if let Some(name) = self.required(fields, way, "a phase", "name") {
            phase.name = self.text(name, &way.key("name")).unwrap_or_default();
        }
        phase.description = self.optional_text(fields, way, "description");
        if let Some((key, work)) = self.one_of(fields, way, "a phase", PHASE_WORK) {
            let way = way.key(key);
            phase.work = match key {
                "run" => Work::Run(self.command(work, &way)),
                "agent" => Work::Agent(self.agent(work, &way)),
                "tasks" => Work::Tasks(self.list(work, &way, Self::task)),
                "await" => Work::Await(self.waiting(work, &way, &mut care)),
                "cascade" => Work::Cascade(self.sub_cascade(work, &way)),
                _ => Work::Set(self.values(work, &way)),
            };
        }
        if let Some(needs) = fields.get("needs").filter(|needs| needs.kind != Kind::Null) {
            phase.needs = Some(match &needs.kind {
                Kind::Text(one) => vec![one.clone()],
                _ => self.texts(needs, &way.key("needs")),
            });
        }
        phase.when = self.optional_text(fields, way, "when");
        phase.outputs = self.map(fields, way, "outputs", Self::value);
        phase.care = care;
        phase
    }

    fn task(&mut self, node: &Node, way: &Way<'_>) -> Task {
        let work = TaskWork::Run(Command::Vector(vec!["true".to_owned()]));
        let mut task =
            Task { id: String::new(), title: None, work, outputs: BTreeMap::new(), care: Care::default() };
        let Some(fields) = self.fields(node, way, "a task", TASK) else {
            self.advise(node.at, &way.key("id"), "a task needs 'id'", None);
            return task;
        };
        if let Some(id) = self.required(fields, way, "a task", "id") {
            task.id = self.text(id, &way.key("id")).unwrap_or_default();
        }
        task.title = self.optional_text(fields, way, "title");
        if let Some((key, work)) = self.one_of(fields, way, "a task", TASK_WORK) {
            let way = way.key(key);
            task.work = match key {
                "run" => TaskWork::Run(self.command(work, &way)),
                _ => TaskWork::Agent(self.agent(work, &way)),
            };
        }
        task.outputs = self.map(fields, way, "outputs", Self::value);
        task.care = self.care(fields, way);
        task
    }

    fn care(&mut self, fields: Fields<'_>, way: &Way<'_>) -> Care {
        let mut care = Care {
            env: self.map(fields, way, "env", |reader, node, way| reader.text(node, way).unwrap_or_default()),
            workdir: self.optional_text(fields, way, "workdir"),
            ..Care::default()
        };
        if let Some(verify) = fields.get("verify") {
            care.verify = Some(self.command(verify, &way.key("verify")));
        }
        if let Some(retry) = fields.get("retry") {
            care.retry = self.retry(retry, &way.key("retry"));
        }
        if let Some(timeout) = fields.get("timeout") {
            care.timeout_seconds = self.duration(timeout, &way.key("timeout"));
        }
        care
    }

    fn retry(&mut self, node: &Node, way: &Way<'_>) -> Retry {
        let mut retry = Retry::default();
        if let Kind::Number(..) = node.kind {
            retry.max = self.whole(node, way, 0, 1000).map_or(0, |n| n as u32);
            return retry;
        }
        let Some(fields) = self.fields(node, way, "retry", RETRY) else { return retry };
        if let Some(max) = self.required(fields, way, "retry", "max") {
            retry.max = self.whole(max, &way.key("max"), 0, 1000).map_or(0, |n| n as u32);
        }
        if let Some(backoff) = self.word::<Backoff>(fields, way, "backoff") {
            retry.backoff = backoff;
        }
        let day = 86_400.0;
        if let Some(base) = fields.get("base_seconds") {
            retry.base_seconds = self.number(base, &way.key("base_seconds"), 0.0, day).unwrap_or(1.0);
        }
        if let Some(max) = fields.get("max_seconds") {
            retry.max_seconds = self.number(max, &way.key("max_seconds"), 0.0, 7.0 * day).unwrap_or(300.0);
        }
        // What is never used is not kept, so that a definition is the same after it was stored.
        if retry.max == 0 { Retry::default() } else { retry }
    }

    fn command(&mut self, node: &Node, way: &Way<'_>) -> Command {
        match &node.kind {
            Kind::Text(line) => Command::Line(line.clone()),
            Kind::List(_) => Command::Vector(self.texts(node, way)),
            _ => {
                self.wanted(node, way, "a line for sh or a list of arguments");
                Command::Vector(vec!["true".to_owned()])
            }
        }
    }

    fn agent(&mut self, node: &Node, way: &Way<'_>) -> Agent {
        let mut agent = Agent { engine: String::new(), prompt: String::new(), arguments: Vec::new() };
        let Some(fields) = self.fields(node, way, "an agent", AGENT) else {
            // The same place again would say nothing new.
            agent.engine = "none".to_owned();
            agent.prompt = "none".to_owned();
            return agent;
        };
        if let Some(engine) = self.required(fields, way, "an agent", "engine") {
            agent.engine = self.text(engine, &way.key("engine")).unwrap_or_default();
        }
        if let Some(prompt) = self.required(fields, way, "an agent", "prompt") {
            agent.prompt = self.text(prompt, &way.key("prompt")).unwrap_or_default();
        }
        if let Some(arguments) = fields.get("arguments") {
            agent.arguments = self.texts(arguments, &way.key("arguments"));
        }
        agent
    }

    fn waiting(&mut self, node: &Node, way: &Way<'_>, care: &mut Care) -> Await {
        let mut waiting = Await {
            awaited: Awaited::Signal("none".to_owned()),
            description: None,
            on_timeout: super::OnTimeout::default(),
            default: None,
        };
        let Some(fields) = self.fields(node, way, "await", AWAIT) else { return waiting };
        if let Some((key, awaited)) = self.one_of(fields, way, "await", AWAITED) {
            let way = way.key(key);
            waiting.awaited = match key {
                "signal" => Awaited::Signal(self.text(awaited, &way).unwrap_or_default()),
                "hitl" => Awaited::Hitl(self.question(awaited, &way)),
                "approval" => Awaited::Approval(self.text(awaited, &way).unwrap_or_default()),
                "sensor" => Awaited::Sensor(self.sensor(awaited, &way)),
                _ => Awaited::Checkpoint(self.text(awaited, &way).unwrap_or_default()),
            };
        }
        waiting.description = self.optional_text(fields, way, "description");
        if let Some(timeout) = fields.get("timeout") {
            let way = way.key("timeout");
            let seconds = self.duration(timeout, &way);
            if care.timeout_seconds.is_some() {
                self.say(timeout, &way, "the phase has a timeout already; it is the same");
            }
            care.timeout_seconds = care.timeout_seconds.or(seconds);
        }
        if let Some(word) = self.word(fields, way, "on_timeout") {
            waiting.on_timeout = word;
        }
        waiting.default = fields.get("default").map(Node::to_value).filter(|value| !value.is_null());
        waiting
    }

    fn question(&mut self, node: &Node, way: &Way<'_>) -> Question {
        let mut question = Question {
            kind: QuestionKind::Confirmation,
            question: "none".to_owned(),
            options: Vec::new(),
            min: None,
            max: None,
            pattern: None,
        };
        let Some(fields) = self.fields(node, way, "hitl", QUESTION) else { return question };
        if self.required(fields, way, "hitl", "kind").is_some()
            && let Some(kind) = self.word(fields, way, "kind")
        {
            question.kind = kind;
        }
        if let Some(text) = self.required(fields, way, "hitl", "question") {
            question.question = self.text(text, &way.key("question")).unwrap_or_default();
        }
        if let Some(options) = fields.get("options") {
            question.options = self.texts(options, &way.key("options"));
        }
        let most = 1e9;
        if let Some(min) = fields.get("min") {
            question.min = self.number(min, &way.key("min"), -most, most);
        }
        if let Some(max) = fields.get("max") {
            question.max = self.number(max, &way.key("max"), -most, most);
        }
        question.pattern = self.optional_text(fields, way, "pattern");
        question
    }

    fn sensor(&mut self, node: &Node, way: &Way<'_>) -> Sensor {
        let nothing = Sensor::Time { at: None, after_seconds: Some(1) };
        let Some(fields) = self.fields(node, way, "sensor", SENSOR) else { return nothing };
        let Some((key, sensor)) = self.one_of(fields, way, "sensor", SENSOR) else { return nothing };
        let way = way.key(key);
        if key == "command" {
            let Some(fields) = self.fields(sensor, &way, "sensor.command", SENSOR_COMMAND) else {
                return nothing;
            };
            let Some(run) = self.required(fields, &way, "sensor.command", "run") else { return nothing };
            let run = self.command(run, &way.key("run"));
            let every = fields.get("every").and_then(|every| self.duration(every, &way.key("every")));
            return Sensor::Command { run, every_seconds: every.unwrap_or_else(super::ten) };
        }
        let Some(fields) = self.fields(sensor, &way, "sensor.time", SENSOR_TIME) else { return nothing };
        Sensor::Time {
            at: self.optional_text(fields, &way, "at"),
            after_seconds: fields.get("after").and_then(|after| self.duration(after, &way.key("after"))),
        }
    }

    fn sub_cascade(&mut self, node: &Node, way: &Way<'_>) -> SubCascade {
        let mut sub = SubCascade { file: None, definition: None, inputs: BTreeMap::new() };
        if let Kind::Text(file) = &node.kind {
            sub.file = Some(file.clone());
            return sub;
        }
        let Some(fields) = self.fields(node, way, "cascade", SUB_CASCADE) else { return sub };
        sub.file = self.optional_text(fields, way, "file");
        if let Some(definition) = fields.get("definition") {
            sub.definition = Some(Box::new(self.cascade(definition, &way.key("definition"))));
        }
        sub.inputs = self.map(fields, way, "inputs", Self::value);
        sub
    }

    /// The one key of these that is there.
    fn one_of<'n>(
        &mut self,
        fields: Fields<'n>,
        way: &Way<'_>,
        what: &str,
        keys: &'static [&'static str],
    ) -> Option<(&'static str, &'n Node)> {
        let mut found = keys.iter().filter_map(|key| Some((*key, fields.node.entry(key)?)));
        let Some((first, entry)) = found.next() else {
            let message = format!("{what} needs one of {}", keys.join(", "));
            self.advise(fields.node.at, way, message, None);
            return None;
        };
        for (other, entry) in found {
            let message = format!("{what} does one thing, and '{first}' is there already");
            let suggestion = format!("take '{other}' away, or make it another");
            self.advise(entry.key_at, &way.key(other), message, Some(suggestion));
        }
        Some((first, &entry.value))
    }

    fn text(&mut self, node: &Node, way: &Way<'_>) -> Option<String> {
        match &node.kind {
            Kind::Text(text) | Kind::Number(_, text) => Some(text.clone()),
            Kind::Bool(value) => Some(value.to_string()),
            Kind::Map(_) => {
                let suggestion = "put quotes around text that begins with {";
                self.advise(node.at, way, "must be text, not a mapping", Some(suggestion.to_owned()));
                None
            }
            _ => {
                self.wanted(node, way, "text");
                None
            }
        }
    }

    /// What is there and empty is as if it were not.
    fn optional_text(&mut self, fields: Fields<'_>, way: &Way<'_>, key: &str) -> Option<String> {
        let node = fields.get(key).filter(|node| node.kind != Kind::Null)?;
        self.text(node, &way.key(key))
    }

    fn texts(&mut self, node: &Node, way: &Way<'_>) -> Vec<String> {
        self.list(node, way, |reader, node, way| reader.text(node, way).unwrap_or_default())
    }

    fn list<T>(
        &mut self,
        node: &Node,
        way: &Way<'_>,
        mut each: impl FnMut(&mut Self, &Node, &Way<'_>) -> T,
    ) -> Vec<T> {
        match &node.kind {
            Kind::List(items) => {
                items.iter().enumerate().map(|(n, item)| each(self, item, &way.index(n))).collect()
            }
            _ => {
                self.wanted(node, way, "a list");
                Vec::new()
            }
        }
    }

    fn map<T>(
        &mut self,
        fields: Fields<'_>,
        way: &Way<'_>,
        key: &str,
        mut each: impl FnMut(&mut Self, &Node, &Way<'_>) -> T,
    ) -> BTreeMap<String, T> {
        let Some(node) = fields.get(key).filter(|node| node.kind != Kind::Null) else {
            return BTreeMap::new();
        };
        let way = way.key(key);
        match &node.kind {
            Kind::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), each(self, &entry.value, &way.key(&entry.key))))
                .collect(),
            _ => {
                self.wanted(node, &way, "a mapping");
                BTreeMap::new()
            }
        }
    }

    fn values(&mut self, node: &Node, way: &Way<'_>) -> BTreeMap<String, Value> {
        match &node.kind {
            Kind::Map(entries) => entries.iter().map(|e| (e.key.clone(), e.value.to_value())).collect(),
            _ => {
                self.wanted(node, way, "a mapping");
                BTreeMap::new()
            }
        }
    }

    #[allow(clippy::unused_self, reason = "one of the functions that read an item")]
    fn value(&mut self, node: &Node, _: &Way<'_>) -> Value {
        node.to_value()
    }

    fn boolean(&mut self, node: &Node, way: &Way<'_>) -> Option<bool> {
        if let Kind::Bool(value) = node.kind {
            return Some(value);
        }
        self.say(node, way, "must be true or false");
        None
    }

    fn number(&mut self, node: &Node, way: &Way<'_>, least: f64, most: f64) -> Option<f64> {
        let found = match &node.kind {
            Kind::Number(number, _) => number.as_f64(),
            _ => None,
        };
        let found = found.filter(|n| (least..=most).contains(n));
        if found.is_none() {
            self.say(node, way, format!("must be a number from {least} to {most}"));
        }
        found
    }

    fn whole(&mut self, node: &Node, way: &Way<'_>, least: u64, most: u64) -> Option<u64> {
        let found = match &node.kind {
            Kind::Number(number, _) => number.as_u64(),
            _ => None,
        };
        let found = found.filter(|n| (least..=most).contains(n));
        if found.is_none() {
            self.say(node, way, format!("must be a whole number from {least} to {most}"));
        }
        found
    }

    fn duration(&mut self, node: &Node, way: &Way<'_>) -> Option<u64> {
        let seconds = match &node.kind {
            Kind::Number(number, _) => number.as_u64(),
            Kind::Text(text) => seconds(text),
            _ => None,
        };
        let found = seconds.filter(|seconds| (1..=LONGEST_SECONDS).contains(seconds));
        if found.is_none() {
            let message = match seconds {
                Some(0) => "must be at least a second".to_owned(),
                Some(_) => "is longer than ten years".to_owned(),
                None => "is not a duration".to_owned(),
            };
            let suggestion = "whole seconds, or text as 90s, 5m, 2h".to_owned();
            self.advise(node.at, way, message, Some(suggestion));
        }
        found
    }

    fn word<T: FromStr<Err = crate::state::UnknownWord>>(
        &mut self,
        fields: Fields<'_>,
        way: &Way<'_>,
        key: &str,
    ) -> Option<T> {
        let node = fields.get(key)?;
        let way = way.key(key);
        let text = self.text(node, &way)?;
        match text.parse() {
            Ok(word) => Some(word),
            Err(unknown) => {
                let message =
                    format!("'{}' is none of {}", brief(&text), some_of(unknown.known.iter().copied()));
                self.advise(node.at, &way, message, did_you_mean(&text, unknown.known.iter().copied()));
                None
            }
        }
    }
}

/// `90`, `90s`, `5m`, `2h` or `1d` in seconds.
pub fn seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.strip_prefix(digits)? {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
