//! Conformance: everything that can be asked (seed 000, SPEC-21.30), and the tail.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::{World, about, at, cid, event, intent};
use parhelia_core::container::Container;
use parhelia_core::event::{EventType, Source};
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::job::JobStatus;
use parhelia_core::liveness::HealthChange;
use parhelia_core::state::{ContainerState, Health};
use parhelia_store::{ContainerFilter, EventFilter, JobFilter, NewJob, ShownFilter};
use uuid::Uuid;

fn ids(containers: Vec<Container>) -> Vec<ContainerId> {
    containers.into_iter().map(|c| c.id).collect()
}

/// 1 is created, 2 and 3 run, 4 is terminated, 5 is an orphan, 6 is suspected.
async fn fleet(w: &World) -> Vec<ContainerId> {
    w.store.register(intent(1), vec![], at(0)).await.unwrap();
    for n in 2..=4 {
        w.running(n).await;
    }
    w.terminate(&cid(4)).await;
    for (n, state) in [(5, ContainerState::Orphaned), (6, ContainerState::Unknown)] {
        let mut new = intent(n);
        new.state = state;
        new.suspected_at = Some(at(1));
        new.sandbox_id = Some(format!("sb-{n}"));
        new.provider = "modal".into();
        new.cost_accrued_usd = 0.5;
        w.store.register_found(&w.fence, new, vec![], at(1)).await.unwrap();
    }
    let sick = HealthChange {
        id: cid(3),
        task_id: None,
        from: Health::Unknown,
        to: Health::Dead,
        event: EventType::ContainerDead,
        missed: 11,
        message: "Missed 11 heartbeats".into(),
    };
    w.store.apply_health(&w.fence, &[sick], at(9)).await.unwrap();
    (0..=6).map(cid).collect()
}

#[tokio::test]
async fn lists_narrow_by_every_field_and_keep_the_newest_last() {
    for w in World::each().await {
        let c = fleet(&w).await;
        let s = &w.store;
        let list = async |filter: ContainerFilter| ids(s.containers(&filter).await.unwrap());
        let all = ContainerFilter::default;
        assert_eq!(list(all()).await, c[1..]);
        assert_eq!(ids(s.active_containers().await.unwrap()), [&c[1..4], &c[5..]].concat());
        assert_eq!(ids(s.containers_by_state(ContainerState::Running).await.unwrap()), c[2..4]);
        assert_eq!(ids(s.containers_by_health(Health::Dead).await.unwrap()), [c[3].clone()]);
        assert_eq!(ids(s.orphaned_containers().await.unwrap()), c[5..]);
        assert_eq!(ids(s.containers_for_task("A-L1-004").await.unwrap()), [c[4].clone()]);
        let states = vec![ContainerState::Created, ContainerState::Terminated];
        assert_eq!(list(ContainerFilter { states, ..all() }).await, [c[1].clone(), c[4].clone()]);
        assert_eq!(list(ContainerFilter { provider: Some("modal".into()), ..all() }).await, c[5..]);
        assert_eq!(list(ContainerFilter { session_id: Some("sess-1".into()), ..all() }).await.len(), 6);
        let task_id = Some("A-L1-004".to_owned());
        assert!(list(ContainerFilter { task_id, active_only: true, ..all() }).await.is_empty());
        // Pages count from the newest.
        assert_eq!(list(ContainerFilter { limit: Some(2), ..all() }).await, c[5..]);
        let mut filter = ContainerFilter { limit: Some(2), ..all() };
        for expected in [&c[5..], &c[3..5], &c[1..3]] {
            let page = s.container_page(&filter).await.unwrap();
            assert_eq!(ids(page.rows), expected);
            assert_eq!(page.next.as_ref().map(|(_, id)| id), expected.first());
            filter.before = page.next;
        }
        let end = s.container_page(&filter).await.unwrap();
        assert!(end.rows.is_empty() && end.next.is_none());
        let health = vec![Health::Dead, Health::Healthy];
        assert_eq!(list(ContainerFilter { health, ..all() }).await, [c[3].clone()]);
        let figures = s.container_figures(&all()).await.unwrap();
        let whole = s.containers(&all()).await.unwrap();
        assert_eq!(figures.len(), whole.len());
        for (slim, row) in figures.iter().rev().zip(&whole) {
            assert_eq!(
                (&slim.provider, slim.state, slim.started_at),
                (&row.provider, row.state, row.started_at)
            );
            assert_eq!(slim.resources.cpu_cores, row.cpu_cores);
            assert_eq!((slim.resources.memory_mb, &slim.resources.gpu_type), (row.memory_mb, &row.gpu_type));
            assert_eq!(
                (slim.cost_accrued_usd, slim.cost_rate_per_hour),
                (row.cost_accrued_usd, row.cost_rate_per_hour)
            );
            assert_eq!((slim.cost_source, &slim.labels), (row.cost_source, &row.labels));
        }
        let whole = c[2].as_str().to_owned();
        assert_eq!(list(ContainerFilter { id_prefix: Some(whole), ..all() }).await, [c[2].clone()]);
        assert!(list(ContainerFilter { id_prefix: Some("%".into()), ..all() }).await.is_empty());

        let found = s.container_by_sandbox("docker", "sb-2").await.unwrap().unwrap();
        assert_eq!(found.id, c[2]);
        assert!(s.container_by_sandbox("modal", "sb-2").await.unwrap().is_none());
        assert!(s.container(&cid(77)).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_prefix_resolves_with_and_without_its_type() {
    for w in World::each().await {
        let c = fleet(&w).await;
        let s = &w.store;
        for given in [c[2].as_str(), c[2].as_str().trim_start_matches("c-")] {
            assert_eq!(s.resolve_container(given).await.unwrap(), [c[2].clone()], "{given}");
        }
        assert_eq!(s.resolve_container(&c[2].as_str()[..6]).await.unwrap(), c[1..]);
        for n in 10..30 {
            s.register(intent(n), vec![], at(0)).await.unwrap();
        }
        assert_eq!(s.resolve_container("c-").await.unwrap().len(), 10);
        assert!(s.resolve_container("zz").await.unwrap().is_empty());
        assert!(s.resolve_container("_").await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn totals_add_up() {
    for w in World::each().await {
        assert_eq!(w.store.container_stats().await.unwrap(), Default::default());
        let c = fleet(&w).await;
        let stats = w.store.container_stats().await.unwrap();
        assert_eq!((stats.total, stats.by_state[&ContainerState::Running]), (6, 2));
        assert_eq!(stats.by_state.values().sum::<i64>(), 6);
        assert_eq!((stats.by_health[&Health::Dead], stats.by_health[&Health::Unknown]), (1, 4));
        assert_eq!(stats.total_cost_usd, 1.0);
        assert_eq!(stats.oldest_running.unwrap().id, c[2]);
        assert_eq!(w.store.live_count().await.unwrap(), 5);
    }
}

#[tokio::test]
async fn the_loops_see_what_they_must() {
    for w in World::each().await {
        let c = fleet(&w).await;
        let s = &w.store;
        let tracked = s.tracked("docker").await.unwrap();
        assert_eq!(tracked.iter().map(|t| t.id.clone()).collect::<Vec<_>>(), c[1..4]);
        assert_eq!(tracked[1].sandbox_id.as_deref(), Some("sb-2"));
        assert_eq!(tracked[1].resources.memory_mb, Some(4096));
        assert_eq!(tracked[2].health, Health::Dead);
        // By either id, terminated ones too, each once, only of this provider, over many chunks.
        let mut many: Vec<ContainerId> = (1000..1250).map(cid).collect();
        many.push(c[2].clone());
        let sandboxes = ["sb-2".to_owned(), "sb-4".to_owned(), "sb-5".to_owned()];
        let mut found: Vec<_> = s.tracked_by_ids("docker", &many, &sandboxes).await.unwrap();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(found.iter().map(|t| t.id.clone()).collect::<Vec<_>>(), [c[2].clone(), c[4].clone()]);
        assert!(s.tracked_by_ids("docker", &[], &[]).await.unwrap().is_empty());

        let mut patients = s.patients().await.unwrap();
        patients.sort();
        let expected = [&c[2..4], &c[5..]].concat();
        assert_eq!(patients.iter().map(|p| p.0.clone()).collect::<Vec<_>>(), expected);
        assert_eq!(
            (patients[0].1.as_deref(), patients[1].2, patients[0].3),
            (Some("A-L1-002"), Health::Dead, None)
        );

        s.heartbeats(&[Sample::bare(c[2].clone())], at(100)).await.unwrap();
        let silent = ids(s.containers_without_heartbeat_since(at(50)).await.unwrap());
        assert_eq!(silent, [&c[3..4], &c[5..]].concat());
        assert!(
            s.containers_without_heartbeat_since(at(1)).await.unwrap().iter().all(|c| c.started_at.is_none())
        );
    }
}

#[tokio::test]
async fn events_are_found_by_every_field_in_both_directions() {
    for w in World::each().await {
        let s = &w.store;
        let (a, b) = (w.running(1).await, w.running(2).await);
        let mut told = vec![];
        for t in 0..6 {
            let id = if t % 2 == 0 { &a } else { &b };
            let mut one = about(EventType::ContainerStarted, id).task(Some(["x", "y", "z"][t % 3]));
            one.session_id = Some(format!("sess-{t}"));
            one.details = serde_json::json!({"t": t});
            if t >= 4 {
                one.event_type = EventType::ContainerStopped;
                one.source = Source::User;
            }
            told.extend(s.append_events(vec![one], at(t as i64)).await.unwrap());
        }
        assert_eq!(told, [1, 2, 3, 4, 5, 6]);
        w.settled(6).await;
        let found = async |filter: EventFilter| -> Vec<i64> {
            let oldest = s.events(&filter).await.unwrap().into_iter().map(|e| e.id).collect::<Vec<_>>();
            let newest = s.events(&EventFilter { newest_first: true, ..filter }).await.unwrap();
            let mut newest: Vec<i64> = newest.into_iter().map(|e| e.id).collect();
            newest.reverse();
            assert_eq!(oldest, newest);
            oldest
        };
        let all = EventFilter::default;
        assert_eq!(found(all()).await, [1, 2, 3, 4, 5, 6]);
        assert_eq!(found(EventFilter { container_id: Some(a.to_string()), ..all() }).await, [1, 3, 5]);
        assert_eq!(found(EventFilter { task_id: Some("y".into()), ..all() }).await, [2, 5]);
        assert_eq!(found(EventFilter { session_id: Some("sess-3".into()), ..all() }).await, [4]);
        assert_eq!(
            found(EventFilter { event_type: Some(EventType::ContainerStopped), ..all() }).await,
            [5, 6]
        );
        assert_eq!(found(EventFilter { source: Some(Source::User), ..all() }).await, [5, 6]);
        assert_eq!(found(EventFilter { since: Some(at(2)), until: Some(at(4)), ..all() }).await, [3, 4]);
        assert_eq!(found(EventFilter { after_id: Some(4), ..all() }).await, [5, 6]);
        let both =
            EventFilter { container_id: Some(a.to_string()), since: Some(at(1)), after_id: Some(3), ..all() };
        assert_eq!(found(both).await, [5]);
        let two = EventFilter { limit: Some(2), ..all() };
        assert_eq!(s.events(&two).await.unwrap().last().unwrap().id, 2);
        let newest = s.events(&EventFilter { newest_first: true, ..two }).await.unwrap();
        assert_eq!((newest[0].id, newest[0].details["t"].as_i64()), (6, Some(5)));

        // A clock that was set back does not turn the history round.
        let late = about(EventType::ContainerStopped, &a);
        assert_eq!(s.append_events(vec![late], at(1)).await.unwrap(), [7]);
        assert_eq!(found(all()).await, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(
            found(EventFilter { event_type: Some(EventType::ContainerStopped), ..all() }).await,
            [5, 6, 7]
        );
        assert_eq!(found(EventFilter { since: Some(at(1)), until: Some(at(3)), ..all() }).await, [2, 3, 7]);
    }
}

#[tokio::test]
async fn followers_of_the_tail_are_woken_by_a_commit() {
    for w in World::each().await {
        let mut commits = w.store.subscribe_commits();
        assert_eq!(*commits.borrow_and_update(), 0);
        // Nothing is announced that was not kept.
        let unknown = about(EventType::ContainerStarted, &cid(9));
        let failing = vec![event(EventType::ServerStarted), unknown];
        w.store.append_events(failing, at(0)).await.unwrap_err();
        assert!(!commits.has_changed().unwrap());
        let ids = w.store.append_events(vec![event(EventType::ServerStarted)], at(0)).await.unwrap();
        commits.changed().await.unwrap();
        assert_eq!(*commits.borrow(), ids[0]);
        assert_eq!(w.store.append_events(vec![], at(0)).await.unwrap(), [0; 0]);
        let tail = EventFilter { after_id: Some(0), ..Default::default() };
        assert_eq!(w.store.events(&tail).await.unwrap().len(), 1);
    }
}

/// Ids begin with a digit, a letter in the middle and the last letter there is: whatever a locale makes of them.
#[tokio::test]
async fn jobs_are_listed_and_found_by_id_prefix_name_and_page() {
    for w in World::each().await {
        let s = &w.store;
        let ids: Vec<Uuid> = ["0a", "8b", "ff"]
            .iter()
            .map(|head| Uuid::parse_str(&format!("{head}000000-0000-4000-8000-000000000000")).unwrap())
            .collect();
        for (n, id) in ids.iter().enumerate() {
            let mut new = intent(n as u64 + 1);
            new.job = Some(NewJob {
                id: *id,
                name: Some(format!("job {n}")),
                engine: "command".into(),
                origin_id: None,
                agent_session: None,
                timeout_seconds: None,
                interactive: false,
                created_by: "local".into(),
            });
            s.register(new, vec![], at(n as i64)).await.unwrap();
        }
        let listed = async |filter: JobFilter| -> Vec<Uuid> {
            s.jobs(&filter).await.unwrap().into_iter().map(|job| job.id).collect()
        };
        let shown = async |filter: ShownFilter| -> Vec<Uuid> {
            s.jobs_shown(&filter).await.unwrap().into_iter().map(|shown| shown.job.id).collect()
        };
        let newest_first = [ids[2], ids[1], ids[0]];
        assert_eq!(listed(JobFilter::default()).await, newest_first);
        assert_eq!(shown(ShownFilter::default()).await, newest_first);
        for id in &ids {
            let prefix = Some(id.to_string()[..6].to_owned());
            assert_eq!(listed(JobFilter { prefix, ..Default::default() }).await, [*id]);
            assert_eq!(shown(ShownFilter { id: Some(*id), ..Default::default() }).await, [*id]);
        }
        let name = Some("job 1".to_owned());
        assert_eq!(shown(ShownFilter { name, ..Default::default() }).await, [ids[1]]);
        let before = Some((at(1), ids[1]));
        assert_eq!(listed(JobFilter { before, ..Default::default() }).await, [ids[0]]);
        assert_eq!(shown(ShownFilter { before, limit: Some(1), ..Default::default() }).await, [ids[0]]);
        let over = vec![JobStatus::Finished];
        assert!(listed(JobFilter { statuses: over.clone(), ..Default::default() }).await.is_empty());
        assert!(shown(ShownFilter { statuses: over, ..Default::default() }).await.is_empty());
    }
}
