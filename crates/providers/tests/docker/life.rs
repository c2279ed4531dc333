//! Made, running, ended: as the engine has it.

use std::time::{Duration, Instant};

use parhelia_core::sandbox::{Phase, SandboxSpec, VolumeMount};
use parhelia_core::state::TerminationReason;
use parhelia_providers::{CreateError, Provider, ProviderError};

use super::engine::IMAGE;
use super::ground::{Ground, named, spec};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_for_is_what_the_engine_has() {
    let ground = Ground::new();
    std::fs::write(ground.secrets.path().join("API_KEY"), "hunter2-of-the-file").unwrap();
    let mut spec = spec(&[
        "sh",
        "-c",
        "cat /run/secrets/API_KEY; echo \" $GREETING $PARHELIA_TASK_ID $PARHELIA_CONTAINER_ID\"; stat -c '%a %u %g' /run/secrets/API_KEY; id -u; echo kept > /data/file; sleep 600",
    ]);
    spec.env.insert("GREETING".into(), "hello".into());
    spec.labels.insert("team".into(), "core".into());
    spec.name = Some("the worker".into());
    spec.workdir = Some("/tmp".into());
    spec.resources.cpu_cores = Some(0.5);
    spec.resources.memory_mb = Some(64);
    spec.surroundings.user = Some("1000:1000".into());
    spec.surroundings.network = Some("none".into());
    spec.surroundings.secrets = vec!["API_KEY".into()];
    // A new volume belongs to root, so its user is given one that is world-writable first.
    ground.engine.ok(&["run", "--rm", "-v", "cache:/data", IMAGE, "sh", "-c", "busybox chmod 777 /data"]);
    spec.surroundings.volumes =
        vec![VolumeMount { name: "cache".into(), path: "/data".into(), read_only: false }];
    let made = ground.provider.create(&spec).await.unwrap();
    assert_eq!(made.phase, Phase::Running);

    let seen = ground.seen(&spec).await.unwrap();
    assert_eq!(seen.sandbox_id, made.sandbox_id);
    assert_eq!((seen.tags.instance.as_str(), seen.tags.task.as_deref()), ("instance-a", Some("ta-1")));
    assert_eq!((seen.name.as_deref(), seen.image.as_deref()), (Some("the worker"), Some(IMAGE)));
    assert_eq!((seen.resources.cpu_cores, seen.resources.memory_mb), (Some(0.5), Some(64)));
    assert_eq!(seen.labels.len(), 1);
    assert!(seen.created_at.is_some() && seen.started_at.is_some());

    let inspected = ground.engine.ok(&["inspect", spec.container_id.as_str()]);
    assert!(!inspected.contains("hunter2"), "a secret is in what the engine shows");
    let of = |format: &str| ground.engine.ok(&["inspect", "-f", format, spec.container_id.as_str()]);
    assert_eq!(of("{{.HostConfig.RestartPolicy.Name}} {{.HostConfig.AutoRemove}}"), "no false");
    assert_eq!(of("{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}}"), "67108864 500000000");
    assert_eq!(of("{{.Config.WorkingDir}} {{.HostConfig.NetworkMode}}"), "/tmp none");

    let expected = format!("hunter2-of-the-file hello ta-1 {}\n400 1000 1000\n1000\n", spec.container_id);
    let began = Instant::now();
    while ground.output(&spec).await != expected {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", ground.output(&spec).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ground.provider.stop(&named(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
    assert_eq!(
        ground.engine.ok(&["run", "--rm", "-v", "cache:/data:ro", IMAGE, "cat", "/data/file"]),
        "kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_told_with_its_code_and_its_reason() {
    let ground = Ground::new();
    let (done, _) = ground.start(&["true"]).await;
    let (failed, _) = ground.start(&["sh", "-c", "exit 3"]).await;
    let (killed, _) = ground.start(&["sleep", "600"]).await;
    let mut greedy = spec(&["sh", "-c", "exec tail /dev/zero"]);
    greedy.resources.memory_mb = Some(16);
    ground.provider.create(&greedy).await.unwrap();
    ground.engine.ok(&["kill", killed.container_id.as_str()]);

    let exit = ground.ended(&done).await;
    assert_eq!((exit.code, exit.reason), (Some(0), TerminationReason::Completed));
    assert!(exit.at.is_some());
    let exit = ground.ended(&failed).await;
    assert_eq!((exit.code, exit.reason), (Some(3), TerminationReason::Failed));
    let exit = ground.ended(&killed).await;
    assert_eq!((exit.code, exit.reason), (Some(137), TerminationReason::Crash));
    let exit = ground.ended(&greedy).await;
    assert_eq!((exit.code, exit.reason), (Some(137), TerminationReason::Oom));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_with_what_to_do() {
    let ground = Ground::new();
    let refused = async |change: &dyn Fn(&mut SandboxSpec), words: &str| {
        let mut spec = spec(&["true"]);
        change(&mut spec);
        match ground.provider.create(&spec).await {
            Err(CreateError::Rejected(why)) => assert!(why.contains(words), "{why}"),
            other => panic!("{words}: {other:?}"),
        }
        assert!(ground.is_absent(&spec).await, "{words}: something was left");
    };
    refused(&|spec| spec.image = None, "--image").await;
    refused(&|spec| spec.image = Some("nobody/has-this".into()), "docker pull nobody/has-this").await;
    refused(&|spec| spec.image = Some("Not An Image".into()), "invalid reference").await;
    refused(&|spec| spec.surroundings.secrets = vec!["NOT_SET_ANYWHERE".into()], "NOT_SET_ANYWHERE").await;
    refused(&|spec| spec.idle_timeout_seconds = Some(5), "docker.supervisor").await;
    refused(&|spec| drop(spec.labels.insert("parhelia.instance".into(), "x".into())), "ours to set").await;
    let volume = |path: &str| VolumeMount { name: "cache".into(), path: path.to_owned(), read_only: false };
    let secret = |spec: &mut SandboxSpec, path: &str| {
        spec.surroundings.secrets = vec!["PATH".into()];
        spec.surroundings.volumes = vec![volume(path)];
    };
    refused(&|spec| secret(spec, "/run"), "another path").await;
    refused(&|spec| secret(spec, "/run/secrets/"), "another path").await;
    refused(&|spec| spec.surroundings.volumes = vec![volume("/.parhelia/jobs")], "another path").await;
    refused(&|spec| spec.resources.gpu_type = Some("T4".into()), "GPU").await;
    refused(&|spec| spec.resources.memory_mb = Some(1), "memory").await;

    for change in [("no-such-command", None), ("true", Some("no-such-network"))] {
        let mut spec = spec(&[change.0]);
        spec.surroundings.network = change.1.map(str::to_owned);
        let made = ground.provider.create(&spec).await.unwrap();
        let Phase::Exited(exit) = made.phase else { panic!("{made:?}") };
        assert_eq!(exit.reason, TerminationReason::StartFailed);
        assert!(exit.message.unwrap().contains(change.1.unwrap_or(change.0)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_create_finishes_the_first_and_makes_no_other() {
    let ground = Ground::new();
    // As if the server had died, or the answer been lost, between the engine's two steps.
    let half = spec(&["sh", "-c", "cat /run/secrets/KEY; sleep 600"]);
    let halves = |spec: &SandboxSpec| {
        let name = spec.container_id.as_str();
        let labels = [
            format!("--label=parhelia.container={name}"),
            format!("--label=parhelia.instance={}", spec.instance_id),
        ];
        ground.engine.ok(&["create", "--name", name, &labels[0], &labels[1], IMAGE, "sleep", "600"]);
    };
    halves(&half);
    assert_eq!(ground.seen(&half).await.unwrap().phase, Phase::Starting);
    let (first, again) = tokio::join!(ground.provider.create(&half), ground.provider.create(&half));
    let (first, again) = (first.unwrap(), again.unwrap());
    assert_eq!(first.sandbox_id, again.sandbox_id);
    assert_eq!(ground.provider.create(&half).await.unwrap().phase, Phase::Running);
    assert_eq!(ground.listing().await.sandboxes.len(), 1);

    // What an earlier attempt had is missing now: nothing of that attempt stays behind the refusal.
    let mut poor = spec(&["sleep", "600"]);
    halves(&poor);
    assert_eq!(ground.seen(&poor).await.unwrap().phase, Phase::Starting);
    poor.surroundings.secrets = vec!["NOT_SET_ANYWHERE".into()];
    let error = ground.provider.create(&poor).await.unwrap_err();
    assert!(matches!(&error, CreateError::Rejected(why) if why.contains("NOT_SET_ANYWHERE")), "{error:?}");
    assert!(ground.is_absent(&poor).await);

    // A name of ours in other hands is not taken over.
    let taken = spec(&["true"]);
    ground.engine.ok(&["create", "--name", taken.container_id.as_str(), IMAGE, "sleep", "600"]);
    let error = ground.provider.create(&taken).await.unwrap_err();
    assert!(matches!(&error, CreateError::Rejected(why) if why.contains("rename or remove")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_polite_and_then_is_not() {
    let ground = Ground::new();
    let (polite, _) =
        ground.start(&["sh", "-c", "trap 'exit 7' TERM; echo ready; while true; do sleep 0.05; done"]).await;
    let (deaf, _) =
        ground.start(&["sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.05; done"]).await;
    for spec in [&polite, &deaf] {
        while ground.output(spec).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    ground.provider.stop(&named(&polite), 30).await.unwrap();
    assert_eq!(ground.ended(&polite).await.code, Some(7));

    let began = Instant::now();
    ground.provider.stop(&named(&deaf), 8).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "the grace was waited for");
    assert_eq!(ground.ended(&deaf).await.code, Some(137));
    assert!(began.elapsed() >= Duration::from_secs(8), "the grace was not given");
    // Safe to repeat, on one that has ended and on one that never was.
    ground.provider.stop(&named(&deaf), 0).await.unwrap();
    ground.provider.stop(&named(&spec(&["true"])), 5).await.unwrap();

    // One that was never started has nothing to stop; it goes.
    let idle = spec(&["sleep", "600"]);
    let label = format!("parhelia.container={}", idle.container_id);
    ground.engine.ok(&["create", "--name", idle.container_id.as_str(), "--label", &label, IMAGE, "true"]);
    ground.provider.stop(&named(&idle), 5).await.unwrap();
    assert!(ground.is_absent(&idle).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_has_ended_is_removed() {
    let ground = Ground::new();
    let (alive, _) = ground.start(&["sleep", "600"]).await;
    let (over, _) = ground.start(&["true"]).await;
    ground.ended(&over).await;
    assert!(matches!(ground.provider.remove(&named(&alive)).await, Err(ProviderError::Rejected(_))));
    ground.provider.remove(&named(&over)).await.unwrap();
    ground.provider.remove(&named(&over)).await.unwrap();
    assert!(ground.is_absent(&over).await && !ground.is_absent(&alive).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_figures_are_heartbeats_of_what_runs() {
    let ground = Ground::new();
    let mut busy = spec(&["sh", "-c", "while true; do true; done"]);
    busy.resources.cpu_cores = Some(0.5);
    busy.resources.memory_mb = Some(64);
    let made = ground.provider.create(&busy).await.unwrap();
    let (paused, _) = ground.start(&["sleep", "600"]).await;
    ground.engine.ok(&["pause", paused.container_id.as_str()]);
    let (over, _) = ground.start(&["true"]).await;
    ground.ended(&over).await;

    let vitals = async || ground.provider.vitals().await.unwrap().unwrap();
    assert_eq!(vitals().await.identity, ground.listing().await.identity);
    let first = vitals().await.seen;
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0].sandbox_id, made.sandbox_id);
    // Its half core may be contested by other tests; over some seconds it gets a good part of it.
    let began = Instant::now();
    let sample = loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let sample = vitals().await.seen.remove(0).sample;
        if sample.cpu_percent.is_some_and(|p| p > 20.0) && sample.uptime_seconds.is_some_and(|s| s >= 1) {
            break sample;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{sample:?}");
    };
    assert_eq!(sample.container_id, busy.container_id);
    assert!(sample.cpu_percent.is_some_and(|p| p < 200.0), "of its half core: {sample:?}");
    assert!(sample.memory_percent.is_some_and(|p| p > 0.0 && p < 50.0), "{sample:?}");
    ground.engine.ok(&["unpause", paused.container_id.as_str()]);
    assert_eq!(vitals().await.seen.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_from_outside_is_hinted_at() {
    let ground = Ground::new();
    let (victim, _) = ground.start(&["sleep", "600"]).await;
    // Whatever was hinted at so far is taken, until it is quiet.
    while tokio::time::timeout(Duration::from_secs(1), ground.provider.changed()).await.is_ok() {}
    assert_eq!(ground.seen(&victim).await.unwrap().phase, Phase::Running);
    let began = Instant::now();
    ground.engine.ok(&["kill", victim.container_id.as_str()]);
    loop {
        tokio::time::timeout(Duration::from_secs(10), ground.provider.changed()).await.expect("a hint");
        if let Phase::Exited(_) = ground.seen(&victim).await.unwrap().phase {
            break;
        }
    }
    let took = began.elapsed();
    // That it comes by the hint is proved above: no timer looks here.
    println!("docker kill -> seen as ended: {} ms", took.as_millis());
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_labels_are_set_aside_and_told_once() {
    let ground = Ground::new();
    ground.engine.ok(&["run", "-d", "--label", "parhelia.container=NOT AN ID", IMAGE, "sleep", "600"]);
    assert_eq!(ground.listing().await.sandboxes, []);
    ground.listing().await;
    let told = ground.provider.take_quarantined();
    assert!(told.len() == 1 && told[0].contains("NOT AN ID"), "{told:?}");
}
