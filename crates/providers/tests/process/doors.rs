//! The supervisor's control socket and what it tells the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parhelia_core::heartbeat::Sample;
use parhelia_core::state::TerminationReason;
use parhelia_providers::Provider;
use serde_json::{Value, json};

use crate::ground::*;

#[tokio::test]
async fn the_control_socket_speaks_version_one_and_survives_nonsense() {
    let ground = Ground::new();
    let spec = shell("sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    let path = ground.dir(&spec).control_socket();
    let connect = || {
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        BufReader::new(stream)
    };
    let line = |from: &mut BufReader<UnixStream>| -> Option<Value> {
        let mut text = String::new();
        // A reset is an end too.
        from.read_line(&mut text).ok().filter(|got| *got > 0)?;
        Some(serde_json::from_str(&text).unwrap())
    };
    let say = |to: &mut BufReader<UnixStream>, text: &str| {
        // It may have hung up on us already.
        let _ = to.get_mut().write_all(text.as_bytes());
    };
    let mut first = connect();
    let greeting = line(&mut first).unwrap();
    assert_eq!((greeting["protocol"].clone(), greeting["jobId"].clone()), (json!(1), json!(job_of(&spec))));

    let mut garbage = connect();
    line(&mut garbage).unwrap();
    say(&mut garbage, "\u{1}\u{2} not json\n");
    assert_eq!(line(&mut garbage), None, "nonsense closes that connection");
    let mut endless = connect();
    line(&mut endless).unwrap();
    say(&mut endless, &"x".repeat(200_000));
    assert_eq!(line(&mut endless), None);

    say(&mut first, "{\"op\":\"ping\"}\n{\"op\":\"dance\"}\n");
    assert_eq!(line(&mut first).unwrap()["ok"], json!(true));
    assert!(line(&mut first).unwrap()["error"].as_str().unwrap().contains("stop, ping"));
    say(&mut first, "{\"op\":\"progress\",\"percent\":41.5}\n");
    assert_eq!(line(&mut first).unwrap()["ok"], json!(true));
    let noted = for_a_while(async || {
        std::fs::read_to_string(ground.dir(&spec).sentinel()).unwrap().contains("\"progressPercent\": 41.5")
    });
    assert!(noted.await);

    let many: Vec<_> = (0..80).map(|_| connect()).collect();
    say(&mut first, "{\"op\":\"stop\",\"graceSeconds\":5}\n");
    assert_eq!(line(&mut first).unwrap()["ok"], json!(true));
    assert_eq!(line(&mut first), None, "its end of file is the end of the job");
    drop(many);
    assert_eq!(ground.ended(&spec).await.reason, TerminationReason::Manual);
}

#[tokio::test]
async fn a_long_home_moves_the_socket_and_says_where() {
    let base = tempfile::Builder::new().prefix("p").rand_bytes(3).tempdir_in("/tmp").unwrap();
    let home = base.path().join("h".repeat(50));
    std::fs::create_dir(&home).unwrap();
    let ground = Ground::at(&home);
    let spec = shell("sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    let path = ground.dir(&spec).control_socket();
    assert!(path.starts_with(home.join("run")), "{path:?}");
    UnixStream::connect(&path).unwrap();
    ground.provider.stop(&reference(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
    assert!(!path.exists());
}

/// A server that answers every request with `status` and passes on the bodies.
fn serve(socket: &Path, status: u16) -> Receiver<Vec<Sample>> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut length, mut head) = (0, String::new());
            while head != "\r\n" {
                head.clear();
                if stream.read_line(&mut head).unwrap_or(0) == 0 {
                    break;
                }
                if let Some(value) = head.strip_prefix("Content-Length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let beats: Vec<Sample> = serde_json::from_value(body["heartbeats"].clone()).unwrap();
            if tell.send(beats).is_err() {
                return;
            }
        }
    });
    told
}

#[tokio::test]
async fn heartbeats_wait_for_an_absent_server_and_say_how_long() {
    let ground = Ground::new();
    let mut spec = shell("while :; do :; done");
    spec.resources.cpu_cores = Some(1.0);
    spec.resources.memory_mb = Some(64);
    ground.provider.create(&spec).await.unwrap();
    // At least two beats (of one second) are made while nobody listens.
    let sentinel = ground.dir(&spec).sentinel();
    let first = std::fs::metadata(&sentinel).unwrap().modified().unwrap();
    let waited = for_a_while(async || {
        std::fs::metadata(&sentinel).unwrap().modified().unwrap().duration_since(first).unwrap().as_secs()
            >= 3
    });
    assert!(waited.await);

    let told = serve(&ground.home.join("parhelia.sock"), 202);
    let beats = told.recv_timeout(DEADLINE).unwrap();
    assert!(beats.len() >= 3, "{}", beats.len());
    assert!(beats.iter().all(|beat| beat.container_id == spec.container_id && beat.timestamp.is_none()));
    assert!(beats[0].delayed_seconds.unwrap() > 1.0);
    assert_eq!(beats.last().unwrap().delayed_seconds, None);
    let newest = told.recv_timeout(DEADLINE).unwrap();
    assert_eq!(newest.len(), 1, "what was acknowledged is not sent again");
    let mut beat = newest[0].clone();
    for _ in 0..20 {
        if beat.cpu_percent > Some(0.0) {
            break;
        }
        // A machine that is busy with other tests may have given it nothing in that second.
        beat = told.recv_timeout(DEADLINE).unwrap().pop().unwrap();
    }
    assert!(beat.cpu_percent > Some(0.0), "{beat:?}");
    assert!(beat.memory_mb.is_some() && beat.memory_percent.unwrap() < 100.0, "{beat:?}");
    assert!(beat.disk_percent.is_some() && beat.uptime_seconds.unwrap() >= 1);
    assert_eq!((beat.tmux_active, beat.claude_responsive), (None, Some(true)));
}

#[tokio::test]
async fn a_server_that_does_not_know_the_container_gets_only_the_newest() {
    let ground = Ground::new();
    let told = serve(&ground.home.join("parhelia.sock"), 404);
    let spec = shell("sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    for _ in 0..3 {
        let beats = told.recv_timeout(DEADLINE).unwrap();
        assert!(beats.len() <= 2, "the refused one and the new one: {}", beats.len());
    }
}

#[tokio::test]
async fn a_connection_brings_the_next_heartbeat_at_once() {
    let ground = Ground::new();
    let told = serve(&ground.home.join("parhelia.sock"), 200);
    let spec = shell("sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    told.recv_timeout(DEADLINE).unwrap();
    for _ in 0..5 {
        while told.try_recv().is_ok() {}
        let _connection = UnixStream::connect(ground.dir(&spec).control_socket()).unwrap();
        told.recv_timeout(DEADLINE).unwrap();
    }
}

#[tokio::test]
async fn a_tmux_session_is_asked_after() {
    let ground = Ground::new();
    let socket = ground.home.join("tmux.sock");
    let tmux = |arguments: &[&str]| {
        let status = Command::new("tmux").arg("-S").arg(&socket).args(arguments).status();
        assert!(status.expect("tmux, which this test needs").success(), "{arguments:?}");
    };
    tmux(&["new-session", "-d", "-s", "agent", "sleep 1000"]);
    let told = serve(&ground.home.join("parhelia.sock"), 200);
    let mut spec = shell("sleep 1000");
    spec.tmux_session = Some("agent".into());
    spec.env.insert("TMUX".into(), format!("{},1,0", socket.display()));
    ground.provider.create(&spec).await.unwrap();
    let awaits = |wanted: bool| {
        let mut seen = None;
        for _ in 0..20 {
            seen = told.recv_timeout(Duration::from_secs(10)).unwrap().last().unwrap().tmux_active;
            if seen == Some(wanted) {
                return;
            }
        }
        panic!("{seen:?} and not {wanted}");
    };
    awaits(true);
    tmux(&["kill-server"]);
    awaits(false);
    assert!(matches!(ground.look(&spec).await.phase, parhelia_core::sandbox::Phase::Running));
}
