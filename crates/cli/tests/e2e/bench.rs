//! `parhelia bench` measures and leaves nothing behind. How fast it must be is not for a test to say.

use crate::harness::Home;

#[test]
fn a_postgresql_that_is_given_is_left_as_it_was() {
    let team = crate::postgres::Team::new();
    let home = Home::new();
    let schemas = "SELECT COUNT(*) FROM pg_namespace";
    let before = team.rows(schemas);
    let rows = home.json(&["bench", "--quick", "--postgres", &team.url]);
    let figure =
        |row: &&serde_json::Value| row["name"].as_str().unwrap().contains("PostgreSQL (on, fsync off)");
    assert!(rows.as_array().unwrap().iter().any(|row| figure(&row)), "{rows}");
    assert_eq!(team.rows(schemas), before);
}

#[test]
fn every_figure_is_measured_beside_its_limit() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let rows = home.json(&["bench", "--quick", "--dir", dir.path().to_str().unwrap()]);
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 40, "{rows:?}");
    for row in rows {
        assert!(row["measured"].as_f64().unwrap() >= 0.0, "{row}");
        let target = row["target"].as_str().unwrap();
        assert_eq!(row["met"].is_boolean(), !target.is_empty(), "a target is met or not: {row}");
        if row["met"] == false {
            assert!(!row["reason"].as_str().unwrap_or_default().is_empty(), "a miss has its reason: {row}");
        }
        if target.ends_with('%') && target.starts_with(">=") {
            assert!(row["limit"].as_f64().unwrap() > 0.0, "a share needs its limit: {row}");
        }
    }
    let on_postgres: Vec<_> =
        rows.iter().filter(|r| r["name"].as_str().unwrap().contains("PostgreSQL")).collect();
    // Three of the store, four of sessions; those of a phase alone stand without a limit.
    let beside = on_postgres.iter().filter(|r| r["limit"].is_number()).count();
    assert_eq!(beside, 7, "{on_postgres:?}");
    let named = |name: &str| rows.iter().filter(|r| r["name"].as_str().unwrap().starts_with(name)).count();
    for database in ["SQLite (FULL)", "PostgreSQL"] {
        for sessions in ["1 session", "100 sessions"] {
            let name = format!("set phases, {sessions}, {database}");
            assert_eq!(named(&name), 4, "a rate, p50, p99 and how many together: {name} in {rows:?}");
        }
        for sessions in ["1 session", "5 sessions"] {
            let name = format!("phases with a process, {sessions}, {database}");
            assert_eq!(named(&name), 3, "{name} in {rows:?}");
        }
    }
    let target = |name: &str| rows.iter().find(|r| r["name"] == name).map(|r| r["target"].clone());
    assert_eq!(target("set phases, 1 session, SQLite (FULL)").unwrap(), ">= 2000 /s");
    assert_eq!(target("set phases, 100 sessions, SQLite (FULL)").unwrap(), ">= 10000 /s");
    assert_eq!(target("signal to running again, p99").unwrap(), "< 50 ms");
    assert_eq!(target("cancel to every process gone, p99").unwrap(), "< 1000 ms");
    assert_eq!(target("the same, children that ignore SIGTERM, grace 1 s, p99").unwrap(), "< 2000 ms");
    for name in ["session started to its first phase running", "server with 100 blocked sessions"] {
        assert!(named(name) > 0, "{name} in {rows:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it cleans up after itself");
}
