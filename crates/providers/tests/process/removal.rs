//! The directory of a job goes when nothing of it can still need it, and not before.

use parhelia_core::job::JobAsk;
use parhelia_core::sandbox::{Inspection, SandboxSpec, Surroundings};
use parhelia_providers::{CreateError, Provider, ProviderError};
use rustix::process::Signal;

use crate::ground::*;

async fn refused(ground: &Ground, spec: &SandboxSpec) -> String {
    match ground.provider.remove(&reference(spec)).await {
        Err(ProviderError::Rejected(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_job_that_lives_keeps_its_directory_and_an_ended_one_loses_it() {
    let ground = Ground::new();
    let spec = shell("echo ready; read -r line; echo done");
    let spec = SandboxSpec { job: Some(JobAsk { stdin: true, ..JobAsk::default() }), ..spec };
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    assert!(refused(&ground, &spec).await.contains("its supervisor lives"));
    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
    // Its result comes before the lock goes.
    let removed = for_a_while(async || ground.provider.remove(&reference(&spec)).await.is_ok());
    assert!(removed.await);
    assert!(!ground.dir(&spec).path().exists());
    assert_eq!(std::fs::read_dir(ground.home.join("jobs")).unwrap().count(), 0, "nothing is left aside");
    ground.provider.remove(&reference(&spec)).await.unwrap();
    assert_eq!(ground.provider.inspect(&reference(&spec)).await.unwrap(), Inspection::Absent);
    assert!(ground.provider.list().await.unwrap().sandboxes.is_empty());
}

#[tokio::test]
async fn what_is_left_of_a_lost_job_keeps_its_directory() {
    let ground = Ground::new();
    let spec = shell("(setsid sleep 1000 &); echo ready; sleep 1001");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    signal_supervisor(&spec, Signal::KILL);
    let why = for_a_while(async || refused(&ground, &spec).await.contains("of its processes still run"));
    assert!(why.await, "{}", refused(&ground, &spec).await);
    assert!(ground.dir(&spec).path().exists());
    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
    ground.provider.remove(&reference(&spec)).await.unwrap();
    assert!(!ground.dir(&spec).path().exists());
}

#[tokio::test]
async fn a_socket_that_is_elsewhere_goes_too_and_a_removal_that_was_cut_off_is_finished() {
    let kept = tempfile::tempdir().unwrap();
    let home = kept.path().join("a-home-of-which-the-sockets-do-not-fit-inside");
    std::fs::create_dir(&home).unwrap();
    let ground = Ground::at(&home);
    let spec = shell("echo ready; exec sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    let socket = ground.dir(&spec).control_socket();
    assert!(socket.starts_with(home.join("run")), "{}", socket.display());
    // Killed, it cannot remove its socket itself.
    signal_supervisor(&spec, Signal::KILL);
    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
    assert!(socket.exists());
    ground.provider.remove(&reference(&spec)).await.unwrap();
    assert!(!socket.exists());
    let cut_off = home.join("jobs/.old-0190a5f0-0000-7000-8000-000000000000");
    std::fs::create_dir(&cut_off).unwrap();
    std::fs::write(cut_off.join("output.log"), "x").unwrap();
    let _next = provider(&home, 1 << 20);
    assert!(!cut_off.exists());
}

#[tokio::test]
async fn a_secret_is_a_variable_and_one_that_is_missing_starts_nothing() {
    let ground = Ground::new();
    let asking = |name: &str, script: &str| {
        let surroundings = Surroundings { secrets: vec![name.to_owned()], ..Surroundings::default() };
        SandboxSpec { surroundings, ..shell(script) }
    };
    let missing = asking("NOBODY_HAS_IT", "true");
    let Err(CreateError::Rejected(why)) = ground.provider.create(&missing).await else { panic!() };
    assert!(why.contains("NOBODY_HAS_IT") && !ground.dir(&missing).path().exists(), "{why}");
    let Err(CreateError::Rejected(why)) = ground.provider.create(&asking("PARHELIA_X", "true")).await else {
        panic!()
    };
    assert!(why.contains("our own"), "{why}");
    std::fs::create_dir(ground.home.join("secrets")).unwrap();
    std::fs::write(ground.home.join("secrets/KEY"), "s3cret\r\n").unwrap();
    let spec = asking("KEY", "printf %s \"$KEY\" | wc -c");
    ground.provider.create(&spec).await.unwrap();
    ground.ended(&spec).await;
    assert_eq!(ground.output(&spec).await.trim(), "6");
    for entry in std::fs::read_dir(ground.dir(&spec).path()).unwrap().flatten() {
        let held = std::fs::read(entry.path()).unwrap_or_default();
        assert!(!held.windows(6).any(|at| at == b"s3cret"), "{}", entry.path().display());
    }
}
