//! Sandboxes of other instances: shown with their cost, never touched.

use std::collections::HashSet;

use jiff::Timestamp;
use parhelia_core::event::NewEvent;
use parhelia_core::sandbox::Sandbox;

use super::containers::text_json;
use super::text_of;
use crate::error::Result;
use crate::script::{Script, params};
use crate::types::{Fence, Foreign};
use crate::{Store, row, sql};

impl Store {
    /// A foreign sandbox as it is now seen. Its instance is known from then on.
    pub async fn upsert_foreign(
        &self,
        fence: &Fence,
        provider: &str,
        identity: &str,
        sandbox: &Sandbox,
        now: Timestamp,
        event: Option<NewEvent>,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::fenced("upsert_foreign", fence);
        script.step(&sql::INSTANCE_ENSURE, params![&sandbox.tags.instance, &now]);
        script.one(
            &sql::FOREIGN_UPSERT,
            params![
                provider,
                &sandbox.sandbox_id,
                identity,
                &sandbox.tags.instance,
                &sandbox.tags.container,
                sandbox.tags.task.as_ref(),
                sandbox.name.as_ref(),
                sandbox.created_at,
                sandbox.started_at,
                sandbox.resources.cpu_cores,
                sandbox.resources.memory_mb,
                sandbox.resources.gpu_type.as_ref(),
                sandbox.region.as_ref(),
                text_json(&sandbox.command)?,
                text_json(&sandbox.labels)?,
                &now,
            ],
        );
        if let Some(event) = event {
            script.event(event, &now);
        }
        self.write(script).await.map(drop)
    }

    /// It has ended. One that is not known, or gone already, changes nothing.
    pub async fn foreign_gone(
        &self,
        fence: &Fence,
        provider: &str,
        sandbox_id: &str,
        now: Timestamp,
    ) -> Result<()> {
        let mut script = Script::fenced("foreign_gone", fence);
        script.step(&sql::FOREIGN_GONE, params![provider, sandbox_id, now]);
        self.write(script).await.map(drop)
    }

    /// Those alive at the last look.
    pub async fn foreign(&self, provider: Option<&str>, instance: Option<&str>) -> Result<Vec<Foreign>> {
        self.query(&sql::FOREIGN, params![provider, instance], row::foreign).await
    }

    /// The provider's ids of those that are recorded as alive.
    pub async fn known_foreign(&self, provider: &str, identity: &str) -> Result<HashSet<String>> {
        let ids = self.query(&sql::FOREIGN_KNOWN, params![provider, identity], |c| c.text()).await?;
        Ok(ids.into_iter().collect())
    }
}
