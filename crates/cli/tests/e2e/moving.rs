//! From the home's own SQLite file to a shared PostgreSQL, as docs/postgresql.md describes it, with sandboxes that
//! run all the while: nothing is ended, started twice or lost from sight.

use serde_json::Value;

use crate::harness::{Home, alive_with, eventually, text};
use crate::postgres::Team;

fn running(home: &Home, id: &str) -> bool {
    let views = home.all_seen();
    views.iter().any(|c| c["id"] == *id && c["state"] == "running")
}

#[test]
fn running_sandboxes_are_found_and_taken_over_by_the_new_database() {
    let team = Team::new();
    let home = Home::with_config("[health]\nheartbeat_interval_seconds = 1\n");
    let server = home.up(&[]);
    let script = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done";
    let ids: Vec<String> = ["one", "two", "three"]
        .iter()
        .map(|name| home.start(&["--name", name, "--label", "team=blue"], &["sh", "-c", script]))
        .collect();
    for id in &ids {
        home.until_seen(id, "state", "running");
    }
    let before = home.instance_id();
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);

    // The same home, told of the database by its environment.
    let mut up = home.command(&["up"]);
    let log = std::fs::File::create(home.path().join("up.log")).unwrap();
    let mut child = up.env("PARHELIA_DATABASE_URL", &team.url).stdout(log).spawn().unwrap();
    eventually("it serves from the database", || {
        home.try_http("GET", "/readyz", None).filter(|(status, _)| *status == 200)
    });
    assert_ne!(home.instance_id(), before, "the database is an instance of its own");
    home.reconcile();
    assert_eq!(home.all_seen(), Vec::<Value>::new());
    let listed = home.json(&["instances", "list"]);
    let former = listed.as_array().unwrap().iter().find(|i| i["id"] == *before).expect("it is listed");
    assert_eq!(former["foreign"].as_array().unwrap().len(), 3, "{former}");
    assert_eq!(home.told("foreign_detected").len(), 3);

    let said = home.ok(&["instances", "adopt", &before, "--yes"]);
    assert!(said.contains("3 containers"), "{said}");
    for id in &ids {
        assert!(running(&home, id), "under its old id");
        let found = home.seen(id);
        assert_eq!(found["labels"]["team"], "blue", "{found}");
        assert!(alive_with(&format!("PARHELIA_CONTAINER_ID={id}")) > 0);
        // It was never interrupted, is heard, and can be read.
        home.until_seen(id, "health", "healthy");
        let log = home.ok(&["containers", "logs", id]);
        assert!(log.starts_with("line 1\nline 2\n"), "{log}");
    }
    home.ok(&["containers", "terminate", &ids[0], "--yes"]);
    let ended = home.until_seen(&ids[0], "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "manual");
    assert!(running(&home, &ids[1]) && running(&home, &ids[2]));
    assert_eq!(home.json(&["containers", "orphans"]), serde_json::json!([]));
    home.ok(&["down"]);
    assert!(child.wait().unwrap().success());

    // A shell that lacks the variable starts nothing beside it: neither a server nor a command that needs one.
    for args in [["up"].as_slice(), &["containers"]] {
        let said = home.run(args);
        assert!(said.code != 0 && said.err.contains("set PARHELIA_DATABASE_URL"), "{said:?}");
    }
    assert_eq!(home.run(&["up"]).code, 2);
    let said = home.run(&["doctor"]);
    assert!(said.code == 1 && said.out.contains("works on a shared database"), "{said:?}");
    // The former file is left as it was: whoever wants that goes on from there.
    std::fs::remove_file(home.path().join("database.shared")).unwrap();
    let _server = home.up(&[]);
    assert_eq!(home.instance_id(), before);
    home.until_seen(&ids[0], "state", "terminated");
    assert!(running(&home, &ids[1]) && running(&home, &ids[2]));
}
