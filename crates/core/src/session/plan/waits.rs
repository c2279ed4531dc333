//! What a session waits for: signals, people, sensors.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::tasks::{Outcome, outcome};
use super::{AttemptEnd, Blocked, NewWait, Planner, State, Step, is_failing};
use crate::cascade::template::{self, TemplateError};
use crate::cascade::{Await, Awaited, Command, OnTimeout, Phase, Sensor};
use crate::ids::TaskId;
use crate::session::{BlockedType, PhaseStatus, WaitRow, WaitStatus};
use crate::state::TerminationReason;
use crate::time::plus_seconds;

impl Planner<'_> {
    pub(super) fn new_wait(
        &self,
        state: &State,
        phase: &Phase,
        wanted: &Await,
    ) -> Result<NewWait, TemplateError> {
        let scope = &state.scope;
        let (wait_type, wait_on, question, asked) = match &wanted.awaited {
            Awaited::Signal(name) => {
                let name = template::text(name, scope)?;
                (BlockedType::Signal, name.clone(), json!({}), format!("the signal '{name}'"))
            }
            Awaited::Hitl(question) => {
                let asked = template::text(&question.question, scope)?;
                let mut as_json = serde_json::to_value(question).unwrap_or_default();
                as_json["question"] = json!(asked);
                (BlockedType::Hitl, question.kind.to_string(), as_json, asked)
            }
            Awaited::Approval(what) => {
                let what = template::text(what, scope)?;
                (BlockedType::Approval, what.clone(), json!({ "kind": "approval", "question": what }), what)
            }
            Awaited::Checkpoint(what) => {
                let what = template::text(what, scope)?;
                (
                    BlockedType::Checkpoint,
                    what.clone(),
                    json!({ "kind": "checkpoint", "question": what }),
                    what,
                )
            }
            Awaited::Sensor(Sensor::Command { run, .. }) => (
                BlockedType::Sensor,
                "command".to_owned(),
                json!({ "command": shown(run) }),
                format!("the sensor of phase {}", phase.name),
            ),
            Awaited::Sensor(Sensor::Time { at, after_seconds }) => {
                let at = match (at, after_seconds) {
                    (Some(at), _) => {
                        let text = template::text(at, scope)?;
                        text.parse::<Timestamp>().map_err(|e| TemplateError {
                            shown: text,
                            reason: format!("it is not a time such as 2026-01-31T12:00:00Z: {e}"),
                        })?
                    }
                    (None, seconds) => {
                        let seconds = i64::try_from(seconds.unwrap_or(0)).unwrap_or(i64::MAX / 4);
                        plus_seconds(self.now, seconds)
                    }
                };
                (BlockedType::Sensor, format!("time {at}"), json!({ "at": at }), format!("{at}"))
            }
        };
        let description = match &wanted.description {
            Some(text) => template::text(text, scope)?,
            None => asked,
        };
        let deadline = phase
            .care
            .timeout_seconds
            .map(|seconds| plus_seconds(self.now, i64::try_from(seconds).unwrap_or(i64::MAX / 4)));
        let default_value = wanted.default.as_ref().map(|value| template::value(value, scope)).transpose()?;
        Ok(NewWait {
            wait_type,
            wait_on,
            description,
            question,
            on_timeout: wanted.on_timeout,
            default_value,
            deadline,
        })
    }

    pub(super) fn open_wait(&mut self, position: usize, task: Option<TaskId>, mut wait: NewWait) {
        if let Some(task) = &task {
            let open = self.facts.open.iter().find(|open| open.task.id == *task);
            if let Some(container) = open.and_then(|open| open.attempt.container_id.as_ref()) {
                wait.question["container"] = json!(container);
            }
        }
        let blocked = Blocked {
            kind: wait.wait_type,
            on: wait.wait_on.clone(),
            description: wait.description.clone(),
            since: self.now,
            timeout_at: wait.deadline,
        };
        self.opened.push((position, task.clone(), blocked));
        self.steps.push(Step::OpenWait { position, task, wait });
    }

    pub(super) fn advance_wait(&mut self, state: &mut State, place: usize, phase: &Phase, wanted: &Await) {
        let facts = self.facts;
        let mine = |wait: &&WaitRow| wait.phase == phase.name && wait.task_id.is_none();
        let Some(wait) = facts.waits.iter().rfind(mine) else { return };
        match wait.status {
            WaitStatus::Answered => self.take_answer(state, place, phase, wait, wait.answer.clone()),
            WaitStatus::Open => {
                if wait.wait_type == BlockedType::Signal
                    && let Some(signal) = facts.signals.iter().find(|(id, _)| *id == wait.id).map(|(_, s)| s)
                {
                    if !self.delivered.insert(signal.id.clone()) {
                        // Another wait takes it with this plan; what is left for this one is seen with the next.
                        self.again = true;
                        return;
                    }
                    self.closed.insert(wait.id.clone());
                    self.steps.push(Step::Deliver {
                        signal: signal.id.clone(),
                        wait: wait.id.clone(),
                        name: signal.name.clone(),
                        payload: signal.payload.clone(),
                    });
                    self.take_answer(state, place, phase, wait, Some(signal.payload.clone()));
                    return;
                }
                let due = wait.deadline.is_some_and(|deadline| deadline <= self.now);
                if self.sensed(state, place, phase, wanted, wait, due || is_failing(state)) {
                    return;
                }
                if is_failing(state) {
                    self.withdraw(wait.id.clone());
                    self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None);
                    return;
                }
                if let Some(deadline) = wait.deadline {
                    if deadline <= self.now {
                        return self.time_out(state, place, phase, wait, wanted.on_timeout);
                    }
                    self.wake(deadline);
                }
                self.waiting.push(format!("phase {}: waits for {}", phase.name, wait.description));
            }
            WaitStatus::TimedOut => self.time_out(state, place, phase, wait, wanted.on_timeout),
            WaitStatus::Withdrawn => self.end_phase(state, place, PhaseStatus::Cancelled, json!({}), None),
        }
    }

    pub(super) fn take_answer(
        &mut self,
        state: &mut State,
        place: usize,
        phase: &Phase,
        wait: &WaitRow,
        answer: Option<Value>,
    ) {
        self.closed.insert(wait.id.clone());
        let given = answer.unwrap_or(Value::Null);
        let denied = matches!(wait.wait_type, BlockedType::Approval | BlockedType::Checkpoint)
            && given == Value::Bool(false);
        if denied {
            let who = wait.answered_by.as_deref().unwrap_or("somebody");
            let why = wait.answer_reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            return self.fail(state, place, format!("denied by {who}{why}"));
        }
        let by = json!(wait.answered_by);
        let nature = match wait.wait_type {
            BlockedType::Signal => json!({ "payload": given, "timed_out": false }),
            BlockedType::Approval | BlockedType::Checkpoint => {
                json!({ "approved": true, "by": by, "reason": wait.answer_reason, "timed_out": false })
            }
            _ => json!({ "answer": given, "by": by, "timed_out": false }),
        };
        let known = [("answer", given.clone()), ("payload", given), ("answered_by", by)];
        match self.outputs_of(state, &phase.outputs, nature, &known) {
            Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
            Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
        }
    }

    pub(super) fn time_out(
        &mut self,
        state: &mut State,
        place: usize,
        phase: &Phase,
        wait: &WaitRow,
        then: OnTimeout,
    ) {
        if wait.status == WaitStatus::Open {
            self.closed.insert(wait.id.clone());
            self.steps.push(Step::TimeOutWait {
                wait: wait.id.clone(),
                description: wait.description.clone(),
                then,
            });
        }
        let given = match then {
            OnTimeout::Fail => {
                let message =
                    format!("nobody answered '{}' in time (a timeout is not a denial)", wait.description);
                return self.fail(state, place, message);
            }
            OnTimeout::Continue => Value::Null,
            OnTimeout::Default => wait.default_value.clone().unwrap_or(Value::Null),
        };
        // The same names as with an answer: whoever comes later may look at any of them.
        let nature = match wait.wait_type {
            BlockedType::Signal => json!({ "payload": given, "timed_out": true }),
            BlockedType::Approval | BlockedType::Checkpoint => {
                json!({ "approved": given, "by": null, "reason": null, "timed_out": true })
            }
            BlockedType::Sensor => json!({ "timed_out": true }),
            BlockedType::Hitl => json!({ "answer": given, "by": null, "timed_out": true }),
        };
        let known = [("answer", given.clone()), ("payload", given), ("answered_by", Value::Null)];
        match self.outputs_of(state, &phase.outputs, nature, &known) {
            Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
            Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
        }
    }

    fn fulfil(&mut self, wait: &WaitRow) {
        if self.closed.insert(wait.id.clone()) {
            self.steps.push(Step::FulfilWait { wait: wait.id.clone() });
        }
    }

    /// Whether nothing else is to be decided now: a sensor has seen what it looks for and the phase is over, or it is looked for
    /// `no_longer` and what looks for it is still to end.
    fn sensed(
        &mut self,
        state: &mut State,
        place: usize,
        phase: &Phase,
        wanted: &Await,
        wait: &WaitRow,
        no_longer: bool,
    ) -> bool {
        let facts = self.facts;
        match &wanted.awaited {
            Awaited::Sensor(Sensor::Time { .. }) => {
                let at = wait
                    .question
                    .get("at")
                    .and_then(Value::as_str)
                    .and_then(|at| at.parse::<Timestamp>().ok());
                match at {
                    Some(at) if at > self.now => {
                        self.wake(at);
                        false
                    }
                    _ => {
                        self.fulfil(wait);
                        self.end_phase(
                            state,
                            place,
                            PhaseStatus::Completed,
                            json!({ "timed_out": false }),
                            None,
                        );
                        true
                    }
                }
            }
            Awaited::Sensor(Sensor::Command { run, every_seconds }) => {
                if let Some(open) = facts.open.iter().find(|open| open.task.phase == phase.name) {
                    let Some(main) = &open.main else { return false };
                    match outcome(main) {
                        Outcome::Alive if no_longer => {
                            self.alive += 1;
                            self.waiting.push(format!("phase {}: its sensor is being ended", phase.name));
                            self.stop(
                                main,
                                TerminationReason::Manual,
                                "nobody waits for what it looks for any more".to_owned(),
                            );
                            return true;
                        }
                        Outcome::Alive => {}
                        Outcome::NeedsPerson(..) | Outcome::Failed(..) if no_longer => {
                            self.end_attempt(open, AttemptEnd::Cancelled);
                        }
                        Outcome::Done(exit_code) => {
                            self.end_attempt(open, AttemptEnd::Completed { exit_code, outputs: json!({}) });
                            self.fulfil(wait);
                            let outputs = json!({ "timed_out": false });
                            self.end_phase(state, place, PhaseStatus::Completed, outputs, None);
                            return true;
                        }
                        Outcome::NeedsPerson(exit_code, _) | Outcome::Failed(exit_code, _, _) => {
                            let every = i64::try_from(*every_seconds).unwrap_or(60).max(1);
                            let at = plus_seconds(self.now, every);
                            self.end_attempt(open, AttemptEnd::NotYet { exit_code, at });
                        }
                    }
                    return false;
                }
                let Some(level) = facts.levels.get(&place) else { return false };
                if no_longer {
                    return false;
                }
                if let Some(task) = &level.failed {
                    self.withdraw(wait.id.clone());
                    let why = task.error.as_deref().unwrap_or("it failed");
                    self.fail(state, place, format!("its sensor: {why}"));
                    return true;
                }
                if let Some(task) = level.ready.first() {
                    let made = self.command_of(state, run).and_then(|command| {
                        self.with_care(state, &phase.care, until_it_succeeds(command, *every_seconds), None)
                    });
                    match made {
                        Ok(mut run) => {
                            run.timeout_seconds = None;
                            self.steps.push(Step::StartAttempt { position: place, task: task.clone(), run });
                        }
                        Err(error) => {
                            self.withdraw(wait.id.clone());
                            self.fail(state, place, format!("its command cannot be made: {error}"));
                            return true;
                        }
                    }
                } else if let Some(at) = level.retry_at {
                    self.wake(at);
                }
                false
            }
            _ => false,
        }
    }
}

/// One command for the whole wait, however often it looks.
fn until_it_succeeds(command: Vec<String>, every_seconds: u64) -> Vec<String> {
    let line = format!("until \"$@\"; do sleep {}; done", every_seconds.max(1));
    let shell = ["sh".to_owned(), "-c".to_owned(), line, "sensor".to_owned()];
    shell.into_iter().chain(command).collect()
}

/// For people; as it was written.
fn shown(run: &Command) -> String {
    let text = match run {
        Command::Line(line) => line.clone(),
        Command::Vector(parts) => parts.join(" "),
    };
    text.chars().take(200).collect()
}
