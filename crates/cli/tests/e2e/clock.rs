//! The wall clock jumps by an hour, forward and back, under the server and the supervisors: nobody dies of it.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Home, Server, eventually, parhelia, text};
use crate::postgres::Team;

/// A clock for the server and everything that it starts, moved by writing a file.
struct Clock {
    file: PathBuf,
}

impl Clock {
    fn new(home: &Home) -> Self {
        let clock = Self { file: home.path().join("clock") };
        clock.set("+0");
        clock
    }

    /// Off the real time by this much: `+1h`, `-1h`.
    fn set(&self, offset: &str) {
        let aside = self.file.with_extension("new");
        std::fs::write(&aside, format!("{offset}\n")).unwrap();
        std::fs::rename(aside, &self.file).unwrap();
    }

    fn up(&self, home: &Home) -> Server {
        let library = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
            .map(|arch| PathBuf::from(format!("/usr/lib/{arch}/faketime/libfaketime.so.1")));
        let library = library.iter().find(|path| path.exists()).expect("faketime is installed");
        home.up_where(&parhelia(), &[], |command| {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", &self.file)
                .env("FAKETIME_NO_CACHE", "1")
                // As in the kernel: a jump of the wall clock does not move the monotonic one.
                .env("DONT_FAKE_MONOTONIC", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        })
    }
}

fn job(home: &Home, id: &str) -> Value {
    let (status, job) = home.api("GET", &format!("/api/v1/jobs/{id}"), None);
    assert_eq!(status, 200, "{job}");
    job
}

fn heartbeats(home: &Home, container: &str) -> usize {
    let path = format!("/api/v1/containers/{container}/heartbeats?limit=10000");
    home.api("GET", &path, None).1["heartbeats"].as_array().map_or(0, Vec::len)
}

#[test]
fn an_hour_forward_and_back_kills_nobody() {
    let home = Home::with_config("[health]\nheartbeat_interval_seconds = 1\n[jobs]\ncheck_seconds = 1\n");
    let clock = Clock::new(&home);
    let mut server = clock.up(&home);
    let jobs: Vec<(String, String)> = (0..3)
        .map(|_| {
            let body = json!({"command": ["sh", "-c", "while true; do date +%s; sleep 0.2; done"]});
            let (_, job) = home.api("POST", "/api/v1/jobs", Some(body));
            (text(&job, "id").to_owned(), text(&job, "container_id").to_owned())
        })
        .collect();
    for (id, _) in &jobs {
        eventually("it runs", || Some(job(&home, id)).filter(|j| j["status"] == "fresh"));
    }
    for offset in ["+1h", "-1h", "+0"] {
        let before: Vec<_> = jobs.iter().map(|(_, container)| heartbeats(&home, container)).collect();
        clock.set(offset);
        alive(&home, &jobs, &before, offset);
        // And for a server that starts under the new time.
        server.kill();
        server = clock.up(&home);
        let before: Vec<_> = jobs.iter().map(|(_, container)| heartbeats(&home, container)).collect();
        alive(&home, &jobs, &before, offset);
    }
    drop(server);
}

/// Each beats on under the new time, is seen by a check or two, and has an hour's age for nobody.
fn alive(home: &Home, jobs: &[(String, String)], before: &[usize], offset: &str) {
    for ((id, container), before) in jobs.iter().zip(before) {
        eventually(&format!("{id} beats at {offset}"), || {
            (heartbeats(home, container) > before + 2).then_some(())
        });
        let job = job(home, id);
        assert!(["fresh", "reattached"].contains(&text(&job, "status")), "{offset}: {job}");
        let events = home.events_of(container);
        let bad = [
            "job_stale",
            "job_dead",
            "job_failed",
            "container_dead",
            "container_unhealthy",
            "container_degraded",
        ];
        assert!(!events.iter().any(|kind| bad.contains(&kind.as_str())), "{offset}: {events:?}");
        assert_eq!(home.seen(container)["state"], "running");
    }
}

#[test]
fn a_server_whose_clock_is_ahead_takes_nothing_from_one_that_is_well() {
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
    let mut first = one.up(&[]);
    let cascade = json!({ "cascade_id": "waits", "phases": [{ "name": "a", "await": { "signal": "go" } }] });
    let (code, session) = one.api("POST", "/api/v1/sessions", Some(json!({ "cascade": cascade })));
    assert_eq!(code, 201, "{session}");
    let id = text(&session, "session_id").to_owned();
    // Longer than a lease.
    let clock = Clock::new(&two);
    clock.set("+90");
    let _second = clock.up(&two);
    let said = eventually("both have looked for sessions to take", || {
        let steps: Vec<String> =
            team.rows("SELECT steps FROM startups").into_iter().map(|row| row.concat()).collect();
        steps.iter().all(|steps| steps.contains("sessions gone on with")).then_some(steps)
    });
    assert!(
        said.len() == 2 && said.iter().all(|steps| steps.contains("0 sessions gone on with")),
        "{said:?}"
    );
    let owned = team.rows(&format!("SELECT owner_epoch FROM sessions WHERE session_id = '{id}'"));
    assert_eq!(owned[0][0], "1", "it has another owner");
    assert!(
        team.rows("SELECT id FROM owners WHERE ended_at IS NOT NULL").iter().all(|row| row[0].is_empty())
    );
    assert_eq!(one.api("POST", "/api/v1/signals", Some(json!({ "name": "go" }))).0, 201);
    eventually("its own server completes it", || {
        let (_, session) = one.api("GET", &format!("/api/v1/sessions/{id}"), None);
        (session["status"] == "completed").then_some(())
    });
    assert!(first.has_ended().is_none(), "a healthy server was ended");
}
