//! What can be asked of the registry (seed 000, SPEC-21.30), and the slim views that the loops read.

use std::collections::HashSet;

use jiff::Timestamp;
use parhelia_core::container::Container;
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::Tracked;
use parhelia_core::state::{ContainerState, Health};

use crate::error::Result;
use crate::script::{Value, params};
use crate::sql::Sql;
use crate::types::{ContainerFilter, ContainerPage, ContainerStats, Figures, OldestRunning};
use crate::{Store, row, sql};

/// What the health loop reads of one container: id, task, health, last heartbeat.
pub type PatientRow = (ContainerId, Option<String>, Health, Option<Timestamp>);

/// How many ids `tracked_by_ids.sql` and `tracked_by_sandboxes.sql` take at a time.
const IDS_PER_QUERY: usize = 100;

impl Store {
    pub async fn container(&self, id: &ContainerId) -> Result<Option<Container>> {
        self.query_one(&sql::CONTAINER, params![id], row::container).await
    }

    pub async fn container_by_sandbox(&self, provider: &str, sandbox_id: &str) -> Result<Option<Container>> {
        self.query_one(&sql::CONTAINER_BY_SANDBOX, params![provider, sandbox_id], row::container).await
    }

    /// What the filter leaves, newest last. The first page holds the newest.
    pub async fn containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>> {
        let (sql, params) = select(filter);
        let mut page = self.query(sql, params, row::container).await?;
        page.reverse();
        Ok(page)
    }

    /// One page of what the filter leaves, and where the next one begins.
    pub async fn container_page(&self, filter: &ContainerFilter) -> Result<ContainerPage> {
        let (sql, params) = select(filter);
        let found = self.read_rows(sql, params, row::container).await?;
        let full = filter.limit.is_some_and(|limit| found.len() as i64 >= limit);
        let mut rows = Vec::with_capacity(found.len());
        let mut unreadable = None;
        for row in found {
            match row {
                Ok(row) => rows.push(row),
                Err(error) => {
                    tracing::error!("{error}");
                    unreadable = Some(error);
                }
            }
        }
        let next = match (full, rows.last(), unreadable) {
            (false, ..) => None,
            (true, Some(oldest), _) => Some((oldest.created_at, oldest.id.clone())),
            // A whole page of rows that cannot be read has no place to go on from.
            (true, None, Some(error)) => return Err(error),
            (true, None, None) => None,
        };
        rows.reverse();
        Ok(ContainerPage { rows, next })
    }

    /// What the totals need of everything that the filter leaves.
    pub async fn container_figures(&self, filter: &ContainerFilter) -> Result<Vec<Figures>> {
        let (sql, params) = select(filter);
        self.query(sql, params, row::figures).await
    }

    /// Everything that is not terminated.
    pub async fn active_containers(&self) -> Result<Vec<Container>> {
        self.containers(&ContainerFilter { active_only: true, ..Default::default() }).await
    }

    pub async fn containers_by_state(&self, state: ContainerState) -> Result<Vec<Container>> {
        self.containers(&ContainerFilter { states: vec![state], ..Default::default() }).await
    }

    pub async fn containers_by_health(&self, health: Health) -> Result<Vec<Container>> {
        self.containers(&ContainerFilter { health: vec![health], ..Default::default() }).await
    }

    /// Orphans, and what is suspected of being one.
    pub async fn orphaned_containers(&self) -> Result<Vec<Container>> {
        self.containers(&ContainerFilter { orphans: true, active_only: true, ..Default::default() }).await
    }

    pub async fn containers_for_task(&self, task_id: &str) -> Result<Vec<Container>> {
        self.containers(&ContainerFilter { task_id: Some(task_id.to_owned()), ..Default::default() }).await
    }

    /// Live containers that were not heard at or after `threshold`; one never heard counts from its start.
    pub async fn containers_without_heartbeat_since(&self, threshold: Timestamp) -> Result<Vec<Container>> {
        self.query(&sql::CONTAINERS_SILENT, params![threshold], row::container).await
    }

    pub async fn container_stats(&self) -> Result<ContainerStats> {
        let groups = self
            .query(&sql::CONTAINER_COUNTS, vec![], |c| {
                Ok((c.word::<ContainerState, _>()?, c.word::<Health, _>()?, c.int()?, c.real()?))
            })
            .await?;
        let mut stats = ContainerStats::default();
        for (state, health, count, cost_usd) in groups {
            stats.total += count;
            stats.total_cost_usd += cost_usd;
            *stats.by_state.entry(state).or_default() += count;
            if state.is_active() {
                *stats.by_health.entry(health).or_default() += count;
            }
        }
        stats.oldest_running = self
            .query_one(&sql::OLDEST_RUNNING, vec![], |c| {
                Ok(OldestRunning { id: c.id()?, started_at: c.time()? })
            })
            .await?;
        Ok(stats)
    }

    /// The ids that begin as given, with or without the `c-`; at most 10, enough to show the choice.
    pub async fn resolve_container(&self, prefix: &str) -> Result<Vec<ContainerId>> {
        let (from, to) = prefix_range(prefix);
        self.query(&sql::CONTAINER_IDS, params![from, to], |c| c.id()).await
    }

    /// Every row of a provider that is not terminated, as the reconciler reads it.
    pub async fn tracked(&self, provider: &str) -> Result<Vec<Tracked>> {
        self.query(&sql::TRACKED, params![provider], row::tracked).await
    }

    /// The rows with these ids or these sandboxes, terminated ones too; each once.
    pub async fn tracked_by_ids(
        &self,
        provider: &str,
        ids: &[ContainerId],
        sandbox_ids: &[String],
    ) -> Result<Vec<Tracked>> {
        let ids: Vec<&str> = ids.iter().map(ContainerId::as_str).collect();
        let sandbox_ids: Vec<&str> = sandbox_ids.iter().map(String::as_str).collect();
        let mut found = self.tracked_in(&sql::TRACKED_BY_IDS, provider, &ids).await?;
        found.append(&mut self.tracked_in(&sql::TRACKED_BY_SANDBOXES, provider, &sandbox_ids).await?);
        let mut seen = HashSet::with_capacity(found.len());
        found.retain(|row| seen.insert(row.id.clone()));
        Ok(found)
    }

    async fn tracked_in(&self, sql: &'static Sql, provider: &str, ids: &[&str]) -> Result<Vec<Tracked>> {
        let mut found = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(IDS_PER_QUERY) {
            let mut params = Vec::with_capacity(1 + IDS_PER_QUERY);
            params.push(provider.into());
            params.extend(chunk.iter().map(|id| Value::from(*id)));
            params.resize(1 + IDS_PER_QUERY, Value::Null);
            found.append(&mut self.query(sql, params, row::tracked).await?);
        }
        Ok(found)
    }

    /// Every container that should be heard: running, orphaned or unknown.
    pub async fn patients(&self) -> Result<Vec<PatientRow>> {
        self.query(&sql::PATIENTS, vec![], |c| Ok((c.id()?, c.text_opt()?, c.word()?, c.time_opt()?))).await
    }

    /// How many containers are terminated, and what they have cost.
    pub async fn terminated_totals(&self) -> Result<(i64, f64)> {
        let found =
            self.query_one(&sql::CONTAINERS_TERMINATED, vec![], |c| Ok((c.int()?, c.real()?))).await?;
        Ok(found.unwrap_or((0, 0.0)))
    }

    /// How many containers are not terminated.
    pub async fn live_count(&self) -> Result<i64> {
        Ok(self.query_one(&sql::LIVE_COUNT, vec![], |c| c.int()).await?.unwrap_or(0))
    }
}

/// `[from, to)` holds exactly the ids that begin so: every character of an id sorts before `~`.
fn prefix_range(prefix: &str) -> (String, String) {
    let from = match prefix {
        "" => String::new(),
        given if given.starts_with(ContainerId::PREFIX) || given == "c" => given.to_owned(),
        bare => format!("{}{bare}", ContainerId::PREFIX),
    };
    let to = format!("{from}~");
    (from, to)
}

/// The statement that is served best, and its parameters.
fn select(filter: &ContainerFilter) -> (&'static Sql, Vec<Value>) {
    let sql = match filter {
        ContainerFilter { task_id: Some(_), active_only: false, .. } => &sql::CONTAINERS_OF_TASK,
        ContainerFilter { active_only: true, .. } => &sql::CONTAINERS_ACTIVE,
        _ => &sql::CONTAINERS,
    };
    let (from, to) = prefix_range(filter.id_prefix.as_deref().unwrap_or(""));
    // Every time and every id sorts before `~`.
    let (before_at, before_id) = match &filter.before {
        Some((at, id)) => (Value::from(*at), Value::from(id)),
        None => (Value::Word("~"), Value::Word("~")),
    };
    let params = params![
        listed(filter.states.iter().map(|state| state.as_str())),
        listed(filter.health.iter().map(|health| health.as_str())),
        filter.provider.as_ref(),
        filter.task_id.as_ref(),
        filter.session_id.as_ref(),
        filter.orphans,
        from,
        to,
        filter.limit.unwrap_or(i64::MAX),
        before_at,
        before_id,
    ];
    (sql, params)
}

/// `,running,stopped,`; `None` for none at all.
fn listed<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let list = words.fold(String::new(), |list, word| list + "," + word);
    (!list.is_empty()).then(|| list + ",")
}
