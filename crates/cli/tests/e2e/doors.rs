//! The doors: who may come in and what for, and that nobody can hold them open or shut.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use parhelia_core::access::{Access, Role};
use serde_json::{Value, json};

use crate::harness::{Home, PATIENCE, Server, eventually, exchange, exchange_whole, text};

/// A server with a TCP address, and the address.
pub(crate) fn listening(home: &Home, args: &[&str]) -> (Server, String) {
    let server = home.up(&[&["--listen", "127.0.0.1:0"], args].concat());
    let (_, info) = home.api("GET", "/api/v1/server", None);
    (server, text(&info, "listen").to_owned())
}

/// A stream has no end: it is waited for, and then read until it falls silent.
struct Endless {
    stream: TcpStream,
    began: bool,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let patience = if self.began { Duration::from_millis(300) } else { PATIENCE };
        self.stream.set_read_timeout(Some(patience))?;
        let got = self.stream.read(into)?;
        self.began = true;
        Ok(got)
    }
}

impl Write for Endless {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

pub(crate) fn call(
    address: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&str>,
) -> (u16, Value) {
    let stream = TcpStream::connect(address).unwrap();
    let bearer = token.map(|t| format!("authorization: Bearer {t}"));
    let headers: Vec<&str> = bearer.iter().map(String::as_str).collect();
    let answer = if path.ends_with("/stream") {
        exchange(Endless { stream, began: false }, method, path, body, &headers)
    } else {
        exchange(stream, method, path, body, &headers)
    };
    let (status, body) = answer.expect("an answer");
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

pub(crate) fn secret(home: &Home, subject: &str, role: &str, more: &[&str]) -> String {
    home.ok(&[&["tokens", "create", subject, "--role", role], more].concat()).trim().to_owned()
}

/// Every operation of the document: method, path, what it asks for.
fn operations(home: &Home) -> Vec<(String, String, Access)> {
    let (status, document) = home.api("GET", "/api/openapi.json", None);
    assert_eq!((status, document["openapi"].as_str()), (200, Some("3.1.0")));
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let access = text(operation, "x-parhelia-access").parse().unwrap();
            all.push((method.to_uppercase(), path.clone(), access));
        }
    }
    assert!(all.len() >= 25, "{all:?}");
    all
}

#[test]
fn a_token_of_each_role_is_held_against_each_route() {
    let home = Home::new();
    let (_server, address) = listening(&home, &[]);
    let own = home.start(&[], &["sleep", "600"]);
    let other = home.start(&[], &["sleep", "600"]);
    let mut tokens: BTreeMap<Role, String> = BTreeMap::new();
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        tokens.insert(role, secret(&home, &format!("the-{role}"), role.as_str(), &[]));
    }
    tokens.insert(Role::Worker, secret(&home, "the-worker", "worker", &["--container", &own]));
    for (method, path, access) in operations(&home) {
        // A container that exists, so that a worker's is its own; of everything else one that does not, so that
        // nothing is really changed by those who may.
        let about = |id: &str| path.replace("{id}", id);
        let roots = ["/api/v1/containers/{id}", "/api/v1/why/{id}"];
        let of_container = roots.iter().any(|root| path.starts_with(root));
        let stranger = if of_container { other.as_str() } else { "c-none0000" };
        let ends = ["/stop", "/terminate", "/shutdown"].iter().any(|end| path.ends_with(end));
        for (role, token) in &tokens {
            let may = role.may(access);
            if ends && may {
                continue;
            }
            let place = about(if *role == Role::Worker && of_container { &own } else { stranger });
            let (status, problem) = call(&address, &method, &place, Some(token), None);
            let refused = status == 403;
            assert_eq!(refused, !may, "{role} at {method} {place} ({access}): {status} {problem}");
            assert_ne!(status, 401, "{role} at {method} {place}");
            if refused {
                assert_eq!(text(&problem, "code"), "forbidden");
                assert!(text(&problem, "fix").contains("tokens create"), "{problem}");
            }
        }
        if of_container {
            let (status, _) = call(&address, &method, &about(&other), Some(&tokens[&Role::Worker]), None);
            assert_eq!(status, 403, "a worker about another's: {method} {path}");
        }
        for bad in [None, Some("ptk_nobody"), Some("")] {
            let (status, _) = call(&address, &method, &about("c-none0000"), bad, None);
            let open = access == Access::Public;
            assert_eq!(status == 401, !open, "{method} {path} with {bad:?}: {status}");
        }
    }
    // Whoever was turned away is in the history, and no secret is anywhere in it.
    let told = eventually("refusals are told", || {
        let told = home.told("access_refused");
        told.iter().any(|e| e["details"]["subject"] == "the-worker").then_some(told)
    });
    let whole = serde_json::to_string(&told).unwrap();
    assert!(tokens.values().all(|secret| !whole.contains(secret.as_str())));
    assert!(told.iter().any(|e| text(&e["details"], "reason").contains("a token is needed")), "{told:?}");
    // Heartbeats in a batch are looked at one by one.
    let batch = json!({"heartbeats": [{"container_id": own}, {"container_id": other}]}).to_string();
    let token = Some(tokens[&Role::Worker].as_str());
    let (status, receipt) = call(&address, "POST", "/api/v1/heartbeats", token, Some(&batch));
    assert_eq!((status, receipt["accepted"].as_i64()), (200, Some(1)), "{receipt}");
    assert_eq!(receipt["rejected"][0]["code"], "not_yours");
}

#[test]
fn a_token_is_shown_once_holds_until_its_end_and_is_nowhere_in_the_home() {
    let home = Home::new();
    let (server, address) = listening(&home, &[]);
    let ci = secret(&home, "ci", "viewer", &[]);
    let brief = secret(&home, "brief", "viewer", &["--expires", "1s"]);
    let look = |token: &str| call(&address, "GET", "/api/v1/containers", Some(token), None).0;
    assert_eq!(look(&ci), 200);
    eventually("it has expired", || (look(&brief) == 401).then_some(()));
    let used = eventually("its use is noted", || {
        let all = home.json(&["tokens", "list"]);
        let one = all.as_array().unwrap().iter().find(|t| t["subject"] == "ci").cloned().unwrap();
        one["last_used_at"].is_string().then_some(one)
    });
    assert!(home.ok(&["tokens", "list"]).contains("expired"));
    // By the command line too: a client with this token looks, and may not start anything.
    let url = format!("http://{address}");
    let as_ci = |args: &[&str]| {
        let mut command = home.command(args);
        let output = command.env("PARHELIA_URL", &url).env("PARHELIA_TOKEN", &ci).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(as_ci(&["containers"]).0, 0);
    let (code, said) = as_ci(&["containers", "run", "--", "true"]);
    assert!(code == 4 && said.contains("needs operator"), "{code} {said}");

    let id = text(&used, "id");
    assert!(home.ok(&["tokens", "revoke", id]).contains("Revoked"));
    assert_eq!(look(&ci), 401);
    assert_eq!(home.run(&["tokens", "revoke", id]).code, 0, "once more changes nothing");
    assert_eq!(home.run(&["tokens", "revoke", "tok-none00"]).code, 3);
    assert_eq!(home.run(&["tokens", "create", " ", "--role", "viewer"]).code, 2);
    assert_eq!(
        home.run(&["tokens", "create", "w", "--role", "worker"]).code,
        2,
        "a worker of which container?"
    );
    assert_eq!((home.told("token_created").len(), home.told("token_revoked").len()), (2, 1));
    // The same through the API.
    let (status, made) = home.api("POST", "/api/v1/tokens", Some(json!({"subject": "api", "role": "admin"})));
    assert!(status == 201 && text(&made, "secret").starts_with("ptk_"), "{made}");
    let id = text(&made, "id");
    let (_, all) = home.api("GET", "/api/v1/tokens", None);
    assert!(
        all["tokens"].as_array().unwrap().iter().any(|t| t["id"] == id && t["secret"].is_null()),
        "{all}"
    );
    let (status, gone) = home.api("POST", &format!("/api/v1/tokens/{id}/revoke"), None);
    assert!(status == 200 && gone["revoked_at"].is_string(), "{gone}");
    // A token outlives its server, and its revocation does too.
    let stays = secret(&home, "stays", "operator", &[]);
    server.kill();
    let (_server, address) = listening(&home, &[]);
    let look = |token: &str| call(&address, "GET", "/api/v1/containers", Some(token), None).0;
    assert_eq!((look(&stays), look(&ci)), (200, 401));
    let found =
        Command::new("grep").args(["-rla", "-e", &ci, "-e", &stays]).arg(home.path()).output().unwrap();
    assert!(found.stdout.is_empty(), "a secret was kept: {}", String::from_utf8_lossy(&found.stdout));
}

/// For this machine, signed by itself.
fn certificate(home: &Home) -> (PathBuf, PathBuf) {
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    (cert, key)
}

#[test]
fn beyond_this_machine_only_with_tls_or_when_told_so() {
    let home = Home::new();
    let refused = home.run(&["up", "--listen", "0.0.0.0:0"]);
    assert!(refused.code == 2 && refused.err.contains("--tls-cert"), "{refused:?}");
    let (cert, key) = certificate(&home);
    let (cert_text, key_text) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let swapped = home.run(&["up", "--listen", "0.0.0.0:0", "--tls-cert", key_text, "--tls-key", cert_text]);
    assert!(swapped.code == 2 && swapped.err.contains("key.pem"), "{swapped:?}");
    let half = home.run(&["up", "--listen", "0.0.0.0:0", "--tls-cert", cert_text]);
    assert_eq!(half.code, 2, "{half:?}");

    home.configure(&format!("[server]\ntls_cert = '{cert_text}'\ntls_key = '{key_text}'\n"));
    let server = home.up(&["--listen", "0.0.0.0:0"]);
    let (_, info) = home.api("GET", "/api/v1/server", None);
    let port = text(&info, "listen").rsplit(':').next().unwrap().to_owned();
    let token = secret(&home, "far", "viewer", &[]);
    let far = |trust: &str| {
        let mut command = home.command(&["containers", "-o", "json"]);
        command.env("PARHELIA_URL", format!("https://localhost:{port}")).env("PARHELIA_TOKEN", &token);
        command.env("SSL_CERT_FILE", trust).output().unwrap()
    };
    let seen = far(cert_text);
    assert!(seen.status.success(), "{seen:?}");
    let distrusted = far("/dev/null");
    assert!(!distrusted.status.success(), "a certificate that nobody vouches for must not do");
    // Plain text gets no answer that means anything, and a silent client holds nobody up.
    let mut plain = TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    drop(server);
    home.configure("[server]\ninsecure_listen = true\n");
    drop(home.up(&["--listen", "0.0.0.0:0"]));
    home.configure("");
    drop(home.up(&["--listen", "0.0.0.0:0", "--insecure-listen"]));
}

#[test]
fn a_server_that_waits_for_its_database_says_so_through_tls_too() {
    let home = Home::new();
    let (cert, key) = certificate(&home);
    let (cert, key) = (cert.display(), key.display());
    home.configure(&format!(
        "[server]\ntls_cert = '{cert}'\ntls_key = '{key}'\ndatabase_url = 'postgres://nobody@127.0.0.1:1/none'\n"
    ));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _server = home.up_at_once(&["--listen", &format!("127.0.0.1:{port}")]);
    let said = eventually("it answers through TLS", || {
        let mut command = home.command(&["containers"]);
        command.env("PARHELIA_URL", format!("https://localhost:{port}")).env("PARHELIA_TOKEN", "none");
        let said = command.env("SSL_CERT_FILE", cert.to_string()).output().unwrap();
        let told = String::from_utf8_lossy(&said.stderr).into_owned();
        told.contains("waits for its database").then_some(told)
    });
    assert!(said.contains("goes on by itself"), "{said}");
}

#[test]
fn slow_and_greedy_clients_cannot_hold_the_server() {
    let home = Home::with_config(
        "[server]\nmax_connections = 8\nclient_patience_seconds = 1\nmax_requests_per_second = 1\n",
    );
    let (_server, address) = listening(&home, &[]);
    let token = secret(&home, "greedy", "viewer", &[]);
    // Eight that say nothing take all the places; the ninth is told so; and they lose them again.
    let (silent, told) = eventually("one too many is told", || {
        let silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&address).unwrap()).collect();
        let stream = TcpStream::connect(&address).unwrap();
        let told = exchange_whole(stream, "GET", "/livez", None, &[]).filter(|reply| reply.status == 503)?;
        Some((silent, told))
    });
    assert!(told.head.contains("retry-after") && told.body.contains("max_connections"), "{told:?}");
    let livez = || TcpStream::connect(&address).ok().and_then(|s| exchange(s, "GET", "/livez", None, &[]));
    eventually("the places are free again", || livez().filter(|(status, _)| *status == 200));
    drop(silent);
    // The home's own socket is not part of it.
    assert_eq!(home.http("GET", "/livez", None).0, 200);
    // Faster than allowed: told when to come again, and another subject is not slowed by it.
    let statuses: Vec<u16> =
        (0..80).map(|_| call(&address, "GET", "/api/v1/server", Some(&token), None).0).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    let stream = TcpStream::connect(&address).unwrap();
    let bearer = format!("authorization: Bearer {token}");
    let reply = eventually("it is told when", || {
        let stream = stream.try_clone().ok().and(TcpStream::connect(&address).ok())?;
        exchange_whole(stream, "GET", "/api/v1/server", None, &[&bearer]).filter(|r| r.status == 429)
    });
    assert!(reply.head.contains("retry-after: 1") && reply.body.contains("too_fast"), "{reply:?}");
    let patient = secret(&home, "patient", "viewer", &[]);
    assert_eq!(call(&address, "GET", "/api/v1/server", Some(&patient), None).0, 200);
    // A client that never takes its answer is let go of: its place comes back.
    let lazy: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            // More answers than the buffers of both ends hold.
            let ask = b"GET /api/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(400);
            let _ = stream.write_all(&ask);
            stream
        })
        .collect();
    eventually("the places come back", || livez().filter(|(status, _)| *status == 200));
    drop(lazy);
}

#[test]
fn the_document_can_be_read_without_anything_from_elsewhere() {
    let home = Home::new();
    let _server = home.up(&[]);
    let (status, page) = home.http("GET", "/api/docs", None);
    assert_eq!(status, 200);
    assert!(page.contains("openapi.json") && !page.contains("http://") && !page.contains("https://"));
    let (_, document) = home.api("GET", "/api/openapi.json", None);
    assert!(document["components"]["schemas"]["ContainerView"].is_object());
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}

/// A schema-driven fuzzer that we did not write: no 5xx, and no answer that the document does not know.
#[test]
fn a_fuzzer_finds_no_answer_outside_the_document() {
    let home = Home::with_config("[server]\nmax_requests_per_second = 0\n");
    let (_server, address) = listening(&home, &[]);
    home.start(&[], &["sleep", "600"]);
    // The home's own: one that it made itself the fuzzer would revoke.
    let token = std::fs::read_to_string(home.path().join("admin.token")).unwrap();
    let token = token.trim();
    let examples = std::env::var("PARHELIA_SOAK_EXAMPLES").unwrap_or_else(|_| "20".to_owned());
    let mut fuzzer = Command::new(crate::harness::python().join("st"));
    fuzzer.arg("run");
    if std::env::var_os("PARHELIA_SOAK_EXAMPLES").is_none() {
        // The same requests each time; the soak makes others.
        fuzzer.arg("--generation-deterministic");
    }
    let output = fuzzer
        .args([&format!("http://{address}/api/openapi.json"), "--max-examples", &examples])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        // The one ends the server, the other never ends.
        .args(["--exclude-path", "/api/v1/server/shutdown", "--exclude-path", "/api/v1/events/stream"])
        // Not every rule of a value can be said in a schema; a refusal that the document knows is fine.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("No issues found") || said.contains("generated"), "{said}");
    assert_eq!(home.http("GET", "/readyz", None).0, 200, "{}", home.log());
}
