//! A disk that is full, and a disk that cannot be written: nothing acknowledged is lost, everything says what
//! to do, and all goes on when there is room again. The home is a small file system of its own, so these tests
//! need the right to mount one.

use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Home, eventually, processes_with, text};
use crate::metrics::scraped;

/// A home on a file system of its own.
pub(crate) struct Disk {
    home: Home,
    outside: tempfile::TempDir,
}

impl Deref for Disk {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Disk {
    pub(crate) fn new(megabytes: u32, config: &str) -> Self {
        let home = Home::new();
        let size = format!("size={megabytes}m,mode=700");
        mount(&["-t", "tmpfs", "-o", &size, "tmpfs", home.path().to_str().unwrap()]);
        home.configure(config);
        Self { home, outside: tempfile::tempdir().unwrap() }
    }

    /// A place that is not on the disk.
    fn outside(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes every byte that is left.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.filler()).unwrap();
        for size in [1 << 16, 4096, 512, 1] {
            while file.write_all(&vec![b'f'; size]).is_ok() {}
        }
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn jobs(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path().join("jobs")).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).filter(|name| name.len() == 36).collect()
    }
}

pub(crate) fn mount(args: &[&str]) {
    let done = Command::new("mount").args(args).status().unwrap();
    assert!(done.success(), "this test needs to mount a file system (mount {args:?}): run it as root");
}

impl Drop for Disk {
    /// Ends what runs on it while it is still there, then takes it away.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.filler());
        let _ = self.home.try_http("POST", "/api/v1/server/shutdown", None);
        let jobs = self.jobs();
        for job in &jobs {
            let stop = self.path().join("jobs").join(job).join(".stop");
            let _ = std::fs::write(stop, r#"{"graceSeconds":0}"#);
        }
        for _ in 0..500 {
            if jobs.iter().all(|job| processes_with(&format!("PARHELIA_SUPERVISES={job}")).is_empty()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// One numbered heartbeat, large enough to fill a log soon. True when it was acknowledged.
fn beat(disk: &Disk, id: &str, number: u64) -> Result<(), Value> {
    let sample = json!({ "metadata": { "number": number, "ballast": "b".repeat(3000) } });
    match disk.api("POST", &format!("/api/v1/containers/{id}/heartbeats"), Some(sample)) {
        (200, _) => Ok(()),
        (503, problem) => Err(problem),
        (status, problem) => panic!("{status}: {problem}"),
    }
}

fn stored(disk: &Disk, id: &str) -> Vec<u64> {
    let (status, history) = disk.api("GET", &format!("/api/v1/containers/{id}/heartbeats?limit=10000"), None);
    assert_eq!(status, 200, "{history}");
    let beats = history["heartbeats"].as_array().unwrap();
    beats.iter().filter_map(|b| b["metadata"]["number"].as_u64()).collect()
}

#[test]
fn a_full_disk_refuses_clearly_loses_nothing_and_goes_on() {
    let disk = Disk::new(24, "[reconciler]\npoll_interval_seconds = 1\n");
    let _server = disk.up(&[]);
    let quiet = disk.start(&[], &["sleep", "600"]);
    // It writes 4 MB when it is told to, and says so outside of the disk.
    let (gate, done) = (disk.outside("gate"), disk.outside("done"));
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; head -c 4000000 /dev/zero | tr '\\0' x; touch {}; sleep 600",
        gate.display(),
        done.display()
    );
    let loud = disk.start(&[], &["sh", "-c", &script]);
    disk.until_seen(&loud, "health", "healthy");

    disk.fill();
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    let mut number = 0;
    let problem = loop {
        number += 1;
        assert!(number < 5000, "a full disk must refuse at last");
        match beat(&disk, &quiet, number) {
            Ok(()) => acknowledged.push(number),
            Err(problem) => {
                refused.push(number);
                break problem;
            }
        }
    };
    assert!(text(&problem, "detail").contains("is full"), "{problem}");
    assert!(text(&problem, "fix").contains("free some space"), "{problem}");
    let run = json!({ "command": ["true"] });
    let (status, problem) = eventually("a new sandbox is refused", || {
        Some(disk.api("POST", "/api/v1/containers", Some(run.clone()))).filter(|(status, _)| *status != 201)
    });
    assert_eq!(status, 503, "{problem}");
    assert!(text(&problem, "detail").contains("is full"), "{problem}");
    let said = disk.run(&["containers", "run", "--", "true"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.err.contains("is full") && said.err.contains("try again"), "{said:?}");
    // A write that is small enough may still fit, and then it is ready for that long.
    eventually("it is not ready", || (disk.http("GET", "/readyz", None).0 == 503).then_some(()));
    assert_eq!(disk.http("GET", "/livez", None).0, 200);
    let scrape = eventually("a scrape tells it", || {
        Some(scraped(&disk)).filter(|scrape| scrape.get("store_up", &[]) == Some(0.0))
    });
    assert!(scrape.get("heartbeat_write_failures", &[]) >= Some(1.0), "{scrape:?}");
    assert!(scrape.get("store_write_failures", &[]) >= Some(1.0), "{scrape:?}");
    assert_eq!(scrape.get("containers", &[]), None, "nothing is claimed of the fleet");
    assert_eq!(disk.seen(&quiet)["state"], "running", "what is known can be read");
    assert!(!disk.ok(&["containers", "events", &quiet]).is_empty());

    std::fs::write(&gate, "").unwrap();
    eventually("the command has written all and was not held up", || done.exists().then_some(()));
    disk.free();
    eventually("heartbeats are taken again", || {
        number += 1;
        match beat(&disk, &quiet, number) {
            Ok(()) => {
                acknowledged.push(number);
                Some(())
            }
            Err(_) => {
                refused.push(number);
                None
            }
        }
    });
    assert_eq!(disk.http("GET", "/readyz", None).0, 200);
    let kept = stored(&disk, &quiet);
    assert_eq!(kept, acknowledged, "what was acknowledged is there, and what was refused is not");

    let log = eventually("the loss is marked", || {
        Some(disk.ok(&["containers", "logs", &loud])).filter(|log| log.contains(" bytes lost]"))
    });
    let mark = log.lines().find(|line| line.ends_with(" bytes lost]")).unwrap();
    let lost: usize = mark.trim_start_matches('[').split(' ').next().unwrap().parse().unwrap();
    let written = log.bytes().filter(|b| *b == b'x').count();
    assert!(lost > 1_000_000, "{mark}");
    assert_eq!(written + lost, 4_000_000, "every byte is there or counted as lost");

    let after = disk.ok(&["containers", "run", "--wait", "-q", "--", "true"]);
    assert_eq!(disk.seen(after.trim())["exit_code"], 0);
    for id in [&quiet, &loud] {
        disk.ok(&["containers", "terminate", "--force", "--yes", id]);
    }
    let starts = disk.all_seen().iter().filter(|c| c["state"] == "terminated").count();
    assert_eq!(starts, disk.all_seen().len(), "everything has ended as it was asked to");
}

#[test]
fn a_sandbox_that_ends_on_a_full_disk_keeps_its_exit_code() {
    let disk = Disk::new(16, "");
    let server = disk.up(&[]);
    let gate = disk.outside("gate");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; exit 7", gate.display());
    let id = disk.start(&[], &["sh", "-c", &script]);
    let result = disk.job_dir(&disk.seen(&id)).join("result.json");
    server.kill();
    disk.fill();
    std::fs::write(&gate, "").unwrap();
    eventually("its end is on the disk, whose space was reserved", || {
        std::fs::read_to_string(&result).ok().filter(|text| text.contains('7')).map(|_| ())
    });
    // A server cannot begin there; it says why, and harms nothing.
    let said = disk.run(&["up"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("full") || said.err.contains("No space left"), "{said:?}");
    disk.free();
    let _server = disk.up(&[]);
    let ended = disk.until_seen(&id, "state", "terminated");
    assert_eq!((ended["exit_code"].as_i64(), text(&ended, "termination_reason")), (Some(7), "failed"));
}

/// A read-only view over a directory: what is open stays open, nothing new can be made.
pub(crate) struct ReadOnly(PathBuf);

impl ReadOnly {
    pub(crate) fn over(path: &Path) -> Self {
        let view = Self(path.to_owned());
        let path = path.to_str().unwrap();
        mount(&["--bind", path, path]);
        mount(&["-o", "remount,ro,bind", path]);
        view
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_read_only_disk_is_named_and_reading_goes_on() {
    let disk = Disk::new(24, "");
    let server = disk.up(&[]);
    let id = disk.start(&[], &["sh", "-c", "echo hello; sleep 600"]);
    disk.until_seen(&id, "health", "healthy");
    {
        let _view = ReadOnly::over(disk.path());
        let said = disk.run(&["containers", "run", "--", "true"]);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        assert!(said.err.contains("Read-only file system"), "{said:?}");
        assert!(said.err.contains("check the space on that disk and who owns the home"), "{said:?}");
        assert_eq!(disk.container(&id)["state"], "running");
        assert_eq!(disk.ok(&["containers", "logs", &id]), "hello\n");
        assert!(disk.ok(&["containers"]).contains(&id));
    }
    disk.ok(&["containers", "run", "--wait", "--", "true"]);
    server.kill();

    // Now nobody has anything open: the whole file system can change.
    disk.ok(&["containers", "terminate", "--force", "--yes", &id]);
    let before = disk.all_seen();
    disk.ok(&["down"]);
    let path = disk.path().to_str().unwrap();
    eventually("nothing writes there any more", || {
        Command::new("mount").args(["-o", "remount,ro", path]).status().unwrap().success().then_some(())
    });
    for args in [&["up"][..], &["containers"]] {
        let said = disk.run(args);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        assert!(
            said.err.contains("Read-only file system") || said.err.contains("cannot be written"),
            "{said:?}"
        );
        assert!(
            said.err.contains("PARHELIA_HOME")
                || said.err.contains("--home")
                || said.err.contains("writable")
        );
    }
    mount(&["-o", "remount,rw", path]);
    let _server = disk.up(&[]);
    let ids =
        |views: &[Value]| views.iter().map(|v| (v["id"].clone(), v["state"].clone())).collect::<Vec<_>>();
    assert_eq!(ids(&disk.all_seen()), ids(&before));
    disk.ok(&["containers", "run", "--wait", "--", "true"]);
}

#[test]
fn output_is_kept_up_to_its_limit_and_what_is_gone_is_counted() {
    let home = Home::with_config("[process]\noutput_rotate_bytes = 65536\n");
    let _server = home.up(&[]);
    let id = home.start(&[], &["sh", "-c", "seq -f %09.0f 100000"]);
    home.until_seen(&id, "state", "terminated");
    let said = home.run(&["containers", "logs", &id]);
    assert_eq!(said.code, 0, "{}", said.err);
    let gone = said.err.trim().strip_prefix('[').and_then(|rest| rest.split(' ').next());
    let gone: usize = gone.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{}", said.err));
    assert!(said.err.contains("bytes are no longer kept"), "{}", said.err);
    assert_eq!(gone + said.out.len(), 1_000_000, "every byte is there or said to be gone");
    assert!((3 * 65_536..=6 * 65_536).contains(&said.out.len()), "{}", said.out.len());
    let whole: String = (1..=100_000).map(|n| format!("{n:09}\n")).collect();
    assert!(said.out == whole[gone..], "the rest is the end, without a gap");
    let files = std::fs::read_dir(home.job_dir(&home.seen(&id))).unwrap().flatten();
    let large = files.filter(|f| f.metadata().unwrap().len() > 65_536).count();
    assert_eq!(large, 0, "no file is larger than the limit");
}
