//! The inbox: everything that waits for a person, answered once, with what fits.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Home, alive_with, eventually, text};
use crate::sessions::{begin, begin_as, until_session};

fn ask(name: &str, question: Value) -> Value {
    json!({"name": name, "needs": [], "await": {"hitl": question}})
}

/// One phase for each kind of question.
fn every_kind() -> Value {
    json!({"cascade_id": "asks", "phases": [
        ask("confirm", json!({"kind": "confirmation", "question": "Sure?"})),
        ask("choose", json!({"kind": "choice", "question": "Which?", "options": ["blue", "light green"]})),
        ask("pick", json!({"kind": "multi_choice", "question": "Which ones?", "options": ["a", "b", "c"]})),
        ask("write", json!({"kind": "text", "question": "Name?", "pattern": "[a-z]+"})),
        ask("rate", json!({"kind": "rating", "question": "How good?"})),
        {"name": "approve", "needs": [], "await": {"approval": "deploy?"}},
        {"name": "look", "needs": [], "await": {"checkpoint": "half way"}},
    ]})
}

/// The open waits, by their phase.
fn wait_of(home: &Home, phase: &str) -> String {
    let inbox = home.json(&["inbox"]);
    let items = inbox["items"].as_array().unwrap();
    let item = items.iter().find(|item| item["phase"] == phase).unwrap_or_else(|| panic!("{phase}: {inbox}"));
    text(item, "id").to_owned()
}

#[test]
fn each_kind_of_question_takes_what_fits_and_says_so_when_it_does_not() {
    let home = Home::new();
    let _server = home.up(&[]);
    assert!(home.run(&["inbox"]).err.contains("Nothing waits for a person"));
    let id = begin_as(&home, json!({"cascade": every_kind(), "name": "asks"}));
    eventually("it asks everything", || {
        (home.json(&["inbox"])["items"].as_array().unwrap().len() == 7).then_some(())
    });
    let blocked = until_session(&home, &id, "blocked");
    assert!(blocked["blocked_type"].is_string() && blocked["blocked_since"].is_string(), "{blocked}");
    let screen = home.ok(&["inbox"]);
    for part in
        ["Which ones?", "any of: a, b, c", "one of: blue, \"light green\"", "7 things wait for a person"]
    {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    for phase in ["confirm", "choose", "pick", "rate", "approve", "look"] {
        // The very command that is shown is taken, but for its answer it is only looked at here.
        let wait = wait_of(&home, phase);
        assert!(screen.contains(&wait), "{wait}\n{screen}");
    }
    let refused = |args: &[&str], part: &str| {
        let said = home.run(&[&["inbox"], args].concat());
        assert!(said.code == 4 && said.err.contains(part), "{args:?}: {said:?}");
    };
    let (confirm, choose, pick) =
        (wait_of(&home, "confirm"), wait_of(&home, "choose"), wait_of(&home, "pick"));
    let (write, rate) = (wait_of(&home, "write"), wait_of(&home, "rate"));
    let (approve, look) = (wait_of(&home, "approve"), wait_of(&home, "look"));
    refused(&["answer", &confirm, "perhaps"], "it wants yes or no");
    refused(&["answer", &choose, "red"], "it wants: one of: blue, light green");
    refused(&["approve", &choose], "not approved or denied");
    refused(&["answer", &pick, "--choice", "a", "--choice", "x"], "'x' is none of its options");
    refused(&["answer", &write, "--value", "Not This"], "a text that matches [a-z]+");
    refused(&["answer", &rate, "6"], "a whole number from 1 to 5");
    refused(&["answer", &approve, "--choice", "a"], "approve or deny it");
    refused(&["answer", "asks", "yes"], "asks more than one thing");
    for nobody in ["wait-nothere", "nobody"] {
        let said = home.run(&["inbox", "answer", nobody, "yes"]);
        assert!(said.code == 3 && said.err.contains("there is no such wait"), "{said:?}");
    }
    let said = home.run(&["inbox", "answer", &confirm, "wait-nothere", "perhaps", "-o", "json"]);
    let each: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, text(&each[0], "status"), text(&each[1], "id")), (4, "refused", "wait-nothere"));
    assert!(text(&each[0], "reason").contains("yes or no"), "{each}");
    let none = home.run(&["inbox", "answer", &confirm]);
    assert!(none.code == 2 && none.err.contains("there is no answer"), "{none:?}");
    assert_eq!(home.json(&["inbox"])["items"].as_array().unwrap().len(), 7, "nothing was taken");

    assert!(home.ok(&["inbox", "answer", &confirm, "yes", "--reason", "tested"]).contains("answered: true"));
    home.ok(&["inbox", "answer", &choose, "light green"]);
    home.ok(&["inbox", "answer", &pick, "--choice", "c", "--choice", "a"]);
    home.ok(&["inbox", "answer", &write, "--value", "abc"]);
    home.ok(&["inbox", "answer", &rate, "--json", "4"]);
    let said = home.ok(&["inbox", "approve", &approve, &look, "--reason", "looks good"]);
    assert_eq!(said.matches("approved").count(), 2, "{said}");
    let done = until_session(&home, &id, "completed");
    let given = |phase: &str| {
        let phases = done["phases"].as_array().unwrap();
        phases.iter().find(|one| one["name"] == phase).unwrap()["row"]["outputs"].clone()
    };
    assert_eq!(given("confirm")["answer"], true, "{done}");
    assert_eq!(given("choose")["answer"], "light green");
    assert_eq!(given("pick")["answer"], json!(["c", "a"]));
    assert_eq!(given("write")["answer"], "abc");
    assert_eq!(given("rate")["answer"], 4);
    assert_eq!((&given("approve")["approved"], &given("approve")["by"]), (&json!(true), &json!("local")));
    refused(&["approve", &approve], "local has answered it already");
    let told = home.told("wait_answered");
    assert_eq!(told.len(), 7);
    assert!(told.iter().all(|event| event["session_id"] == id.as_str()), "{told:?}");
    let first = told.iter().find(|event| event["details"]["wait_id"] == confirm.as_str()).unwrap();
    assert_eq!((text(&first["details"], "by"), text(&first["details"], "reason")), ("local", "tested"));
    assert!(!home.told("session_blocked").is_empty());
    let (status, problem) =
        home.api("POST", "/api/v1/inbox", Some(json!({"ids": [confirm], "verdict": "answer"})));
    assert!(status == 422 && text(&problem, "detail").contains("there is no answer"), "{problem}");
    let large = json!({"ids": [confirm], "verdict": "answer", "text": "x".repeat(300_000)});
    let (status, problem) = home.api("POST", "/api/v1/inbox", Some(large));
    assert!(status == 422 && text(&problem, "fix").contains("at most 262144"), "{problem}");
    let (status, inbox) = home.api("GET", "/api/v1/inbox", None);
    assert_eq!((status, &inbox["items"]), (200, &json!([])));
}

#[test]
fn the_first_answer_holds_however_many_come_at_once() {
    let home = Home::new();
    let _server = home.up(&[]);
    let cascade = json!({"cascade_id": "race", "phases": [
        ask("choose", json!({"kind": "choice", "question": "Which?", "options": ["0", "1", "2", "3", "4", "5", "6", "7"]})),
    ]});
    for _ in 0..3 {
        let id = begin(&home, cascade.clone());
        until_session(&home, &id, "blocked");
        let wait = wait_of(&home, "choose");
        let answers: Vec<Value> = std::thread::scope(|scope| {
            let ask = |n: usize| {
                let request = json!({"ids": [wait], "verdict": "answer", "text": n.to_string()});
                home.api("POST", "/api/v1/inbox", Some(request)).1
            };
            let each: Vec<_> = (0..8).map(|n| scope.spawn(move || ask(n))).collect();
            each.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let won: Vec<&Value> =
            answers.iter().flat_map(|report| report["answered"].as_array().unwrap()).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        let done = until_session(&home, &id, "completed");
        assert_eq!(done["phases"][0]["row"]["outputs"]["answer"], won[0]["answer"], "{done}");
        assert_eq!(done["waits"][0]["answer"], won[0]["answer"]);
    }
    assert_eq!(home.told("wait_answered").len(), 3);
}

#[test]
fn a_denial_fails_its_phase_and_a_timeout_is_not_one() {
    let home = Home::new();
    let _server = home.up(&[]);
    let approval = |timeout: Value, more: Value| {
        let mut phase = json!({"name": "approve", "await": {"approval": "deploy?"}, "timeout": timeout});
        phase["await"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"cascade_id": "deploy", "phases": [phase]})
    };
    let id = begin_as(&home, json!({"cascade": approval(json!(3600), json!({})), "name": "denied"}));
    until_session(&home, &id, "blocked");
    let wait = wait_of(&home, "approve");
    let why = home.ok(&["why", &wait]);
    for part in [
        "It is open",
        "an approval",
        "fails because nobody answered in time",
        &format!("parhelia inbox deny {wait}"),
    ] {
        assert!(why.contains(part), "{part}\n{why}");
    }
    let why = home.ok(&["why", "denied"]);
    for part in
        ["It is blocked", "waits for an approval", &format!("parhelia inbox approve {wait}"), "advanced by"]
    {
        assert!(why.contains(part), "{part}\n{why}");
    }
    let shown = home.ok(&["sessions", "show", "denied"]);
    assert!(shown.contains(&format!("parhelia inbox approve {wait}")), "{shown}");
    let listed = home.ok(&["sessions", "list", "--status", "blocked"]);
    assert!(listed.contains("approval: deploy?"), "{listed}");
    // Its name stands for its only wait.
    home.ok(&["inbox", "deny", "denied", "--reason", "not on a Friday"]);
    let failed = until_session(&home, &id, "error");
    assert!(text(&failed, "error_message").contains("denied by local: not on a Friday"), "{failed}");
    assert!(home.ok(&["sessions", "show", &id]).contains("false by local (not on a Friday)"));

    let id = begin(&home, approval(json!(1), json!({})));
    let late = until_session(&home, &id, "error");
    let message = text(&late, "error_message");
    assert!(message.contains("in time") && !message.contains("denied by"), "{message}");
    let id = begin(&home, approval(json!(1), json!({"on_timeout": "continue"})));
    let went_on = until_session(&home, &id, "completed");
    assert_eq!(went_on["waits"][0]["status"], "timed_out", "{went_on}");
    assert_eq!(home.told("wait_timed_out").len(), 2);
    let said = home.run(&["inbox", "approve", text(&went_on["waits"][0], "id")]);
    assert!(said.code == 4 && said.err.contains("nobody answered in time"), "{said:?}");
}

#[test]
fn a_watched_inbox_tells_of_each_thing_once() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mut watch = home.command(&["inbox", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(watch.stdout.take().unwrap()).lines();
    let asks =
        json!({"cascade_id": "asks", "phases": [{"name": "approve", "await": {"approval": "deploy?"}}]});
    for _ in 0..2 {
        let id = begin(&home, asks.clone());
        let line = said.next().unwrap().unwrap();
        assert!(line.contains(&id) && line.contains("parhelia inbox approve wait-"), "{line}");
        home.ok(&["inbox", "approve", &id]);
        until_session(&home, &id, "completed");
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// An agent that asks once (its code says so), and then does what it was told.
const ASKER: &str = "#!/bin/sh\necho \"$@\"\ncase \"$1\" in --again=*) exit 0;; esac\nexit 42\n";

#[test]
fn an_agent_that_needs_somebody_goes_on_with_the_answer_in_its_own_session() {
    let home = Home::with_config(
        "[engines.helper]\nprogram = 'helper'\nstart = ['{program}', '--id={sessionId}', '{command}']\n\
         resume = ['{program}', '--again={sessionId}', '{command}']\nwaiting_codes = [42]\n",
    );
    let programs = tempfile::tempdir().unwrap();
    let helper = programs.path().join("helper");
    std::fs::write(&helper, ASKER).unwrap();
    std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let _server = home.up(&[]);
    let cascade = json!({"cascade_id": "agents", "phases": [
        {"name": "fix", "agent": {"engine": "helper", "prompt": "fix it; $(rm)", "arguments": ["--print"]}, "env": {"PATH": path}},
    ]});
    let id = begin(&home, cascade);
    let blocked = until_session(&home, &id, "blocked");
    assert_eq!(text(&blocked, "blocked_type"), "hitl", "{blocked}");
    let inbox = home.json(&["inbox"]);
    let item = &inbox["items"][0];
    assert_eq!((text(item, "session_id"), text(item, "task")), (id.as_str(), "fix"), "{inbox}");
    assert_eq!(inbox["jobs"], json!([]), "it is asked about once: {inbox}");
    assert!(text(item, "command").ends_with("'TEXT'"), "{inbox}");
    home.ok(&["inbox", "answer", text(item, "id"), "use the other file"]);
    let done = until_session(&home, &id, "completed");
    let attempts = done["phases"][0]["tasks"][0]["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{done}");
    let said = |n: &str| home.ok(&["sessions", "logs", &id, "--task", "fix", "--attempt", n]);
    let first = said("1");
    let session = first.split_whitespace().next().unwrap().trim_start_matches("--id=").to_owned();
    assert!(session.len() == 36 && first.ends_with("fix it; $(rm) --print\n"), "{first}");
    assert_eq!(said("2"), format!("--again={session} use the other file --print\n"));

    // The same outside of a cascade: a job that ended with a question is in the inbox until somebody went on with it.
    let ask = |name: &str| {
        let request = json!({"command": ["ask"], "engine": "helper", "name": name, "env": {"PATH": path}});
        let (status, job) = home.api("POST", "/api/v1/jobs", Some(request));
        assert_eq!(status, 201, "{job}");
        let inbox = eventually("it is in the inbox", || {
            Some(home.json(&["inbox"])).filter(|inbox| !inbox["items"].as_array().unwrap().is_empty())
        });
        assert_eq!((text(&inbox["items"][0], "session_name"), &inbox["jobs"]), (name, &json!([])), "{inbox}");
        text(&inbox["items"][0], "session_id").to_owned()
    };
    let answered = ask("answered");
    home.ok(&["inbox", "answer", "answered", "yes"]);
    until_session(&home, &answered, "completed");
    let continued = ask("continued");
    let next = home.ok(&["jobs", "resume", "continued", "-o", "name", "--", "now"]).trim().to_owned();
    let left = until_session(&home, &continued, "cancelled");
    assert!(text(&left, "cancel_reason").contains(&next), "{left}");
    assert_eq!(home.json(&["inbox"])["items"], json!([]));
}

#[test]
fn an_agent_that_asks_and_stays_is_ended_with_its_answer_and_goes_on_with_it() {
    let outside = tempfile::tempdir().unwrap();
    let (agent, calls) = (outside.path().join("agent"), outside.path().join("calls"));
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {}\ncase \"$*\" in *blue*) exit 0;; esac\n\
         echo '{{\"type\":\"needs_human\",\"reason\":\"which colour?\"}}'\nsleep 1000\n",
        calls.display()
    );
    std::fs::write(&agent, script).unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let home = Home::with_config(&format!("[engines.painter]\nprogram = '{}'\n", agent.display()));
    let _server = home.up(&[]);
    let mark = home.mark();
    let id = begin(
        &home,
        json!({"cascade_id": "live", "phases": [
            {"name": "ask", "agent": {"engine": "painter", "prompt": "paint it"}, "env": {&mark: "1"}},
        ]}),
    );
    let blocked = until_session(&home, &id, "blocked");
    assert_eq!(text(&blocked, "blocked_description"), "which colour?");
    home.ok(&["inbox", "answer", &id, "blue"]);
    until_session(&home, &id, "completed");
    assert_eq!(std::fs::read_to_string(&calls).unwrap(), "paint it\npaint it blue\n");
    assert_eq!(alive_with(&format!("{mark}=1")), 0);
}
