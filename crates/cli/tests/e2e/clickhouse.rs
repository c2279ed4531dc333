//! Sessions in ClickHouse: the seed's table, current and complete whatever is killed, and never in anybody's way.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::clickhouse_front::Front;
use crate::harness::{Home, PATIENCE, eventually, stored_moment, text};
use crate::metrics::scraped;
use crate::postgres::{Team, signal, until_leads};

/// Sessions that were there before, as their rows and events tell.
fn old_sessions(home: &Home, from: usize, count: usize) {
    let mut db = home.sqlite();
    let all = db.transaction().unwrap();
    for n in from..from + count {
        let (id, at) = (format!("sess-{n:0>12}"), stored_moment(n as i64 - 5000));
        all.execute(
            "INSERT INTO sessions (session_id, cascade_id, status, heartbeat_at, resumable, started_at, created_by, updated_at)
             VALUES (?1, 'old', 'completed', ?2, 1, ?2, 'test', ?2)",
            [&id, &at],
        )
        .unwrap();
        for (kind, old, new) in
            [("session_started", None, "starting"), ("session_completed", Some("starting"), "completed")]
        {
            all.execute(
                "INSERT INTO events (timestamp, event_type, session_id, old_value, new_value, message, details, source)
                 VALUES (?1, ?2, ?3, ?4, ?5, 'told', '{}', 'sessions')",
                rusqlite::params![at, kind, id, old, new],
            )
            .unwrap();
        }
    }
    all.commit().unwrap();
}

fn count(front: &Front, query: &str) -> u64 {
    let rows = front.try_rows("default", query).unwrap_or_default();
    rows.first().map_or(0, |row| row["n"].as_str().unwrap_or("0").parse().unwrap())
}

const STATES: &str = "SELECT toString(count()) AS n FROM session_state FINAL";
const CHANGES: &str = "SELECT toString(count()) AS n FROM session_history";

#[test]
fn what_was_there_before_is_shown_and_so_it_is_when_somebody_has_emptied_the_tables() {
    let front = Front::start();
    let home = Home::with_config(&front.config("batch_rows = 100\nflush_interval_ms = 10"));
    home.up(&[]).kill();
    old_sessions(&home, 0, 250);
    let server = home.up(&[]);
    eventually("all of them are shown", || (count(&front, STATES) == 250).then_some(()));
    eventually("and what happened to them", || (count(&front, CHANGES) == 500).then_some(()));
    let twice = front.rows("SELECT event_id FROM session_history GROUP BY event_id HAVING count() > 1");
    assert_eq!(twice, [] as [Value; 0]);
    // While the server runs.
    for table in ["session_state", "session_history"] {
        front.rows(&format!("DROP TABLE {table}"));
    }
    old_sessions(&home, 250, 1);
    home.ok(&["tokens", "create", "one", "--role", "viewer"]);
    eventually("everything is there again", || {
        (count(&front, STATES) == 251 && count(&front, CHANGES) == 502).then_some(())
    });
    // While it does not.
    server.kill();
    front.rows("TRUNCATE TABLE session_state");
    let server = home.up(&[]);
    eventually("and again", || (count(&front, STATES) == 251).then_some(()));
    assert_eq!(count(&front, CHANGES), 502, "what is told is told once");
    // By rows, so that the table remembers every token that it has seen.
    server.kill();
    front.rows("ALTER TABLE session_history DELETE WHERE 1 SETTINGS mutations_sync = 2");
    assert_eq!(count(&front, CHANGES), 0);
    let _server = home.up(&[]);
    eventually("what happened is told again", || (count(&front, CHANGES) == 502).then_some(()));
}

#[test]
fn while_it_is_away_nobody_waits_for_it_and_it_is_told_once() {
    let mut front = Front::absent();
    let home = Home::with_config(&front.config("timeout_seconds = 1\nheartbeat_seconds = 1"));
    let _server = home.up(&[]);
    let told = eventually("it is told", || home.told("projection_delayed").pop());
    assert!(text(&told, "message").contains("cannot be reached"), "{told}");
    old_sessions(&home, 0, 5);
    let id = home.start(&[], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let said = home.run(&["doctor", "-o", "json"]);
    assert!(said.code == 1 && said.out.contains("it catches up when it is back"), "{said:?}");
    let seen = scraped(&home);
    assert!(seen.get("clickhouse_failures", &[]).unwrap() >= 2.0);
    assert!(seen.get("clickhouse_lag_seconds", &[]).unwrap() > 0.0);
    front.come();
    eventually("it catches up", || (count(&front, STATES) == 5).then_some(()));
    eventually("and that is told", || home.told("projection_recovered").pop());
    assert_eq!(home.told("projection_delayed").len(), 1, "once, however often it was tried");
    eventually("nothing waits", || {
        (scraped(&home).get("clickhouse_lag_seconds", &[]) == Some(0.0)).then_some(())
    });
    // More when an answer came too late and its batch was sent again.
    assert!(scraped(&home).get("clickhouse_rows", &[("table", "session_history")]) >= Some(10.0));
    eventually("the doctor reaches it", || {
        home.run(&["doctor", "-o", "json"]).out.contains("ClickHouse 2").then_some(())
    });
    // Slower than we wait, and then not.
    front.goes_wrong(&json!({ "delay": 1.5 }));
    old_sessions(&home, 5, 1);
    home.ok(&["tokens", "create", "one", "--role", "viewer"]);
    eventually("that is told too", || (home.told("projection_delayed").len() == 2).then_some(()));
    front.goes_wrong(&json!({}));
    eventually("and that it is over", || (home.told("projection_recovered").len() == 2).then_some(()));
}

#[test]
fn the_password_may_be_a_secret_and_a_database_that_is_missing_is_made() {
    let front = Front::start();
    let config = format!(
        "[clickhouse]\nurl = '{}/'\nuser = 'ann'\npassword = 'secret:clickhouse'\ndatabase = 'fleet'\n",
        front.url()
    );
    let home = Home::with_config(&config);
    home.up(&[]).kill();
    old_sessions(&home, 0, 1);
    let _server = home.up(&[]);
    let told = eventually("it is told", || home.told("projection_delayed").pop());
    assert!(text(&told, "message").contains("the secret clickhouse is not known"), "{told}");
    let secrets = home.path().join("secrets");
    std::fs::create_dir_all(&secrets).unwrap();
    std::fs::write(secrets.join("clickhouse"), "wrong\n").unwrap();
    eventually("it is refused", || {
        home.run(&["doctor", "-o", "json"]).out.contains("Authentication failed").then_some(())
    });
    std::fs::write(secrets.join("clickhouse"), "s3cret\n").unwrap();
    let one =
        eventually("it is shown", || front.try_rows("fleet", "SELECT * FROM session_state FINAL")?.pop());
    assert_eq!((text(&one, "status"), text(&one, "cascade_id")), ("completed", "old"), "{one}");
    let shown = home.ok(&["config", "show"]);
    assert!(!shown.contains("s3cret") && shown.contains("(hidden)"), "{shown}");
    assert!(!home.log().contains("s3cret"), "{}", home.log());
}

fn begin(home: &Home, phases: &Value) -> String {
    let cascade = json!({ "cascade": { "cascade_id": "shown", "phases": phases } });
    let (status, session) = home.api("POST", "/api/v1/sessions", Some(cascade));
    assert_eq!(status, 201, "{session}");
    text(&session, "session_id").to_owned()
}

fn cancel(home: &Home, id: &str) {
    let (status, said) =
        home.api("POST", &format!("/api/v1/sessions/{id}/cancel"), Some(json!({ "reason": "enough" })));
    assert_eq!(status, 200, "{said}");
}

/// Every session as the API shows it, by id, reduced to what ClickHouse shows too; times in milliseconds.
fn as_we_show_them(home: &Home) -> BTreeMap<String, Value> {
    let (_, list) = home.api("GET", "/api/v1/sessions?all=true&limit=1000", None);
    let sessions = list["sessions"].as_array().unwrap().iter();
    sessions.map(|session| (text(session, "session_id").to_owned(), reduced(session))).collect()
}

fn reduced(session: &Value) -> Value {
    let mut kept = json!({});
    for field in [
        "cascade_id",
        "parent_session_id",
        "status",
        "current_phase",
        "depth",
        "blocked_type",
        "blocked_on",
        "blocked_description",
        "cancel_requested",
        "cancel_reason",
        "error_message",
        "error_phase",
        "last_checkpoint_id",
        "resumable",
    ] {
        kept[field] = session[field].clone();
    }
    for field in ["started_at", "completed_at", "cancelled_at", "blocked_timeout_at", "blocked_since"] {
        let at = session[field].as_str().map(|at| at.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        kept[field] = at.into();
    }
    kept
}

/// The same as ClickHouse shows it.
fn as_it_shows_them(front: &Front) -> BTreeMap<String, Value> {
    let times = ["started_at", "completed_at", "cancelled_at", "blocked_timeout_at"];
    let times = times.map(|name| format!("toString(toUnixTimestamp64Milli({name})) AS {name}")).join(", ");
    let query = format!(
        "SELECT session_id, cascade_id, parent_session_id, status, current_phase, depth, blocked_type, blocked_on, \
         blocked_description, cancel_requested, cancel_reason, error_message, error_phase, last_checkpoint_id, resumable, \
         metadata, {times} FROM session_state FINAL"
    );
    let rows = front.try_rows("default", &query).unwrap_or_default().into_iter();
    rows.map(|mut row| {
        let metadata: Value = serde_json::from_str(text(&row, "metadata")).unwrap();
        for field in ["started_at", "completed_at", "cancelled_at", "blocked_timeout_at"] {
            let at = row[field]
                .as_str()
                .map(|at| jiff::Timestamp::from_millisecond(at.parse().unwrap()).unwrap().to_string());
            row[field] = at.into();
        }
        row["blocked_since"] = metadata["blocked_since"].clone();
        (text(&row, "session_id").to_owned(), reduced(&row))
    })
    .collect()
}

/// What our own history tells of each session's status.
fn changes_told(home: &Home) -> Vec<(i64, String, String)> {
    let kinds = [
        "session_started",
        "session_running",
        "session_blocked",
        "session_unblocked",
        "session_completed",
        "session_failed",
        "session_cancelled",
        "session_orphaned",
        "session_resumed",
    ];
    let told = kinds.iter().flat_map(|kind| home.told(kind));
    let mut all: Vec<_> = told
        .filter(|event| event["old_value"] != event["new_value"])
        .map(|e| {
            (e["id"].as_i64().unwrap(), text(&e, "session_id").to_owned(), text(&e, "new_value").to_owned())
        })
        .collect();
    all.sort();
    all
}

/// The same as ClickHouse tells it, in the order of `updated_at`.
fn changes_shown(front: &Front) -> Vec<(i64, String, String)> {
    let query = "SELECT toString(event_id) AS event, session_id, status FROM session_history ORDER BY session_id, updated_at";
    let rows = front.try_rows("default", query).unwrap_or_default();
    let of = |row: &Value| {
        (
            text(row, "event").parse().unwrap(),
            text(row, "session_id").to_owned(),
            text(row, "status").to_owned(),
        )
    };
    let all: Vec<(i64, String, String)> = rows.iter().map(of).collect();
    assert!(all.windows(2).all(|two| two[0].1 != two[1].1 || two[0].0 < two[1].0), "out of order: {all:?}");
    let mut sorted = all;
    sorted.sort();
    sorted
}

/// Everything that we know is there, once, and in order.
fn agree(front: &Front, home: &Home) {
    let mut last = String::new();
    eventually("ClickHouse shows what we show", || {
        let (ours, theirs) = (as_we_show_them(home), as_it_shows_them(front));
        if ours == theirs {
            return Some(());
        }
        let differs = ours.iter().find(|(id, session)| theirs.get(*id) != Some(session));
        let now = format!(
            "{} and {} sessions; {differs:?} is {:?} there",
            ours.len(),
            theirs.len(),
            differs.map(|(id, _)| theirs.get(id))
        );
        if now != last {
            println!("{now}");
            last = now;
        }
        None
    });
    let told = eventually("and tells what we tell", || {
        Some(changes_told(home)).filter(|told| *told == changes_shown(front))
    });
    assert!(!told.is_empty());
    for (table, key) in
        [("session_state", "updated_at"), ("session_history", "updated_at"), ("session_history", "event_id")]
    {
        let query =
            format!("SELECT session_id, {key} FROM {table} GROUP BY session_id, {key} HAVING count() > 1");
        assert_eq!(front.rows(&query), [] as [Value; 0], "{table} has a {key} twice");
    }
}

fn ids(rows: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = rows.iter().map(|row| text(row, "session_id").to_owned()).collect();
    ids.sort();
    ids
}

/// The queries of the seed, as they stand there.
const LIVE: &str = "SELECT * FROM session_state FINAL
WHERE status IN ('running', 'blocked')
ORDER BY updated_at DESC;";
const ZOMBIES: &str = "SELECT *
FROM session_state FINAL
WHERE status IN ('running', 'blocked')
AND heartbeat_at + INTERVAL heartbeat_lease_seconds SECOND < now();";

#[test]
fn the_seeds_queries_give_the_answers_of_the_command_line() {
    let front = Front::start();
    let home = Home::with_config(&front.config("heartbeat_seconds = 1"));
    let server = home.up(&[]);
    let waits = begin(
        &home,
        &json!([
            { "name": "a", "set": { "x": 1 } },
            { "name": "go", "await": { "signal": "go", "description": "the green light" }, "timeout": 3600 },
            { "name": "b", "run": ["true"] },
        ]),
    );
    let busy = begin(&home, &json!([{ "name": "work", "run": ["sleep", "600"] }]));
    let broken = begin(&home, &json!([{ "name": "work", "run": ["false"] }]));
    let over = begin(&home, &json!([{ "name": "a", "set": { "x": 1 } }]));
    let ended = begin(&home, &json!([{ "name": "work", "run": ["sleep", "600"] }]));
    eventually("it runs", || {
        home.told("task_started").iter().any(|e| e["session_id"] == ended.as_str()).then_some(())
    });
    cancel(&home, &ended);
    let expected = BTreeMap::from([
        (&waits, "blocked"),
        (&busy, "running"),
        (&broken, "error"),
        (&over, "completed"),
        (&ended, "cancelled"),
    ]);
    eventually("each is where it should be", || {
        let shown = as_we_show_them(&home);
        expected
            .iter()
            .all(|(id, status)| shown.get(*id).is_some_and(|s| s["status"] == *status))
            .then_some(())
    });
    agree(&front, &home);

    let listed = home.json(&["sessions", "list", "--status", "running,blocked"]);
    assert_eq!(ids(&front.rows(LIVE)), ids(listed.as_array().unwrap()));
    let blocked = home.json(&["sessions", "list", "--status", "blocked"]);
    // The seed's second, with `blocked_since` instead of the heartbeat.
    let query = "SELECT session_id, cascade_id, blocked_type, blocked_on, blocked_description, \
         dateDiff('second', parseDateTime64BestEffort(JSONExtractString(metadata, 'blocked_since'), 3), now64(3)) AS seconds_waiting \
         FROM session_state FINAL WHERE status = 'blocked' ORDER BY seconds_waiting DESC";
    let shown = front.rows(query);
    assert_eq!((ids(&shown), shown.len()), (ids(blocked.as_array().unwrap()), 1));
    assert_eq!(
        (
            text(&shown[0], "blocked_type"),
            text(&shown[0], "blocked_on"),
            text(&shown[0], "blocked_description")
        ),
        ("signal", "go", "the green light")
    );
    let waiting = shown[0]["seconds_waiting"]
        .as_i64()
        .unwrap_or_else(|| text(&shown[0], "seconds_waiting").parse().unwrap());
    assert!((0..PATIENCE.as_secs() as i64).contains(&waiting), "{shown:?}");
    let zombies = || home.json(&["sessions", "cleanup", "--dry-run"]).as_array().unwrap().clone();
    assert_eq!((front.rows(ZOMBIES), zombies()), (vec![], vec![]));
    // Its heartbeat moves with its owner's, though nothing happens to it.
    let beat = || {
        front
            .rows(&format!(
                "SELECT toString(updated_at) AS at FROM session_state FINAL WHERE session_id = '{busy}'"
            ))
            .pop()
    };
    let before = beat();
    eventually("it is sent again", || beat().filter(|now| Some(now) != before.as_ref()));

    let (status, fired) = home.api("POST", "/api/v1/signals", Some(json!({ "name": "go" })));
    assert!(status < 300, "{fired}");
    eventually("it goes on", || as_we_show_them(&home)[&waits]["status"].eq("completed").then_some(()));
    agree(&front, &home);
    let history = front
        .rows(&format!("SELECT * FROM session_history WHERE session_id = '{waits}' ORDER BY updated_at ASC"));
    let statuses: Vec<&str> = history.iter().map(|row| text(row, "status")).collect();
    assert_eq!(statuses, ["starting", "blocked", "running", "completed"]);
    let blocked = &history[1];
    assert_eq!(
        (text(blocked, "blocked_on"), text(blocked, "event_type")),
        ("go", "session_blocked"),
        "{blocked}"
    );
    assert_eq!(text(&history[2], "event_type"), "session_unblocked");
    assert!(
        history.iter().all(|row| row["completed_at"].is_null() == (row["status"] != "completed")),
        "{history:?}"
    );

    let runs = changes_shown(&front).into_iter().filter(|(_, id, _)| *id == busy).map(|(.., status)| status);
    assert_eq!(runs.collect::<Vec<_>>(), ["starting", "running"]);

    // Nobody beats for them any more: what is left running is a zombie when the lease is over, and no longer when
    // somebody goes on with it.
    server.kill();
    wait_out_the_lease("the zombie is seen", || (ids(&front.rows(ZOMBIES)) == [busy.clone()]).then_some(()));
    let _server = home.up(&[]);
    eventually("it is none", || front.rows(ZOMBIES).is_empty().then_some(()));
    assert_eq!(zombies(), [] as [Value; 0]);
}

/// A lease of 60 s, and what a loaded machine takes besides.
fn wait_out_the_lease(what: &str, mut condition: impl FnMut() -> Option<()>) {
    for _ in 0..3 {
        let seen =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually(what, &mut condition)));
        if seen.is_ok() {
            return;
        }
    }
    panic!("waited in vain: {what}");
}

#[test]
fn whoever_is_killed_or_slow_or_loses_answers_nothing_is_missing_and_nothing_is_there_twice() {
    let mut front = Front::start();
    let home = Home::with_config(
        &front.config("batch_rows = 20\nflush_interval_ms = 50\nheartbeat_seconds = 1\ntimeout_seconds = 2"),
    );
    let mut server = home.up(&[]);
    let busy = |n: usize| {
        json!([
            { "name": "a", "set": { "n": n } },
            { "name": "b", "await": { "signal": format!("s{n}") } },
            { "name": "c", "run": ["true"] },
            { "name": "d", "set": { "n": n } },
        ])
    };
    for round in 0..6 {
        let names = round * 10..round * 10 + 10;
        let begun: Vec<String> = names.clone().map(|n| begin(&home, &busy(n))).collect();
        match round {
            0 => front.goes_wrong(&json!({ "lose": 3 })),
            1 => front.kill(),
            2 => {
                server.kill();
                server = home.up(&[]);
            }
            3 => front.goes_wrong(&json!({ "delay": 0.5 })),
            4 => front.goes_wrong(&json!({ "refuse": true })),
            _ => {
                front.goes_wrong(&json!({ "lose": 1, "delay": 0.1 }));
                front.kill();
                server.kill();
                server = home.up(&[]);
            }
        }
        for n in names {
            let (status, fired) =
                home.api("POST", "/api/v1/signals", Some(json!({ "name": format!("s{n}") })));
            assert!(status < 300, "{fired}");
        }
        for id in begun.iter().step_by(3) {
            let (status, said) = home.api(
                "POST",
                &format!("/api/v1/sessions/{id}/cancel"),
                Some(json!({ "reason": "enough" })),
            );
            // It may have completed meanwhile.
            assert!([200, 409].contains(&status), "{said}");
        }
        match round {
            1 | 5 => front.come(),
            4 => {
                eventually("it is told", || home.told("projection_delayed").pop());
                front.goes_wrong(&json!({}));
            }
            _ => {}
        }
    }
    let over = |s: &Value| matches!(text(s, "status"), "completed" | "cancelled");
    eventually("all are over", || as_we_show_them(&home).values().all(over).then_some(()));
    agree(&front, &home);
    assert_eq!(as_we_show_them(&home).len(), 60);
    drop(server);
}

#[test]
fn what_retention_has_deleted_is_not_waited_for() {
    let mut front = Front::start();
    let home = Home::with_config(&front.config("heartbeat_seconds = 1"));
    let server = home.up(&[]);
    begin(&home, &json!([{ "name": "a", "set": { "x": 1 } }]));
    agree(&front, &home);
    let told = changes_shown(&front).len();
    front.kill();
    server.kill();
    old_sessions(&home, 0, 5);
    home.sqlite().execute("DELETE FROM events", []).unwrap();
    let _server = home.up(&[]);
    front.come();
    eventually("all are shown", || (as_it_shows_them(&front) == as_we_show_them(&home)).then_some(()));
    assert_eq!((as_we_show_them(&home).len(), changes_shown(&front).len()), (6, told));
    assert!(home.log().contains("events were deleted before ClickHouse had them"), "{}", home.log());
    // What happens from now on is told again.
    begin(&home, &json!([{ "name": "a", "set": { "x": 1 } }]));
    eventually("it goes on", || (changes_shown(&front).len() == 2 * told).then_some(()));
}

#[test]
fn whoever_leads_shows_the_sessions_of_all_servers_and_a_leader_that_wakes_up_spoils_nothing() {
    let front = Front::start();
    let team = Team::new();
    let config =
        format!("{}{}", team.configuration(), front.config("flush_interval_ms = 10\nheartbeat_seconds = 1"));
    let (one, two) = (Home::with_config(&config), Home::with_config(&config));
    let mut first = one.up(&[]);
    until_leads(&one);
    let _second = two.up(&[]);
    let phases = |name: &str| json!([{ "name": "a", "await": { "signal": name } }, { "name": "b", "set": { "x": 1 } }]);
    for home in [&one, &two] {
        (0..5).for_each(|_| drop(begin(home, &phases("go"))));
    }
    agree(&front, &two);
    // In the middle of whatever it sends.
    let kept = begin(&one, &phases("later"));
    signal(&mut first, rustix::process::Signal::STOP);
    until_leads(&two);
    let (status, fired) = two.api("POST", "/api/v1/signals", Some(json!({ "name": "go" })));
    assert!(status < 300, "{fired}");
    let own = begin(&two, &phases("own"));
    cancel(&two, &own);
    eventually("it is over", || as_we_show_them(&two)[&own]["status"].eq("cancelled").then_some(()));
    signal(&mut first, rustix::process::Signal::CONT);
    cancel(&two, &kept);
    eventually("all are over", || {
        let over = |s: &Value| matches!(text(s, "status"), "completed" | "cancelled");
        as_we_show_them(&two).values().all(over).then_some(())
    });
    agree(&front, &two);
    assert_eq!(as_we_show_them(&two).len(), 12);
}
