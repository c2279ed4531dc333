//! Conformance: heartbeats, health, and what retention makes of them.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::{World, about, at, cid, event};
use parhelia_core::event::EventType;
use parhelia_core::heartbeat::{HeartbeatHour, Sample};
use parhelia_core::ids::ContainerId;
use parhelia_core::liveness::HealthChange;
use parhelia_core::state::Health;
use parhelia_store::{Fence, RetentionReport, StoreError};

fn sample(id: &ContainerId, cpu: f64) -> Sample {
    Sample {
        cpu_percent: Some(cpu),
        memory_percent: Some(40.0),
        memory_mb: Some(512),
        ..Sample::bare(id.clone())
    }
}

#[tokio::test]
async fn a_heartbeat_touches_its_own_columns_and_no_other() {
    for w in World::each().await {
        let id = w.running(1).await;
        w.store
            .register_worker("w-1", Some(id.as_str()), None, None, &serde_json::json!({}), at(2))
            .await
            .unwrap();
        let before = w.row(&id).await;
        let mut full = sample(&id, 12.5);
        full.disk_percent = Some(70.0);
        full.uptime_seconds = Some(99);
        full.tmux_active = Some(true);
        full.claude_responsive = Some(false);
        full.timestamp = Some(at(3));
        full.delayed_seconds = Some(2.5);
        full.metadata = Some([("k".to_owned(), "v".into())].into_iter().collect());
        assert_eq!(w.store.heartbeats(&[full], at(30)).await.unwrap(), [true]);
        let row = w.row(&id).await;
        let expected = parhelia_core::container::Container {
            last_heartbeat_at: Some(at(30)),
            cpu_percent: Some(12.5),
            memory_percent: Some(40.0),
            memory_used_mb: Some(512),
            disk_percent: Some(70.0),
            uptime_seconds: Some(99),
            ..before
        };
        assert_eq!(row, expected);
        let kept = w.store.heartbeat_history(&id, None, 10).await.unwrap().pop().unwrap();
        assert_eq!(
            (kept.timestamp, kept.tmux_active, kept.claude_responsive),
            (at(30), Some(true), Some(false))
        );
        let metadata =
            serde_json::json!({"k": "v", "sampled_at": "2026-01-21T14:00:03.000Z", "delayed_seconds": 2.5});
        assert_eq!(kept.metadata, metadata);
        assert_eq!(w.store.worker("w-1").await.unwrap().unwrap().last_heartbeat_at, Some(at(30)));

        // A bare one says "alive" and takes no figure back. Our clock was set back meanwhile: the time is the
        // clock's, for one in the future would hide a silence.
        w.store.heartbeats(&[Sample::bare(id.clone())], at(20)).await.unwrap();
        let row = w.row(&id).await;
        assert_eq!((row.last_heartbeat_at, row.cpu_percent), (Some(at(20)), Some(12.5)));
    }
}

#[tokio::test]
async fn an_unknown_container_is_told_apart_and_a_terminated_one_is_only_evidence() {
    for w in World::each().await {
        let (id, gone) = (w.running(1).await, w.running(2).await);
        w.terminate(&gone).await;
        let samples = [sample(&cid(9), 1.0), sample(&id, 2.0), sample(&gone, 3.0)];
        assert_eq!(w.store.heartbeats(&samples, at(60)).await.unwrap(), [false, true, true]);
        assert!(w.store.heartbeats(&[], at(60)).await.unwrap().is_empty());
        let row = w.row(&gone).await;
        assert_eq!((row.state.as_str(), row.last_heartbeat_at), ("terminated", Some(at(60))));
        assert_eq!(w.store.heartbeat_history(&cid(9), None, 10).await.unwrap(), []);
    }
}

#[tokio::test]
async fn of_a_batch_the_freshest_usage_remains() {
    for w in World::each().await {
        let id = w.running(1).await;
        let late = |cpu, delay| Sample { delayed_seconds: Some(delay), ..sample(&id, cpu) };
        let batch = [late(3.0, 0.5), sample(&cid(9), 9.0), late(1.0, 60.0), late(2.0, 30.0)];
        assert_eq!(w.store.heartbeats(&batch, at(90)).await.unwrap(), [true, false, true, true]);
        // The unknown one has no delay, so it comes last; it must not matter.
        assert_eq!(w.row(&id).await.cpu_percent, Some(3.0));
    }
}

#[tokio::test]
async fn history_is_the_newest_ones_oldest_first() {
    for w in World::each().await {
        let id = w.running(1).await;
        for t in 0..10 {
            w.store.heartbeats(&[sample(&id, t as f64)], at(t * 30)).await.unwrap();
        }
        let times = |beats: Vec<parhelia_core::heartbeat::Heartbeat>| -> Vec<f64> {
            beats.into_iter().filter_map(|b| b.cpu_percent).collect()
        };
        assert_eq!(times(w.store.heartbeat_history(&id, None, 3).await.unwrap()), [7.0, 8.0, 9.0]);
        assert_eq!(times(w.store.heartbeat_history(&id, Some(at(240)), 9).await.unwrap()), [8.0, 9.0]);
    }
}

fn change(id: &ContainerId, from: Health, to: Health, event: EventType) -> HealthChange {
    HealthChange {
        id: id.clone(),
        task_id: None,
        from,
        to,
        event,
        missed: 2,
        message: "Missed 2 heartbeats".into(),
    }
}

#[tokio::test]
async fn a_health_change_is_told_only_if_it_was_made() {
    for w in World::each().await {
        let (a, b, gone) = (w.running(1).await, w.running(2).await, w.running(3).await);
        w.store
            .register_worker("w-1", Some(a.as_str()), None, None, &serde_json::json!({}), at(2))
            .await
            .unwrap();
        w.terminate(&gone).await;
        let changes = [
            change(&a, Health::Unknown, Health::Degraded, EventType::ContainerDegraded),
            change(&b, Health::Healthy, Health::Dead, EventType::ContainerDead), // it is not healthy
            change(&gone, Health::Unknown, Health::Dead, EventType::ContainerDead),
            change(&cid(9), Health::Unknown, Health::Dead, EventType::ContainerDead),
        ];
        assert_eq!(w.store.apply_health(&w.fence, &changes, at(60)).await.unwrap(), 1);
        let row = w.row(&a).await;
        assert_eq!((row.health_status, row.consecutive_failures), (Health::Degraded, 2));
        assert_eq!(w.row(&b).await.health_status, Health::Unknown);
        assert_eq!(w.store.worker("w-1").await.unwrap().unwrap().health_status, Health::Degraded);
        assert_eq!(w.told().await, [EventType::ContainerDegraded]);
        let told = w.store.events(&Default::default()).await.unwrap().pop().unwrap();
        assert_eq!(
            (told.old_value.as_deref(), told.new_value.as_deref()),
            (Some("unknown"), Some("degraded"))
        );
        assert_eq!(told.source, parhelia_core::event::Source::HealthMonitor);

        let old = Fence { epoch: 0, ..w.fence.clone() };
        assert!(matches!(w.store.apply_health(&old, &changes, at(61)).await, Err(StoreError::Fenced { .. })));
        assert_eq!(w.store.apply_health(&old, &[], at(61)).await.unwrap(), 0);
    }
}

fn close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-9,
        (a, b) => a == b,
    }
}

fn same(a: &HeartbeatHour, b: &HeartbeatHour) -> bool {
    let plain =
        |h: &HeartbeatHour| HeartbeatHour { cpu_percent_avg: None, memory_percent_avg: None, ..h.clone() };
    plain(a) == plain(b)
        && close(a.cpu_percent_avg, b.cpu_percent_avg)
        && close(a.memory_percent_avg, b.memory_percent_avg)
}

async fn beat(w: &World) -> Vec<ContainerId> {
    let ids = vec![w.running(1).await, w.running(2).await];
    for t in 0..200_i64 {
        let mut batch = vec![sample(&ids[0], (t * 7 % 101) as f64)];
        // Every third has no figures: averages must weigh only those that do.
        batch.push(if t % 3 == 0 { Sample::bare(ids[1].clone()) } else { sample(&ids[1], (t % 13) as f64) });
        w.store.heartbeats(&batch, at(t * 60)).await.unwrap();
    }
    ids
}

#[tokio::test]
async fn hours_folded_in_many_steps_are_those_folded_in_one() {
    let before = at(2 * 3600);
    for (one, many) in World::each().await.into_iter().zip(World::each().await) {
        let ids = beat(&one).await;
        beat(&many).await;
        let report = one.store.aggregate_heartbeats(&one.fence, before, 100_000).await.unwrap();
        assert_eq!(report, RetentionReport { folded: 240, hours: 4, more: false });
        let mut steps = 0;
        loop {
            let report = many.store.aggregate_heartbeats(&many.fence, before, 17).await.unwrap();
            steps += 1;
            if !report.more {
                break;
            }
        }
        assert_eq!(steps, 15);
        for id in &ids {
            let (a, b) = (
                one.store.heartbeat_hours(id, None, 100).await.unwrap(),
                many.store.heartbeat_hours(id, None, 100).await.unwrap(),
            );
            assert_eq!((a.len(), b.len()), (2, 2));
            assert!(a.iter().zip(&b).all(|(a, b)| same(a, b)), "{a:#?}\n{b:#?}");
            assert_eq!(
                (a[0].hour, a[0].samples, a[0].first_at, a[0].last_at),
                (at(0), 60, at(0), at(59 * 60))
            );
            // The raw ones of these hours are gone, the younger ones are not.
            assert_eq!(one.store.heartbeat_history(id, None, 1000).await.unwrap().len(), 80);
        }
        let expected: f64 = (0..60).filter(|t| t % 3 != 0).map(|t| (t % 13) as f64).sum::<f64>() / 40.0;
        let second = &many.store.heartbeat_hours(&ids[1], None, 100).await.unwrap()[0];
        assert!(close(second.cpu_percent_avg, Some(expected)), "{second:?}");
        assert_eq!(second.cpu_percent_max, Some(12.0));
        assert_eq!(one.store.delete_old_heartbeat_hours(&one.fence, at(3600)).await.unwrap(), 2);
        assert_eq!(one.store.heartbeat_hours(&ids[0], None, 100).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn old_events_go_oldest_first_and_a_bounded_number_at_a_time() {
    for w in World::each().await {
        let id = w.running(1).await;
        for t in 0..10 {
            w.store.append_events(vec![about(EventType::ContainerStarted, &id)], at(t)).await.unwrap();
        }
        assert_eq!(w.store.delete_old_events(&w.fence, at(6), 4).await.unwrap(), 4);
        assert_eq!(w.store.delete_old_events(&w.fence, at(6), 4).await.unwrap(), 2);
        assert_eq!(w.store.delete_old_events(&w.fence, at(6), 4).await.unwrap(), 0);
        assert_eq!(w.told().await.len(), 4);
        // An id is never given twice, even when the newest have gone.
        w.store.delete_old_events(&w.fence, at(100), 100).await.unwrap();
        assert_eq!(w.store.append_events(vec![event(EventType::ServerStarted)], at(20)).await.unwrap(), [11]);
    }
}
