//! Conformance: owners, leadership, instances, foreign sandboxes, providers and their passes.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::{World, about, at, cid, event, intent, owner, sandbox};
use parhelia_core::event::EventType;
use parhelia_core::reconcile::{Counts, ProviderMemory, Waiting};
use parhelia_core::state::TerminationReason;
use parhelia_store::{CycleOutcome, EventFilter, Fence, NewCycle, StoreError, Wish};
use tokio::sync::watch;
use tokio::task::JoinSet;

#[tokio::test]
async fn the_lead_is_taken_by_one_and_the_epoch_always_rises() {
    for w in World::each().await {
        let s = &w.store;
        s.register_owner(&owner("o-2")).await.unwrap();
        assert!(s.register_owner(&owner("o-2")).await.unwrap_err().is_conflict());
        assert_eq!(w.fence.epoch, 1);
        assert!(s.take_leadership("o-2", at(15), at(5), false).await.unwrap_err().is_conflict());
        s.renew_leadership(&w.fence, at(20)).await.unwrap();
        assert!(s.take_leadership("o-2", at(25), at(15), false).await.unwrap_err().is_conflict());
        // Expired: anybody may.
        assert_eq!(s.take_leadership("o-2", at(30), at(20), false).await.unwrap(), 2);
        assert!(matches!(s.renew_leadership(&w.fence, at(40)).await, Err(StoreError::Fenced { .. })));
        // The same owner again: still a new epoch.
        assert_eq!(s.take_leadership("o-2", at(31), at(21), false).await.unwrap(), 3);
        // By force, with proof that the other is gone.
        assert_eq!(s.take_leadership("o-1", at(32), at(22), true).await.unwrap(), 4);
        let now = s.leadership().await.unwrap().unwrap();
        assert_eq!((now.owner_id.as_str(), now.epoch, now.lease_until), ("o-1", 4, at(32)));
        let owners = s.owners().await.unwrap();
        assert_eq!(
            owners.iter().map(|o| (o.id.as_str(), o.epoch)).collect::<Vec<_>>(),
            [("o-1", 4), ("o-2", 3)]
        );
        assert!(s.take_leadership("nobody", at(99), at(90), true).await.unwrap_err().is_conflict());
    }
}

#[tokio::test]
async fn an_owner_that_ends_leaves_the_lead_at_once() {
    for w in World::each().await {
        let s = &w.store;
        s.register_owner(&owner("o-2")).await.unwrap();
        s.renew_owner("o-1", at(90)).await.unwrap();
        s.renew_leadership(&w.fence, at(90)).await.unwrap();
        s.end_owner("o-1", at(10), event(EventType::ServerStopped)).await.unwrap();
        assert!(s.end_owner("o-1", at(11), event(EventType::ServerStopped)).await.unwrap_err().is_conflict());
        assert!(s.renew_owner("o-1", at(99)).await.unwrap_err().is_conflict());
        assert_eq!(s.take_leadership("o-2", at(30), at(10), false).await.unwrap(), 2);
        assert_eq!(s.owners().await.unwrap()[0].ended_at, Some(at(10)));
        assert_eq!(w.told().await, [EventType::ServerStopped]);
    }
}

#[tokio::test]
async fn an_event_says_whose_fence_guarded_it_and_in_which_epoch() {
    for w in World::each().await {
        let s = &w.store;
        s.announce(&w.fence, vec![event(EventType::LeaderElected)], at(1)).await.unwrap();
        s.announce(&Fence::of_owner("o-1"), vec![event(EventType::ServerStarted)], at(1)).await.unwrap();
        s.append_events(vec![event(EventType::ServerStarted)], at(1)).await.unwrap();
        s.register(intent(1), vec![about(EventType::ContainerCreated, &cid(1))], at(1)).await.unwrap();
        let told = || about(EventType::StopRequested, &cid(1));
        let why = TerminationReason::Silent;
        let wish = Wish { by: "reconciler", reason: why, grace_seconds: 0, event: told() };
        s.desire_termination(Some(&w.fence), &cid(1), wish, at(2)).await.unwrap();
        s.stop_seen(&w.fence, &cid(1), 1, at(3), Some(about(EventType::StopSeen, &cid(1)))).await.unwrap();
        s.end_owner("o-1", at(4), event(EventType::ServerStopped)).await.unwrap();
        let filter = EventFilter { limit: Some(100), ..Default::default() };
        let writers: Vec<_> =
            s.events(&filter).await.unwrap().into_iter().map(|e| (e.owner_id, e.epoch)).collect();
        let (led, own, nobody) =
            ((Some("o-1".to_owned()), Some(1)), (Some("o-1".to_owned()), None), (None, None));
        assert_eq!(writers, [led.clone(), own.clone(), nobody.clone(), nobody, led.clone(), led, own]);
    }
}

async fn more_tried(tried: &watch::Sender<i64>, more: i64) {
    let mut tried = tried.subscribe();
    let now = *tried.borrow_and_update();
    tried.wait_for(|n| *n >= now + more).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_leaders_epochs_never_go_down_in_the_history_whoever_hurries() {
    const ELECTIONS: i64 = 60;
    // Not the inline one: it has one caller by its nature.
    for w in World::each().await.into_iter().filter(|w| w.is_concurrent()) {
        let s = &w.store;
        s.register_owner(&owner("o-2")).await.unwrap();
        let lead = watch::Sender::new(Some(w.fence.clone()));
        let tried = watch::Sender::new(0_i64);
        let mut writers = JoinSet::new();
        for _ in 0..8 {
            let (store, mut lead, tried) = (s.clone(), lead.subscribe(), tried.clone());
            // Learns of the next election when it may: until then it writes on in the old epoch.
            writers.spawn(async move {
                let mut refused = 0;
                loop {
                    let Some(fence) = lead.borrow_and_update().clone() else { return refused };
                    for _ in 0..3 {
                        match store.announce(&fence, vec![event(EventType::LeaderElected)], at(1)).await {
                            Ok(()) => {}
                            Err(StoreError::Fenced { .. }) => refused += 1,
                            Err(other) => panic!("{other}"),
                        }
                        tried.send_modify(|n| *n += 1);
                    }
                }
            });
        }
        for n in 0..ELECTIONS {
            let owner_id = if n % 2 == 0 { "o-2" } else { "o-1" };
            let epoch = s.take_leadership(owner_id, at(60), at(1), true).await.unwrap();
            more_tried(&tried, 8).await;
            lead.send_replace(Some(Fence { owner_id: owner_id.into(), epoch }));
            more_tried(&tried, 8).await;
        }
        lead.send_replace(None);
        let refused: i32 = writers.join_all().await.into_iter().sum();
        let filter = EventFilter { limit: Some(1_000_000), ..Default::default() };
        let written = s.events(&filter).await.unwrap();
        let epochs: Vec<i64> = written.iter().map(|e| e.epoch.unwrap()).collect();
        assert!(epochs.is_sorted(), "an epoch went down: {epochs:?}");
        assert!(written.windows(2).all(|p| p[0].epoch != p[1].epoch || p[0].owner_id == p[1].owner_id));
        assert!(refused > 0 && epochs.last() > Some(&(ELECTIONS / 2)), "{refused} {epochs:?}");
    }
}

#[tokio::test]
async fn the_first_start_names_the_instance_for_ever() {
    for w in World::each().await {
        assert_eq!(w.store.this_instance("inst-1", at(0)).await.unwrap(), "inst-1");
        assert_eq!(w.store.this_instance("inst-9", at(1)).await.unwrap(), "inst-1");
        assert_eq!(w.store.our_instances().await.unwrap(), ["inst-1".to_owned()].into());
    }
}

#[tokio::test]
async fn foreign_sandboxes_are_shown_and_adopted_whole() {
    for w in World::each().await {
        let s = &w.store;
        s.this_instance("inst-1", at(0)).await.unwrap();
        for n in [1, 2, 3] {
            let told = (n == 1).then(|| event(EventType::ForeignDetected));
            s.upsert_foreign(&w.fence, "docker", "engine-1", &sandbox(n, "inst-2"), at(5), told)
                .await
                .unwrap();
        }
        s.upsert_foreign(&w.fence, "docker", "engine-1", &sandbox(1, "inst-2"), at(9), None).await.unwrap();
        s.foreign_gone(&w.fence, "docker", "sb-3", at(9)).await.unwrap();
        s.foreign_gone(&w.fence, "docker", "sb-never", at(9)).await.unwrap();
        let shown = s.foreign(Some("docker"), None).await.unwrap();
        assert_eq!(shown.len(), 2);
        assert_eq!((shown[0].first_seen_at, shown[0].last_seen_at), (at(5), at(9)));
        assert_eq!((shown[0].container_id.clone(), shown[0].region.as_deref()), (cid(1), Some("eu")));
        assert!(s.foreign(None, Some("inst-3")).await.unwrap().is_empty());
        assert_eq!(s.known_foreign("docker", "engine-1").await.unwrap().len(), 2);
        let listed = s.instances().await.unwrap();
        assert_eq!(
            listed.iter().map(|i| (i.id.as_str(), i.foreign_alive)).collect::<Vec<_>>(),
            [("inst-1", 0), ("inst-2", 2)]
        );

        let rows = || {
            let mut all = vec![];
            for n in [1, 2] {
                let mut new = intent(n);
                new.sandbox_id = Some(format!("sb-{n}"));
                new.instance_id = "inst-2".into();
                let told = vec![about(EventType::ContainerAdopted, &new.id)];
                all.push((new, told));
            }
            all
        };
        let adopted = || event(EventType::InstanceAdopted);
        // One row that cannot be written: nothing is adopted.
        let mut broken = rows();
        broken[1].0.id = cid(1);
        assert!(
            s.adopt_instance("inst-2", "alice", broken, adopted(), at(10)).await.unwrap_err().is_conflict()
        );
        assert_eq!(s.our_instances().await.unwrap().len(), 1);
        assert_eq!(s.known_foreign("docker", "engine-1").await.unwrap().len(), 2);

        s.adopt_instance("inst-2", "alice", rows(), adopted(), at(10)).await.unwrap();
        assert_eq!(s.our_instances().await.unwrap().len(), 2);
        assert!(s.known_foreign("docker", "engine-1").await.unwrap().is_empty());
        assert_eq!(s.live_count().await.unwrap(), 2);
        let taken = &s.instances().await.unwrap()[1];
        assert_eq!((taken.adopted_at, taken.adopted_by.as_deref()), (Some(at(10)), Some("alice")));
        let own = s.adopt_instance("inst-1", "alice", vec![], adopted(), at(11)).await;
        assert!(own.unwrap_err().is_conflict(), "an instance cannot adopt itself");
        use EventType::{ContainerAdopted, ForeignDetected, InstanceAdopted};
        assert_eq!(w.told().await, [ForeignDetected, InstanceAdopted, ContainerAdopted, ContainerAdopted]);
    }
}

fn cycle(started: i64, outcome: CycleOutcome) -> NewCycle {
    NewCycle {
        trigger: "timer".into(),
        started_at: at(started),
        finished_at: at(started + 1),
        duration_ms: 1000,
        outcome,
        error: (outcome != CycleOutcome::Ok).then(|| "connection refused".into()),
        counts: Counts { sandboxes: 3, rows: 2, orphans: 1, foreign: 4, ..Default::default() },
        actions: 5,
        failures: 1,
        waiting: vec![Waiting { id: Some(cid(1)), why: "inside its grace".into() }],
        next_at: Some(at(started + 60)),
    }
}

#[tokio::test]
async fn a_pass_is_kept_with_what_it_remembers_and_announces() {
    for w in World::each().await {
        let s = &w.store;
        assert_eq!(s.provider_memory("docker").await.unwrap(), ProviderMemory::default());
        assert!(s.last_cycle("docker").await.unwrap().is_none());
        let memory = ProviderMemory {
            identity: Some("engine-1".into()),
            unreachable_since: Some(at(3)),
            breaker_since: Some(at(4)),
            breaker_agreed: 2,
            breaker_agreed_at: Some(at(5)),
        };
        let told = vec![event(EventType::ProviderUnreachable)];
        let first = cycle(10, CycleOutcome::Unreachable);
        s.save_cycle(&w.fence, "docker", &memory, &first, told, at(11)).await.unwrap();
        assert_eq!(s.provider_memory("docker").await.unwrap(), memory);
        let second = cycle(70, CycleOutcome::Ok);
        s.save_cycle(&w.fence, "docker", &ProviderMemory::default(), &second, vec![], at(71)).await.unwrap();
        s.save_cycle(&w.fence, "process", &memory, &first, vec![], at(72)).await.unwrap();
        assert_eq!(s.provider_memory("docker").await.unwrap(), ProviderMemory::default());

        let last = s.last_cycle("docker").await.unwrap().unwrap();
        assert_eq!((last.started_at, last.outcome, last.error.clone()), (at(70), CycleOutcome::Ok, None));
        assert_eq!(
            (last.counts.clone(), last.waiting.clone()),
            (second.counts.clone(), second.waiting.clone())
        );
        assert_eq!((last.actions, last.failures, last.next_at), (5, 1, Some(at(130))));
        let all = s.last_cycles(2).await.unwrap();
        assert_eq!(all.iter().map(|c| c.provider.as_str()).collect::<Vec<_>>(), ["process", "docker"]);

        let old = Fence { epoch: 0, ..w.fence.clone() };
        let late = s
            .save_cycle(&old, "docker", &memory, &first, vec![event(EventType::ReconcileFailed)], at(80))
            .await;
        assert!(matches!(late, Err(StoreError::Fenced { .. })));
        assert_eq!(s.provider_memory("docker").await.unwrap(), ProviderMemory::default());
        assert_eq!(s.delete_old_cycles(&w.fence, at(60)).await.unwrap(), 2);
        assert_eq!(s.last_cycles(10).await.unwrap().len(), 1);
        assert_eq!(w.told().await, [EventType::ProviderUnreachable]);
    }
}

#[tokio::test]
async fn of_two_owners_who_would_end_each_other_one_does() {
    for w in World::each().await {
        let s = &w.store;
        s.register_owner(&owner("o-2")).await.unwrap();
        let (one, two) = (Fence::of_owner("o-1"), Fence::of_owner("o-2"));
        s.expire_owner(&one, "o-2", at(59), at(100)).await.unwrap();
        assert_eq!(s.owners().await.unwrap()[1].ended_at, None, "it has renewed its lease since");
        s.expire_owner(&one, "o-2", at(60), at(100)).await.unwrap();
        let refused = s.expire_owner(&two, "o-1", at(60), at(101)).await;
        assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
        let ended = s.owners().await.unwrap().into_iter().map(|o| o.ended_at).collect::<Vec<_>>();
        assert_eq!(ended, [None, Some(at(100))]);
    }
}
