//! Jobs outlive the server, whichever build comes back: a hundred of them print numbered lines while the server is
//! killed again and again and replaced, in turn, by a build with another version and a higher protocol on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Home, Server, eventually, parhelia, text};

const JOBS: usize = 100;
const LINES: usize = 150;

/// The build that an upgrade brings; `scripts/build.sh` makes it.
pub(crate) fn next_build() -> PathBuf {
    let path = parhelia().with_file_name("parhelia-next");
    assert!(path.exists(), "{} is not there: run scripts/build.sh, which makes it", path.display());
    path
}

fn kills() -> usize {
    std::env::var("PARHELIA_SOAK_UPGRADES").map_or(10, |n| n.parse().expect("a number of kills"))
}

/// What the server says of every job, by its id.
fn jobs(home: &Home) -> BTreeMap<String, Value> {
    let (status, list) = home.api("GET", "/api/v1/jobs?all=true&limit=1000", None);
    assert_eq!(status, 200, "{list}");
    let jobs = list["jobs"].as_array().unwrap();
    jobs.iter().map(|job| (text(job, "id").to_owned(), job.clone())).collect()
}

/// All that a job printed, read as a follower does: from where it stopped, over every server that came and went.
fn read_on(home: &Home, container: &str, kept: &mut Vec<u8>) {
    loop {
        let path = format!("/api/v1/containers/{container}/logs?offset={}", kept.len());
        let Some(reply) = home.reply("GET", &path) else { return };
        assert_eq!(reply.status, 200, "{}", reply.body);
        if reply.body.is_empty() {
            return;
        }
        kept.extend_from_slice(reply.body.as_bytes());
    }
}

#[test]
fn a_hundred_jobs_outlive_ten_servers_and_an_upgrade() {
    let next = next_build();
    let home = Home::with_config("[health]\nheartbeat_interval_seconds = 1\n");
    let mut server: Server = home.up(&[]);
    let expected: String = (1..=LINES).map(|n| format!("line {n}\n")).collect();
    let mut codes = BTreeMap::new();
    for n in 0..JOBS {
        let code = n % 3;
        let script = format!(
            "i=1; while [ $i -le {LINES} ]; do echo line $i; i=$((i+1)); sleep 0.2; done; exit {code}"
        );
        let body = json!({"name": format!("counter-{n}"), "command": ["sh", "-c", script]});
        let (status, job) = home.api("POST", "/api/v1/jobs", Some(body));
        assert!((200..300).contains(&status), "{status}: {job}");
        codes.insert(text(&job, "id").to_owned(), (text(&job, "container_id").to_owned(), code));
    }
    assert_eq!(codes.len(), JOBS);
    // Or has ended already, on a machine that has much else to do.
    let begun = |job: &Value| job["status"] == "fresh" || job["ended_at"].is_string();
    eventually("every job runs", || jobs(&home).values().all(begun).then_some(()));

    let mut followed: BTreeMap<&str, Vec<u8>> =
        codes.values().take(10).map(|(container, _)| (container.as_str(), Vec::new())).collect();
    let mut reattached = 0;
    for kill in 0..kills() {
        for (container, kept) in &mut followed {
            read_on(&home, container, kept);
        }
        server.kill();
        let build = if kill % 2 == 0 { next.clone() } else { parhelia() };
        server = home.up_with(&build, &[]);
        let now = jobs(&home);
        assert_eq!(now.len(), JOBS, "every job is known after kill {kill}");
        // Every other time it is killed in the middle of finding them again.
        if kill % 2 == 0 {
            let now = eventually("every job that lives is found again", || {
                let now = jobs(&home);
                now.values().all(|job| job["status"] != "fresh").then_some(now)
            });
            reattached += now.values().filter(|job| job["status"] == "reattached").count();
            let known = ["reattached", "finished", "failed"];
            let lost: Vec<_> = now.values().filter(|job| !known.contains(&text(job, "status"))).collect();
            assert!(lost.is_empty(), "{lost:?}");
        }
    }
    assert!(reattached > 0, "the servers came too late to find any of them alive");

    let ended = eventually("every job has ended", || {
        let now = jobs(&home);
        now.values().all(|job| job["ended_at"].is_string()).then_some(now)
    });
    for (id, (container, code)) in &codes {
        let job = &ended[id];
        assert_eq!(job["exit_code"], *code, "{job}");
        assert_eq!(job["status"], if *code == 0 { "finished" } else { "failed" }, "{job}");
        let mut whole = Vec::new();
        read_on(&home, container, &mut whole);
        assert_eq!(String::from_utf8(whole).unwrap(), expected, "{id} has every line once");
        let result = std::fs::read_to_string(home.path().join("jobs").join(id).join("result.json")).unwrap();
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!(result["exitCode"], *code);
        let events = home.events_of(container);
        let ends = events.iter().filter(|kind| ["job_finished", "job_failed"].contains(&kind.as_str()));
        assert_eq!(ends.count(), 1, "{id} ended once: {events:?}");
        // A server that died before it could record the start left it to the next one to find.
        let starts =
            events.iter().filter(|kind| ["container_started", "container_adopted"].contains(&kind.as_str()));
        assert_eq!(starts.count(), 1, "{id} was started once: {events:?}");
    }
    for (container, mut kept) in followed {
        read_on(&home, container, &mut kept);
        assert_eq!(
            String::from_utf8(kept).unwrap(),
            expected,
            "who followed {container} saw every line once"
        );
    }
    println!(
        "{JOBS} jobs of {LINES} lines through {} kills; {reattached} times one was found again",
        kills()
    );
}
