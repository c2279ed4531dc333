//! The door for agents, through a client that we did not write (`mcp_client.py`): over standard input and over
//! HTTP, in the protocol of today and in the one before it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{
    FakeWorld, Home, Server, alive_with, eventually, exchange, exchange_whole, parhelia, python, say, text,
};

/// Python's client, connected.
struct Agent {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Agent {
    fn connect(mut how: Value, mode: &str) -> Self {
        how["mode"] = mode.into();
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/mcp_client.py");
        // By its real path: Python looks for its environment beside it.
        let mut child = Command::new(python().canonicalize().unwrap().join("python"))
            .arg(script)
            .arg(how.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    /// `parhelia mcp`, with these arguments.
    fn stdio(home: &Home, args: &[&str], mode: &str) -> Self {
        let env = json!({ "PARHELIA_HOME": home.path(), "NO_COLOR": "1" });
        let args: Vec<&str> = ["mcp"].iter().chain(args).copied().collect();
        Self::connect(json!({ "command": parhelia(), "args": args, "env": env }), mode)
    }

    fn http(address: &str, token: &str, mode: &str) -> Self {
        Self::connect(json!({ "url": format!("http://{address}/mcp"), "token": token }), mode)
    }

    fn step(&mut self, step: &Value) -> Value {
        writeln!(self.to, "{step}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{step}: the client said {line:?} ({e})"))
    }

    fn ok(&mut self, step: Value) -> Value {
        let said = self.step(&step);
        assert!(said.get("ok").is_some(), "{step}: {said}");
        said["ok"].clone()
    }

    /// A call that succeeds: the structured answer. Its text is there too.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ok(json!(["call", tool, arguments]));
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        assert!(!text(&result["content"][0], "text").is_empty());
        result["structuredContent"].clone()
    }

    /// The text of an answer.
    fn says(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.ok(json!(["call", tool, arguments]));
        text(&result["content"][0], "text").to_owned()
    }

    /// A call that fails as an agent can read it: the error.
    fn fails(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ok(json!(["call", tool, arguments]));
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        let error = result["structuredContent"]["error"].clone();
        let said = text(&result["content"][0], "text");
        for part in ["code", "message", "fix"] {
            assert!(!text(&error, part).is_empty() && said.contains(text(&error, part)), "{said}: {error}");
        }
        error
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listening(home: &Home) -> (Server, String) {
    let server = home.up(&["--listen", "127.0.0.1:0"]);
    (server, text(&home.json(&["info"]), "listen").to_owned())
}

fn token(home: &Home, role: &str, container: Option<&str>) -> String {
    let request = json!({ "subject": format!("the-{role}"), "role": role, "container": container });
    let (status, made) = home.api("POST", "/api/v1/tokens", Some(request));
    assert_eq!(status, 201, "{made}");
    text(&made, "secret").to_owned()
}

/// The seed's own words (SPEC-21.32).
fn seed() -> Value {
    json!([
        {
            "name": "parhelia_containers",
            "description": "List and manage running containers",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "action": {
                        "type": "string",
                        "enum": ["list", "show", "terminate", "events"],
                        "default": "list"
                    },
                    "container_id": {
                        "type": "string",
                        "description": "Container ID (required for show/terminate/events)"
                    },
                    "state_filter": {
                        "type": "string",
                        "enum": ["all", "running", "orphaned", "terminated"],
                        "default": "running"
                    },
                    "health_filter": {
                        "type": "string",
                        "enum": ["all", "healthy", "degraded", "unhealthy", "dead"],
                        "default": "all"
                    },
                    "limit": {"type": "integer", "default": 20}
                }
            }
        },
        {
            "name": "parhelia_health",
            "description": "Get control plane health status",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "include_containers": {"type": "boolean", "default": true},
                    "include_reconciler": {"type": "boolean", "default": true}
                }
            }
        },
        {
            "name": "parhelia_events",
            "description": "Query control plane events",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "container_id": {"type": "string"},
                    "task_id": {"type": "string"},
                    "event_type": {"type": "string"},
                    "since_minutes": {"type": "integer", "default": 60},
                    "limit": {"type": "integer", "default": 50}
                }
            }
        }
    ])
}

#[test]
fn the_tools_are_the_seeds_at_both_doors_and_in_both_protocols() {
    let home = Home::new();
    let (_server, address) = listening(&home);
    let viewer = token(&home, "viewer", None);
    for mode in ["auto", "legacy"] {
        for mut agent in [Agent::stdio(&home, &[], mode), Agent::http(&address, &viewer, mode)] {
            let hello = agent.ok(json!(["hello"]));
            assert_eq!(hello["server"]["name"], "parhelia");
            let modern = text(&hello, "version") >= "2026-07-28";
            assert_eq!(modern, mode == "auto", "{hello}");
            assert!(text(&hello, "instructions").contains("parhelia_health"), "{hello}");
            assert!(hello["capabilities"].get("tools").is_some(), "{hello}");
            assert!(hello["capabilities"].get("resources").is_some(), "{hello}");

            let tools = agent.ok(json!(["tools"]));
            let part = |tool: &Value| json!({ "name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"] });
            let listed: Vec<Value> = tools.as_array().unwrap().iter().map(part).collect();
            let (of_the_seed, ours) = listed.split_at(3);
            assert_eq!(Value::from(of_the_seed), seed());
            let names: Vec<&str> = ours.iter().map(|tool| text(tool, "name")).collect();
            assert_eq!(names, ["parhelia_run", "parhelia_sessions", "parhelia_inbox", "parhelia_signals"]);
            for tool in tools.as_array().unwrap() {
                let name = text(tool, "name");
                // Looks, destroys, may be repeated, reaches beyond us.
                let [looks, ends, again, beyond] = match name {
                    "parhelia_containers" => [false, true, true, false],
                    "parhelia_health" | "parhelia_events" => [true, false, true, false],
                    "parhelia_run" => [false, true, false, true],
                    "parhelia_sessions" | "parhelia_inbox" => [false, true, false, false],
                    _ => [false, false, false, false],
                };
                assert_eq!(
                    tool["annotations"],
                    json!({
                        "readOnlyHint": looks, "destructiveHint": ends, "idempotentHint": again, "openWorldHint": beyond,
                    }),
                    "{name}"
                );
                assert_eq!(tool["outputSchema"]["type"], "object");
                assert!(text(&hello, "instructions").contains(name), "{hello}");
            }

            let templates = agent.ok(json!(["templates"]));
            let uris: Vec<&str> =
                templates.as_array().unwrap().iter().map(|t| text(t, "uriTemplate")).collect();
            assert_eq!(uris, ["parhelia://containers/{id}", "parhelia://containers/{id}/events"]);
        }
    }
}

/// Without what counts up between two questions.
fn still(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for moving in ["age", "cost", "cost_accrued_usd", "waiting", "heartbeat_at"] {
                    map.remove(moving);
                }
                map.values_mut().for_each(walk);
            }
            Value::Array(all) => all.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

/// Asks both until both say the same: a heartbeat or a pass may come between two questions.
fn agree(agent: &mut Agent, tool: &str, arguments: &Value, at: &str, home: &Home, command: &[&str]) -> Value {
    let mut last = (Value::Null, Value::Null);
    for _ in 0..20 {
        let answer = agent.call(tool, arguments.clone());
        let (said, shown) = (still(answer.pointer(at).unwrap().clone()), still(home.json(command)));
        if said == shown {
            return said;
        }
        last = (said, shown);
    }
    panic!("{tool} {arguments} and {command:?} disagree:\n{}\n{}", last.0, last.1);
}

/// AC6: the tools and the commands are two doors to one thing.
#[test]
fn every_action_says_what_the_command_line_says() {
    let world = FakeWorld::new();
    let config = format!("{}[reconciler]\norphan_grace_period_seconds = 0\n", world.line());
    let home = Home::with_config(&config);
    let (_server, address) = listening(&home);
    let running = home.start(&["--name", "builder", "--task", "ta-1"], &["sleep", "600"]);
    let ended = home.start(&[], &["true"]);
    home.until_seen(&running, "health", "healthy");
    home.until_seen(&ended, "state", "terminated");
    world.add("sb-lost", &home.instance_id(), "c-lost0001", 60);
    home.reconcile();
    home.until_seen("c-lost0001", "state", "orphaned");

    let viewer = token(&home, "viewer", None);
    let agents = [Agent::stdio(&home, &[], "auto"), Agent::http(&address, &viewer, "auto")];
    for mut agent in agents {
        let containers = "parhelia_containers";
        let mut list = |arguments: Value, command: &[&str]| {
            let command = [&["containers", "list"], command].concat();
            let said = agree(&mut agent, containers, &arguments, "/containers", &home, &command);
            said.as_array().unwrap().len()
        };
        assert_eq!(list(json!({}), &["--state", "running", "--limit", "20"]), 1);
        assert_eq!(list(json!({"action": "list", "state_filter": "running"}), &["--state", "running"]), 1);
        assert_eq!(list(json!({"state_filter": "all"}), &["--all"]), 3);
        assert_eq!(list(json!({"state_filter": "all", "limit": 2}), &["--all", "--limit", "2"]), 2);
        assert_eq!(list(json!({"state_filter": "orphaned"}), &["--state", "orphaned"]), 1);
        assert_eq!(list(json!({"state_filter": "terminated"}), &["--state", "terminated"]), 1);
        for (health, count) in [("healthy", 1), ("degraded", 0), ("unhealthy", 0), ("dead", 0)] {
            let filter = json!({"state_filter": "running", "health_filter": health});
            assert_eq!(list(filter, &["--state", "running", "--health", health]), count);
        }
        let show = json!({"action": "show", "container_id": running});
        let shown =
            agree(&mut agent, containers, &show, "/container", &home, &["containers", "show", &running]);
        assert_eq!((text(&shown, "name"), text(&shown, "task")), ("builder", "ta-1"));
        let events = json!({"action": "events", "container_id": running, "limit": 2});
        let command = ["containers", "events", &running, "--limit", "2"];
        agree(&mut agent, containers, &events, "/events", &home, &command);

        for (arguments, command) in [
            (json!({}), vec!["--since", "60m", "--limit", "50"]),
            (json!({"container_id": ended}), vec!["--container", &ended]),
            (json!({"task_id": "ta-1"}), vec!["--task", "ta-1"]),
            (json!({"event_type": "container_created"}), vec!["--type", "container_created"]),
            (
                json!({"event_type": "created", "since_minutes": 5, "limit": 1}),
                vec!["--type", "created", "-n", "1"],
            ),
        ] {
            let command = [&["events", "list"], command.as_slice()].concat();
            let said = agree(&mut agent, "parhelia_events", &arguments, "/events", &home, &command);
            assert!(!said.as_array().unwrap().is_empty(), "{arguments}");
        }

        let health = "parhelia_health";
        let rows =
            agree(&mut agent, health, &json!({}), "/containers/by_health", &home, &["containers", "health"]);
        assert_eq!(rows[4], json!({"health": "orphaned", "count": 1, "containers": ["c-lost0001"]}));
        agree(&mut agent, health, &json!({}), "/reconciler", &home, &["reconciler", "status"]);
        agree(&mut agent, health, &json!({}), "/server", &home, &["info"]);
        let whole = agent.call(health, json!({}));
        assert_eq!((text(&whole, "status"), text(&whole["concerns"][0], "code")), ("attention", "orphaned"));
        let bare = agent.call(health, json!({"include_containers": false, "include_reconciler": false}));
        assert_eq!((bare.get("containers"), bare.get("reconciler")), (None, None), "{bare}");
        assert_eq!(bare["status"], "attention", "what is left out of the answer is still judged");

        let listed = agent.ok(json!(["resources"]));
        let uris: Vec<&str> = listed.as_array().unwrap().iter().map(|r| text(r, "uri")).collect();
        let uri = format!("parhelia://containers/{running}");
        assert_eq!(uris.len(), 2, "the live ones: {listed}");
        assert!(
            uris.contains(&uri.as_str()) && uris.contains(&"parhelia://containers/c-lost0001"),
            "{listed}"
        );
        let mut read = |uri: &str| {
            let contents = agent.ok(json!(["read", uri]));
            assert_eq!(
                (text(&contents[0], "uri"), text(&contents[0], "mimeType")),
                (uri, "application/json")
            );
            serde_json::from_str::<Value>(text(&contents[0], "text")).unwrap()
        };
        assert_eq!(text(&read(&uri), "id"), running);
        let told = read(&format!("{uri}/events"));
        assert_eq!(told["events"], home.json(&["containers", "events", &running]));
    }

    // The same wish through both doors is recorded in the same way, and what it is about really ends.
    let other = home.start(&[], &["sleep", "600"]);
    home.until_seen(&other, "health", "healthy");
    let mut agent = Agent::stdio(&home, &[], "auto");
    let said = agent.call("parhelia_containers", json!({"action": "terminate", "container_id": running}));
    let shown = home.json(&["containers", "terminate", &other, "--yes", "--no-wait"])[0].clone();
    let keys = |view: &Value| view.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&said["container"]), keys(&shown));
    for field in ["desired", "desired_by", "desired_reason", "stop_grace_seconds"] {
        assert_eq!(said["container"][field], shown[field], "{field}");
    }
    for id in [&running, &other] {
        home.until_seen(id, "state", "terminated");
        eventually("nothing of it is left", || {
            (alive_with(&format!("PARHELIA_CONTAINER_ID={id}")) == 0).then_some(())
        });
    }
}

/// An agent runs a cascade, is asked, answers, signals and cancels: all that the command line can, and it says the same.
#[test]
fn sessions_inbox_and_signals_say_what_the_command_line_says() {
    let home = Home::new();
    let (_server, address) = listening(&home);
    let (operator, viewer) = (token(&home, "operator", None), token(&home, "viewer", None));
    let yaml = "cascade_id: ask\ninputs:\n  who: {}\nphases:\n\
                - name: ask\n  await:\n    hitl: {kind: choice, question: 'Which, {{ inputs.who }}?', options: [a, b]}\n\
                - name: hear\n  await: {signal: go}\n\
                - name: end\n  set: {said: '{{ outputs.ask.answer }}'}\n";
    for (round, mut agent) in
        [Agent::stdio(&home, &[], "auto"), Agent::http(&address, &operator, "legacy")].into_iter().enumerate()
    {
        let name = format!("round-{round}");
        let run = json!({"text": yaml, "inputs": {"who": "ann"}, "name": name, "wait_seconds": 60});
        let begun = agent.call("parhelia_run", run);
        let session = begun["session"].clone();
        let id = text(&session, "session_id").to_owned();
        assert_eq!(text(&session, "status"), "blocked", "it came back when it was blocked: {session}");

        let list = json!({"status_filter": "blocked"});
        let command = ["sessions", "list", "--status", "blocked"];
        let listed = agree(&mut agent, "parhelia_sessions", &list, "/sessions", &home, &command);
        assert_eq!(text(&listed[0], "name"), name, "{listed}");
        let show = json!({"action": "show", "session_id": name});
        agree(&mut agent, "parhelia_sessions", &show, "/session", &home, &["sessions", "show", &id]);
        let tree = json!({"action": "tree", "session_id": id});
        agree(&mut agent, "parhelia_sessions", &tree, "/tree", &home, &["sessions", "tree", &id]);
        let events = json!({"action": "events", "session_id": id, "limit": 1000});
        let command = ["events", "list", "--session", &id, "--limit", "1000"];
        let told = agree(&mut agent, "parhelia_sessions", &events, "/events", &home, &command);
        assert!(
            told.as_array().unwrap().iter().any(|event| event["event_type"] == "session_blocked"),
            "{told}"
        );

        // The text is for somebody who has tools and no command line.
        let shown = agent.says("parhelia_sessions", json!({"action": "show", "session_id": id}));
        assert!(
            shown.contains("parhelia_inbox with action=answer, ids=[wait-")
                && !shown.contains("parhelia inbox"),
            "{shown}"
        );

        let inbox = agree(&mut agent, "parhelia_inbox", &json!({}), "/inbox", &home, &["inbox"]);
        let wait = text(&inbox["items"][0], "id").to_owned();
        assert_eq!(text(&inbox["items"][0], "description"), "Which, ann?", "{inbox}");
        let answer = |text: &str| json!({"action": "answer", "ids": [wait], "text": text, "reason": "asked"});
        let wrong = agent.call("parhelia_inbox", answer("c"));
        assert!(text(&wrong["report"]["refused"][0], "reason").contains("one of: a, b"), "{wrong}");
        let right = agent.call("parhelia_inbox", answer("b"));
        assert_eq!(right["report"]["answered"][0]["answer"], "b", "{right}");
        let twice = agent.call("parhelia_inbox", answer("a"));
        assert!(text(&twice["report"]["refused"][0], "reason").contains("answered it already"), "{twice}");
        let approve = json!({"action": "approve", "ids": [id]});
        let said = agent.says("parhelia_inbox", approve.clone());
        assert!(said.starts_with(&format!("{id} was not answered: nothing of session")), "{said}");
        let approve = agent.call("parhelia_inbox", approve);
        assert!(text(&approve["report"]["refused"][0], "reason").contains("waits for a person"), "{approve}");

        let fire = json!({"action": "fire", "name": "go", "session_id": id, "payload": {"n": round}});
        let fired = agent.call("parhelia_signals", fire);
        assert_eq!(fired["signal"]["payload"], json!({"n": round}));
        let done = eventually("it is done", || {
            let shown = agent.call("parhelia_sessions", json!({"action": "show", "session_id": id}));
            Some(shown["session"].clone()).filter(|session| session["status"] == "completed")
        });
        assert_eq!(done["phases"][2]["row"]["outputs"]["said"], "b", "{done}");
        let shown = agent.says("parhelia_sessions", json!({"action": "show", "session_id": id}));
        assert!(shown.contains("phase end (set): completed outputs={\"said\":\"b\"}"), "{shown}");
        let error = agent.fails("parhelia_sessions", json!({"action": "resume", "session_id": id}));
        assert!(text(&error, "fix").starts_with("give from_phase"), "{error}");
        let command = ["signals", "list"];
        agree(&mut agent, "parhelia_signals", &json!({}), "/signals", &home, &command);

        let again = json!({"action": "resume", "session_id": id, "from_phase": "hear"});
        let next = text(&agent.call("parhelia_sessions", again)["session"], "session_id").to_owned();
        assert_ne!(next, id);
        let cancel = json!({"action": "cancel", "session_id": next, "reason": "enough", "force": true});
        agent.call("parhelia_sessions", cancel);
        eventually("it is cancelled", || {
            let shown = agent.call("parhelia_sessions", json!({"action": "show", "session_id": next}));
            (shown["session"]["status"] == "cancelled").then_some(())
        });
        let clean = agent.call("parhelia_sessions", json!({"action": "cleanup", "dry_run": true}));
        assert_eq!(clean["report"]["zombies"], json!([]));

        let error = agent.fails("parhelia_sessions", json!({"action": "show", "session_id": "nobody"}));
        assert!(text(&error, "fix").contains("parhelia_sessions"), "{error}");
        agent.fails("parhelia_sessions", json!({"action": "show"}));
        let error = agent.fails("parhelia_run", json!({"text": "cascade_id: x\nphases: []\n"}));
        assert!(text(&error, "fix").contains("parhelia_run"), "{error}");
        agent.fails("parhelia_run", json!({"wait_seconds": 61}));
        agent.fails("parhelia_signals", json!({"action": "fire"}));
        agent.fails("parhelia_inbox", json!({"action": "deny"}));
    }
    let mut agent = Agent::http(&address, &viewer, "auto");
    agent.call("parhelia_sessions", json!({}));
    agent.call("parhelia_inbox", json!({}));
    agent.call("parhelia_signals", json!({}));
    for (tool, arguments) in [
        ("parhelia_run", json!({"text": yaml})),
        ("parhelia_sessions", json!({"action": "cancel", "session_id": "round-0"})),
        ("parhelia_inbox", json!({"action": "approve", "ids": ["x"]})),
        ("parhelia_signals", json!({"action": "fire", "name": "x"})),
    ] {
        assert_eq!(agent.fails(tool, arguments)["code"], "forbidden", "{tool}");
    }
}

#[test]
fn a_tool_asks_for_its_role_and_tells_who_was_refused() {
    let home = Home::new();
    let (_server, address) = listening(&home);
    let id = home.start(&[], &["sleep", "600"]);
    home.until_seen(&id, "health", "healthy");
    let end = json!({"action": "terminate", "container_id": id});

    let mut viewer = Agent::http(&address, &token(&home, "viewer", None), "auto");
    let error = viewer.fails("parhelia_containers", end.clone());
    assert_eq!(error["code"], "forbidden");
    assert!(text(&error, "message").contains("the-viewer is viewer, and this needs operator"), "{error}");
    let told = eventually("the refusal is told", || home.told("access_refused").pop());
    assert_eq!(told["details"]["path"], "/mcp parhelia_containers terminate");
    assert_eq!((text(&told["details"], "subject"), text(&told["details"], "role")), ("the-viewer", "viewer"));
    let seen = viewer.call("parhelia_containers", json!({"action": "show", "container_id": id}));
    assert_eq!(seen["container"]["desired"], "running", "nothing was done");

    // At the door itself: nobody, and a worker, whose word is about its own container only.
    let worker = token(&home, "worker", Some(&id));
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for (bearer, expected) in [(None, 401), (Some(worker), 403)] {
        let bearer = bearer.map(|t| format!("authorization: Bearer {t}"));
        let headers: Vec<&str> = bearer.iter().map(String::as_str).collect();
        let stream = TcpStream::connect(&address).unwrap();
        let (status, _) = exchange(stream, "POST", "/mcp", Some(&message), &headers).unwrap();
        assert_eq!(status, expected);
    }

    // Through the bridge a token counts as it does over HTTP.
    let file = home.path().join("operator.token");
    std::fs::write(&file, token(&home, "operator", None)).unwrap();
    let (url, file) = (format!("http://{address}"), file.display().to_string());
    let mut operator = Agent::stdio(&home, &["--url", &url, "--token-file", &file], "auto");
    let said = operator.call("parhelia_containers", end);
    assert_eq!(said["container"]["desired_by"], "the-operator");
    home.until_seen(&id, "state", "terminated");
}

#[test]
fn an_error_says_what_to_do_next() {
    let home = Home::new();
    let mut agent = Agent::stdio(&home, &[], "auto");
    let tool = "parhelia_containers";
    for (arguments, code, part) in [
        (json!({"action": "show"}), "invalid_request", "container_id is required for show"),
        (json!({"action": "terminate", "container_id": "c-none"}), "not_found", "c-none"),
        (json!({"action": "end"}), "invalid_request", "`terminate`"),
        (json!({"container": "x"}), "invalid_request", "unknown field `container`"),
        (json!({"limit": 0}), "invalid_request", "limit = 0"),
        (json!({"limit": "many"}), "invalid_request", "'limit'"),
        (json!({"state_filter": "lost"}), "invalid_request", "`orphaned`"),
    ] {
        let error = agent.fails(tool, arguments.clone());
        assert_eq!(error["code"], code, "{arguments}: {error}");
        assert!(text(&error, "message").contains(part), "{arguments}: {error}");
    }
    let error = agent.fails("parhelia_events", json!({"event_type": "birth"}));
    assert!(text(&error, "message").contains("container_created"), "{error}");
    let error = agent.fails("parhelia_events", json!({"since_minutes": -5}));
    assert!(text(&error, "fix").contains("from 1 to"), "{error}");
    // As models write: null for nothing, 20.0 for 20.
    agent.call(tool, json!({"action": null, "container_id": null, "limit": 20.0}));

    let said = agent.step(&json!(["call", "parhelia_nothing", {}]));
    assert!(text(&said["error"], "message").contains("parhelia_health"), "{said}");
    for uri in ["parhelia://containers/c-none", "parhelia://containers/c-none/events", "parhelia://nowhere"] {
        let said = agent.step(&json!(["read", uri]));
        assert_eq!(said["error"]["data"]["code"], "not_found", "{said}");
        assert!(!text(&said["error"]["data"], "fix").is_empty(), "{said}");
    }
}

#[test]
fn a_restart_of_the_server_is_not_noticed() {
    let home = Home::new();
    let (server, address) = listening(&home);
    let viewer = token(&home, "viewer", None);
    let mut bridges = ["auto", "legacy"].map(|mode| Agent::stdio(&home, &[], mode));
    let mut direct = ["auto", "legacy"].map(|mode| Agent::http(&address, &viewer, mode));
    let started =
        |agent: &mut Agent| agent.call("parhelia_health", json!({}))["server"]["started_at"].clone();
    let first = started(&mut bridges[0]);
    for agent in bridges.iter_mut().chain(&mut direct) {
        assert_eq!(started(agent), first);
    }
    // Connected clients hold nobody back, and a death holds no client back.
    assert_eq!(home.run(&["down"]).code, 0);
    assert_eq!(server.wait(), 0);
    assert!(!home.log().contains("did not finish in time"), "{}", home.log());
    let server = home.up(&["--listen", &address]);
    let second = started(&mut direct[0]);
    assert_ne!(second, first);
    for agent in bridges.iter_mut().chain(&mut direct) {
        assert_eq!(started(agent), second);
    }
    server.kill();
    // Nobody is there: the bridge starts one, as every command does.
    let third = started(&mut bridges[0]);
    assert_ne!(third, second);
    assert_eq!(started(&mut bridges[1]), third);
    assert_eq!(home.json(&["info"])["on_demand"], true);
}

#[test]
fn a_long_list_of_resources_comes_in_pages() {
    let world = FakeWorld::new();
    let home = Home::with_config(&world.line());
    let _server = home.up(&[]);
    let instance = home.instance_id();
    for number in 0..130 {
        world.add(&format!("sb-{number:04}"), &instance, &format!("c-many{number:04}"), 600);
    }
    home.reconcile();
    eventually("all are recorded", || (home.all_seen().len() == 130).then_some(()));
    let mut agent = Agent::stdio(&home, &[], "auto");
    let listed = agent.ok(json!(["resources"]));
    let uris: std::collections::BTreeSet<&str> =
        listed.as_array().unwrap().iter().map(|r| text(r, "uri")).collect();
    assert_eq!((uris.len(), listed.as_array().unwrap().len()), (130, 130));
    let found = agent.call("parhelia_containers", json!({"state_filter": "all", "limit": 1000}));
    assert_eq!(found["containers"].as_array().unwrap().len(), 130);
}

#[test]
fn the_door_takes_what_the_protocol_says_and_nothing_from_pages() {
    let home =
        Home::with_config("[server]\nmax_body_bytes = 65536\nallowed_hosts = ['parhelia.example.com']\n");
    let (_server, address) = listening(&home);
    let bearer = format!("authorization: Bearer {}", token(&home, "viewer", None));
    let ask = |host: &str, more: &[&str], body: &str| {
        let host = format!("host: {host}");
        let headers = [&["accept: application/json", bearer.as_str(), host.as_str()], more].concat();
        let stream = TcpStream::connect(&address).unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n{}\r\n\r\n{body}",
            body.len(),
            headers.join("\r\n")
        );
        let reply = say(stream, &request).unwrap();
        (reply.status, serde_json::from_str::<Value>(&reply.body).unwrap_or(Value::Null))
    };
    let json_body = "content-type: application/json";
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}).to_string();
    for host in ["127.0.0.1", &address, "localhost:1", "parhelia.example.com", "parhelia.example.com:443"] {
        let (status, said) = ask(host, &[json_body], &list);
        assert_eq!((status, said["id"].as_i64()), (200, Some(7)), "{host}: {said}");
    }
    // A name that leads here by somebody else's doing, and a page that calls.
    for (host, more) in
        [("evil.example", vec![json_body]), ("127.0.0.1", vec![json_body, "origin: http://evil.example"])]
    {
        let (status, problem) = ask(host, &more, &list);
        assert_eq!((status, text(&problem, "code")), (403, "foreign_host"), "{problem}");
        assert!(text(&problem, "fix").contains("server.allowed_hosts"), "{problem}");
    }
    let told = eventually("both are told", || Some(home.told("access_refused")).filter(|t| t.len() == 2));
    assert!(told.iter().all(|e| e["details"]["subject"] == "the-viewer"), "{told:?}");

    let (status, _) = ask(
        "localhost",
        &[json_body],
        &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
    );
    assert_eq!(status, 202);
    let (status, said) = ask("localhost", &[json_body], "{\"jsonrpc\":");
    assert_eq!((status, said["error"]["code"].as_i64()), (400, Some(-32700)), "{said}");
    let (status, said) = ask("localhost", &[json_body], "{\"jsonrpc\":\"2.0\",\"id\":3}");
    assert_eq!((status, said["error"]["code"].as_i64(), said["id"].as_i64()), (400, Some(-32600), Some(3)));
    let (status, problem) = ask("localhost", &["content-type: text/plain"], &list);
    assert_eq!((status, text(&problem, "code")), (415, "media_type"));
    let (status, problem) = ask("localhost", &[json_body], &format!("{{\"a\":\"{}\"}}", "x".repeat(70_000)));
    assert_eq!((status, text(&problem, "code")), (413, "too_large"));
    let (status, problem) = ask("localhost", &[json_body, "mcp-protocol-version: 1999-01-01"], &list);
    assert_eq!((status, text(&problem, "code")), (400, "bad_request"), "{problem}");
    assert!(text(&problem, "detail").contains("1999-01-01"), "{problem}");
    // There are no streams to open and no sessions to end.
    for method in ["GET", "DELETE"] {
        let stream = TcpStream::connect(&address).unwrap();
        let reply = exchange_whole(stream, method, "/mcp", None, &[&bearer]).unwrap();
        assert_eq!(reply.status, 405, "{}", reply.body);
        assert!(reply.head.contains("allow: post"), "{}", reply.head);
    }
    let (_, document) = home.api("GET", "/api/openapi.json", None);
    assert_eq!(document["paths"]["/mcp"]["post"]["x-parhelia-access"], "viewer");
}

#[test]
fn the_bridge_says_only_what_the_protocol_says() {
    let home = Home::new();
    let run = |args: &[&str], lines: &str| {
        let mut child = home
            .command(args)
            .args(["-v", "-v"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let out = String::from_utf8(output.stdout).unwrap();
        let mut said: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        said.sort_by_key(|message| message["id"].to_string());
        (said, String::from_utf8(output.stderr).unwrap())
    };
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        "",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"no/such/thing"}"#,
        "this is not JSON",
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"parhelia_health","arguments":{}}}"#,
    ];
    let (said, log) = run(&["mcp"], &lines.join("\n"));
    assert_eq!(said.len(), 4, "one answer to each request, none to the notification: {said:?}");
    assert_eq!(said[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(said[1]["error"]["code"], -32601);
    assert_eq!(said[2]["result"]["structuredContent"]["status"], "ok");
    assert_eq!(said[3]["error"]["code"], -32700);
    assert!(!log.is_empty(), "the log is on standard error");

    // A server that is not there, and one that lets nobody in: told in the protocol, with what to do.
    let call = r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#;
    let (said, _) = run(&["mcp", "--url", "http://127.0.0.1:1"], call);
    assert_eq!((said.len(), text(&said[0], "id")), (1, "a"), "{said:?}");
    assert!(!text(&said[0]["error"]["data"], "fix").is_empty(), "{said:?}");
    assert_eq!(home.run(&["down"]).code, 0);
    let (_server, address) = listening(&home);
    let (said, _) = run(&["mcp", "--url", &format!("http://{address}")], call);
    assert_eq!(said[0]["error"]["data"]["code"], "unauthorized", "{said:?}");
}
