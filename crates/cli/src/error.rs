//! What can go wrong, in words for people and for programs, and the one mapping to exit codes: of the
//! server's problems, of broken connections, and of the command's own findings.

use std::error::Error as _;
use std::io;

use parhelia_core::api::Problem;
use parhelia_core::cascade::parse::Mistake;
use serde::Serialize;

pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    Failure = 1,
    Usage = 2,
    NotFound = 3,
    /// Not allowed, or in conflict with something else.
    Refused = 4,
    /// The command did its part; the work that it waited for failed.
    WorkFailed = 5,
    Timeout = 6,
    Interrupted = 130,
}

impl Exit {
    pub(crate) fn code(self) -> i32 {
        self as i32
    }
}

/// Everything that ends a command early. An empty message is not shown: there is nobody left to read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CliError {
    #[serde(skip)]
    pub(crate) exit: Exit,
    /// A stable word for programs.
    pub(crate) code: String,
    pub(crate) message: String,
    /// What to do about it; may be empty.
    pub(crate) fix: String,
    /// What is wrong with a file, where that is the matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) mistakes: Vec<Mistake>,
}

impl CliError {
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.to_owned(),
            message: message.into(),
            fix: String::new(),
            mistakes: Vec::new(),
        }
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    pub(crate) fn failure(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Failure, code, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(Exit::Timeout, "timeout", message)
    }

    /// Ctrl-C is the usual end of what follows something; only what goes on without us is worth a word.
    pub(crate) fn interrupted(note: &str) -> Self {
        let message = if note.is_empty() { String::new() } else { format!("interrupted: {note}") };
        Self::new(Exit::Interrupted, "interrupted", message)
    }

    /// The reader of our output went away (`| head`): the end of the work, not a failure of it.
    fn reader_gone() -> Self {
        Self::new(Exit::Ok, "reader_gone", "")
    }

    /// A write to standard output failed.
    pub(crate) fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::reader_gone();
        }
        Self::failure("output_failed", format!("cannot write the output: {error}"))
    }

    pub(crate) fn io(what: impl Into<String>, error: &io::Error) -> Self {
        let exit =
            if error.kind() == io::ErrorKind::PermissionDenied { Exit::Refused } else { Exit::Failure };
        Self::new(exit, "io", format!("{}: {error}", what.into()))
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        let exit = match problem.status {
            400 | 405 | 411 | 413 | 414 | 415 | 422 => Exit::Usage,
            404 | 410 => Exit::NotFound,
            401 | 403 | 409 | 412 => Exit::Refused,
            408 | 504 => Exit::Timeout,
            _ => Exit::Failure,
        };
        let mut fix = problem.fix;
        if fix.is_empty() {
            fix = match problem.status {
                401 | 403 => "give a token with PARHELIA_TOKEN or PARHELIA_TOKEN_FILE".to_owned(),
                429 | 503 => "try again in a moment".to_owned(),
                _ => String::new(),
            };
        } else if problem.status == 503 && !fix.contains("try again") {
            fix.push_str("; then try again");
        }
        let message = if problem.detail.is_empty() { problem.title } else { problem.detail };
        let code = if problem.code.is_empty() { format!("http_{}", problem.status) } else { problem.code };
        Self { exit, code, message, fix, mistakes: Vec::new() }
    }
}

/// Why no answer came. Only the first one proves that nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Nobody listens there.
    NoServer,
    /// Somebody may listen there, and we may not ask.
    Denied,
    /// The connection broke after the question was sent, or while it was.
    Broken(String),
    TimedOut,
    /// It could not be reached at all, in another way (name, certificate, network).
    Unreachable(String),
}

/// What was asked for may be there by now.
const LOOK_FIRST: &str =
    "look with 'parhelia containers', 'parhelia jobs' or 'parhelia sessions' before you repeat it";

impl Transport {
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        let mut kind = None;
        let mut last = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                kind = Some(io.kind());
            }
            last = cause.to_string();
            source = cause.source();
        }
        Self::classify(error.is_connect(), error.is_timeout(), kind, last)
    }

    fn classify(connecting: bool, timed_out: bool, kind: Option<io::ErrorKind>, last: String) -> Self {
        match kind {
            Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) if connecting => Self::NoServer,
            Some(io::ErrorKind::PermissionDenied) if connecting => Self::Denied,
            _ if timed_out => Self::TimedOut,
            // Somebody listened and left before it took the connection: a server that is just stopping.
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Self::Broken(last),
            _ if connecting => Self::Unreachable(last),
            _ => Self::Broken(last),
        }
    }

    /// `place` is the socket or the address that was asked.
    pub(crate) fn into_error(self, place: &str, remote: bool) -> CliError {
        match self {
            Self::NoServer if remote => {
                CliError::failure("no_server", format!("no server answers at {place}"))
                    .fix("check PARHELIA_URL, or start one there with 'parhelia up --listen ADDR'")
            }
            Self::NoServer => CliError::failure("no_server", format!("no server answers at {place}"))
                .fix("start one with 'parhelia up'"),
            Self::Denied => {
                CliError::new(Exit::Refused, "denied", format!("you may not connect to {place}: permission denied"))
                    .fix("use the account that owns this home, or your own with --home DIR")
            }
            Self::Broken(why) => CliError::failure(
                "connection_broken",
                format!("the connection to {place} broke before the answer came ({why}); the request may have been carried out"),
            )
            .fix(LOOK_FIRST),
            Self::TimedOut => CliError::timeout(format!(
                "{place} did not answer in time; the request may have been carried out"
            ))
            .fix(LOOK_FIRST),
            Self::Unreachable(why) => CliError::failure("unreachable", format!("cannot reach {place}: {why}"))
                .fix("check the address and the network"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, fix: &str) -> Problem {
        Problem {
            kind: String::new(),
            title: "Title".into(),
            status,
            detail: "detail".into(),
            code: "word".into(),
            fix: fix.into(),
        }
    }

    #[test]
    fn every_status_has_its_exit_code() {
        for (status, code) in [
            (400, 2),
            (401, 4),
            (403, 4),
            (404, 3),
            (409, 4),
            (413, 2),
            (422, 2),
            (429, 1),
            (500, 1),
            (503, 1),
            (504, 6),
        ] {
            assert_eq!(CliError::from(problem(status, "")).exit.code(), code, "{status}");
        }
    }

    #[test]
    fn a_busy_server_is_tried_again_and_a_given_fix_is_kept() {
        assert_eq!(CliError::from(problem(503, "")).fix, "try again in a moment");
        assert_eq!(CliError::from(problem(503, "free some disk")).fix, "free some disk; then try again");
        assert_eq!(CliError::from(problem(404, "see 'x'")).fix, "see 'x'");
    }

    #[test]
    fn only_a_refused_or_missing_socket_means_that_no_server_is_there() {
        use io::ErrorKind::*;
        let of = |connecting, kind| Transport::classify(connecting, false, kind, "why".into());
        assert_eq!(of(true, Some(NotFound)), Transport::NoServer);
        assert_eq!(of(true, Some(ConnectionRefused)), Transport::NoServer);
        assert_eq!(of(true, Some(PermissionDenied)), Transport::Denied);
        assert_eq!(of(true, None), Transport::Unreachable("why".into()));
        assert_eq!(of(false, Some(ConnectionReset)), Transport::Broken("why".into()));
        assert_eq!(Transport::classify(false, true, None, String::new()), Transport::TimedOut);
        assert_eq!(Transport::Denied.into_error("x", false).exit.code(), 4);
        assert_eq!(Transport::TimedOut.into_error("x", false).exit.code(), 6);
        assert_eq!(Transport::NoServer.into_error("x", false).exit.code(), 1);
    }

    #[test]
    fn a_closed_pipe_is_a_quiet_end() {
        let error = CliError::output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((error.exit.code(), error.message.as_str()), (0, ""));
    }

    #[test]
    fn programs_get_three_fields() {
        let error = CliError::usage("no").fix("yes");
        assert_eq!(serde_json::to_string(&error).unwrap(), r#"{"code":"usage","message":"no","fix":"yes"}"#);
    }
}
