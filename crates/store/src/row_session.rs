//! From cells to the rows of sessions. The order of columns is that of the `SELECT`s in `sql/session*.sql`.

use parhelia_core::job::{JobActivity, JobStatus};
use parhelia_core::session::plan::{OpenTask, Seen};
use parhelia_core::session::{AttemptRow, CheckpointRow, PhaseRow, Session, SignalRow, TaskRow, WaitRow};

use crate::error::Result;
use crate::row::Columns;
use crate::verbs::{ChildRow, SessionValues};
use crate::verbs::{InboxRow, ShownSession};

pub(crate) fn session(c: &mut Columns<'_>) -> Result<Session> {
    Ok(Session {
        session_id: c.own()?,
        cascade_id: c.text()?,
        parent_session_id: c.own_opt()?,
        parent_phase: c.text_opt()?,
        name: c.text_opt()?,
        status: c.word()?,
        current_phase: c.text_opt()?,
        depth: c.int()?,
        blocked_type: c.word_opt()?,
        blocked_on: c.text_opt()?,
        blocked_description: c.text_opt()?,
        blocked_since: c.time_opt()?,
        blocked_timeout_at: c.time_opt()?,
        heartbeat_at: c.time()?,
        heartbeat_lease_seconds: c.int()?,
        cancel_requested: c.flag()?,
        cancel_reason: c.text_opt()?,
        cancel_requested_at: c.time_opt()?,
        cancel_requested_by: c.text_opt()?,
        cancel_force: c.flag()?,
        cancel_grace_seconds: c.int_opt()?,
        cancel_seen_at: c.time_opt()?,
        cancelled_at: c.time_opt()?,
        error_message: c.text_opt()?,
        error_phase: c.text_opt()?,
        last_checkpoint_id: c.own_opt()?,
        resumable: c.flag()?,
        auto_resume: c.flag()?,
        origin_id: c.own_opt()?,
        origin_phase: c.text_opt()?,
        started_at: c.time()?,
        completed_at: c.time_opt()?,
        updated_at: c.time()?,
        created_by: c.text()?,
        metadata: c.json()?,
        owner_id: c.text_opt()?,
        owner_epoch: c.int()?,
    })
}

pub(crate) fn phase(c: &mut Columns<'_>) -> Result<PhaseRow> {
    Ok(PhaseRow {
        position: c.int()?,
        name: c.text()?,
        status: c.word()?,
        started_at: c.time()?,
        completed_at: c.time_opt()?,
        outputs: c.json()?,
        error: c.text_opt()?,
        child_session_id: c.own_opt()?,
    })
}

pub(crate) fn session_task(c: &mut Columns<'_>) -> Result<TaskRow> {
    Ok(TaskRow {
        id: c.own()?,
        session_id: c.own()?,
        phase: c.text()?,
        position: c.int()?,
        key: c.text()?,
        title: c.text()?,
        state: c.word()?,
        attempt: c.int()?,
        retry_count: c.int()?,
        crash_count: c.int()?,
        failure_reason: c.word_opt()?,
        error: c.text_opt()?,
        retry_at: c.time_opt()?,
        exit_code: c.int_opt()?,
        outputs: c.json()?,
        started_at: c.time_opt()?,
        completed_at: c.time_opt()?,
    })
}

pub(crate) fn attempt(c: &mut Columns<'_>) -> Result<AttemptRow> {
    Ok(AttemptRow {
        task_id: c.own()?,
        attempt: c.int()?,
        session_id: c.own()?,
        phase: c.text()?,
        status: c.word()?,
        container_id: c.id_opt()?,
        verify_container_id: c.id_opt()?,
        worker_id: c.text_opt()?,
        exit_code: c.int_opt()?,
        failure_reason: c.word_opt()?,
        message: c.text_opt()?,
        started_at: c.time()?,
        ended_at: c.time_opt()?,
    })
}

pub(crate) fn wait(c: &mut Columns<'_>) -> Result<WaitRow> {
    Ok(WaitRow {
        id: c.own()?,
        session_id: c.own()?,
        phase: c.text()?,
        task_id: c.own_opt()?,
        wait_type: c.word()?,
        wait_on: c.text()?,
        description: c.text()?,
        question: c.json()?,
        on_timeout: c.text()?,
        default_value: c.json_opt()?,
        since: c.time()?,
        deadline: c.time_opt()?,
        status: c.word()?,
        answer: c.json_opt()?,
        answered_by: c.text_opt()?,
        answer_reason: c.text_opt()?,
        answered_at: c.time_opt()?,
        signal_id: c.own_opt()?,
    })
}

pub(crate) fn signal(c: &mut Columns<'_>) -> Result<SignalRow> {
    Ok(SignalRow {
        id: c.own()?,
        name: c.text()?,
        session_id: c.own_opt()?,
        payload: c.json()?,
        fired_at: c.time()?,
        fired_by: c.text()?,
        deliveries: c.int()?,
        delivered_at: c.time_opt()?,
    })
}

pub(crate) fn checkpoint(c: &mut Columns<'_>) -> Result<CheckpointRow> {
    Ok(CheckpointRow {
        id: c.own()?,
        session_id: c.own()?,
        phase: c.text()?,
        task_id: c.own_opt()?,
        at: c.time()?,
    })
}

pub(crate) fn values(c: &mut Columns<'_>) -> Result<SessionValues> {
    Ok(SessionValues {
        cascade_hash: c.text()?,
        inputs: c.json()?,
        surroundings: c.json()?,
        outputs: c.json_opt()?,
    })
}

pub(crate) fn child(c: &mut Columns<'_>) -> Result<ChildRow> {
    Ok(ChildRow {
        session_id: c.own()?,
        status: c.word()?,
        cancel_requested: c.flag()?,
        cancel_force: c.flag()?,
        cancel_grace_seconds: c.int_opt()?,
        error: c.text_opt()?,
        blocked_on: c.text_opt()?,
        outputs: c.json_opt()?,
    })
}

/// A task that runs, its attempt, what it runs in with its job, and what verifies it.
pub(crate) fn open_task(c: &mut Columns<'_>) -> Result<OpenTask> {
    let task = session_task(c)?;
    let attempt = attempt(c)?;
    let mut main = seen(c)?;
    let status: Option<JobStatus> = c.word_opt()?;
    let activity: Option<JobActivity> = c.word_opt()?;
    let reason = c.text_opt()?;
    let engine = c.text_opt()?;
    let detail = c.text_opt()?;
    if let Some(main) = &mut main {
        let agent = engine.as_deref().is_some_and(|engine| engine != parhelia_core::engine::COMMAND);
        if agent && main.is_gone() && status.is_some_and(|status| !status.is_over()) {
            // Whether it needs a person is only known once its job is over.
            main.state = parhelia_core::state::ContainerState::Running;
        }
        let waits = activity == Some(JobActivity::Waiting);
        main.waiting = waits.then(|| reason.unwrap_or_else(|| "it needs a person".to_owned()));
        main.resumable = agent;
        main.detail = detail;
    }
    Ok(OpenTask { task, attempt, main, verify: seen(c)? })
}

pub(crate) fn seen(c: &mut Columns<'_>) -> Result<Option<Seen>> {
    let Some(container) = c.id_opt()? else {
        c.skip(6);
        return Ok(None);
    };
    Ok(Some(Seen {
        container,
        state: c.word()?,
        desired: c.word()?,
        started_at: c.time_opt()?,
        reason: c.word_opt()?,
        exit_code: c.int_opt()?,
        stop_grace_seconds: c.int_opt()?,
        waiting: None,
        resumable: false,
        detail: None,
    }))
}
/// A session, its owner's lease and end, and its definition.
pub(crate) fn shown(c: &mut Columns<'_>) -> Result<ShownSession> {
    Ok(ShownSession {
        session: session(c)?,
        lease_until: c.time_opt()?,
        owner_ended_at: c.time_opt()?,
        cascade_hash: c.text_opt()?,
    })
}

pub(crate) fn inbox(c: &mut Columns<'_>) -> Result<InboxRow> {
    Ok(InboxRow {
        wait: wait(c)?,
        cascade_id: c.text()?,
        session_name: c.text_opt()?,
        task_key: c.text_opt()?,
    })
}
