//! A home: the directory with at most one server. Owns its layout, its lock and its permissions.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::entropy::Entropy;

/// What the kernel accepts as the path of a unix socket.
const SOCKET_PATH_BYTES: usize = 107;

/// Is there when the home works on a shared database; holds the id of its instance.
const SHARED: &str = "database.shared";

#[derive(Debug, Error)]
pub enum HomeError {
    #[error(
        "cannot use the home {path}: {source}. Check its owner and free space, or choose another with PARHELIA_HOME"
    )]
    Unusable { path: PathBuf, source: io::Error },
    #[error(
        "the socket path {path} is {length} bytes long and the system allows {SOCKET_PATH_BYTES}: choose a shorter PARHELIA_HOME"
    )]
    TooLong { path: PathBuf, length: usize },
    #[error("another server already serves {path}: use it, or end it with 'parhelia down'")]
    Taken { path: PathBuf },
    #[error("{path} does not hold an id: restore it from a backup, or move it away to start as a new home")]
    BadId { path: PathBuf },
    #[error(
        "this home works on a shared database, and no address of one is given: set PARHELIA_DATABASE_URL (or server.database_url). To go back to the home's own file instead, remove {path} first"
    )]
    Shared { path: PathBuf },
}

#[derive(Debug, Clone)]
pub struct Home {
    pub path: PathBuf,
    pub id: String,
}

/// Held for as long as the server lives; the kernel drops it at any death.
#[derive(Debug)]
pub struct ServerLock(#[allow(dead_code, reason = "held, never read")] File);

impl Home {
    /// Makes the directory (mode 0700) and its id when they are missing.
    pub fn open(path: &Path, entropy: &dyn Entropy) -> Result<Self, HomeError> {
        let unusable = |source| HomeError::Unusable { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        let mode = fs::metadata(&path).map_err(unusable)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).map_err(unusable)?;
        }
        let socket = path.join("parhelia.sock");
        let length = socket.as_os_str().len();
        if length > SOCKET_PATH_BYTES {
            return Err(HomeError::TooLong { path: socket, length });
        }
        let id = read_or_write(&path.join("home.id"), || entropy.uuid()).map_err(unusable)?;
        if id.len() != 36 {
            return Err(HomeError::BadId { path: path.join("home.id") });
        }
        Ok(Self { path, id })
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("parhelia.sock")
    }

    /// Secrets that containers may be given, one file each.
    pub fn secrets(&self) -> PathBuf {
        self.path.join("secrets")
    }

    /// Holds nothing but a socket for heartbeats: it is mounted into containers.
    pub fn door(&self) -> PathBuf {
        self.path.join("door")
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("parhelia.sqlite3")
    }

    /// From now on the home works on a shared database: no server without its address begins another history in the
    /// home's own file, as one would from a shell that lacks the variable.
    pub fn mark_shared(&self, instance_id: &str) -> Result<(), HomeError> {
        let path = self.path.join(SHARED);
        match read_or_write(&path, || instance_id.to_owned()) {
            Ok(_) => Ok(()),
            Err(source) => Err(HomeError::Unusable { path, source }),
        }
    }

    /// The home's own file is the one to work on.
    pub fn check_unshared(path: &Path) -> Result<(), HomeError> {
        let path = path.join(SHARED);
        match path.try_exists() {
            Ok(false) => Ok(()),
            Ok(true) => Err(HomeError::Shared { path }),
            Err(source) => Err(HomeError::Unusable { path, source }),
        }
    }

    pub fn token_file(&self) -> PathBuf {
        self.path.join("admin.token")
    }

    /// The admin token of the TCP door, made at the first start.
    pub fn admin_token(&self, entropy: &dyn Entropy) -> Result<String, HomeError> {
        let path = self.token_file();
        read_or_write(&path, || entropy.token()).map_err(|source| HomeError::Unusable { path, source })
    }

    /// Whether the home of that id at `path` is certainly served by nobody: it is the very home, and its lock is free. What
    /// cannot be looked at is not free.
    pub fn is_unserved(path: &Path, id: &str) -> bool {
        let known = read(&path.join("home.id")).ok().flatten();
        if known.as_deref() != Some(id) {
            return false;
        }
        let Ok(file) = File::open(path.join("server.lock")) else { return false };
        // Shared, and given back at once: a server that starts at this very moment tries again.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => flock(&file, FlockOperation::Unlock).is_ok(),
            Err(_) => false,
        }
    }

    /// Whoever gets this is the server of this home.
    pub fn lock(&self) -> Result<ServerLock, HomeError> {
        let path = self.path.join("server.lock");
        let unusable = |source: io::Error| HomeError::Unusable { path: path.clone(), source };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(ServerLock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(HomeError::Taken { path: self.path.clone() }),
            Err(e) => Err(unusable(e.into())),
        }
    }
}

/// The file's one line; written whole (temporary file, then rename) with mode 0600 when there is none.
fn read_or_write(path: &Path, make: impl FnOnce() -> String) -> io::Result<String> {
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    // Two may begin at the same moment, before either has the home: one writes, the other reads that.
    let temp = path.with_extension("tmp");
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&temp)?;
    flock(&file, FlockOperation::LockExclusive)?;
    if let Some(text) = read(path)? {
        // What we opened is that very file, or nobody's any more.
        let _ = fs::remove_file(&temp);
        return Ok(text);
    }
    let text = make();
    file.set_len(0)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&temp, path)?;
    Ok(text)
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match File::open(path) {
        Ok(mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(Some(text.trim().to_owned()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SystemEntropy;

    #[test]
    fn a_home_keeps_its_id_and_its_token_and_lets_one_server_in() {
        let dir = tempfile::tempdir().unwrap();
        let entropy = SystemEntropy::default();
        let home = Home::open(&dir.path().join("h"), &entropy).unwrap();
        let token = home.admin_token(&entropy).unwrap();
        assert_eq!(token.len(), 64);
        let again = Home::open(&home.path, &entropy).unwrap();
        assert_eq!((again.id.as_str(), again.admin_token(&entropy).unwrap()), (home.id.as_str(), token));
        let mode = |p: PathBuf| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(home.path.clone()), mode(home.token_file())), (0o700, 0o600));
        let lock = home.lock().unwrap();
        assert!(matches!(again.lock(), Err(HomeError::Taken { .. })));
        drop(lock);
        assert!(again.lock().is_ok());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(120));
        let error = Home::open(&long, &SystemEntropy::default()).unwrap_err().to_string();
        assert!(error.contains("shorter PARHELIA_HOME"), "{error}");
    }

    #[test]
    fn many_who_begin_at_once_agree_on_the_id() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Home::open(dir.path(), &SystemEntropy::default()).unwrap().id;
        let ids: Vec<String> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..16).map(|_| scope.spawn(open)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == open()), "{ids:?}");
    }
}
