//! Time as the rest of the program sees it: UTC, milliseconds, and always handed in.

use std::time::Duration;

use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp, Unit};

/// The only way to learn the time. Read once per tick or request, at the edge.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall clock, for people and for the store. Never used to decide how long somebody was silent.
    fn now(&self) -> Timestamp;
    /// A clock that only goes forward, counted from an arbitrary start. Ages are measured with it.
    fn monotonic(&self) -> Duration;
}

/// The stored text form: fixed width, so that text order is time order.
pub fn to_text(at: Timestamp) -> String {
    let civil = Offset::UTC.to_datetime(at);
    let Ok(year @ 0..=9999) = u32::try_from(civil.year()) else {
        return at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
    };
    // By hand, because it stands in the way of every heartbeat and every event.
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut put = |place: std::ops::Range<usize>, mut value: u32| {
        for digit in text[place].iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(0..4, year);
    put(5..7, civil.month().unsigned_abs().into());
    put(8..10, civil.day().unsigned_abs().into());
    put(11..13, civil.hour().unsigned_abs().into());
    put(14..16, civil.minute().unsigned_abs().into());
    put(17..19, civil.second().unsigned_abs().into());
    put(20..23, civil.millisecond().unsigned_abs().into());
    text.iter().map(|byte| char::from(*byte)).collect()
}

pub fn from_text(text: &str) -> Result<Timestamp, jiff::Error> {
    text.parse()
}

/// Cuts to the milliseconds that the store keeps, so that a value read back equals the one written.
pub fn to_millis(at: Timestamp) -> Timestamp {
    let options = jiff::TimestampRound::new().smallest(Unit::Millisecond).mode(jiff::RoundMode::Trunc);
    at.round(options).unwrap_or(at)
}

/// Seconds from `from` to `to`; negative when `to` is earlier.
pub fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// `at + seconds`, staying at the end of time rather than failing.
pub fn plus_seconds(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// `at + seconds`, for a wait that began at `at`. A beginning in the future means that the clock was set
/// back: nobody knows how long ago it was, and nobody waits an hour because of it.
pub fn due_at(at: Timestamp, seconds: i64, now: Timestamp) -> Timestamp {
    if at > now { now } else { plus_seconds(at, seconds) }
}

/// `2h 15m`, `45m`, `30s`, `3d 4h`: the two largest units, as on the seed's screens.
pub fn human_age(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    let (d, h, m) = (s / 86_400, (s / 3600) % 24, (s / 60) % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, m) => format!("{m}m"),
        (0, h, m) => format!("{h}h {m}m"),
        (d, h, _) => format!("{d}d {h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_fixed_width_and_round_trips() {
        let at: Timestamp = "2026-01-21T14:30:00.5Z".parse().unwrap();
        assert_eq!(to_text(at), "2026-01-21T14:30:00.500Z");
        assert_eq!(from_text(&to_text(at)).unwrap(), at);
    }

    #[test]
    fn text_by_hand_is_the_text_of_the_library() {
        let (mut at, end) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
        while at < end {
            let moment = Timestamp::from_millisecond(at).unwrap();
            assert_eq!(to_text(moment), moment.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string());
            at += 86_400_000 * 37 + 3_599_999;
        }
    }

    #[test]
    fn millis_are_cut_not_rounded() {
        let at: Timestamp = "2026-01-21T14:30:00.123999Z".parse().unwrap();
        assert_eq!(to_text(to_millis(at)), "2026-01-21T14:30:00.123Z");
    }

    #[test]
    fn a_wait_that_began_in_the_future_is_over() {
        let now: Timestamp = "2026-01-21T14:30:00Z".parse().unwrap();
        assert_eq!(due_at(plus_seconds(now, -5), 30, now), plus_seconds(now, 25));
        assert_eq!(due_at(plus_seconds(now, 3600), 30, now), now);
    }

    #[test]
    fn ages_read_like_the_screens() {
        for (seconds, text) in [
            (0.0, "0s"),
            (30.9, "30s"),
            (2700.0, "45m"),
            (8100.0, "2h 15m"),
            (273_600.0, "3d 4h"),
            (-5.0, "0s"),
        ] {
            assert_eq!(human_age(seconds), text);
        }
    }
}
