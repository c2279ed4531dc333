//! The seed's screens, letter by letter, with the seed's data.

use parhelia_core::overview::health_rows;
use parhelia_core::state::{ContainerState, Health, TerminationReason};

use super::super::fixtures::{at, plain, seed_container, seed_row};
use super::*;

fn fleet() -> Vec<ContainerView> {
    use ContainerState::{Orphaned, Running};
    vec![
        seed_row(("c-abc123", "sb-xyz789"), (Running, Health::Healthy), Some("ta-def456"), (8100, 1.23)),
        seed_row(("c-def456", "sb-uvw123"), (Running, Health::Degraded), Some("ta-ghi789"), (2700, 0.45)),
        seed_row(("c-ghi789", "sb-rst456"), (Orphaned, Health::Unknown), None, (12_000, 2.10)),
    ]
}

fn sums() -> Totals {
    Totals {
        total: 3,
        running: 2,
        orphaned: 1,
        cost_accrued_usd: 3.78,
        cost_per_hour_usd: 1.2,
        ..Totals::default()
    }
}

#[test]
fn the_seeds_list() {
    assert_eq!(
        plain(&list(&fleet(), &sums(), None, false)),
        "\
ID          SANDBOX      STATE      HEALTH     TASK         AGE      COST
c-abc123    sb-xyz789    running    healthy    ta-def456    2h 15m   $1.23
c-def456    sb-uvw123    running    degraded   ta-ghi789    45m      $0.45
c-ghi789    sb-rst456    orphaned   unknown    -            3h 20m   $2.10

Total: 3 containers | Running: 2 | Orphaned: 1 | Cost: $3.78 accrued, $1.20/hr
"
    );
}

#[test]
fn foreign_ones_are_in_the_total_line() {
    let sums = Totals { total: 1, foreign: 2, foreign_cost_per_hour_usd: 0.3, ..Totals::default() };
    assert_eq!(
        totals(&sums),
        "Total: 1 container | Running: 0 | Orphaned: 0 | Cost: $0.00 accrued, $0.00/hr \
         | Foreign: 2 ($0.30/hr), see 'parhelia instances list'"
    );
}

#[test]
fn wide_adds_columns_and_a_suspected_one_is_unknown() {
    let mut view = fleet().remove(0);
    view.suspected = true;
    view.record.name = Some("evil\x1b[2J".into());
    view.record.command = vec!["sh".into(), "-c".into(), "echo hi".into()];
    let screen = plain(&table(&[view], true));
    assert_eq!(
        screen,
        "\
ID          SANDBOX      STATE      HEALTH     TASK         AGE      COST    NAME            PROVIDER   REASON   EXIT   CPU   MEM   COMMAND
c-abc123    sb-xyz789    unknown    healthy    ta-def456    2h 15m   $1.23   evil\\u{1b}[2J   modal      -        -      45%   62%   sh -c 'echo hi'
"
    );
}

#[test]
fn the_seeds_container() {
    assert_eq!(
        plain(&show(&seed_container(), at("2026-01-21T16:45:15Z"))),
        "\
Container: c-abc123
  Sandbox:      sb-xyz789
  Provider:     modal
  State:        running
  Health:       healthy (last heartbeat: 30s ago)
  Task:         ta-def456 (Run tests for auth module)
  Worker:       w-mno345
  Session:      sess-pqr678

  Resources:
    CPU:        4 cores (45% used)
    Memory:     8192 MB (62% used)
    GPU:        None
    Region:     us-east

  Lifecycle:
    Created:    2026-01-21 14:30:00 UTC
    Started:    2026-01-21 14:30:15 UTC
    Uptime:     2h 15m

  Cost:
    Rate:       $0.54/hr
    Accrued:    $1.23
    Source:     estimated
"
    );
}

#[test]
fn an_ended_container_says_why_and_shows_the_receipts() {
    let mut view = seed_container();
    let record = &mut view.record;
    record.state = ContainerState::Terminated;
    record.terminated_at = Some(at("2026-01-21T15:30:15Z"));
    record.termination_reason = Some(TerminationReason::Manual);
    record.exit_code = Some(143);
    record.command = vec!["sleep".into(), "600".into()];
    record.labels.insert("team".into(), "core".into());
    record.desired = Desired::Terminated;
    record.desired_at = Some(at("2026-01-21T15:30:00Z"));
    record.desired_by = Some("cli".into());
    record.desired_reason = Some(TerminationReason::Manual);
    record.stop_grace_seconds = Some(10);
    record.stop_seen_at = Some(at("2026-01-21T15:30:01Z"));
    record.stopping_at = Some(at("2026-01-21T15:30:02Z"));
    let screen = plain(&show(&view, at("2026-01-21T16:45:15Z")));
    for part in [
        "  State:        terminated\n  Reason:       manual\n  Exit code:    143\n",
        "  Command:      sleep 600\n  Labels:       team=core\n",
        "    Terminated: 2026-01-21 15:30:15 UTC\n    Uptime:     1h 0m\n",
        "  Stop:\n    Desired:    terminated by cli\n    Because:    manual\n    Requested:  2026-01-21 15:30:00 UTC\n",
        "    Grace:      10s\n    Seen:       2026-01-21 15:30:01 UTC\n    Stopping:   2026-01-21 15:30:02 UTC\n    Confirmed:  not yet\n",
    ] {
        assert!(screen.contains(part), "{part}\nis not in\n{screen}");
    }
}

#[test]
fn the_seeds_orphans() {
    let orphans_only: Vec<_> =
        fleet().into_iter().filter(|v| v.record.state == ContainerState::Orphaned).collect();
    assert_eq!(
        plain(&orphans(&orphans_only)),
        "\
ID          SANDBOX      AGE      COST     TASK (if known)
c-ghi789    sb-rst456    3h 20m   $2.10    -

1 orphan detected. Run 'parhelia cleanup --orphans' to terminate.
"
    );
    let mut suspect = orphans_only[0].clone();
    suspect.suspected = true;
    let screen = plain(&orphans(&[suspect]));
    assert!(screen.contains("3h 20m (suspected)") && screen.contains("0 orphans detected"), "{screen}");
    assert!(screen.ends_with("(1 suspected: younger than the grace period)\n"), "{screen}");
}

#[test]
fn the_seeds_health_overview() {
    use ContainerState::{Orphaned, Running};
    let row = |id, state, health| seed_row((id, "sb"), (state, health), None, (1, 0.0));
    let views = [
        row("c-abc123", Running, Health::Healthy),
        row("c-def456", Running, Health::Healthy),
        row("c-jkl012", Running, Health::Degraded),
        row("c-ghi789", Orphaned, Health::Unknown),
    ];
    assert_eq!(
        plain(&health(&health_rows(&views))),
        "\
HEALTH      COUNT    CONTAINERS
healthy     2        c-abc123, c-def456
degraded    1        c-jkl012
unhealthy   0        -
dead        0        -
orphaned    1        c-ghi789
"
    );
    let unknown = health_rows(&[row("c-new123", Running, Health::Unknown)]);
    assert_eq!(unknown.last().map(|r| (r.health.as_str(), r.count)), Some(("unknown", 1)));
}

#[test]
fn the_seeds_watch_lines() {
    let mut view = seed_container();
    view.record.started_at = Some(at("2026-01-21T12:17:15Z"));
    let now = at("2026-01-21T14:32:15Z");
    assert_eq!(plain(&watch_line(&view, now)), "[14:32:15] c-abc123  healthy   CPU: 45%  MEM: 62%  ↑ 2h 15m");
    view.health = Health::Degraded;
    view.record.cpu_percent = None;
    assert_eq!(plain(&watch_line(&view, now)), "[14:32:15] c-abc123  degraded  CPU: -  MEM: 62%  ↑ 2h 15m");
}
