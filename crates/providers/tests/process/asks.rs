//! What a job asks of its supervisor: to be ended in time, and to be heard when it needs a person.

use parhelia_core::job::{JobAsk, Sign};
use parhelia_core::sandbox::SandboxSpec;
use parhelia_core::state::TerminationReason;
use parhelia_providers::Provider;
use parhelia_providers::process::jobdir::{JobDir, JobResult, Sentinel, read_json};

use crate::ground::*;

fn asking(script: &str, ask: JobAsk) -> SandboxSpec {
    SandboxSpec { job: Some(ask), ..shell(script) }
}

async fn becomes(dir: &JobDir, status: &str) -> Sentinel {
    let mut last = None;
    let met = for_a_while(async || {
        last = read_json::<Sentinel>(&dir.sentinel()).ok().flatten();
        last.as_ref().is_some_and(|sentinel| sentinel.status == status)
    });
    assert!(met.await, "it never was '{status}': {last:?}");
    last.unwrap()
}

#[tokio::test]
async fn it_is_ended_after_its_timeout_with_everything_that_it_started() {
    let ground = Ground::new();
    let ask = JobAsk { timeout_seconds: Some(1), ..JobAsk::default() };
    let spec = asking("trap 'echo told; exit 4' TERM; sleep 1000 & wait", ask);
    ground.provider.create(&spec).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (Some(4), TerminationReason::Timeout));
    assert!(exit.message.unwrap().contains("timeout of 1 s"));
    assert_eq!(ground.output(&spec).await, "told\n");
    assert_eq!(of_job(&spec), 0);

    let ask = JobAsk { timeout_seconds: Some(1000), ..JobAsk::default() };
    let in_time = asking("exit 3", ask);
    ground.provider.create(&in_time).await.unwrap();
    assert_eq!(ground.ended(&in_time).await.reason, TerminationReason::Failed);
}

#[tokio::test]
async fn who_needs_a_person_is_waiting_until_it_goes_on() {
    let ground = Ground::new();
    let spec = asking(
        "echo '{\"type\":\"system\",\"session_id\":\"agent-7\"}'; echo '{\"type\":\"needs_human\",\"reason\":\"which one?\"}'; \
         while [ ! -e answer ]; do sleep 0.02; done; sleep 1.1; echo goes on; while [ ! -e end ]; do sleep 0.02; done; exit 3",
        JobAsk { waiting_codes: vec![3, 4], engine: Some("mine".into()), ..JobAsk::default() },
    );
    let dir = ground.dir(&spec);
    ground.provider.create(&spec).await.unwrap();
    let waiting = becomes(&dir, "waiting").await;
    assert_eq!(waiting.waiting_reason.as_deref(), Some("which one?"));
    assert_eq!(waiting.session_id.as_deref(), Some("agent-7"));
    assert_eq!(waiting.agent_engine, "mine");
    std::fs::write(dir.path().join("answer"), "").unwrap();
    assert_eq!(becomes(&dir, "running").await.waiting_reason, None);
    std::fs::write(dir.path().join("end"), "").unwrap();
    ground.ended(&spec).await;
    let result: JobResult = read_json(&dir.result()).unwrap().unwrap();
    assert!(result.waiting);
    assert_eq!(result.waiting_reason.as_deref(), Some("which one?"));
    assert_eq!(result.session_id.as_deref(), Some("agent-7"));
    assert!(result.sentinel_writes >= 4 && result.sentinel_failures == 0, "{result:?}");
}

#[tokio::test]
async fn an_exit_code_alone_says_it_too_and_only_where_it_was_agreed() {
    let ground = Ground::new();
    let agreed = asking("exit 4", JobAsk { waiting_codes: vec![3, 4], ..JobAsk::default() });
    let other = asking("exit 4", JobAsk::default());
    for (spec, waiting) in [(agreed, Some("exited with code 4")), (other, None)] {
        ground.provider.create(&spec).await.unwrap();
        ground.ended(&spec).await;
        let result: JobResult = read_json(&ground.dir(&spec).result()).unwrap().unwrap();
        assert_eq!((result.waiting, result.waiting_reason.as_deref()), (waiting.is_some(), waiting));
    }
}

#[tokio::test]
async fn only_the_signs_that_count_keep_it_from_being_idle() {
    let ground = Ground::new();
    let busy = "while :; do :; done";
    let mut counts_output = asking(busy, JobAsk { activity: vec![Sign::Output], ..JobAsk::default() });
    counts_output.idle_timeout_seconds = Some(1);
    ground.provider.create(&counts_output).await.unwrap();
    assert_eq!(ground.ended(&counts_output).await.reason, TerminationReason::IdleTimeout);
}

#[tokio::test]
async fn while_it_is_ended_it_is_processing() {
    let ground = Ground::new();
    let spec = shell("trap '' TERM; echo up; while :; do sleep 0.02; done");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "up").await;
    ground.provider.stop(&reference(&spec), 600).await.unwrap();
    assert!(becomes(&ground.dir(&spec), "processing").await.command_started());
    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    assert_eq!(ground.ended(&spec).await.reason, TerminationReason::Manual);
}
