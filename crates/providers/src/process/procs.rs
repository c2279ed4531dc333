//! The live processes of this moment, through `/proc` and process descriptors. Numbers seen here are used
//! within one call and never kept: a signal goes through a descriptor that was checked after it was opened.

use std::collections::HashMap;
use std::fs;
use std::io;

use jiff::{SignedDuration, Timestamp};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The kernel's number of a live process; meaningless a moment after its end.
pub(crate) type Handle = rustix::process::Pid;

/// One line of `/proc/N/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proc {
    pub(crate) proc_no: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) zombie: bool,
    /// Since the kernel's start: with the number, it names a process for ever.
    started_ticks: u64,
    /// Of itself and of the children it has waited for.
    pub(crate) cpu_ticks: u64,
    pub(crate) reaped_cpu_ticks: u64,
    pub(crate) rss_pages: u64,
}

fn parse_stat(text: &str) -> Option<Proc> {
    // The name in parentheses may itself hold spaces and parentheses: everything counts from the last one.
    let (head, tail) = text.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // Waited-for times are signed in the kernel's format.
    let reaped = number(13).unwrap_or(0) + number(14).unwrap_or(0);
    Some(Proc {
        proc_no: head.split_once(' ')?.0.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
        cpu_ticks: number(11)? + number(12)? + reaped,
        reaped_cpu_ticks: reaped,
        started_ticks: number(19)?,
        rss_pages: number(21).unwrap_or(0),
    })
}

pub(crate) fn read(proc_no: i32) -> Option<Proc> {
    parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{proc_no}/stat")).ok()?))
}

/// This process, in the numbers of the mounted `/proc`.
pub(crate) fn own() -> io::Result<Proc> {
    let text = fs::read("/proc/self/stat")?;
    parse_stat(&String::from_utf8_lossy(&text))
        .ok_or_else(|| io::Error::other("/proc/self/stat is unreadable"))
}

/// Every process but this one: a server that was itself started inside a job must not sweep itself.
fn others() -> io::Result<impl Iterator<Item = i32>> {
    let own = own()?.proc_no;
    Ok(numbers()?.filter(move |proc_no| *proc_no != own))
}

fn numbers() -> io::Result<impl Iterator<Item = i32>> {
    let entries = fs::read_dir("/proc").map_err(|error| {
        io::Error::new(error.kind(), format!("/proc could not be read: {error}; it must be mounted"))
    })?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Everything below `root`, by reading every process. Complete but for what forks during the look.
pub(crate) fn below(root: i32) -> io::Result<Vec<Proc>> {
    let mut children: HashMap<i32, Vec<Proc>> = HashMap::new();
    for seen in numbers()?.filter_map(read) {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child.proc_no);
            found.push(child);
        }
    }
    Ok(found)
}

/// Everything below `root`, by following the kernel's own child lists: costs the size of the tree, not of
/// the machine, and may miss what comes and goes meanwhile. Good for measuring, not for ending.
pub(crate) fn below_quickly(root: i32) -> io::Result<Vec<Proc>> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            let Ok(text) = fs::read_to_string(thread.path().join("children")) else {
                if parent == root {
                    // A kernel without these lists.
                    return below(root);
                }
                continue;
            };
            for child in text.split_ascii_whitespace().filter_map(|n| read(n.parse().ok()?)) {
                next.push(child.proc_no);
                found.push(child);
            }
        }
    }
    Ok(found)
}

/// Signals exactly the process that was looked at; false when it has ended since.
pub(crate) fn signal(target: &Proc, signal: Signal) -> io::Result<bool> {
    signal_if(target, signal, |_| true)
}

fn signal_if(target: &Proc, signal: Signal, still: impl Fn(i32) -> bool) -> io::Result<bool> {
    let Some(handle) = Handle::from_raw(target.proc_no) else { return Ok(false) };
    let descriptor = match pidfd_open(handle, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // The number may have gone to somebody else between the look and the open; from here on it cannot.
    let same =
        read(target.proc_no).is_some_and(|now| now.started_ticks == target.started_ticks && !now.zombie);
    if !same || !still(target.proc_no) {
        return Ok(false);
    }
    match pidfd_send_signal(&descriptor, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the environment that a process was started with has exactly this entry.
fn started_with(proc_no: i32, entry: &[u8]) -> bool {
    fs::read(format!("/proc/{proc_no}/environ")).is_ok_and(|text| text.split(|b| *b == 0).any(|e| e == entry))
}

/// The live processes that were started with `name=value`.
pub(crate) fn with_environment(name: &str, value: &str) -> io::Result<Vec<Proc>> {
    let entry = format!("{name}={value}").into_bytes();
    let matching = |proc_no: &i32| started_with(*proc_no, &entry);
    Ok(others()?.filter(matching).filter_map(read).filter(|seen| !seen.zombie).collect())
}

/// Times of different clocks are compared: what began this close to a job may have begun after it.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_secs(5);

/// One look at all processes, for many jobs.
#[derive(Debug, Default)]
pub(crate) struct Census {
    by_value: HashMap<String, usize>,
    /// The ages of those that run for this user and do not let themselves be read.
    unreadable: Vec<SignedDuration>,
}

impl Census {
    /// How many live processes carry this value.
    pub(crate) fn of(&self, value: &str) -> usize {
        self.by_value.get(value).copied().unwrap_or(0)
    }

    /// How many of the unreadable ones began at `began` or later.
    pub(crate) fn unreadable_since(&self, began: Timestamp, now: Timestamp) -> usize {
        let longest = now.duration_since(began) + CLOCK_SLACK;
        self.unreadable.iter().filter(|age| **age <= longest).count()
    }
}

/// Counts live processes by the value of `name` that they were started with.
pub(crate) fn census(name: &str) -> io::Result<Census> {
    let prefix = format!("{name}=").into_bytes();
    let own_uid = rustix::process::getuid().as_raw();
    let mut census = Census::default();
    for proc_no in others()? {
        let text = match fs::read(format!("/proc/{proc_no}/environ")) {
            Ok(text) => text,
            Err(error) => {
                // Another user's process is never ours; one of this user may be, and does not say.
                if error.kind() == io::ErrorKind::PermissionDenied && real_uid(proc_no) == Some(own_uid) {
                    census.unreadable.extend(read(proc_no).filter(|seen| !seen.zombie).and_then(age));
                }
                continue;
            }
        };
        if let Some(entry) = text.split(|b| *b == 0).find(|entry| entry.starts_with(&prefix)) {
            let value = String::from_utf8_lossy(&entry[prefix.len()..]).into_owned();
            *census.by_value.entry(value).or_insert(0) += 1;
        }
    }
    Ok(census)
}

/// Whoever started it. The owner of `/proc/N` would be root for every protected process.
fn real_uid(proc_no: i32) -> Option<u32> {
    let text = fs::read(format!("/proc/{proc_no}/status")).ok()?;
    parse_real_uid(&String::from_utf8_lossy(&text))
}

fn parse_real_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// How long ago a process was started.
fn age(seen: Proc) -> Option<SignedDuration> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    let began = seen.started_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    SignedDuration::try_from_secs_f64(up - began).ok()
}

/// Ends a process that was started with `name=value`, checking that again after its descriptor is open.
pub(crate) fn kill_if_started_with(target: &Proc, name: &str, value: &str) -> io::Result<bool> {
    let entry = format!("{name}={value}").into_bytes();
    signal_if(target, Signal::KILL, |proc_no| started_with(proc_no, &entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b (c)) S 7 8 9 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 5555 1000 66 99";
        let seen = parse_stat(line).unwrap();
        assert_eq!((seen.proc_no, seen.parent, seen.group, seen.zombie), (42, 7, 8, false));
        assert_eq!(
            (seen.cpu_ticks, seen.reaped_cpu_ticks, seen.started_ticks, seen.rss_pages),
            (100, 70, 5555, 66)
        );
    }

    #[test]
    fn the_unreadable_count_only_for_what_began_before_them() {
        let status = "Name:\tUid: 7\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n";
        assert_eq!(parse_real_uid(status), Some(1000));
        assert_eq!(parse_real_uid("Name:\tx\n"), None);
        let own = own().unwrap();
        assert_eq!(real_uid(own.proc_no), Some(rustix::process::getuid().as_raw()));
        let alive_for = age(own).unwrap();
        assert!(alive_for > SignedDuration::from_secs(-1) && alive_for < SignedDuration::from_hours(1));

        let census = Census { unreadable: vec![SignedDuration::from_secs(60)], ..Census::default() };
        let now: Timestamp = "2026-11-15T22:00:00Z".parse().unwrap();
        let before = |seconds| now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap();
        assert_eq!(census.unreadable_since(before(90), now), 1);
        assert_eq!(census.unreadable_since(before(30), now), 0, "older than the job");
    }

    #[test]
    fn both_walks_find_a_child() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let handle = Handle::from_child(&child).as_raw_pid();
        let own = own().unwrap().proc_no;
        assert!(below(own).unwrap().iter().any(|p| p.proc_no == handle));
        assert!(below_quickly(own).unwrap().iter().any(|p| p.proc_no == handle));
        let seen = read(handle).unwrap();
        assert!(signal(&seen, Signal::KILL).unwrap());
        child.wait().unwrap();
        assert!(!signal(&seen, Signal::KILL).unwrap(), "an ended process is nobody");
    }
}
