//! What the files of jobs say: sentinel, lock and result of any number of them in one cheap pass. It judges nothing,
//! and the only thing that it writes is a copy of a sentinel that nobody can read.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parhelia_core::job::JobActivity;
use parhelia_core::job::classify::{Beat, Ending, JobFacts, LockSeen, ResultSeen, SentinelSeen};
use parhelia_core::time::from_text;
use serde::Deserialize;
use uuid::Uuid;

use super::jobdir::{JobDir, JobResult, ReadError, exists, jobs_dir, read_json};
use super::lock::{LockState, query};
use super::{Inner, host, observe};
use crate::ProviderError;

/// A sentinel is a few hundred bytes; what is longer is not ours.
const SENTINEL_MAX_BYTES: usize = 64 * 1024;
/// Fewer than this are not worth a second thread.
const PER_THREAD: usize = 512;
const THREADS_MAX: usize = 4;
/// Copies of unreadable sentinels that one job may collect.
const COPIES_MAX: usize = 16;

/// The files of the jobs of one home.
#[derive(Debug, Clone)]
pub struct JobFiles {
    inner: Arc<Inner>,
}

impl JobFiles {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// The facts of these jobs, in their order.
    pub async fn facts(&self, jobs: Vec<Uuid>) -> Result<Vec<JobFacts>, ProviderError> {
        super::blocking(&self.inner, ProviderError::Unreachable, move |inner| Ok(facts(inner, &jobs))).await
    }

    /// Every job that has a directory.
    pub async fn ids(&self) -> Result<Vec<Uuid>, ProviderError> {
        super::blocking(&self.inner, ProviderError::Unreachable, |inner| {
            observe::jobs_in(&jobs_dir(&inner.config.home))
        })
        .await
    }

    /// The sentinel of a job as it stands there, whatever its fields are.
    pub async fn sentinel(&self, job: Uuid) -> Option<serde_json::Value> {
        let read = move |inner: &Inner| Ok(read_json(&inner.dir(job).sentinel()).ok().flatten());
        super::blocking(&self.inner, |_: String| (), read).await.ok().flatten()
    }

    pub fn directory(&self, job: Uuid) -> PathBuf {
        self.inner.dir(job).path().to_owned()
    }

    /// Keeps a copy of an unreadable sentinel beside it. `None`: that very content was kept before.
    pub async fn keep_damaged(&self, job: Uuid) -> Result<Option<PathBuf>, ProviderError> {
        super::blocking(&self.inner, ProviderError::Unreachable, move |inner| {
            let dir = inner.dir(job);
            let stamp = inner.config.clock.now().strftime("%Y%m%dT%H%M%S%3fZ").to_string();
            keep_damaged(&dir, &stamp).map_err(|error| {
                ProviderError::Rejected(format!(
                    "the unreadable sentinel of job {job} could not be copied: {error}"
                ))
            })
        })
        .await
    }
}

fn facts(inner: &Inner, jobs: &[Uuid]) -> Vec<JobFacts> {
    let home = jobs_dir(&inner.config.home);
    let local = host::local_filesystem(&home)
        .unwrap_or_else(|error| Err(format!("{} could not be read: {error}", home.display())));
    let look = |jobs: &[Uuid]| -> Vec<JobFacts> {
        jobs.iter().map(|job| facts_of(&inner.dir(*job), *job, &inner.host, &local)).collect()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let threads = (jobs.len() / PER_THREAD).clamp(1, cores);
    if threads == 1 {
        return look(jobs);
    }
    let look = &look;
    std::thread::scope(|scope| {
        let parts = jobs.chunks(jobs.len().div_ceil(threads));
        let running: Vec<_> = parts.map(|part| (part, scope.spawn(move || look(part)))).collect();
        // A thread that broke off has said nothing; what it should have looked at is looked at here.
        running.into_iter().flat_map(|(part, one)| one.join().unwrap_or_else(|_| look(part))).collect()
    })
}

/// The lock before the result: a result is there before the lock goes.
pub fn facts_of(dir: &JobDir, job: Uuid, host: &host::Host, local: &Result<(), String>) -> JobFacts {
    let sentinel = sentinel(&dir.sentinel(), job);
    let lock = match query(dir, host, local) {
        Ok(LockState::Held) => LockSeen::Held,
        Ok(LockState::Free { rebooted }) => LockSeen::Free { rebooted },
        Ok(LockState::Untrusted(why) | LockState::Elsewhere(why)) => LockSeen::Unknown { why },
        Err(error) => LockSeen::Unknown { why: format!("its lock could not be asked: {error}") },
    };
    let result = if lock == LockSeen::Held { ResultSeen::Missing } else { result(dir) };
    JobFacts { sentinel, lock, result }
}

fn result(dir: &JobDir) -> ResultSeen {
    match read_json::<JobResult>(&dir.result()) {
        Ok(Some(result)) => {
            let reason = result.reason();
            let message = result.message.or(result.signal);
            let asked = || "its exit code says that it needs a person".to_owned();
            ResultSeen::Read(Ending {
                exit_code: result.exit_code,
                reason,
                message,
                at: result.ended_at,
                waiting_reason: result.waiting.then(|| result.waiting_reason.unwrap_or_else(asked)),
                session: result.session_id,
            })
        }
        Ok(None) => ResultSeen::Missing,
        Err(ReadError::Corrupt { .. }) => ResultSeen::Unreadable,
        Err(ReadError::Io { .. }) if exists(&dir.result()).unwrap_or(true) => ResultSeen::Unreadable,
        Err(ReadError::Io { .. }) => ResultSeen::Missing,
    }
}

/// The part of a sentinel that is judged. Borrowed: ten thousand are read in a tenth of a second.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'t> {
    job_id: Uuid,
    #[serde(borrow)]
    status: Cow<'t, str>,
    #[serde(borrow)]
    last_heartbeat: Cow<'t, str>,
    #[serde(borrow)]
    started_at: Cow<'t, str>,
    #[serde(borrow, default)]
    session_id: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    waiting_reason: Option<Cow<'t, str>>,
}

fn sentinel(path: &Path, job: Uuid) -> SentinelSeen {
    let mut buffer = [0; 4096];
    let mut more = Vec::new();
    let read = match read_some(path, &mut buffer, &mut more) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return SentinelSeen::Missing,
        Err(error) => return SentinelSeen::Corrupt { why: format!("it could not be read: {error}") },
    };
    if read.trim_ascii().is_empty() {
        return SentinelSeen::Empty;
    }
    match parse(read, job) {
        Ok(beat) => SentinelSeen::Read(beat),
        Err(why) => SentinelSeen::Corrupt { why },
    }
}

fn read_some<'b>(path: &Path, buffer: &'b mut [u8; 4096], more: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    let mut file = File::open(path)?;
    let got = file.read(buffer)?;
    if got < buffer.len() {
        return Ok(&buffer[..got]);
    }
    more.extend_from_slice(&buffer[..got]);
    file.take(SENTINEL_MAX_BYTES as u64).read_to_end(more)?;
    if more.len() > SENTINEL_MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is far too long"));
    }
    Ok(more)
}

/// What is judged of a sentinel; the error says what is wrong with it.
pub fn parse(bytes: &[u8], job: Uuid) -> Result<Beat, String> {
    let line: Line<'_> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if line.job_id != job {
        return Err("it belongs to another job".to_owned());
    }
    let time = |what: &str, text: &str| from_text(text).map_err(|error| format!("{what}: {error}"));
    Ok(Beat {
        heartbeat_at: time("lastHeartbeat", &line.last_heartbeat)?,
        started_at: time("startedAt", &line.started_at)?,
        activity: match line.status.as_ref() {
            "waiting" => JobActivity::Waiting,
            "running" => JobActivity::Running,
            // Also what older supervisors said between steps, and what later ones may.
            _ => JobActivity::Processing,
        },
        waiting_reason: line.waiting_reason.map(Cow::into_owned),
        session: line.session_id.map(Cow::into_owned),
    })
}

fn keep_damaged(dir: &JobDir, stamp: &str) -> io::Result<Option<PathBuf>> {
    let path = dir.sentinel();
    let mut content = Vec::new();
    File::open(&path)?.take(SENTINEL_MAX_BYTES as u64).read_to_end(&mut content)?;
    let prefix = ".sentinel.json.damaged-";
    let mut copies = 0;
    for entry in fs::read_dir(dir.path())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            copies += 1;
            if fs::read(entry.path()).is_ok_and(|kept| kept == content) {
                return Ok(None);
            }
        }
    }
    if copies >= COPIES_MAX {
        return Err(io::Error::other(format!("there are {copies} such copies already")));
    }
    let copy = dir.path().join(format!("{prefix}{stamp}"));
    fs::write(&copy, &content)?;
    Ok(Some(copy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Uuid {
        Uuid::from_u128(7)
    }

    fn text(status: &str, extra: &str) -> String {
        format!(
            r#"{{"jobId":"{}","status":"{status}","lastHeartbeat":"2025-10-15T10:30:45.123Z","workspacePath":"/w",
               "sessionId":"s1","agentEngine":"sh","startedAt":"2025-10-15T10:00:00.000Z"{extra}}}"#,
            job()
        )
    }

    #[test]
    fn missing_empty_corrupt_and_foreign_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".sentinel.json");
        let look = |content: &str| {
            fs::write(&path, content).unwrap();
            sentinel(&path, job())
        };
        assert_eq!(sentinel(&path, job()), SentinelSeen::Missing);
        assert_eq!(look(""), SentinelSeen::Empty);
        assert_eq!(look(" \n"), SentinelSeen::Empty);
        for bad in ["{", "[]", "null", "{\"jobId\":3}", &text("running", "").replace("10:30", "25:61")] {
            assert!(matches!(look(bad), SentinelSeen::Corrupt { .. }), "{bad}");
        }
        let foreign = text("running", "").replace(&job().to_string(), &Uuid::from_u128(8).to_string());
        assert!(matches!(look(&foreign), SentinelSeen::Corrupt { why } if why.contains("another job")));
        assert!(matches!(look(&"x".repeat(1 << 20)), SentinelSeen::Corrupt { .. }));
        let long = text("running", &format!(r#","note":"{}""#, "n".repeat(10_000)));
        assert!(matches!(look(&long), SentinelSeen::Read(_)));
    }

    #[test]
    fn every_word_of_a_status_has_its_meaning() {
        let activity = |status: &str| parse(text(status, "").as_bytes(), job()).unwrap().activity;
        assert_eq!(activity("running"), JobActivity::Running);
        assert_eq!(activity("waiting"), JobActivity::Waiting);
        for word in ["processing", "starting", "stopping", "later"] {
            assert_eq!(activity(word), JobActivity::Processing, "{word}");
        }
        let asked = parse(text("waiting", r#","waitingReason":"which \"one\"?""#).as_bytes(), job()).unwrap();
        assert_eq!(asked.waiting_reason.as_deref(), Some("which \"one\"?"));
        assert_eq!(asked.session.as_deref(), Some("s1"));
    }

    #[test]
    fn a_damaged_sentinel_is_copied_once_for_each_content() {
        let temp = tempfile::tempdir().unwrap();
        let dir = JobDir::at(temp.path());
        fs::write(dir.sentinel(), "{").unwrap();
        let copy = keep_damaged(&dir, "1").unwrap().expect("a copy");
        assert_eq!(fs::read_to_string(copy).unwrap(), "{");
        assert_eq!(keep_damaged(&dir, "2").unwrap(), None);
        fs::write(dir.sentinel(), "").unwrap();
        assert!(keep_damaged(&dir, "3").unwrap().is_some());
        for n in 0..COPIES_MAX {
            fs::write(dir.sentinel(), format!("{{{n}")).unwrap();
            let _ = keep_damaged(&dir, &format!("n{n}"));
        }
        let copies = fs::read_dir(temp.path()).unwrap().count();
        assert_eq!(copies, COPIES_MAX + 1, "and never without end");
    }
}
