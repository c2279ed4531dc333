//! From a start to an end, the ordinary ways.

use parhelia_core::sandbox::{Inspection, Phase};
use parhelia_core::state::TerminationReason;
use parhelia_providers::process::jobdir::{JobResult, Sentinel, read_json};
use parhelia_providers::{CreateError, Provider};
use rustix::process::Signal;

use crate::ground::*;

#[tokio::test]
async fn a_command_runs_to_its_end_and_leaves_a_record() {
    let ground = Ground::new();
    let spec = shell("seq 1 20000; echo done >&2; exit 7");
    let made = ground.provider.create(&spec).await.unwrap();
    assert_eq!(made.sandbox_id, job_of(&spec));
    assert_eq!(made.tags.container, spec.container_id);
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (Some(7), TerminationReason::Failed));

    let expected: String = (1..=20000).map(|n| format!("{n}\n")).collect::<String>() + "done\n";
    assert_eq!(ground.output(&spec).await, expected);
    let dir = ground.dir(&spec);
    let result: JobResult = read_json(&dir.result()).unwrap().unwrap();
    assert_eq!(result.output_bytes, expected.len() as u64);
    assert_eq!((result.lost_bytes, result.signal.as_deref()), (0, None));
    assert!(for_a_while(async || !dir.sentinel().exists()).await, "the sentinel goes after the result");
    let chunk = ground.provider.logs(&reference(&spec), result.output_bytes, 100).await.unwrap();
    assert!(chunk.finished && chunk.bytes.is_empty());

    let listing = ground.provider.list().await.unwrap();
    assert!(listing.complete);
    assert_eq!(listing.identity, "home-1");
    assert_eq!(listing.sandboxes.len(), 1);
    assert!(matches!(listing.sandboxes[0].phase, Phase::Exited(_)));
}

#[tokio::test]
async fn a_running_job_has_a_sentinel_and_success_is_completed() {
    let ground = Ground::new();
    let spec = shell("echo up; while [ ! -e go ]; do sleep 0.02; done");
    let made = ground.provider.create(&spec).await.unwrap();
    assert_eq!(made.phase, Phase::Running);
    assert!(made.started_at.is_some());
    ground.says(&spec, "up").await;
    let dir = ground.dir(&spec);
    let sentinel: Sentinel = read_json(&dir.sentinel()).unwrap().unwrap();
    assert_eq!(sentinel.status, "running");
    assert_eq!(sentinel.job_id.to_string(), job_of(&spec));
    assert_eq!(sentinel.session_id, None, "its agent named no session");
    assert_eq!(sentinel.agent_engine, "sh");
    let again = for_a_while(async || {
        let later: Sentinel = read_json(&dir.sentinel()).unwrap().unwrap();
        later.last_heartbeat > sentinel.last_heartbeat
    });
    assert!(again.await, "the sentinel is renewed");
    std::fs::write(dir.path().join("go"), "").unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (Some(0), TerminationReason::Completed));
}

#[tokio::test]
async fn the_command_knows_whose_it_is_and_inherits_nothing_else_of_ours() {
    let ground = Ground::new();
    let mut spec = shell("env; ls -l /proc/self/fd; pwd; echo end");
    spec.env.insert("MINE".into(), "1 2".into());
    spec.env.insert("PARHELIA_JOB_ID".into(), "forged".into());
    let work = tempfile::tempdir().unwrap();
    spec.workdir = Some(work.path().to_str().unwrap().to_owned());
    ground.provider.create(&spec).await.unwrap();
    ground.ended(&spec).await;
    let said = ground.output(&spec).await;
    for line in [
        format!("PARHELIA_JOB_ID={}", job_of(&spec)),
        format!("PARHELIA_CONTAINER_ID={}", spec.container_id),
        "PARHELIA_TASK_ID=ta-1".to_owned(),
        "PARHELIA_INSTANCE_ID=instance-1".to_owned(),
        format!("PARHELIA_HOME={}", ground.home.display()),
        "MINE=1 2".to_owned(),
        work.path().canonicalize().unwrap().display().to_string(),
    ] {
        assert!(said.lines().any(|l| l == line), "{line} is missing in {said}");
    }
    assert!(!said.contains("PARHELIA_SUPERVISES"), "{said}");
    assert!(!said.contains(".alive") && !said.contains("socket:"), "{said}");
    assert!(said.contains("0 -> /dev/null"), "{said}");
}

#[tokio::test]
async fn a_second_create_of_the_same_id_starts_nothing() {
    let ground = Ground::new();
    let spec = shell("echo once; sleep 1000");
    let first = ground.provider.create(&spec).await.unwrap();
    let second = ground.provider.create(&spec).await.unwrap();
    assert_eq!(first.sandbox_id, second.sandbox_id);
    assert_eq!(second.phase, Phase::Running);
    ground.says(&spec, "once").await;
    assert_eq!(ground.output(&spec).await, "once\n");

    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
    let third = ground.provider.create(&spec).await.unwrap();
    assert!(matches!(third.phase, Phase::Exited(_)), "an ended job is not started again");
    assert_eq!(ground.output(&spec).await, "once\n");
}

#[tokio::test]
async fn what_cannot_be_started_says_what_to_do() {
    let ground = Ground::new();
    let spec = spec(&["nosuch-program", "x"]);
    let made = ground.provider.create(&spec).await.unwrap();
    let Phase::Exited(exit) = made.phase else { panic!("{:?}", made.phase) };
    assert_eq!((exit.code, exit.reason), (Some(127), TerminationReason::StartFailed));
    assert!(exit.message.unwrap().contains("cannot start 'nosuch-program': not found in PATH"));

    let file = ground.home.join("plain");
    std::fs::write(&file, "no program").unwrap();
    let spec = crate::ground::spec(&[file.to_str().unwrap()]);
    let Phase::Exited(exit) = ground.provider.create(&spec).await.unwrap().phase else { panic!() };
    assert_eq!(exit.code, Some(126));
    assert!(exit.message.unwrap().contains("chmod +x"));

    let mut spec = shell("true");
    spec.image = Some("alpine".into());
    let error = ground.provider.create(&spec).await.unwrap_err();
    assert!(matches!(&error, CreateError::Rejected(why) if why.contains("docker")), "{error}");
    assert_eq!(ground.provider.inspect(&reference(&spec)).await.unwrap(), Inspection::Absent);
}

#[tokio::test]
async fn a_stop_ends_even_what_forked_twice_and_left_its_session() {
    let ground = Ground::new();
    // The last one has none of our variables and no ties: only its descent tells.
    let marker = format!("{}.5", 100_000 + job_of(&shell("")).len());
    let script = format!(
        "trap '' TERM; (setsid sh -c '(sleep 1000 &) ; sleep 1000' &); (setsid env -i sleep {marker} &); \
         echo ready; while :; do sleep 1; done"
    );
    let spec = shell(&script);
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    let count = || processes("cmdline", &format!("sleep {marker}")).len();
    // The shell's own command line holds the marker too.
    assert!(for_a_while(async || count() >= 2 && of_job(&spec) >= 4).await);

    ground.provider.stop(&reference(&spec), 1).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!(exit.reason, TerminationReason::Manual);
    assert_eq!((count(), of_job(&spec)), (0, 0), "nothing survives its sandbox");
    let result: JobResult = read_json(&ground.dir(&spec).result()).unwrap().unwrap();
    assert_eq!(result.signal.as_deref(), Some("SIGKILL"));
}

#[tokio::test]
async fn a_polite_command_may_tidy_up_and_keep_its_exit_code() {
    let ground = Ground::new();
    let spec = shell("trap 'echo tidy; exit 3' TERM; echo ready; while :; do sleep 0.05; done");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    ground.provider.stop(&reference(&spec), 30).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (Some(3), TerminationReason::Manual));
    assert!(ground.output(&spec).await.ends_with("tidy\n"));
}

#[tokio::test]
async fn a_later_stop_shortens_the_grace() {
    let ground = Ground::new();
    let spec = shell("trap 'echo no' TERM; echo ready; while :; do sleep 0.05; done");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    ground.provider.stop(&reference(&spec), 3600).await.unwrap();
    ground.says(&spec, "no").await;
    assert_eq!(ground.look(&spec).await.phase, Phase::Running);
    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let ground = Ground::new();
    let spec =
        shell("(setsid sleep 1000 &); trap '' TERM; (setsid sh -c 'while :; do sleep 1; done' &); exit 0");
    ground.provider.create(&spec).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (Some(0), TerminationReason::Completed));
    assert_eq!(of_job(&spec), 0);
}

#[tokio::test]
async fn a_signal_that_nobody_of_us_sent_is_a_crash() {
    let ground = Ground::new();
    let spec = shell("kill -SEGV $$");
    ground.provider.create(&spec).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (None, TerminationReason::Crash));
    assert!(exit.message.unwrap().contains("SIGSEGV"));
}

#[tokio::test]
async fn a_closed_terminal_means_nothing_and_sigterm_means_stop() {
    let ground = Ground::new();
    let spec = shell("echo ready; sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    signal_supervisor(&spec, Signal::HUP);
    signal_supervisor(&spec, Signal::TERM);
    let exit = ground.ended(&spec).await;
    assert_eq!(exit.reason, TerminationReason::Manual);
    assert_eq!(of_job(&spec), 0);
}

#[tokio::test]
async fn idle_means_neither_output_nor_cpu() {
    let ground = Ground::new();
    let mut busy = shell("while :; do :; done");
    let mut chatty = shell("while :; do echo .; sleep 0.2; done");
    let mut idle = shell("echo once; sleep 1000");
    for spec in [&mut busy, &mut chatty, &mut idle] {
        spec.idle_timeout_seconds = Some(4);
    }
    for spec in [&busy, &chatty, &idle] {
        ground.provider.create(spec).await.unwrap();
    }
    let exit = ground.ended(&idle).await;
    assert_eq!(exit.reason, TerminationReason::IdleTimeout);
    assert!(exit.message.unwrap().contains("idle timeout"));
    for spec in [&busy, &chatty] {
        assert_eq!(ground.look(spec).await.phase, Phase::Running);
    }
}

#[tokio::test]
async fn a_new_server_finds_what_the_old_one_started() {
    let mut ground = Ground::new();
    let spec = shell("echo ready; while [ ! -e go ]; do sleep 0.02; done; echo bye");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    ground.provider = provider(&ground.home, 1 << 20);
    let listing = ground.provider.list().await.unwrap();
    assert_eq!(listing.sandboxes[0].phase, Phase::Running);
    let changed = ground.provider.changed();
    std::fs::write(ground.dir(&spec).path().join("go"), "").unwrap();
    tokio::time::timeout(DEADLINE, changed).await.expect("the end is hinted at");
    ground.ended(&spec).await;
    assert_eq!(ground.output(&spec).await, "ready\nbye\n");
}

#[tokio::test]
async fn signals_that_were_ignored_or_blocked_around_the_server_do_not_reach_the_job() {
    use std::os::unix::fs::PermissionsExt;
    let mut ground = Ground::new();
    let script = ground.home.join("strange-supervisor");
    let text = format!(
        "#!/bin/sh\nexec env --ignore-signal=CHLD,QUIT,INT --block-signal=TERM,USR1 {} \"$@\"\n",
        supervisor().display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    ground.provider = supervised_by(&ground.home, 1 << 20, script);
    let spec = shell("grep -E '^Sig(Blk|Ign)' /proc/self/status; exit 9");
    ground.provider.create(&spec).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!(
        (exit.code, exit.reason),
        (Some(9), TerminationReason::Failed),
        "its status was not thrown away"
    );
    let said = ground.output(&spec).await;
    for line in said.lines() {
        let (_, mask) = line.split_once(":\t").unwrap();
        // Above the ordinary signals are those that the C library keeps for itself.
        assert_eq!(u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff, 0, "{said}");
    }
    assert_eq!(said.lines().count(), 2);
}
