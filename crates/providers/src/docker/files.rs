//! Files on their way into a container that is not started yet.

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::UploadToContainerOptionsBuilder;
use bytes::Bytes;

/// An archive as the engine takes it. Has no `Debug` that shows what is in it.
#[derive(Default)]
pub(crate) struct Files(Vec<u8>);

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({} bytes)", self.0.len())
    }
}

impl Files {
    pub(crate) fn directory(&mut self, path: &str, mode: u32) {
        entry(&mut self.0, &format!("{}/", path.trim_matches('/')), b'5', mode, (0, 0), &[]);
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, owner: (u32, u32), data: &[u8]) {
        entry(&mut self.0, path.trim_start_matches('/'), b'0', mode, owner, data);
    }

    pub(crate) async fn deliver(mut self, docker: &Docker, id: &str) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.0.extend_from_slice(&[0; 1024]);
        let options =
            UploadToContainerOptionsBuilder::default().path("/").no_overwrite_dir_non_dir("1").build();
        docker.upload_to_container(id, Some(options), bollard::body_full(Bytes::from(self.0))).await
    }
}

/// One entry of a POSIX (ustar) archive. Names are at most 100 bytes long, so no extension is needed.
fn entry(tar: &mut Vec<u8>, name: &str, kind: u8, mode: u32, (uid, gid): (u32, u32), data: &[u8]) {
    let mut header = [0u8; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, &number(uid));
    put(116, &number(gid));
    put(124, format!("{:011o}", data.len()).as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(data);
    tar.resize(tar.len().div_ceil(512) * 512, 0);
}

/// Seven octal digits, as long as they hold it; else as bytes, which a first bit says.
fn number(id: u32) -> [u8; 8] {
    let mut field = [0; 8];
    if id <= 0o7_777_777 {
        field[..7].copy_from_slice(format!("{id:07o}").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&id.to_be_bytes());
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_of_any_size_fits() {
        assert_eq!(&number(1000), b"0001750\0");
        assert_eq!(&number(2_097_151), b"7777777\0");
        assert_eq!(number(2_097_152), [0x80, 0, 0, 0, 0, 0x20, 0, 0]);
        assert_eq!(number(u32::MAX), [0x80, 0, 0, 0, 255, 255, 255, 255]);
    }
}
