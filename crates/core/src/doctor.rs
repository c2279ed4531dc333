//! What is wrong with the surroundings, and the fix: the shapes of `parhelia doctor`, and the judgement over what
//! its probes have found. Pure: who looks, and for how long, is the edge's affair.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::{human_age, seconds_between};
use crate::word_enum;

word_enum!(
    /// How a check came out.
    Verdict {
        Ok = "ok",
        /// It works, and will not for ever, or not for everybody.
        Warning = "warning",
        /// Something does not work.
        Error = "error",
    }
);

/// One check: what was looked at, what was found, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// `configuration`, `home`, `store`, `provider docker`, `disk`, `clock`, …
    pub area: String,
    pub verdict: Verdict,
    pub found: String,
    /// What to do about it; nothing when it is as it should be.
    pub fix: Option<String>,
    pub took_ms: f64,
}

/// `GET /api/v1/doctor`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    pub asked_at: Timestamp,
    /// Of the server.
    pub version: String,
    pub checks: Vec<Check>,
}

impl DoctorReport {
    pub fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok)
    }
}

/// What one probe came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    pub found: String,
    pub fix: Option<String>,
}

impl Finding {
    pub fn ok(found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, found: found.into(), fix: None }
    }

    pub fn warning(found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    pub fn error(found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Error, found: found.into(), fix: Some(fix.into()) }
    }

    pub fn check(self, area: impl Into<String>, took_ms: f64) -> Check {
        Check { area: area.into(), verdict: self.verdict, found: self.found, fix: self.fix, took_ms }
    }
}

/// The file system that the home is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub free_bytes: u64,
    pub total_bytes: u64,
    pub free_inodes: u64,
    /// 0 where there is no such limit.
    pub total_inodes: u64,
}

pub fn space(space: Space) -> Finding {
    let Space { free_bytes, total_bytes, free_inodes, total_inodes } = space;
    let found = format!("{} of {} free", size(free_bytes), size(total_bytes));
    let fix = "remove what is not needed there, or move the home (PARHELIA_HOME) to a larger disk";
    let inodes = total_inodes > 0 && free_inodes * 100 < total_inodes;
    match free_bytes {
        0..=0x00ff_ffff => Finding::error(found, fix),
        _ if inodes => {
            Finding::warning(format!("{found}, but only {free_inodes} of {total_inodes} inodes"), fix)
        }
        free if free < 1 << 30 && free * 20 < total_bytes => Finding::warning(found, fix),
        _ => Finding::ok(found),
    }
}

/// A small file written, synced, renamed and its directory synced: what every durable write costs at least.
pub fn sync_time(millis: f64) -> Finding {
    let found = format!("written, synced and renamed in {millis:.1} ms");
    match millis {
        slow if slow > 500.0 => {
            Finding::warning(found, "every commit waits for this disk: use a local one with a working cache")
        }
        _ => Finding::ok(found),
    }
}

/// A ClickHouse that shows our sessions: its version or why it gave none, and how long the oldest change waits for it.
pub fn projection(url: &str, version: Result<String, String>, behind_seconds: f64) -> Finding {
    let version = match version {
        Ok(version) => version,
        Err(why) => {
            return Finding::error(
                format!("{url}: {why}"),
                "check clickhouse.url, user and password; sessions go on, and it catches up when it is back",
            );
        }
    };
    let found = format!("ClickHouse {version} at {url}");
    if behind_seconds < 5.0 {
        return Finding::ok(found);
    }
    let found = format!("{found} is {} behind", human_age(behind_seconds));
    Finding::warning(found, "look for projection_delayed in 'parhelia events', and at the log of ClickHouse")
}

/// `what` should be for its owner alone.
pub fn private(what: &str, path: &str, mode: u32, wanted: u32) -> Finding {
    let mode = mode & 0o777;
    if mode & 0o077 == 0 {
        Finding::ok(format!("{what} {path} has mode {mode:03o}"))
    } else {
        Finding::error(
            format!("{what} {path} has mode {mode:03o}: others may look into it"),
            format!("chmod {wanted:03o} {path}"),
        )
    }
}

/// How far the wall clock went from the monotonic one since the server began.
pub fn jump(seconds: f64) -> Finding {
    if seconds.abs() < 5.0 {
        return Finding::ok("wall clock and monotonic clock agree since the start of the server");
    }
    let way = if seconds > 0.0 { "forward" } else { "back" };
    Finding::warning(
        format!(
            "the wall clock went {} {way} against the monotonic one since the start",
            human_age(seconds.abs())
        ),
        "keep the clock with NTP (or it was suspended meanwhile); ages are not affected, times in events are",
    )
}

/// Our clock beside another that should show the same.
pub fn skew(ours: Timestamp, theirs: Timestamp, whose: &str) -> Finding {
    let ahead = seconds_between(theirs, ours);
    if ahead.abs() < 5.0 {
        return Finding::ok(format!("agrees with {whose}"));
    }
    let way = if ahead > 0.0 { "ahead of" } else { "behind" };
    let found = format!("{} {way} {whose}", human_age(ahead.abs()));
    let fix = "set both with NTP: leases and the times in events are read by others";
    if ahead.abs() < 60.0 { Finding::warning(found, fix) } else { Finding::error(found, fix) }
}

/// Before the program was written nothing can have happened.
pub fn sane(now: Timestamp) -> Finding {
    let earliest = Timestamp::from_second(1_735_689_600).unwrap_or(Timestamp::UNIX_EPOCH);
    if now < earliest {
        return Finding::error(format!("it says {now}"), "set the clock of this machine (NTP)");
    }
    Finding::ok(format!("it says {now}"))
}

pub fn certificate(path: &str, not_after: Timestamp, now: Timestamp) -> Finding {
    let left = seconds_between(now, not_after);
    let fix = format!("put a new certificate into {path} and restart the server");
    match left {
        gone if gone <= 0.0 => Finding::error(format!("the certificate {path} expired at {not_after}"), fix),
        soon if soon < 14.0 * 86_400.0 => {
            Finding::warning(format!("the certificate {path} expires in {}", human_age(soon)), fix)
        }
        _ => Finding::ok(format!("the certificate {path} holds until {not_after}")),
    }
}

/// Who can read what crosses the TCP address.
pub fn listening(address: Option<&str>, loopback: bool, tls: bool) -> Finding {
    match address {
        None => Finding::ok("on the unix socket of the home only"),
        Some(address) if tls => Finding::ok(format!("on {address}, with TLS")),
        Some(address) if loopback => Finding::ok(format!("on {address}, which other machines cannot reach")),
        Some(address) => Finding::warning(
            format!("on {address} without TLS: tokens cross the network in the clear"),
            "give --tls-cert and --tls-key, or listen on 127.0.0.1 behind something that encrypts",
        ),
    }
}

/// Open files and processes that this user's programs may have at once; `None` is no limit.
pub fn limits(files: Option<u64>, processes: Option<u64>) -> Finding {
    let shown = |n: Option<u64>| n.map_or("no limit".to_owned(), |n| n.to_string());
    let found = format!("open files: {}, processes: {}", shown(files), shown(processes));
    match (files, processes) {
        (Some(n), _) if n < 256 => {
            Finding::error(found, "raise it: ulimit -n 65536, or LimitNOFILE= in the unit")
        }
        (Some(n), _) if n < 1024 => {
            Finding::warning(found, "raise it: ulimit -n 65536, or LimitNOFILE= in the unit")
        }
        (_, Some(n)) if n < 256 => Finding::warning(found, "raise it: ulimit -u, or TasksMax= in the unit"),
        _ => Finding::ok(found),
    }
}

/// What would end the jobs together with the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeper {
    /// The service manager's unit that the server runs in.
    pub unit: Option<String>,
    pub kill_mode: Option<String>,
    /// The server itself is in a container, and why one thinks so.
    pub container: Option<String>,
}

pub fn keeper(keeper: &Keeper) -> Finding {
    let Keeper { unit, kill_mode, container } = keeper;
    match (container, unit, kill_mode.as_deref()) {
        (Some(sign), _, _) => Finding::warning(
            format!("it runs in a container ({sign}): when that ends, the process jobs end with it"),
            "run the server outside, or use the docker provider for what must outlive it",
        ),
        (None, Some(unit), Some("process" | "none")) => {
            Finding::ok(format!("{unit} leaves the jobs alone when it stops"))
        }
        (None, Some(unit), Some(mode)) => Finding::warning(
            format!("{unit} has KillMode={mode}: stopping it ends the jobs too"),
            "set KillMode=process in the unit, then 'systemctl daemon-reload'",
        ),
        (None, Some(unit), None) => Finding::warning(
            format!("{unit} runs it, and its KillMode could not be asked"),
            "see to it that the unit has KillMode=process, so that the jobs outlive the server",
        ),
        (None, None, _) => Finding::ok("no service manager that would end the jobs with the server"),
    }
}

pub fn versions(client: &str, server: &str) -> Finding {
    if client == server {
        Finding::ok(format!("client and server are {client}"))
    } else {
        Finding::warning(
            format!("this program is {client} and the server is {server}"),
            "restart the server with this program: 'parhelia down', then any command (the sandboxes go on)",
        )
    }
}

/// `known` is the protocol that this server speaks.
pub fn supervisors(protocols: &[u32], known: u32) -> Finding {
    let newer = protocols.iter().filter(|protocol| **protocol > known).count();
    if newer > 0 {
        return Finding::error(
            format!("{newer} of {} jobs were started by a newer program", protocols.len()),
            "use the newer program for this home",
        );
    }
    Finding::ok(format!("{} jobs on disk, protocol {known} or older", protocols.len()))
}

pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{:.1} GB", b as f64 / (1u64 << 30) as f64),
        b if b >= 1 << 20 => format!("{:.1} MB", b as f64 / (1u64 << 20) as f64),
        b => format!("{} KB", b >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_disk_is_judged_by_what_is_left() {
        let with = |free_bytes, free_inodes| {
            space(Space { free_bytes, total_bytes: 100 << 30, free_inodes, total_inodes: 1_000_000 }).verdict
        };
        assert_eq!(with(50 << 30, 500_000), Verdict::Ok);
        assert_eq!(with(900 << 20, 500_000), Verdict::Warning);
        assert_eq!(with(50 << 30, 9_000), Verdict::Warning);
        assert_eq!(with(15 << 20, 500_000), Verdict::Error);
        let tmpfs = Space { free_bytes: 40 << 20, total_bytes: 64 << 20, free_inodes: 0, total_inodes: 0 };
        assert_eq!(space(tmpfs).verdict, Verdict::Ok, "small, and half empty");
        assert_eq!((sync_time(3.0).verdict, sync_time(900.0).verdict), (Verdict::Ok, Verdict::Warning));
    }

    #[test]
    fn clocks_and_certificates() {
        let now = at("2026-01-21T12:00:00Z");
        let later = |seconds| crate::time::plus_seconds(now, seconds);
        assert_eq!((jump(0.5).verdict, jump(-3600.0).verdict), (Verdict::Ok, Verdict::Warning));
        let judged = [1, 10, -10, 100].map(|s| skew(now, later(s), "the database").verdict);
        assert_eq!(judged, [Verdict::Ok, Verdict::Warning, Verdict::Warning, Verdict::Error]);
        assert_eq!(skew(now, later(90), "the database").found, "1m behind the database");
        assert_eq!(sane(at("1970-01-01T00:10:00Z")).verdict, Verdict::Error);
        let judged = [-1, 86_400, 90 * 86_400].map(|s| certificate("c.pem", later(s), now).verdict);
        assert_eq!(judged, [Verdict::Error, Verdict::Warning, Verdict::Ok]);
    }

    #[test]
    fn what_would_take_the_jobs_with_it() {
        let unit = |mode: Option<&str>| Keeper {
            unit: Some("parhelia.service".into()),
            kill_mode: mode.map(str::to_owned),
            container: None,
        };
        assert_eq!(keeper(&unit(Some("process"))).verdict, Verdict::Ok);
        for mode in [Some("control-group"), Some("mixed"), None] {
            let finding = keeper(&unit(mode));
            assert_eq!(finding.verdict, Verdict::Warning);
            assert!(finding.fix.unwrap().contains("KillMode=process"));
        }
        let inside = Keeper { container: Some("/.dockerenv".into()), ..Keeper::default() };
        assert_eq!(keeper(&inside).verdict, Verdict::Warning);
        assert_eq!(keeper(&Keeper::default()).verdict, Verdict::Ok);
    }

    #[test]
    fn doors_modes_limits_and_versions() {
        assert_eq!(listening(None, false, false).verdict, Verdict::Ok);
        assert_eq!(listening(Some("0.0.0.0:7717"), false, true).verdict, Verdict::Ok);
        assert_eq!(listening(Some("127.0.0.1:7717"), true, false).verdict, Verdict::Ok);
        assert_eq!(listening(Some("0.0.0.0:7717"), false, false).verdict, Verdict::Warning);
        let open = private("the home", "/h", 0o40755, 0o700);
        assert_eq!((open.verdict, open.fix.as_deref()), (Verdict::Error, Some("chmod 700 /h")));
        assert_eq!(private("the home", "/h", 0o40700, 0o700).verdict, Verdict::Ok);
        assert_eq!(limits(Some(100), None).verdict, Verdict::Error);
        assert_eq!(limits(Some(1024), Some(100)).verdict, Verdict::Warning);
        assert_eq!(limits(None, None).verdict, Verdict::Ok);
        assert_eq!((versions("1", "1").verdict, versions("1", "2").verdict), (Verdict::Ok, Verdict::Warning));
        assert_eq!(
            (supervisors(&[1, 1], 1).verdict, supervisors(&[1, 2], 1).verdict),
            (Verdict::Ok, Verdict::Error)
        );
    }

    #[test]
    fn the_worst_check_is_the_verdict() {
        let report = |verdicts: &[Verdict]| DoctorReport {
            asked_at: at("2026-01-21T12:00:00Z"),
            version: "1".into(),
            checks: verdicts
                .iter()
                .map(|verdict| Finding { verdict: *verdict, found: String::new(), fix: None }.check("x", 0.0))
                .collect(),
        };
        assert_eq!(report(&[]).verdict(), Verdict::Ok);
        assert_eq!(report(&[Verdict::Warning, Verdict::Ok]).verdict(), Verdict::Warning);
        assert_eq!(report(&[Verdict::Error, Verdict::Warning]).verdict(), Verdict::Error);
    }
}
