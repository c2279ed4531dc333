//! Workers of sessions: who there are, what one claims, and what it reports. An attempt is claimed once, and a report
//! counts only for the attempt that is open.

use jiff::Timestamp;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::{CheckpointId, SessionId};
use parhelia_core::session::TaskRow;
use parhelia_core::session::plan::{AttemptEnd, Seen};

use super::text_of;
use crate::error::Result;
use crate::script::{Script, params};
use crate::{Store, row_session, sql};

impl Store {
    pub async fn session_workers(&self, id: &SessionId) -> Result<Vec<Seen>> {
        let found = self.query(&sql::SESSION_WORKERS, params![id], row_session::seen).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The next attempt of a task is this worker's. `Conflict` when somebody else has it, or its session no longer
    /// gives any.
    pub async fn claim_task(
        &self,
        task: &TaskRow,
        worker_id: &str,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let attempt = task.attempt + 1;
        let mut script = Script::new("claim_task");
        script.one(&sql::SESSION_CLAIMABLE, params![&task.session_id]);
        script.one(&sql::PHASE_CLAIMABLE, params![&task.session_id, &task.phase]);
        script.one(&sql::SESSION_TASK_START, params![&task.id, attempt, &now]);
        let nothing = None::<String>;
        script.one(
            &sql::ATTEMPT_INSERT,
            params![&task.id, attempt, &task.session_id, &task.phase, nothing, worker_id, &now],
        );
        script.event(event, &now);
        self.write(script).await.map(drop)
    }

    /// What became of an attempt. `Conflict` when it is not the open one: the report came too late.
    #[allow(clippy::too_many_arguments, reason = "one end, whole")]
    pub async fn finish_task(
        &self,
        task: &TaskRow,
        attempt: i64,
        end: AttemptEnd,
        output: &str,
        checkpoint: Option<CheckpointId>,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::new("finish_task");
        let done = checkpoint.clone();
        script.end_attempt(&task.session_id, task, attempt, end, checkpoint, &now)?;
        script.one(&sql::ATTEMPT_OUTPUT, params![&task.id, attempt, output]);
        if let Some(id) = &done {
            script.one(&sql::SESSION_CHECKPOINT, params![&task.session_id, id, &now]);
        }
        script.events(events, &now);
        self.write(script).await.map(drop)
    }
}
