//! Owners and leadership: who runs, who leads, and in which epoch. The epoch rises at every election, so
//! that whoever led before is fenced from then on.

use std::collections::HashMap;

use jiff::Timestamp;
use parhelia_core::event::NewEvent;

use super::{first_int, text_of};
use crate::error::{Result, StoreError};
use crate::script::{Script, Value, params};
use crate::types::{Fence, Leadership, Owner};
use crate::{Store, row, sql};

impl Store {
    pub async fn register_owner(&self, owner: &Owner) -> Result<()> {
        let mut script = Script::new("register_owner");
        script.one(
            &sql::OWNER_REGISTER,
            params![
                &owner.id,
                &owner.home_id,
                &owner.host,
                &owner.boot_id,
                owner.epoch,
                owner.started_at,
                owner.lease_until,
                owner.ended_at,
                &owner.version,
            ],
        );
        self.write(script).await.map(drop)
    }

    /// Earlier owners of a home are marked as ended, which fences whatever they still have under way. The
    /// caller has the lock of that home.
    pub async fn supersede_owners(&self, home_id: &str, owner_id: &str, now: Timestamp) -> Result<()> {
        let mut script = Script::new("supersede_owners");
        script.step(&sql::OWNERS_SUPERSEDE, params![home_id, owner_id, now]);
        self.write(script).await.map(drop)
    }

    /// `Conflict` when it is unknown or has ended: then it must not go on.
    pub async fn renew_owner(&self, id: &str, lease_until: Timestamp) -> Result<()> {
        let mut script = Script::new("renew_owner");
        script.one(&sql::OWNER_RENEW, params![id, lease_until]);
        self.write(script).await.map(drop)
    }

    /// An owner leaves in good order; if it led, the lead is free at once.
    pub async fn end_owner(&self, id: &str, now: Timestamp, event: NewEvent) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::new("end_owner");
        script.one(&sql::OWNER_END, params![id, &now]);
        script.step(&sql::LEADERSHIP_RELEASE, params![id, &now]);
        // Its own row, not ended yet, is its fence here.
        script.writer = [id.into(), Value::Null];
        script.event(event, &now);
        self.write(script).await.map(drop)
    }

    /// Takes the lead and gives its epoch, always a new one. `Conflict` while another owner that has not
    /// ended holds an unexpired lease, unless `force`: the caller has proof that the other is gone.
    pub async fn take_leadership(
        &self,
        owner_id: &str,
        lease_until: Timestamp,
        now: Timestamp,
        force: bool,
    ) -> Result<i64> {
        let mut script = Script::new("take_leadership");
        let taken = script.one(&sql::LEADERSHIP_TAKE, params![owner_id, lease_until, now, force]);
        script.one(&sql::OWNER_EPOCH, params![owner_id]);
        let done = self.write(script).await?;
        first_int(&done, taken).ok_or(StoreError::Fenced { script: "take_leadership" })
    }

    /// `Fenced` once another has taken it.
    pub async fn renew_leadership(&self, fence: &Fence, lease_until: Timestamp) -> Result<()> {
        let mut script = Script::fenced("renew_leadership", fence);
        script.one(&sql::LEADERSHIP_RENEW, params![&fence.owner_id, fence.epoch, lease_until]);
        self.write(script).await.map(drop)
    }

    /// What time it is by the database's own clock; `None` when it answers in no form that is known.
    pub async fn database_time(&self) -> Result<Option<Timestamp>> {
        let text = self.query_one(&sql::DATABASE_TIME, vec![], |c| c.text()).await?;
        Ok(text.and_then(|text| text.parse().or_else(|_| format!("{text}Z").parse()).ok()))
    }

    pub async fn leadership(&self) -> Result<Option<Leadership>> {
        self.query_one(&sql::LEADERSHIP, vec![], row::leadership).await
    }

    /// Where its home is, for others on its machine.
    pub async fn note_home(&self, id: &str, path: &str) -> Result<()> {
        let mut script = Script::new("note_home");
        script.one(&sql::OWNER_HOME, params![id, path]);
        self.write(script).await.map(drop)
    }

    /// Other owners of sessions in this run of this machine: id, home and where that is.
    pub async fn owners_beside(
        &self,
        id: &str,
        host: &str,
        boot: &str,
    ) -> Result<Vec<(String, String, String)>> {
        let given = params![id, host, boot];
        self.query(&sql::OWNERS_BESIDE, given, |c| Ok((c.text()?, c.text()?, c.text()?))).await
    }

    /// The caller has proof that it is dead: the lock of its home is free.
    pub async fn owner_is_gone(&self, id: &str, now: Timestamp) -> Result<()> {
        let mut script = Script::new("owner_is_gone");
        script.step(&sql::OWNER_GONE, params![id, now]);
        self.write(script).await.map(drop)
    }

    /// Until when each owner that has not ended is known to live.
    pub async fn owner_leases(&self) -> Result<HashMap<String, Timestamp>> {
        let leases = self.query(&sql::OWNER_LEASES, vec![], |c| Ok((c.text()?, c.time()?))).await?;
        Ok(leases.into_iter().collect())
    }

    /// The caller has watched that lease for as long as it holds: its owner has not renewed it, and is fenced. Nothing
    /// when it has meanwhile. Of two who would end each other, the second is refused.
    pub async fn expire_owner(
        &self,
        ours: &Fence,
        id: &str,
        lease_until: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("expire_owner", ours);
        script.step(&sql::OWNER_EXPIRE, params![id, lease_until, now]);
        self.write(script).await.map(drop)
    }

    /// Every owner that ever was, newest last.
    pub async fn owners(&self) -> Result<Vec<Owner>> {
        self.query(&sql::OWNERS, vec![], row::owner).await
    }
}
