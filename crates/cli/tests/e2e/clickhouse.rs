//! Sessions in ClickHouse: the seed's table, current and complete whatever is killed, and never in anybody's way.

use serde_json::{Value, json};

use crate::clickhouse_front::Front;
use crate::harness::{Home, eventually, stored_moment, text};
use crate::metrics::scraped;

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
    let _server = home.up(&[]);
    eventually("and again", || (count(&front, STATES) == 251).then_some(()));
    assert_eq!(count(&front, CHANGES), 502, "what is told is told once");
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
    assert_eq!(scraped(&home).get("clickhouse_rows", &[("table", "session_history")]), Some(10.0));
    let said = home.run(&["doctor", "-o", "json"]);
    assert!(said.out.contains("ClickHouse 2"), "{said:?}");
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
