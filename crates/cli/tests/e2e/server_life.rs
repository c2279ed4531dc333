//! A server's life: one per home, started when needed, gone when not, and never the owner of what it cannot read.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Home, Said, eventually, signal_the_one_with};

fn server_events(home: &Home) -> Vec<String> {
    let events = home.json(&["events", "list", "--type", "server_started,server_stopped"]);
    events.as_array().unwrap().iter().map(|e| e["event_type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_second_server_leaves_and_the_first_is_unharmed() {
    let home = Home::new();
    let mut first = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    let before = home.json(&["info"]);
    for args in [&["up"][..], &["up", "--on-demand"], &["up", "--listen", "127.0.0.1:0"]] {
        let said = home.run(args);
        assert_eq!(said.code, 4, "{said:?}");
        assert!(said.err.contains("another server already serves"), "{said:?}");
        assert!(said.err.contains("parhelia down"), "{said:?}");
    }
    assert_eq!(first.has_ended(), None);
    assert_eq!(home.json(&["info"]), before, "the same owner in the same epoch");
    assert_eq!(home.seen(&id)["state"], "running");
    assert_eq!(server_events(&home), ["server_started"]);
}

#[test]
fn up_greets_takes_over_and_stops_cleanly() {
    let home = Home::new();
    let id = home.start(&[], &["sleep", "600"]);
    let on_demand = home.json(&["info"]);
    assert_eq!((on_demand["on_demand"].as_bool(), on_demand["epoch"].as_i64()), (Some(true), Some(1)));

    let log = std::fs::File::create(home.path().join("up.log")).unwrap();
    let mut up = home.command(&["up"]);
    let mark = format!("E2E_MARK={}", home.path().display());
    up.env("E2E_MARK", home.path()).stdout(log.try_clone().unwrap()).stderr(log);
    let mut child = up.spawn().unwrap();
    let info = eventually("the new server answers", || {
        let (status, text) = home.try_http("GET", "/api/v1/server", None)?;
        let info: Value = serde_json::from_str(&text).ok()?;
        (status == 200 && info["on_demand"] == false).then_some(info)
    });
    assert_eq!(info["epoch"], 2, "under a new epoch");
    assert_eq!(info["instance_id"], on_demand["instance_id"], "the same instance");
    let greeting =
        eventually("it has greeted", || Some(home.log()).filter(|log| log.contains("Ctrl-C stops")));
    for part in [
        "Taking over from the server that was started on demand",
        "Parhelia is up",
        "Socket:      ",
        "HTTP:        off (see --listen)",
        "parhelia containers run -- sleep 600",
        "parhelia containers watch",
    ] {
        assert!(greeting.contains(part), "no {part:?} in:\n{greeting}");
    }
    assert_eq!(home.seen(&id)["state"], "running");
    assert_eq!(home.ok(&["version", "--server"]).lines().count(), 2);

    signal_the_one_with(&mark, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", home.log());
    assert!(home.log().contains("The sandboxes are left running"), "{}", home.log());
    assert!(!home.path().join("parhelia.sock").exists(), "its socket is gone");
    let container = home.container(&id);
    assert_eq!(container["state"], "running", "and the sandbox is not");
    let expected = ["server_started", "server_stopped", "server_started", "server_stopped", "server_started"];
    assert_eq!(server_events(&home), expected);
}

#[test]
fn an_on_demand_server_leaves_when_idle_but_not_while_something_runs() {
    let home = Home::with_config("[server]\nidle_exit_seconds = 1\n");
    let gate = home.path().join("gate");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", gate.display());
    let id = home.start(&[], &["sh", "-c", &script]);
    let owner = home.json(&["info"])["owner_id"].clone();
    // Three idle times without a question: only the kernel is asked whether it still listens.
    let listening = || std::os::unix::net::UnixStream::connect(home.path().join("parhelia.sock")).is_ok();
    let patient = std::time::Duration::from_secs(3);
    std::thread::sleep(patient);
    assert!(listening(), "it has a sandbox to look after");
    assert_eq!(home.json(&["info"])["owner_id"], owner);

    std::fs::write(&gate, "").unwrap();
    eventually("the idle server has left", || (!listening()).then_some(()));
    let ended = home.container(&id);
    assert_eq!((ended["state"].as_str(), ended["exit_code"].as_i64()), (Some("terminated"), Some(0)));
    assert_ne!(home.json(&["info"])["owner_id"], owner, "the next question started another");
    assert!(server_events(&home).contains(&"server_stopped".to_owned()));
}

#[test]
fn ten_commands_at_once_start_one_server() {
    let home = Home::new();
    let children: Vec<_> = (0..10)
        .map(|n| {
            let mut command = match n % 2 {
                0 => home.command(&["containers", "run", "-q", "--", "sleep", "600"]),
                _ => home.command(&["info", "-o", "json"]),
            };
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let said: Said = child.wait_with_output().unwrap().into();
        assert_eq!(said.code, 0, "{said:?}");
    }
    assert_eq!(home.json(&["info"])["epoch"], 1);
    assert_eq!(server_events(&home), ["server_started"]);
    assert_eq!(home.json(&["containers"]).as_array().unwrap().len(), 5);
}

#[test]
fn what_a_dead_server_left_is_in_nobodys_way() {
    let home = Home::new();
    let socket = home.path().join("parhelia.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists(), "a socket on which nobody listens");
    assert!(home.ok(&["info"]).contains("on demand"));
    assert!(home.ok(&["down"]).contains("Server stopped."));
    let none = home.run(&["down"]);
    assert_eq!(none.code, 0, "{none:?}");
    assert!(none.out.contains("No server is running at"), "{none:?}");
    assert_eq!(home.json(&["down"])["stopped"], false);

    std::fs::write(&socket, "not a socket").unwrap();
    assert!(home.ok(&["info"]).contains("on demand"));
    home.ok(&["down"]);
    let server = home.up(&[]);
    server.kill();
    assert!(socket.exists(), "killed without mercy");
    assert_eq!(home.json(&["info"])["epoch"], 4);
}

/// Every file of the database, with its bytes.
fn database(home: &Home) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|e| e.unwrap())
        .filter(|e| e.file_name().to_string_lossy().starts_with("parhelia.sqlite3"))
        .map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn refuses_and_leaves_alone(home: &Home, mentions: &[&str]) {
    let before = database(home);
    let up = home.run(&["up"]);
    let client = home.run(&["containers"]);
    for said in [&up, &client] {
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        for mention in mentions {
            assert!(said.err.contains(mention), "{said:?} does not say {mention}");
        }
    }
    assert!(client.err.contains("server.log"), "{client:?}");
    assert_eq!(database(home), before, "not a byte was changed, and no file came");
}

#[test]
fn a_database_that_is_not_ours_to_open_is_left_alone() {
    let home = Home::new();
    home.ok(&["containers", "run", "--wait", "--", "true"]);
    home.ok(&["down"]);
    let file = home.path().join("parhelia.sqlite3");
    let good = std::fs::read(&file).unwrap();

    home.sqlite().pragma_update(None, "user_version", 99).unwrap();
    refuses_and_leaves_alone(&home, &["schema version 99", "newer program", "nothing in it was changed"]);
    home.sqlite().pragma_update(None, "user_version", 1).unwrap();
    home.sqlite().pragma_update(None, "application_id", 7).unwrap();
    refuses_and_leaves_alone(&home, &["another program", "move the file aside"]);

    for damaged in [
        b"This is not a database at all".to_vec(),
        vec![0xa5; 64 << 10],
        [&good[..16], &vec![0xff; good.len() - 16]].concat(),
        [&good[..100], &vec![0x00; 4096 - 100], &good[4096..]].concat(),
    ] {
        std::fs::write(&file, damaged).unwrap();
        refuses_and_leaves_alone(&home, &["cannot be used", "backup", "nothing in it was changed"]);
    }
    std::fs::write(&file, &good).unwrap();
    assert_eq!(home.json(&["containers", "--all"]).as_array().unwrap().len(), 1, "the backup works");
}

#[test]
fn a_wrong_configuration_is_named_by_key_and_line() {
    let home = Home::new();
    for (config, mentions) in [
        (
            "[reconciler]\npoll_intervall_seconds = 5\n",
            &["poll_intervall_seconds", "line 2", "unknown field"][..],
        ),
        ("\n\n[reconcilier]\nx = 1\n", &["reconcilier", "line 3"]),
        ("[health]\ncheck_interval_seconds = 'often'\n", &["check_interval_seconds", "line 2"]),
        ("[server]\nlisten = 7\n", &["listen", "line 2"]),
        ("[server\n", &["line 1"]),
        (
            "[reconciler]\n\npoll_interval_seconds = 0\n",
            &["reconciler.poll_interval_seconds = 0", "from 1 to 3600"],
        ),
        ("[server]\nmax_batch = 0\n", &["server.max_batch = 0", "from 1 to"]),
        ("[process]\noutput_rotate_bytes = 1\n", &["process.output_rotate_bytes = 1", "from 65536"]),
        (
            "[reconciler]\nstale_threshold_seconds = 900\n",
            &["stale_threshold_seconds", "dead_after_seconds (600)"],
        ),
        ("[reconciler]\nmax_silent_hours = -1\n", &["max_silent_hours = -1", "at most 168"]),
        ("[retention]\nraw_heartbeat_hours = 0\n", &["retention.raw_heartbeat_hours = 0"]),
        (
            "[[prices]]\nprovider='x'\neffective_from='2026-01-01T00:00:00Z'\nsandbox_hour=-1\n",
            &["prices", "-1"],
        ),
        ("[[prices]]\nprovider='x'\neffective_from='whenever'\n", &["effective_from", "line 3"]),
    ] {
        home.configure(config);
        let said = home.run(&["up"]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{config}: {said:?}");
        for mention in mentions.iter().chain(&["parhelia.toml"]) {
            assert!(said.err.contains(mention), "{config}: {said:?} does not say {mention}");
        }
        let client = home.run(&["containers"]);
        assert_ne!(client.code, 0, "{client:?}");
        assert!(client.err.contains(mentions[0]), "a command that starts a server says it too: {client:?}");
    }
    assert!(!home.path().join("parhelia.sqlite3").exists(), "nothing was begun");
    let named = home.run(&["up", "--config", "/not/there.toml"]);
    assert_eq!(named.code, 1, "{named:?}");
    assert!(named.err.contains("/not/there.toml"), "{named:?}");
    let other = home.path().join("other.toml");
    std::fs::write(&other, "[reconciler]\npoll_interval_seconds = 7\n").unwrap();
    home.configure("");
    let status = home.json(&["--config", other.to_str().unwrap(), "reconciler", "status"]);
    assert_eq!(status["poll_interval_seconds"], 7);
}

#[test]
fn a_home_that_cannot_be_used_says_so() {
    let home = Home::new();
    let long = home.path().join("x".repeat(120));
    for args in [&["up"][..], &["containers"], &["down"]] {
        let said: Said = home.command(args).env("PARHELIA_HOME", &long).output().unwrap().into();
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("at most 107") && said.err.contains("shorter PARHELIA_HOME"), "{said:?}");
    }
    assert!(!long.exists());

    let disk = ReadOnly::mount(&home.path().join("disk"));
    for (inside, args) in [("h", &["up"][..]), ("h", &["containers"]), ("", &["up"]), ("", &["containers"])] {
        let said: Said =
            home.command(args).env("PARHELIA_HOME", disk.0.join(inside)).output().unwrap().into();
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        assert!(said.err.contains("Read-only file system"), "{said:?}");
        assert!(said.err.contains("PARHELIA_HOME") || said.err.contains("--home"), "what to do: {said:?}");
    }
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let said: Said = home.command(&["containers"]).env("PARHELIA_HOME", &file).output().unwrap().into();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains(file.to_str().unwrap()), "{said:?}");
}

/// A file system that cannot be written, for as long as this lives.
struct ReadOnly(std::path::PathBuf);

impl ReadOnly {
    fn mount(at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "ro,size=1m", "tmpfs"]).arg(at).status();
        assert!(done.unwrap().success(), "this test needs to mount a file system: run it as root");
        Self(at.to_owned())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
