//! The lock on `.alive`: held by a supervisor for as long as it lives, dropped by the kernel at any death.
//! It belongs to the open file description, so it is handed over with the descriptor and there is no
//! unlocked moment. Others query it and never take it: only a create takes it, for the supervisor to come.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::host::Host;
use super::jobdir::{AliveFile, AliveNote, JobDir, JobSpec, PROTOCOL, ReadError, read_json};

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
    /// The directory is a copy: its supervisor holds the lock of the original, and never looks here.
    Elsewhere(String),
}

/// Takes the lock of a new job for the supervisor to come, and notes which kernel keeps it on which file.
pub fn hold(dir: &JobDir, host: &Host) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.alive())?;
    if !try_lock(&file)? {
        return Err(io::Error::other("another has its lock"));
    }
    let note =
        AliveNote { protocol: PROTOCOL, boot_id: host.boot_id.clone(), machine_id: host.machine_id.clone() };
    let place = file.metadata()?;
    let note = AliveFile { note, device: Some(place.dev()), inode: Some(place.ino()) };
    let text = serde_json::to_vec(&note).map_err(io::Error::other)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)?;
    file.sync_all()?;
    Ok(file)
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
    let alive = match read_json::<AliveFile>(&path) {
        Ok(Some(alive)) => alive,
        Ok(None) => return Ok(LockState::Untrusted(format!("{} is gone", path.display()))),
        Err(error @ (ReadError::Corrupt { .. } | ReadError::Io { .. })) => {
            return Ok(LockState::Untrusted(error.to_string()));
        }
    };
    Ok(trust(dir, &alive, &file.metadata()?, host, local))
}

/// A free lock proves a death only to the kernel that kept it, and only on the very file that it kept it on.
fn trust(
    dir: &JobDir,
    alive: &AliveFile,
    found: &Metadata,
    host: &Host,
    local: &Result<(), String>,
) -> LockState {
    let note = &alive.note;
    let same_boot = note.boot_id == host.boot_id;
    let same_file = (alive.device, alive.inode) == (Some(found.dev()), Some(found.ino()));
    if alive.inode.is_some_and(|inode| inode != found.ino()) {
        return LockState::Elsewhere(format!(
            "{} was copied from another home; look at the job, and stop it, where it was started (if that home \
             is gone and nothing of the job runs, move the directory away)",
            dir.path().display()
        ));
    }
    // Devices are numbered anew at a restart, and many file systems at every mount: another number alone
    // proves no copy, and in the same boot the home's path decides.
    if !same_file
        && (same_boot || alive.inode.is_none())
        && let Err(state) = same_home(dir)
    {
        return state;
    }
    if let Err(why) = local {
        return LockState::Untrusted(why.clone());
    }
    if same_boot {
        return LockState::Free { rebooted: false };
    }
    match (&note.machine_id, &host.machine_id) {
        (Some(theirs), Some(ours)) if theirs == ours => LockState::Free { rebooted: true },
        (Some(_), Some(_)) => LockState::Untrusted(
            "it was started on another machine; only that machine can say whether it lives".into(),
        ),
        // The very file, on a disk that no other kernel can have mounted meanwhile: that kernel is gone.
        _ if same_file => LockState::Free { rebooted: true },
        _ => LockState::Untrusted(format!(
            "it was started before a restart or on another machine, and without /etc/machine-id nobody can \
             say which; if it was this machine, nothing of it is left: move {} away (with a machine id, from \
             systemd-machine-id-setup, later jobs can be told apart)",
            dir.path().display()
        )),
    }
}

/// Whether the job was made for the home that its directory is in now.
fn same_home(dir: &JobDir) -> Result<(), LockState> {
    let spec = match read_json::<JobSpec>(&dir.spec()) {
        Ok(Some(spec)) => spec,
        Ok(None) => {
            return Err(LockState::Untrusted(format!(
                "{} is missing, so nobody can say which home it is from",
                dir.spec().display()
            )));
        }
        Err(error) => return Err(LockState::Untrusted(error.to_string())),
    };
    let here = dir.path().canonicalize();
    let here = here.as_deref().ok().and_then(Path::parent).and_then(Path::parent);
    if here.is_some() && spec.home.canonicalize().ok().as_deref() == here {
        return Ok(());
    }
    Err(LockState::Elsewhere(format!(
        "{} was made for the home {}; use that home (if it is gone and nothing of the job runs, move the \
         directory away)",
        dir.path().display(),
        spec.home.display()
    )))
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

    const NOWHERE: u64 = u64::MAX;

    /// A job's directory in a home, without a file in it.
    fn job_in(home: &Path) -> JobDir {
        let job = JobDir::of(home, uuid::Uuid::nil());
        std::fs::create_dir_all(job.path()).unwrap();
        job
    }

    /// Writes `.alive` as a server on that machine would have, with what is in `place` about the file.
    fn note(job: &JobDir, boot: &str, machine: Option<&str>, place: serde_json::Value) {
        let mut note = serde_json::json!({"protocol": 1, "bootId": boot, "machineId": machine});
        note.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        std::fs::write(job.alive(), note.to_string()).unwrap();
    }

    fn place_of(job: &JobDir) -> (u64, u64) {
        let found = open(&job.alive()).metadata().unwrap();
        (found.dev(), found.ino())
    }

    #[test]
    fn a_free_lock_is_believed_only_where_it_was_kept() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_in(dir.path());
        let (device, inode) = place_of(&job);
        let host = Host { boot_id: "boot-1".into(), machine_id: Some("m-1".into()) };
        let ask = |boot: &str, machine: Option<&str>, local: Result<(), String>| {
            note(&job, boot, machine, serde_json::json!({"device": device, "inode": inode}));
            query(&job, &host, &local).unwrap()
        };
        assert_eq!(ask("boot-1", Some("m-1"), Ok(())), LockState::Free { rebooted: false });
        assert_eq!(ask("boot-1", None, Ok(())), LockState::Free { rebooted: false });
        assert_eq!(ask("boot-0", Some("m-1"), Ok(())), LockState::Free { rebooted: true });
        assert!(matches!(ask("boot-0", Some("m-2"), Ok(())), LockState::Untrusted(_)));
        assert!(matches!(ask("boot-1", Some("m-1"), Err("nfs".into())), LockState::Untrusted(_)));
        std::fs::write(job.alive(), "").unwrap();
        assert!(matches!(query(&job, &host, &Ok(())).unwrap(), LockState::Untrusted(_)));
        std::fs::remove_file(job.alive()).unwrap();
        assert!(matches!(query(&job, &host, &Ok(())).unwrap(), LockState::Untrusted(_)));
    }

    #[test]
    fn without_machine_ids_the_very_file_on_a_local_disk_proves_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let job = job_in(dir.path());
        let (device, inode) = place_of(&job);
        let ask = |theirs: Option<&str>, ours: Option<&str>, device: u64, local: Result<(), String>| {
            let host = Host { boot_id: "boot-1".into(), machine_id: ours.map(str::to_owned) };
            note(&job, "boot-0", theirs, serde_json::json!({"device": device, "inode": inode}));
            query(&job, &host, &local).unwrap()
        };
        for (theirs, ours) in [(None, None), (None, Some("m-1")), (Some("m-1"), None)] {
            assert_eq!(ask(theirs, ours, device, Ok(())), LockState::Free { rebooted: true });
            let elsewhere = ask(theirs, ours, NOWHERE, Ok(()));
            let LockState::Untrusted(why) = elsewhere else { panic!("{elsewhere:?}") };
            assert!(why.contains(&format!("move {} away", job.path().display())), "{why}");
            let shared = ask(theirs, ours, device, Err("nfs".into()));
            assert_eq!(shared, LockState::Untrusted("nfs".into()));
        }
        // The machine is known: its devices may have been numbered anew.
        assert_eq!(ask(Some("m-1"), Some("m-1"), NOWHERE, Ok(())), LockState::Free { rebooted: true });
        assert!(matches!(ask(Some("m-2"), Some("m-1"), device, Ok(())), LockState::Untrusted(_)));
        // Nothing is known of the file: an older server wrote it.
        note(&job, "boot-0", None, serde_json::json!({}));
        let host = Host { boot_id: "boot-1".into(), machine_id: None };
        assert!(matches!(query(&job, &host, &Ok(())).unwrap(), LockState::Untrusted(_)));
    }

    #[test]
    fn a_copied_note_speaks_of_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let (home, other) = (dir.path().join("home"), dir.path().join("other"));
        let job = job_in(&home);
        let (device, inode) = place_of(&job);
        let host = Host { boot_id: "boot-1".into(), machine_id: Some("m-1".into()) };
        let spec = |home: &Path| {
            let spec = serde_json::json!({
                "protocol": 1, "jobId": uuid::Uuid::nil(), "home": home,
                "createdAt": "2026-11-15T22:02:10.964Z",
                "sandbox": {
                    "container_id": "c-01k9z3q8xw4f7m2a", "instance_id": "i", "task_id": null,
                    "session_id": null, "name": null, "image": null, "command": ["true"], "env": {},
                    "workdir": null, "labels": {}, "resources": {}, "idle_timeout_seconds": null,
                    "tmux_session": null
                }
            });
            std::fs::write(job.spec(), spec.to_string()).unwrap();
        };
        let ask = |boot: &str, place: serde_json::Value, local: Result<(), String>| {
            note(&job, boot, Some("m-1"), place);
            query(&job, &host, &local).unwrap()
        };
        let ours = serde_json::json!({"device": device, "inode": inode});
        let copied = serde_json::json!({"device": device, "inode": NOWHERE});
        let renumbered = serde_json::json!({"device": NOWHERE, "inode": inode});
        let old = serde_json::json!({});
        let free = LockState::Free { rebooted: false };
        let elsewhere = |state: LockState| matches!(state, LockState::Elsewhere(_));

        // Without a spec only the file itself can speak.
        assert_eq!(ask("boot-1", ours.clone(), Ok(())), free);
        assert!(matches!(ask("boot-1", old.clone(), Ok(())), LockState::Untrusted(_)));
        spec(&home);
        assert_eq!(ask("boot-1", old.clone(), Ok(())), free);
        assert_eq!(ask("boot-1", renumbered.clone(), Ok(())), free, "mounted again in the same place");
        assert!(elsewhere(ask("boot-1", copied.clone(), Ok(()))));
        assert!(elsewhere(ask("boot-0", copied.clone(), Ok(()))));
        assert!(elsewhere(ask("boot-1", copied, Err("nfs".into()))), "a copy on a shared file system is one");
        // The home was moved there by a rename, or it is a copy that tells nothing of its inode.
        std::fs::create_dir(&other).unwrap();
        spec(&other);
        assert_eq!(ask("boot-1", ours, Ok(())), free);
        assert!(elsewhere(ask("boot-1", old.clone(), Ok(()))));
        assert!(elsewhere(ask("boot-1", renumbered, Ok(()))), "a snapshot keeps the inodes");
        spec(Path::new("/not/there"));
        assert!(elsewhere(ask("boot-1", old, Ok(()))));
    }
}
