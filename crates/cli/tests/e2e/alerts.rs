//! Alerts: what a receiver gets, that a failure is repeated and a refusal is not, and that neither a death of the
//! server nor of its receiver loses or doubles anything that the delivery's id would not show.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Home, eventually, text};
use crate::postgres::Team;
use crate::receiver::{Answer, Received, Receiver};

/// An `[[alerts]]` of the configuration.
fn alert(name: &str, url: &str, more: &str) -> String {
    format!("[[alerts]]\nname = '{name}'\nurl = '{url}'\n{more}\n")
}

const TOKENS: &str = "events = ['token_created']";

/// One event of the type `token_created`.
fn cause(home: &Home, subject: &str) {
    let request = json!({ "subject": subject, "role": "viewer" });
    let (status, made) = home.api("POST", "/api/v1/tokens", Some(request));
    assert_eq!(status, 201, "{made}");
}

/// Waits until each of so many alerts has its place: what happened before is not its business.
fn begun(home: &Home, alerts: i64) {
    let places = "SELECT COUNT(*) FROM readers WHERE name LIKE 'alert:%'";
    eventually("the alerts have begun", || (home.sqlite_count(places) == alerts).then_some(()));
}

fn shown(home: &Home, name: &str) -> Value {
    let (status, list) = home.api("GET", "/api/v1/alerts", None);
    assert_eq!(status, 200, "{list}");
    let all = list["alerts"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} is not in {list}")).clone()
}

/// Waits until an alert has this many `delivered` or `failed`, and nothing under way.
fn settled(home: &Home, name: &str, field: &str, count: usize) -> Value {
    eventually(&format!("{name} has {count} {field}"), || {
        Some(shown(home, name)).filter(|one| one["pending"] == 0 && one[field] == count)
    })
}

/// Whether an implementation that we did not write comes to the same signature.
fn is_signed(received: &Received, secret: &str) -> bool {
    let script = "import sys, hmac, hashlib\n\
        secret, at, signature = sys.argv[1:]\n\
        body = sys.stdin.buffer.read()\n\
        expected = hmac.new(secret.encode(), at.encode() + b'.' + body, hashlib.sha256).hexdigest()\n\
        sys.exit(0 if hmac.compare_digest('v1=' + expected, signature) else 1)";
    let headers = &received.headers;
    let mut python = Command::new("python3")
        .args(["-c", script, secret, &headers["parhelia-timestamp"], &headers["parhelia-signature"]])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(received.body.as_bytes()).unwrap();
    python.wait().unwrap().success()
}

/// The ids that told of each event.
fn ids_by_event(got: &[Received]) -> BTreeMap<i64, BTreeSet<String>> {
    let mut ids: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for one in got {
        ids.entry(one.event()).or_default().insert(one.delivery().to_owned());
    }
    ids
}

/// Every one of these events arrived, and each under one id that no other has.
fn each_arrived_under_one_id(events: &[Value], got: &[Received]) {
    let ids = ids_by_event(got);
    let told: BTreeSet<i64> = events.iter().map(|e| e["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.keys().copied().collect::<BTreeSet<_>>(), told);
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
    let different: BTreeSet<&String> = ids.values().flatten().collect();
    assert_eq!(different.len(), told.len());
}

#[test]
fn an_event_arrives_signed_and_in_the_form_that_was_asked_for() {
    let (ours, slack, worse) = (Receiver::polite(), Receiver::polite(), Receiver::polite());
    let config = [
        alert(
            "ours",
            &ours.url("/hook?key=in-the-address").replace("http://", "http://ann:in-the-address@"),
            &format!("{TOKENS}\nsecret = 'OURS_KEY'\ntimeout_seconds = 20"),
        ),
        alert("slack", "secret:SLACK_URL", &format!("{TOKENS}\nformat = 'slack'")),
        alert("worse", &worse.url("/"), "severity = 'error'"),
    ];
    let home = Home::with_config(&config.concat());
    std::fs::create_dir(home.path().join("secrets")).unwrap();
    std::fs::write(home.path().join("secrets/OURS_KEY"), "the-signing-key\n").unwrap();
    std::fs::write(home.path().join("secrets/SLACK_URL"), slack.url("/services/T0/B0/in-the-path")).unwrap();
    let server = home.up(&[]);
    begun(&home, 3);
    cause(&home, "ann & <bob>");
    ours.wait_for(1);
    slack.wait_for(1);
    settled(&home, "slack", "delivered", 1);

    let event = home.told("token_created").remove(0);
    let got = ours.got().remove(0);
    let body = got.json();
    assert_eq!((got.path.as_str(), &body["event"]), ("/hook?key=in-the-address", &event));
    assert_eq!((&body["type"], &body["severity"]), (&json!("token_created"), &json!("info")));
    assert_eq!((&body["id"], &body["message"]), (&event["id"], &event["message"]));
    assert_eq!((text(&body, "delivery"), text(&body, "alert")), (got.delivery(), "ours"));
    assert!(got.headers["authorization"].starts_with("Basic "));
    assert_eq!(got.headers["content-type"], "application/json");
    assert!(is_signed(&got, "the-signing-key"));
    assert!(!is_signed(&got, "another-key"));
    assert!(!is_signed(&Received { body: got.body.replace("ann", "eve"), ..got }, "the-signing-key"));

    let got = slack.got().remove(0);
    assert_eq!(got.path, "/services/T0/B0/in-the-path");
    assert!(!got.headers.contains_key("parhelia-signature"), "it has no secret to sign with");
    let body = got.json();
    assert!(text(&body, "text").contains("token_created: Token for ann &amp; &lt;bob&gt;"), "{body}");
    assert_eq!(body["attachments"][0]["fields"][0]["value"], "info");

    // About a container: the hint says where to look.
    home.configure(&alert("slack", "secret:SLACK_URL", "events = ['container_created']\nformat = 'slack'"));
    server.kill();
    let server = home.up(&[]);
    let id = home.start(&["--task", "t-9"], &["true"]);
    slack.wait_for(2);
    let attached = slack.got().remove(1).json()["attachments"][0].clone();
    assert!(text(&attached, "text").contains(&format!("`parhelia why {id}`")), "{attached}");
    assert!(attached["fields"].to_string().contains("t-9"), "{attached}");
    assert!(worse.got().is_empty(), "nothing of that severity has happened");

    // What is secret is nowhere but where it was put.
    server.kill();
    home.configure(&config.concat());
    let _server = home.up(&[]);
    let screens = home.ok(&["alerts", "list"]) + &home.json(&["alerts", "list"]).to_string();
    assert!(screens.contains("secret:SLACK_URL") && screens.contains("/hook"), "{screens}");
    let database = std::fs::read(home.path().join("parhelia.sqlite3")).unwrap();
    let log = std::fs::read(home.path().join("parhelia.sqlite3-wal")).unwrap_or_default();
    let kept = String::from_utf8_lossy(&[database, log].concat()).into_owned();
    for secret in ["in-the-address", "the-signing-key", "in-the-path"] {
        for place in [&screens, &kept, &home.log()] {
            assert!(!place.contains(secret), "{secret} is where it should not be");
        }
    }
}

#[test]
fn what_fails_is_repeated_what_is_refused_is_final_and_a_failure_is_told_to_the_others() {
    let weak = Receiver::with(|n, _| Answer::Status([500, 429, 503, 200][n.min(3)]));
    let strict = Receiver::with(|_, _| Answer::Status(400));
    let elsewhere = Receiver::polite();
    let target = elsewhere.url("/stolen");
    let moved = Receiver::with(move |_, _| Answer::Redirect(target.clone()));
    let deaf = Receiver::with(|n, _| if n == 0 { Answer::Silence } else { Answer::Status(204) });
    let pager = Receiver::polite();
    let quick = format!("{TOKENS}\nretry_seconds = [1, 1, 1]\n");
    let home = Home::with_config(
        &[
            alert("weak", &weak.url("/"), &quick),
            alert("strict", &strict.url("/"), &format!("{quick}severity = 'info'")),
            alert("moved", &moved.url("/"), &quick),
            alert("deaf", &deaf.url("/"), &format!("{quick}timeout_seconds = 4")),
            // Nobody listens there, and the alert is for failures as well: also for its own.
            alert(
                "gone",
                "http://127.0.0.1:9/",
                "severity = 'info'\nevents = ['token_created', 'alert_failed']\nretry_seconds = [1]",
            ),
            alert("pager", &pager.url("/"), "severity = 'error'"),
        ]
        .concat(),
    );
    let _server = home.up(&[]);
    begun(&home, 6);
    cause(&home, "ann");
    settled(&home, "weak", "delivered", 1);
    settled(&home, "strict", "failed", 1);
    settled(&home, "moved", "failed", 1);
    settled(&home, "deaf", "delivered", 1);

    let tries = weak.got();
    let attempts: Vec<&str> = tries.iter().map(|one| one.headers["parhelia-attempt"].as_str()).collect();
    assert_eq!(attempts, ["1", "2", "3", "4"]);
    assert!(tries.iter().all(|one| one.delivery() == tries[0].delivery() && one.body == tries[0].body));
    assert_eq!((strict.got().len(), moved.got().len(), deaf.got().len()), (1, 1, 2));
    assert!(elsewhere.got().is_empty(), "a redirect is not followed");

    // Three have failed for good. Those who asked for failures hear of them, and nobody of its own.
    let pages =
        || pager.got().iter().map(|one| text(&one.json()["event"]["details"], "alert").to_owned()).collect();
    let told: BTreeSet<String> = eventually("the pager has heard of all", || {
        Some(pages()).filter(|all: &BTreeSet<String>| all.len() == 3)
    });
    assert_eq!(told, ["gone", "moved", "strict"].map(str::to_owned).into());
    let gone = settled(&home, "gone", "failed", 3);
    // Its own failure and those of the others: but nothing is told of a failure that was about a failure.
    let failures = home.told("alert_failed");
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert_eq!(pager.got().len(), 3);
    let refused = failures.iter().find(|e| e["details"]["alert"] == "strict").unwrap();
    assert!(text(refused, "message").contains("the receiver answered 400 noted"), "{refused}");
    assert_eq!(refused["details"]["event_type"], "token_created");
    assert!(text(&gone, "last_error").contains("cannot be reached"), "{gone}");
    assert!(text(&shown(&home, "moved"), "last_error").contains("redirects are not followed"));
    assert!(home.ok(&["alerts", "list"]).contains("the receiver answered 400"));
}

#[test]
fn an_alert_can_be_tried_out_and_the_answer_is_shown() {
    let fine = Receiver::polite();
    let strict = Receiver::with(|_, _| Answer::Status(403));
    let home = Home::with_config(
        &[
            alert("fine", &fine.url("/"), "severity = 'error'\nsecret = 'KEY_OF_FINE'"),
            alert("strict", &strict.url("/"), "severity = 'error'\nformat = 'slack'"),
            alert("unsigned", &fine.url("/"), "severity = 'error'\nsecret = 'NOT_SET_ANYWHERE'"),
        ]
        .concat(),
    );
    let mut command = home.command(&["up"]);
    let mut server = command
        .env("KEY_OF_FINE", "from-the-environment")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the server is ready", || {
        home.try_http("GET", "/readyz", None).filter(|(status, _)| *status == 200)
    });

    let said = home.json(&["alerts", "test", "fine"]);
    assert_eq!((&said["ok"], &said["status"], &said["answer"]), (&json!(true), &json!(200), &json!("noted")));
    let got = fine.got().remove(0);
    assert_eq!((text(&got.json(), "type"), text(&said, "delivery")), ("test", got.delivery()));
    assert!(is_signed(&got, "from-the-environment"));
    let refused = home.run(&["alerts", "test", "strict"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.out.contains("not delivered") && refused.out.contains("403 noted"), "{refused:?}");
    assert!(refused.err.contains("the receiver answered 403"), "{refused:?}");
    let unsigned = home.run(&["alerts", "test", "unsigned"]);
    assert!(unsigned.code == 1 && unsigned.err.contains("NOT_SET_ANYWHERE is not known"), "{unsigned:?}");
    assert_eq!(home.run(&["alerts", "test", "nobody"]).code, 3);
    let name = "fine";
    let (status, said) = home.api("POST", &format!("/api/v1/alerts/{name}/test"), None);
    assert_eq!((status, &said["ok"]), (200, &json!(true)), "{said}");
    assert_eq!(
        (fine.got().len(), shown(&home, "fine")["delivered"].clone()),
        (2, json!(0)),
        "a test is no delivery"
    );
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_restart_delivers_what_waited_and_a_new_alert_begins_now() {
    let shut = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let closed = shut.clone();
    let moody = Receiver::with(move |_, _| {
        Answer::Status(if closed.load(std::sync::atomic::Ordering::SeqCst) { 503 } else { 200 })
    });
    let late = Receiver::polite();
    let moody_alert =
        alert("moody", &moody.url("/"), &format!("{TOKENS}\nretry_seconds = [1, 1, 1, 1, 1, 600]"));
    let home = Home::with_config(&moody_alert);
    let server = home.up(&[]);
    begun(&home, 1);
    cause(&home, "one");
    cause(&home, "two");
    // Both have been tried, and their second attempts are a second away.
    moody.wait_for(2);
    server.kill();
    shut.store(false, std::sync::atomic::Ordering::SeqCst);
    home.configure(&(moody_alert.clone() + &alert("late", &late.url("/"), TOKENS)));
    let server = home.up(&[]);
    begun(&home, 2);
    cause(&home, "three");
    settled(&home, "moody", "delivered", 3);
    each_arrived_under_one_id(&home.told("token_created"), &moody.got());
    late.wait_for(1);
    settled(&home, "late", "delivered", 1);
    assert_eq!(late.got().len(), 1);
    assert!(late.got()[0].body.contains("three"), "what was before it was configured is not its business");
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);

    // An alert that leaves the configuration and comes back is new.
    home.configure(&moody_alert);
    let server = home.up(&[]);
    cause(&home, "four");
    settled(&home, "moody", "delivered", 4);
    server.kill();
    home.configure(&(moody_alert + &alert("late", &late.url("/"), TOKENS)));
    let _server = home.up(&[]);
    begun(&home, 2);
    cause(&home, "five");
    late.wait_for(2);
    assert!(late.got()[1].body.contains("five"));
    settled(&home, "moody", "delivered", 5);
}

#[test]
fn killed_between_a_success_and_its_record_nothing_is_lost_and_the_id_stays() {
    let receiver = Receiver::polite();
    let home = Home::with_config(&alert("ops", &receiver.url("/"), TOKENS));
    let (mut repeated, mut round) = (0, 0);
    // Until it has happened: a death that came a moment too late proves nothing.
    while round < 12 || (repeated == 0 && round < 100) {
        let server = home.up(&[]);
        begun(&home, 1);
        let before = receiver.got().len();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..6 {
                    // The server may be gone by then.
                    let body = json!({ "subject": format!("{round}-{n}"), "role": "viewer" }).to_string();
                    let _ = home.try_http("POST", "/api/v1/tokens", Some(&body));
                }
            });
            // The moment that an answer has been written: its record is still to come.
            receiver.wait_for(before + 1 + round % 4);
            server.kill();
        });
        repeated += unrecorded(&home);
        round += 1;
    }
    let _server = home.up(&[]);
    let events = home.told("token_created");
    settled(&home, "ops", "delivered", events.len());
    assert!(events.len() >= 12);
    each_arrived_under_one_id(&events, &receiver.got());
    assert!(repeated > 0, "not one of the deaths came between an answer and its record");
    assert!(receiver.got().len() > events.len(), "so at least one must have come twice");
}

/// Attempts that were claimed and never recorded.
fn unrecorded(home: &Home) -> i64 {
    let count = "SELECT COUNT(*) FROM deliveries WHERE state = 'sending'";
    home.sqlite().query_row(count, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_receiver_that_never_answers_holds_up_nobody() {
    let (silent, lively) = (Receiver::with(|_, _| Answer::Silence), Receiver::polite());
    let home = Home::with_config(
        &[
            alert("silent", &silent.url("/"), &format!("{TOKENS}\ntimeout_seconds = 120")),
            alert("lively", &lively.url("/"), TOKENS),
        ]
        .concat(),
    );
    let server = home.up(&[]);
    begun(&home, 2);
    for n in 0..20 {
        cause(&home, &n.to_string());
    }
    lively.wait_for(20);
    settled(&home, "lively", "delivered", 20);
    silent.wait_for(4);
    assert_eq!(silent.most_open(), 4, "so many at once and no more");
    assert_eq!(shown(&home, "silent")["pending"], 20);
    // Work goes on, and a stop does not wait for it either.
    let id = home.start(&[], &["true"]);
    home.until_seen(&id, "state", "terminated");
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);
    each_arrived_under_one_id(&home_tokens(&home), &lively.got());
}

fn home_tokens(home: &Home) -> Vec<Value> {
    let db = home.sqlite();
    let mut ids = db.prepare("SELECT id FROM events WHERE event_type = 'token_created'").unwrap();
    let rows = ids.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    rows.map(|id| json!({ "id": id.unwrap() })).collect()
}

#[test]
fn two_servers_on_one_database_tell_each_event_once_whoever_leads() {
    let receiver = Receiver::polite();
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
    for home in [&one, &two] {
        let config = std::fs::read_to_string(home.path().join("parhelia.toml")).unwrap();
        home.configure(&(config + &alert("ops", &receiver.url("/"), TOKENS)));
    }
    let leads = |home: &Home| home.api("GET", "/api/v1/server", None).1["leads"] == true;
    let first = one.up(&[]);
    eventually("the first leads", || leads(&one).then_some(()));
    let _second = two.up(&[]);
    // The place of the alert is written down before anything is told of.
    eventually("the leader has begun", || {
        let places = team.postgres.sql(team.database(), "SELECT COUNT(*) FROM readers");
        (places.trim() == "1").then_some(())
    });
    for n in 0..10 {
        cause(if n % 2 == 0 { &one } else { &two }, &n.to_string());
    }
    // Either server tells what became of them.
    settled(&two, "ops", "delivered", 10);
    assert_eq!(receiver.got().len(), 10, "while nobody died, exactly once");
    // The leader dies in the middle of it, and the other goes on where it was.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20).for_each(|n| cause(&two, &format!("more-{n}"))));
        receiver.wait_for(13);
        first.kill();
    });
    eventually("the second leads", || leads(&two).then_some(()));
    eventually("all are delivered", || (shown(&two, "ops")["delivered"] == 30).then_some(()));
    each_arrived_under_one_id(&two.told("token_created"), &receiver.got());
}
