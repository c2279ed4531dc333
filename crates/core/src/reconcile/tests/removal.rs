//! What may be forgotten: only what has ended, and only once its end is recorded.

use super::world::World;
use crate::reconcile::{Answer, removals};
use crate::time::seconds_between;

/// The sandboxes that may go now, and the seconds until the next one may.
fn due(world: &str, keep_seconds: u64) -> (Vec<String>, Option<f64>) {
    let world = World::parse(world);
    let Answer::Listed(listing) = &world.answer else { panic!("a listing") };
    let due = removals(listing, &world.rows, keep_seconds, world.now);
    let now = due.now.iter().map(|s| s.sandbox_id.clone()).collect();
    (now, due.next_at.map(|at| seconds_between(world.now, at)))
}

#[test]
fn an_end_that_is_recorded_and_old_enough_may_go() {
    let world = "
        row c-aaaa terminated sb-1 why=completed ended=-2h
        sandbox sb-1 c-aaaa exited 0 ended=-2h
        row c-bbbb terminated sb-2 why=completed ended=-10m
        sandbox sb-2 c-bbbb exited 0 ended=-10m
    ";
    assert_eq!(due(world, 3600), (vec!["sb-1".to_owned()], Some(3000.0)));
    assert_eq!(due(world, 0).0.len(), 2);
}

#[test]
fn what_cleanup_ended_goes_at_once() {
    let world = "
        row c-aaaa terminated sb-1 why=orphan_cleanup ended=-1s
        sandbox sb-1 c-aaaa exited 137 ended=-1s
        row c-bbbb terminated sb-2 why=dead_cleanup ended=-1s
        sandbox sb-2 c-bbbb exited 137 ended=-1s
        row c-cccc terminated sb-3 why=manual ended=-1s
        sandbox sb-3 c-cccc exited 137 ended=-1s
    ";
    assert_eq!(due(world, 3600).0, ["sb-1", "sb-2"]);
}

#[test]
fn what_lives_is_unrecorded_or_is_somebody_elses_stays() {
    for world in [
        "row c-aaaa terminated sb-1 why=manual ended=-2h\n sandbox sb-1 c-aaaa running",
        "row c-aaaa terminated sb-1 why=manual ended=-2h\n sandbox sb-1 c-aaaa starting",
        "row c-aaaa running sb-1\n sandbox sb-1 c-aaaa exited 0 ended=-2h",
        "row c-aaaa stopped sb-1 why=manual ended=-2h\n sandbox sb-1 c-aaaa exited 0 ended=-2h",
        "sandbox sb-1 c-aaaa exited 0 ended=-2h",
        "row c-aaaa terminated why=create_failed ended=-2h\n sandbox sb-1 c-aaaa exited 0 ended=-2h",
        "row c-aaaa terminated sb-9 why=manual ended=-2h\n sandbox sb-1 c-aaaa exited 0 ended=-2h",
        "row c-aaaa terminated sb-1 identity=engine-0 why=manual ended=-2h\n sandbox sb-1 c-aaaa exited 0 ended=-2h",
    ] {
        assert_eq!(due(world, 60), (vec![], None), "{world}");
    }
}
