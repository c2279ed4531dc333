//! What the world may send: every mistake gets a clear answer, and the server survives all of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::harness::{Home, Reply, Said, eventually, exchange_whole, moment, parhelia};

fn ask(home: &Home, method: &str, path: &str, body: Option<&str>, headers: &[&str]) -> Reply {
    let stream = UnixStream::connect(home.path().join("parhelia.sock")).unwrap();
    exchange_whole(stream, method, path, body, headers).expect("an answer")
}

/// The one shape of every error: problem+json with code, detail and a fix.
fn is_problem(reply: &Reply, status: u16, mentions: &[&str]) -> Value {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(reply.head.contains("content-type: application/problem+json"), "{reply:?}");
    let problem: Value = serde_json::from_str(&reply.body).unwrap_or_else(|e| panic!("{e}: {reply:?}"));
    for field in ["type", "title", "detail", "code", "fix"] {
        assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "no {field}: {problem}");
    }
    assert_eq!(problem["status"], status);
    let words = format!("{} {}", problem["detail"], problem["fix"]);
    for mention in mentions {
        assert!(words.contains(mention), "{words} does not say {mention}");
    }
    problem
}

fn refused(home: &Home, method: &str, path: &str, body: &str, status: u16, mentions: &[&str]) -> Value {
    let body = (!body.is_empty()).then_some(body);
    is_problem(&ask(home, method, path, body, &[]), status, mentions)
}

fn lives(home: &Home) {
    assert_eq!(home.http("GET", "/livez", None), (200, "ok\n".to_owned()));
    assert_eq!(home.http("GET", "/readyz", None), (200, "ready\n".to_owned()));
}

/// How many stored heartbeats of a container carry `mark`.
fn marked(home: &Home, id: &str, mark: &str) -> usize {
    let (status, history) = home.api("GET", &format!("/api/v1/containers/{id}/heartbeats?limit=10000"), None);
    assert_eq!(status, 200, "{history}");
    history["heartbeats"].as_array().unwrap().iter().filter(|b| b["metadata"]["mark"] == mark).count()
}

#[test]
fn bodies_that_do_not_fit_are_named_and_nothing_is_recorded() {
    let home = Home::with_config("[server]\nmax_body_bytes = 65536\n");
    let _server = home.up(&[]);
    let run = "/api/v1/containers";
    refused(&home, "POST", run, r#"{"command":["true"]"#, 400, &["not valid JSON", "line 1"]);
    refused(&home, "POST", run, "\u{1}\u{2}", 400, &["not valid JSON"]);
    refused(&home, "POST", run, r#"{"command":["true"]} more"#, 400, &["not valid JSON", "trailing"]);
    refused(&home, "POST", run, &"[".repeat(20_000), 422, &["does not fit"]);
    refused(&home, "POST", run, "", 422, &["command"]);
    refused(&home, "POST", run, r#"{"command":"true"}"#, 422, &["'command'", "sequence"]);
    refused(&home, "POST", run, r#"{"command":["a",1]}"#, 422, &["'command[1]'", "string"]);
    refused(&home, "POST", run, r#"{"command":["true"],"comand":1}"#, 422, &["comand", "field"]);
    refused(&home, "POST", run, r#"{"command":["true"],"keep":"yes"}"#, 422, &["'keep'", "boolean"]);
    refused(&home, "POST", run, r#"{"command":[]}"#, 422, &["no command", "after '--'"]);
    refused(&home, "POST", run, r#"{"command":[""]}"#, 422, &["no command"]);
    refused(&home, "POST", run, r#"{"command":["a\u0000b"]}"#, 422, &["argument 0", "NUL"]);
    refused(&home, "POST", run, r#"{"command":["true"],"provider":"moon"}"#, 422, &["moon", "process"]);
    refused(&home, "POST", run, r#"{"command":["true"],"env":{"PARHELIA_X":"1"}}"#, 422, &["PARHELIA_X"]);
    refused(&home, "POST", run, r#"{"command":["true"],"env":{"A=B":"1"}}"#, 422, &["A=B"]);
    refused(&home, "POST", run, r#"{"command":["true"],"name":"a\nb"}"#, 422, &["name"]);
    refused(&home, "POST", run, r#"{"command":["true"],"resources":{"cpu_cores":-1}}"#, 422, &["cpu_cores"]);
    refused(&home, "POST", run, r#"{"command":["true"],"resources":{"memory_mb":1}}"#, 422, &["memory_mb"]);
    refused(&home, "POST", run, r#"{"command":["true"],"idle_timeout_seconds":0}"#, 422, &["idle timeout"]);
    refused(
        &home,
        "POST",
        run,
        r#"{"command":["true"],"idle_timeout_seconds":-5}"#,
        422,
        &["idle_timeout_seconds", "-5"],
    );

    let typed = ask(&home, "POST", run, Some(r#"{"command":["true"]}"#), &["content-type: text/plain"]);
    is_problem(&typed, 415, &["content-type: application/json"]);
    let huge = json!({ "command": ["true"], "labels": { "x": "y".repeat(70_000) } }).to_string();
    refused(&home, "POST", run, &huge, 413, &["larger", "max_body_bytes"]);

    for (query, word) in [
        ("state=runing", "runing"),
        ("health=ill", "ill"),
        ("limit=minus", "limit"),
        ("color=red", "color"),
        ("label=team", "key=value"),
        ("all=perhaps", "all"),
    ] {
        refused(&home, "GET", &format!("/api/v1/containers?{query}"), "", 422, &[word]);
    }
    for (query, word) in [("since=yesterday", "yesterday"), ("order=up", "asc"), ("type=party", "party")] {
        refused(&home, "GET", &format!("/api/v1/events?{query}"), "", 422, &[word]);
    }
    refused(&home, "POST", "/api/v1/cleanup", r#"{"kind":"everything"}"#, 422, &["everything", "orphans"]);

    assert_eq!(home.json(&["containers", "list", "--all"]), json!([]), "nothing was recorded");
    lives(&home);
}

#[test]
fn what_is_not_there_is_said_to_be_not_there() {
    let home = Home::new();
    let _server = home.up(&[]);
    let long = "z".repeat(10_000);
    for id in ["c-00000000", "nobody", "..%2F..%2Fetc%2Fpasswd", "%00", "c-%27%3B--", "*", long.as_str()] {
        let path = format!("/api/v1/containers/{id}");
        let problem = refused(&home, "GET", &path, "", 404, &["there is no container", "containers --all"]);
        assert!(problem["detail"].as_str().unwrap().len() < 200, "a short answer to a long question");
        refused(&home, "GET", &format!("{path}/events"), "", 404, &[]);
        refused(&home, "GET", &format!("{path}/logs"), "", 404, &[]);
        refused(&home, "GET", &format!("{path}/heartbeats"), "", 404, &[]);
        refused(&home, "POST", &format!("{path}/heartbeats"), "{}", 404, &[]);
        refused(&home, "POST", &format!("{path}/stop"), "", 404, &[]);
        refused(&home, "POST", &format!("{path}/terminate"), "", 404, &[]);
    }
    for about in ["containers/%ff", "sessions/%c3%28/tree", "jobs/%ff", "why/%ff"] {
        refused(&home, "GET", &format!("/api/v1/{about}"), "", 400, &["UTF-8"]);
    }
    refused(&home, "GET", "/api/v1/containers/../server", "", 404, &["/api/v1"]);
    refused(&home, "GET", "/../../etc/passwd", "", 404, &["/api/v1"]);
    refused(&home, "GET", "/api/v2/containers", "", 404, &["/api/v1"]);
    refused(&home, "GET", "/api/v1/nothing", "", 404, &["nothing"]);
    refused(&home, "POST", "/api/v1/instances/nobody/adopt", "", 404, &["instances list"]);
    for (method, path) in [
        ("DELETE", "/api/v1/containers"),
        ("PUT", "/api/v1/containers/c-0000"),
        ("GET", "/api/v1/heartbeats"),
        ("POST", "/api/v1/events"),
        ("POST", "/livez"),
    ] {
        let reply = ask(&home, method, path, None, &[]);
        is_problem(&reply, 405, &[method]);
        assert!(reply.head.contains("\nallow: "), "{reply:?}");
    }
    let said = home.run(&["containers", "show", "c-0000nobody", "-o", "json"]);
    assert_eq!(said.code, 3, "{said:?}");
    lives(&home);
}

#[test]
fn heartbeats_are_taken_only_when_they_make_sense() {
    let home = Home::with_config("[server]\nmax_batch = 5\n[health]\nfuture_tolerance_seconds = 5\n");
    let _server = home.up(&[]);
    let id = home.start(&[], &["sleep", "600"]);
    let one = format!("/api/v1/containers/{id}/heartbeats");
    let beat = |mark: &str, more: Value| {
        let mut sample = json!({ "container_id": id, "metadata": { "mark": mark } });
        sample.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        sample
    };

    let future = json!({ "timestamp": moment(30).to_string(), "metadata": { "mark": "future" } }).to_string();
    let problem = refused(&home, "POST", &one, &future, 422, &["ahead of this server", "clock", "timestamp"]);
    assert_eq!(problem["code"], "invalid_heartbeat");
    assert_eq!(marked(&home, &id, "future"), 0, "refused means not stored");
    let present = json!({ "timestamp": moment(1).to_string(), "metadata": { "mark": "present" } });
    let (status, receipt) = home.api("POST", &one, Some(present));
    assert_eq!((status, &receipt["accepted"]), (200, &json!(1)), "inside the tolerance: {receipt}");
    assert_eq!(marked(&home, &id, "present"), 1);

    let batch = json!({ "heartbeats": [
        beat("batch", json!({})),
        beat("batch", json!({ "timestamp": "2999-01-01T00:00:00Z" })),
        beat("batch", json!({ "cpu_percent": 12.5, "memory_mb": 7, "disk_percent": 99.5, "uptime_seconds": 3 })),
        beat("batch", json!({ "container_id": "c-00000000" })),
    ] });
    let (status, receipt) = home.api("POST", "/api/v1/heartbeats", Some(batch));
    assert_eq!((status, &receipt["accepted"]), (200, &json!(2)), "{receipt}");
    let mut bad: Vec<(u64, &str)> = receipt["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["index"].as_u64().unwrap(), r["code"].as_str().unwrap()))
        .collect();
    bad.sort_unstable();
    assert_eq!(bad, [(1, "heartbeat_from_the_future"), (3, "unknown_container")]);
    assert_eq!(marked(&home, &id, "batch"), 2, "the rest is stored");

    for (sample, word) in [
        (json!({ "cpu_percent": -1 }), "cpu_percent"),
        (json!({ "cpu_percent": 1e12 }), "cpu_percent"),
        (json!({ "disk_percent": 100.5 }), "disk_percent"),
        (json!({ "memory_percent": -0.5 }), "memory_percent"),
        (json!({ "delayed_seconds": -3 }), "delayed_seconds"),
        (json!({ "memory_mb": -1 }), "memory_mb"),
        (json!({ "uptime_seconds": -1 }), "uptime_seconds"),
        (json!({ "memory_mb": 1.5 }), "memory_mb"),
        (json!({ "memory_mb": 18_446_744_073_709_551_615u64 }), "memory_mb"),
        (json!({ "tmux_active": "yes" }), "tmux_active"),
        (json!({ "timestamp": "noon" }), "timestamp"),
        (json!({ "heart_rate": 60 }), "heart_rate"),
    ] {
        refused(&home, "POST", &one, &sample.to_string(), 422, &[word]);
    }
    let deep = format!(r#"{{"metadata":{}"#, r#"{"a":"#.repeat(500));
    refused(&home, "POST", &one, &deep, 400, &["not valid JSON", "recursion"]);
    refused(&home, "POST", &one, r#"{"cpu_percent":NaN}"#, 400, &["not valid JSON"]);
    refused(&home, "POST", &one, r#"{"cpu_percent":1e999}"#, 400, &["out of range"]);
    let wrong = json!({ "heartbeats": [beat("shape", json!({})), { "container_id": "../x" }] }).to_string();
    refused(&home, "POST", "/api/v1/heartbeats", &wrong, 422, &["heartbeats[1]", "../x", "should look like"]);
    assert_eq!(marked(&home, &id, "shape"), 0, "a batch that cannot be read is refused whole");

    let many: Vec<Value> = (0..6).map(|_| beat("many", json!({}))).collect();
    let many = json!({ "heartbeats": many }).to_string();
    refused(&home, "POST", "/api/v1/heartbeats", &many, 422, &["6 heartbeats", "at most 5"]);
    assert_eq!(marked(&home, &id, "many"), 0);
    let nobody = json!({ "heartbeats": [{ "container_id": "c-00000000" }] }).to_string();
    refused(&home, "POST", "/api/v1/heartbeats", &nobody, 404, &["c-00000000", "containers --all"]);

    home.ok(&["containers", "terminate", "--force", "--yes", &id]);
    let (status, receipt) = home.api("POST", &one, Some(json!({ "metadata": { "mark": "late" } })));
    assert_eq!((status, &receipt["accepted"]), (200, &json!(1)), "evidence is kept: {receipt}");
    assert_eq!(marked(&home, &id, "late"), 1);
    home.ok(&["reconciler", "run"]);
    assert_eq!(home.container(&id)["state"], "terminated", "and revives nobody");
    lives(&home);
}

#[test]
fn ids_may_be_shortened_until_they_are_not_unique() {
    let home = Home::new();
    let _server = home.up(&[]);
    let first = home.start(&[], &["sleep", "600"]);
    let second = home.start(&[], &["sleep", "600"]);
    let common = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
    assert!((4..first.len()).contains(&common), "{first} {second}");
    let (short, unique) = (&first[..common], &first[..=common]);
    for given in [short, &short[2..]] {
        let path = format!("/api/v1/containers/{given}");
        let problem = refused(&home, "GET", &path, "", 409, &[&first, &second, "more characters"]);
        assert_eq!(problem["code"], "ambiguous");
        assert_eq!(home.run(&["containers", "show", given]).code, 4);
        assert_eq!(home.run(&["containers", "terminate", "--yes", given]).code, 4);
    }
    for given in [unique, &unique[2..], &first[2..], &first] {
        assert_eq!(home.api("GET", &format!("/api/v1/containers/{given}"), None).1["id"], *first);
        assert_eq!(home.container(given)["id"], *first);
    }
    assert_eq!(home.container(&second)["state"], "running", "an ambiguous id ended nobody");
}

#[test]
fn three_hundred_kilobytes_of_arguments() {
    let home = Home::new();
    let _server = home.up(&[]);
    let words: Vec<String> = (0..3000).map(|n| format!("{n:0100}")).collect();
    let mut args = vec!["containers", "run", "--wait", "-q", "--", "sh", "-c", "echo $# ${3000}", "sh"];
    args.extend(words.iter().map(String::as_str));
    let id = home.ok(&args).trim().to_owned();
    assert_eq!(home.ok(&["containers", "logs", &id]), format!("3000 {:0100}\n", 2999));

    let large = "x".repeat(300 * 1024);
    let body = json!({ "command": ["echo", large] }).to_string();
    refused(&home, "POST", "/api/v1/containers", &body, 422, &["argument 1", "307200", "into a file"]);
    let all = json!({ "command": vec!["y".repeat(100_000); 12] }).to_string();
    refused(&home, "POST", "/api/v1/containers", &all, 422, &["1200012", "into a file"]);
    let refusal = home.command(&["containers", "run", "--", "echo", &large]).output().unwrap_err();
    assert_eq!(refusal.raw_os_error(), Some(7), "the kernel itself takes no such argument: {refusal}");
    assert_eq!(home.json(&["containers", "list", "--all"]).as_array().unwrap().len(), 1);
    lives(&home);
}

fn fails(said: &Said, code: i32, mentions: &[&str]) {
    assert_eq!(said.code, code, "{said:?}");
    assert_eq!(said.out, "", "{said:?}");
    assert!(said.err.contains("error: ") && said.err.contains("fix: "), "{said:?}");
    for mention in mentions {
        assert!(said.err.contains(mention), "{said:?} does not say {mention}");
    }
}

#[test]
fn a_run_that_cannot_work_says_why_and_what_to_do() {
    let home = Home::new();
    let _server = home.up(&[]);
    let run = |args: &[&str]| home.run(&[&["containers", "run"], args].concat());
    fails(&run(&["--", "no-such-command-anywhere"]), 1, &["not found", "check that the command exists"]);
    let plain = home.path().join("parhelia.toml");
    fails(&run(&["--", plain.to_str().unwrap()]), 1, &["ermission denied", "may be run"]);
    fails(&run(&["--workdir", "/not/there", "--", "true"]), 1, &["/not/there", "create it"]);
    fails(&run(&["--image", "alpine", "--", "true"]), 1, &["no images", "alpine", "docker"]);
    fails(&run(&["--provider", "moon", "--", "true"]), 2, &["moon", "use one of: process"]);
    fails(&run(&["--env", "PARHELIA_HOME=/x", "--", "true"]), 2, &["PARHELIA_HOME", "ours to set"]);
    fails(&run(&["--env", "NOT_SET_ANYWHERE_AT_ALL", "--", "true"]), 2, &["is not set here"]);
    fails(&run(&["--", ""]), 2, &["no command"]);
    let none = run(&[]);
    assert_eq!(none.code, 2, "{none:?}");

    let all = home.json(&["containers", "list", "--all"]);
    let reasons: Vec<&str> =
        all.as_array().unwrap().iter().map(|c| c["termination_reason"].as_str().unwrap()).collect();
    let mut sorted = reasons.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["create_failed", "create_failed", "start_failed", "start_failed"]);
    let id =
        all.as_array().unwrap().iter().find(|c| c["termination_reason"] == "create_failed").unwrap()["id"]
            .as_str()
            .unwrap()
            .to_owned();
    let told =
        eventually("its job has failed too", || Some(home.events_of(&id)).filter(|told| told.len() > 2));
    assert_eq!(told, ["container_created", "create_failed", "job_failed"]);
    lives(&home);
}

#[test]
fn garbage_on_the_socket_harms_nobody() {
    let home = Home::new();
    let _server = home.up(&[]);
    let mut noise = 0x2545_f491_4f6c_dd1d_u64;
    let mut byte = || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise as u8
    };
    for round in 0..40 {
        let mut stream = UnixStream::connect(home.path().join("parhelia.sock")).unwrap();
        let garbage: Vec<u8> = match round % 4 {
            0 => (0..4096).map(|_| byte()).collect(),
            1 => {
                b"POST /api/v1/containers HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n"
                    .to_vec()
            }
            2 => b"GET / HTTP/9.9\r\n\r\n\0\0\0".to_vec(),
            _ => b"POST /api/v1/heartbeats HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
                .to_vec(),
        };
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        // Half a request, and gone.
        let mut cut = UnixStream::connect(home.path().join("parhelia.sock")).unwrap();
        let _ = cut.write_all(b"POST /api/v1/containers HTTP/1.1\r\ncontent-length: 500\r\n\r\n{\"command\"");
    }
    lives(&home);
    assert_eq!(home.json(&["containers", "list", "--all"]), json!([]));
}

fn over_tcp(address: &str, path: &str, headers: &[&str]) -> Reply {
    exchange_whole(TcpStream::connect(address).unwrap(), "GET", path, None, headers).expect("an answer")
}

#[test]
fn tcp_wants_the_token() {
    let home = Home::new();
    let _server = home.up(&["--listen", "127.0.0.1:0"]);
    let (_, info) = home.api("GET", "/api/v1/server", None);
    let address = info["listen"].as_str().expect("it listens").to_owned();
    eventually("it says where", || home.log().contains(&format!("http://{address}")).then_some(()));
    let file = home.path().join("admin.token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(token.len(), 64);

    for path in ["/api/v1/containers", "/api/v1/server", "/api/v1/events"] {
        let wrong = format!("authorization: Bearer {}", "0".repeat(64));
        let cut = format!("authorization: Bearer {}", &token[..63]);
        for headers in [&[][..], &[wrong.as_str()], &[cut.as_str()], &["authorization: Basic YTpi"]] {
            let reply = over_tcp(&address, path, headers);
            is_problem(&reply, 401, &["Bearer", "admin.token"]);
            assert!(reply.head.contains("www-authenticate: bearer"), "{reply:?}");
            assert!(!reply.body.contains(&token));
        }
        let right = format!("authorization: Bearer {token}");
        assert_eq!(over_tcp(&address, path, &[&right]).status, 200);
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(over_tcp(&address, path, &[]).status, 200);
    }

    let remote = |name: &str, value: &str| -> Said {
        let mut command = home.command(&["info", "-o", "json"]);
        command.env("PARHELIA_HOME", "/nonexistent").env("PARHELIA_URL", format!("http://{address}"));
        command.env(name, value).output().unwrap().into()
    };
    let told: Value = serde_json::from_str(&remote("PARHELIA_TOKEN", &token).out).unwrap();
    assert_eq!(told["instance_id"], info["instance_id"]);
    assert_eq!(remote("PARHELIA_TOKEN_FILE", file.to_str().unwrap()).code, 0);
    for said in [remote("PARHELIA_TOKEN", "wrong"), remote("PARHELIA_TOKEN", "")] {
        assert_eq!(said.code, 4, "{said:?}");
        let error: Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!(error["code"], "unauthorized");
    }
    let mut nobody = home.command(&["containers"]);
    nobody.env("PARHELIA_URL", "http://127.0.0.1:1").env("PARHELIA_TOKEN", &token);
    fails(&nobody.output().unwrap().into(), 1, &["no server answers at http://127.0.0.1:1", "PARHELIA_URL"]);
}

#[test]
fn the_address_can_be_configured_and_is_never_beyond_loopback() {
    let home = Home::with_config("[server]\nlisten = '127.0.0.1:0'\n");
    let server = home.up(&[]);
    let (_, info) = home.api("GET", "/api/v1/server", None);
    let address = info["listen"].as_str().unwrap().to_owned();
    assert_eq!(over_tcp(&address, "/livez", &[]).status, 200);
    drop(server);

    for listen in ["0.0.0.0:0", "[::]:0"] {
        let said: Said = home.command(&["up", "--listen", listen]).output().unwrap().into();
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("reachable from other machines"), "{said:?}");
        assert!(said.err.contains("loopback"), "{said:?}");
    }
    home.configure("[server]\nlisten = 'everywhere'\n");
    let said = home.run(&["up"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("everywhere") && said.err.contains("127.0.0.1:7717"), "{said:?}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    home.configure("");
    let said = home.run(&["up", "--listen", &address]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains(&address) && said.err.contains("choose another port"), "{said:?}");
    // Nothing of those attempts is in the way of the next one.
    assert!(parhelia().exists());
    eventually("a server starts", || home.run(&["info"]).out.contains("Server").then_some(()));
}

#[test]
fn what_a_session_is_started_with_is_looked_at_before_it_begins() {
    let home = Home::new();
    let _server = home.up(&[]);
    let path = "/api/v1/sessions";
    let with = |more: Value| {
        let mut request =
            json!({ "cascade": { "cascade_id": "c", "phases": [{ "name": "a", "run": "true" }] } });
        for (key, value) in more.as_object().unwrap() {
            request[key] = value.clone();
        }
        request.to_string()
    };
    refused(&home, "POST", path, &with(json!({ "name": "" })), 422, &["name"]);
    refused(&home, "POST", path, &with(json!({ "name": "sess-mine" })), 422, &["begin with 'sess-'"]);
    refused(
        &home,
        "POST",
        path,
        &with(json!({ "env": { "PARHELIA_X": "1" } })),
        422,
        &["PARHELIA_X", "begin with"],
    );
    let agent = json!({ "cascade_id": "c", "phases": [
        { "name": "a", "run": "true" },
        { "name": "b", "agent": { "engine": "moonshine", "prompt": "x" } },
    ]});
    refused(
        &home,
        "POST",
        path,
        &json!({ "cascade": agent }).to_string(),
        422,
        &["moonshine", "claude-code"],
    );
    let text = |bytes: usize| {
        let long = format!("cascade_id: c\nphases: [{{name: a, run: 'true'}}]\n# {}\n", "\"".repeat(bytes));
        json!({ "text": long }).to_string()
    };
    // Whoever still sends hears why nobody listens any more.
    refused(&home, "POST", path, &text(20 << 20), 413, &["larger", "max_body_bytes"]);
    refused(&home, "POST", "/api/v1/containers", &text(8 << 20), 413, &["larger", "max_body_bytes"]);
    let (status, listed) = home.api("GET", path, None);
    assert_eq!((status, listed["sessions"].as_array().map(Vec::len)), (200, Some(0)), "{listed}");
    let whole = ask(&home, "POST", path, Some(&text((8 << 20) - 100)), &[]);
    assert_eq!(whole.status, 201, "a file of 8 MiB: {}", whole.body);
    lives(&home);
}
