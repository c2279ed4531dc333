//! The tasks of a phase: what became of those that run, which are tried again, and which come next.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AttemptEnd, CANCEL_GRACE_SECONDS, Effect, Facts, Level, NewWait, OpenTask, Planner, Resting, Run, Seen,
    State, Stdout, Step, Surroundings, is_failing,
};
use crate::cascade::template::{self, TemplateError};
use crate::cascade::{Agent, Care, Cascade, Command, Lifetime, OnTimeout, Phase, TaskWork, Work};
use crate::ids::{ContainerId, TaskId, WaitId};
use crate::session::{BlockedType, FailureReason, PhaseStatus, TaskRow, WaitRow, WaitStatus};
use crate::state::{Desired, TerminationReason};
use crate::time::plus_seconds;

/// How often what a task runs in may die under it.
pub const MOST_CRASHES: i64 = 3;
/// A supervisor ends its own job in time; where there is none, the session does, this much later.
const TIMEOUT_SLACK_SECONDS: i64 = 5;
/// Workers that a session may start for each that it may have at once.
const WORKERS_FOR_EACH: usize = 3;
/// The largest value that a command may give.
pub const LARGEST_OUTPUT_BYTES: usize = 1 << 20;

/// How what a task ran in looks now.
pub(super) enum Outcome {
    Alive,
    Done(Option<i64>),
    NeedsPerson(Option<i64>, String),
    Failed(Option<i64>, FailureReason, String),
}

pub(super) fn outcome(seen: &Seen) -> Outcome {
    use TerminationReason::*;
    if !seen.is_gone() {
        return Outcome::Alive;
    }
    let code = seen.exit_code;
    if let Some(reason) = seen.waiting.as_ref().filter(|_| seen.resumable) {
        return Outcome::NeedsPerson(code, reason.clone());
    }
    let detail = |text: &str| match &seen.detail {
        // Its job may have said the same.
        Some(detail) if detail.starts_with(text) => detail.clone(),
        Some(detail) => format!("{text}: {detail}"),
        None => text.to_owned(),
    };
    let (reason, message) = match seen.reason {
        Some(Completed) => return Outcome::Done(code),
        None if code == Some(0) => return Outcome::Done(code),
        Some(Timeout) => (FailureReason::Timeout, "it took longer than its timeout".to_owned()),
        Some(IdleTimeout) => (FailureReason::Timeout, "it did nothing for too long".to_owned()),
        Some(Manual) => (FailureReason::Cancelled, "somebody ended it".to_owned()),
        Some(StartFailed | CreateFailed) => (FailureReason::TaskFailed, detail("it could not be started")),
        Some(Failed) | None => match code {
            Some(code) => (FailureReason::TaskFailed, format!("it exited with code {code}")),
            None => (FailureReason::WorkerCrash, "it is gone, and nobody knows its exit code".to_owned()),
        },
        Some(Crash) => (FailureReason::TaskFailed, detail("a signal ended it")),
        Some(other) => (FailureReason::WorkerCrash, detail(&format!("what it ran in is gone ({other})"))),
    };
    Outcome::Failed(code, reason, message)
}

impl Planner<'_> {
    pub(super) fn advance_level(&mut self, state: &mut State, place: usize, phase: &Phase) {
        let facts = self.facts;
        let nothing = Level::default();
        let level = facts.levels.get(&place).unwrap_or(&nothing);
        let open: Vec<&OpenTask> = facts.open.iter().filter(|open| open.task.phase == phase.name).collect();
        let (mut alive, mut failed) =
            (0, level.failed.as_ref().map(|task| failure_of(&task.key, task.error.as_deref())));
        let (mut unsettled, mut asking) = (false, false);
        for task in &open {
            match self.look_at(state, place, phase, task) {
                Look::Alive => alive += 1,
                Look::Asks => asking = true,
                Look::Unsettled => unsettled = true,
                Look::Failed(message) => failed = failed.or(Some(failure_of(&task.task.key, Some(&message)))),
                Look::Over => {}
            }
        }
        let failing = failed.is_some() || is_failing(state);
        if !failing {
            alive += self.answered(state, place, phase, level);
        }
        let most = self.cascade.workers.count.max(1) as usize;
        let running = facts.open.len() + self.started;
        let mut left = level.ready.len();
        let claimed = self.cascade.workers.lifetime == Lifetime::Session;
        // What is claimed needs no room here: it is only looked at, and what cannot be made is nobody's to claim.
        let room = if claimed { level.ready.len() } else { most.saturating_sub(running) };
        for task in level.ready.iter().take(room).filter(|_| !failing) {
            match self.run_of(state, phase, &task.key) {
                Ok(_) if claimed => {}
                Ok(run) => {
                    left -= 1;
                    alive += 1;
                    self.start(place, task, run);
                }
                Err(error) => {
                    left -= 1;
                    let message = self.cannot_be_made(task, &error);
                    failed = failed.or(Some(failure_of(&task.key, Some(&message))));
                }
            }
        }
        if claimed && !failing && failed.is_none() {
            self.wanted_workers += (open.len() + left).min(most);
            if left > 0 {
                self.waiting.push(format!("phase {}: {left} tasks wait for a worker", phase.name));
            }
        }
        if let Some(at) = level.retry_at.filter(|_| !failing) {
            self.wake(at);
            self.waiting.push(format!("phase {}: a task is tried again at {at}", phase.name));
            left += 1;
        }
        self.alive += alive;
        if alive > 0 {
            self.waiting.push(format!("phase {}: {alive} of its tasks run", phase.name));
        }
        if alive > 0 || asking || unsettled || (left > 0 && !failing) {
            // What comes again is not a wait for somebody outside.
            self.alive += usize::from(alive == 0 && (left > 0 || unsettled));
            return;
        }
        if let Some(message) = failed {
            return self.fail(state, place, message);
        }
        if !level.resting.is_empty() || !open.is_empty() {
            // What has just ended is counted with the next look.
            self.again |= !open.is_empty();
            return;
        }
        let Some(outputs) = &level.outputs else { return };
        let gathered = match &phase.work {
            Work::Tasks(_) => Value::Object(outputs.clone().into_iter().collect()),
            _ => outputs.values().next().cloned().unwrap_or_else(|| json!({})),
        };
        let made = match &phase.work {
            // A level's own outputs see those of its tasks.
            Work::Tasks(_) => {
                self.outputs_of(state, &phase.outputs, gathered.clone(), &[("tasks", gathered)])
            }
            _ => Ok(gathered),
        };
        match made {
            Ok(outputs) => self.end_phase(state, place, PhaseStatus::Completed, outputs, None),
            Err(error) => self.fail(state, place, format!("an output cannot be made: {error}")),
        }
    }

    fn start(&mut self, position: usize, task: &TaskRow, run: Run) {
        self.started += 1;
        self.steps.push(Step::StartAttempt { position, task: task.clone(), run });
    }

    /// Fails a task that cannot even be tried, and gives why.
    fn cannot_be_made(&mut self, task: &TaskRow, error: &TemplateError) -> String {
        let message = format!("its command cannot be made: {error}");
        self.steps.push(Step::FailTask { task: task.clone(), message: message.clone() });
        message
    }

    /// One task that runs.
    pub(super) fn look_at(&mut self, state: &State, place: usize, phase: &Phase, open: &OpenTask) -> Look {
        let Some((_, care, outputs)) = work_of(phase, &open.task.key) else { return Look::Over };
        let Some(main) = &open.main else {
            // A worker has it.
            return Look::Alive;
        };
        if open.attempt.worker_id.is_some() {
            if !main.is_gone() {
                return Look::Alive;
            }
            let message = "the worker that had it is gone".to_owned();
            return self.failed(state, open, care, None, FailureReason::WorkerCrash, message);
        }
        let seen = match outcome(main) {
            // It was ended for the answer that is there, and goes on with it.
            Outcome::Failed(code, _, message) if self.is_answered(&open.task.id, &main.container) => {
                Outcome::NeedsPerson(code, message)
            }
            seen => seen,
        };
        match seen {
            Outcome::Alive => self.watch(state, phase, open, main, care),
            Outcome::NeedsPerson(exit_code, message) => {
                self.end_attempt(open, AttemptEnd::Waiting { exit_code, message: message.clone() });
                if self.wait_of(&open.task.id).is_none() && !self.is_answered(&open.task.id, &main.container)
                {
                    self.open_wait(place, Some(open.task.id.clone()), question_of_agent(&message));
                }
                Look::Unsettled
            }
            Outcome::Failed(code, reason, message) => self.failed(state, open, care, code, reason, message),
            Outcome::Done(exit_code) => {
                if let Some(verify) = &care.verify {
                    match open.verify.as_ref().map(outcome) {
                        None => return self.verify(state, place, open, verify, care),
                        Some(Outcome::Alive) => {
                            self.limit(open, open.verify.as_ref(), care);
                            return Look::Alive;
                        }
                        Some(Outcome::Done(_)) => {}
                        Some(Outcome::NeedsPerson(code, message) | Outcome::Failed(code, _, message)) => {
                            let reason = FailureReason::VerificationFailed;
                            let message = format!("its verification failed: {message}");
                            return self.failed(state, open, care, code, reason, message);
                        }
                    }
                }
                self.complete_with(state, open, care, outputs, Some(main), exit_code)
            }
        }
    }

    pub(super) fn complete_with(
        &mut self,
        state: &State,
        open: &OpenTask,
        care: &Care,
        declared: &BTreeMap<String, Value>,
        main: Option<&Seen>,
        exit_code: Option<i64>,
    ) -> Look {
        let outputs = if declared.is_empty() {
            json!({})
        } else {
            let text = match self.facts.stdout.get(&open.task.id) {
                None => {
                    let place = main.map(|main| (open.task.id.clone(), main.container.clone()));
                    self.wants_output.extend(place);
                    return Look::Unsettled;
                }
                Some(Stdout::Text(text)) => text,
                Some(Stdout::TooLarge) => {
                    let message = format!(
                        "it wrote more than a value can have ({LARGEST_OUTPUT_BYTES} bytes): write large results to a file and give its name"
                    );
                    return self.failed(state, open, care, exit_code, FailureReason::TaskFailed, message);
                }
                Some(Stdout::Unreadable(why)) => {
                    let message = format!("its output cannot be read: {why}");
                    return self.failed(state, open, care, exit_code, FailureReason::TaskFailed, message);
                }
            };
            let mut known = vec![("stdout", json!(text)), ("exit_code", json!(exit_code))];
            if let Ok(parsed) = serde_json::from_str::<Value>(text.trim()) {
                known.push(("json", parsed));
            }
            match self.outputs_of(state, declared, json!({}), &known) {
                Ok(outputs) => outputs,
                Err(error) => {
                    let message = format!("an output cannot be made: {error}");
                    return self.failed(state, open, care, exit_code, FailureReason::TaskFailed, message);
                }
            }
        };
        self.withdraw_of(&open.task.id);
        self.end_attempt(open, AttemptEnd::Completed { exit_code, outputs });
        Look::Over
    }

    pub(super) fn end_attempt(&mut self, open: &OpenTask, end: AttemptEnd) {
        self.again = true;
        self.steps.push(Step::EndAttempt { task: open.task.clone(), attempt: open.attempt.attempt, end });
    }

    pub(super) fn failed(
        &mut self,
        state: &State,
        open: &OpenTask,
        care: &Care,
        exit_code: Option<i64>,
        reason: FailureReason,
        message: String,
    ) -> Look {
        self.withdraw_of(&open.task.id);
        let crashed = reason == FailureReason::WorkerCrash;
        let again = match reason {
            // What one asked for with `exec` is run once, whatever becomes of it.
            _ if self.surroundings.exec => false,
            FailureReason::WorkerCrash => open.task.crash_count < MOST_CRASHES,
            // Somebody ended it on purpose.
            FailureReason::Cancelled => false,
            _ => open.task.retry_count < i64::from(care.retry.max),
        };
        if again && !is_failing(state) {
            let count = if crashed { open.task.crash_count } else { open.task.retry_count } + 1;
            let pause = if crashed { count as f64 } else { care.retry.pause_seconds(count as u32) };
            let at = plus_millis(self.now, (pause * 1000.0) as i64);
            self.end_attempt(open, AttemptEnd::Retried { exit_code, reason, message, at });
            return Look::Unsettled;
        }
        self.end_attempt(open, AttemptEnd::Failed { exit_code, reason, message: message.clone() });
        Look::Failed(message)
    }

    pub(super) fn verify(
        &mut self,
        state: &State,
        place: usize,
        open: &OpenTask,
        verify: &Command,
        care: &Care,
    ) -> Look {
        let made =
            self.command_of(state, verify).and_then(|command| self.with_care(state, care, command, None));
        match made {
            Ok(run) => {
                self.steps.push(Step::StartVerify {
                    position: place,
                    task: open.task.clone(),
                    attempt: open.attempt.attempt,
                    run,
                });
                Look::Alive
            }
            Err(error) => {
                let message = format!("its verification cannot be made: {error}");
                self.failed(state, open, care, None, FailureReason::VerificationFailed, message)
            }
        }
    }

    /// A task that lives: its timeout, and whether its agent asks for somebody. One that sits there and asks is ended
    /// when its answer has come: it goes on with that as one does that had ended.
    fn watch(&mut self, state: &State, phase: &Phase, open: &OpenTask, main: &Seen, care: &Care) -> Look {
        use TerminationReason::Manual;
        self.limit(open, Some(main), care);
        if self.is_answered(&open.task.id, &main.container) {
            self.stop(main, Manual, "its agent goes on with the answer".to_owned());
            return Look::Alive;
        }
        match &main.waiting {
            Some(_) if is_failing(state) => {
                self.stop(main, Manual, "its session fails, and nobody is asked any more".to_owned());
                Look::Alive
            }
            Some(reason) => {
                let position = self.cascade.phases.iter().position(|p| p.name == phase.name);
                if let Some(position) = position.filter(|_| self.wait_of(&open.task.id).is_none()) {
                    self.open_wait(position, Some(open.task.id.clone()), question_of_agent(reason));
                }
                self.waiting.push(format!("task {}: {reason}", open.task.key));
                Look::Asks
            }
            None => {
                self.withdraw_of(&open.task.id);
                Look::Alive
            }
        }
    }

    /// Ends what takes longer than its timeout; a supervisor of ours does so itself, a little earlier.
    fn limit(&mut self, open: &OpenTask, seen: Option<&Seen>, care: &Care) {
        let (Some(seconds), Some(seen)) = (care.timeout_seconds, seen) else { return };
        let began = seen.started_at.unwrap_or(open.attempt.started_at);
        let allowed = i64::try_from(seconds).unwrap_or(i64::MAX / 4);
        let due = plus_seconds(began, allowed.saturating_add(TIMEOUT_SLACK_SECONDS));
        if due <= self.now {
            self.stop(seen, TerminationReason::Timeout, format!("its timeout of {seconds}s is over"));
        } else {
            self.wake(due);
        }
    }

    pub(super) fn stop(&mut self, seen: &Seen, why: TerminationReason, reason: String) {
        if seen.desired == Desired::Running {
            self.effects.push(Effect::Stop {
                container: seen.container.clone(),
                grace_seconds: CANCEL_GRACE_SECONDS,
                why,
                reason,
                by: "its session".to_owned(),
            });
        }
    }

    pub(super) fn wait_of(&self, task: &TaskId) -> Option<&WaitRow> {
        self.facts.waits.iter().find(|wait| {
            wait.task_id.as_ref() == Some(task)
                && wait.status == WaitStatus::Open
                && !self.closed.contains(&wait.id)
        })
    }

    /// Somebody was faster than its end: the answer to what this attempt asks is there, and it is not asked again.
    fn is_answered(&self, task: &TaskId, container: &ContainerId) -> bool {
        self.facts.waits.iter().any(|wait| {
            wait.task_id.as_ref() == Some(task)
                && matches!(wait.status, WaitStatus::Answered | WaitStatus::TimedOut)
                && wait.question.get("container").and_then(Value::as_str) == Some(container.as_str())
        })
    }

    pub(super) fn withdraw(&mut self, id: WaitId) {
        if self.closed.insert(id.clone()) {
            self.steps.push(Step::WithdrawWait { wait: id });
        }
    }

    pub(super) fn withdraw_of(&mut self, task: &TaskId) {
        if let Some(id) = self.wait_of(task).map(|wait| wait.id.clone()) {
            self.withdraw(id);
        }
    }

    /// As many workers as have something to do; should they keep ending, the phases that wait for one fail.
    pub(super) fn hire(&mut self, state: &mut State) {
        if self.cascade.workers.lifetime != Lifetime::Session || self.wanted_workers == 0 || is_failing(state)
        {
            return;
        }
        let most = self.cascade.workers.count.max(1) as usize;
        let living = self.facts.workers.iter().filter(|worker| !worker.is_gone()).count();
        let ever = self.facts.workers.len();
        let wanted = self.wanted_workers.min(most).saturating_sub(living);
        let allowed = (most * WORKERS_FOR_EACH).saturating_sub(ever);
        for _ in 0..wanted.min(allowed) {
            self.steps.push(Step::StartWorker);
        }
        if living == 0 && allowed == 0 {
            let waiting: Vec<usize> = state
                .phases
                .iter()
                .filter(|(_, row)| row.status == PhaseStatus::Running)
                .map(|(place, _)| *place)
                .filter(|place| self.cascade.works(*place))
                .collect();
            for place in waiting {
                let message = format!(
                    "{ever} workers have ended before the work was done, and no more are started: 'parhelia containers' shows how they ended"
                );
                self.fail(state, place, message);
            }
        }
    }

    /// Agents that rest and have their answer now go on with it. Gives how many.
    pub(super) fn answered(&mut self, state: &State, place: usize, phase: &Phase, level: &Level) -> usize {
        let facts = self.facts;
        let most = self.cascade.workers.count.max(1) as usize;
        let mut started = 0;
        for Resting { task, container } in &level.resting {
            // What is open decides; else the answer to what it asked last, whatever the dates say.
            let mut its = facts.waits.iter().filter(|wait| wait.task_id.as_ref() == Some(&task.id));
            let last = |wait: &&WaitRow| {
                wait.status != WaitStatus::Withdrawn
                    && wait.question.get("container").and_then(Value::as_str)
                        == container.as_ref().map(ContainerId::as_str)
            };
            let open = its.clone().find(|wait| wait.status == WaitStatus::Open);
            let Some(wait) = open.or_else(|| its.find(last)) else { continue };
            match wait.status {
                WaitStatus::Open => {
                    self.waiting.push(format!("task {}: {}", task.key, wait.description));
                }
                WaitStatus::Answered | WaitStatus::TimedOut if facts.open.len() + self.started >= most => {
                    self.waiting.push(format!("task {}: others have its place", task.key));
                }
                WaitStatus::Answered | WaitStatus::TimedOut => {
                    let answer = match &wait.answer {
                        Some(Value::String(text)) => text.clone(),
                        Some(other) => other.to_string(),
                        None => String::new(),
                    };
                    match self.run_of(state, phase, &task.key) {
                        Ok(mut run) => {
                            let before = wait.question.get("container").and_then(Value::as_str);
                            run.resume = before
                                .and_then(|id| ContainerId::parse(id).ok())
                                .map(|container| (container, answer));
                            started += 1;
                            self.start(place, task, run);
                        }
                        Err(error) => drop(self.cannot_be_made(task, &error)),
                    }
                }
                WaitStatus::Withdrawn => {}
            }
        }
        started
    }

    pub(super) fn command_of(&self, state: &State, command: &Command) -> Result<Vec<String>, TemplateError> {
        match command {
            Command::Line(line) => Ok(vec!["sh".to_owned(), "-c".to_owned(), line.clone()]),
            Command::Vector(parts) if self.surroundings.exec => Ok(parts.clone()),
            Command::Vector(parts) => parts.iter().map(|part| template::text(part, &state.scope)).collect(),
        }
    }

    pub(super) fn run_of(&self, state: &State, phase: &Phase, key: &str) -> Result<Run, TemplateError> {
        let Some((work, care, _)) = work_of(phase, key) else {
            let reason = format!("the cascade has no task '{key}'");
            return Err(TemplateError { shown: phase.name.clone(), reason });
        };
        let (command, engine) = match work {
            Doing::Run(command) => (self.command_of(state, command)?, None),
            Doing::Agent(agent) => {
                let mut command = vec![template::text(&agent.prompt, &state.scope)?];
                for argument in &agent.arguments {
                    command.push(template::text(argument, &state.scope)?);
                }
                (command, Some(agent.engine.clone()))
            }
        };
        self.with_care(state, care, command, engine)
    }

    pub(super) fn with_care(
        &self,
        state: &State,
        care: &Care,
        command: Vec<String>,
        engine: Option<String>,
    ) -> Result<Run, TemplateError> {
        let mut env = self.surroundings.env.clone();
        for (name, wanted) in &care.env {
            env.insert(name.clone(), template::text(wanted, &state.scope)?);
        }
        let workdir = match &care.workdir {
            Some(wanted) => {
                let wanted = template::text(wanted, &state.scope)?;
                // Beside where the session was started; what is absolute stays so.
                Some(match &self.surroundings.workdir {
                    Some(base) => Path::new(base).join(&wanted).to_string_lossy().into_owned(),
                    None => wanted,
                })
            }
            None => self.surroundings.workdir.clone(),
        };
        Ok(Run { command, engine, env, workdir, timeout_seconds: care.timeout_seconds, resume: None })
    }
}

/// What a worker is given to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub run: Run,
    pub verify: Option<Vec<String>>,
}

impl State {
    /// The command of a task, for the worker that asks for one.
    pub fn claim(
        &self,
        cascade: &Cascade,
        surroundings: &Surroundings,
        task: &TaskRow,
        now: Timestamp,
    ) -> Result<Claim, TemplateError> {
        let facts = Facts::default();
        let planner = Planner::new(cascade, surroundings, &facts, now);
        let found = cascade.phases.iter().find(|phase| phase.name == task.phase);
        let phase = found.ok_or_else(|| TemplateError {
            shown: task.phase.clone(),
            reason: "the cascade has no such phase".to_owned(),
        })?;
        let run = planner.run_of(self, phase, &task.key)?;
        let verify = work_of(phase, &task.key).and_then(|(_, care, _)| care.verify.as_ref());
        let verify = verify.map(|command| planner.command_of(self, command)).transpose()?;
        Ok(Claim { run, verify })
    }

    /// What a worker's report makes of a task: as if the session had seen it end itself.
    pub fn judge(
        &self,
        cascade: &Cascade,
        surroundings: &Surroundings,
        open: &OpenTask,
        report: Report,
        now: Timestamp,
    ) -> AttemptEnd {
        let stdout = BTreeMap::from([(open.task.id.clone(), report.output)]);
        let facts = Facts { stdout, ..Facts::default() };
        let mut planner = Planner::new(cascade, surroundings, &facts, now);
        let found = cascade.phases.iter().find(|phase| phase.name == open.task.phase);
        let Some((_, care, outputs)) = found.and_then(|phase| work_of(phase, &open.task.key)) else {
            return AttemptEnd::Cancelled;
        };
        let code = report.exit_code;
        let failure = match (code, report.verify_exit_code) {
            _ if report.timed_out => {
                Some((FailureReason::Timeout, "it took longer than its timeout".to_owned()))
            }
            (Some(0), Some(verdict)) if verdict != 0 => {
                let message = format!("its verification failed: it exited with code {verdict}");
                Some((FailureReason::VerificationFailed, message))
            }
            (Some(0), None) if care.verify.is_some() => {
                Some((FailureReason::VerificationFailed, "it was not verified".to_owned()))
            }
            (Some(0), _) => None,
            (Some(code), _) => Some((FailureReason::TaskFailed, format!("it exited with code {code}"))),
            (None, _) => {
                Some((FailureReason::TaskFailed, "a signal ended it, or it could not be started".to_owned()))
            }
        };
        match failure {
            Some((reason, message)) => drop(planner.failed(self, open, care, code, reason, message)),
            None => drop(planner.complete_with(self, open, care, outputs, None, code)),
        }
        planner
            .steps
            .into_iter()
            .find_map(|step| match step {
                Step::EndAttempt { end, .. } => Some(end),
                _ => None,
            })
            .unwrap_or(AttemptEnd::Cancelled)
    }
}

/// What a worker says of a task that it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub exit_code: Option<i64>,
    pub verify_exit_code: Option<i64>,
    pub timed_out: bool,
    pub output: Stdout,
}

pub(super) enum Look {
    Alive,
    /// It lives, and does nothing until somebody has answered it.
    Asks,
    /// Its attempt is over, and it is not.
    Unsettled,
    Failed(String),
    Over,
}

enum Doing<'a> {
    Run(&'a Command),
    Agent(&'a Agent),
}

fn work_of<'a>(phase: &'a Phase, key: &str) -> Option<(Doing<'a>, &'a Care, &'a BTreeMap<String, Value>)> {
    match &phase.work {
        Work::Run(command) => Some((Doing::Run(command), &phase.care, &phase.outputs)),
        Work::Agent(agent) => Some((Doing::Agent(agent), &phase.care, &phase.outputs)),
        Work::Tasks(tasks) => {
            let task = tasks.iter().find(|task| task.id == key)?;
            let doing = match &task.work {
                TaskWork::Run(command) => Doing::Run(command),
                TaskWork::Agent(agent) => Doing::Agent(agent),
            };
            Some((doing, &task.care, &task.outputs))
        }
        _ => None,
    }
}

fn failure_of(key: &str, error: Option<&str>) -> String {
    format!("task {key}: {}", error.unwrap_or("it failed"))
}

fn question_of_agent(reason: &str) -> NewWait {
    NewWait {
        wait_type: BlockedType::Hitl,
        wait_on: "agent".to_owned(),
        description: reason.to_owned(),
        question: json!({ "kind": "text", "question": reason }),
        on_timeout: OnTimeout::Fail,
        default_value: None,
        deadline: None,
    }
}

fn plus_millis(at: Timestamp, millis: i64) -> Timestamp {
    at.checked_add(jiff::SignedDuration::from_millis(millis)).unwrap_or(at)
}
