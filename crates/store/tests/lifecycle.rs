//! Conformance: the life of a container, from intent to its end, with every guard.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::{World, about, at, cid, event, intent};
use parhelia_core::event::{EventType, NewEvent};
use parhelia_core::heartbeat::Sample;
use parhelia_core::reconcile::Observed;
use parhelia_core::state::{ContainerState, CostSource, Desired, Health, TerminationReason};
use parhelia_store::{DesireOutcome, Fence, Silence, StoreError, Wish};

fn stale() -> Fence {
    Fence { owner_id: "o-1".into(), epoch: 0 }
}

fn wish(by: &str, reason: TerminationReason, grace_seconds: i64, event: NewEvent) -> Wish<'_> {
    Wish { by, reason, grace_seconds, event }
}

#[tokio::test]
async fn what_is_registered_reads_back_whole() {
    for w in World::each().await {
        let mut new = intent(1);
        new.keep = true;
        new.task_title = Some("Fix the login".into());
        new.metadata = serde_json::json!({"note": "café ✓ 'quoted' $1"});
        let id = new.id.clone();
        w.store.register(new.clone(), vec![about(EventType::ContainerCreated, &id)], at(1)).await.unwrap();
        let row = w.row(&id).await;
        assert_eq!(row.id, id);
        assert_eq!(row.provider, "docker");
        assert_eq!(row.instance_id, "inst-1");
        assert_eq!(row.name, new.name);
        assert_eq!(row.task_id.as_deref(), Some("A-L1-001"));
        assert_eq!(row.session_id.as_deref(), Some("sess-1"));
        assert_eq!(
            (row.state, row.desired, row.health_status),
            (ContainerState::Created, Desired::Running, Health::Unknown)
        );
        assert_eq!(
            (row.cpu_cores, row.memory_mb, row.gpu_type.as_deref()),
            (Some(2.0), Some(4096), Some("A10G"))
        );
        assert_eq!(row.command, new.command);
        assert_eq!(row.labels, new.labels);
        assert_eq!(row.spec, new.spec);
        assert_eq!(row.metadata, new.metadata);
        assert_eq!((row.created_at, row.updated_at), (at(1), at(1)));
        assert_eq!((row.keep, row.cost_source, row.sandbox_id), (true, CostSource::Estimated, None));
        assert_eq!(w.told().await, [EventType::ContainerCreated]);
        let task = w.store.task("A-L1-001").await.unwrap().unwrap();
        assert_eq!((task.state.as_str(), task.title.as_str()), ("pending", "Fix the login"));
    }
}

#[tokio::test]
async fn a_second_row_under_one_id_is_a_conflict_that_leaves_no_event() {
    for w in World::each().await {
        let id = w.running(1).await;
        let error = w
            .store
            .register(intent(1), vec![about(EventType::ContainerCreated, &id)], at(2))
            .await
            .unwrap_err();
        assert!(matches!(&error, StoreError::Conflict { step: "container_insert", .. }), "{error}");
        assert!(error.to_string().contains("containers.id"), "{error}");
        // The same sandbox under another id is no better.
        let mut twin = intent(2);
        twin.sandbox_id = Some("sb-1".into());
        let twin_id = twin.id.clone();
        assert!(w.store.register(twin, vec![], at(2)).await.unwrap_err().is_conflict());
        assert!(w.store.container(&twin_id).await.unwrap().is_none());
        assert!(w.store.task("A-L1-002").await.unwrap().is_none(), "a failed script leaves nothing");
        assert!(w.told().await.is_empty());
    }
}

#[tokio::test]
async fn a_failing_event_takes_its_state_change_with_it() {
    for w in World::each().await {
        let id = w.running(1).await;
        let mut observed = Observed::of(&w.tracked(&id).await);
        observed.state = ContainerState::Stopped;
        // An event about a container that nobody knows breaks a foreign key, after the update.
        let events =
            vec![about(EventType::ContainerStopped, &id), about(EventType::ContainerStopped, &cid(99))];
        let error = w
            .store
            .observe(&w.fence, &id, ContainerState::Running, &observed, events, at(9))
            .await
            .unwrap_err();
        assert!(error.is_conflict(), "{error}");
        assert_eq!(w.state(&id).await, ContainerState::Running);
        assert!(w.told().await.is_empty());
    }
}

#[tokio::test]
async fn an_attempt_to_create_is_claimed_once() {
    for w in World::each().await {
        let (a, b) = (intent(1), intent(2));
        let (id, other) = (a.id.clone(), b.id.clone());
        w.store.register(a, vec![], at(0)).await.unwrap();
        w.store.register(b, vec![], at(0)).await.unwrap();
        w.store.claim_create(&w.fence, &id, 0, "engine-1", None, at(1)).await.unwrap();
        assert!(
            w.store.claim_create(&w.fence, &id, 0, "engine-1", None, at(2)).await.unwrap_err().is_conflict()
        );
        w.store.claim_create(&w.fence, &id, 1, "engine-1", None, at(3)).await.unwrap();
        let row = w.row(&id).await;
        assert_eq!((row.create_attempts, row.create_attempted_at), (2, Some(at(3))));

        w.store.record_created(&w.fence, &id, "sb-1", "engine-1", at(4)).await.unwrap();
        w.store.record_created(&w.fence, &id, "sb-1", "engine-1", at(4)).await.unwrap();
        assert!(
            w.store.record_created(&w.fence, &id, "sb-2", "engine-1", at(5)).await.unwrap_err().is_conflict()
        );
        assert_eq!(w.row(&id).await.sandbox_id.as_deref(), Some("sb-1"));

        // No longer wanted: the intent is not carried out any more.
        let asked = event(EventType::StopRequested);
        let wish = wish("me", TerminationReason::Manual, 5, asked);
        w.store.desire_termination(None, &other, wish, at(5)).await.unwrap();
        assert!(
            w.store
                .claim_create(&w.fence, &other, 0, "engine-1", None, at(6))
                .await
                .unwrap_err()
                .is_conflict()
        );
    }
}

#[tokio::test]
async fn an_observation_writes_its_columns_if_the_state_is_still_the_expected_one() {
    for w in World::each().await {
        let id = w.running(1).await;
        w.store
            .register_worker("w-1", Some(id.as_str()), Some("t"), None, &serde_json::json!({}), at(2))
            .await
            .unwrap();
        let mut observed = Observed::of(&w.tracked(&id).await);
        observed.state = ContainerState::Terminated;
        observed.terminated_at = Some(at(50));
        observed.exit_code = Some(137);
        observed.termination_reason = Some(TerminationReason::Oom);
        observed.stop_confirmed_at = Some(at(51));
        observed.region = Some("eu-west".into());
        observed.cost_accrued_usd = 1.25;
        observed.cost_rate_per_hour = Some(0.5);
        observed.cost_source = CostSource::Reported;
        let told = vec![about(EventType::ContainerTerminated, &id)];
        let wrong = w
            .store
            .observe(&w.fence, &id, ContainerState::Created, &observed, told.clone(), at(51))
            .await
            .unwrap_err();
        assert!(matches!(wrong, StoreError::Conflict { step: "observe", .. }));
        w.store.observe(&w.fence, &id, ContainerState::Running, &observed, told, at(51)).await.unwrap();

        assert_eq!(Observed::of(&w.tracked(&id).await), observed);
        let row = w.row(&id).await;
        assert_eq!((row.updated_at, row.desired), (at(51), Desired::Running));
        assert_eq!(w.told().await, [EventType::ContainerTerminated]);
        let worker = w.store.worker("w-1").await.unwrap().unwrap();
        assert_eq!(worker.state, parhelia_core::state::WorkerState::Terminated);
        assert_eq!((worker.terminated_at, worker.exit_code), (Some(at(50)), Some(137)));
    }
}

#[tokio::test]
async fn a_lost_intent_and_its_successor_change_places_in_one_step() {
    for w in World::each().await {
        let first = intent(1);
        let id = first.id.clone();
        w.store.register(first, vec![], at(0)).await.unwrap();
        let mut observed = Observed::of(&w.tracked(&id).await);
        observed.state = ContainerState::Terminated;
        observed.termination_reason = Some(TerminationReason::CreateLost);
        observed.terminated_at = Some(at(9));
        let next = intent(2);
        let next_id = next.id.clone();
        let lost = about(EventType::CreateLost, &id);
        let opened = vec![about(EventType::ContainerCreated, &next_id)];
        // A successor that cannot be written leaves the first intent open.
        w.store
            .create_lost(
                &w.fence,
                &id,
                ContainerState::Created,
                &observed,
                lost.clone(),
                intent(1),
                vec![],
                at(9),
            )
            .await
            .unwrap_err();
        assert_eq!(w.state(&id).await, ContainerState::Created);
        w.store
            .create_lost(&w.fence, &id, ContainerState::Created, &observed, lost, next, opened, at(9))
            .await
            .unwrap();
        assert_eq!(w.state(&id).await, ContainerState::Terminated);
        assert_eq!(w.state(&next_id).await, ContainerState::Created);
        assert_eq!(w.told().await, [EventType::CreateLost, EventType::ContainerCreated]);
    }
}

#[tokio::test]
async fn wanting_it_gone_is_told_once_and_can_only_become_more_urgent() {
    for w in World::each().await {
        let id = w.running(1).await;
        let ask = async |grace: i64, t: i64| {
            let told = about(EventType::StopRequested, &id);
            let wish = wish("alice", TerminationReason::Manual, grace, told);
            w.store.desire_termination(None, &id, wish, at(t)).await.unwrap()
        };
        assert_eq!(ask(30, 10).await, DesireOutcome::Set);
        assert_eq!(ask(30, 11).await, DesireOutcome::AlreadyWanted);
        assert_eq!(ask(60, 12).await, DesireOutcome::AlreadyWanted);
        assert_eq!(ask(0, 13).await, DesireOutcome::Set);
        let row = w.row(&id).await;
        assert_eq!(
            (row.desired, row.desired_at, row.desired_by.as_deref()),
            (Desired::Terminated, Some(at(10)), Some("alice"))
        );
        assert_eq!((row.desired_reason, row.stop_grace_seconds), (Some(TerminationReason::Manual), Some(0)));
        assert_eq!(w.told().await, [EventType::StopRequested]);

        w.terminate(&id).await;
        assert_eq!(ask(0, 60).await, DesireOutcome::AlreadyTerminated);
        let told = event(EventType::StopRequested);
        let wish = wish("alice", TerminationReason::Manual, 1, told);
        let nobody = w.store.desire_termination(None, &cid(9), wish, at(61)).await;
        assert_eq!(nobody.unwrap(), DesireOutcome::NotFound);
        assert_eq!(w.told().await.len(), 1);
    }
}

#[tokio::test]
async fn nobody_is_ended_for_a_silence_that_is_over() {
    for w in World::each().await {
        let id = w.running(1).await;
        let end = async |heard: Option<i64>, health: Health, t: i64| {
            let known = Silence { heard: heard.map(at), health };
            let wish = wish("reconciler", TerminationReason::Stale, 10, about(EventType::StopRequested, &id));
            w.store.desire_end_of_silent(&w.fence, &id, known, wish, at(t)).await
        };
        w.store.heartbeats(&[Sample::bare(id.clone())], at(20)).await.unwrap();
        // It was read before anything had been heard, and between two heartbeats.
        assert!(end(None, Health::Unknown, 21).await.unwrap_err().is_conflict());
        w.store.heartbeats(&[Sample::bare(id.clone())], at(40)).await.unwrap();
        assert!(end(Some(20), Health::Unknown, 41).await.unwrap_err().is_conflict());
        // Nothing was heard since, but its health was judged anew: whoever did may have been away meanwhile.
        assert!(end(Some(40), Health::Unhealthy, 300).await.unwrap_err().is_conflict());
        assert_eq!(w.row(&id).await.desired, Desired::Running);
        assert!(w.told().await.is_empty());
        assert_eq!(end(Some(40), Health::Unknown, 300).await.unwrap(), DesireOutcome::Set);
        assert_eq!(w.row(&id).await.desired, Desired::Terminated);

        let mute = w.running(2).await;
        let silent =
            || wish("reconciler", TerminationReason::Silent, 10, about(EventType::StopRequested, &mute));
        let known = Silence { heard: None, health: Health::Unknown };
        let ended = w.store.desire_end_of_silent(&w.fence, &mute, known, silent(), at(9));
        assert_eq!(ended.await.unwrap(), DesireOutcome::Set);
        let replaced = stale();
        let late = w.store.desire_end_of_silent(&replaced, &mute, known, silent(), at(9));
        assert!(matches!(late.await, Err(StoreError::Fenced { .. })));
    }
}

#[tokio::test]
async fn a_stop_has_receipts_in_order_and_each_attempt_is_claimed_once() {
    for w in World::each().await {
        let id = w.running(1).await;
        let seen = || Some(about(EventType::StopSeen, &id));
        w.store.stop_seen(&w.fence, &id, 1, at(10), seen()).await.unwrap();
        assert!(w.store.stop_seen(&w.fence, &id, 1, at(11), seen()).await.unwrap_err().is_conflict());
        let failed = Some(about(EventType::StopFailed, &id));
        w.store.stop_result(&w.fence, &id, 1, Err("timed out".into()), at(12), failed).await.unwrap();
        let row = w.row(&id).await;
        assert_eq!(
            (row.stop_seen_at, row.stop_attempts, row.stop_error.as_deref()),
            (Some(at(10)), 1, Some("timed out"))
        );
        assert_eq!(row.stopping_at, None);

        w.store.stop_seen(&w.fence, &id, 2, at(20), seen()).await.unwrap();
        // The late answer of the first attempt says nothing any more.
        assert!(w.store.stop_result(&w.fence, &id, 1, Ok(()), at(21), None).await.unwrap_err().is_conflict());
        w.store
            .stop_result(&w.fence, &id, 2, Ok(()), at(22), Some(about(EventType::StopSent, &id)))
            .await
            .unwrap();
        let row = w.row(&id).await;
        assert_eq!((row.stop_seen_at, row.stopping_at, row.stop_attempts), (Some(at(10)), Some(at(22)), 2));
        assert_eq!((row.stop_attempted_at, row.stop_error), (Some(at(20)), None));
        assert_eq!(w.told().await, [EventType::StopSeen, EventType::StopFailed, EventType::StopSent]);
    }
}

#[tokio::test]
async fn silence_is_alerted_of_what_still_lives() {
    for w in World::each().await {
        let id = w.running(1).await;
        w.store.alert_silent(&w.fence, &id, at(20), about(EventType::ContainerSilent, &id)).await.unwrap();
        assert_eq!(w.tracked(&id).await.silent_alerted_at, Some(at(20)));
        w.terminate(&id).await;
        let again = w.store.alert_silent(&w.fence, &id, at(60), about(EventType::ContainerSilent, &id)).await;
        assert!(again.unwrap_err().is_conflict());
    }
}

#[tokio::test]
async fn every_write_of_a_former_leader_is_fenced() {
    for w in World::each().await {
        let id = w.running(1).await;
        let s = &w.store;
        let observed = Observed::of(&w.tracked(&id).await);
        let e = || about(EventType::ContainerStarted, &id);
        let running = ContainerState::Running;
        let old = &stale();
        let sandbox = common::sandbox(5, "inst-2");
        let results = [
            s.claim_create(old, &id, 0, "engine-1", None, at(1)).await,
            s.record_created(old, &id, "sb-1", "engine-1", at(1)).await,
            s.observe(old, &id, running, &observed, vec![e()], at(1)).await,
            s.register_found(old, intent(2), vec![], at(1)).await,
            s.create_lost(old, &id, running, &observed, e(), intent(2), vec![], at(1)).await,
            s.stop_seen(old, &id, 1, at(1), Some(e())).await,
            s.stop_result(old, &id, 0, Ok(()), at(1), Some(e())).await,
            s.alert_silent(old, &id, at(1), e()).await,
            s.upsert_foreign(old, "docker", "engine-1", &sandbox, at(1), Some(e())).await,
            s.foreign_gone(old, "docker", "sb-5", at(1)).await,
            s.renew_leadership(old, at(99)).await,
            s.announce(old, vec![e()], at(1)).await,
            s.aggregate_heartbeats(old, at(99), 10).await.map(drop),
            s.delete_old_events(old, at(99), 10).await.map(drop),
            s.delete_old_cycles(old, at(99)).await.map(drop),
            s.delete_old_heartbeat_hours(old, at(99)).await.map(drop),
        ];
        for (i, result) in results.into_iter().enumerate() {
            assert!(matches!(result, Err(StoreError::Fenced { .. })), "{i}: {result:?}");
        }
        assert!(w.told().await.is_empty());
        assert_eq!(s.live_count().await.unwrap(), 1);
    }
}
