//! The health of the whole control plane in one answer: what is well, what is not, and what to do about it.
//! Pure: the service gathers, this judges.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{ContainerView, ReconcilerStatus, ServerInfo, Totals};
use crate::state::{ContainerState, Health};
use crate::word_enum;

/// One health, and who has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthRow {
    pub health: String,
    pub count: usize,
    pub containers: Vec<String>,
}

/// Each container is in one row: orphans in their own, the others by health.
pub fn health_rows(views: &[ContainerView]) -> Vec<HealthRow> {
    let orphaned = |view: &ContainerView| view.record.state == ContainerState::Orphaned;
    let row = |word: &str, of: &dyn Fn(&ContainerView) -> bool| {
        let containers: Vec<String> =
            views.iter().filter(|v| of(v)).map(|v| v.record.id.to_string()).collect();
        HealthRow { health: word.to_owned(), count: containers.len(), containers }
    };
    let by = |health: Health| row(health.as_str(), &|v| !orphaned(v) && v.health == health);
    let mut rows: Vec<HealthRow> =
        [Health::Healthy, Health::Degraded, Health::Unhealthy, Health::Dead].into_iter().map(by).collect();
    rows.push(row(ORPHANED, &orphaned));
    let unknown = by(Health::Unknown);
    if unknown.count > 0 {
        rows.push(unknown);
    }
    rows
}

const ORPHANED: &str = "orphaned";

word_enum!(
    OverviewStatus {
        /// Nothing asks for anybody.
        Ok = "ok",
        /// Something does: see the concerns.
        Attention = "attention",
    }
);

/// Something that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Concern {
    /// A stable word for programs.
    pub code: String,
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

/// Those that are not terminated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fleet {
    pub by_health: Vec<HealthRow>,
    pub totals: Totals,
}

/// The control plane at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// Judged over everything, whatever part of it is left out of the answer.
    pub status: OverviewStatus,
    pub concerns: Vec<Concern>,
    pub server: ServerInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub containers: Option<Fleet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reconciler: Option<ReconcilerStatus>,
}

impl Overview {
    pub fn new(server: ServerInfo, containers: Fleet, reconciler: ReconcilerStatus) -> Self {
        let concerns = concerns(&containers, &reconciler);
        let status = if concerns.is_empty() { OverviewStatus::Ok } else { OverviewStatus::Attention };
        Self { status, concerns, server, containers: Some(containers), reconciler: Some(reconciler) }
    }
}

fn concerns(fleet: &Fleet, reconciler: &ReconcilerStatus) -> Vec<Concern> {
    let mut all = Vec::new();
    let mut add = |code: &str, message: String, fix: &str| {
        all.push(Concern { code: code.to_owned(), message, fix: fix.to_owned() });
    };
    if !reconciler.running {
        add("reconciler_stopped", "the reconciler is not running".into(), "start a server: 'parhelia up'");
    }
    for provider in &reconciler.providers {
        let name = &provider.name;
        if let Some(since) = provider.unreachable_since {
            let message = format!("{name} has not answered since {since}; what it runs is unknown");
            add("provider_unreachable", message, "check the provider; nothing is concluded from its silence");
        }
        if let Some(since) = provider.breaker_since {
            let message = format!("more than half of {name} disappeared at once ({since})");
            add(
                "mass_disappearance",
                message,
                "check the provider; it is believed after three equal listings",
            );
        }
        if let Some(error) = provider.last_cycle.as_ref().and_then(|cycle| cycle.error.as_ref())
            && provider.unreachable_since.is_none()
        {
            add("pass_failed", format!("the last pass over {name} failed: {error}"), "see the server's log");
        }
    }
    for row in fleet.by_health.iter().filter(|row| row.count > 0) {
        let (code, fix) = match row.health.as_str() {
            "degraded" => ("degraded", "look at its events and its output"),
            "unhealthy" => ("unhealthy", "look at its events and its output; end it if it is stuck"),
            "dead" => ("dead", "end it, or 'parhelia cleanup --dead' for all of them"),
            ORPHANED => ("orphaned", "end what nobody needs: 'parhelia cleanup --orphans'"),
            _ => continue,
        };
        let noun = if row.count == 1 { "container is" } else { "containers are" };
        add(code, format!("{} {noun} {}", row.count, row.health), fix);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ProviderStatus;

    fn fleet(rows: &[(&str, usize)]) -> Fleet {
        let row = |(health, count): &(&str, usize)| HealthRow {
            health: (*health).to_owned(),
            count: *count,
            containers: Vec::new(),
        };
        Fleet { by_health: rows.iter().map(row).collect(), totals: Totals::default() }
    }

    fn status(unreachable: bool) -> ReconcilerStatus {
        let provider = ProviderStatus {
            name: "docker".into(),
            identity: None,
            unreachable_since: unreachable.then(|| "2026-01-21T14:30:00Z".parse().unwrap()),
            breaker_since: None,
            breaker_agreed: 0,
            last_cycle: None,
        };
        ReconcilerStatus {
            running: true,
            last_run_at: None,
            next_run_at: None,
            poll_interval_seconds: 60,
            auto_terminate_orphans: false,
            auto_terminate_stale: false,
            providers: vec![provider],
        }
    }

    #[test]
    fn nothing_is_a_concern_while_all_is_well() {
        let well = fleet(&[("healthy", 3), ("degraded", 0), ("orphaned", 0), ("unknown", 2)]);
        assert_eq!(concerns(&well, &status(false)), []);
    }

    #[test]
    fn every_concern_says_what_to_do() {
        let ill = fleet(&[("healthy", 1), ("degraded", 1), ("unhealthy", 2), ("dead", 3), ("orphaned", 4)]);
        let mut stopped = status(true);
        stopped.running = false;
        let found = concerns(&ill, &stopped);
        let codes: Vec<&str> = found.iter().map(|c| c.code.as_str()).collect();
        assert_eq!(
            codes,
            ["reconciler_stopped", "provider_unreachable", "degraded", "unhealthy", "dead", "orphaned"]
        );
        assert!(found.iter().all(|c| !c.fix.is_empty() && !c.message.is_empty()), "{found:?}");
        assert_eq!(found[2].message, "1 container is degraded");
        assert_eq!(found[5].message, "4 containers are orphaned");
    }
}
