//! What a job's own files prove, for people: its lock, its sentinel, its result. Reads only.

use parhelia_core::time::{human_age, seconds_between};
use uuid::Uuid;

use super::jobdir::{JobResult, JobSpec, Sentinel, jobs_dir, read_json};
use super::lock::{LockState, query};
use super::{Inner, host};

pub(crate) fn of(inner: &Inner, job: Uuid) -> Vec<(String, String)> {
    let dir = inner.dir(job);
    let now = inner.config.clock.now();
    let mut found = Vec::new();
    let mut say = |from: &str, says: String| found.push((from.to_owned(), says));
    let local = host::local_filesystem(&jobs_dir(&inner.config.home)).unwrap_or_else(|e| Err(e.to_string()));
    say(
        "lock",
        match query(&dir, &inner.host, &local) {
            Ok(LockState::Held) => "held: its supervisor lives".to_owned(),
            Ok(LockState::Free { rebooted: true }) => "free: the machine was restarted since".to_owned(),
            Ok(LockState::Free { rebooted: false }) => "free: its supervisor is gone".to_owned(),
            Ok(LockState::Untrusted(why) | LockState::Elsewhere(why)) => format!("says nothing: {why}"),
            Err(error) => format!("could not be asked: {error}"),
        },
    );
    match read_json::<Sentinel>(&dir.sentinel()) {
        Ok(Some(sentinel)) => {
            let age = |at| human_age(seconds_between(at, now));
            let mut says = format!("{}, written {} ago", sentinel.status, age(sentinel.last_heartbeat));
            if let Some(at) = sentinel.last_progress {
                says.push_str(&format!(", last progress {} ago", age(at)));
            }
            say("sentinel", says);
        }
        Ok(None) => {}
        Err(error) => say("sentinel", error.to_string()),
    }
    match read_json::<JobResult>(&dir.result()) {
        Ok(Some(result)) => say("result", format!("{} at {}", result.reason, result.ended_at)),
        Ok(None) => {}
        Err(error) => say("result", error.to_string()),
    }
    if let Ok(Some(spec)) = read_json::<JobSpec>(&dir.spec()) {
        say(
            "supervisor",
            format!("protocol {}, beats every {}s", spec.protocol, spec.heartbeat_interval_seconds),
        );
    }
    found
}
