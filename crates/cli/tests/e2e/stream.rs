//! Live events: what a client is told, that it can break off anywhere and go on without a gap or a repeat, and
//! that nobody who is slow, silent or no longer allowed costs anybody else anything.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use parhelia_core::event::{EventType, Severity};
use serde_json::{Value, json};

use crate::harness::{Home, eventually, text};
use crate::listening::{Block, Listener};
use crate::metrics::scraped;
use crate::postgres::Team;

/// The whole history after an id, as the other route tells it.
fn history(home: &Home, after: i64) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let from = all.last().map_or(after, |e| e["id"].as_i64().unwrap());
        let path = format!("/api/v1/events?after={from}&order=asc&limit=5000");
        let (status, page) = home.api("GET", &path, None);
        assert_eq!(status, 200, "{page}");
        let page = page["events"].as_array().unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page.iter().cloned());
    }
}

fn ids(events: &[Value]) -> Vec<i64> {
    events.iter().map(|e| e["id"].as_i64().unwrap()).collect()
}

fn newest(home: &Home) -> i64 {
    // The last word of a start comes a moment after the server is ready.
    eventually("the start is over", || home.told("startup_completed").pop());
    home.api("GET", "/api/v1/events?limit=1", None).1["last_id"].as_i64().unwrap()
}

/// One event, by asking for something: a token for somebody with a long name.
fn cause_event(home: &Home) -> Value {
    let request = json!({ "subject": "x".repeat(100), "role": "viewer" });
    let (status, made) = home.api("POST", "/api/v1/tokens", Some(request));
    assert!(status < 300, "{made}");
    made
}

fn cause_events(homes: &[&Home], count: usize, writers: usize) {
    let left = AtomicUsize::new(count);
    std::thread::scope(|scope| {
        for n in 0..writers {
            let left = &left;
            scope.spawn(move || {
                let take = |n: usize| n.checked_sub(1);
                while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
                    cause_event(homes[n % homes.len()]);
                }
            });
        }
    });
}

#[test]
fn a_stream_begins_with_the_fleet_and_goes_on_with_what_happens() {
    let home = Home::new();
    let server = home.up(&[]);
    let first = home.start(&["--task", "t-1"], &["sleep", "600"]);
    let mut stream = home.listen("snapshot=true", None);
    assert!(stream.head.contains("content-type: text/event-stream"), "{}", stream.head);
    assert!(stream.head.contains("cache-control: no-store"), "{}", stream.head);
    let opening = stream.next().unwrap();
    assert!(opening.retry.is_some() && opening.id.is_some() && opening.data.is_empty(), "{opening:?}");
    let snapshot = stream.next().unwrap();
    assert_eq!(snapshot.event, "snapshot");
    let at = snapshot.id.unwrap();
    assert_eq!(snapshot.json()["last_event_id"], at);
    assert_eq!(snapshot.json()["containers"][0]["id"], first);

    let second = home.start(&[], &["true"]);
    let mut told = Vec::new();
    while !told
        .iter()
        .any(|e: &Value| e["container_id"] == second && e["event_type"] == "container_terminated")
    {
        let block = stream.next().expect("the stream goes on");
        assert_eq!(
            (block.id, block.event.as_str()),
            (block.json()["id"].as_i64(), text(&block.json(), "event_type"))
        );
        told.push(block.json());
    }
    // The same events, in the same shape, as the other route tells.
    let mut expected = history(&home, at);
    expected.truncate(told.len());
    assert_eq!(told, expected);

    // One who resumes needs no second snapshot; one who has nothing gets all that there is.
    let mut again = home.listen("snapshot=true", Some(at));
    again.next().unwrap();
    assert_eq!(again.next().unwrap().id, Some(expected[0]["id"].as_i64().unwrap()));
    let mut whole = home.listen("after=0", None);
    assert_eq!(whole.next().unwrap().id, Some(0));
    assert_eq!(whole.next().unwrap().event, "server_started");

    // A server that stops ends its streams at once, and says where to go on.
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);
    for stream in [&mut stream, &mut again, &mut whole] {
        let last = stream.rest().pop().unwrap();
        assert_eq!((last.event.as_str(), last.json()["last_event_id"].as_i64()), ("resume", last.id));
    }
}

#[test]
fn a_stream_tells_what_was_asked_for_and_nothing_else() {
    let home = Home::new();
    let server = home.up(&[]);
    let start = newest(&home);
    let one = home.start(&["--task", "t-1"], &["sleep", "600"]);
    type Fits = fn(&Value, &str) -> bool;
    let filters: [(String, Fits); 7] = [
        ("type=container_created,stop_requested".into(), |e, _| {
            ["container_created", "stop_requested"].contains(&text(e, "event_type"))
        }),
        (format!("container={}", &one[..one.len() - 1]), |e, one| e["container_id"] == one),
        ("task=t-1".into(), |e, _| e["task_id"] == "t-1"),
        ("session=s-1".into(), |e, _| e["session_id"] == "s-1"),
        ("workspace=w-1".into(), |e, _| e["details"]["workspace_id"] == "w-1"),
        ("severity=warning".into(), |e, _| {
            text(e, "event_type").parse::<EventType>().unwrap().severity() >= Severity::Warning
        }),
        ("type=container_created&task=t-1".into(), |e, _| {
            e["event_type"] == "container_created" && e["task_id"] == "t-1"
        }),
    ];
    let mut streams: Vec<Listener> =
        filters.iter().map(|(query, _)| home.listen(query, Some(start))).collect();

    let two = home.start(&[], &["sleep", "600"]);
    home.ok(&["containers", "terminate", &one, &two, "--yes"]);
    home.until(&two, "state", "terminated");
    home.until(&one, "state", "terminated");
    eventually("their jobs are over too", || (home.told("job_cancelled").len() == 2).then_some(()));
    // Of sessions and workspaces nothing is told yet but what somebody wrote there by hand.
    let insert = "INSERT INTO events (timestamp, event_type, session_id, details) VALUES (?1, ?2, ?3, ?4)";
    for (kind, session, details) in [
        ("access_refused", Some("s-1"), "{}"),
        ("create_failed", None, "{\"workspace_id\": \"w-1\"}"),
        ("create_failed", Some("s-2"), "{\"workspace_id\": \"w-2\"}"),
    ] {
        let now = crate::harness::stored_moment(0);
        home.sqlite().execute(insert, rusqlite::params![now, kind, session, details]).unwrap();
    }
    cause_event(&home);
    let last = newest(&home);
    let all = history(&home, start);
    // Everybody is told to resume from the same place, or a later one: so much has been considered.
    let mut marker = home.listen("", Some(last - 1));
    marker.until("the newest", |b| b.id == Some(last) && b.is_event());
    home.ok(&["down"]);
    server.wait();
    for ((query, fits), stream) in filters.iter().zip(&mut streams) {
        let told: Vec<Value> = stream.rest().iter().filter(|b| b.is_event()).map(Block::json).collect();
        let expected: Vec<&Value> = all.iter().filter(|e| fits(e, &one)).collect();
        assert!(!expected.is_empty(), "{query} has nothing to tell");
        assert_eq!(told.iter().collect::<Vec<_>>(), expected, "{query}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_says_why() {
    let home = Home::with_config("[server]\nmax_streams = 2\nsse_heartbeat_seconds = 1\n");
    let _server = home.up(&[]);
    let wrong = |query: &str, headers: &[&str]| home.listen_with(query, headers).problem();
    for (query, header) in [
        ("", "Last-Event-ID: abc"),
        ("", "Last-Event-ID: -1"),
        ("", "Last-Event-ID: 999999"),
        ("after=999999", "x: y"),
        ("after=x", "x: y"),
        ("type=nothing_like_it", "x: y"),
        ("severity=loud", "x: y"),
        ("severity=info,error", "x: y"),
        ("unknown=1", "x: y"),
    ] {
        let (status, problem) = wrong(query, &[header]);
        assert_eq!(status, 422, "{query} {header}: {problem}");
        assert!(!text(&problem, "fix").is_empty());
    }
    assert_eq!(wrong("container=c-nosuch", &[]).0, 404);

    // As many as it takes, and a place that is left is free again.
    let opened_at = newest(&home);
    let (mut one, two) = (home.listen("", None), home.listen_with("", &["Last-Event-ID:"]));
    let busy = home.listen("", None);
    assert!(busy.head.contains("retry-after"), "{}", busy.head);
    let (status, problem) = busy.problem();
    assert_eq!((status, text(&problem, "code")), (503, "busy"));
    drop(two);
    eventually("a place is free", || (home.listen("", None).status == 200).then_some(()));

    // Nothing happens, and yet there is a sign of life, with the place to go on from.
    one.next().unwrap();
    let beat = one.until("a heartbeat", |b| b.comment == "heartbeat");
    assert!(beat.id.unwrap() >= opened_at && beat.data.is_empty(), "{beat:?}");
}

#[test]
fn a_stream_is_for_whom_it_is_meant_and_only_as_long() {
    let home = Home::new();
    let _server = home.up(&["--listen", "127.0.0.1:0"]);
    let container = home.start(&[], &["sleep", "600"]);
    let address = text(&home.api("GET", "/api/v1/server", None).1, "listen").to_owned();
    let token = |request: Value| {
        let (status, made) = home.api("POST", "/api/v1/tokens", Some(request));
        assert!(status < 300, "{made}");
        made
    };
    let status = |secret: &str| home.listen_tcp(&address, secret).status;
    assert_eq!(status("nobody"), 401);
    let worker = token(json!({ "subject": "w", "role": "worker", "container": container }));
    assert_eq!(status(text(&worker, "secret")), 403);
    for role in ["operator", "admin"] {
        assert_eq!(status(text(&token(json!({ "subject": role, "role": role })), "secret")), 200);
    }
    // The home's own token cannot be revoked, and holds.
    let own = std::fs::read_to_string(home.path().join("admin.token")).unwrap();
    let mut lasting = home.listen_tcp(&address, own.trim());

    let viewer = token(json!({ "subject": "v", "role": "viewer" }));
    let brief = token(json!({ "subject": "b", "role": "viewer", "expires_in_seconds": 5 }));
    let mut revoked = home.listen_tcp(&address, text(&viewer, "secret"));
    let mut expired = home.listen_tcp(&address, text(&brief, "secret"));
    let id = text(&viewer, "id");
    assert_eq!(home.api("POST", &format!("/api/v1/tokens/{id}/revoke"), None).0, 200);
    for stream in [&mut revoked, &mut expired] {
        let said = stream.rest();
        assert_eq!(said.last().unwrap().comment, "the token holds no longer", "{said:?}");
    }
    assert_eq!(status(text(&viewer, "secret")), 401);
    let marker = cause_event(&home);
    lasting.until("one more event", |b| b.is_event() && b.json()["details"]["token_id"] == marker["id"]);
}

#[test]
fn what_is_no_longer_kept_is_told_and_not_passed_over() {
    let home = Home::with_config("[retention]\nevent_days = 1\ninterval_seconds = 1\n");
    let _server = home.up(&[]);
    let container = home.start(&[], &["sleep", "600"]);
    home.until_seen(&container, "state", "running");
    cause_events(&[&home], 10, 1);
    let horizon = newest(&home) - 2;
    let old = crate::harness::stored_moment(-2 * 86_400);
    home.sqlite()
        .execute("UPDATE events SET timestamp = ?1 WHERE id <= ?2", rusqlite::params![old, horizon])
        .unwrap();
    eventually("the old ones are gone", || {
        (history(&home, 0)[0]["id"].as_i64().unwrap() > horizon).then_some(())
    });
    let kept = ids(&history(&home, 0));

    let mut late = home.listen("", Some(1));
    late.next().unwrap();
    let reset = late.next().unwrap();
    assert_eq!((reset.event.as_str(), reset.json()["oldest_id"].as_i64()), ("reset", Some(kept[0])));
    assert_eq!(reset.json()["last_event_id"], 1);
    assert_eq!(late.next().unwrap().id, Some(kept[0]), "all that is kept follows");
    // Whoever broke off here is told no second time.
    assert_eq!(home.listen("", reset.id).rest_of_opening().next().unwrap().id, Some(kept[0]));

    // With a snapshot it is a new beginning.
    let mut anew = home.listen("snapshot=true", Some(1));
    assert_eq!(anew.until("the reset", |b| !b.data.is_empty()).event, "reset");
    let snapshot = anew.next().unwrap();
    assert_eq!(
        (snapshot.event.as_str(), &snapshot.json()["containers"][0]["id"]),
        ("snapshot", &json!(container))
    );
    cause_event(&home);
    let next = anew.until("the next event", Block::is_event);
    assert!(next.id > snapshot.id, "{next:?}");
    // Nothing was lost to one who had all that is gone.
    assert!(home.listen("", Some(horizon)).rest_of_opening().next().unwrap().is_event());
}

impl Listener {
    fn rest_of_opening(mut self) -> Self {
        self.next().unwrap();
        self
    }
}

#[test]
fn one_who_is_too_slow_is_told_to_resume_and_slows_nobody() {
    let home = Home::with_config("[server]\nclient_patience_seconds = 600\n");
    let server = home.up(&[]);
    let start = newest(&home);
    let mut slow = home.listen("", None);
    let mut quick = home.listen("", None);
    const EVENTS: usize = 6500;
    let all = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut told = Vec::new();
            while told.len() < EVENTS {
                let block = quick.next().expect("the quick one is not cut off");
                assert_ne!(block.event, "resume");
                told.extend(block.is_event().then_some(block.id.unwrap()));
            }
            told
        });
        cause_events(&[&home], EVENTS, 8);
        reading.join().unwrap()
    });
    assert_eq!(all, ids(&history(&home, start)));

    // It wakes up: what was on its way is still good, and then it is told where to go on.
    let mut said = slow.rest();
    let resume = said.pop().unwrap();
    assert_eq!(resume.event, "resume", "{resume:?}");
    let behind = scraped(&home).get("streams_told_to_resume", &[("reason", "behind")]);
    assert_eq!(behind, Some(1.0));
    let mut told: Vec<i64> = said.iter().filter(|b| b.is_event()).map(|b| b.id.unwrap()).collect();
    assert_eq!(told.last().copied(), resume.id);
    assert!(told.len() < all.len(), "it was not slow enough to be told anything");
    let mut again = home.listen("", resume.id);
    while told.len() < all.len() {
        let block = again.next().unwrap();
        told.extend(block.is_event().then_some(block.id.unwrap()));
    }
    assert_eq!(told, all);

    // One that takes nothing at all does not hold up a server that stops.
    let _deaf = home.listen("after=0", None);
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);
    assert!(!home.log().contains("did not finish in time"), "{}", home.log());
}

#[test]
fn one_who_takes_nothing_loses_its_place() {
    let home = Home::with_config("[server]\nclient_patience_seconds = 1\nmax_streams = 1\n");
    let _server = home.up(&[]);
    cause_events(&[&home], 2000, 8);
    let _deaf = home.listen("after=0", None);
    eventually("its place is free", || (home.listen("", None).status == 200).then_some(()));
}

/// A small generator: the same places in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Breaks off a hundred times, anywhere, while everybody writes; each time at the next of the servers.
fn resumes_through_a_hundred_disconnects(homes: &[&Home]) {
    let start = newest(homes[0]);
    let (mut cursor, mut told, mut dice) = (start, Vec::new(), Dice(0x5eed_1e55));
    let (mut mid, done) = (0, AtomicBool::new(false));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (home, done) = (homes[n % homes.len()], &done);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let made = cause_event(home);
                    let path = format!("/api/v1/tokens/{}/revoke", text(&made, "id"));
                    assert_eq!(home.api("POST", &path, None).0, 200);
                }
            });
        }
        for cut in 0..100 {
            let mut stream = homes[cut % homes.len()].listen("", Some(cursor));
            let before = told.len();
            for _ in 0..dice.below(40) {
                let block = stream.next().expect("it goes on until we leave");
                assert_ne!(block.event, "reset");
                told.extend(block.is_event().then_some(block.id.unwrap()));
                cursor = block.id.unwrap_or(cursor);
            }
            // In the middle of a block too: what did not arrive whole did not arrive.
            for _ in 0..dice.below(200) {
                stream.byte();
            }
            mid += usize::from(told.len() > before);
        }
        done.store(true, Ordering::SeqCst);
    });
    let expected = ids(&history(homes[0], start));
    let mut stream = homes[0].listen("", Some(cursor));
    while cursor < *expected.last().unwrap() {
        let block = stream.next().unwrap();
        told.extend(block.is_event().then_some(block.id.unwrap()));
        cursor = block.id.unwrap_or(cursor);
    }
    assert!(mid >= 50, "only {mid} of 100 connections told anything");
    assert_eq!(told.len(), expected.len());
    assert_eq!(told, expected);
    eprintln!("100 disconnects, {} events, none missed and none twice", told.len());
}

#[test]
fn a_hundred_disconnects_under_load_on_sqlite() {
    let home = Home::new();
    let _server = home.up(&[]);
    resumes_through_a_hundred_disconnects(&[&home]);
}

#[test]
fn a_hundred_disconnects_under_load_between_two_servers_on_postgresql() {
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
    let (_first, _second) = (one.up(&[]), two.up(&[]));
    resumes_through_a_hundred_disconnects(&[&one, &two]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it tells how long it took; nothing depends on it")]
fn what_one_server_does_is_told_by_the_other_and_an_outage_loses_nothing() {
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
    let (_first, _second) = (one.up(&[]), two.up(&[]));
    let mut stream = two.listen("type=token_created", None);
    stream.next().unwrap();
    let mut took = Vec::new();
    for _ in 0..50 {
        let asked = Instant::now();
        let made = cause_event(&one);
        stream.until("it", |b| b.is_event() && b.json()["details"]["token_id"] == made["id"]);
        took.push(asked.elapsed());
    }
    took.sort();
    eprintln!("request at one server → told by the other: p50 {:?}, worst {:?}", took[25], took[49]);

    // The database goes away and comes back: the streams stay, and so does their place.
    team.postgres.tell("stop");
    eventually("it is not ready", || (two.http("GET", "/readyz", None).0 == 503).then_some(()));
    team.postgres.tell("start");
    for home in [&one, &two] {
        eventually("it is ready again", || (home.http("GET", "/readyz", None).0 == 200).then_some(()));
    }
    let mut wanted: VecDeque<Value> = (0..5).map(|_| cause_event(&one)).collect();
    while let Some(made) = wanted.pop_front() {
        let told = stream.until("what came after the outage", Block::is_event);
        assert_eq!(told.json()["details"]["token_id"], made["id"]);
    }
}
