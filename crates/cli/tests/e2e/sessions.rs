//! Sessions through every door: seen, found by any of their names, read, ended with receipts, continued, explained.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, text};

/// Starts a cascade and gives its session's id.
pub(crate) fn begin(home: &Home, cascade: Value) -> String {
    begin_as(home, json!({ "cascade": cascade }))
}

pub(crate) fn begin_as(home: &Home, mut request: Value) -> String {
    request["env"] = json!({ "PATH": std::env::var("PATH").unwrap() });
    let (status, session) = home.api("POST", "/api/v1/sessions", Some(request));
    assert_eq!(status, 201, "{session}");
    text(&session, "session_id").to_owned()
}

pub(crate) fn session(home: &Home, id: &str) -> Value {
    let (status, detail) = home.api("GET", &format!("/api/v1/sessions/{id}"), None);
    assert_eq!(status, 200, "{id}: {detail}");
    detail
}

/// Waits until the API shows `status`.
pub(crate) fn until_session(home: &Home, id: &str, status: &str) -> Value {
    eventually(&format!("session {id} is {status}"), || {
        let detail = session(home, id);
        let over = ["completed", "error", "cancelled"].contains(&text(&detail, "status"));
        assert!(!over || detail["status"] == status, "{id} is over otherwise: {detail}");
        Some(detail).filter(|detail| detail["status"] == status)
    })
}

fn phase<'a>(detail: &'a Value, name: &str) -> &'a Value {
    detail["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name).unwrap()
}

fn told_of(home: &Home, id: &str) -> Vec<String> {
    let events = home.json(&["events", "list", "--session", id, "--limit", "1000"]);
    events.as_array().unwrap().iter().map(|event| text(event, "event_type").to_owned()).collect()
}

#[test]
fn a_session_is_found_by_its_id_a_prefix_and_its_name_and_shows_what_it_did() {
    let home = Home::new();
    let _server = home.up(&[]);
    assert!(home.run(&["sessions"]).err.contains("parhelia run"));
    let cascade = json!({
        "cascade_id": "release",
        "inputs": {"version": {"type": "string", "default": "1.2"}},
        "phases": [
            {"name": "build", "run": "echo built $VERSION", "env": {"VERSION": "{{ inputs.version }}"}},
            {"name": "test", "tasks": [{"id": "unit", "run": "echo unit"}, {"id": "lint", "run": ["echo", "lint"]}]},
            {"name": "skipped", "run": "exit 3", "when": "false"},
            {"name": "sum", "set": {"all": "{{ inputs.version }}!"}},
        ],
        "outputs": {"all": "{{ outputs.sum.all }}"},
    });
    let id = begin_as(&home, json!({ "cascade": cascade, "name": "nightly" }));
    let done = until_session(&home, &id, "completed");
    assert_eq!((text(&done, "name"), text(&done, "cascade_id")), ("nightly", "release"));
    assert_eq!(done["progress"]["phases_done"], 4, "{done}");
    assert_eq!((&done["progress"]["tasks_done"], &done["progress"]["tasks"]), (&json!(3), &json!(3)));
    assert_eq!(phase(&done, "skipped")["row"]["status"], "skipped");
    assert_eq!(phase(&done, "test")["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(done["waiting"], json!([]), "{done}");
    let prefix = &id[..id.len() - 2];
    for given in [id.as_str(), prefix, prefix.trim_start_matches("sess-"), "nightly"] {
        assert_eq!(text(&session(&home, given), "session_id"), id, "{given}");
    }
    let screen = home.ok(&["sessions", "show", "nightly"]);
    for part in [&format!("Session: {id}"), "completed", "build", "unit", "lint", "skipped", "Checkpoint:"] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    let tree = home.ok(&["sessions", "tree", "nightly"]);
    assert!(
        tree.starts_with(&format!("{id} release nightly completed")) && tree.contains("└─ sum"),
        "{tree}"
    );
    assert_eq!(home.ok(&["sessions", "list", "--status", "completed", "-o", "name"]).trim(), id);
    assert_eq!(home.ok(&["sessions", "-q", "--cascade", "release"]).trim(), id);
    assert_eq!(home.ok(&["sessions", "-q", "--status", "running,blocked"]), "");
    let listed = home.ok(&["sessions", "list"]);
    assert!(
        listed.contains("4/4 (3/3 tasks)") && listed.contains("Total: 1 session | Completed: 1"),
        "{listed}"
    );
    let missing = home.run(&["sessions", "show", "nobody"]);
    assert!(missing.code == 3 && missing.err.contains("sessions list --all"), "{missing:?}");

    let (status, tasks) = home.api("GET", &format!("/api/v1/sessions/{id}/tasks?phase=test&limit=1"), None);
    assert_eq!((status, text(&tasks["tasks"][0], "key"), &tasks["next"]), (200, "unit", &json!(0)));
    let (_, tasks) = home.api("GET", &format!("/api/v1/sessions/{id}/tasks?phase=test&after=0"), None);
    assert_eq!((text(&tasks["tasks"][0], "key"), &tasks["next"]), ("lint", &Value::Null));
    let (status, problem) = home.api("GET", &format!("/api/v1/sessions/{id}/tasks"), None);
    assert!(status == 422 && text(&problem, "fix").contains("build, test"), "{problem}");
    let (status, problem) = home.api("GET", &format!("/api/v1/sessions/{id}/tasks?phase=x"), None);
    assert!(status == 422 && text(&problem, "fix").contains("build, test, skipped, sum"), "{problem}");
    let (_, checkpoints) = home.api("GET", &format!("/api/v1/sessions/{id}/checkpoints"), None);
    let all = checkpoints["checkpoints"].as_array().unwrap();
    assert!(all.iter().any(|one| one["id"] == done["last_checkpoint_id"]), "{checkpoints}");
    assert_eq!(all.len(), 7, "of each task and each phase: {checkpoints}");
    let (_, tree) = home.api("GET", &format!("/api/v1/sessions/{id}/tree"), None);
    assert_eq!((&tree["session_id"], &tree["below"]), (&json!(id), &json!([])));

    let logs = home.run(&["sessions", "logs", "nightly"]);
    let mut lines: Vec<&str> = logs.out.lines().collect();
    assert_eq!(lines.remove(0), "built 1.2", "{logs:?}");
    lines.sort_unstable();
    assert_eq!(lines, ["lint", "unit"], "{logs:?}");
    assert!(logs.err.contains("==> test/unit (attempt 1) <=="), "{logs:?}");
    assert_eq!(home.ok(&["sessions", "logs", &id, "--task", "test/lint", "-f"]), "lint\n");
    assert_eq!(home.run(&["sessions", "logs", &id, "--task", "none"]).code, 3);
    let told = told_of(&home, "nightly");
    for kind in [
        "session_started",
        "phase_started",
        "phase_completed",
        "phase_skipped",
        "task_started",
        "task_completed",
        "session_completed",
    ] {
        assert!(told.iter().any(|one| one == kind), "{kind} in {told:?}");
    }
    assert!(home.ok(&["why", "nightly"]).contains("It is done"));
}

#[test]
fn a_cancel_goes_down_the_tree_and_each_receipt_is_shown() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mark = format!("SESSION_MARK={}", home.path().display());
    let sleeper = json!({"run": "exec sleep 600", "env": {"SESSION_MARK": home.path()}});
    let with = |mut phase: Value, more: Value| {
        phase.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        phase
    };
    let below = json!({"cascade_id": "below", "phases": [with(sleeper.clone(), json!({"name": "deep"}))]});
    let id = begin_as(
        &home,
        json!({"name": "tree", "cascade": {
            "cascade_id": "above",
            "phases": [
                with(sleeper, json!({"name": "here", "needs": []})),
                {"name": "sub", "cascade": {"definition": below}, "needs": []},
                {"name": "wait", "await": {"signal": "never"}, "needs": []},
            ],
        }}),
    );
    eventually("both sleep", || (alive_with(&mark) >= 2).then_some(()));
    let tree = eventually("the tree is whole", || {
        let tree = home.api("GET", &format!("/api/v1/sessions/{id}/tree"), None).1;
        (!tree["below"].as_array().unwrap().is_empty()).then_some(tree)
    });
    let child = text(&tree["below"][0], "session_id").to_owned();
    assert!(home.ok(&["sessions", "tree", "tree"]).contains(&child));
    assert_eq!(home.ok(&["sessions", "-q", "--parent", "tree"]).trim(), child);
    let said = home.ok(&["sessions", "cancel", "tree", "--reason", "it is off", "--grace", "5s", "--wait"]);
    assert!(said.contains("everything of it is gone"), "{said}");
    assert_eq!(alive_with(&mark), 0, "cancelled is only said when everything is gone");
    for (id, by) in [(&id, "local"), (&child, "")] {
        let over = session(&home, id);
        assert_eq!(text(&over, "status"), "cancelled", "{over}");
        assert!(over["cancelled_at"].is_string() && over["cancel_seen_at"].is_string(), "{over}");
        assert!(text(&over, "cancel_requested_by").contains(by), "{over}");
    }
    let screen = home.ok(&["sessions", "show", &id]);
    for part in ["Requested:", "by local (it is off)", "Grace:      5s", "Seen:", "Gone:"] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    assert!(!screen.contains("not yet"), "{screen}");
    let again = home.ok(&["sessions", "cancel", "--force", &id, &child]);
    assert_eq!(again.matches("was already over (cancelled)").count(), 2, "{again}");
    assert_eq!(home.run(&["sessions", "cancel", "nobody"]).code, 3);
    let told = told_of(&home, &id);
    for kind in ["session_cancel_requested", "session_cancelled"] {
        assert!(told.iter().any(|one| one == kind), "{kind} in {told:?}");
    }
    assert!(home.ok(&["why", &id]).contains("It was cancelled by local"));
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn a_failed_session_goes_on_as_a_new_one_that_repeats_nothing_that_is_done() {
    let home = Home::new();
    let _server = home.up(&[]);
    let (ran, ready) = (home.path().join("ran"), home.path().join("ready"));
    let cascade = json!({"cascade_id": "twice", "phases": [
        {"name": "once", "run": format!("echo once >> {}", ran.display())},
        {"name": "picky", "run": format!("echo picky; test -e {}", ready.display()), "retry": {"max": 1, "base_seconds": 0.01}},
        {"name": "end", "set": {"x": 1}},
    ]});
    let id = begin_as(&home, json!({"cascade": cascade, "name": "twice"}));
    let watched = home.run(&["sessions", "watch", &id]);
    assert_eq!(watched.code, 5, "{watched:?}");
    assert!(
        watched.out.contains("Phase picky failed") && watched.err.contains("sessions resume"),
        "{watched:?}"
    );
    let failed = until_session(&home, &id, "error");
    assert_eq!(text(&failed, "error_phase"), "picky", "{failed}");
    assert_eq!(phase(&failed, "picky")["tasks"][0]["attempts"].as_array().unwrap().len(), 2, "{failed}");
    let told = told_of(&home, &id);
    for kind in ["task_retried", "task_failed", "phase_failed", "session_failed"] {
        assert!(told.iter().any(|one| one == kind), "{kind} in {told:?}");
    }
    let why = home.ok(&["why", &id]);
    assert!(why.contains("It failed") && why.contains(&format!("parhelia sessions resume {id}")), "{why}");
    assert_eq!(home.ok(&["sessions", "logs", &id, "--task", "picky", "--attempt", "2"]), "picky\n");
    std::fs::write(&ready, "").unwrap();
    let next = home.ok(&["sessions", "resume", &id, "-o", "name"]).trim().to_owned();
    assert_ne!(next, id);
    let done = until_session(&home, &next, "completed");
    assert_eq!((text(&done, "origin_id"), lines(&ran)), (id.as_str(), 1), "{done}");
    // Each names the other: what was done before has its output there.
    assert!(home.ok(&["sessions", "show", &id]).contains(&format!("Continued by: {next}")));
    assert!(home.ok(&["sessions", "show", &next]).contains(&format!("Continues:    {id}")));
    let said = home.run(&["sessions", "logs", &next, "--task", "once"]);
    assert!(said.err.contains(&format!("parhelia sessions logs {id} --task once")), "{said:?}");
    let again = home.json(&["sessions", "resume", &next, "--from", "once"]);
    assert_eq!(text(&again, "origin_phase"), "once");
    let third = text(&again, "session_id").to_owned();
    let watched = home.run(&["sessions", "watch", &third, "-o", "jsonl"]);
    assert_eq!((watched.code, lines(&ran)), (0, 2), "{watched:?}");
    assert!(watched.out.lines().all(|line| line.contains(&third)), "{watched:?}");
    let (status, problem) = home.api("POST", &format!("/api/v1/sessions/{next}/resume"), None);
    assert!(status == 409 && text(&problem, "fix").contains("--from PHASE"), "{problem}");
}

#[test]
fn an_orphan_waits_for_somebody_and_nobody_has_to_look_for_the_others() {
    let home = Home::new();
    let server = home.up(&[]);
    let waiting = json!({"cascade_id": "waiting", "phases": [
        {"name": "ask", "await": {"approval": "go?"}},
        {"name": "then", "run": ["true"]},
    ]});
    let alone = begin_as(&home, json!({"cascade": waiting, "auto_resume": false, "name": "alone"}));
    let other = begin_as(&home, json!({"cascade": waiting, "name": "other"}));
    for id in [&alone, &other] {
        let blocked = until_session(&home, id, "blocked");
        assert!(blocked["owner_alive"].as_bool().unwrap(), "{blocked}");
    }
    server.kill();
    let _server = home.up(&[]);
    until_session(&home, &alone, "orphaned");
    until_session(&home, &other, "blocked");
    eventually("the other one has an owner again", || {
        session(&home, &other)["owner_alive"].as_bool().filter(|alive| *alive)
    });
    assert_eq!(home.ok(&["sessions", "-q", "--status", "orphaned"]).trim(), alone);
    let why = home.ok(&["why", "alone"]);
    assert!(why.contains(&format!("parhelia sessions resume {alone}")), "{why}");
    let said = home.run(&["sessions", "cleanup", "--dry-run"]);
    assert!(said.code == 0 && said.err.contains("nothing to clean up"), "{said:?}");
    let (status, report) = home.api("POST", "/api/v1/sessions/cleanup", None);
    assert_eq!((status, &report["zombies"]), (200, &json!([])));
    let said = home.run(&["sessions", "resume", "alone"]);
    assert!(said.code == 0 && said.out.contains("goes on"), "{said:?}");
    until_session(&home, &alone, "blocked");
    home.ok(&["inbox", "approve", "alone", "other"]);
    for id in [&alone, &other] {
        until_session(&home, id, "completed");
    }
    let told = told_of(&home, &alone);
    for kind in ["session_orphaned", "session_resumed", "session_unblocked"] {
        assert!(told.iter().any(|one| one == kind), "{kind} in {told:?}");
    }
}

#[test]
fn a_level_of_thousands_is_counted_and_paged_and_not_listed_whole() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mut tasks = vec![json!({"id": "first", "run": "exec sleep 600"})];
    tasks.extend((1..3000).map(|n| json!({"id": format!("t{n}"), "run": ["true"]})));
    let id = begin(
        &home,
        json!({"cascade_id": "wide", "workers": {"count": 1}, "phases": [{"name": "level", "tasks": tasks}]}),
    );
    let detail = eventually("the first one runs", || {
        Some(session(&home, &id)).filter(|detail| detail["progress"]["tasks_running"] == 1)
    });
    let level = phase(&detail, "level");
    assert_eq!(level["tasks"].as_array().unwrap().len(), 50);
    assert_eq!((text(&level["tasks"][0], "key"), &level["tasks_left_out"]), ("first", &json!(2950)));
    assert_eq!(level["tasks_by_state"], json!({"running": 1, "pending": 2999}), "{level}");
    assert_eq!(detail["progress"]["tasks"], 3000);
    let why = home.ok(&["why", &id]);
    assert!(
        why.contains("1 of 3000 tasks at work (first") && why.contains("2999 wait for their turn"),
        "{why}"
    );
    let path = format!("/api/v1/sessions/{id}/tasks?limit=1000");
    let (mut seen, mut after) = (0, String::new());
    loop {
        let (_, page) = home.api("GET", &format!("{path}{after}"), None);
        seen += page["tasks"].as_array().unwrap().len();
        match page["next"].as_i64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 3000);
    let task = text(&level["tasks"][0], "id").to_owned();
    let why = home.ok(&["why", &task]);
    assert!(why.contains("Attempt 1 is running") && why.contains("first of phase level"), "{why}");
    home.ok(&["sessions", "cancel", &id, "--force", "--wait"]);
    assert!(home.ok(&["why", &id]).contains("It was cancelled"));
}

#[test]
fn what_the_tasks_of_workers_wrote_is_read_like_any_other() {
    let home = Home::new();
    let _server = home.up(&[]);
    let tasks = json!([
        {"id": "one", "run": "echo from one; echo and more"},
        {"id": "two", "run": "echo from two; exit 3"},
    ]);
    let cascade = json!({
        "cascade_id": "crew", "workers": {"lifetime": "session", "count": 1}, "phases": [{"name": "level", "tasks": tasks}],
    });
    let id = begin_as(&home, json!({"cascade": cascade, "name": "crew"}));
    let failed = until_session(&home, &id, "error");
    assert!(text(&failed, "error_message").contains("two"), "{failed}");
    assert_eq!(home.ok(&["sessions", "logs", "crew", "--task", "one"]), "from one\nand more\n");
    assert_eq!(home.ok(&["sessions", "logs", "crew", "--task", "two", "-f"]), "from two\n");
    assert_eq!(home.ok(&["sessions", "logs", "crew", "--task", "one", "--tail", "1"]), "and more\n");
    let task = text(&phase(&failed, "level")["tasks"][0], "id").to_owned();
    let attempt = 1;
    let (status, said) = home.api("GET", &format!("/api/v1/tasks/{task}/attempts/{attempt}/output"), None);
    assert_eq!((status, text(&said, "output")), (200, "from one\nand more\n"));
    let attempt = 9;
    let (status, problem) = home.api("GET", &format!("/api/v1/tasks/{task}/attempts/{attempt}/output"), None);
    assert!(status == 404 && text(&problem, "fix").contains("sessions show"), "{problem}");
}

#[test]
fn a_sensor_that_is_too_late_leaves_no_check_behind() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mark = home.mark();
    let id = begin(
        &home,
        json!({ "cascade_id": "late", "phases": [
            { "name": "look", "timeout": 5, "env": { &mark: "1" },
              "await": { "sensor": { "command": { "run": "sleep 1000" } }, "on_timeout": "continue" } },
            { "name": "after", "run": ["true"] },
        ]}),
    );
    eventually("its check runs", || (alive_with(&format!("{mark}=1")) > 0).then_some(()));
    let detail = until_session(&home, &id, "completed");
    assert_eq!(alive_with(&format!("{mark}=1")), 0);
    assert_eq!(phase(&detail, "look")["row"]["outputs"]["timed_out"], true, "{detail}");
}

#[test]
fn what_a_verification_wrote_is_read_beside_what_it_verified() {
    let home = Home::new();
    let _server = home.up(&[]);
    let checked =
        json!({"name": "made", "run": "echo made", "verify": "echo it is crooked; exit 9", "retry": 0});
    let id = begin_as(&home, json!({"cascade": {"cascade_id": "checked", "phases": [checked]}, "name": "v"}));
    let failed = until_session(&home, &id, "error");
    let logs = home.run(&["sessions", "logs", "v", "--task", "made"]);
    assert_eq!(logs.out, "made\nit is crooked\n", "{logs:?}");
    assert!(logs.err.contains("==> made (verify) (attempt 1) <=="), "{logs:?}");
    let attempt = &phase(&failed, "made")["tasks"][0]["attempts"][0];
    let screen = home.ok(&["sessions", "show", "v"]);
    assert!(
        screen.contains("its verification failed: it exited with code 9")
            && screen.contains(&format!("verified in {}", text(attempt, "verify_container_id")))
            && !screen.contains("exit 9"),
        "{screen}"
    );
    // A worker tells what it saw of a verification that failed.
    let crew = json!({"cascade_id": "crew", "workers": {"lifetime": "session", "count": 1}, "phases": [
        {"name": "level", "tasks": [{"id": "one", "run": "echo made", "verify": "echo it is crooked; exit 9"}]},
    ]});
    let id = begin_as(&home, json!({"cascade": crew, "name": "w"}));
    until_session(&home, &id, "error");
    assert_eq!(home.ok(&["sessions", "logs", "w", "--task", "one"]), "made\n(verify)\nit is crooked\n");
}

#[test]
fn in_a_pipe_the_list_tells_changes_alone() {
    let home = Home::new();
    let _server = home.up(&[]);
    let done = begin(&home, json!({"cascade_id": "done", "phases": [{"name": "a", "run": ["true"]}]}));
    until_session(&home, &done, "completed");
    // Many looks at what does not change any more.
    let said = home.ok(&["sessions", "watch", "--interval", "100ms", "--count", "5"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&done) && said.contains("completed"), "{said}");
    assert_eq!(home.run(&["sessions", "watch", &done, "--count", "5"]).code, 2);

    let gate = json!({"cascade_id": "gate", "phases": [{"name": "gate", "await": {"approval": "go"}}]});
    let id = begin(&home, gate);
    until_session(&home, &id, "blocked");
    let mut watching =
        home.command(&["sessions", "-w", "-o", "json"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watching.stdout.take().unwrap()));
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!((text(&next(), "status"), text(&next(), "status")), ("blocked", "completed"));
    home.ok(&["inbox", "approve", &id]);
    loop {
        let changed = next();
        assert_eq!(text(&changed, "session_id"), id, "the other one has not changed");
        if changed["status"] == "completed" {
            break;
        }
    }
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn of_equal_names_the_one_that_is_not_over_is_meant_and_else_the_newest() {
    let home = Home::new();
    let _server = home.up(&[]);
    let one = |run: &str| {
        let cascade = json!({ "cascade_id": "n", "phases": [{ "name": "a", "run": run }] });
        begin_as(&home, json!({ "cascade": cascade, "name": "wk" }))
    };
    let meant = || text(&session(&home, "wk"), "session_id").to_owned();
    let first = one("true");
    until_session(&home, &first, "completed");
    let second = one("true");
    until_session(&home, &second, "completed");
    assert_eq!(meant(), second, "the newest of those that are over");
    let third = one("sleep 1000");
    assert_eq!(meant(), third);
    let fourth = one("sleep 1000");
    let said = home.run(&["sessions", "show", "wk"]);
    assert!(said.code != 0 && said.err.contains(&third) && said.err.contains(&fourth), "{said:?}");
    assert!(said.err.contains("give the id of one") && !said.err.contains(&second), "{said:?}");
    for id in [third, fourth] {
        home.ok(&["sessions", "cancel", &id, "--force", "--wait"]);
    }
}

#[test]
fn a_relative_workdir_is_below_the_sessions_and_one_that_is_not_there_is_named() {
    let home = Home::new();
    let _server = home.up(&[]);
    let base = home.path().join("base");
    std::fs::create_dir_all(base.join("sub")).unwrap();
    let within = |workdir: &str| {
        let cascade = json!({ "cascade_id": "w", "phases": [
            { "name": "a", "run": "pwd", "workdir": workdir, "outputs": { "at": "{{ stdout | trim }}" } },
        ]});
        begin_as(&home, json!({ "cascade": cascade, "workdir": base.to_str().unwrap() }))
    };
    let done = until_session(&home, &within("sub"), "completed");
    assert!(text(&phase(&done, "a")["row"]["outputs"], "at").ends_with("/base/sub"), "{done}");
    let failed = until_session(&home, &within("nowhere"), "error");
    let said = text(&failed, "error_message");
    assert!(said.contains("base/nowhere"), "{said}");
    assert_eq!(said.matches("it could not be started").count(), 1, "{said}");
}

#[test]
fn a_session_that_servers_die_of_is_left_to_a_person_and_the_others_are_not() {
    let home = Home::new();
    let server = home.up(&[]);
    let waiting = json!({"cascade_id": "waiting", "phases": [
        {"name": "ask", "await": {"approval": "go?"}},
        {"name": "then", "run": ["true"]},
    ]});
    let deadly = begin_as(&home, json!({"cascade": waiting, "name": "deadly"}));
    let other = begin_as(&home, json!({"cascade": waiting, "name": "other"}));
    for id in [&deadly, &other] {
        until_session(&home, id, "blocked");
    }
    server.kill();
    // As if that many servers had died with their first look at it.
    for (id, begun) in [(&deadly, "5"), (&other, "4")] {
        let sql = "INSERT INTO session_trials (session_id, begun) VALUES (?1, CAST(?2 AS INTEGER))";
        home.sqlite().execute(sql, [id.as_str(), begun]).unwrap();
    }
    let server = home.up(&[]);
    until_session(&home, &deadly, "orphaned");
    eventually("the other one has an owner again", || {
        session(&home, &other)["owner_alive"].as_bool().filter(|alive| *alive)
    });
    until_session(&home, &other, "blocked");
    let events = home.ok(&["events", "list", "--session", &deadly, "--type", "session_orphaned"]);
    assert!(events.contains("5 servers died"), "{events}");
    let why = home.ok(&["why", &deadly]);
    assert!(why.contains("sessions resume") && !why.contains("alive"), "{why}");
    let given = json!({ "ids": [&deadly, &other], "verdict": "approve" });
    let (status, report) = home.api("POST", "/api/v1/inbox", Some(given));
    assert_eq!(status, 200, "{report}");
    let notes = report["notes"].as_array().unwrap();
    assert!(
        notes.len() == 1 && notes[0].as_str().unwrap().contains(&format!("sessions resume {deadly}")),
        "{report}"
    );
    until_session(&home, &other, "completed");
    home.ok(&["sessions", "resume", &deadly]);
    until_session(&home, &deadly, "completed");
    server.kill();
    let left: i64 =
        home.sqlite().query_row("SELECT COUNT(*) FROM session_trials", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "what was survived is forgotten");
}
