//! Where the value of a named secret comes from: a file of that name in the home's `secrets`, else the server's
//! environment. Read when it is needed; whoever reads it keeps it no longer than that.

use std::io;
use std::path::Path;

const MAX_BYTES: usize = 1 << 20;

pub fn read(dir: &Path, name: &str) -> Result<Vec<u8>, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if name.is_empty() || !name.bytes().all(plain) {
        return Err("a secret's name has only letters, digits, '_' and '-'".to_owned());
    }
    let path = dir.join(name);
    let value = match std::fs::read(&path) {
        Ok(value) => value,
        Err(error) if error.kind() == io::ErrorKind::NotFound => match std::env::var_os(name) {
            Some(value) => value.into_encoded_bytes(),
            None => {
                return Err(format!(
                    "the secret {name} is not known: put it into {}, or into the environment of the server",
                    path.display()
                ));
            }
        },
        Err(error) => return Err(format!("the secret {} cannot be read: {error}", path.display())),
    };
    if value.len() > MAX_BYTES {
        return Err(format!("the secret {name} is too large: at most 1 MiB"));
    }
    Ok(value)
}
