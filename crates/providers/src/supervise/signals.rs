//! Signals to the supervisor itself. A handler only sets a flag: the main thread looks at it. Handlers (not
//! "ignore") are used throughout, because a command started from here gets its defaults back by that.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// As people know it.
pub(super) fn name(signal: i32) -> String {
    let known = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        other => return format!("signal {other}"),
    };
    known.to_owned()
}
