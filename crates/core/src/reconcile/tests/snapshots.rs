//! One test per rule: a world, and the plan that it gives.

use insta::assert_snapshot;

use super::world::planned;

#[test]
fn started() {
    let world = "
        row c-aaaa created sb-1 attempts=1 tried=-4s
        sandbox sb-1 c-aaaa running age=3s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa created -> running [container_started]
      started -3s
    ");
}

#[test]
fn starting_is_waited_for() {
    let world = "
        row c-aaaa created sb-1 attempts=1 tried=-4s
        sandbox sb-1 c-aaaa starting age=3s
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: the provider is starting it
    busy
    ");
}

#[test]
fn starting_for_hours_is_silent_too() {
    let world = "
        row c-aaaa created sb-1 attempts=1 tried=-5h
        sandbox sb-1 c-aaaa starting age=5h
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 5h 0m (max_silent_hours 4): it will be terminated
    desire c-aaaa terminated (silent, grace 10s)
    waiting c-aaaa: the provider is starting it
    busy
    ");
}

#[test]
fn adopted_when_the_answer_to_its_creation_was_lost() {
    let world = "
        row c-aaaa created attempts=1 tried=-10s
        sandbox sb-1 c-aaaa running age=9s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa created -> running [container_adopted]
      started -9s, sandbox sb-1, identity engine-1
    ");
}

#[test]
fn first_seen_alive_after_hours_is_left_to_the_ladder() {
    // The hours are the wall clock's, which may have been set: whether it is silent is heard from now on.
    let world = "
        row c-aaaa created attempts=1 tried=-5h
        sandbox sb-1 c-aaaa running age=5h
    ";
    let plan = planned(world);
    assert!(plan.contains("record c-aaaa created -> running [container_adopted]"), "{plan}");
    assert!(plan.contains("alert c-aaaa silent") && !plan.contains("desire c-aaaa"), "{plan}");
}

#[test]
fn adopted_even_when_the_claim_was_lost_too() {
    let world = "
        row c-aaaa created
        sandbox sb-1 c-aaaa running age=9s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa created -> running [container_adopted]
      started -9s, sandbox sb-1, identity engine-1
    ");
}

/// The provider was away for six hours; then it started at once.
#[test]
fn a_new_start_is_not_silent_because_its_intent_waited_long() {
    let world = "
        row c-aaaa created attempts=1 tried=-4s age=6h
        sandbox sb-1 c-aaaa running age=2s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa created -> running [container_adopted]
      started -2s, sandbox sb-1, identity engine-1
    ");
}

#[test]
fn running_as_recorded_is_nothing() {
    let world = "
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn terminated_but_alive_and_wanted_is_revived() {
    let world = "
        row c-aaaa terminated sb-1 why=external ended=-10m
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa terminated -> running [state_drift_corrected]
      ended none
    ");
}

#[test]
fn terminated_but_alive_and_unwanted_is_corrected_and_stopped() {
    let world = "
        row c-aaaa terminated sb-1 why=manual ended=-10m desired=terminated asked=-11m stops=1 stopped=-11m
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa terminated -> running [state_drift_corrected]
      ended none
    stop c-aaaa grace 0s attempt 2
    busy
    ");
}

#[test]
fn stopped_but_alive_is_corrected() {
    let world = "
        row c-aaaa stopped sb-1 why=idle_timeout ended=-10m
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa stopped -> running [state_drift_corrected]
      ended none
    ");
}

#[test]
fn terminated_and_gone_is_nothing() {
    let world = "
        row c-aaaa terminated sb-1 why=manual ended=-10m desired=terminated
        row c-bbbb terminated sb-2 why=completed ended=-10m
        sandbox sb-2 c-bbbb exited 0 ended=-10m
    ";
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn exited_with_its_code() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        sandbox sb-1 c-aaaa exited 0 ended=-20s
        sandbox sb-2 c-bbbb exited 3 ended=-20s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (completed) exit 0 [container_terminated]
      ended -20s
    record c-bbbb running -> terminated (failed) exit 3 [container_terminated]
      ended -20s
    ");
}

#[test]
fn exited_before_it_was_ever_seen_running() {
    let world = "
        row c-aaaa created attempts=1 tried=-60s
        sandbox sb-1 c-aaaa exited 127 ended=-50s why=start_failed age=55s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa created -> terminated (start_failed) exit 127 [container_terminated]
      started -55s, ended -50s, sandbox sb-1, identity engine-1
    ");
}

#[test]
fn exited_without_a_time_ended_now_and_never_in_the_future() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        sandbox sb-1 c-aaaa exited 1
        sandbox sb-2 c-bbbb exited 1 ended=+1h
        sandbox sb-3 c-cccc exited 1 ended=-3h
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (failed) exit 1 [container_terminated]
      ended now
    record c-bbbb running -> terminated (failed) exit 1 [container_terminated]
      ended now
    record c-cccc running -> terminated (failed) exit 1 [container_terminated]
      ended -3600s
    ");
}

#[test]
fn idle_timeout_is_stopped_first() {
    let world = "
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa exited 0 ended=-20s why=idle_timeout
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> stopped (idle_timeout) exit 0 [container_stopped]
      ended -20s
    wake now
    busy
    ");
}

#[test]
fn stop_then_stopped_then_terminated() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-1s grace=10
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-5s grace=10 stops=1 stopped=-4s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: told to stop; force in 8s if it is still there
    wake +8s
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-5s grace=10 stops=1 stopped=-4s
        sandbox sb-1 c-aaaa exited 143 ended=-2s why=crash
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> stopped (manual) exit 143 [container_stopped]
      ended -2s, confirmed now
    wake now
    busy
    ");
    let world = "
        row c-aaaa stopped sb-1 desired=terminated asked=-5s grace=10 stops=1 stopped=-4s why=manual ended=-2s code=143
        sandbox sb-1 c-aaaa exited 143 ended=-2s why=crash
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa stopped -> terminated (manual) exit 143 [container_terminated]
      confirmed now
    ");
}

#[test]
fn a_policys_stop_needs_no_rest_in_stopped() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-5s reason=orphan_cleanup stops=1 stopped=-4s
        sandbox sb-1 c-aaaa exited 143 ended=-2s why=crash
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (orphan_cleanup) exit 143 [container_terminated]
      ended -2s, confirmed now
    ");
}

#[test]
fn what_ended_before_it_was_asked_to_has_its_own_reason() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-10s
        row c-bbbb running sb-2 desired=terminated asked=-10s
        sandbox sb-1 c-aaaa exited 3 ended=-20s
        sandbox sb-2 c-bbbb exited 3 ended=-10s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (failed) exit 3 [container_terminated]
      ended -20s, confirmed now
    record c-bbbb running -> stopped (manual) exit 3 [container_stopped]
      ended -10s, confirmed now
    wake now
    busy
    ");
}

#[test]
fn broken_is_swept_away() {
    let world = "
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa broken supervisor_lost
    ";
    assert_snapshot!(planned(world), @"
    desire c-aaaa terminated (supervisor_lost, grace 0s)
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated reason=supervisor_lost asked=-1s grace=0
        sandbox sb-1 c-aaaa broken supervisor_lost
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 0s attempt 1
    busy
    ");
    let world = "
        row c-aaaa terminated sb-1 why=completed ended=-10m
        sandbox sb-1 c-aaaa broken supervisor_lost
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa terminated -> running [state_drift_corrected]
      ended none
    desire c-aaaa terminated (supervisor_lost, grace 0s)
    busy
    ");
}

#[test]
fn a_phase_that_the_provider_cannot_tell_waits() {
    let world = r#"
        row c-aaaa running sb-1
        row c-bbbb created sb-2 attempts=1 tried=-10s
        row c-cccc terminated sb-3 why=manual ended=-10m
        row c-dddd unknown sb-4
        sandbox sb-1 c-aaaa unknown "shared file system"
        sandbox sb-2 c-bbbb unknown "shared file system"
        sandbox sb-3 c-cccc unknown "shared file system"
        sandbox sb-4 c-dddd unknown "shared file system"
    "#;
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: the provider cannot say how it is: shared file system
    waiting c-bbbb: the provider cannot say how it is: shared file system
    waiting c-cccc: the provider cannot say how it is: shared file system
    waiting c-dddd: the provider cannot say how it is: shared file system
    ");
}

#[test]
fn a_phase_that_the_provider_cannot_tell_is_stopped_when_it_must_end() {
    let world = r#"
        row c-aaaa running sb-1 desired=terminated asked=-1s
        sandbox sb-1 c-aaaa unknown "shared file system"
    "#;
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    waiting c-aaaa: the provider cannot say how it is: shared file system
    busy
    ");
}

#[test]
fn suspected_at_first_sight_and_looked_at_again_when_the_grace_ends() {
    let world = "
        sandbox sb-9 c-zzzz running age=20s
    ";
    assert_snapshot!(planned(world), @"
    register sb-9 as unknown
    wake +100s
    ");
}

#[test]
fn an_orphan_at_first_sight_when_older_than_the_grace() {
    let world = "
        sandbox sb-9 c-zzzz running age=2h task=ta-1
    ";
    assert_snapshot!(planned(world), @"register sb-9 as orphaned");
}

#[test]
fn an_orphan_exactly_when_the_grace_ends() {
    let world = "
        row c-zzzz unknown sb-9 age=119s
        sandbox sb-9 c-zzzz running age=119s
    ";
    assert_snapshot!(planned(world), @"
    waiting c-zzzz: suspected: an orphan in 1s unless something claims it
    wake +1s
    ");
    let world = "
        row c-zzzz unknown sb-9 age=120s
        sandbox sb-9 c-zzzz running age=120s
    ";
    assert_snapshot!(planned(world), @"record c-zzzz unknown -> orphaned [orphan_detected]");
}

#[test]
fn the_grace_ends_by_the_first_sight_when_the_provider_knows_no_better() {
    let world = "
        row c-zzzz unknown sb-9 age=1s suspected=-120s
        sandbox sb-9 c-zzzz running age=1s
    ";
    assert_snapshot!(planned(world), @"record c-zzzz unknown -> orphaned [orphan_detected]");
}

#[test]
fn an_orphan_is_only_shown_unless_configured() {
    let world = "
        row c-zzzz orphaned sb-9
        sandbox sb-9 c-zzzz running
    ";
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn an_orphan_that_ends_is_terminated() {
    let world = "
        row c-zzzz orphaned sb-9
        row c-yyyy unknown sb-8 age=20s
        sandbox sb-9 c-zzzz exited 0 ended=-5s
        inspect c-yyyy absent
    ";
    assert_snapshot!(planned(world), @"
    record c-zzzz orphaned -> terminated (completed) exit 0 [container_terminated]
      ended -5s
    record c-yyyy unknown -> terminated (external) [container_terminated]
      ended now
    ");
}

#[test]
fn auto_terminate_orphans() {
    let world = "
        settings auto_terminate_orphans=true
        row c-zzzz orphaned sb-9
        sandbox sb-9 c-zzzz running
    ";
    assert_snapshot!(planned(world), @"
    desire c-zzzz terminated (orphan_cleanup, grace 10s)
    busy
    ");
    let world = "
        settings auto_terminate_orphans=true
        row c-zzzz unknown sb-9 age=119s
        sandbox sb-9 c-zzzz running age=119s
    ";
    assert_snapshot!(planned(world), @"
    waiting c-zzzz: suspected: an orphan in 1s unless something claims it
    wake +1s
    ");
    let world = "
        settings auto_terminate_orphans=true
        sandbox sb-9 c-zzzz running age=2h
    ";
    assert_snapshot!(planned(world), @"
    register sb-9 as orphaned
    busy
    ");
}

#[test]
fn a_twin_gets_a_row_under_a_new_id() {
    let world = "
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"register sb-2 as orphaned under a new id");
}

#[test]
fn of_two_twins_without_a_row_one_gets_the_id() {
    let world = "
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    register sb-1 as orphaned
    register sb-2 as orphaned under a new id
    ");
}

#[test]
fn a_sandbox_listed_twice_is_one() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-1s
        sandbox sb-1 c-aaaa running
        sandbox sb-1 c-aaaa running
        sandbox sb-9 c-zzzz running
        sandbox sb-9 c-zzzz running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    register sb-9 as orphaned
    busy
    ");
}

#[test]
fn an_exited_sandbox_without_a_row_is_history() {
    let world = "
        sandbox sb-9 c-zzzz exited 0 ended=-5m
    ";
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn a_sandbox_without_a_row_that_cannot_be_told_is_seen_too() {
    let world = r#"
        sandbox sb-9 c-zzzz unknown "shared file system" age=20s
    "#;
    assert_snapshot!(planned(world), @"
    register sb-9 as unknown
    wake +100s
    ");
}

#[test]
fn an_unreachable_provider_changes_nothing() {
    let world = r#"
        row c-aaaa running sb-1
        row c-bbbb created
        row c-cccc created attempts=1 tried=-10m
        row c-dddd stopped sb-4 why=manual ended=-1m desired=terminated stops=1 stopped=-1m
        list error "timeout"
    "#;
    assert_snapshot!(planned(world), @"
    announce provider_unreachable
      Provider fake does not answer: timeout. Its containers are left as they are
    waiting: provider fake does not answer (timeout); nothing is concluded from that
    memory engine-1, unreachable since now
    ");
    let world = r#"
        memory unreachable=-60s
        row c-aaaa running sb-1
        list error "timeout"
    "#;
    assert_snapshot!(planned(world), @"
    waiting: provider fake does not answer (timeout); nothing is concluded from that
    ");
    let world = "
        memory unreachable=-90s
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    announce provider_recovered
      Provider fake answers again after 1m
    memory engine-1
    ");
}

#[test]
fn what_must_end_is_told_so_although_the_listing_fails() {
    let world = r#"
        memory unreachable=-60s
        row c-aaaa running sb-1 desired=terminated asked=-1s
        row c-bbbb created attempts=1 tried=-10m desired=terminated asked=-1s
        list error "timeout"
    "#;
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    waiting: provider fake does not answer (timeout); nothing is concluded from that
    busy
    ");
}

#[test]
fn absence_is_asked_about_by_id_first() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb created attempts=1 tried=-10s
        row c-cccc running sb-3
        sandbox sb-3 c-cccc exited 0 ended=-5s
    ";
    assert_snapshot!(planned(world), @"
    inspect c-aaaa
    inspect c-bbbb
    record c-cccc running -> terminated (completed) exit 0 [container_terminated]
      ended -5s
    ");
}

#[test]
fn an_empty_listing_against_living_inspections_changes_nothing() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        inspect c-aaaa running
        inspect c-bbbb running
    ";
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn half_a_listing_against_living_inspections_changes_nothing() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-bbbb running
        inspect c-cccc running
        inspect c-dddd running
    ";
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn a_partial_listing_says_nothing_about_what_it_lacks() {
    let world = "
        list partial
        known-foreign sb-9
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc created attempts=1 tried=-10m
        sandbox sb-1 c-aaaa exited 0 ended=-5s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (completed) exit 0 [container_terminated]
      ended -5s
    waiting c-bbbb: the listing was incomplete; absence from it means nothing
    waiting c-cccc: the listing was incomplete; absence from it means nothing
    ");
}

#[test]
fn what_must_end_is_told_so_although_the_listing_is_partial() {
    let world = "
        list partial
        row c-aaaa running sb-1 desired=terminated asked=-1s
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    waiting c-aaaa: the listing was incomplete; absence from it means nothing
    busy
    ");
}

#[test]
fn inspected_absent_converges() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2 desired=terminated asked=-5s
        row c-cccc stopped sb-3 why=manual ended=-5m desired=terminated
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (external) [container_terminated]
      ended now
    record c-bbbb running -> stopped (manual) [container_stopped]
      ended now, confirmed now
    record c-cccc stopped -> terminated (manual) [container_terminated]
      confirmed now
    wake now
    busy
    ");
}

#[test]
fn inspected_unknown_waits() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb created attempts=5 tried=-10m
        row c-cccc stopped sb-3 why=manual ended=-5m desired=terminated
        inspect c-aaaa unknown
        inspect c-bbbb unknown
        inspect c-cccc unknown
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: not listed, and could not be inspected: timeout
    waiting c-bbbb: not listed, and could not be inspected: timeout
    waiting c-cccc: not listed, and could not be inspected: timeout
    busy
    ");
}

#[test]
fn what_must_end_is_told_so_although_it_cannot_be_inspected() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-1s
        inspect c-aaaa unknown
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    waiting c-aaaa: not listed, and could not be inspected: timeout
    busy
    ");
}

#[test]
fn inspected_and_found_ended() {
    let world = "
        row c-aaaa running sb-1
        inspect c-aaaa exited 3 ended=-30s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (failed) exit 3 [container_terminated]
      ended -30s
    ");
}

#[test]
fn another_identity_says_nothing_about_the_former() {
    let world = "
        identity engine-2
        row c-aaaa running sb-1
        row c-bbbb running sb-2 desired=terminated asked=-5s
        row c-cccc created sb-3 attempts=1 tried=-10m
        row c-dddd created
    ";
    assert_snapshot!(planned(world), @"
    announce provider_identity_changed
      Provider fake is now engine-2, it was engine-1: containers of the former one are left as they are
    create c-dddd attempt 1
    waiting c-aaaa: its provider was engine-1, and another one answers now (engine-2)
    waiting c-bbbb: its provider was engine-1, and another one answers now (engine-2)
    waiting c-cccc: its provider was engine-1, and another one answers now (engine-2)
    memory engine-2
    wake now
    busy
    ");
    let world = "
        memory identity engine-2
        identity engine-2
        row c-aaaa running sb-1
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: its provider was engine-1, and another one answers now (engine-2)
    ");
    // It may run and cost on there: that nobody hears it is told all the same.
    let world = "
        memory identity engine-2
        identity engine-2
        row c-aaaa running sb-1 age=9h heard=-5h health=dead
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 5h 0m (max_silent_hours 4): it will be terminated
    waiting c-aaaa: its provider was engine-1, and another one answers now (engine-2)
    ");
    let world = "
        memory identity engine-2
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    announce provider_identity_changed
      Provider fake is now engine-1, it was engine-2: containers of the former one are left as they are
    memory engine-1
    ");
}

#[test]
fn the_first_identity_is_no_change() {
    let world = "
        memory empty
    ";
    assert_snapshot!(planned(world), @"memory engine-1");
}

#[test]
fn a_mass_disappearance_trips_the_breaker() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    announce breaker_tripped
      4 of 4 containers vanished from fake at once: nothing is changed until 3 listings and the inspections agree
    waiting: breaker open: 1 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since now agreed 1 at now
    wake +10s
    ");
}

#[test]
fn an_empty_listing_of_many_against_living_inspections_changes_nothing_either() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa running
        inspect c-bbbb running
        inspect c-cccc running
        inspect c-dddd running
    ";
    assert_snapshot!(planned(world), @"
    announce breaker_tripped
      4 of 4 containers vanished from fake at once: nothing is changed until 3 listings and the inspections agree
    waiting: breaker open: 0 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since now agreed 0
    wake +10s
    ");
}

#[test]
fn the_breaker_counts_listings_that_are_apart() {
    let world = "
        breaker since=-9s agreed=1 at=-9s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    waiting: breaker open: 1 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    wake +1s
    ");
    let world = "
        breaker since=-10s agreed=1 at=-10s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    waiting: breaker open: 2 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since -10s agreed 2 at now
    wake +10s
    ");
}

#[test]
fn the_breaker_yields_to_three_agreeing_listings() {
    let world = "
        breaker since=-20s agreed=2 at=-11s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    announce breaker_released
      Breaker released: three complete listings and the inspections agree
    record c-aaaa running -> terminated (external) [container_terminated]
      ended now
    record c-bbbb running -> terminated (external) [container_terminated]
      ended now
    record c-cccc running -> terminated (external) [container_terminated]
      ended now
    record c-dddd running -> terminated (external) [container_terminated]
      ended now
    memory engine-1
    ");
}

/// Of thousands that vanish not all can be asked about in one pass: those that were decide for all whether the provider is
/// believed, and each of the others still waits for its own answer.
#[test]
fn who_was_not_asked_yet_neither_holds_the_breaker_nor_is_taken_for_gone() {
    let world = "
        breaker since=-20s agreed=2 at=-11s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc later
        inspect c-dddd later
    ";
    assert_snapshot!(planned(world), @"
    announce breaker_released
      Breaker released: three complete listings and the inspections agree
    record c-aaaa running -> terminated (external) [container_terminated]
      ended now
    record c-bbbb running -> terminated (external) [container_terminated]
      ended now
    waiting c-cccc: not listed, and asked about in one of the next passes, as there are many
    waiting c-dddd: not listed, and asked about in one of the next passes, as there are many
    memory engine-1
    ");
    let world = "
        breaker since=-20s agreed=2 at=-11s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa later
        inspect c-bbbb later
        inspect c-cccc later
        inspect c-dddd later
    ";
    assert_snapshot!(planned(world), @"
    waiting: breaker open: 2 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    wake -1s
    ");
}

#[test]
fn the_breaker_starts_over_when_an_inspection_disagrees() {
    let world = "
        breaker since=-20s agreed=2 at=-11s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd running
    ";
    assert_snapshot!(planned(world), @"
    waiting: breaker open: 0 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since -20s agreed 0
    wake +10s
    ");
    let world = "
        breaker since=-20s agreed=2 at=-11s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd unknown
    ";
    assert_snapshot!(planned(world), @"
    waiting: breaker open: 0 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since -20s agreed 0
    wake +10s
    ");
}

#[test]
fn the_breaker_is_released_when_all_are_listed_again() {
    let world = "
        breaker since=-20s agreed=2 at=-11s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-bbbb running
        sandbox sb-3 c-cccc running
        sandbox sb-4 c-dddd running
    ";
    assert_snapshot!(planned(world), @"
    announce breaker_released
      Breaker released: what had vanished is listed again
    memory engine-1
    ");
}

/// That three came back does not make the provider credible about the fourth.
#[test]
fn an_open_breaker_holds_for_the_few_that_are_still_missing() {
    let world = "
        breaker since=-20s agreed=0
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-bbbb running
        sandbox sb-3 c-cccc running
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    waiting: breaker open: 1 of 3 listings agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since -20s agreed 1 at now
    wake +10s
    ");
}

#[test]
fn a_request_to_end_one_does_not_release_the_breaker_for_the_rest() {
    let world = "
        breaker since=-5s agreed=1 at=-5s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4 desired=terminated asked=-1s
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    record c-dddd running -> stopped (manual) [container_stopped]
      ended now, confirmed now
    waiting: breaker open: 1 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    wake now
    busy
    ");
}

#[test]
fn three_of_four_is_a_mass_two_are_not() {
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        sandbox sb-1 c-aaaa running
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    announce breaker_tripped
      3 of 4 containers vanished from fake at once: nothing is changed until 3 listings and the inspections agree
    waiting: breaker open: 1 of 3 listings agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since now agreed 1 at now
    wake +10s
    ");
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-bbbb running
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    record c-cccc running -> terminated (external) [container_terminated]
      ended now
    record c-dddd running -> terminated (external) [container_terminated]
      ended now
    ");
    let world = "
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (external) [container_terminated]
      ended now
    record c-bbbb running -> terminated (external) [container_terminated]
      ended now
    record c-cccc running -> terminated (external) [container_terminated]
      ended now
    ");
}

#[test]
fn what_was_asked_to_end_does_not_trip_the_breaker() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-5s
        row c-bbbb running sb-2 desired=terminated asked=-5s
        row c-cccc running sb-3 desired=terminated asked=-5s
        row c-dddd running sb-4 desired=terminated asked=-5s
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> stopped (manual) [container_stopped]
      ended now, confirmed now
    record c-bbbb running -> stopped (manual) [container_stopped]
      ended now, confirmed now
    record c-cccc running -> stopped (manual) [container_stopped]
      ended now, confirmed now
    record c-dddd running -> stopped (manual) [container_stopped]
      ended now, confirmed now
    wake now
    busy
    ");
}

#[test]
fn what_had_ended_does_not_trip_the_breaker() {
    let world = "
        row c-aaaa stopped sb-1 why=idle_timeout ended=-1m
        row c-bbbb stopped sb-2 why=idle_timeout ended=-1m
        row c-cccc stopped sb-3 why=idle_timeout ended=-1m
        row c-dddd stopped sb-4 why=idle_timeout ended=-1m
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa stopped -> terminated (idle_timeout) [container_terminated]
    record c-bbbb stopped -> terminated (idle_timeout) [container_terminated]
    record c-cccc stopped -> terminated (idle_timeout) [container_terminated]
    record c-dddd stopped -> terminated (idle_timeout) [container_terminated]
    ");
}

#[test]
fn rows_of_a_former_identity_do_not_hide_a_mass_disappearance() {
    let world = "
        row c-old0 running sb-90 identity=engine-0
        row c-old1 running sb-91 identity=engine-0
        row c-old2 running sb-92 identity=engine-0
        row c-old3 running sb-93 identity=engine-0
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        inspect c-aaaa absent
        inspect c-bbbb absent
        inspect c-cccc absent
        inspect c-dddd absent
    ";
    assert_snapshot!(planned(world), @"
    announce breaker_tripped
      4 of 4 containers vanished from fake at once: nothing is changed until 3 listings and the inspections agree
    waiting c-old0: its provider was engine-0, and another one answers now (engine-1)
    waiting c-old1: its provider was engine-0, and another one answers now (engine-1)
    waiting c-old2: its provider was engine-0, and another one answers now (engine-1)
    waiting c-old3: its provider was engine-0, and another one answers now (engine-1)
    waiting: breaker open: 1 of 3 listings agree
    waiting c-aaaa: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-bbbb: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-cccc: too many vanished at once; waiting until three listings and the inspections agree
    waiting c-dddd: too many vanished at once; waiting until three listings and the inspections agree
    memory engine-1, breaker since now agreed 1 at now
    wake +10s
    ");
}

#[test]
fn an_open_breaker_is_kept_while_the_provider_is_away() {
    let world = r#"
        breaker since=-20s agreed=2 at=-11s
        memory unreachable=-15s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        list error "timeout"
    "#;
    assert_snapshot!(planned(world), @"
    waiting: provider fake does not answer (timeout); nothing is concluded from that
    ");
    let world = "
        breaker since=-20s agreed=2 at=-11s
        row c-aaaa running sb-1
        row c-bbbb running sb-2
        row c-cccc running sb-3
        row c-dddd running sb-4
        list partial
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: the listing was incomplete; absence from it means nothing
    waiting c-bbbb: the listing was incomplete; absence from it means nothing
    waiting c-cccc: the listing was incomplete; absence from it means nothing
    waiting c-dddd: the listing was incomplete; absence from it means nothing
    ");
}

#[test]
fn an_intent_is_carried_out() {
    let world = "
        row c-aaaa created
    ";
    assert_snapshot!(planned(world), @"
    create c-aaaa attempt 1
    wake now
    busy
    ");
}

/// It was never asked for, so nothing of it can be missing.
#[test]
fn an_intent_is_carried_out_although_the_listing_is_partial() {
    let world = "
        list partial
        row c-aaaa created
    ";
    assert_snapshot!(planned(world), @"
    create c-aaaa attempt 1
    wake now
    busy
    ");
}

#[test]
fn an_unwanted_intent_is_closed_before_it_is_asked_for() {
    let world = "
        row c-aaaa created desired=terminated
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa created -> terminated (manual) [container_terminated]
      ended now, confirmed now
    ");
}

#[test]
fn an_unconfirmed_create_is_waited_for() {
    let world = "
        row c-aaaa created attempts=1 tried=-10s
        inspect c-aaaa absent
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: its creation may still arrive; decided in 20s
    wake +20s
    busy
    ");
}

#[test]
fn an_idempotent_create_is_repeated() {
    let world = "
        row c-aaaa created attempts=1 tried=-30s
        inspect c-aaaa absent
    ";
    assert_snapshot!(planned(world), @"
    create c-aaaa attempt 2
    wake now
    busy
    ");
}

/// Made, never started, and whoever asked for it was not answered: a second create finishes the first.
#[test]
fn an_idempotent_create_that_was_cut_in_half_is_finished() {
    let half = |tried: &str, provider: &str| {
        planned(&format!(
            "{provider}
            row c-aaaa created attempts=1 tried=-{tried}
            sandbox sb-1 c-aaaa starting age=5s"
        ))
    };
    assert_snapshot!(half("31s", ""), @"
    create c-aaaa attempt 2
    wake now
    busy
    ");
    assert_snapshot!(half("10s", ""), @"
    waiting c-aaaa: the provider is starting it
    wake +20s
    busy
    ");
    assert_snapshot!(half("31s", "provider idempotent=false settles=30"), @"
    waiting c-aaaa: the provider is starting it
    busy
    ");
}

#[test]
fn a_create_that_was_answered_may_not_be_shown_yet() {
    let world = "
        row c-aaaa created sb-1 attempts=1 tried=-10s
        row c-bbbb created sb-2 attempts=1 tried=-30s
        inspect c-aaaa absent
        inspect c-bbbb absent
    ";
    let plan = planned(world);
    assert!(plan.contains("waiting c-aaaa: its creation may still arrive; decided in 20s"), "{plan}");
    assert!(plan.contains("record c-bbbb created -> terminated (external)"), "{plan}");
    assert!(!plan.contains("record c-aaaa"), "{plan}");
}

#[test]
fn a_create_that_is_not_idempotent_is_given_up_as_lost() {
    let world = "
        provider idempotent=false settles=120
        row c-aaaa created attempts=1 tried=-119s
        row c-bbbb created attempts=1 tried=-120s
        inspect c-aaaa absent
        inspect c-bbbb absent
    ";
    assert_snapshot!(planned(world), @"
    create lost c-bbbb: successor under a new id
    waiting c-aaaa: its creation may still arrive; decided in 1s
    wake now
    busy
    ");
}

/// Contract 2: its successor `c-bbbb` runs; reviving `c-aaaa` would run the same work twice.
#[test]
fn the_late_arrival_of_a_lost_create_is_a_suspect_and_not_a_twin() {
    let world = "
        row c-aaaa terminated why=create_lost attempts=1 tried=-5m ended=-3m
        row c-bbbb running sb-2
        sandbox sb-2 c-bbbb running
        sandbox sb-1 c-aaaa running age=30s
    ";
    assert_snapshot!(planned(world), @"
    register sb-1 as unknown under a new id
    wake +90s
    ");
}

#[test]
fn the_late_arrival_of_a_cancelled_create_is_stopped() {
    let world = "
        row c-aaaa terminated why=manual attempts=1 tried=-5m ended=-3m desired=terminated asked=-4m
        sandbox sb-1 c-aaaa running age=30s
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa terminated -> running [state_drift_corrected]
      ended none, sandbox sb-1, identity engine-1
    stop c-aaaa grace 10s attempt 1
    busy
    ");
}

#[test]
fn create_attempts_are_exhausted() {
    let world = "
        row c-aaaa created attempts=4 tried=-30s
        row c-bbbb created attempts=5 tried=-30s
        inspect c-aaaa absent
        inspect c-bbbb absent
    ";
    assert_snapshot!(planned(world), @"
    create c-aaaa attempt 5
    record c-bbbb created -> terminated (create_failed) [create_failed]
      ended now
    wake now
    busy
    ");
}

#[test]
fn an_unconfirmed_create_that_is_unwanted_is_closed_when_settled() {
    let world = "
        row c-aaaa created attempts=1 tried=-29s desired=terminated
        row c-bbbb created attempts=1 tried=-30s desired=terminated
        inspect c-aaaa absent
        inspect c-bbbb absent
    ";
    assert_snapshot!(planned(world), @"
    record c-bbbb created -> terminated (manual) [container_terminated]
      ended now, confirmed now
    waiting c-aaaa: its creation may still arrive; decided in 1s
    wake +1s
    busy
    ");
}

#[test]
fn whether_a_create_still_arrives_is_for_who_watched_long_enough_whatever_the_dates_say() {
    let world = "
        provider watched=10
        row c-aaaa created attempts=1 tried=-3600s desired=terminated
        row c-bbbb created attempts=1 tried=3600s desired=terminated
        inspect c-aaaa absent
        inspect c-bbbb absent
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: its creation may still arrive; decided in 20s
    waiting c-bbbb: its creation may still arrive; decided in 20s
    wake +20s
    busy
    ");
}

#[test]
fn a_confirmed_create_that_vanished_has_ended() {
    let world = "
        row c-aaaa created sb-1 attempts=1 tried=-60s
        inspect c-aaaa absent
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa created -> terminated (external) [container_terminated]
      ended now
    ");
}

#[test]
fn an_unwanted_sandbox_is_stopped_while_it_starts() {
    let world = "
        row c-aaaa created sb-1 attempts=1 tried=-5s desired=terminated asked=-1s
        sandbox sb-1 c-aaaa starting age=3s
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    waiting c-aaaa: the provider is starting it
    busy
    ");
}

#[test]
fn force_follows_the_grace() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-11s grace=10 stops=1 stopped=-11s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: told to stop; force in 1s if it is still there
    wake +1s
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-12s grace=10 stops=1 stopped=-12s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 0s attempt 2
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-20s grace=10 stops=1 stopped=-1s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: told to stop; force in 11s if it is still there
    wake +11s
    busy
    ");
}

/// We died between writing "seen" and asking the provider: it does not know yet that it has to end.
#[test]
fn a_stop_that_was_never_taken_is_sent_politely() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-60s grace=30 stops=1 stopped=-50s untaken=true
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 30s attempt 2
    busy
    ");
}

/// The wall clock was set, or we were away: no observer has heard the silence yet, so nobody is ended.
#[test]
fn silence_by_the_wall_clock_alone_is_told_and_ends_nobody() {
    let world = "
        row c-aaaa running sb-1 age=9h heard=-5h health=healthy
        sandbox sb-1 c-aaaa running age=9h
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 5h 0m (max_silent_hours 4): it will be terminated
    ");
}

/// An unreachable provider hides nothing: the silence behind it is told.
#[test]
fn silence_behind_an_unreachable_provider_is_told() {
    let world = r#"
        row c-aaaa running sb-1 age=9h heard=-5h health=dead
        list error "timeout"
    "#;
    let planned = planned(world);
    assert!(planned.contains("alert c-aaaa silent") && !planned.contains("desire"), "{planned}");
}

#[test]
fn force_is_repeated_with_growing_pauses() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-60s grace=10 stops=2 stopped=-3s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: told to stop; force in 1s if it is still there
    wake +1s
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-60s grace=10 stops=2 stopped=-4s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 0s attempt 3
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-60s grace=10 stops=4 stopped=-15s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: told to stop; force in 1s if it is still there
    wake +1s
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-1h grace=10 stops=40 stopped=-29s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: told to stop; force in 1s if it is still there
    wake +1s
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-1h grace=10 stops=40 stopped=-30s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 0s attempt 41
    busy
    ");
}

#[test]
fn a_refused_stop_is_repeated_with_its_whole_grace() {
    let world = r#"
        row c-aaaa running sb-1 desired=terminated asked=-1s grace=10 stops=1 stopped=-1s error="no permission"
        sandbox sb-1 c-aaaa running
    "#;
    assert_snapshot!(planned(world), @"
    waiting c-aaaa: the provider refused to stop it (no permission); asked again in 1s
    wake +1s
    busy
    ");
    let world = r#"
        row c-aaaa running sb-1 desired=terminated asked=-4s grace=10 stops=1 stopped=-2s error="no permission"
        sandbox sb-1 c-aaaa running
    "#;
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 2
    busy
    ");
    let world = r#"
        row c-aaaa running sb-1 desired=terminated asked=-40s grace=10 stops=3 stopped=-8s error="no permission"
        sandbox sb-1 c-aaaa running
    "#;
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 4
    busy
    ");
}

#[test]
fn a_stop_without_a_grace_has_ten_seconds() {
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-1s
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 10s attempt 1
    busy
    ");
    let world = "
        row c-aaaa running sb-1 desired=terminated asked=-1s grace=0
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    stop c-aaaa grace 0s attempt 1
    busy
    ");
}

#[test]
fn stops_come_before_creates_in_a_full_batch() {
    let world = "
        settings max_reconcile_batch=2
        row c-aaaa created
        row c-bbbb running sb-2 desired=terminated
        row c-cccc created
        row c-dddd running sb-4 desired=terminated
        row c-eeee running sb-5 desired=terminated
        sandbox sb-2 c-bbbb running
        sandbox sb-4 c-dddd running
        sandbox sb-5 c-eeee running
    ";
    assert_snapshot!(planned(world), @"
    stop c-bbbb grace 10s attempt 1
    stop c-dddd grace 10s attempt 1
    waiting: 3 more changes than max_reconcile_batch (2) allows; they follow at once
    wake now
    busy
    ");
    let world = "
        settings max_reconcile_batch=2
        row c-aaaa created
        row c-bbbb running sb-2 desired=terminated
        row c-cccc created
        sandbox sb-2 c-bbbb running
    ";
    assert_snapshot!(planned(world), @"
    stop c-bbbb grace 10s attempt 1
    create c-aaaa attempt 1
    waiting: 1 more changes than max_reconcile_batch (2) allows; they follow at once
    wake now
    busy
    ");
    let world = "
        settings max_reconcile_batch=2
        row c-aaaa created
        row c-bbbb created
    ";
    assert_snapshot!(planned(world), @"
    create c-aaaa attempt 1
    create c-bbbb attempt 1
    wake now
    busy
    ");
}

#[test]
fn auto_terminate_stale() {
    let world = "
        settings auto_terminate_stale=true
        row c-aaaa running sb-1 health=unhealthy
        row c-bbbb running sb-2 health=dead
        row c-cccc running sb-3 health=degraded
        row c-dddd running sb-4 health=dead keep=true
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-bbbb running
        sandbox sb-3 c-cccc running
        sandbox sb-4 c-dddd running
    ";
    assert_snapshot!(planned(world), @"
    desire c-aaaa terminated (stale, grace 10s)
    desire c-bbbb terminated (stale, grace 10s)
    busy
    ");
    let world = "
        row c-aaaa running sb-1 health=dead
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn nobody_is_stale_who_was_heard_a_moment_ago() {
    // The ladder is told of it by the next health pass.
    let world = "
        settings auto_terminate_stale=true
        row c-aaaa running sb-1 age=2h health=dead heard=-1s
        row c-bbbb running sb-2 age=2h health=dead heard=-300s
        row c-cccc running sb-3 age=2h health=dead heard=+1h
        sandbox sb-1 c-aaaa running age=2h
        sandbox sb-2 c-bbbb running age=2h
        sandbox sb-3 c-cccc running age=2h
    ";
    assert_snapshot!(planned(world), @"
    desire c-bbbb terminated (stale, grace 10s)
    desire c-cccc terminated (stale, grace 10s)
    busy
    ");
}

#[test]
fn nobody_is_stale_in_the_resumption_window() {
    let world = "
        settings auto_terminate_stale=true
        observer 299
        row c-aaaa running sb-1 health=dead heard=-5h
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"nothing");
    let world = "
        settings auto_terminate_stale=true
        observer 300
        row c-aaaa running sb-1 health=dead heard=-5h
        sandbox sb-1 c-aaaa running
    ";
    assert_snapshot!(planned(world), @"
    desire c-aaaa terminated (stale, grace 10s)
    busy
    ");
}

#[test]
fn the_grace_of_a_suspect_protects_it_from_being_stale() {
    let world = "
        settings auto_terminate_stale=true orphan_grace_period_seconds=3600
        row c-zzzz unknown sb-9 age=10m health=dead
        sandbox sb-9 c-zzzz running age=10m
    ";
    assert_snapshot!(planned(world), @"
    waiting c-zzzz: suspected: an orphan in 3000s unless something claims it
    wake +3000s
    ");
}

#[test]
fn silent_for_hours_is_alerted_and_ended() {
    let world = "
        row c-aaaa running sb-1 age=9h heard=-4h health=dead
        sandbox sb-1 c-aaaa running age=9h
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 4h 0m (max_silent_hours 4): it will be terminated
    desire c-aaaa terminated (silent, grace 10s)
    busy
    ");
    let world = "
        row c-aaaa running sb-1 age=9h heard=-239m
        sandbox sb-1 c-aaaa running age=9h
    ";
    assert_snapshot!(planned(world), @"nothing");
    let world = "
        row c-aaaa running sb-1 age=4h health=dead
        sandbox sb-1 c-aaaa running age=4h
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 4h 0m (max_silent_hours 4): it will be terminated
    desire c-aaaa terminated (silent, grace 10s)
    busy
    ");
    let world = "
        observer 299
        row c-aaaa running sb-1 age=9h heard=-5h
        sandbox sb-1 c-aaaa running age=9h
    ";
    assert_snapshot!(planned(world), @"nothing");
    let world = "
        settings max_silent_hours=0.5
        row c-aaaa running sb-1 age=9h heard=-30m health=dead
        sandbox sb-1 c-aaaa running age=9h
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 30m (max_silent_hours 0.5): it will be terminated
    desire c-aaaa terminated (silent, grace 10s)
    busy
    ");
}

#[test]
fn a_kept_one_is_only_alerted() {
    let world = "
        row c-aaaa running sb-1 age=9h heard=-5h keep=true
        sandbox sb-1 c-aaaa running age=9h
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 5h 0m (max_silent_hours 4): kept, as it was started with --keep
    ");
}

#[test]
fn silence_is_alerted_once_and_again_only_after_it_was_heard() {
    let world = "
        row c-aaaa running sb-1 age=9h heard=-5h keep=true alerted=-1h
        sandbox sb-1 c-aaaa running age=9h
    ";
    assert_snapshot!(planned(world), @"nothing");
    let world = "
        row c-aaaa running sb-1 age=90h heard=-5h keep=true alerted=-20h
        sandbox sb-1 c-aaaa running age=90h
    ";
    assert_snapshot!(planned(world), @"
    alert c-aaaa silent
      No heartbeat persisted for 5h 0m (max_silent_hours 4): kept, as it was started with --keep
    ");
}

#[test]
fn an_orphan_that_was_never_heard_is_silent_from_its_first_sight() {
    let world = "
        row c-zzzz orphaned sb-9 age=90h suspected=-1h
        sandbox sb-9 c-zzzz running age=90h
    ";
    assert_snapshot!(planned(world), @"nothing");
    let world = "
        row c-zzzz orphaned sb-9 age=90h suspected=-4h health=dead
        sandbox sb-9 c-zzzz running age=90h
    ";
    assert_snapshot!(planned(world), @"
    alert c-zzzz silent
      No heartbeat persisted for 4h 0m (max_silent_hours 4): it will be terminated
    desire c-zzzz terminated (silent, grace 10s)
    busy
    ");
}

#[test]
fn cost_is_written_down_every_five_minutes() {
    let world = "
        price 3.6/h
        row c-aaaa running sb-1 cost=3.31
        row c-bbbb running sb-2 cost=3.30
        sandbox sb-1 c-aaaa running
        sandbox sb-2 c-bbbb running
    ";
    assert_snapshot!(planned(world), @"
    record c-bbbb running -> running []
      cost 3.30 -> 3.60 estimated
    ");
}

#[test]
fn a_reported_cost_is_the_providers_word() {
    let world = "
        price 3.6/h
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa running reported=9.99
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> running [cost_corrected]
      cost 3.60 -> 9.99 reported
    ");
}

#[test]
fn an_earlier_end_corrects_the_cost() {
    let world = "
        price 3.6/h
        row c-aaaa running sb-1
        sandbox sb-1 c-aaaa exited 0 ended=-30m
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (completed) exit 0 [container_terminated, cost_corrected]
      ended -1800s, cost 3.60 -> 1.80 estimated
    ");
}

#[test]
fn cost_ends_with_the_stop_and_not_with_the_cleaning_up() {
    let world = "
        price 3.6/h
        row c-aaaa stopped sb-1 why=manual desired=terminated asked=-31m ended=-30m cost=1.8
        inspect c-aaaa absent
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa stopped -> terminated (manual) [container_terminated]
      confirmed now
    ");
}

#[test]
fn a_reported_cost_outlives_its_sandbox() {
    let world = "
        row c-aaaa running sb-1 cost=5 source=reported
        inspect c-aaaa absent
    ";
    assert_snapshot!(planned(world), @"
    record c-aaaa running -> terminated (external) [container_terminated]
      ended now
    ");
}

#[test]
fn a_suspect_has_a_price_from_its_start() {
    let world = "
        price 3.6/h
        sandbox sb-9 c-zzzz running age=2h
    ";
    assert_snapshot!(planned(world), @"
    register sb-9 as orphaned
      cost 7.20 estimated
    ");
}

#[test]
fn foreign_sandboxes_are_seen_once_and_never_touched() {
    let world = "
        sandbox sb-9 c-zzzz running instance=other
        sandbox sb-8 c-yyyy exited 0 instance=other
    ";
    assert_snapshot!(planned(world), @"foreign sb-9 of other");
    let world = "
        known-foreign sb-9
        sandbox sb-9 c-zzzz running instance=other
    ";
    assert_snapshot!(planned(world), @"nothing");
    let world = "
        known-foreign sb-9
        known-foreign sb-8
        known-foreign sb-7
        sandbox sb-8 c-yyyy exited 0 instance=other
    ";
    assert_snapshot!(planned(world), @"
    foreign sb-7 gone
    foreign sb-8 gone
    foreign sb-9 gone
    ");
}

#[test]
fn a_foreign_sandbox_that_cannot_be_told_is_not_gone() {
    let world = r#"
        known-foreign sb-9
        sandbox sb-9 c-zzzz unknown "shared file system" instance=other
    "#;
    assert_snapshot!(planned(world), @"nothing");
}

#[test]
fn an_adopted_instance_is_ours() {
    let world = "
        adopted other
        known-foreign sb-9
        sandbox sb-9 c-zzzz running instance=other
    ";
    assert_snapshot!(planned(world), @"
    register sb-9 as orphaned
    foreign sb-9 gone
    ");
}

#[test]
fn a_foreign_sandbox_with_our_containers_tag_is_not_ours() {
    let world = "
        row c-aaaa created attempts=1 tried=-10s
        sandbox sb-9 c-aaaa running instance=other
        inspect c-aaaa absent
    ";
    assert_snapshot!(planned(world), @"
    foreign sb-9 of other
    waiting c-aaaa: its creation may still arrive; decided in 20s
    wake +20s
    busy
    ");
}
