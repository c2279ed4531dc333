//! Output that rotates, and output that a full disk refuses.

use std::path::Path;
use std::process::Command;

use parhelia_core::sandbox::Phase;
use parhelia_core::state::TerminationReason;
use parhelia_providers::Provider;
use parhelia_providers::process::jobdir::{JobResult, read_json};

use crate::attach::{Attached, asking, with_stdin};
use crate::ground::*;

#[tokio::test]
async fn offsets_stay_true_across_rotations_while_reading() {
    let ground = Ground::rotating(10_000);
    // Slow enough that a reader which keeps up loses nothing.
    let spec = shell(
        "i=0; while [ $i -lt 400 ]; do seq -f 'line %06g of the output' 1 10; i=$((i+1)); sleep 0.005; done",
    );
    ground.provider.create(&spec).await.unwrap();
    let mut read = Vec::new();
    loop {
        let chunk = ground.provider.logs(&reference(&spec), read.len() as u64, 3_000).await.unwrap();
        assert_eq!(chunk.offset, read.len() as u64, "nothing was skipped");
        read.extend_from_slice(&chunk.bytes);
        assert_eq!(chunk.next_offset, read.len() as u64);
        if chunk.finished {
            break;
        }
    }
    let once: String = (1..=10).map(|n| format!("line {n:06} of the output\n")).collect();
    assert_eq!(String::from_utf8(read).unwrap(), once.repeat(400));

    let late = ground.provider.logs(&reference(&spec), 0, 1 << 20).await.unwrap();
    let total = once.len() as u64 * 400;
    assert_eq!(late.next_offset, total);
    assert!(late.offset > 0 && late.offset.is_multiple_of(10_000), "the beginning is gone: {}", late.offset);
    assert_eq!(late.bytes.len() as u64, total - late.offset);
    let segments = std::fs::read_dir(ground.dir(&spec).path()).unwrap().flatten();
    let aside = segments.filter(|e| e.file_name().to_string_lossy().starts_with("output.log.")).count();
    assert_eq!(aside, 4);
}

/// A file system of its own, as small as asked for.
#[derive(Debug)]
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn of_kib(kib: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={kib}k");
        let answer =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        let answer = answer.expect("the program mount");
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(answer.status.success(), "this test must be able to mount a tmpfs (run it as root): {said}");
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_neither_blocks_the_command_nor_loses_its_result() {
    let disk = SmallDisk::of_kib(1024);
    let ground = Ground::at(disk.path());
    let work = tempfile::tempdir().unwrap();
    let mut spec = shell("head -c 4000000 /dev/zero | tr '\\0' x; echo wrote >done; exit 5");
    spec.workdir = Some(work.path().to_str().unwrap().to_owned());
    ground.provider.create(&spec).await.unwrap();
    let exit = ground.ended(&spec).await;
    assert_eq!((exit.code, exit.reason), (Some(5), TerminationReason::Failed));
    assert!(work.path().join("done").exists());
    let result: JobResult = read_json(&ground.dir(&spec).result()).unwrap().unwrap();
    assert!(result.lost_bytes > 2_000_000, "{result:?}");
    assert_eq!(result.lost_bytes + result.output_bytes, 4_000_000, "every byte is in the log or counted");
    drop(ground);
}

#[tokio::test]
async fn when_there_is_space_again_the_loss_is_marked_in_its_place() {
    let disk = SmallDisk::of_kib(4096);
    let ground = Ground::at(disk.path());
    let ballast = disk.path().join("ballast");
    let work = tempfile::tempdir().unwrap();
    let mut spec = shell(
        "echo begin; while [ ! -e full ]; do sleep 0.02; done; head -c 2000000 /dev/zero | tr '\\0' x; echo >gone; \
         while [ ! -e free ]; do sleep 0.02; done; while [ ! -e stop ]; do echo tick; sleep 0.05; done; echo end",
    );
    spec.workdir = Some(work.path().to_str().unwrap().to_owned());
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "begin").await;
    // Fill what is left.
    let full = std::fs::write(&ballast, vec![0; 8 << 20]);
    assert!(full.is_err(), "the disk is full now");
    std::fs::write(work.path().join("full"), "").unwrap();
    let wrote = for_a_while(async || work.path().join("gone").exists()).await;
    assert!(wrote, "the command is never blocked");
    assert_eq!(ground.look(&spec).await.phase, Phase::Running);
    std::fs::remove_file(&ballast).unwrap();
    std::fs::write(work.path().join("free"), "").unwrap();
    ground.says(&spec, " bytes lost]\n").await;
    ground.says(&spec, "tick").await;
    std::fs::write(work.path().join("stop"), "").unwrap();
    ground.ended(&spec).await;
    let said = ground.output(&spec).await;
    assert!(said.starts_with("begin\nxxx") && said.ends_with("end\n"), "{}", said.len());
    let result: JobResult = read_json(&ground.dir(&spec).result()).unwrap().unwrap();
    assert!(said.contains(&format!("x\n[{} bytes lost]\n", result.lost_bytes)), "{result:?}");
    assert!(ground.log(&spec).contains("output.log can be written again"), "{}", ground.log(&spec));
    drop(ground);
}

#[tokio::test]
async fn whoever_is_attached_sees_on_while_the_disk_refuses() {
    let disk = SmallDisk::of_kib(1024);
    let ground = Ground::at(disk.path());
    let ballast = disk.path().join("ballast");
    let spec = asking("echo up; read go; seq 1 10000; echo shown; read go; echo end", with_stdin());
    ground.provider.create(&spec).await.unwrap();
    let mut attached = Attached::to(&ground, &spec, serde_json::json!({"offset": 0}));
    attached.sees("up\n");
    assert!(std::fs::write(&ballast, vec![0; 8 << 20]).is_err(), "the disk is full now");
    attached.types("go\n");
    attached.sees("shown\n");
    assert!(!ground.output(&spec).await.contains("shown"), "the log could not take it yet");
    std::fs::remove_file(&ballast).unwrap();
    ground.says(&spec, "shown\n").await;
    attached.types("go\n");
    assert_eq!(attached.end().exit_code, Some(0));
    assert_eq!(attached.text(), ground.output(&spec).await, "each byte once, in both");
    drop(ground);
}

#[tokio::test]
async fn a_stop_reaches_a_job_on_a_full_disk() {
    let disk = SmallDisk::of_kib(1024);
    let ground = Ground::at(disk.path());
    let spec = shell("echo begin; sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "begin").await;
    let full = std::fs::write(disk.path().join("ballast"), vec![0; 8 << 20]);
    assert!(full.is_err());
    ground.provider.stop(&reference(&spec), 5).await.unwrap();
    assert_eq!(ground.ended(&spec).await.reason, TerminationReason::Manual);
    // Nothing new can be made here, and that is said before anything is started.
    let error = ground.provider.create(&shell("true")).await.unwrap_err().to_string();
    assert!(error.contains("check the space") || error.contains("not started"), "{error}");
    drop(ground);
}
