//! What the store says of the fleet. Without the store there is nothing to say, and the series are absent.

use parhelia_core::api::ContainerView;
use parhelia_core::job::JobStatus;
use parhelia_core::state::{ContainerState, Health};
use parhelia_store::JobCount;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Names, Real};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Group {
    provider: String,
    state: &'static str,
    health: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProvider {
    provider: String,
}

/// Of the whole fleet: an empty label set, in a family that can be cleared.
type Alone<M> = Family<Vec<(String, String)>, M>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStatus {
    status: &'static str,
}

#[derive(Debug)]
pub(super) struct Fleet {
    containers: Family<Group, Gauge>,
    terminated: Alone<Gauge>,
    orphans: Alone<Gauge>,
    suspects: Alone<Gauge>,
    foreign: Alone<Gauge>,
    rate: Family<OfProvider, Real>,
    accrued: Alone<Real>,
    jobs: Family<OfStatus, Gauge>,
    waiting_jobs: Alone<Gauge>,
}

/// One reading of it.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) active: Vec<ContainerView>,
    pub(super) suspects: i64,
    pub(super) foreign: i64,
    pub(super) terminated: i64,
    /// Of those that are terminated.
    pub(super) spent_usd: f64,
    pub(super) jobs: Vec<JobCount>,
}

impl Fleet {
    pub(super) fn new(names: &mut Names) -> Self {
        Self {
            containers: names.add(
                "containers",
                "Containers that are not terminated, by provider, state and health",
                Family::default(),
            ),
            terminated: names.add(
                "containers_terminated",
                "Containers that are over and on record",
                Family::default(),
            ),
            orphans: names.add("orphans", "Containers that nobody asked for", Family::default()),
            suspects: names.add("suspects", "Containers that may be orphans", Family::default()),
            foreign: names.add("foreign_sandboxes", "Sandboxes of other instances", Family::default()),
            rate: names.add(
                "cost_rate_usd_per_hour",
                "What runs now costs this much an hour, by provider",
                Family::default(),
            ),
            accrued: names.add(
                "cost_accrued_usd",
                "What everything on record has cost until now; a correction may lower it",
                Family::default(),
            ),
            jobs: names.add("jobs", "Jobs on record, by status", Family::default()),
            waiting_jobs: names.add("jobs_waiting", "Jobs that need a person", Family::default()),
        }
    }

    pub(super) fn forget(&self) {
        self.containers.clear();
        self.rate.clear();
        self.accrued.clear();
        self.jobs.clear();
        for one in [&self.waiting_jobs, &self.terminated, &self.orphans, &self.suspects, &self.foreign] {
            one.clear();
        }
    }

    pub(super) fn set(&self, figures: &Figures, providers: impl Iterator<Item = String>) {
        // A group that has emptied must not keep its last count.
        self.forget();
        // There at 0 before the first: a rate over time needs a beginning.
        for provider in providers {
            drop(self.rate.get_or_create(&OfProvider { provider: provider.clone() }));
            drop(self.containers.get_or_create(&Group {
                provider,
                state: ContainerState::Running.as_str(),
                health: Health::Healthy.as_str(),
            }));
        }
        let (mut orphans, mut accrued) = (0, figures.spent_usd);
        for view in &figures.active {
            let record = &view.record;
            let (state, provider) = (record.state, record.provider.clone());
            let group =
                Group { provider: provider.clone(), state: state.as_str(), health: view.health.as_str() };
            self.containers.get_or_create(&group).inc();
            orphans += i64::from(state == ContainerState::Orphaned);
            accrued += view.cost;
            if matches!(state, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown) {
                let rate = record.cost_rate_per_hour.unwrap_or(0.0);
                self.rate.get_or_create(&OfProvider { provider }).inc_by(rate);
            }
        }
        for status in JobStatus::ALL {
            drop(self.jobs.get_or_create(&OfStatus { status: status.as_str() }));
        }
        let alone = Vec::new();
        let mut waiting = 0;
        for count in &figures.jobs {
            self.jobs.get_or_create(&OfStatus { status: count.status.as_str() }).set(count.jobs);
            waiting += count.waiting;
        }
        self.waiting_jobs.get_or_create(&alone).set(waiting);
        self.orphans.get_or_create(&alone).set(orphans);
        self.suspects.get_or_create(&alone).set(figures.suspects);
        self.foreign.get_or_create(&alone).set(figures.foreign);
        self.terminated.get_or_create(&alone).set(figures.terminated);
        self.accrued.get_or_create(&alone).set(accrued);
    }
}
