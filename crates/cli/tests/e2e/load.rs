//! A load of containers, terminations and heartbeats on one home, what the server said yes to, and the proof
//! that all of it is there afterwards: nothing acknowledged is lost, nothing is started twice.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, text};

const EXIT_CODE: i64 = 7;

pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}")))
}

pub(crate) struct Dice(u64);

impl Dice {
    /// From `PARHELIA_SOAK_SEED`, or anew; printed, so that a failure can be tried again.
    pub(crate) fn of_this_run() -> Self {
        let seed = number("PARHELIA_SOAK_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) | 1);
        println!("PARHELIA_SOAK_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// What the server said yes to.
#[derive(Default)]
pub(crate) struct Acknowledged {
    created: Mutex<BTreeMap<String, &'static str>>,
    terminated: Mutex<Vec<String>>,
    beats: Mutex<Vec<u64>>,
}

/// What the store itself holds, read past the server.
pub(crate) struct Evidence {
    /// Type and container of every event about a container.
    pub(crate) events: Vec<(String, String)>,
    /// `kills_seq` of every heartbeat that has one.
    pub(crate) seqs: Vec<u64>,
}

impl Acknowledged {
    fn of_kind(&self, kind: &str) -> Vec<String> {
        let created = self.created.lock().unwrap();
        created.iter().filter(|(_, k)| **k == kind).map(|(id, _)| id.clone()).collect()
    }
}

/// `Some` only for a whole answer that says yes.
fn asked(home: &Home, path: &str, body: &Value, yes: u16) -> Option<Value> {
    let (status, text) = home.try_http("POST", path, Some(&body.to_string()))?;
    assert!(status == yes || status == 503, "{path}: {status} {text}");
    serde_json::from_str(&text).ok().filter(|_| status == yes)
}

/// Every command leaves its container's id in `started`, once per start.
fn create(home: &Home, started: &Path, kind: &'static str, known: &Acknowledged) -> Option<String> {
    let then = match kind {
        "short" => format!("exit {EXIT_CODE}"),
        "long" => "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done".to_owned(),
        _ => "sleep 1000".to_owned(),
    };
    let script = format!("echo $PARHELIA_CONTAINER_ID >> {}; {then}", started.display());
    let request = json!({ "name": kind, "command": ["sh", "-c", script] });
    let made = asked(home, "/api/v1/containers", &request, 201)?;
    let id = text(&made, "id").to_owned();
    known.created.lock().unwrap().insert(id.clone(), kind);
    Some(id)
}

fn keep_creating(home: &Home, started: &Path, known: &Acknowledged, over: &AtomicBool) {
    for turn in 0_u64.. {
        let kind = match turn % 10 {
            3 if turn < 40 => "long",
            6 => "victim",
            _ => "short",
        };
        let mut made = None;
        while made.is_none() && !over.load(Ordering::Relaxed) {
            made = create(home, started, kind, known);
            sleep(Duration::from_millis(if made.is_some() { 100 } else { 10 }));
        }
        let Some(id) = made else { return };
        while kind == "victim" && !over.load(Ordering::Relaxed) {
            let path = format!("/api/v1/containers/{id}/terminate");
            if asked(home, &path, &json!({ "grace_seconds": 1 }), 200).is_some() {
                known.terminated.lock().unwrap().push(id.clone());
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

fn keep_beating(home: &Home, known: &Acknowledged, over: &AtomicBool) {
    let ids = known.of_kind("long");
    for n in 0_u64.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let seqs = [3 * n, 3 * n + 1, 3 * n + 2];
        let beat = |seq: &u64| json!({ "container_id": ids[*seq as usize % ids.len()], "metadata": { "kills_seq": seq } });
        let batch = json!({ "heartbeats": seqs.iter().map(beat).collect::<Vec<_>>() });
        match asked(home, "/api/v1/heartbeats", &batch, 200) {
            Some(receipt) => {
                assert_eq!(receipt["accepted"], 3, "{receipt}");
                known.beats.lock().unwrap().extend(seqs);
                sleep(Duration::from_millis(5));
            }
            None => sleep(Duration::from_millis(10)),
        }
    }
}

/// Runs the load while `trouble` makes trouble; gives what was acknowledged, and what `trouble` gave.
pub(crate) fn under_load<T>(home: &Home, trouble: impl FnOnce() -> T) -> (Acknowledged, T) {
    let known = Acknowledged::default();
    let over = AtomicBool::new(false);
    let started = started(home);
    for _ in 0..2 {
        create(home, &started, "long", &known).expect("a calm server says yes");
    }
    let done = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| keep_creating(home, &started, &known, &over));
        }
        scope.spawn(|| keep_beating(home, &known, &over));
        // Whatever happens here, the load must end, or the scope never does.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(trouble));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause))
    });
    (known, done)
}

fn started(home: &Home) -> PathBuf {
    home.path().join("started")
}

/// Everything that was acknowledged is there, once, and in order; everything else is as it should be.
pub(crate) fn prove(home: &Home, known: Acknowledged, evidence: impl FnOnce() -> Evidence) {
    let created = known.created.into_inner().unwrap();
    let (terminated, beats) = (known.terminated.into_inner().unwrap(), known.beats.into_inner().unwrap());
    println!(
        "acknowledged: {} containers, {} terminations, {} heartbeats",
        created.len(),
        terminated.len(),
        beats.len()
    );
    assert!(created.len() > 5 && !beats.is_empty(), "there was hardly any load");
    let settled = eventually("all that were to end have ended, and all that were to run run", || {
        let all = home.all_seen();
        let is_settled = |c: &Value| match text(c, "name") {
            "long" => c["state"] == "running",
            "short" => c["state"] == "terminated",
            _ if terminated.iter().any(|id| c["id"] == **id) => c["state"] == "terminated",
            // Its termination may or may not have been heard.
            _ => c["state"] == "running" || c["state"] == "terminated",
        };
        all.iter().all(is_settled).then_some(all)
    });
    let rows: BTreeMap<&str, &Value> = settled.iter().map(|c| (text(c, "id"), c)).collect();
    assert!(created.keys().all(|id| rows.contains_key(id.as_str())), "an acknowledged container is lost");
    for (id, row) in &rows {
        match text(row, "name") {
            "short" => {
                let end = (text(row, "termination_reason"), row["exit_code"].as_i64());
                assert_eq!(end, ("failed", Some(EXIT_CODE)), "{row}");
            }
            "long" => assert!(alive_with(&format!("PARHELIA_CONTAINER_ID={id}")) > 0, "{row}"),
            _ => {}
        }
    }
    for id in &terminated {
        assert_eq!(text(rows[id.as_str()], "termination_reason"), "manual");
        assert_eq!(alive_with(&format!("PARHELIA_CONTAINER_ID={id}")), 0);
    }
    once_each(&std::fs::read_to_string(started(home)).unwrap(), &rows, &terminated);
    is_there(&evidence(), &created, &terminated, &beats);
    for id in rows.iter().filter(|(_, c)| c["name"] == "long").map(|(id, _)| id) {
        output_is_whole(home, id);
    }
    assert_eq!(home.json(&["containers", "orphans"]), json!([]));
    assert!(home.told("sandbox_quarantined").is_empty());
}

fn once_each(started: &str, rows: &BTreeMap<&str, &Value>, terminated: &[String]) {
    let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
    for id in started.lines() {
        *starts.entry(id).or_default() += 1;
    }
    for (id, count) in &starts {
        assert!(rows.contains_key(id), "{id} ran without a record");
        assert_eq!(*count, 1, "{id} was started {count} times");
    }
    for id in rows.keys().filter(|id| !terminated.iter().any(|t| t == *id)) {
        assert!(starts.contains_key(id), "{id} was never started: {}", rows[id]);
    }
}

fn is_there(evidence: &Evidence, created: &BTreeMap<String, &str>, terminated: &[String], beats: &[u64]) {
    let mut told: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (kind, id) in &evidence.events {
        *told.entry((kind, id)).or_default() += 1;
    }
    let count = |kind: &str, id: &str| told.get(&(kind, id)).copied().unwrap_or(0);
    for (id, kind) in created {
        assert_eq!(count("container_created", id), 1, "{id}");
        if *kind == "victim" && !terminated.contains(id) {
            // Asked to end, and nobody said yes: it may have been heard all the same.
            continue;
        }
        assert_eq!(
            count("container_terminated", id),
            i64::from(*kind == "short" || terminated.contains(id)),
            "{id}"
        );
    }
    for id in terminated {
        assert_eq!(count("stop_requested", id), 1, "{id}");
    }
    let distinct: BTreeSet<u64> = evidence.seqs.iter().copied().collect();
    assert_eq!(evidence.seqs.len(), distinct.len(), "a heartbeat was stored twice");
    let lost: Vec<&u64> = beats.iter().filter(|seq| !distinct.contains(seq)).collect();
    assert!(lost.is_empty(), "acknowledged heartbeats are lost: {lost:?}");
}

/// Every line once, in order, and it goes on.
fn output_is_whole(home: &Home, id: &str) {
    let lines = || {
        let log = home.ok(&["containers", "logs", id]);
        // The last one may be half written at this moment.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned();
        for (at, line) in whole.lines().enumerate() {
            assert_eq!(line, format!("line {}", at + 1), "the output of {id} has a gap or a repetition");
        }
        whole.lines().count()
    };
    let before = lines();
    eventually("it goes on", || (lines() > before).then_some(()));
}
