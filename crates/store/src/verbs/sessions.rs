//! Sessions as their owner writes them: each step of a plan is part of one script, guarded by the owner's fence and the
//! session's own epoch.

use parhelia_core::ids::{SessionId, TaskId};
use parhelia_core::session::{PhaseRow, Session, TaskRow};

use crate::error::Result;
use crate::script::params;
use crate::{Store, row_session, sql};

impl Store {
    pub async fn session(&self, id: &SessionId) -> Result<Option<Session>> {
        self.query_one(&sql::SESSION, params![id], row_session::session).await
    }

    /// Those that have begun, in their order.
    pub async fn session_phases(&self, id: &SessionId) -> Result<Vec<PhaseRow>> {
        self.query(&sql::SESSION_PHASES, params![id], row_session::phase).await
    }

    pub async fn session_task(&self, id: &TaskId) -> Result<Option<TaskRow>> {
        self.query_one(&sql::SESSION_TASK, params![id], row_session::session_task).await
    }

    pub async fn pending_tasks(&self, id: &SessionId, phase: &str, limit: i64) -> Result<Vec<TaskRow>> {
        let given = params![id, phase, limit];
        self.query(&sql::SESSION_TASKS_PENDING, given, row_session::session_task).await
    }
}
