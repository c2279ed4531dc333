//! Secrets: names in the specification, values only here and only on their way. They come from a file or the
//! server's environment, and go into the container as files before it starts. They are in no variable, no label,
//! no log line and no record, and their `Debug` shows nothing.

use std::fmt;
use std::path::Path;

use super::files::Files;

/// Where a container finds them.
pub(crate) const DIRECTORY: &str = "/run/secrets";

pub(crate) struct Secret {
    name: String,
    value: Vec<u8>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.name)
    }
}

pub(crate) fn resolve(dir: &Path, names: &[String]) -> Result<Vec<Secret>, String> {
    names.iter().map(|name| resolve_one(dir, name)).collect()
}

fn resolve_one(dir: &Path, name: &str) -> Result<Secret, String> {
    Ok(Secret { name: name.to_owned(), value: crate::secret::read(dir, name)? })
}

/// Readable by its user alone, where that is a number. The numbers behind a name are known to the image only:
/// then everybody inside may read them.
fn owner(user: Option<&str>) -> (u32, u32, u32) {
    let Some(user) = user.filter(|user| !user.is_empty()) else { return (0, 0, 0o400) };
    let (uid, gid) = user.split_once(':').unwrap_or((user, "0"));
    match (uid.parse(), gid.parse()) {
        (Ok(uid), Ok(gid)) => (uid, gid, 0o400),
        (Ok(uid), Err(_)) => (uid, 0, 0o400),
        (Err(_), _) => (0, 0, 0o444),
    }
}

/// Puts them where the container will find them.
pub(crate) fn pack(files: &mut Files, user: Option<&str>, secrets: &[Secret]) {
    if secrets.is_empty() {
        return;
    }
    files.directory(DIRECTORY, 0o755);
    for secret in secrets {
        pack_one(files, user, &format!("{DIRECTORY}/{}", secret.name), &secret.value);
    }
}

pub(crate) fn pack_one(files: &mut Files, user: Option<&str>, path: &str, value: &[u8]) {
    let (uid, gid, mode) = owner(user);
    files.file(path, mode, (uid, gid), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_before_the_environment_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("PATH"), "from the file").unwrap();
        let names = |name: &str| vec![name.to_owned()];
        assert_eq!(resolve(dir.path(), &names("PATH")).unwrap()[0].value, b"from the file");
        assert!(!resolve(Path::new("/nowhere"), &names("PATH")).unwrap()[0].value.is_empty());
        let error = resolve(dir.path(), &names("NOT_SET_ANYWHERE")).unwrap_err();
        assert!(error.contains("NOT_SET_ANYWHERE") && error.contains("environment"), "{error}");
        assert!(resolve(dir.path(), &names("../etc/passwd")).is_err());
    }

    #[test]
    fn a_secret_never_shows_its_value() {
        let secret = Secret { name: "KEY".into(), value: b"hunter2".to_vec() };
        assert_eq!(format!("{secret:?}"), "Secret(KEY)");
    }

    #[test]
    fn only_its_user_may_read_it_where_the_number_is_known() {
        assert_eq!(owner(None), (0, 0, 0o400));
        assert_eq!(owner(Some("1000")), (1000, 0, 0o400));
        assert_eq!(owner(Some("1000:50")), (1000, 50, 0o400));
        assert_eq!(owner(Some("agent")), (0, 0, 0o444));
    }
}
