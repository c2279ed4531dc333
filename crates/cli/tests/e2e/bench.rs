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
    assert!(rows.len() >= 14, "{rows:?}");
    for row in rows {
        assert!(row["measured"].as_f64().unwrap() >= 0.0, "{row}");
        let target = row["target"].as_str().unwrap();
        assert_eq!(row["met"].is_boolean(), !target.is_empty(), "a target is met or not: {row}");
        if target.ends_with('%') && target.starts_with(">=") {
            assert!(row["limit"].as_f64().unwrap() > 0.0, "a share needs its limit: {row}");
        }
    }
    let on_postgres: Vec<_> =
        rows.iter().filter(|r| r["name"].as_str().unwrap().contains("PostgreSQL")).collect();
    assert!(on_postgres.len() == 3 && on_postgres.iter().all(|r| r["limit"].is_number()), "{on_postgres:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it cleans up after itself");
}
