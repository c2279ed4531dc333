//! The registry as it was at a moment: the history is read page by page and folded by `core::history`.

use parhelia_core::Timestamp;
use parhelia_core::api::{ContainerList, ContainerView, Totals};
use parhelia_core::event::Event;
use parhelia_core::history::History;
use parhelia_core::state::ContainerState;
use parhelia_core::time::{plus_seconds, to_text};
use parhelia_store::ContainerFilter;

use super::containers::no_such_page;
use super::{ListQuery, Service, ServiceError};

/// Events read at once.
const PAGE: i64 = 5_000;

impl Service {
    pub async fn containers_at(
        &self,
        query: ListQuery,
        at: Timestamp,
    ) -> Result<ContainerList, ServiceError> {
        let now = self.clock.now();
        if at > now {
            return Err(ServiceError::invalid(
                format!("at: {} is in the future", to_text(at)),
                "give a moment that has passed, such as 2026-01-21T14:30:00Z",
            ));
        }
        let (last, oldest) = self.store.history_end(at).await?;
        self.within_the_history(at, oldest, now)?;
        let mut history = History::default();
        self.read_history(0, last, |event| history.tell(event)).await?;
        self.read_history(last, i64::MAX, |event| history.tell_later(event)).await?;
        // Read after the events: a container of theirs has its row by now.
        let filter = ContainerFilter {
            provider: query.provider.clone().map(|given| match self.provider(&given) {
                Ok(handle) => handle.provider.name().to_owned(),
                Err(_) => given,
            }),
            task_id: query.task.clone(),
            ..ContainerFilter::default()
        };
        let rows = self.store.containers(&filter).await?;
        let mut views = history.registry(rows, at, &self.prices);
        views.retain(|view| fits(view, &query));
        let totals = sum(&views);
        // Pages go back from the newest; within one the newest stands last.
        let end = match &query.before {
            Some(id) => {
                let found = views.iter().position(|view| view.record.id.as_str() == id);
                found.ok_or_else(|| no_such_page(id))?
            }
            None => views.len(),
        };
        let start = end.saturating_sub(query.limit.unwrap_or(usize::MAX));
        let containers: Vec<ContainerView> = views.into_iter().take(end).skip(start).collect();
        let next = containers.first().filter(|_| start > 0).map(|oldest| oldest.record.id.clone());
        let totals = query.before.is_none().then_some(totals);
        Ok(ContainerList { containers, totals, next, as_of: Some(at) })
    }

    /// What retention has taken away cannot be rebuilt, and what was before the first event nobody knows.
    fn within_the_history(
        &self,
        at: Timestamp,
        oldest: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), ServiceError> {
        let days = self.config.retention.event_days;
        let horizon = plus_seconds(now, -i64::try_from(days * 86_400).unwrap_or(i64::MAX));
        let earliest = oldest.map_or(now, |first| first.max(horizon));
        if at >= earliest {
            return Ok(());
        }
        Err(ServiceError::Invalid {
            code: "before_the_history",
            message: format!(
                "the history does not reach back to {}: the earliest moment that can be rebuilt is {}",
                to_text(at),
                to_text(earliest)
            ),
            fix: format!(
                "ask for {} or later; events are kept for {days} days (retention.event_days)",
                to_text(earliest)
            ),
        })
    }

    async fn read_history(
        &self,
        mut after: i64,
        last: i64,
        mut tell: impl FnMut(&Event),
    ) -> Result<(), ServiceError> {
        while after < last {
            let page = self.store.history_page(after, last, PAGE).await?;
            let Some(end) = page.last() else { break };
            after = end.id;
            page.iter().for_each(&mut tell);
        }
        Ok(())
    }
}

fn fits(view: &ContainerView, query: &ListQuery) -> bool {
    let record = &view.record;
    let by_state = match query.states.is_empty() {
        false => query.states.contains(&record.state),
        true => query.all || record.state != ContainerState::Terminated,
    };
    let nobodys = record.state == ContainerState::Orphaned || view.suspected;
    by_state
        && (query.health.is_empty() || query.health.contains(&view.health))
        && (!query.orphans || nobodys)
        && query.labels.iter().all(|(key, value)| record.labels.get(key) == Some(value))
}

/// Without the foreign ones: of those only how they are now is kept.
fn sum(views: &[ContainerView]) -> Totals {
    let mut totals = Totals { total: views.len() as i64, ..Totals::default() };
    for view in views {
        let state = view.record.state;
        totals.running += i64::from(state == ContainerState::Running);
        totals.orphaned += i64::from(state == ContainerState::Orphaned);
        totals.suspected += i64::from(view.suspected);
        totals.cost_accrued_usd += view.cost;
        if matches!(state, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown) {
            totals.cost_per_hour_usd += view.record.cost_rate_per_hour.unwrap_or(0.0);
        }
    }
    totals
}
