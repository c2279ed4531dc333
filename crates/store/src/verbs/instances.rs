//! Instances: this one's identity, and those that it has seen or taken over.

use std::collections::BTreeSet;

use jiff::Timestamp;
use parhelia_core::event::NewEvent;

use super::containers::insert_container;
use super::{first_text, text_of};
use crate::error::{Result, StoreError};
use crate::script::{Script, params};
use crate::types::{Instance, NewContainer};
use crate::{Store, row, sql};

impl Store {
    /// This instance's id: `candidate` at the first start of this store, and the same for ever after.
    pub async fn this_instance(&self, candidate: &str, now: Timestamp) -> Result<String> {
        let mut script = Script::new("this_instance");
        script.step(&sql::INSTANCE_CREATE, params![candidate, now]);
        let own = script.one(&sql::INSTANCE_SELF, vec![]);
        let done = match self.write(script).await {
            // Another server named it at the same moment.
            Err(StoreError::Conflict { .. }) => {
                let mut again = Script::new("this_instance");
                again.one(&sql::INSTANCE_SELF, vec![]);
                return Ok(first_text(&self.write(again).await?, 0).unwrap_or(candidate).to_owned());
            }
            other => other?,
        };
        let missing = || StoreError::NotFound { what: "instance", id: candidate.to_owned() };
        first_text(&done, own).map(str::to_owned).ok_or_else(missing)
    }

    /// The instances whose sandboxes are ours: this one, and those that were adopted.
    pub async fn our_instances(&self) -> Result<BTreeSet<String>> {
        Ok(self.query(&sql::INSTANCES_OURS, vec![], |c| c.text()).await?.into_iter().collect())
    }

    pub async fn instances(&self) -> Result<Vec<Instance>> {
        self.query(&sql::INSTANCES, vec![], row::instance).await
    }

    /// Takes an instance over with the sandboxes of it that are known: they get rows and are foreign no
    /// more, all in one step. Adopting it again is harmless; this instance itself is a `Conflict`.
    pub async fn adopt_instance(
        &self,
        instance: &str,
        by: &str,
        rows: Vec<(NewContainer, Vec<NewEvent>)>,
        event: NewEvent,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::new("adopt_instance");
        script.one(&sql::INSTANCE_ADOPT, params![instance, &now, by]);
        script.event(event, &now);
        for (new, events) in rows {
            let sandbox = (new.provider.clone(), new.sandbox_id.clone());
            insert_container(&mut script, new, events, &now)?;
            if let (provider, Some(sandbox_id)) = sandbox {
                script.step(&sql::FOREIGN_DELETE, params![provider, sandbox_id]);
            }
        }
        self.write(script).await.map(drop)
    }
}
