//! Throws damaged documents at whatever parses bytes from outside. Noise alone never gets past the first
//! byte, so every input is a valid document of its kind with a few mutations, and a run fails unless a fair
//! share of its inputs was accepted and a fair share refused. A failure is shrunk to the fewest mutations.
//!
//! A target is a test like any other, where its parser can be seen. It runs for `PARHELIA_FUZZ_SECONDS`
//! (1 unless set); `scripts/soak.sh` gives it minutes.

mod mutate;

use std::cell::RefCell;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

pub use mutate::documents;

/// What a parser made of an input. A third outcome (a panic, a promise that is not kept) is the test's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused,
}

/// Longer than any input of this size may take, however busy the machine is.
const MOST_SECONDS: u64 = 20;
/// Of the inputs, this share at least must be accepted, and refused.
const FAIR_PERCENT: u64 = 2;
/// Inputs between two looks at the clock.
const BATCH: u32 = 64;

/// Runs `check` on mutations of `seeds`. `words` are what the format is made of: they are put in at random.
///
/// # Panics
/// When an input breaks what `check` promises, or when nearly all are accepted or nearly all refused.
pub fn fuzz(seeds: &[&str], words: &[&str], check: impl Fn(&[u8]) -> Verdict) {
    let seconds = std::env::var("PARHELIA_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (began, span) = (now(), Duration::from_secs(seconds));
    let counts = RefCell::new([0_u64; 2]);
    let config = Config { cases: BATCH, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let strategy = documents(seeds, words);
    while began.elapsed() < span {
        let outcome = runner.run(&strategy, |input| {
            let started = now();
            let verdict = check(&input);
            counts.borrow_mut()[usize::from(verdict == Verdict::Accepted)] += 1;
            match started.elapsed() {
                long if long.as_secs() >= MOST_SECONDS => {
                    Err(TestCaseError::fail(format!("it took {long:?}")))
                }
                _ => Ok(()),
            }
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(why, input)) => {
                panic!("{why}\n  input: {}\n  bytes: {input:?}", String::from_utf8_lossy(&input))
            }
            Err(TestError::Abort(why)) => panic!("{why}"),
        }
    }
    let [refused, accepted] = counts.into_inner();
    println!("{accepted} accepted, {refused} refused");
    let all = accepted + refused;
    for (share, what) in [(accepted, "accepted"), (refused, "refused")] {
        assert!(share * 100 >= all * FAIR_PERCENT, "only {share} of {all} inputs were {what}");
    }
}

/// A value that was read must be the same after it is written and read again.
///
/// # Panics
/// When it is not.
pub fn same<T: PartialEq + Debug, E: Debug>(value: &T, again: Result<T, E>) {
    match again {
        Ok(again) => assert_eq!(*value, again, "written and read again it is another"),
        Err(error) => panic!("written, it cannot be read again: {error:?}\n  value: {value:?}"),
    }
}

/// An error must say something, and not by repeating megabytes of what was wrong.
///
/// # Panics
/// When it does not.
pub fn says_something(error: &impl ToString) -> Verdict {
    let text = error.to_string();
    assert!(text.chars().any(char::is_alphabetic), "an error without a word: {text:?}");
    assert!(
        text.len() < 4096,
        "an error of {} bytes: {}",
        text.len(),
        text.chars().take(200).collect::<String>()
    );
    Verdict::Refused
}

#[allow(clippy::disallowed_methods, reason = "how long to go on is measured with the real clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "input")]
    fn a_parser_that_stumbles_is_found() {
        fuzz(&[r#"{"a": 1}"#], &["\"b\""], |input| {
            match serde_json::from_slice::<serde_json::Value>(input) {
                Ok(value) => {
                    assert!(value["a"] != serde_json::Value::Null, "it expects an a");
                    Verdict::Accepted
                }
                Err(_) => Verdict::Refused,
            }
        });
    }

    #[test]
    #[should_panic(expected = "inputs were accepted")]
    fn a_target_that_never_gets_past_the_door_is_found() {
        fuzz(&["{}"], &[], |_| Verdict::Refused);
    }
}
