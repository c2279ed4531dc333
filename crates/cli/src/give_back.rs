//! What only the start needed goes back to the system.
#![allow(unsafe_code, reason = "calls of the C library that no crate wraps safely")]

/// Of the heap a third, which the allocator would keep, and of the program itself the pages that nothing uses again: the
/// system maps sixteen of them around each one that is touched.
pub(crate) fn give_back() {
    heap();
    if let Ok(maps) = std::fs::read_to_string("/proc/self/maps") {
        program(&maps);
    }
}

/// What was freed and the allocator keeps.
#[cfg(target_env = "gnu")]
pub(crate) fn heap() {
    // SAFETY: it takes a number, locks the heap itself, and releases only pages that hold nothing.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn heap() {}

/// The code of this program: mapped from its file, and never written to.
fn program(maps: &str) {
    let Ok(file) = std::env::current_exe() else { return };
    for (start, length) in code(maps, &file.to_string_lossy()) {
        // SAFETY: the range is one mapping of this process, of a file, readable and executable and not writable: whatever
        // is used again is read from the file again.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
    }
}

/// The places and lengths of what is mapped from that file to be executed and cannot be written to.
fn code(maps: &str, file: &str) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        // The path may have spaces in it, and has some before it.
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let is_code = words.next()? == "r-xp";
        let path = words.nth(3)?.trim_start();
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        (is_code && path == file).then_some((start, end.checked_sub(start)?))
    };
    maps.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_the_program_itself_is_given_back() {
        let maps = "\
5580a000-5580c000 r--p 00000000 fe:00 11 /usr/bin/parhelia
5580c000-5590c000 r-xp 00002000 fe:00 11                         /usr/bin/parhelia
5600c000-5601c000 r-xp 00002000 fe:00 13                         /opt/my programs/parhelia
5590c000-55910000 r--p 00102000 fe:00 11 /usr/bin/parhelia
55910000-55911000 rw-p 00106000 fe:00 11 /usr/bin/parhelia
55920000-55940000 rw-p 00000000 00:00 0 [heap]
7f000000-7f100000 r-xp 00028000 fe:00 12 /usr/lib/x86_64-linux-gnu/libc.so.6
7f200000-7f300000 r-xp 00000000 00:00 0
7f300000-7f301000 r-xp 00000000 00:00 0 [vdso]
";
        assert_eq!(code(maps, "/usr/bin/parhelia"), [(0x5580_c000, 0x10_0000)]);
        assert_eq!(code(maps, "/opt/my programs/parhelia"), [(0x5600_c000, 0x1_0000)]);
        assert_eq!(code(maps, "/usr/bin/other"), []);
        assert_eq!(code("nonsense\n-\nzz-yy r-xp 0 0 0 /usr/bin/parhelia", "/usr/bin/parhelia"), []);
    }

    #[test]
    fn the_program_goes_on_after_it() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let me = std::env::current_exe().unwrap();
        assert!(!code(&maps, &me.to_string_lossy()).is_empty(), "{maps}");
        give_back();
        assert_eq!((1..=100).map(|n| n * n).sum::<u64>(), 338_350);
    }
}
