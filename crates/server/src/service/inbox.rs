//! The inbox: everything that waits for a person, and their answers. An answer is written once, while its wait is open;
//! the session that asked takes it from there.

use std::collections::{BTreeSet, HashSet};

use futures::future::join_all;
use parhelia_core::Timestamp;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::{SessionId, TaskId, WaitId};
use parhelia_core::job::Job;
use parhelia_core::session::answer::{self, Asked, Reply, Unfit};
use parhelia_core::session::api::{
    AnswerReport, AnswerWaits, Inbox, InboxItem, Refused, Verdict, WaitingJob,
};
use parhelia_core::session::{SessionStatus, WaitRow, WaitStatus, explain};
use parhelia_core::time::{plus_seconds, seconds_between};
use parhelia_store::{InboxRow, StoreError};
use serde_json::json;

use super::{Caller, Service, ServiceError, validate};

/// How many are listed at once.
const LISTED: i64 = 500;
/// A job that ended with a question is asked about for this long.
const RECENT_SECONDS: i64 = 86_400;
const MOST_AT_ONCE: usize = 1000;
const MAX_ANSWER_BYTES: usize = 256 * 1024;
const MAX_REASON_BYTES: usize = 2000;

impl Service {
    pub async fn inbox(&self) -> Result<Inbox, ServiceError> {
        let now = self.clock.now();
        let mut found = self.store.inbox(LISTED + 1).await?;
        let more = found.len() as i64 > LISTED;
        found.truncate(LISTED as usize);
        let waits = self.store.wait_counts().await?;
        let jobs = self.store.inbox_jobs(plus_seconds(now, -RECENT_SECONDS), LISTED).await?;
        let mut items = Vec::with_capacity(found.len());
        let mut asked: HashSet<TaskId> = HashSet::new();
        for row in found {
            asked.extend(row.wait.task_id.clone());
            items.push(item(row, now));
        }
        let mut waiting = Vec::new();
        for (job, session, task) in jobs {
            // Its session asks for it.
            if !task.is_some_and(|task| asked.contains(&task)) {
                waiting.push(waiting_job(job, session, now));
            }
        }
        Ok(Inbox {
            items,
            jobs: waiting,
            more,
            blocked_elsewhere: waits
                .iter()
                .filter(|(kind, _)| !kind.is_for_a_person())
                .map(|(_, count)| count)
                .sum(),
        })
    }

    /// One answer to one or several waits. Each is answered or refused by itself.
    pub async fn answer_waits(
        &self,
        request: AnswerWaits,
        caller: &Caller,
    ) -> Result<AnswerReport, ServiceError> {
        let AnswerWaits { ids, verdict, answer, text, choices, reason } = request;
        if ids.is_empty() || ids.len() > MOST_AT_ONCE {
            return Err(ServiceError::invalid(
                format!("{} waits cannot be answered at once", ids.len()),
                format!("give from 1 to {MOST_AT_ONCE} ids; 'parhelia inbox' lists them"),
            ));
        }
        validate::size("the answer", &json!([answer, text, choices]), MAX_ANSWER_BYTES)?;
        if let Some(reason) = &reason {
            validate::words("the reason", reason, MAX_REASON_BYTES)?;
        }
        let reply = answer::reply(verdict, answer.as_ref(), text.as_deref(), choices.as_deref())
            .map_err(|Unfit { message, fits }| ServiceError::invalid(message, fits))?;
        let each = ids.iter().map(|given| self.answer_one(given, verdict, &reply, reason.as_deref(), caller));
        let mut report = AnswerReport { answered: Vec::new(), refused: Vec::new(), notes: Vec::new() };
        // Together: they share a commit.
        for (given, outcome) in ids.iter().zip(join_all(each).await) {
            match outcome {
                Ok(wait) => report.answered.push(wait),
                Err(reason) => report.refused.push(Refused { id: given.chars().take(64).collect(), reason }),
            }
        }
        report.notes = self.left_by_all(&report.answered).await;
        Ok(report)
    }

    /// What is answered, and still nobody goes on with.
    async fn left_by_all(&self, answered: &[WaitRow]) -> Vec<String> {
        let sessions: BTreeSet<&SessionId> = answered.iter().map(|wait| &wait.session_id).collect();
        let mut notes = Vec::new();
        for id in sessions {
            // An answer that was taken stays taken, whether or not this can be read.
            let row = self.store.session(id).await.ok().flatten();
            if row.is_some_and(|row| row.status == SessionStatus::Orphaned) {
                notes.push(format!(
                    "session {id} is orphaned: the answer is kept, and 'parhelia sessions resume {id}' goes on with it"
                ));
            }
        }
        notes
    }

    async fn answer_one(
        &self,
        given: &str,
        verdict: Verdict,
        reply: &Reply,
        reason: Option<&str>,
        caller: &Caller,
    ) -> Result<WaitRow, String> {
        let wait = self.wait_meant(given).await?;
        if wait.status != WaitStatus::Open {
            return Err(settled(&wait));
        }
        let value = Asked::of(&wait).read(reply).map_err(|unfit| unfit.told())?;
        let now = self.clock.now();
        let done = match verdict {
            Verdict::Answer => "answered",
            Verdict::Approve => "approved",
            Verdict::Deny => "denied",
        };
        let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let message = format!("{} was {done} by {}{because}", wait.phase, caller.subject);
        // The answer itself may be meant for the session alone.
        let event = NewEvent::new(EventType::WaitAnswered, Source::User, message)
            .session(&wait.session_id)
            .task(wait.task_id.as_ref().map(|id| id.as_str()))
            .details(json!({
                "by": caller.subject,
                "wait_id": wait.id,
                "phase": wait.phase,
                "type": wait.wait_type,
                "verdict": verdict,
                "reason": reason,
            }));
        match self.store.answer_wait(&wait.id, &value, &caller.subject, reason, event, now).await {
            Ok(()) => Ok(WaitRow {
                status: WaitStatus::Answered,
                answer: Some(value),
                answered_by: Some(caller.subject.clone()),
                answer_reason: reason.map(str::to_owned),
                answered_at: Some(now),
                ..wait
            }),
            // Somebody was faster; who it was is in the row by now.
            Err(StoreError::Conflict { .. }) => {
                let wait = self.store.wait(&wait.id).await.ok().flatten();
                Err(wait.map_or_else(|| "it is no longer open".to_owned(), |wait| settled(&wait)))
            }
            Err(other) => Err(ServiceError::from(other).to_string()),
        }
    }

    /// By the id of a wait or a unique prefix of it; a session stands for its only open wait.
    async fn wait_meant(&self, given: &str) -> Result<WaitRow, String> {
        let failed = |error: StoreError| ServiceError::from(error).to_string();
        let plain = (4..=64).contains(&given.len())
            && given.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if plain {
            let found = self.store.resolve_wait(given).await.map_err(failed)?;
            let exact = found.iter().find(|id| id.as_str() == given).cloned();
            match (exact, found.as_slice()) {
                (Some(id), _) => return self.the_wait(&id).await,
                (None, [only]) => return self.the_wait(only).await,
                (None, []) => {}
                (None, several) => return Err(format!("it is not unique: it could be {}", listed(several))),
            }
        }
        if given.starts_with(WaitId::PREFIX) {
            return Err("there is no such wait; 'parhelia inbox' lists what waits for a person".to_owned());
        }
        let session = match self.resolve_session(given).await {
            Ok(session) => session,
            Err(ServiceError::NotFound { .. }) => return Err(self.not_a_wait(given).await),
            Err(other) => return Err(other.to_string()),
        };
        let waits = self.store.waits_of(&session, 100).await.map_err(failed)?;
        let mut open: Vec<WaitRow> = waits
            .into_iter()
            .filter(|wait| wait.status == WaitStatus::Open && wait.wait_type.is_for_a_person())
            .collect();
        match (open.pop(), open.is_empty()) {
            (Some(only), true) => Ok(only),
            (None, _) => Err(format!("nothing of session {session} waits for a person")),
            (Some(last), false) => {
                let ids: Vec<WaitId> = open.into_iter().chain([last]).map(|wait| wait.id).collect();
                Err(format!("session {session} asks more than one thing; answer one of {}", listed(&ids)))
            }
        }
    }

    async fn the_wait(&self, id: &WaitId) -> Result<WaitRow, String> {
        match self.store.wait(id).await {
            Ok(Some(wait)) => Ok(wait),
            Ok(None) => Err("there is no such wait".to_owned()),
            Err(error) => Err(ServiceError::from(error).to_string()),
        }
    }

    /// Jobs are in the inbox too, and are answered elsewhere.
    async fn not_a_wait(&self, given: &str) -> String {
        match self.job(given).await {
            Ok(view) => format!("it is a job: {}", job_command(&view.job)),
            Err(_) => {
                "there is no such wait or session; 'parhelia inbox' lists what waits for a person".to_owned()
            }
        }
    }
}

fn listed(ids: &[WaitId]) -> String {
    ids.iter().map(WaitId::as_str).collect::<Vec<_>>().join(", ")
}

/// Why it can no longer be answered.
fn settled(wait: &WaitRow) -> String {
    let at = wait.answered_at.map_or_else(String::new, |at| format!(" at {at}"));
    match wait.status {
        WaitStatus::Answered => match (&wait.answered_by, &wait.signal_id) {
            (Some(by), _) => format!("{by} has answered it already{at}; the first answer holds"),
            (None, Some(signal)) => format!("the signal {signal} has ended it{at}"),
            (None, None) => format!("it was answered already{at}"),
        },
        WaitStatus::TimedOut => "nobody answered in time, and its session went on".to_owned(),
        WaitStatus::Withdrawn => "its session needs no answer any more".to_owned(),
        WaitStatus::Open => "it was changed at the same moment; try again".to_owned(),
    }
}

fn item(row: InboxRow, now: Timestamp) -> InboxItem {
    let InboxRow { wait, cascade_id, session_name, task_key } = row;
    InboxItem {
        fits: Asked::of(&wait).fits(),
        command: explain::command(&wait).unwrap_or_default(),
        waiting: seconds_between(wait.since, now).max(0.0) as i64,
        id: wait.id,
        kind: wait.wait_type,
        session_id: wait.session_id,
        session_name,
        cascade_id,
        phase: wait.phase,
        task: task_key,
        description: wait.description,
        question: wait.question,
        since: wait.since,
        deadline: wait.deadline,
        on_timeout: wait.on_timeout,
    }
}

/// How a job that needs a person gets one.
fn job_command(job: &Job) -> String {
    if job.status.is_over() {
        format!("parhelia jobs resume {} -- 'TEXT'", job.id)
    } else {
        format!("parhelia jobs attach {}", job.id)
    }
}

fn waiting_job(job: Job, session_id: Option<SessionId>, now: Timestamp) -> WaitingJob {
    WaitingJob {
        command: job_command(&job),
        waiting: seconds_between(job.waiting_since.unwrap_or(job.status_at), now).max(0.0) as i64,
        job_id: job.id,
        container_id: job.container_id,
        name: job.name,
        engine: job.engine,
        session_id,
        reason: job.waiting_reason,
        since: job.waiting_since,
    }
}
