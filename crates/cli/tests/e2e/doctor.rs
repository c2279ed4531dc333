//! `parhelia doctor`: green on a healthy home, and every trouble shown with its fix and a non-zero exit.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::disk::{Disk, mount};
use crate::doors::{listening, secret};
use crate::harness::{Home, Said, eventually, parhelia, text};

fn report(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("no report ({e}): {said:?}"))
}

fn check<'a>(report: &'a Value, area: &str) -> &'a Value {
    let all = report["checks"].as_array().unwrap();
    all.iter().find(|c| c["area"] == area).unwrap_or_else(|| panic!("no check of {area}: {report}"))
}

/// The doctor says that this is wrong, how to mend it, and ends with 1.
fn unwell(said: &Said, area: &str, found: &str, fix: &str) {
    let report = report(said);
    let check = check(&report, area);
    assert_eq!((said.code, text(check, "verdict")), (1, "error"), "{area}: {report}");
    assert!(text(check, "found").contains(found), "{check}");
    assert!(text(check, "fix").contains(fix), "{check}");
}

fn doctor(home: &Home) -> Said {
    home.run(&["doctor", "-o", "json"])
}

/// Nothing is wrong; where this machine is a container itself there may be warnings.
fn well(said: &Said) -> Value {
    let report = report(said);
    let errors: Vec<&Value> =
        report["checks"].as_array().unwrap().iter().filter(|c| c["verdict"] == "error").collect();
    assert!(said.code == 0 && errors.is_empty(), "{said:?}");
    report
}

#[test]
fn a_healthy_home_with_and_without_a_server() {
    let home = Home::new();
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let alone = well(&doctor(&home));
    assert!(text(check(&alone, "server"), "found").contains("none is running"), "{alone}");
    assert!(text(check(&alone, "store"), "found").contains("no database yet"), "{alone}");
    assert!(!home.path().join("parhelia.sock").exists(), "it starts no server");

    let server = home.up(&[]);
    home.start(&[], &["sleep", "600"]);
    let fine =
        ["configuration", "home", "disk", "disk writes", "clock", "listening", "supervisors", "limits"];
    // A disk that others use as well may be slow for a moment.
    let together = eventually("all is well", || {
        let report = well(&doctor(&home));
        fine.iter().all(|area| check(&report, area)["verdict"] == "ok").then_some(report)
    });
    assert!(text(check(&together, "server"), "found").contains("client and server are"), "{together}");
    assert!(text(check(&together, "store"), "found").contains("journal wal"), "{together}");
    assert!(text(check(&together, "provider process"), "found").starts_with("1 sandboxes"), "{together}");
    let left = std::fs::read_dir(home.path()).unwrap().flatten();
    let left: Vec<_> = left.filter(|e| e.file_name().to_string_lossy().starts_with(".doctor")).collect();
    assert!(left.is_empty(), "it leaves nothing behind: {left:?}");
    let screen = home.run(&["doctor"]);
    assert!(screen.code == 0 && screen.out.contains(" 0 errors, "), "{screen:?}");

    // After a server has gone its store is looked at from outside.
    drop(server);
    let after = well(&doctor(&home));
    assert!(text(check(&after, "store"), "found").contains("schema"), "{after}");
}

#[test]
fn a_wrong_configuration_and_a_home_that_others_may_read() {
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 0\n");
    unwell(&doctor(&home), "configuration", "poll_interval_seconds = 0 is out of range", "configuration.md");
    home.configure("[reconciler\n");
    let said = doctor(&home);
    unwell(&said, "configuration", "parhelia.toml: TOML parse error", "configuration.md");
    let report = report(&said);
    assert!(text(check(&report, "store"), "found").contains("not looked at"), "{report}");
    home.configure("");
    let mode = |mode| std::fs::set_permissions(home.path(), PermissionsExt::from_mode(mode)).unwrap();
    mode(0o755);
    unwell(&doctor(&home), "home", "has mode 755", "chmod 700");
    mode(0o700);
    let _server = home.up(&[]);
    let token = home.path().join("admin.token");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).unwrap();
    unwell(&doctor(&home), "home", "admin.token has mode 644", "chmod 600");
}

#[test]
fn a_full_disk_and_one_that_cannot_be_written() {
    let disk = Disk::new(24, "");
    let server = disk.up(&[]);
    disk.start(&[], &["sleep", "600"]);
    well_but_small(&doctor(&disk));
    disk.fill();
    unwell(&doctor(&disk), "disk writes", "cannot be written", "make room");
    unwell(&doctor(&disk), "disk", "0 KB of 24.0 MB free", "larger disk");
    std::fs::remove_file(disk.path().join("filler")).unwrap();
    eventually("it is well again", || Some(doctor(&disk)).filter(|said| said.code == 0));
    server.kill();

    let path = disk.path().to_str().unwrap();
    mount(&["--bind", path, path]);
    mount(&["-o", "remount,ro,bind", path]);
    let said = doctor(&disk);
    let done = Command::new("umount").arg(path).status().unwrap();
    assert!(done.success());
    unwell(&said, "disk writes", "cannot be written", "mount the disk of the home writable");
}

/// On 24 MB the rest may be scarce, but nothing fails.
fn well_but_small(said: &Said) {
    let report = report(said);
    assert_eq!(text(check(&report, "disk writes"), "verdict"), "ok", "{report}");
}

#[test]
fn an_engine_that_is_away() {
    let home = Home::new();
    let socket = home.path().join("no-such.sock");
    home.configure(&format!("[docker]\nenabled = true\nhost = 'unix://{}'\n", socket.display()));
    unwell(&doctor(&home), "provider docker", "does not answer", "start the engine");
    let _server = home.up(&[]);
    unwell(&doctor(&home), "provider docker", "no-such.sock", "docker.enabled = false");
}

#[test]
fn a_damaged_store_and_a_newer_one() {
    let home = Home::new();
    drop(home.up(&[]));
    let database = home.path().join("parhelia.sqlite3");
    home.sqlite().pragma_update(None, "user_version", 999).unwrap();
    unwell(&doctor(&home), "store", "schema version 999", "do what it says");
    std::fs::remove_file(home.path().join("parhelia.sqlite3-wal")).ok();
    std::fs::write(&database, "not a database, but long enough to be taken for one".repeat(50)).unwrap();
    unwell(&doctor(&home), "store", "cannot be used", "do what it says");
}

#[test]
fn a_server_elsewhere_is_asked_about_itself_without_its_secrets() {
    let home = Home::new();
    let (server, address) = listening(&home, &[]);
    let viewer = secret(&home, "ann", "viewer", &[]);
    let ask = |token: &str| -> Said {
        let mut command = Command::new(parhelia());
        command.args(["doctor", "-o", "json", "--url", &format!("http://{address}")]);
        command
            .env("PARHELIA_TOKEN", token)
            .env("NO_COLOR", "1")
            .env_remove("PARHELIA_HOME")
            .output()
            .unwrap()
            .into()
    };
    let said = ask(&viewer);
    let remote = well(&said);
    assert!(text(check(&remote, "listening"), "found").contains("other machines cannot reach"), "{remote}");
    assert!(text(check(&remote, "tokens"), "found").starts_with("1 hold"), "{remote}");
    let admin = std::fs::read_to_string(home.path().join("admin.token")).unwrap();
    assert!(!said.out.contains(&viewer) && !said.out.contains(admin.trim()));
    let refused = ask("ptk_nobody");
    unwell(&refused, "server", "the token is not known", "tokens create");
    let (status, _) = home.api("GET", "/api/v1/doctor", None);
    assert_eq!(status, 200);
    drop(server);
    let gone = ask(&viewer);
    assert_eq!((gone.code, text(check(&report(&gone), "server"), "verdict")), (1, "error"), "{gone:?}");
}

#[test]
fn a_certificate_that_ends_soon_and_a_door_without_one() {
    let home = Home::new();
    let [cert, key] = ["server.pem", "server.key"].map(|name| home.path().join(name).display().to_string());
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "3",
        ])
        .args(["-subj", "/CN=localhost", "-keyout", &key, "-out", &cert])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    home.configure(&format!("[server]\ntls_cert = '{cert}'\ntls_key = '{key}'\n"));
    let warned = report(&doctor(&home));
    let certificate = check(&warned, "certificate");
    assert_eq!(text(certificate, "verdict"), "warning", "{warned}");
    assert!(text(certificate, "found").contains("expires in 2d"), "{certificate}");
    home.configure("");
    let server = home.up(&["--listen", "0.0.0.0:0", "--insecure-listen"]);
    let open = report(&doctor(&home));
    assert_eq!(text(check(&open, "listening"), "verdict"), "warning", "{open}");
    assert!(text(check(&open, "listening"), "fix").contains("--tls-cert"), "{open}");
    drop(server);
}
