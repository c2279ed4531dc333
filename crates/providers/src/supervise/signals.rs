//! Signals to the supervisor itself. A handler only sets a flag: the main thread looks at it. Handlers (not
//! "ignore") are used throughout, because a command started from here gets its defaults back by that.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn ask_stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn ignore(_: libc::c_int) {}

/// SIGTERM and SIGINT ask for a stop; a closed terminal (SIGHUP) is none of our business.
#[allow(unsafe_code, reason = "no safe way to install a handler without a runtime")]
pub(super) fn install() -> io::Result<()> {
    let handlers: [(libc::c_int, extern "C" fn(libc::c_int)); 3] =
        [(libc::SIGTERM, ask_stop), (libc::SIGINT, ask_stop), (libc::SIGHUP, ignore)];
    for (signal, handler) in handlers {
        // SAFETY: `action` is fully initialised (zeroed is a valid value of it), the handlers do nothing but
        // one atomic store, and the pointer is used during the call only.
        let answer = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    restore_inherited()
}

/// Whoever started the server may have ignored or blocked signals, and exec hands that on. An ignored
/// SIGCHLD would let the kernel throw the command's exit status away.
#[allow(unsafe_code, reason = "no safe way to change dispositions and masks without a runtime")]
fn restore_inherited() -> io::Result<()> {
    for signal in [libc::SIGCHLD, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM] {
        // SAFETY: the default disposition runs no code of ours.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: `none` is initialised by `sigemptyset` before it is read, and both calls use it only meanwhile.
    let answer = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

pub(super) fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Those that somebody attached may send.
pub(super) fn that_may_be_passed_on(name: &str) -> Option<Signal> {
    match name {
        "HUP" => Some(Signal::HUP),
        "INT" => Some(Signal::INT),
        "QUIT" => Some(Signal::QUIT),
        "TERM" => Some(Signal::TERM),
        "PIPE" => Some(Signal::PIPE),
        "USR1" => Some(Signal::USR1),
        "USR2" => Some(Signal::USR2),
        "CONT" => Some(Signal::CONT),
        "TSTP" => Some(Signal::TSTP),
        "WINCH" => Some(Signal::WINCH),
        _ => None,
    }
}

/// As people know them.
const NAMES: [(i32, &str); 18] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGSYS, "SIGSYS"),
];

pub(super) fn name(signal: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// The number behind a name that [`name`] gave.
pub(crate) fn number(name: &str) -> Option<i32> {
    let known = NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
    known.or_else(|| name.strip_prefix("signal ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_number() {
        for signal in 1..65 {
            assert_eq!(number(&name(signal)), Some(signal));
        }
        assert_eq!(number("SIGNOTHING"), None);
    }
}
