//! Contract 9 from the outside: the registry is remembered at a few moments of each world, and rebuilt from the history
//! at the end. Both must be the same.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parhelia_core::container::Container;
use parhelia_core::cost::Prices;
use parhelia_core::event::Event;
use parhelia_core::history::{History, divide};
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::Resources;
use parhelia_core::state::{ContainerState, CostSource, Desired, Health};

/// Dollars: far below what anybody is billed, far above what adding in another order changes.
const ROUNDING: f64 = 1e-6;

/// What is shown of a container.
#[derive(Debug, Clone, PartialEq)]
struct Shown {
    state: ContainerState,
    health: Health,
    desired: Desired,
    rate: f64,
    cost: f64,
}

/// How everything was at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    at: Timestamp,
    last_event: i64,
    shown: BTreeMap<ContainerId, Shown>,
}

impl Snapshot {
    /// As every door would show it now: what runs is counted up to this moment.
    pub(crate) fn take(rows: &[Container], last_event: i64, at: Timestamp, prices: &Prices) -> Self {
        let shown = rows.iter().map(|row| (row.id.clone(), live(row, at, prices))).collect();
        Self { at, last_event, shown }
    }

    /// `events` is the whole history, `rows` the registry as it is at the end.
    pub(crate) fn compare(
        &self,
        rows: &[Container],
        events: &[Event],
        prices: &Prices,
    ) -> Result<(), String> {
        let place = events.partition_point(|event| event.id <= self.last_event);
        let (before, after) = events.split_at(place);
        self.same(rows, before, after, prices, true, "by its place")?;
        // Where no clock was set back over it, the moment alone finds the place.
        let came_once = before.last().is_some_and(|event| event.timestamp <= self.at);
        if came_once && after.iter().all(|event| event.timestamp > self.at) {
            let (before, after) = divide(events, self.at);
            self.same(rows, before, after, prices, true, "by its time")?;
        }
        // Retention took the first half of what came before.
        self.same(rows, &before[before.len() / 2..], after, prices, false, "after retention")
    }

    fn same(
        &self,
        rows: &[Container],
        before: &[Event],
        after: &[Event],
        prices: &Prices,
        with_cost: bool,
        how: &str,
    ) -> Result<(), String> {
        let mut history = History::default();
        before.iter().for_each(|event| history.tell(event));
        after.iter().for_each(|event| history.tell_later(event));
        let mut rebuilt = BTreeMap::new();
        for view in history.registry(rows.to_vec(), self.at, prices) {
            let record = &view.record;
            let rate = record.cost_rate_per_hour.unwrap_or(0.0);
            let (state, health, desired) = (record.state, view.health, record.desired);
            rebuilt.insert(record.id.clone(), Shown { state, health, desired, rate, cost: view.cost });
        }
        for (id, then) in &self.shown {
            let Some(told) = rebuilt.remove(id) else {
                return Err(format!("{id} was there at {} and the history has lost it ({how})", self.at));
            };
            let worth = (then.cost - told.cost).abs() < ROUNDING && (then.rate - told.rate).abs() < ROUNDING;
            let same = (then.state, then.health, then.desired) == (told.state, told.health, told.desired);
            if !same || (with_cost && !worth) {
                return Err(format!("{id} at {}: it was {then:?}, rebuilt {how} {told:?}", self.at));
            }
        }
        match rebuilt.keys().next() {
            Some(id) => Err(format!("{id} was not there at {}, rebuilt {how} it is", self.at)),
            None => Ok(()),
        }
    }
}

fn live(row: &Container, at: Timestamp, prices: &Prices) -> Shown {
    let counting =
        matches!(row.state, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown);
    let (state, health, desired) = (row.state, row.health_status, row.desired);
    let mut shown = Shown {
        state,
        health,
        desired,
        rate: row.cost_rate_per_hour.unwrap_or(0.0),
        cost: row.cost_accrued_usd,
    };
    if let (true, CostSource::Estimated, Some(started)) = (counting, row.cost_source, row.started_at) {
        let resources =
            Resources { cpu_cores: row.cpu_cores, memory_mb: row.memory_mb, gpu_type: row.gpu_type.clone() };
        shown.cost = prices.cost(&row.provider, &resources, started, at);
        shown.rate = prices.rate_per_hour(&row.provider, &resources, at);
    }
    shown
}
