//! Small cascades of every shape, walked step by step: whatever becomes of what they start, the order holds, nothing is
//! done twice, and they come to an end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use super::world::*;
use crate::ids::TaskId;
use crate::session::WaitStatus;
use crate::state::TerminationReason;

/// More than any of these cascades needs, with every retry.
const MOST_STEPS: usize = 1000;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Run,
    Level(usize),
    Signal,
    Approval,
    Set,
}

#[derive(Debug, Clone)]
struct Shape {
    kind: Kind,
    retries: u32,
    /// Absent: the phase before it. The bits choose among the earlier ones.
    needs: Option<u8>,
}

impl Shape {
    fn needs(&self, place: usize) -> Vec<usize> {
        match self.needs {
            None => place.checked_sub(1).into_iter().collect(),
            Some(bits) => (0..place).filter(|earlier| bits & (1 << earlier) != 0).collect(),
        }
    }

    fn phase(&self, place: usize) -> Value {
        let name = format!("p{place}");
        let retry = json!({ "max": self.retries, "base_seconds": 1 });
        let mut phase = match self.kind {
            Kind::Run => json!({ "run": ["true"], "retry": retry }),
            Kind::Level(size) => {
                let task = |n| json!({ "id": format!("{name}t{n}"), "run": ["true"], "retry": retry });
                json!({ "tasks": (0..size).map(task).collect::<Vec<_>>() })
            }
            Kind::Signal => json!({ "await": { "signal": &name } }),
            Kind::Approval => json!({ "await": { "approval": "may it?" } }),
            Kind::Set => json!({ "set": { "n": place } }),
        };
        if self.needs.is_some() {
            let needs: Vec<_> = self.needs(place).into_iter().map(|need| format!("p{need}")).collect();
            phase["needs"] = json!(needs);
        }
        phase["name"] = json!(name);
        phase
    }
}

prop_compose! {
    fn any_shape()(
        kind in prop_oneof![
            Just(Kind::Run), (1..4usize).prop_map(Kind::Level), Just(Kind::Signal), Just(Kind::Approval), Just(Kind::Set)
        ],
        retries in 0..3u32,
        needs in prop::option::of(any::<u8>()),
    ) -> Shape {
        Shape { kind, retries, needs }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    Bad,
    Crash,
}

fn any_outcome() -> impl Strategy<Value = (usize, Outcome)> {
    // Mostly good, so that many come far.
    let outcome = prop_oneof![4 => Just(Outcome::Good), 1 => Just(Outcome::Bad), 1 => Just(Outcome::Crash)];
    (0..8usize, outcome)
}

struct Walk {
    world: World,
    shapes: Vec<Shape>,
    ended: BTreeMap<usize, PhaseStatus>,
    alive: BTreeSet<TaskId>,
    completed: BTreeSet<TaskId>,
}

impl Walk {
    fn new(shapes: Vec<Shape>) -> Self {
        let phases: Vec<Value> = shapes.iter().enumerate().map(|(place, shape)| shape.phase(place)).collect();
        let world = World::new(&json!({ "cascade_id": "walk", "workers": { "count": 2 }, "phases": phases }));
        let (ended, alive, completed) = Default::default();
        Self { world, shapes, ended, alive, completed }
    }

    /// Plans once and applies it; whether there is more to plan, and when to look again.
    fn step(&mut self) -> (bool, Option<Timestamp>) {
        let facts = self.world.facts();
        let cascade = self.world.cascade.clone();
        let plan = self.world.state.advance(&cascade, &self.world.surroundings, &facts, self.world.now);
        for step in plan.steps {
            self.check(&step);
            self.world.apply(step);
        }
        (plan.changed || plan.again, plan.wake_at)
    }

    fn check(&mut self, step: &Step) {
        match step {
            Step::BeginPhase { position, .. } => self.may_begin(*position),
            Step::StartAttempt { task, .. } => {
                let place = (0..self.shapes.len()).find(|place| format!("p{place}") == task.phase).unwrap();
                self.may_begin(place);
                assert!(!self.completed.contains(&task.id), "{} was completed", task.key);
                assert!(self.alive.insert(task.id.clone()), "{} is alive already", task.key);
            }
            Step::EndAttempt { task, end, .. } => {
                assert!(self.alive.remove(&task.id), "{} was not alive", task.key);
                if matches!(end, AttemptEnd::Completed { .. }) {
                    self.completed.insert(task.id.clone());
                }
            }
            Step::EndPhase { position, status, .. } => {
                let before = self.ended.insert(*position, *status);
                assert_eq!(before, None, "a phase ends once");
            }
            _ => {}
        }
    }

    /// The barrier: all that it needs is over, and was passed.
    fn may_begin(&self, place: usize) {
        assert!(!self.ended.contains_key(&place), "phase {place} is over");
        for need in self.shapes[place].needs(place) {
            let passed = self.ended.get(&need).is_some_and(|status| status.is_passed());
            assert!(passed, "phase {place} began before {need}, which it needs");
        }
    }

    /// One of the things that run or are waited for comes to this; false where there is none.
    fn give(&mut self, pick: usize, outcome: Outcome) -> bool {
        let keys: Vec<String> = self.world.open.values().map(|open| open.task.key.clone()).collect();
        let waits: Vec<_> =
            self.world.waits.iter().filter(|wait| wait.status == WaitStatus::Open).cloned().collect();
        let many = keys.len() + waits.len();
        if many == 0 {
            return false;
        }
        let pick = pick % many;
        if let Some(key) = keys.get(pick) {
            let (reason, code) = match outcome {
                Outcome::Good => (TerminationReason::Completed, Some(0)),
                Outcome::Bad => (TerminationReason::Failed, Some(1)),
                Outcome::Crash => (TerminationReason::SupervisorLost, None),
            };
            self.world.end(key, reason, code);
            return true;
        }
        let wait = &waits[pick - keys.len()];
        match self.world.cascade.phases.iter().any(|phase| phase.name == wait.wait_on) {
            // A signal is named as its phase is.
            true => self.world.fire(&wait.wait_on, true),
            false => {
                let row = self.world.wait(&wait.id);
                (row.status, row.answer) = (WaitStatus::Answered, Some(json!(outcome != Outcome::Bad)));
            }
        }
        true
    }

    /// Until it is over.
    fn go(&mut self, outcomes: Vec<(usize, Outcome)>) {
        // Those that were not generated are good ones.
        let mut outcomes = outcomes.into_iter().chain(std::iter::repeat((0, Outcome::Good)));
        for _ in 0..MOST_STEPS {
            let (more, wake_at) = self.step();
            if self.world.status().is_over() {
                return;
            }
            if more {
                continue;
            }
            let (pick, outcome) = outcomes.next().unwrap();
            if !self.give(pick, outcome) {
                let later = wake_at.filter(|at| *at > self.world.now);
                self.world.now = later.expect("it waits for something that can come");
            }
        }
        panic!("it does not come to an end: {:?}", self.world.status());
    }
}

proptest! {
    #[test]
    fn every_cascade_comes_to_an_end_in_its_order_and_does_nothing_twice(
        shapes in prop::collection::vec(any_shape(), 1..6),
        outcomes in prop::collection::vec(any_outcome(), 0..40),
    ) {
        let mut walk = Walk::new(shapes);
        walk.go(outcomes);
        prop_assert!(walk.alive.is_empty(), "nothing outlives its session");
        let status = walk.world.status();
        let all_passed = walk.ended.len() == walk.shapes.len() && walk.ended.values().all(|status| status.is_passed());
        prop_assert_eq!(status == SessionStatus::Completed, all_passed, "{:?}", walk.ended);
        // What is over stays so, whatever comes later.
        walk.world.now = at(1_000_000);
        let (more, wake_at) = walk.step();
        prop_assert_eq!((more, wake_at, walk.world.status()), (false, None, status));
    }
}
