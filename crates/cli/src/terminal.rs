//! The terminal of whoever is attached to a job: raw while they are, and as it was afterwards, whichever way this
//! program ends (SIGKILL excepted).

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::str::FromStr;
use std::sync::{Mutex, Once, PoisonError};

use parhelia_core::job::Terminal;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr};

/// As it was before it was made raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static ON_PANIC: Once = Once::new();

/// Both ends are a person's.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

pub(crate) fn size() -> Option<Terminal> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some(Terminal { rows: size.ws_row, cols: size.ws_col }).filter(|size| size.rows > 0 && size.cols > 0)
}

/// Every key as it is typed, to whom it is for. Ends with the value.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    pub(crate) fn begin() -> std::io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        ON_PANIC.call_once(|| {
            let earlier = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                earlier(panic);
            }));
        });
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// Forgets what was typed, or answered by the terminal itself, and not read yet.
pub(crate) fn forget_typed() {
    let _ = tcflush(stdin(), QueueSelector::IFlush);
}

/// The private modes that a program has switched (another screen, the mouse, the cursor), so that leaving it in the
/// middle leaves a usable terminal.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    /// Those that are not as a terminal begins.
    switched: BTreeSet<u16>,
    at: At,
}

#[derive(Debug, Default)]
enum At {
    #[default]
    Text,
    Escape,
    Bracket,
    Numbers(Vec<u16>),
}

/// On from the beginning: the cursor, and wrapping at the end of a line.
const ON_AT_FIRST: [u16; 2] = [25, 7];
const NUMBERS_MAX: usize = 16;

impl Modes {
    pub(crate) fn watch(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.at = match (std::mem::take(&mut self.at), byte) {
                (_, 0x1b) => At::Escape,
                (At::Escape, b'[') => At::Bracket,
                (At::Bracket, b'?') => At::Numbers(vec![0]),
                (At::Numbers(mut numbers), b'0'..=b'9') => {
                    if let Some(last) = numbers.last_mut() {
                        *last = last.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                    }
                    At::Numbers(numbers)
                }
                (At::Numbers(mut numbers), b';') if numbers.len() < NUMBERS_MAX => {
                    numbers.push(0);
                    At::Numbers(numbers)
                }
                (At::Numbers(numbers), b'h' | b'l') => {
                    numbers.into_iter().for_each(|mode| self.switch(mode, *byte == b'h'));
                    At::Text
                }
                _ => At::Text,
            };
        }
    }

    fn switch(&mut self, mode: u16, on: bool) {
        if on == ON_AT_FIRST.contains(&mode) {
            self.switched.remove(&mode);
        } else if self.switched.len() < 256 {
            self.switched.insert(mode);
        }
    }

    /// What puts them back.
    fn undone(&self) -> String {
        let back = |mode: &u16| format!("\x1b[?{mode}{}", if ON_AT_FIRST.contains(mode) { 'h' } else { 'l' });
        let modes: String = self.switched.iter().map(back).collect();
        if modes.is_empty() { modes } else { modes + "\x1b[0m" }
    }

    pub(crate) fn undo(&self) {
        let mut out = std::io::stdout();
        let _ = out.write_all(self.undone().as_bytes()).and_then(|()| out.flush());
    }
}

/// A sequence of keys that is for us and not for the job: `ctrl-p,ctrl-q`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DetachKeys(Vec<u8>);

impl DetachKeys {
    pub(crate) const DEFAULT: &str = "ctrl-p,ctrl-q";
}

impl FromStr for DetachKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = |word: &str| -> Option<u8> {
            let byte = |text: &str| match text.as_bytes() {
                [byte] if byte.is_ascii_graphic() => Some(*byte),
                _ => None,
            };
            match word.strip_prefix("ctrl-") {
                Some(rest) => byte(rest)
                    .map(|byte| byte.to_ascii_uppercase())
                    .filter(|byte| matches!(byte, b'@'..=b'_'))
                    .map(|byte| byte - b'@'),
                None => byte(word),
            }
        };
        let keys: Option<Vec<u8>> = text.split(',').map(key).collect();
        keys.map(Self).ok_or_else(|| {
            "write it like ctrl-p,ctrl-q: letters, or ctrl- and one of a-z @ [ \\ ] ^ _".to_owned()
        })
    }
}

/// Looks for the keys in what is typed.
#[derive(Debug)]
pub(crate) struct Typed {
    keys: Vec<u8>,
    /// How many of them have come in a row, and are held back.
    held: usize,
}

/// What came of some typing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typing {
    ForJob(Vec<u8>),
    /// After this much for the job.
    Detach(Vec<u8>),
}

impl Typed {
    pub(crate) fn new(keys: &DetachKeys) -> Self {
        Self { keys: keys.0.clone(), held: 0 }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Typing {
        let mut passed = Vec::with_capacity(bytes.len());
        for byte in bytes {
            if self.keys.get(self.held) != Some(byte) {
                passed.extend_from_slice(&self.keys[..self.held]);
                self.held = 0;
            }
            if self.keys.get(self.held) == Some(byte) {
                self.held += 1;
                if self.held == self.keys.len() {
                    return Typing::Detach(passed);
                }
            } else {
                passed.push(*byte);
            }
        }
        Typing::ForJob(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_people_say_them() {
        let keys = |text: &str| text.parse::<DetachKeys>().map(|keys| keys.0);
        assert_eq!(keys(DetachKeys::DEFAULT), Ok(vec![16, 17]));
        assert_eq!(keys("ctrl-],q"), Ok(vec![29, b'q']));
        assert_eq!(keys("ctrl-\\"), Ok(vec![28]));
        for bad in ["", "ctrl-", "ctrl-pq", "ctrl-1", "a,,b", "ä"] {
            assert!(keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_whole_sequence_detaches_and_nothing_else_is_swallowed() {
        let mut typed = Typed::new(&DetachKeys(vec![16, 17]));
        let job = |bytes: &[u8]| Typing::ForJob(bytes.to_vec());
        assert_eq!(typed.take(b"ab\x10"), job(b"ab"));
        assert_eq!(typed.take(b"c"), job(b"\x10c"));
        assert_eq!(typed.take(b"\x10\x10"), job(b"\x10"));
        assert_eq!(typed.take(b"\x11rest"), Typing::Detach(vec![]));
        let mut typed = Typed::new(&DetachKeys(vec![16, 17]));
        assert_eq!(typed.take(b"x\x11y\x10\x11"), Typing::Detach(b"x\x11y".to_vec()));
    }

    #[test]
    fn what_a_program_switched_is_switched_back() {
        let mut modes = Modes::default();
        assert_eq!(modes.undone(), "");
        for piece in
            [&b"\x1b[?1049h\x1b[?25"[..], b"l\x1b[?1000;1006hhello \x1b[31m", b"\x1b[?2004h\x1b[?2004l"]
        {
            modes.watch(piece);
        }
        assert_eq!(modes.undone(), "\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[0m");
        modes.watch(b"\x1b[?1049l\x1b[?25h\x1b[?1006;1000l");
        assert_eq!(modes.undone(), "");
    }
}
