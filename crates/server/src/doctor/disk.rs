//! The disk of the home: what is left of it, and whether a durable write works.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use parhelia_core::doctor::{self, Finding, Space};
use parhelia_core::time::Clock;
use parhelia_providers::SystemClock;

use super::{Probe, blocking, probe};

/// What the kernel accepts as the path of a unix socket.
const SOCKET_PATH_BYTES: usize = 107;

pub fn probes(home: &Path) -> Vec<Probe<'static>> {
    let [one, two, three] = [home.to_owned(), home.to_owned(), home.to_owned()];
    vec![
        probe("home", blocking(move || permissions(&one))),
        probe("disk", blocking(move || room(&two))),
        probe("disk writes", blocking(move || writes(&three))),
    ]
}

/// Whose it is, who else may look, and whether a socket fits.
pub fn permissions(home: &Path) -> Finding {
    let shown = home.display().to_string();
    let found = match std::fs::metadata(home) {
        Ok(found) if found.is_dir() => found,
        Ok(_) => {
            return Finding::error(format!("{shown} is not a directory"), "choose another PARHELIA_HOME");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::ok(format!("{shown} does not exist yet; the first server makes it"));
        }
        Err(error) => return Finding::error(format!("{shown}: {error}"), "check its owner and permissions"),
    };
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Finding::error(
            format!("{shown} belongs to user {}, and this is user {us}", found.uid()),
            format!("use a home of your own (PARHELIA_HOME), or: chown -R {us} {shown}"),
        );
    }
    let length = home.join("parhelia.sock").as_os_str().len();
    if length > SOCKET_PATH_BYTES {
        return Finding::error(
            format!("the path of its socket has {length} bytes, and the system allows {SOCKET_PATH_BYTES}"),
            "use a shorter PARHELIA_HOME",
        );
    }
    let whole = doctor::private("the home", &shown, found.permissions().mode(), 0o700);
    let token = home.join("admin.token");
    match std::fs::metadata(&token) {
        Ok(file) if whole.fix.is_none() => {
            let judged =
                doctor::private("the token", &token.display().to_string(), file.permissions().mode(), 0o600);
            if judged.fix.is_some() { judged } else { whole }
        }
        _ => whole,
    }
}

pub fn room(home: &Path) -> Finding {
    match rustix::fs::statvfs(standing(home)) {
        Ok(fs) => doctor::space(Space {
            free_bytes: fs.f_bavail * fs.f_frsize,
            total_bytes: fs.f_blocks * fs.f_frsize,
            free_inodes: fs.f_favail,
            total_inodes: fs.f_files,
        }),
        Err(error) => Finding::error(format!("{}: {error}", home.display()), "check the disk of the home"),
    }
}

/// The home, or what of its path there is.
fn standing(home: &Path) -> &Path {
    home.ancestors().find(|path| path.exists()).unwrap_or(home)
}

/// Writes, syncs and renames a file of its own, and looks at its time beside ours.
pub fn writes(home: &Path) -> Finding {
    if !home.exists() {
        return Finding::ok("nothing to write to yet");
    }
    let clock = SystemClock::new();
    let began = clock.monotonic();
    match write_one(home) {
        Ok(written_at) => {
            let took = clock.monotonic().saturating_sub(began).as_secs_f64() * 1000.0;
            let stamp = parhelia_core::Timestamp::from_second(written_at).unwrap_or_else(|_| clock.now());
            let skew = doctor::skew(clock.now(), stamp, "the times of new files");
            if skew.fix.is_some() { skew } else { doctor::sync_time(took) }
        }
        Err(error) => {
            let fix = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room on the disk of the home; nothing is acknowledged that is not on it"
                }
                io::ErrorKind::ReadOnlyFilesystem => "mount the disk of the home writable",
                io::ErrorKind::PermissionDenied => "give this user write permission on the home",
                _ => "check the disk of the home, and the kernel's log for its errors",
            };
            Finding::error(format!("a file in {} cannot be written: {error}", home.display()), fix)
        }
    }
}

fn write_one(home: &Path) -> io::Result<i64> {
    let name = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &rand()?);
    let (temp, last) = (home.join(format!(".doctor-{name}.tmp")), home.join(format!(".doctor-{name}")));
    let written = || -> io::Result<i64> {
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temp)?;
        file.write_all(&[b'd'; 4096])?;
        file.sync_all()?;
        let at = file.metadata()?.mtime();
        std::fs::rename(&temp, &last)?;
        File::open(home)?.sync_all()?;
        Ok(at)
    };
    let outcome = written();
    // Whatever there is of it goes; what is not there need not.
    let _ = std::fs::remove_file(&temp);
    let _ = std::fs::remove_file(&last);
    outcome
}

fn rand() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
