//! The built binary beside a real engine of its own.

#![allow(clippy::disallowed_methods, reason = "a test measures with the real clock")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::docker_engine::{DockerEngine, IMAGE};
use crate::harness::{Home, eventually, text};

const LOST: usize = 25;

fn config(engine: &DockerEngine, more: &str) -> String {
    format!(
        "[docker]\nhost = '{}'\n\
         [reconciler]\npoll_interval_seconds = 60\norphan_grace_period_seconds = 3\n\
         [health]\nheartbeat_interval_seconds = 1\n\
         [[prices]]\nprovider = 'docker'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 0.5\n{more}",
        engine.host()
    )
}

/// A home whose server reconciles the engine.
fn home(engine: &DockerEngine) -> Home {
    Home::with_config(&config(engine, ""))
}

fn docker_run(engine: &DockerEngine, labels: &[(&str, &str)]) -> String {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("--label={key}={value}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    engine.ok(&[&["run", "-d"], &labels[..], &[IMAGE, "sleep", "1000"]].concat())
}

fn is_running(engine: &DockerEngine, id: &str) -> bool {
    engine.ok(&["inspect", "-f", "{{.State.Running}}", id]) == "true"
}

fn instance(home: &Home) -> String {
    let (status, info) = home.api("GET", "/api/v1/server", None);
    assert_eq!(status, 200);
    text(&info, "instance_id").to_owned()
}

fn start(home: &Home, options: &[&str], command: &[&str]) -> String {
    home.start(&[&["--provider", "docker", "--image", IMAGE], options].concat(), command)
}

/// The incident with what really caused it: containers that nobody recorded.
#[test]
fn twenty_five_containers_of_plain_docker_run_are_found_priced_and_ended_and_nothing_else_is() {
    let engine = DockerEngine::start();
    let home = home(&engine);
    let _server = home.up(&[]);
    let ours = instance(&home);
    let wanted = start(&home, &[], &["sleep", "1000"]);
    home.until_seen(&wanted, "state", "running");
    let forgotten: Vec<(String, String)> = (0..LOST)
        .map(|i| {
            let id = format!("c-01kforgotten{i:04}");
            let labels = [
                ("parhelia.instance", ours.as_str()),
                ("parhelia.container", id.as_str()),
                ("parhelia.task", "ta-fleet"),
            ];
            let sandbox = docker_run(&engine, &labels);
            (id, sandbox)
        })
        .collect();
    let stranger = docker_run(&engine, &[("team", "other")]);
    let foreign =
        docker_run(&engine, &[("parhelia.instance", "another"), ("parhelia.container", "c-01kforeign0000")]);

    let orphans = eventually("all of them are orphans", || {
        let found = home.json(&["containers", "orphans"]).as_array().unwrap().clone();
        let all =
            forgotten.iter().all(|(id, _)| found.iter().any(|c| c["id"] == **id && c["state"] == "orphaned"));
        (all && found.len() == LOST).then_some(found)
    });
    for orphan in &orphans {
        let (age, cost) = (orphan["age"].as_i64().unwrap(), orphan["cost"].as_f64().unwrap());
        assert!(age >= 3 && cost > 0.0 && orphan["cost_rate_per_hour"] == 0.5, "{orphan}");
        assert_eq!((text(orphan, "task"), text(orphan, "provider")), ("ta-fleet", "docker"));
    }
    let foreigners = home.json(&["instances"]);
    assert!(foreigners.to_string().contains("c-01kforeign0000"), "{foreigners}");

    let done = home.run(&["cleanup", "--orphans", "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("25 containers terminated."), "{done:?}");
    for (id, _) in &forgotten {
        let row = home.seen(id);
        assert_eq!((text(&row, "state"), text(&row, "termination_reason")), ("terminated", "orphan_cleanup"));
    }
    assert_eq!(home.json(&["containers", "orphans"]), json!([]));
    eventually("what was cleaned up is gone from the engine too", || {
        let left = engine.ok(&["ps", "-aq", "--no-trunc", "--filter", "label=parhelia.task=ta-fleet"]);
        left.is_empty().then_some(())
    });
    for (id, what) in [(&wanted, "wanted"), (&stranger, "a stranger"), (&foreign, "another instance's")] {
        assert!(is_running(&engine, id), "{what} was ended");
    }
    assert_eq!(home.seen(&wanted)["state"], "running");
}

#[test]
fn a_run_in_docker_is_followed_to_its_end() {
    let engine = DockerEngine::start();
    let home = home(&engine);
    std::fs::create_dir(home.path().join("secrets")).unwrap();
    std::fs::write(home.path().join("secrets/API_KEY"), "hunter2").unwrap();
    let _server = home.up(&[]);
    let run = |options: &[&str], command: &[&str]| {
        let base = ["containers", "run", "-p", "docker", "-i", IMAGE, "--follow"];
        home.run(&[&base, options, &["--"], command].concat())
    };
    let options = ["--secret", "API_KEY", "--user", "1000", "--network", "none", "--volume", "cache:/data"];
    let said = run(&options, &["sh", "-c", "cat /run/secrets/API_KEY; echo; echo oops >&2; id -u; exit 3"]);
    assert_eq!(said.code, 5, "{said:?}");
    for words in ["hunter2", "oops", "1000"] {
        assert!(said.out.contains(words), "{said:?}");
    }
    let all = home.json(&["containers", "--all"]);
    let row = &all.as_array().unwrap()[0];
    assert_eq!((text(row, "state"), text(row, "termination_reason")), ("terminated", "failed"));
    assert_eq!(row["exit_code"], 3);
    let id = text(row, "id");
    for place in [home.json(&["containers", "show", id]), home.json(&["containers", "events", id])] {
        assert!(!place.to_string().contains("hunter2"), "a secret is shown: {place}");
    }
    let store = std::fs::read(home.path().join("parhelia.sqlite3")).unwrap();
    let wal = std::fs::read(home.path().join("parhelia.sqlite3-wal")).unwrap_or_default();
    let holds = |bytes: &[u8]| bytes.windows(7).any(|w| w == b"hunter2");
    assert!(!holds(&store) && !holds(&wal) && !home.log().contains("hunter2"), "a secret is stored");
    assert!(!engine.ok(&["inspect", id]).contains("hunter2"));
    // Its output stays after its end.
    assert!(home.ok(&["containers", "logs", id]).contains("oops"));

    let greedy = run(&["--memory", "16m"], &["tail", "/dev/zero"]);
    assert_eq!(greedy.code, 5, "{greedy:?}");
    let all = home.json(&["containers", "--all"]);
    let oom = all.as_array().unwrap().iter().find(|c| c["termination_reason"] == "oom");
    assert!(oom.is_some_and(|c| c["memory_mb"] == 16 && c["exit_code"] == 137), "{all}");

    for (options, words) in [
        (&["-i", "nobody/has-this"][..], "docker pull nobody/has-this"),
        (&["-i", IMAGE, "--secret", "NOT_SET_ANYWHERE"][..], "NOT_SET_ANYWHERE"),
    ] {
        let base = ["containers", "run", "-p", "docker"];
        let said = home.run(&[&base, options, &["--", "true"]].concat());
        assert!(said.code != 0 && said.err.contains(words), "{said:?}");
    }
    let process = home.run(&["containers", "run", "--volume", "cache:/data", "--", "true"]);
    assert!(process.err.contains("use provider docker"), "{process:?}");
}

#[test]
fn a_job_in_docker_is_followed_to_its_end_and_gives_its_exit_code() {
    let engine = DockerEngine::start();
    let home = home(&engine);
    let _server = home.up(&[]);
    let base = ["exec", "--provider", "docker", "--image", IMAGE];
    let said = home.run(&[&base[..], &["--name", "inside", "--", "sh", "-c", "echo hi; exit 7"]].concat());
    assert_eq!((said.code, said.out.trim()), (7, "hi"), "{said:?}");
    let job = eventually("its end is known", || {
        Some(home.json(&["jobs", "show", "inside"])).filter(|job| job["status"] == "failed")
    });
    assert_eq!((job["exit_code"].as_i64(), text(&job, "provider")), (Some(7), "docker"), "{job}");
    assert_eq!(home.ok(&["jobs", "logs", "inside"]).trim(), "hi");

    let id = home.ok(&[&base[..], &["--detach", "-o", "name", "--", "sleep", "1000"]].concat());
    let id = id.trim();
    eventually("it runs", || Some(home.json(&["jobs", "show", id])).filter(|job| job["status"] == "fresh"));
    let said = home.run(&["jobs", "attach", id]);
    assert_ne!(said.code, 0);
    assert!(said.err.contains("jobs logs -f"), "what works there is said: {said:?}");
    home.ok(&["jobs", "cancel", id, "--force", "--wait"]);
    let job = home.json(&["jobs", "show", id]);
    assert!(
        job["receipts"]["confirmed_at"].is_string() || job["receipts"]["stop_confirmed_at"].is_string(),
        "{job}"
    );

    let said = home.run(&["exec", "--provider", "docker", "--image", "no-such-image", "--", "true"]);
    assert_ne!(said.code, 0);
    assert!(said.err.contains("no-such-image"), "{said:?}");
}

#[test]
fn a_container_beats_through_the_engine_and_its_kill_is_seen_within_a_second() {
    let engine = DockerEngine::start();
    let home = home(&engine);
    let _server = home.up(&[]);
    let mut took = Vec::new();
    // The machine may have much else to do at one of the moments; not at each.
    while took.len() < 5 && took.iter().all(|took| *took >= Duration::from_secs(1)) {
        let id =
            start(&home, &["--memory", "64m", "--cpu", "0.5"], &["sh", "-c", "while true; do true; done"]);
        let alive = home.until_seen(&id, "health", "healthy");
        assert!(alive["memory_used_mb"].as_i64().is_some(), "{alive}");
        eventually("its CPU is measured", || {
            home.seen(&id)["cpu_percent"].as_f64().filter(|percent| *percent > 5.0)
        });
        engine.ok(&["kill", &id]);
        let began = Instant::now();
        let row = home.until_seen(&id, "state", "terminated");
        took.push(began.elapsed());
        assert_eq!((text(&row, "termination_reason"), row["exit_code"].as_i64()), ("crash", Some(137)));
    }
    println!("docker kill -> terminated in the registry: {took:?}");
    assert!(took.last() < Some(&Duration::from_secs(1)), "{took:?}");
}

#[test]
fn an_ended_container_is_removed_when_its_time_is_over_and_not_before_its_end_is_recorded() {
    let engine = DockerEngine::start();
    let home =
        Home::with_config(&config(&engine, "").replace("[docker]\n", "[docker]\nremove_after_seconds = 8\n"));
    let server = home.up(&[]);
    let id = start(&home, &[], &["sh", "-c", "echo bye; sleep 1000"]);
    home.until_seen(&id, "state", "running");
    // It ends and its time passes while nobody records anything.
    server.kill();
    engine.ok(&["kill", &id]);
    std::thread::sleep(Duration::from_secs(9));
    let _server = home.up(&[]);
    let row = home.until_seen(&id, "state", "terminated");
    assert_eq!((text(&row, "termination_reason"), row["exit_code"].as_i64()), ("crash", Some(137)));
    eventually("it is removed", || engine.ok(&["ps", "-aq"]).is_empty().then_some(()));
    assert_eq!(home.seen(&id)["state"], "terminated");

    let again = start(&home, &[], &["sh", "-c", "echo bye"]);
    home.until_seen(&again, "state", "terminated");
    assert!(home.ok(&["containers", "logs", &again]).contains("bye"), "kept for its output");
    eventually("it is removed without anybody's asking", || {
        engine.ok(&["ps", "-aq"]).is_empty().then_some(())
    });
}

#[test]
fn an_engine_away_or_exchanged_ends_nothing() {
    let mut engine = DockerEngine::start();
    let more = "";
    let home = Home::with_config(
        &config(&engine, more).replace("poll_interval_seconds = 60", "poll_interval_seconds = 1"),
    );
    let _server = home.up(&[]);
    let ids: Vec<String> = (0..5).map(|_| start(&home, &[], &["sleep", "1000"])).collect();
    for id in &ids {
        home.until_seen(id, "state", "running");
    }
    let told = |kind: &str| {
        let (_, found) = home.api("GET", "/api/v1/events?limit=1000", None);
        found["events"].as_array().unwrap().iter().any(|e| e["event_type"] == kind)
    };
    let all_run = || ids.iter().all(|id| home.seen(id)["state"] == "running");
    let cycles = || -> Value {
        let (_, status) = home.api("GET", "/api/v1/reconciler", None);
        let providers = status["providers"].as_array().unwrap().clone();
        providers.into_iter().find(|p| p["name"] == "docker").unwrap()
    };
    let two_more_passes = || {
        let from = cycles()["last_cycle"]["id"].as_i64().unwrap();
        eventually("two more passes", || (cycles()["last_cycle"]["id"].as_i64()? >= from + 2).then_some(()));
    };

    engine.down();
    eventually("its absence is told", || told("provider_unreachable").then_some(()));
    two_more_passes();
    assert!(all_run(), "an engine that is away ended somebody");

    engine.replace("other");
    eventually("the exchange is told", || told("provider_identity_changed").then_some(()));
    two_more_passes();
    assert!(all_run(), "another engine's silence ended somebody");

    engine.bring_back();
    eventually("it answers again as itself", || told("provider_recovered").then_some(()));
    two_more_passes();
    assert!(all_run());
    assert!(ids.iter().all(|id| is_running(&engine, id)));
    // They are the same, and obey again.
    let said = home.run(&["containers", "stop", &ids[0], "--grace", "1s"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!is_running(&engine, &ids[0]) && is_running(&engine, &ids[1]));
}

/// Heartbeats of what has no supervisor are the engine's to bring: while it brings none, we are deaf and nobody is silent.
#[test]
fn an_engine_away_or_exchanged_for_long_makes_nobody_silent() {
    let mut engine = DockerEngine::start();
    let ladder = "[health]\ncheck_interval_seconds = 1\ndegraded_after_seconds = 2\ndead_after_seconds = 10\n\
                  resumption_window_seconds = 0\n";
    let policy = "[reconciler]\nstale_threshold_seconds = 8\nauto_terminate_stale = true\n";
    let quick = config(&engine, "")
        .replace("[health]\n", ladder)
        .replace("[reconciler]\n", policy)
        .replace("poll_interval_seconds = 60", "poll_interval_seconds = 1");
    let home = Home::with_config(&quick);
    let _server = home.up(&[]);
    let ids: Vec<String> = (0..3).map(|_| start(&home, &[], &["sleep", "1000"])).collect();
    ids.iter().for_each(|id| drop(home.until_seen(id, "health", "healthy")));
    for exchanged in [false, true] {
        if exchanged {
            engine.replace("other");
        } else {
            engine.down();
        }
        let began = Instant::now();
        eventually("it was away for twice as long as makes anybody dead", || {
            let all = home.all_seen();
            assert!(all.iter().all(|row| row["state"] == "running" && row["health"] != "dead"), "{all:?}");
            (began.elapsed() > Duration::from_secs(20)).then_some(())
        });
        engine.bring_back();
        for id in &ids {
            let before = home.seen(id)["last_heartbeat_at"].clone();
            eventually("it is heard again", || (home.seen(id)["last_heartbeat_at"] != before).then_some(()));
        }
        home.reconcile();
        assert!(home.told("stop_requested").is_empty() && home.told("container_dead").is_empty());
        assert!(ids.iter().all(|id| is_running(&engine, id)));
    }
    // One that the engine itself shows no life of is silent.
    engine.ok(&["pause", &ids[0]]);
    let ended = home.until_seen(&ids[0], "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "stale", "{ended}");
    assert!(is_running(&engine, &ids[1]));
}

#[test]
fn a_create_that_was_cut_in_half_is_finished_once() {
    let engine = DockerEngine::start();
    let home = home(&engine);
    let server = home.up(&[]);
    let first = start(&home, &[], &["sleep", "1000"]);
    home.until_seen(&first, "state", "running");
    server.kill();
    // As if the server had died between the engine's two steps: made, not started, and nobody was told.
    let row = home.sqlite();
    let changed = row
        .execute(
            "UPDATE containers SET state = 'created', sandbox_id = NULL, started_at = NULL WHERE id = ?1",
            [&first],
        )
        .unwrap();
    assert_eq!(changed, 1);
    drop(row);
    let ours = engine.ok(&["inspect", "-f", "{{index .Config.Labels \"parhelia.instance\"}}", &first]);
    engine.ok(&["rm", "-f", &first]);
    let labels = [format!("parhelia.container={first}"), format!("parhelia.instance={ours}")];
    engine.ok(&[
        "create", "--name", &first, "--label", &labels[0], "--label", &labels[1], IMAGE, "sleep", "1000",
    ]);
    let _server = home.up(&[]);
    home.until_seen(&first, "state", "running");
    assert!(is_running(&engine, &first));
    assert_eq!(engine.ok(&["ps", "-aq"]).lines().count(), 1);
}

/// Our binary and what it is linked with, for an image that has nothing.
fn libraries() -> Vec<(std::path::PathBuf, String)> {
    let linked = std::process::Command::new("ldd").arg(crate::harness::parhelia()).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let paths = linked.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(|path| (std::path::PathBuf::from(path), path.to_owned())).collect()
}

#[test]
fn a_supervisor_inside_beats_through_the_mounted_socket_and_ends_as_its_command_did() {
    let engine = DockerEngine::start();
    engine.import_with("ph-linked:1", &libraries());
    let mut whole = libraries();
    whole.push((crate::harness::parhelia(), "/bin/parhelia".to_owned()));
    engine.import_with("ph-whole:1", &whole);
    // As many servers' images: their own signal would mean nothing to our supervisor.
    for image in ["ph-linked:1", "ph-whole:1"] {
        engine.ok(&["create", "--stop-signal", "SIGQUIT", "--name", "template", image, "true"]);
        engine.ok(&["commit", "template", image]);
        engine.ok(&["rm", "template"]);
        assert_eq!(engine.ok(&["inspect", "-f", "{{.Config.StopSignal}}", image]), "SIGQUIT");
    }
    for (mode, image) in [("mount", "ph-linked:1"), ("image", "ph-whole:1")] {
        let config = config(&engine, "").replace("[docker]\n", &format!("[docker]\nsupervisor = '{mode}'\n"));
        let home = Home::with_config(&config);
        let server = home.up(&[]);
        let run = |options: &[&str], command: &[&str]| {
            home.start(&[&["-p", "docker", "-i", image, "--network", "none"], options].concat(), command)
        };
        let script = "echo to out; echo to err >&2; while true; do sleep 0.1; done";
        let id = run(&["--user", "1000", "--memory", "256m"], &["sh", "-c", script]);
        let alive = home.until_seen(&id, "health", "healthy");
        assert_eq!(alive["state"], "running", "{mode}");
        let (_, beats) = home.api("GET", &format!("/api/v1/containers/{id}/heartbeats?limit=5"), None);
        let newest = &beats["heartbeats"][0];
        assert!(newest["metadata"]["seconds_since_progress"].is_number(), "from inside: {beats}");
        assert!(!beats.to_string().contains("docker_stats"), "nobody beats twice for it: {beats}");
        eventually("its output is the engine's", || {
            let logs = home.ok(&["containers", "logs", &id]);
            (logs.contains("to out\n") && logs.contains("to err\n")).then_some(())
        });
        // The socket inside asks who is there, and what the container has opens its own record alone.
        let other = run(&[], &["sleep", "600"]);
        home.until_seen(&other, "health", "healthy");
        let door = home.path().join("door/parhelia.sock");
        let own = engine.ok(&["exec", &id, "cat", "/.parhelia/token"]);
        let ask = |method: &str, path: &str, secret: &str, body: Option<&str>| {
            let stream = std::os::unix::net::UnixStream::connect(&door).unwrap();
            let bearer = format!("authorization: Bearer {}", secret.trim());
            crate::harness::exchange(stream, method, path, body, &[&bearer]).unwrap().0
        };
        let beat = |of: &str| format!("{{\"heartbeats\":[{{\"container_id\":\"{of}\"}}]}}");
        assert_eq!(ask("POST", "/api/v1/heartbeats", "", Some(&beat(&id))), 401);
        assert_eq!(ask("POST", "/api/v1/heartbeats", &own, Some(&beat(&id))), 200);
        assert_eq!(ask("POST", "/api/v1/heartbeats", &own, Some(&beat(&other))), 422, "another's");
        assert_eq!(ask("GET", &format!("/api/v1/containers/{id}"), &own, None), 200);
        assert_eq!(ask("GET", &format!("/api/v1/containers/{other}"), &own, None), 403);
        assert_eq!(ask("GET", "/api/v1/containers", &own, None), 403);
        assert_eq!(ask("POST", "/api/v1/server/shutdown", &own, None), 403);
        // It is a file of its user, in no variable and no label, and ends with the container.
        let inspected = engine.ok(&["inspect", &id]);
        assert!(own.trim().len() == 64 && !inspected.contains(own.trim()));
        let others = engine.ok(&["exec", &other, "cat", "/.parhelia/token"]);
        home.ok(&["containers", "terminate", &other, "--yes", "--grace", "0s"]);
        eventually("its token ends with it", || {
            (ask("GET", &format!("/api/v1/containers/{other}"), &others, None) == 401).then_some(())
        });

        // A new server is reached through the same mount.
        server.kill();
        let last = Instant::now();
        let _server = home.up(&[]);
        let before = home.seen(&id)["last_heartbeat_at"].clone();
        eventually("it beats to the new server", || {
            (home.seen(&id)["last_heartbeat_at"] != before).then_some(last.elapsed())
        });

        let failing = run(&[], &["sh", "-c", "exit 42"]);
        let row = home.until_seen(&failing, "state", "terminated");
        assert_eq!(
            (row["exit_code"].as_i64(), text(&row, "termination_reason")),
            (Some(42), "failed"),
            "{mode}"
        );
        let idle = run(&["--idle-timeout", "1s"], &["sleep", "1000"]);
        let row = home.until_seen(&idle, "state", "terminated");
        assert_eq!(text(&row, "termination_reason"), "idle_timeout", "{mode}: {row}");
        let missing = home.run(&["containers", "run", "-p", "docker", "-i", image, "--", "no-such-command"]);
        assert!(missing.code != 0 && missing.err.contains("no-such-command"), "{mode}: {missing:?}");
        // Mounted into an image without its libraries the supervisor itself cannot start: that is not the command's failure.
        if mode == "mount" {
            let bare = home.run(&["containers", "run", "-p", "docker", "-i", IMAGE, "--wait", "--", "true"]);
            assert!(bare.code != 0 && bare.err.contains("its supervisor could not be started"), "{bare:?}");
        }
        let said = home.run(&["containers", "stop", &id, "--grace", "20s"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(!is_running(&engine, &id));
        assert_ne!(home.seen(&id)["exit_code"], 137, "{mode}: it was asked, and not killed after its grace");
    }
}

/// Many set `DOCKER_HOST` for other programs.
#[test]
fn an_address_that_nobody_gave_to_us_keeps_no_server_from_starting() {
    let home = Home::new();
    let strange = |command: &mut std::process::Command| {
        command.env("DOCKER_HOST", "ssh://ann@elsewhere");
    };
    let server = home.up_where(&crate::harness::parhelia(), &[], strange);
    assert!(home.log().contains("the docker provider is off"), "{}", home.log());
    server.kill();
    home.configure("[docker]\nenabled = true\n");
    let said = home.command(&["up"]).env("DOCKER_HOST", "ssh://ann@elsewhere").output().unwrap();
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && told.contains("is not an engine's address"), "{told}");
}

#[test]
fn docker_is_a_provider_when_it_is_switched_on_and_not_otherwise() {
    let nowhere = tempfile::tempdir().unwrap();
    let host = format!("host = 'unix://{}'", nowhere.path().join("docker.sock").display());
    let providers = |switch: &str| {
        let home = Home::with_config(&format!("[docker]\nenabled = {switch}\n{host}\n"));
        let _server = home.up(&[]);
        let (_, info) = home.api("GET", "/api/v1/server", None);
        (home, info["providers"].to_string())
    };
    let (_, off) = providers("false");
    assert!(!off.contains("docker"), "{off}");
    let (_, on) = providers("true");
    assert!(on.contains("docker"), "{on}");
    // An address was given: that speaks for an engine, though none answers there yet.
    let (_, auto) = providers("'auto'");
    assert!(auto.contains("docker"), "{auto}");
}

#[test]
fn an_engine_elsewhere_is_reached_with_tls_and_not_without() {
    let (_engine, certificates, host) = DockerEngine::start_with_tls();
    let docker = format!("[docker]\nenabled = true\nhost = '{host}'\n");
    let home = Home::with_config(&format!("{docker}cert_path = '{}'\n", certificates.path().display()));
    let _server = home.up(&[]);
    let id = start(&home, &[], &["sleep", "1000"]);
    home.until_seen(&id, "state", "running");
    let plain = Home::with_config(&docker);
    let _plain = plain.up(&[]);
    eventually("without a certificate nobody answers", || plain.told("provider_unreachable").pop());
    home.ok(&["containers", "terminate", &id, "--yes", "--grace", "0s"]);
}
