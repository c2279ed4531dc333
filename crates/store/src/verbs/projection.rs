//! What somebody reads who shows sessions elsewhere, and the places that he keeps here: each is a number under a name,
//! beside those of the other readers of the history.

use parhelia_core::ids::SessionId;
use parhelia_core::session::Session;

use crate::error::Result;
use crate::script::{Script, Value, params};
use crate::types::{Fence, ReaderMove};
use crate::{Store, row_session, sql};

/// How many ids `sessions_by_ids.sql` takes at a time.
const IDS_PER_QUERY: usize = 50;

impl Store {
    /// Places that are new begin at these numbers; those that are known stay as they are.
    pub async fn begin_readers(&self, fence: &Fence, readers: &[(&str, i64)]) -> Result<()> {
        let mut script = Script::fenced("begin_readers", fence);
        for (name, at) in readers {
            script.step(&sql::READER_BEGIN, params![*name, *at]);
        }
        self.write(script).await.map(drop)
    }

    /// All of them move, or none. `Conflict`: one is not where it was believed to be.
    pub async fn move_readers(&self, fence: &Fence, moves: &[ReaderMove]) -> Result<()> {
        let mut script = Script::fenced("move_readers", fence);
        for ReaderMove { reader, from, to } in moves {
            script.one(&sql::READER_ADVANCE, params![reader, *from, *to]);
        }
        self.write(script).await.map(drop)
    }

    /// The sessions with these ids; one that is not there is left out.
    pub async fn sessions_by_ids(&self, ids: &[SessionId]) -> Result<Vec<Session>> {
        let mut found = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(IDS_PER_QUERY) {
            let mut params: Vec<Value> = chunk.iter().map(|id| Value::from(id.as_str())).collect();
            params.resize(IDS_PER_QUERY, Value::Null);
            found.append(&mut self.query(&sql::SESSIONS_BY_IDS, params, row_session::session).await?);
        }
        Ok(found)
    }

    /// Every session, a page of them after this id.
    pub async fn sessions_page(&self, after: &str, limit: i64) -> Result<Vec<Session>> {
        self.query(&sql::SESSIONS_PAGE, params![after, limit], row_session::session).await
    }

    /// Those that have an owner and are not over, a page of them after this owner and id.
    pub async fn sessions_beating(&self, after: (&str, &str), limit: i64) -> Result<Vec<Session>> {
        self.query(&sql::SESSIONS_BEATING_PAGE, params![after.0, after.1, limit], row_session::session).await
    }

    pub async fn session_count(&self) -> Result<i64> {
        Ok(self.query_one(&sql::SESSION_COUNT, vec![], |c| c.int()).await?.unwrap_or(0))
    }
}
