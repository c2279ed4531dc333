//! Deaths, freezes and damage.

use std::fs;

use parhelia_core::sandbox::{Inspection, Listing, Phase, SandboxSpec};
use parhelia_core::state::TerminationReason;
use parhelia_core::time::Clock;
use parhelia_providers::process::ProcessProvider;
use parhelia_providers::process::host::Host;
use parhelia_providers::process::jobdir::{AliveNote, JobDir, read_json, write_json};
use parhelia_providers::process::lock::is_locked;
use parhelia_providers::{Provider, ProviderError, SystemClock};
use rustix::process::Signal;

use crate::ground::*;

#[tokio::test]
async fn a_killed_supervisor_takes_its_command_along_and_the_rest_is_swept() {
    let ground = Ground::new();
    let spec = shell("(setsid sleep 1000 &); echo ready; sleep 1001");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    assert!(for_a_while(async || of_job(&spec) == 3).await);
    signal_supervisor(&spec, Signal::KILL);
    // The command dies with it, by the kernel; the child of the shell and the detached one live on.
    let broken = Phase::Broken { reason: TerminationReason::SupervisorLost };
    assert!(for_a_while(async || ground.look(&spec).await.phase == broken).await);
    assert!(for_a_while(async || of_job(&spec) < 3).await);

    let listing = ground.provider.list().await.unwrap();
    assert_eq!(listing.sandboxes[0].phase, broken);
    ground.provider.stop(&reference(&spec), 10).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (None, TerminationReason::SupervisorLost));
    assert!(exit.at.is_some());
    assert_eq!(of_job(&spec), 0);
    let listing = ground.provider.list().await.unwrap();
    assert!(matches!(listing.sandboxes[0].phase, Phase::Exited(_)));
}

#[tokio::test]
async fn a_death_is_hinted_at() {
    let ground = Ground::new();
    let spec = shell("echo ready; exec sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    ground.provider.list().await.unwrap();
    let changed = ground.provider.changed();
    signal_supervisor(&spec, Signal::KILL);
    tokio::time::timeout(DEADLINE, changed).await.expect("a hint");
    ground.ended(&spec).await;
}

#[tokio::test]
async fn a_frozen_supervisor_is_ended_by_force() {
    let ground = Ground::new();
    let spec = shell("(setsid env -i sleep 100777 &); echo ready; sleep 1001");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    signal_supervisor(&spec, Signal::STOP);
    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    assert_eq!(ground.look(&spec).await.phase, Phase::Running, "the first request only asks");
    let gone = for_a_while(async || {
        ground.provider.stop(&reference(&spec), 0).await.unwrap();
        matches!(ground.look(&spec).await.phase, Phase::Exited(_))
    });
    assert!(gone.await, "{:?}", ground.look(&spec).await.phase);
    assert_eq!(of_job(&spec), 0);
    assert_eq!(processes("cmdline", "sleep 100777").len(), 0, "even what has no variable of ours");
}

/// Leaves a job as a supervisor that died without a result would.
async fn lost(ground: &Ground) -> (SandboxSpec, JobDir) {
    let spec = shell("exec sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    signal_supervisor(&spec, Signal::KILL);
    ground.ended(&spec).await;
    let dir = ground.dir(&spec);
    (spec, dir)
}

#[tokio::test]
async fn a_restart_of_the_machine_is_told_from_another_machine() {
    let ground = Ground::new();
    let (spec, dir) = lost(&ground).await;
    let here = Host::this().unwrap();
    assert!(here.machine_id.is_some(), "this test needs /etc/machine-id; run systemd-machine-id-setup");
    let note = |boot_id: &str, machine_id: Option<String>| {
        let note = AliveNote { protocol: 1, boot_id: boot_id.into(), machine_id };
        fs::write(dir.alive(), serde_json::to_string(&note).unwrap()).unwrap();
    };
    note("another-boot", here.machine_id.clone());
    assert_eq!(ground.ended(&spec).await.reason, TerminationReason::HostRebooted);

    note("another-boot", Some("another-machine".into()));
    assert!(matches!(ground.look(&spec).await.phase, Phase::Unknown { .. }));
    let listing = ground.provider.list().await.unwrap();
    assert!(matches!(listing.sandboxes[0].phase, Phase::Unknown { .. }));

    fs::remove_file(dir.alive()).unwrap();
    assert!(matches!(ground.look(&spec).await.phase, Phase::Unknown { .. }));
}

/// `cp -a` of a whole home, made while its jobs live.
fn copy_of(ground: &Ground, to: &std::path::Path) -> ProcessProvider {
    let copied = std::process::Command::new("cp").arg("-a").arg(&ground.home).arg(to).status().unwrap();
    assert!(copied.success());
    provider(to, 1 << 20)
}

#[tokio::test]
async fn a_copy_of_a_home_knows_nothing_of_the_jobs_and_ends_none() {
    // The second home is so long that the control socket is named by a file, which is copied as well.
    for name in ["h".to_owned(), "h".repeat(60)] {
        let base = tempfile::Builder::new().prefix("p").rand_bytes(3).tempdir_in("/tmp").unwrap();
        let home = base.path().join(name);
        fs::create_dir(&home).unwrap();
        let ground = Ground::at(&home);
        let alive = shell("(setsid sleep 1000 &); echo ready; sleep 1001");
        ground.provider.create(&alive).await.unwrap();
        ground.says(&alive, "ready").await;
        let running = of_job(&alive);
        let done = shell("exit 0");
        ground.provider.create(&done).await.unwrap();
        ground.ended(&done).await;
        let never = lost(&ground).await.0;
        fs::remove_file(ground.dir(&never).sentinel()).unwrap();

        let to = base.path().join("copy");
        let copy = copy_of(&ground, &to);
        let phase = |listing: &Listing, spec: &SandboxSpec| {
            listing.sandboxes.iter().find(|s| s.tags.container == spec.container_id).unwrap().phase.clone()
        };
        let listing = copy.list().await.unwrap();
        let Phase::Unknown { why } = phase(&listing, &alive) else { panic!("{listing:?}") };
        assert!(why.contains("copied from another home"), "{why}");
        assert!(matches!(phase(&listing, &done), Phase::Exited(_)), "a result is a result in a copy too");
        assert!(matches!(phase(&listing, &never), Phase::Unknown { .. }));
        assert!(copy.create(&never).await.is_err(), "only the original may start it");
        for grace in [10, 0] {
            let error = copy.stop(&reference(&alive), grace).await.unwrap_err();
            assert!(matches!(&error, ProviderError::Unreachable(why) if why.contains("copied")), "{error}");
        }
        // Older servers did not write down which file it was: the home's path tells.
        let job = JobDir::of(&to, job_of(&alive).parse().unwrap());
        let mut note: serde_json::Value = read_json(&job.alive()).unwrap().unwrap();
        for name in ["device", "inode"] {
            note.as_object_mut().unwrap().remove(name).expect("the file is named");
        }
        fs::write(job.alive(), note.to_string()).unwrap();
        let listing = copy.list().await.unwrap();
        assert!(matches!(phase(&listing, &alive), Phase::Unknown { .. }), "{listing:?}");
        copy.stop(&reference(&alive), 0).await.unwrap_err();

        // Longer than a supervisor takes to look at a request twice.
        tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
        assert_eq!(ground.look(&alive).await.phase, Phase::Running);
        assert_eq!(of_job(&alive), running, "everything of the original lives");
    }
}

#[tokio::test]
async fn a_home_that_was_renamed_is_the_same_home() {
    let base = tempfile::tempdir().unwrap();
    let home = base.path().join("before");
    fs::create_dir(&home).unwrap();
    let ground = Ground::at(&home);
    let (spec, _) = lost(&ground).await;
    let moved = base.path().join("after");
    fs::rename(&home, &moved).unwrap();
    let listing = provider(&moved, 1 << 20).list().await.unwrap();
    assert_eq!(listing.sandboxes[0].tags.container, spec.container_id);
    assert!(matches!(listing.sandboxes[0].phase, Phase::Exited(_)), "{listing:?}");
}

#[tokio::test]
async fn without_a_machine_id_a_restart_is_known_by_the_very_file() {
    let ground = Ground::new();
    let (spec, dir) = lost(&ground).await;
    let mut note: serde_json::Value = read_json(&dir.alive()).unwrap().unwrap();
    note["bootId"] = "another-boot".into();
    note["machineId"] = serde_json::Value::Null;
    fs::write(dir.alive(), note.to_string()).unwrap();
    assert_eq!(ground.ended(&spec).await.reason, TerminationReason::HostRebooted);
    note.as_object_mut().unwrap().remove("inode");
    fs::write(dir.alive(), note.to_string()).unwrap();
    let Phase::Unknown { why } = ground.look(&spec).await.phase else { panic!() };
    assert!(why.contains("move") && why.contains(dir.path().to_str().unwrap()), "{why}");
}

#[tokio::test]
async fn a_damaged_directory_whose_lock_says_nothing_stays_in_its_place() {
    let ground = Ground::new();
    let (_, elsewhere) = lost(&ground).await;
    let mut note: serde_json::Value = read_json(&elsewhere.alive()).unwrap().unwrap();
    note["bootId"] = "another-boot".into();
    note["machineId"] = "another-machine".into();
    fs::write(elsewhere.alive(), note.to_string()).unwrap();
    let (_, torn) = lost(&ground).await;
    fs::write(torn.alive(), "").unwrap();
    for dir in [&elsewhere, &torn] {
        fs::write(dir.spec(), "").unwrap();
    }
    let provider = provider(&ground.home, 1 << 20);
    for _ in 0..2 {
        assert!(provider.list().await.unwrap().sandboxes.is_empty());
    }
    assert!(elsewhere.path().exists() && torn.path().exists());
    assert!(!ground.home.join("jobs/.quarantine").exists());
    let told = provider.take_quarantined();
    assert_eq!(told.len(), 2, "each once: {told:?}");
    assert!(told.iter().all(|text| text.contains("may be alive and stays")), "{told:?}");
}

#[tokio::test]
async fn what_was_never_started_is_absent_and_started_by_the_next_create() {
    let ground = Ground::new();
    let (spec, dir) = lost(&ground).await;
    // As it is when a server dies between making the directory and starting the supervisor.
    fs::remove_file(dir.sentinel()).unwrap();
    assert_eq!(ground.provider.inspect(&reference(&spec)).await.unwrap(), Inspection::Absent);
    let listing = ground.provider.list().await.unwrap();
    assert!(listing.complete && listing.sandboxes.is_empty());
    let made = ground.provider.create(&spec).await.unwrap();
    assert_eq!(made.phase, Phase::Running);
    // A half made directory is in nobody's way either.
    let other = shell("echo made");
    let aside = ground.home.join("jobs").join(format!(".new-{}", job_of(&other)));
    fs::create_dir(&aside).unwrap();
    ground.provider.create(&other).await.unwrap();
    ground.ended(&other).await;
    assert!(!aside.exists());
}

#[tokio::test]
async fn one_corrupt_directory_is_set_aside_and_the_rest_works() {
    let ground = Ground::new();
    let good = shell("exit 0");
    ground.provider.create(&good).await.unwrap();
    ground.ended(&good).await;
    let (_, dir) = lost(&ground).await;
    fs::write(dir.spec(), "{ not json").unwrap();
    let alive = shell("sleep 1000");
    ground.provider.create(&alive).await.unwrap();
    let alive_dir = ground.dir(&alive);
    fs::write(alive_dir.spec(), "").unwrap();

    // A new server remembers nothing that would help.
    let provider = provider(&ground.home, 1 << 20);
    let listing = provider.list().await.unwrap();
    assert_eq!(listing.sandboxes.len(), 1);
    assert_eq!(listing.sandboxes[0].tags.container, good.container_id);
    assert!(!dir.path().exists(), "the dead one is moved");
    assert!(alive_dir.path().exists(), "the live one stays");
    assert_eq!(fs::read_dir(ground.home.join("jobs/.quarantine")).unwrap().count(), 1);
    provider.list().await.unwrap();
    let mut told = provider.take_quarantined();
    told.sort();
    assert_eq!(told.len(), 2, "each once: {told:?}");
    assert!(
        told.iter().any(|t| t.contains("moved to")) && told.iter().any(|t| t.contains("is alive")),
        "{told:?}"
    );
    assert!(provider.take_quarantined().is_empty());
}

#[tokio::test]
async fn a_damaged_result_is_an_end_without_a_code_and_nothing_is_run_again() {
    let ground = Ground::new();
    let spec = shell("echo once");
    ground.provider.create(&spec).await.unwrap();
    ground.ended(&spec).await;
    let dir = ground.dir(&spec);
    let locked = || is_locked(fs::File::open(dir.alive()).unwrap()).unwrap();
    assert!(for_a_while(async || !locked()).await);
    fs::write(dir.result(), "{").unwrap();
    let provider = provider(&ground.home, 1 << 20);
    let listing = provider.list().await.unwrap();
    let Phase::Exited(exit) = &listing.sandboxes[0].phase else { panic!("{listing:?}") };
    assert_eq!((exit.code, exit.reason), (None, TerminationReason::SupervisorLost));
    provider.create(&spec).await.unwrap();
    assert_eq!(ground.output(&spec).await, "once\n");
}

#[tokio::test]
async fn a_missing_jobs_directory_is_no_empty_listing() {
    let ground = Ground::new();
    let spec = shell("true");
    fs::remove_dir(ground.home.join("jobs")).unwrap();
    let error = ground.provider.list().await.unwrap_err();
    assert!(matches!(&error, ProviderError::Unreachable(why) if why.contains("is gone")), "{error}");
    assert!(matches!(ground.provider.inspect(&reference(&spec)).await, Err(ProviderError::Unreachable(_))));
    fs::write(ground.home.join("jobs"), "a file").unwrap();
    assert!(matches!(ground.provider.list().await, Err(ProviderError::Unreachable(_))));
    fs::remove_file(ground.home.join("jobs")).unwrap();
}

#[tokio::test]
async fn a_supervisor_without_its_lock_refuses_to_run() {
    let ground = Ground::new();
    let (_, dir) = lost(&ground).await;
    fs::remove_file(dir.sentinel()).unwrap();
    let run = |stdin: std::process::Stdio| {
        let mut command = std::process::Command::new(supervisor());
        command.args(["supervise", "--dir"]).arg(dir.path()).stdin(stdin).output().unwrap()
    };
    for stdin in [std::process::Stdio::null(), fs::File::open(dir.alive()).unwrap().into()] {
        let answer = run(stdin);
        assert_eq!(answer.status.code(), Some(1));
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(said.contains("hands the lock over"), "{said}");
    }
    assert!(!dir.sentinel().exists());
}

#[tokio::test]
async fn a_supervisor_that_gives_up_says_why() {
    let ground = Ground::new();
    let (spec, dir) = lost(&ground).await;
    fs::remove_file(dir.sentinel()).unwrap();
    fs::create_dir(dir.result_reserve()).unwrap_or_else(|_| {
        fs::remove_file(dir.result_reserve()).unwrap();
        fs::create_dir(dir.result_reserve()).unwrap();
    });
    let error = ground.provider.create(&spec).await.unwrap_err().to_string();
    assert!(error.contains("was not started") && error.contains(".result.reserve"), "{error}");
    assert_eq!(ground.provider.inspect(&reference(&spec)).await.unwrap(), Inspection::Absent);
}

#[tokio::test]
async fn an_end_between_two_looks_is_seen_as_an_end() {
    // The lock of a finished job is free; its result counts, whatever else lies around.
    let ground = Ground::new();
    let spec = shell("exit 0");
    ground.provider.create(&spec).await.unwrap();
    ground.ended(&spec).await;
    let dir = ground.dir(&spec);
    let leftover = parhelia_providers::process::jobdir::Sentinel {
        job_id: job_of(&spec).parse().unwrap(),
        status: "running".into(),
        last_heartbeat: SystemClock::new().now(),
        workspace_path: String::new(),
        session_id: None,
        agent_engine: String::new(),
        started_at: SystemClock::new().now(),
        progress_percent: None,
        last_progress: None,
        waiting_reason: None,
    };
    write_json(&dir.sentinel(), &leftover, parhelia_providers::process::jobdir::Durability::Atomic).unwrap();
    let provider = provider(&ground.home, 1 << 20);
    let listing = provider.list().await.unwrap();
    let Phase::Exited(exit) = &listing.sandboxes[0].phase else { panic!() };
    assert_eq!(exit.reason, TerminationReason::Completed);
}
