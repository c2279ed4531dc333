//! `parhelia bench` measures and leaves nothing behind. How fast it must be is not for a test to say.

use crate::harness::Home;

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
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it cleans up after itself");
}
