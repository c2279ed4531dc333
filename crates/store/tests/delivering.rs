//! Conformance: the places of readers, and deliveries from the plan to their end.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use common::{World, at, event, owner};
use parhelia_core::alert::DeliveryState;
use parhelia_core::event::EventType;
use parhelia_core::ids::DeliveryId;
use parhelia_store::{Attempted, NewDelivery, ReaderMove, StoreError};

fn found(n: u64, event_id: i64) -> NewDelivery {
    NewDelivery { id: DeliveryId::mint(n, n), alert: "ops".into(), event_id }
}

fn step(from: i64, to: i64) -> ReaderMove {
    ReaderMove { reader: "alert:ops".into(), from, to }
}

async fn begin(w: &World, from: i64) {
    w.store.resume_deliveries(&w.fence, &["alert:ops".into()], from, &[], at(0)).await.unwrap();
}

#[tokio::test]
async fn a_place_moves_with_what_was_found_or_not_at_all() {
    for w in World::each().await {
        let s = &w.store;
        begin(&w, 5).await;
        // A second beginning changes nothing: only a new alert begins now.
        begin(&w, 9).await;
        assert_eq!(s.readers().await.unwrap(), [("alert:ops".to_owned(), 5)]);
        s.plan_deliveries(&w.fence, &[step(5, 8)], &[found(1, 6), found(2, 8)], at(1)).await.unwrap();
        // The same plan again, as after an answer that was lost: nothing is doubled.
        let again = s.plan_deliveries(&w.fence, &[step(5, 8)], &[found(3, 6)], at(1)).await.unwrap_err();
        assert!(again.is_conflict(), "{again}");
        // Even where the place is right, one delivery for an alert and an event.
        s.plan_deliveries(&w.fence, &[step(8, 9)], &[found(4, 8), found(5, 9)], at(2)).await.unwrap();
        let ids: Vec<i64> =
            s.pending_deliveries("ops", 10).await.unwrap().iter().map(|d| d.event_id).collect();
        assert_eq!(ids, [6, 8, 9]);
        assert_eq!((s.readers().await.unwrap()[0].1, s.open_deliveries().await.unwrap()), (9, 3));
        assert_eq!(s.pending_deliveries("ops", 2).await.unwrap().len(), 2);
        assert!(s.pending_deliveries("other", 2).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_attempt_is_claimed_once_and_recorded_once_with_its_event() {
    for w in World::each().await {
        let s = &w.store;
        begin(&w, 0).await;
        s.plan_deliveries(&w.fence, &[step(0, 2)], &[found(1, 1), found(2, 2)], at(1)).await.unwrap();
        let all = s.pending_deliveries("ops", 10).await.unwrap();
        let one = &all[0];
        s.claim_delivery(&w.fence, one, at(2)).await.unwrap();
        assert!(s.claim_delivery(&w.fence, one, at(2)).await.unwrap_err().is_conflict());
        assert_eq!(s.pending_deliveries("ops", 10).await.unwrap().len(), 1);
        let again = Attempted {
            state: DeliveryState::Pending,
            status: Some(503),
            error: Some("it said 503".into()),
            next_attempt_at: Some(at(32)),
        };
        s.record_attempt(&w.fence, &one.id, 1, &again, None, at(3)).await.unwrap();
        let counts = s.alert_counts("ops").await.unwrap();
        assert_eq!((counts.pending, counts.last_error.as_deref()), (2, Some("it said 503")));
        assert_eq!(counts.last_error_at, Some(at(2)));
        let late = s.pending_deliveries("ops", 10).await.unwrap().pop().unwrap();
        assert_eq!((late.id.clone(), late.attempts, late.next_attempt_at), (one.id.clone(), 1, at(32)));
        // The claim of the first attempt is over: what was decided from it is refused.
        assert!(s.claim_delivery(&w.fence, one, at(4)).await.unwrap_err().is_conflict());
        s.claim_delivery(&w.fence, &late, at(32)).await.unwrap();
        let done = Attempted {
            state: DeliveryState::Delivered,
            status: Some(200),
            error: None,
            next_attempt_at: None,
        };
        s.record_attempt(&w.fence, &one.id, 2, &done, None, at(33)).await.unwrap();
        assert!(s.record_attempt(&w.fence, &one.id, 2, &done, None, at(33)).await.unwrap_err().is_conflict());

        s.claim_delivery(&w.fence, &all[1], at(34)).await.unwrap();
        let failed = Attempted {
            state: DeliveryState::Failed,
            status: Some(400),
            error: Some("it said 400".into()),
            next_attempt_at: None,
        };
        let tell = || Some(event(EventType::AlertFailed));
        s.record_attempt(&w.fence, &all[1].id, 1, &failed, tell(), at(35)).await.unwrap();
        assert!(s.record_attempt(&w.fence, &all[1].id, 1, &failed, tell(), at(35)).await.is_err());
        assert_eq!(w.told().await, [EventType::AlertFailed]);
        let counts = s.alert_counts("ops").await.unwrap();
        assert_eq!((counts.pending, counts.delivered, counts.failed), (0, 1, 1));
        assert_eq!(counts.last_delivered_at, Some(at(33)));
        assert_eq!(s.delete_old_deliveries(&w.fence, at(34), 10).await.unwrap(), 1);
        assert_eq!(s.delete_old_deliveries(&w.fence, at(34), 10).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn whoever_takes_over_makes_the_attempts_again_and_the_former_one_is_refused() {
    for w in World::each().await {
        let s = &w.store;
        begin(&w, 0).await;
        s.plan_deliveries(&w.fence, &[step(0, 1)], &[found(1, 1)], at(1)).await.unwrap();
        let one = s.pending_deliveries("ops", 10).await.unwrap().pop().unwrap();
        s.claim_delivery(&w.fence, &one, at(2)).await.unwrap();

        s.register_owner(&owner("o-2")).await.unwrap();
        let epoch = s.take_leadership("o-2", at(90), at(50), true).await.unwrap();
        let next = parhelia_store::Fence { owner_id: "o-2".into(), epoch };
        s.resume_deliveries(&next, &["alert:ops".into()], 1, &[], at(51)).await.unwrap();
        let due = s.pending_deliveries("ops", 10).await.unwrap().pop().unwrap();
        assert_eq!((due.id.clone(), due.attempts, due.next_attempt_at), (one.id.clone(), 1, at(51)));
        let done = Attempted {
            state: DeliveryState::Delivered,
            status: Some(200),
            error: None,
            next_attempt_at: None,
        };
        for refused in [
            s.record_attempt(&w.fence, &one.id, 1, &done, None, at(52)).await,
            s.claim_delivery(&w.fence, &due, at(52)).await,
            s.plan_deliveries(&w.fence, &[step(1, 2)], &[], at(52)).await,
            s.resume_deliveries(&w.fence, &[], 1, &[], at(52)).await,
            s.release_delivery(&w.fence, &one.id, 1, at(52)).await,
        ] {
            assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
        }
        s.claim_delivery(&next, &due, at(53)).await.unwrap();
        // A claim that nobody knows of is given back; another attempt's is not.
        s.release_delivery(&next, &due.id, 1, at(54)).await.unwrap();
        assert!(s.pending_deliveries("ops", 10).await.unwrap().is_empty());
        s.release_delivery(&next, &due.id, 2, at(54)).await.unwrap();
        assert_eq!(s.pending_deliveries("ops", 10).await.unwrap()[0].attempts, 2);

        // An alert that is no longer configured: its deliveries end, and should it come back, it is new.
        let gone = [("alert:ops".to_owned(), "ops".to_owned())];
        s.resume_deliveries(&next, &[], 1, &gone, at(60)).await.unwrap();
        assert_eq!((s.readers().await.unwrap().len(), s.open_deliveries().await.unwrap()), (0, 0));
        assert_eq!(s.alert_counts("ops").await.unwrap().failed, 1);
    }
}
