//! Which kernel this is, and whether a lock on a path is this kernel's alone.

use std::io;
use std::path::Path;

/// The running kernel and the machine under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Random at every start of the kernel.
    pub boot_id: String,
    /// `None` where the machine has no identity (some containers); then only the boot id counts.
    pub machine_id: Option<String>,
}

impl Host {
    pub fn this() -> io::Result<Self> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let machine_id = ["/etc/machine-id", "/var/lib/dbus/machine-id"].iter().find_map(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            let text = text.trim();
            (!text.is_empty() && text != "uninitialized").then(|| text.to_owned())
        });
        Ok(Self { boot_id, machine_id })
    }
}

/// File systems whose locks other machines or daemons keep, by their `statfs` number.
const SHARED: &[(u32, &str)] = &[
    (0x0000_6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb"),
    (0x0000_517b, "smb"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x0000_564c, "ncp"),
    (0x0bd0_0bd0, "lustre"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x786f_4256, "vboxsf"),
    (0xbacb_acbc, "vmhgfs"),
];

/// `Err` says why a free lock at `path` proves nothing.
pub fn local_filesystem(path: &Path) -> io::Result<Result<(), String>> {
    let magic = rustix::fs::statfs(path)?.f_type as u32;
    Ok(match SHARED.iter().find(|(number, _)| *number == magic) {
        None => Ok(()),
        Some((_, name)) => Err(format!(
            "{} is on a shared file system ({name}), where a free lock proves nothing; keep the home on a \
             local disk",
            path.display()
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_told_from_others() {
        let host = Host::this().unwrap();
        assert_eq!(host.boot_id.len(), 36);
        assert_eq!(local_filesystem(&std::env::temp_dir()).unwrap(), Ok(()));
    }
}
