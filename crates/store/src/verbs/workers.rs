//! Workers and tasks, as far as containers refer to them.

use jiff::Timestamp;
use parhelia_core::state::WorkerState;

use super::{json, text_of};
use crate::error::Result;
use crate::script::{Script, params};
use crate::types::{Task, Worker};
use crate::{Store, row, sql};

impl Store {
    /// A worker process. Its container, if given, must have a row.
    pub async fn register_worker(
        &self,
        id: &str,
        container_id: Option<&str>,
        task_id: Option<&str>,
        session_id: Option<&str>,
        metadata: &serde_json::Value,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::new("register_worker");
        if let Some(task_id) = task_id {
            script.step(&sql::TASK_ENSURE, params![task_id, task_id, session_id, &now]);
        }
        script.one(
            &sql::WORKER_INSERT,
            params![id, task_id, WorkerState::Spawning, container_id, session_id, json(metadata), &now],
        );
        self.write(script).await.map(drop)
    }

    pub async fn worker(&self, id: &str) -> Result<Option<Worker>> {
        self.query_one(&sql::WORKER, params![id], row::worker).await
    }

    pub async fn task(&self, id: &str) -> Result<Option<Task>> {
        self.query_one(&sql::TASK, params![id], row::task).await
    }
}
