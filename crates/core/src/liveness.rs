//! The one liveness ladder (writers beat every 30 s), and the planner that moves containers along it.
//!
//! Age is how long *this observer* has seen no new heartbeat on its own monotonic clock: neither our own
//! outage nor a jump of the wall clock makes anybody older.

use serde::{Deserialize, Serialize};

use crate::event::EventType;
use crate::ids::ContainerId;
use crate::state::Health;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    pub degraded_seconds: f64,
    pub unhealthy_seconds: f64,
    pub dead_seconds: f64,
    /// After a start nobody is called dead by silence alone for this long.
    pub resumption_seconds: f64,
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            degraded_seconds: 120.0,
            unhealthy_seconds: 300.0,
            dead_seconds: 600.0,
            resumption_seconds: 300.0,
        }
    }
}

impl Ladder {
    /// `< 120 s` healthy, `≥ 120 s` degraded, `≥ 300 s` unhealthy, `> 600 s` dead.
    pub fn assess(&self, silent_seconds: f64) -> Health {
        if silent_seconds > self.dead_seconds {
            Health::Dead
        } else if silent_seconds >= self.unhealthy_seconds {
            Health::Unhealthy
        } else if silent_seconds >= self.degraded_seconds {
            Health::Degraded
        } else {
            Health::Healthy
        }
    }
}

/// What the health loop knows of one live container.
#[derive(Debug, Clone, PartialEq)]
pub struct Patient {
    pub id: ContainerId,
    pub task_id: Option<String>,
    pub health: Health,
    /// This observer has received a heartbeat of it. Without one it can only get worse: a restart of ours
    /// is no news about anybody.
    pub heard: bool,
    /// Since this observer last received a heartbeat, or first saw the container.
    pub silent_seconds: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HealthChange {
    pub id: ContainerId,
    pub task_id: Option<String>,
    pub from: Health,
    pub to: Health,
    pub event: EventType,
    /// Whole 60 s windows without a heartbeat.
    pub missed: i64,
    pub message: String,
}

/// `observer_seconds` is how long this observer has been watching at all.
pub fn plan_health(patients: &[Patient], observer_seconds: f64, ladder: &Ladder) -> Vec<HealthChange> {
    patients.iter().filter_map(|p| change(p, observer_seconds, ladder)).collect()
}

fn change(p: &Patient, observer_seconds: f64, ladder: &Ladder) -> Option<HealthChange> {
    let mut to = ladder.assess(p.silent_seconds);
    if to == Health::Dead && observer_seconds < ladder.resumption_seconds {
        to = Health::Unhealthy;
    }
    let news = p.heard || (to != Health::Healthy && rank(to) > rank(p.health));
    if to == p.health || !news {
        return None;
    }
    let missed = (p.silent_seconds / 60.0).floor().max(0.0) as i64;
    let silence = match missed {
        0 => format!("No heartbeat for {}s", p.silent_seconds as i64),
        missed => format!("Missed {missed} heartbeats"),
    };
    let (event, message) = match (p.health, to) {
        (Health::Unknown, Health::Healthy) => {
            (EventType::ContainerHealthy, "Initial health check passed".to_owned())
        }
        (_, Health::Healthy) => (EventType::ContainerRecovered, "Health recovered".to_owned()),
        (_, Health::Degraded) => (EventType::ContainerDegraded, silence),
        (_, Health::Unhealthy) => (
            EventType::ContainerUnhealthy,
            match missed {
                0 => silence,
                missed => {
                    format!("No heartbeat for {}s: missed {missed} heartbeats", p.silent_seconds as i64)
                }
            },
        ),
        (_, Health::Dead) => {
            (EventType::ContainerDead, format!("{silence}: marked for cleanup ('parhelia cleanup --dead')"))
        }
        (_, Health::Unknown) => return None,
    };
    let missed = if to == Health::Healthy { 0 } else { missed };
    Some(HealthChange {
        id: p.id.clone(),
        task_id: p.task_id.clone(),
        from: p.health,
        to,
        event,
        missed,
        message,
    })
}

fn rank(health: Health) -> u8 {
    match health {
        Health::Unknown => 0,
        Health::Healthy => 1,
        Health::Degraded => 2,
        Health::Unhealthy => 3,
        Health::Dead => 4,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patient(health: Health, silent_seconds: f64) -> Patient {
        Patient { id: ContainerId::mint(1, 1), task_id: None, health, heard: true, silent_seconds }
    }

    fn next(health: Health, silent: f64, observer: f64) -> Option<(Health, EventType, i64)> {
        plan_health(&[patient(health, silent)], observer, &Ladder::default())
            .pop()
            .map(|c| (c.to, c.event, c.missed))
    }

    #[test]
    fn the_boundaries_of_the_ladder() {
        let ladder = Ladder::default();
        for (age, health) in [
            (0.0, Health::Healthy),
            (119.0, Health::Healthy),
            (120.0, Health::Degraded),
            (299.0, Health::Degraded),
            (300.0, Health::Unhealthy),
            (599.0, Health::Unhealthy),
            (600.0, Health::Unhealthy),
            (601.0, Health::Dead),
        ] {
            assert_eq!(ladder.assess(age), health, "{age}");
        }
    }

    #[test]
    fn each_step_has_its_event() {
        assert_eq!(
            next(Health::Healthy, 120.0, 1e6),
            Some((Health::Degraded, EventType::ContainerDegraded, 2))
        );
        assert_eq!(
            next(Health::Degraded, 300.0, 1e6),
            Some((Health::Unhealthy, EventType::ContainerUnhealthy, 5))
        );
        assert_eq!(next(Health::Unhealthy, 601.0, 1e6), Some((Health::Dead, EventType::ContainerDead, 10)));
        assert_eq!(next(Health::Dead, 1.0, 1e6), Some((Health::Healthy, EventType::ContainerRecovered, 0)));
        assert_eq!(next(Health::Unknown, 1.0, 1e6), Some((Health::Healthy, EventType::ContainerHealthy, 0)));
    }

    #[test]
    fn nothing_changes_twice() {
        assert_eq!(next(Health::Degraded, 150.0, 1e6), None);
        assert_eq!(next(Health::Healthy, 10.0, 1e6), None);
    }

    #[test]
    fn nobody_dies_of_silence_in_the_resumption_window() {
        let mut ladder = Ladder {
            dead_seconds: 100.0,
            unhealthy_seconds: 50.0,
            degraded_seconds: 20.0,
            ..Ladder::default()
        };
        ladder.resumption_seconds = 300.0;
        let change = plan_health(&[patient(Health::Healthy, 200.0)], 200.0, &ladder).pop().unwrap();
        assert_eq!(change.to, Health::Unhealthy);
        let change = plan_health(&[patient(Health::Healthy, 301.0)], 301.0, &ladder).pop().unwrap();
        assert_eq!(change.to, Health::Dead);
    }

    #[test]
    fn a_restart_alone_makes_nobody_better() {
        let mut p = patient(Health::Dead, 5.0);
        p.heard = false;
        assert!(plan_health(&[p.clone()], 5.0, &Ladder::default()).is_empty(), "the recorded `dead` stands");
        p.heard = true;
        assert_eq!(plan_health(&[p], 5.0, &Ladder::default()).pop().unwrap().to, Health::Healthy);
    }

    #[test]
    fn a_container_never_heard_climbs_the_ladder_too() {
        let mut p = patient(Health::Unknown, 30.0);
        p.heard = false;
        assert!(plan_health(&[p.clone()], 1e6, &Ladder::default()).is_empty());
        p.silent_seconds = 301.0;
        assert_eq!(plan_health(&[p], 1e6, &Ladder::default()).pop().unwrap().to, Health::Unhealthy);
    }

    prop_compose! {
        fn any_ladder()(steps in [1..300, 1..300, 1..300], resumption_seconds in 0..900) -> Ladder {
            let [degraded, unhealthy, dead] = steps.map(f64::from);
            Ladder {
                degraded_seconds: degraded,
                unhealthy_seconds: degraded + unhealthy,
                dead_seconds: degraded + unhealthy + dead,
                resumption_seconds: f64::from(resumption_seconds),
            }
        }
    }

    prop_compose! {
        fn any_patient()(
            n in any::<u64>(),
            health in prop::sample::select(Health::ALL),
            heard in any::<bool>(),
            silent in 0..1200,
        ) -> Patient {
            let id = ContainerId::mint(1, n);
            Patient { id, task_id: None, health, heard, silent_seconds: f64::from(silent) }
        }
    }

    fn fleet() -> impl Strategy<Value = Vec<Patient>> {
        prop::collection::vec(any_patient(), 0..8)
    }

    /// Its health when the plan has been carried out.
    fn afterwards(p: &Patient, observer_seconds: f64, ladder: &Ladder) -> Health {
        change(p, observer_seconds, ladder).map_or(p.health, |change| change.to)
    }

    proptest! {
        #[test]
        fn longer_silence_is_never_better(p in any_patient(), more in 0..1200, observer in 0..1200, ladder in any_ladder()) {
            let longer = Patient { silent_seconds: p.silent_seconds + f64::from(more), ..p.clone() };
            let [sooner, later] = [&p, &longer].map(|p| afterwards(p, f64::from(observer), &ladder));
            prop_assert!(rank(sooner) <= rank(later), "{sooner} and then {later}");
        }

        #[test]
        fn nobody_is_called_dead_in_the_resumption_window(fleet in fleet(), left in 1..900, ladder in any_ladder()) {
            let observer = ladder.resumption_seconds - f64::from(left);
            prop_assert!(plan_health(&fleet, observer, &ladder).iter().all(|change| change.to != Health::Dead));
        }

        #[test]
        fn a_settled_fleet_is_left_alone(mut fleet in fleet(), ladder in any_ladder()) {
            fleet.iter_mut().for_each(|p| p.health = ladder.assess(p.silent_seconds));
            prop_assert_eq!(plan_health(&fleet, ladder.resumption_seconds, &ladder), []);
        }

        #[test]
        fn what_was_planned_is_not_planned_again(mut fleet in fleet(), observer in 0..1200, ladder in any_ladder()) {
            fleet.iter_mut().for_each(|p| p.health = afterwards(p, f64::from(observer), &ladder));
            prop_assert_eq!(plan_health(&fleet, f64::from(observer), &ladder), []);
        }
    }
}
