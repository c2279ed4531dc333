//! A text world: lines that say what is recorded and what the provider shows.
//!
//! ```text
//! row c-aaaa running sb-1 desired=terminated asked=-5s grace=10 stops=1 stopped=-5s
//! sandbox sb-1 c-aaaa exited 3 ended=-20s
//! list error "timeout"     list partial     identity engine-2     inspect c-aaaa absent
//! breaker since=-20s agreed=2 at=-11s       settings auto_terminate_orphans=true       price 3.6/h
//! ```
//!
//! Times are relative to now. A row is an hour old, of `engine-1`, with its cost written down, unless it says
//! otherwise; so is a sandbox.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use crate::config;
use crate::cost::{Price, Prices};
use crate::ids::ContainerId;
use crate::reconcile::{Action, Answer, Inspected, Observed, Plan, ProviderMemory, Tracked, View, plan};
use crate::sandbox::{Exit, Listing, Phase, Resources, Sandbox, Tags};
use crate::state::{ContainerState, CostSource, Desired, Health, TerminationReason};
use crate::time::seconds_between;

pub(super) const PROVIDER: &str = "fake";
pub(super) const ENGINE: &str = "engine-1";
pub(super) const OURS: &str = "ours";
pub(super) const RESUMPTION_SECONDS: f64 = 300.0;

pub(super) fn now() -> Timestamp {
    "2026-01-21T12:00:00Z".parse().unwrap()
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) create_is_idempotent: bool,
    pub(super) create_settles_seconds: i64,
    /// For how long whoever decides has been there.
    pub(super) watched_seconds: i64,
    pub(super) answer: Answer,
    pub(super) rows: Vec<Tracked>,
    pub(super) inspected: HashMap<ContainerId, Inspected>,
    pub(super) memory: ProviderMemory,
    pub(super) ours: BTreeSet<String>,
    pub(super) known_foreign: HashSet<String>,
    pub(super) settings: config::Reconciler,
    pub(super) prices: Prices,
    pub(super) observer_seconds: f64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            now: now(),
            create_is_idempotent: true,
            create_settles_seconds: 30,
            watched_seconds: i64::MAX,
            answer: Answer::Listed(Listing { identity: ENGINE.into(), complete: true, sandboxes: vec![] }),
            rows: vec![],
            inspected: HashMap::new(),
            memory: ProviderMemory { identity: Some(ENGINE.into()), ..ProviderMemory::default() },
            ours: [OURS.to_owned()].into(),
            known_foreign: HashSet::new(),
            settings: config::Reconciler::default(),
            prices: flat(0.0),
            observer_seconds: 1e6,
        }
    }

    /// A date in the future was written before the clock was set back.
    fn unseen_seconds(&self) -> HashMap<ContainerId, f64> {
        let watched = self.watched_seconds as f64;
        let of = |row: &Tracked| {
            let age = seconds_between(row.create_attempted_at.unwrap_or(row.created_at), self.now);
            if age < 0.0 { watched } else { age.min(watched) }
        };
        self.rows.iter().map(|row| (row.id.clone(), of(row))).collect()
    }

    pub(super) fn plan(&self) -> Plan {
        let unseen_seconds = self.unseen_seconds();
        let view = View {
            unseen_seconds: &unseen_seconds,
            provider: PROVIDER,
            create_is_idempotent: self.create_is_idempotent,
            create_settles_seconds: self.create_settles_seconds,
            answer: &self.answer,
            rows: &self.rows,
            inspected: &self.inspected,
            memory: &self.memory,
            ours: &self.ours,
            known_foreign: &self.known_foreign,
            settings: &self.settings,
            prices: &self.prices,
            observer_seconds: self.observer_seconds,
            resumption_seconds: RESUMPTION_SECONDS,
        };
        plan(&view, self.now)
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut world = World::new();
        let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
        for line in lines.iter().filter(|l| l.words[0] == "price") {
            world.prices = flat(line.words[1].strip_suffix("/h").expect("3.6/h").parse().unwrap());
        }
        for line in &lines {
            world.read(line);
        }
        world
    }

    fn listing(&mut self) -> &mut Listing {
        match &mut self.answer {
            Answer::Listed(listing) => listing,
            Answer::Unreachable { .. } => panic!("nothing is listed by a provider that does not answer"),
        }
    }

    fn read(&mut self, line: &Line) {
        match line.word(0) {
            "price" => {}
            "row" => {
                let row = self.row(line);
                self.rows.push(row);
            }
            "sandbox" => {
                let sandbox = line.sandbox(1, line.word(1), line.word(2));
                self.listing().sandboxes.push(sandbox);
            }
            "list" => match line.word(1) {
                "error" => self.answer = Answer::Unreachable { error: line.word(2).to_owned() },
                "partial" => self.listing().complete = false,
                "complete" => self.listing().complete = true,
                other => panic!("list {other}"),
            },
            "identity" => self.listing().identity = line.word(1).to_owned(),
            "inspect" => {
                let id = container(line.word(1));
                let answer = match line.word(2) {
                    "absent" => Inspected::Absent,
                    "unknown" => Inspected::Unknown { why: "timeout".into() },
                    "later" => Inspected::NotAsked,
                    _ => {
                        let row = self.rows.iter().find(|r| r.id == id).expect("inspect comes after its row");
                        let sandbox_id = row.sandbox_id.clone().unwrap_or_else(|| format!("sb-{id}"));
                        Inspected::Present(Box::new(line.sandbox(0, &sandbox_id, id.as_str())))
                    }
                };
                self.inspected.insert(id, answer);
            }
            "breaker" => {
                self.memory.breaker_since = line.at("since");
                self.memory.breaker_agreed = line.get("agreed").unwrap_or(0);
                self.memory.breaker_agreed_at = line.at("at");
            }
            "memory" => match line.words.get(1).map(String::as_str) {
                Some("identity") => self.memory.identity = Some(line.word(2).to_owned()),
                Some("empty") => self.memory = ProviderMemory::default(),
                _ => self.memory.unreachable_since = line.at("unreachable"),
            },
            "settings" => {
                let s = &mut self.settings;
                line.set("auto_terminate_orphans", &mut s.auto_terminate_orphans);
                line.set("auto_terminate_stale", &mut s.auto_terminate_stale);
                line.set("orphan_grace_period_seconds", &mut s.orphan_grace_period_seconds);
                line.set("max_reconcile_batch", &mut s.max_reconcile_batch);
                line.set("max_silent_hours", &mut s.max_silent_hours);
            }
            "provider" => {
                line.set("idempotent", &mut self.create_is_idempotent);
                line.set("settles", &mut self.create_settles_seconds);
                line.set("watched", &mut self.watched_seconds);
            }
            "observer" => self.observer_seconds = line.word(1).parse().unwrap(),
            "known-foreign" => {
                self.known_foreign.insert(line.word(1).to_owned());
            }
            "adopted" => {
                self.ours.insert(line.word(1).to_owned());
            }
            other => panic!("a world has no '{other}'"),
        }
    }

    fn row(&self, line: &Line) -> Tracked {
        let state: ContainerState = line.word(2).parse().unwrap();
        let sandbox_id = line.words.get(3).cloned();
        let created_at = line.at("age").unwrap_or(before("1h"));
        let mut row = row(container(line.word(1)), state, created_at);
        row.provider_identity = line.get("identity").or(sandbox_id.as_ref().map(|_| ENGINE.to_owned()));
        row.sandbox_id = sandbox_id;
        row.task_id = line.get("task");
        row.started_at = line.at("started").or((state != ContainerState::Created).then_some(created_at));
        row.terminated_at = line.at("ended");
        row.termination_reason = line.get("why");
        row.exit_code = line.get("code");
        row.suspected_at = line.at("suspected").or((state == ContainerState::Unknown).then_some(created_at));
        line.set("desired", &mut row.desired);
        if row.desired == Desired::Terminated {
            row.desired_at = line.at("asked").or(Some(before("5s")));
            row.desired_reason = line.get("reason").or(Some(TerminationReason::Manual));
        }
        row.stop_grace_seconds = line.get("grace");
        line.set("stops", &mut row.stop_attempts);
        row.stop_attempted_at = line.at("stopped");
        row.stop_seen_at = row.stop_attempted_at;
        row.stop_error = line.get("error");
        let taken = row.stop_error.is_none() && line.get::<bool>("untaken").is_none();
        let told = if row.stop_attempts > 1 { row.desired_at } else { row.stop_attempted_at };
        row.stopping_at = told.filter(|_| taken);
        line.set("attempts", &mut row.create_attempts);
        row.create_attempted_at = line.at("tried");
        row.last_heartbeat_at = line.at("heard");
        row.silent_alerted_at = line.at("alerted");
        line.set("health", &mut row.health);
        line.set("keep", &mut row.keep);
        if row.sandbox_id.is_some() {
            row.cost_rate_per_hour = Some(self.prices.rate_per_hour(PROVIDER, &row.resources, self.now));
            let from = row.started_at.unwrap_or(self.now);
            row.cost_accrued_usd = self.prices.cost(PROVIDER, &row.resources, from, self.now);
        }
        line.set("cost", &mut row.cost_accrued_usd);
        line.set("source", &mut row.cost_source);
        row
    }
}

/// A row with nothing in it but its name, state and age.
pub(super) fn row(id: ContainerId, state: ContainerState, created_at: Timestamp) -> Tracked {
    Tracked {
        id,
        provider_identity: None,
        sandbox_id: None,
        task_id: None,
        state,
        created_at,
        started_at: None,
        terminated_at: None,
        exit_code: None,
        termination_reason: None,
        suspected_at: None,
        desired: Desired::Running,
        desired_at: None,
        desired_reason: None,
        stop_grace_seconds: None,
        stop_seen_at: None,
        stopping_at: None,
        stop_confirmed_at: None,
        stop_attempts: 0,
        stop_attempted_at: None,
        stop_error: None,
        create_attempts: 0,
        create_attempted_at: None,
        last_heartbeat_at: None,
        silent_alerted_at: None,
        health: Health::Unknown,
        keep: false,
        region: None,
        resources: Resources::default(),
        cost_accrued_usd: 0.0,
        cost_rate_per_hour: None,
        cost_source: CostSource::Estimated,
    }
}

pub(super) fn sandbox(id: &str, tag: &ContainerId, phase: Phase, created_at: Timestamp) -> Sandbox {
    Sandbox {
        sandbox_id: id.to_owned(),
        tags: Tags { instance: OURS.into(), container: tag.clone(), task: None },
        phase,
        created_at: Some(created_at),
        started_at: Some(created_at),
        name: None,
        image: None,
        command: vec![],
        labels: BTreeMap::new(),
        region: None,
        resources: Resources::default(),
        reported_cost_usd: None,
    }
}

pub(super) fn exit(code: Option<i64>, at: Option<Timestamp>) -> Exit {
    let reason = match code {
        Some(0) => TerminationReason::Completed,
        Some(_) => TerminationReason::Failed,
        None => TerminationReason::Crash,
    };
    Exit { code, reason, at, message: None }
}

pub(super) fn flat(sandbox_hour: f64) -> Prices {
    Prices::new(vec![Price {
        provider: PROVIDER.into(),
        effective_from: Timestamp::UNIX_EPOCH,
        sandbox_hour,
        cpu_core_second: 0.0,
        memory_gib_second: 0.0,
        gpu_second: BTreeMap::new(),
        default_cpu_cores: 0.0,
        default_memory_mb: 0,
    }])
}

pub(super) fn container(text: &str) -> ContainerId {
    ContainerId::parse(text).unwrap()
}

/// Words, quoted words and `key=value` pairs.
#[derive(Debug)]
struct Line {
    words: Vec<String>,
    pairs: HashMap<String, String>,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut line = Line { words: vec![], pairs: HashMap::new() };
        let mut rest = text.trim();
        while !rest.is_empty() {
            let mut quoted = false;
            let end = rest.find(|c: char| {
                quoted ^= c == '"';
                c.is_whitespace() && !quoted
            });
            let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
            rest = after.trim_start();
            match token.split_once('=') {
                Some((key, value)) => drop(line.pairs.insert(key.into(), value.replace('"', ""))),
                None => line.words.push(token.replace('"', "")),
            }
        }
        (!line.words.is_empty()).then_some(line)
    }

    fn word(&self, i: usize) -> &str {
        self.words.get(i).map_or_else(|| panic!("a word is missing: {self:?}"), String::as_str)
    }

    fn get<T: FromStr>(&self, key: &str) -> Option<T> {
        let value = self.pairs.get(key)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{key}={value}")))
    }

    fn set<T: FromStr>(&self, key: &str, to: &mut T) {
        if let Some(value) = self.get(key) {
            *to = value;
        }
    }

    /// `-10s`, `+2h`; an `age` has no sign.
    fn at(&self, key: &str) -> Option<Timestamp> {
        let text = self.pairs.get(key)?;
        Some(match text.strip_prefix('+') {
            Some(later) => now() + span(later),
            None => before(text.trim_start_matches('-')),
        })
    }

    /// The phase is the third word of a `sandbox` line, and the second of an `inspect` line.
    fn sandbox(&self, first: usize, id: &str, tag: &str) -> Sandbox {
        let phase = match self.word(first + 2) {
            "starting" => Phase::Starting,
            "running" => Phase::Running,
            "unknown" => Phase::Unknown { why: self.word(first + 3).to_owned() },
            "broken" => Phase::Broken { reason: self.word(first + 3).parse().unwrap() },
            "exited" => {
                let mut exit = exit(self.words.get(first + 3).map(|c| c.parse().unwrap()), self.at("ended"));
                self.set("why", &mut exit.reason);
                Phase::Exited(exit)
            }
            other => panic!("a sandbox is not '{other}'"),
        };
        let created_at = self.at("age").unwrap_or(before("1h"));
        let mut sandbox = sandbox(id, &container(tag), phase, created_at);
        self.set("instance", &mut sandbox.tags.instance);
        sandbox.tags.task = self.get("task");
        sandbox.reported_cost_usd = self.get("reported");
        sandbox
    }
}

fn span(text: &str) -> SignedDuration {
    let (number, unit) = text.split_at(text.len() - 1);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => panic!("'{other}' is not a unit of time: {text}"),
    };
    SignedDuration::from_secs(number.parse::<i64>().unwrap() * seconds)
}

fn before(text: &str) -> Timestamp {
    now() - span(text)
}

/// The plan of a text world, as text.
pub(super) fn planned(text: &str) -> String {
    let world = World::parse(text);
    let plan = world.plan();
    let rows: HashMap<&ContainerId, &Tracked> = world.rows.iter().map(|r| (&r.id, r)).collect();
    let mut out = String::new();
    // The plan's own text, with the columns that change and what is told below each action.
    let text = plan.to_string();
    let mut lines = text.lines();
    for line in lines.by_ref().take(plan.inspect.len()) {
        writeln!(out, "{line}").unwrap();
    }
    for (action, line) in plan.actions.iter().zip(lines.by_ref()) {
        writeln!(out, "{line}").unwrap();
        if let Action::Record { id, observed, .. } = action {
            let changes = changes(&Observed::of(rows[id]), observed);
            if !changes.is_empty() {
                writeln!(out, "  {}", changes.join(", ")).unwrap();
            }
        }
        if let Action::Register { found, .. } = action
            && found.observed.cost_accrued_usd > 0.0
        {
            writeln!(out, "  cost {:.2} {}", found.observed.cost_accrued_usd, found.observed.cost_source)
                .unwrap();
        }
        if let Action::Announce { event } | Action::AlertSilent { event, .. } = action {
            writeln!(out, "  {}", event.message).unwrap();
        }
    }
    for line in lines {
        writeln!(out, "{line}").unwrap();
    }
    if plan.memory != world.memory {
        writeln!(out, "memory {}", memory(&plan.memory)).unwrap();
    }
    if let Some(at) = plan.wake_at {
        writeln!(out, "wake {}", moment(at)).unwrap();
    }
    if plan.busy {
        writeln!(out, "busy").unwrap();
    }
    if out.is_empty() { "nothing".into() } else { out }
}

fn moment(at: Timestamp) -> String {
    let seconds = seconds_between(now(), at);
    if seconds == 0.0 { "now".into() } else { format!("{seconds:+}s") }
}

fn memory(memory: &ProviderMemory) -> String {
    let mut out = memory.identity.clone().unwrap_or("nobody".into());
    if let Some(at) = memory.unreachable_since {
        write!(out, ", unreachable since {}", moment(at)).unwrap();
    }
    if let Some(at) = memory.breaker_since {
        write!(out, ", breaker since {} agreed {}", moment(at), memory.breaker_agreed).unwrap();
    }
    if let Some(at) = memory.breaker_agreed_at {
        write!(out, " at {}", moment(at)).unwrap();
    }
    out
}

fn changes(old: &Observed, new: &Observed) -> Vec<String> {
    let mut out = vec![];
    let mut time = |name: &str, old: Option<Timestamp>, new: Option<Timestamp>| {
        if old != new {
            out.push(format!("{name} {}", new.map_or("none".into(), moment)));
        }
    };
    time("started", old.started_at, new.started_at);
    time("ended", old.terminated_at, new.terminated_at);
    time("confirmed", old.stop_confirmed_at, new.stop_confirmed_at);
    if old.sandbox_id != new.sandbox_id {
        out.push(format!("sandbox {}", new.sandbox_id.as_deref().unwrap_or("none")));
    }
    if old.provider_identity != new.provider_identity {
        out.push(format!("identity {}", new.provider_identity.as_deref().unwrap_or("none")));
    }
    if (old.cost_accrued_usd - new.cost_accrued_usd).abs() > 1e-9 || old.cost_source != new.cost_source {
        let (was, is) = (old.cost_accrued_usd, new.cost_accrued_usd);
        out.push(format!("cost {was:.2} -> {is:.2} {}", new.cost_source));
    }
    out
}
