//! The built binary where no server is there, and none may be started: words, exit codes and streams.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn parhelia(home: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parhelia"));
    for variable in
        ["PARHELIA_URL", "PARHELIA_TOKEN", "PARHELIA_TOKEN_FILE", "PARHELIA_CONFIG", "PARHELIA_LOG"]
    {
        command.env_remove(variable);
    }
    command.args(arguments).env("PARHELIA_HOME", home).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

#[test]
fn down_and_version_start_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let down = parhelia(&home, &["down"]);
    assert_eq!(down.code, Some(0));
    assert!(down.stdout.starts_with("No server is running at"), "{}", down.stdout);
    let version = parhelia(&home, &["version", "--server"]);
    assert_eq!((version.code, version.stdout.contains("not running")), (Some(0), true));
    assert_eq!(parhelia(&home, &["version"]).stdout, format!("parhelia {}\n", env!("CARGO_PKG_VERSION")));
    assert!(!home.exists());
}

#[test]
fn wrong_usage_is_two_and_json_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["nonsense"][..],
        &["containers", "--state", "runing"],
        &["containers", "run"],
        &["cleanup"],
        &["containers", "show", " "],
        &["containers", "--all", "show", "c-1"],
    ] {
        let ran = parhelia(dir.path(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}\n{}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
        let ran = parhelia(dir.path(), &[&["-o", "json"], arguments].concat());
        let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!((ran.code, error["code"].as_str()), (Some(2), Some("usage")), "{}", ran.stderr);
    }
}

#[test]
fn a_home_that_is_too_deep_is_said_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("x".repeat(120));
    for command in ["containers", "up"] {
        let ran = parhelia(&home, &[command]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("fix: use a shorter PARHELIA_HOME"), "{}", ran.stderr);
    }
    assert!(!home.exists());
}

#[test]
fn a_remote_server_that_is_not_there_is_a_failure_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ran = parhelia(&home, &["--url", &url, "containers"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains(&format!("no server answers at {url}")), "{}", ran.stderr);
    assert!(!home.exists());
    assert_eq!(parhelia(&home, &["--url", "ftp://x", "containers"]).code, Some(2));
}

#[test]
fn a_wrong_configuration_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("parhelia.toml"), "[reconciler]\npoll_interval_seconds = 0\n").unwrap();
    let ran = parhelia(dir.path(), &["up"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("poll_interval_seconds = 0 is out of range"), "{}", ran.stderr);
    // A command that starts a server by itself shows why that failed.
    let ran = parhelia(dir.path(), &["containers"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("server.log") && ran.stderr.contains("is out of range"), "{}", ran.stderr);
}

#[test]
fn completions_and_manual_pages_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        assert!(parhelia(dir.path(), &["completions", shell]).stdout.contains("terminate"), "{shell}");
    }
    let pages = dir.path().join("man");
    assert_eq!(parhelia(dir.path(), &["man", pages.to_str().unwrap()]).code, Some(0));
    assert!(pages.join("parhelia.1").exists() && pages.join("parhelia-containers-run.1").exists());
}
