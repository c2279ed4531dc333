//! The lock on `.alive`: held by a supervisor for as long as it lives, dropped by the kernel at any death.
//! It belongs to the open file description, so it is handed over with the descriptor and there is no
//! unlocked moment. Others query it and never take it: only a create takes it, for the supervisor to come.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use super::host::Host;
use super::jobdir::{AliveNote, JobDir, ReadError, read_json};

/// What the lock says about the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    /// It lives.
    Held,
    /// It is gone, for certain.
    Free {
        /// The machine was restarted since it lived.
        rebooted: bool,
    },
    /// Nobody here can tell.
    Untrusted(String),
}

/// Asks, without taking anything. `local` is the answer of [`super::host::local_filesystem`] for the home.
pub fn query(dir: &JobDir, host: &Host, local: &Result<(), String>) -> io::Result<LockState> {
    let path = dir.alive();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(LockState::Untrusted(format!("{} is gone, and with it the lock", path.display())));
        }
        Err(error) => return Err(error),
    };
    if is_locked(&file)? {
        return Ok(LockState::Held);
    }
    if let Err(why) = local {
        return Ok(LockState::Untrusted(why.clone()));
    }
    Ok(trust(&path, host))
}

/// A free lock proves a death only to the kernel that kept it.
fn trust(path: &Path, host: &Host) -> LockState {
    let note = match read_json::<AliveNote>(path) {
        Ok(Some(note)) => note,
        Ok(None) => return LockState::Untrusted(format!("{} is gone", path.display())),
        Err(error @ (ReadError::Corrupt { .. } | ReadError::Io { .. })) => {
            return LockState::Untrusted(error.to_string());
        }
    };
    if note.boot_id == host.boot_id {
        return LockState::Free { rebooted: false };
    }
    match (&note.machine_id, &host.machine_id) {
        (Some(theirs), Some(ours)) if theirs == ours => LockState::Free { rebooted: true },
        (Some(_), Some(_)) => LockState::Untrusted(
            "it was started on another machine; only that machine can say whether it lives".into(),
        ),
        _ => LockState::Untrusted(
            "it was started before a restart or on another machine, and without /etc/machine-id nobody can \
             say which; run systemd-machine-id-setup"
                .into(),
        ),
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        // Must be zero for locks of an open file description: nobody's number is in it.
        l_pid: 0,
    }
}

/// Takes the lock for this open file description; false when another has it. Taking it twice is fine.
#[allow(unsafe_code, reason = "rustix has no open-file-description locks")]
pub fn try_lock(file: impl AsFd) -> io::Result<bool> {
    let lock = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor is borrowed for the call, and `lock` is a valid `flock` that outlives it.
    let answer = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    if answer == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Whether any *other* open file description has it.
#[allow(unsafe_code, reason = "rustix has no open-file-description locks")]
pub fn is_locked(file: impl AsFd) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor is borrowed for the call, and `lock` is a valid `flock` that the kernel fills.
    let answer = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn a_query_sees_the_lock_and_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".alive");
        let holder = open(&path);
        assert!(!is_locked(open(&path)).unwrap());
        assert!(try_lock(&holder).unwrap());
        assert!(try_lock(&holder).unwrap(), "the holder may ask again");
        assert!(is_locked(open(&path)).unwrap());
        assert!(is_locked(open(&path)).unwrap(), "closing a query's descriptor drops nobody's lock");
        assert!(!try_lock(open(&path)).unwrap());

        let copy = holder.try_clone().unwrap();
        drop(holder);
        assert!(is_locked(open(&path)).unwrap(), "the lock lives as long as the last copy");
        drop(copy);
        assert!(!is_locked(open(&path)).unwrap());
    }

    #[test]
    fn a_free_lock_is_believed_only_where_it_was_kept() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::at(dir.path());
        let host = Host { boot_id: "boot-1".into(), machine_id: Some("m-1".into()) };
        let ask = |boot: &str, machine: Option<&str>, local: Result<(), String>| {
            let note = serde_json::json!({"protocol": 1, "bootId": boot, "machineId": machine});
            std::fs::write(job.alive(), note.to_string()).unwrap();
            query(&job, &host, &local).unwrap()
        };
        assert_eq!(ask("boot-1", Some("m-1"), Ok(())), LockState::Free { rebooted: false });
        assert_eq!(ask("boot-0", Some("m-1"), Ok(())), LockState::Free { rebooted: true });
        assert!(matches!(ask("boot-0", Some("m-2"), Ok(())), LockState::Untrusted(_)));
        assert!(matches!(ask("boot-0", None, Ok(())), LockState::Untrusted(_)));
        assert!(matches!(ask("boot-1", Some("m-1"), Err("nfs".into())), LockState::Untrusted(_)));
        std::fs::write(job.alive(), "").unwrap();
        assert!(matches!(query(&job, &host, &Ok(())).unwrap(), LockState::Untrusted(_)));
        std::fs::remove_file(job.alive()).unwrap();
        assert!(matches!(query(&job, &host, &Ok(())).unwrap(), LockState::Untrusted(_)));
    }
}
