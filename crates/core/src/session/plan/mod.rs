//! What a session does next: `advance` looks at what is recorded and gives the steps that its owner writes in one
//! transaction, what is to be asked of the world afterwards, and when to look again. It keeps nothing: whoever has the same
//! rows comes to the same steps.

mod cancel;
mod shapes;
mod standing;
mod tasks;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{PhaseRow, PhaseStatus, Session, SessionStatus};
use crate::cascade::template::{self, Scope, TemplateError};
use crate::cascade::{Awaited, Cascade, Sensor, Work};
use crate::ids::{ContainerId, SignalId, TaskId, WaitId};

pub use cancel::CANCEL_GRACE_SECONDS;
pub use shapes::*;
pub use tasks::{Claim, LARGEST_OUTPUT_BYTES, MOST_CRASHES, Report};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test the panic is the message")]
mod tests;

/// `set` phases that share one transaction: nobody outside can tell the difference.
const SETS_AT_ONCE: usize = 64;

/// What was recorded of a session when it was last read or written.
#[derive(Debug, Clone)]
pub struct State {
    pub session: Session,
    pub phases: BTreeMap<usize, PhaseRow>,
    scope: Scope,
    failing: bool,
}

impl State {
    pub fn new(session: Session, inputs: Value, phases: Vec<PhaseRow>) -> Self {
        let outputs = phases
            .iter()
            .filter(|row| row.status.is_passed())
            .map(|row| (row.name.clone(), row.outputs.clone()))
            .collect();
        let about = json!({
            "id": session.session_id, "cascade_id": session.cascade_id, "name": session.name,
            "depth": session.depth,
        });
        let scope = Scope::default()
            .with("inputs", inputs)
            .with("outputs", Value::Object(outputs))
            .with("session", about);
        let failing = phases.iter().any(|row| row.status == PhaseStatus::Failed);
        let phases = phases.into_iter().map(|row| (row.position.max(0) as usize, row)).collect();
        Self { session, phases, scope, failing }
    }

    fn status_of(&self, place: usize) -> Option<PhaseStatus> {
        self.phases.get(&place).map(|row| row.status)
    }

    fn note_outputs(&mut self, name: &str, outputs: &Value) {
        self.scope.note("outputs", name, outputs.clone());
    }

    /// The next steps. `self` becomes what it will be when they are durable; if they cannot be written it must be
    /// read anew.
    pub fn advance(
        &mut self,
        cascade: &Cascade,
        surroundings: &Surroundings,
        facts: &Facts,
        now: Timestamp,
    ) -> Plan {
        let mut planner = Planner::new(cascade, surroundings, facts, now);
        let before = patch_of(&self.session);
        let after = if self.session.status.is_over() || self.session.status == SessionStatus::Orphaned {
            before.clone()
        } else if self.session.cancel_requested {
            planner.cancel(self)
        } else {
            planner.go_on(self)
        };
        let changed = !planner.steps.is_empty() || after != before;
        apply(&mut self.session, &after);
        Plan {
            steps: planner.steps,
            patch: after,
            changed,
            effects: planner.effects,
            waiting: planner.waiting,
            wake_at: planner.wake_at,
            wants_output: planner.wants_output,
            again: planner.again,
        }
    }
}

fn patch_of(session: &Session) -> Patch {
    Patch {
        status: session.status,
        current_phase: session.current_phase.clone(),
        blocked: session.blocked_type.map(|kind| Blocked {
            kind,
            on: session.blocked_on.clone().unwrap_or_default(),
            description: session.blocked_description.clone().unwrap_or_default(),
            since: session.blocked_since.unwrap_or(session.updated_at),
            timeout_at: session.blocked_timeout_at,
        }),
        error_message: session.error_message.clone(),
        error_phase: session.error_phase.clone(),
        cancel_seen_at: session.cancel_seen_at,
        cancelled_at: session.cancelled_at,
        completed_at: session.completed_at,
    }
}

fn apply(session: &mut Session, patch: &Patch) {
    session.status = patch.status;
    session.current_phase.clone_from(&patch.current_phase);
    session.blocked_type = patch.blocked.as_ref().map(|b| b.kind);
    session.blocked_on = patch.blocked.as_ref().map(|b| b.on.clone());
    session.blocked_description = patch.blocked.as_ref().map(|b| b.description.clone());
    session.blocked_since = patch.blocked.as_ref().map(|b| b.since);
    session.blocked_timeout_at = patch.blocked.as_ref().and_then(|b| b.timeout_at);
    session.error_message.clone_from(&patch.error_message);
    session.error_phase.clone_from(&patch.error_phase);
    session.cancel_seen_at = patch.cancel_seen_at;
    session.cancelled_at = patch.cancelled_at;
    session.completed_at = patch.completed_at;
}

struct Planner<'a> {
    cascade: &'a Cascade,
    surroundings: &'a Surroundings,
    facts: &'a Facts,
    now: Timestamp,
    steps: Vec<Step>,
    effects: Vec<Effect>,
    waiting: Vec<String>,
    wake_at: Option<Timestamp>,
    wants_output: Vec<(TaskId, ContainerId)>,
    again: bool,
    sets: usize,
    /// Attempts begun in this plan.
    started: usize,
    /// How many workers would have something to do.
    wanted_workers: usize,
    /// Things of the session that run: it is not blocked while there are any.
    alive: usize,
    /// Waits opened in this plan: of which phase, of which of its tasks.
    opened: Vec<(usize, Option<TaskId>, Blocked)>,
    /// Waits that are over with this plan.
    closed: BTreeSet<WaitId>,
    /// Signals that end a wait with this plan.
    delivered: BTreeSet<SignalId>,
}

impl<'a> Planner<'a> {
    fn new(cascade: &'a Cascade, surroundings: &'a Surroundings, facts: &'a Facts, now: Timestamp) -> Self {
        Self {
            cascade,
            surroundings,
            facts,
            now,
            steps: Vec::new(),
            effects: Vec::new(),
            waiting: Vec::new(),
            wake_at: None,
            wants_output: Vec::new(),
            again: false,
            sets: 0,
            started: 0,
            wanted_workers: 0,
            alive: 0,
            opened: Vec::new(),
            closed: BTreeSet::new(),
            delivered: BTreeSet::new(),
        }
    }
}

impl Planner<'_> {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn end_phase(
        &mut self,
        state: &mut State,
        position: usize,
        status: PhaseStatus,
        outputs: Value,
        error: Option<String>,
    ) {
        let Some(phase) = self.cascade.phases.get(position) else { return };
        if status.is_passed() {
            state.note_outputs(&phase.name, &outputs);
        }
        let row = state.phases.entry(position).or_insert_with(|| PhaseRow {
            position: position as i64,
            name: phase.name.clone(),
            status,
            started_at: self.now,
            completed_at: None,
            outputs: Value::Null,
            error: None,
            child_session_id: None,
        });
        state.failing |= status == PhaseStatus::Failed;
        row.status = status;
        row.completed_at = Some(self.now);
        row.outputs = outputs.clone();
        row.error.clone_from(&error);
        self.steps.push(Step::EndPhase { position, status, outputs, error });
    }

    fn fail(&mut self, state: &mut State, position: usize, error: impl Into<String>) {
        self.end_phase(state, position, PhaseStatus::Failed, json!({}), Some(error.into()));
    }

    /// Declared outputs over the ones that a phase has by nature.
    fn outputs_of(
        &self,
        state: &State,
        declared: &BTreeMap<String, Value>,
        by_nature: Value,
        known: &[(&str, Value)],
    ) -> Result<Value, TemplateError> {
        if declared.is_empty() {
            return Ok(by_nature);
        }
        let mut scope = state.scope.clone();
        for (name, value) in known {
            scope = scope.with(name, value.clone());
        }
        let mut all = match by_nature {
            Value::Object(map) => map,
            _ => serde_json::Map::new(),
        };
        for (name, wanted) in declared {
            all.insert(name.clone(), template::value(wanted, &scope)?);
        }
        Ok(Value::Object(all))
    }

    fn go_on(&mut self, state: &mut State) -> Patch {
        let running: Vec<usize> = state
            .phases
            .iter()
            .filter(|(_, row)| row.status == PhaseStatus::Running)
            .map(|(place, _)| *place)
            .collect();
        for place in running {
            self.advance_phase(state, place);
        }
        if !is_failing(state) {
            self.begin_phases(state);
        }
        self.hire(state);
        self.settle(state)
    }

    fn begin_phases(&mut self, state: &mut State) {
        for place in 0..self.cascade.phases.len() {
            if state.phases.contains_key(&place) || is_failing(state) {
                continue;
            }
            let needs = self.cascade.needs(place);
            if !needs.iter().all(|need| state.status_of(*need).is_some_and(PhaseStatus::is_passed)) {
                continue;
            }
            if self.sets >= SETS_AT_ONCE {
                self.again = true;
                return;
            }
            self.begin(state, place);
        }
    }

    fn begin(&mut self, state: &mut State, place: usize) {
        let cascade = self.cascade;
        let Some(phase) = cascade.phases.get(place) else { return };
        match phase.when.as_deref().map(|when| template::holds(when, &state.scope)) {
            Some(Err(error)) => {
                return self.fail(state, place, format!("its 'when' cannot be decided: {error}"));
            }
            Some(Ok(false)) => {
                self.sets += 1;
                return self.end_phase(state, place, PhaseStatus::Skipped, json!({}), None);
            }
            Some(Ok(true)) | None => {}
        }
        let one =
            |title: &str| vec![NewTask { position: 0, key: phase.name.clone(), title: title.to_owned() }];
        match &phase.work {
            Work::Set(values) => {
                self.sets += 1;
                let all: Result<serde_json::Map<_, _>, TemplateError> = values
                    .iter()
                    .map(|(name, wanted)| Ok((name.clone(), template::value(wanted, &state.scope)?)))
                    .collect();
                let made =
                    all.and_then(|all| self.outputs_of(state, &phase.outputs, Value::Object(all), &[]));
                match made {
                    Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
                    Err(error) => self.fail(state, place, format!("a value cannot be made: {error}")),
                }
            }
            Work::Run(_) | Work::Agent(_) => {
                let title = phase.description.as_deref().unwrap_or(&phase.name);
                self.begin_with(state, place, one(title));
            }
            Work::Tasks(tasks) => {
                let tasks = tasks
                    .iter()
                    .enumerate()
                    .map(|(position, task)| NewTask {
                        position,
                        key: task.id.clone(),
                        title: task.title.clone().unwrap_or_else(|| task.id.clone()),
                    })
                    .collect();
                self.begin_with(state, place, tasks);
            }
            Work::Await(wanted) => match self.new_wait(state, phase, wanted) {
                Ok(wait) => {
                    let sensor = matches!(wanted.awaited, Awaited::Sensor(Sensor::Command { .. }));
                    let tasks = if sensor { one(&wait.description) } else { Vec::new() };
                    self.begin_with(state, place, tasks);
                    self.open_wait(place, None, wait);
                    self.again = true;
                }
                Err(error) => self.fail(state, place, format!("what it waits for cannot be said: {error}")),
            },
            Work::Cascade(sub) => {
                let Some(definition) = &sub.definition else {
                    return self.fail(state, place, "its sub-cascade is not part of the definition");
                };
                let given: Result<serde_json::Map<_, _>, TemplateError> = sub
                    .inputs
                    .iter()
                    .map(|(name, wanted)| Ok((name.clone(), template::value(wanted, &state.scope)?)))
                    .collect();
                let given = match given {
                    Ok(given) => given.into_iter().collect(),
                    Err(error) => {
                        return self.fail(state, place, format!("an input cannot be made: {error}"));
                    }
                };
                match crate::cascade::parse::resolve_inputs(definition, &given, &BTreeMap::new()) {
                    Ok(inputs) => {
                        self.begin_with(state, place, Vec::new());
                        self.steps.push(Step::StartChild {
                            position: place,
                            cascade: definition.clone(),
                            inputs: Value::Object(inputs),
                        });
                        self.alive += 1;
                    }
                    Err(mistakes) => self.fail(state, place, mistakes.join("; ")),
                }
            }
        }
    }

    fn begin_with(&mut self, state: &mut State, place: usize, tasks: Vec<NewTask>) {
        let Some(phase) = self.cascade.phases.get(place) else { return };
        // Its tasks are read back with their ids, and begin with the next plan, at once.
        self.again |= !tasks.is_empty();
        self.alive += usize::from(!tasks.is_empty() && !matches!(phase.work, Work::Await(_)));
        state.phases.insert(
            place,
            PhaseRow {
                position: place as i64,
                name: phase.name.clone(),
                status: PhaseStatus::Running,
                started_at: self.now,
                completed_at: None,
                outputs: json!({}),
                error: None,
                child_session_id: None,
            },
        );
        self.steps.push(Step::BeginPhase { position: place, tasks });
    }

    fn advance_phase(&mut self, state: &mut State, place: usize) {
        let cascade = self.cascade;
        let Some(phase) = cascade.phases.get(place) else { return };
        match &phase.work {
            Work::Run(_) | Work::Agent(_) | Work::Tasks(_) => self.advance_level(state, place, phase),
            Work::Await(wanted) => self.advance_wait(state, place, phase, wanted),
            Work::Cascade(_) => self.advance_child(state, place, phase),
            // Begun and completed in one transaction.
            Work::Set(_) => {}
        }
    }
}

/// Something has failed for good: nothing new begins.
fn is_failing(state: &State) -> bool {
    state.failing
}
