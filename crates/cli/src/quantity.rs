//! Quantities as people type them: durations, sizes, moments, pairs. Every error shows a right example.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use parhelia_core::time::plus_seconds;

/// `90`, `90s`, `10m`, `1h30m`, `2d`, `1w`. A bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration: write it like 90s, 10m, 1h30m or 2d");
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if compact.is_empty() {
        return Err(wrong());
    }
    if let Ok(seconds) = compact.parse::<u64>() {
        return bounded(seconds as f64, text);
    }
    let mut rest = compact.as_str();
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let after = &rest[digits..];
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        seconds += number
            * match &after[..letters] {
                "ms" => 0.001,
                "s" | "sec" => 1.0,
                "m" | "min" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                "w" => 604_800.0,
                _ => return Err(wrong()),
            };
        rest = &after[letters..];
    }
    bounded(seconds, text)
}

fn bounded(seconds: f64, text: &str) -> Result<Duration, String> {
    if seconds > 315_576_000.0 {
        return Err(format!("'{text}' is longer than ten years"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("'{text}' is not a duration: {error}"))
}

/// Like [`duration`], and more than nothing.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        d if d < Duration::from_millis(100) => Err(format!("'{text}' is too short: at least 100ms")),
        d => Ok(d),
    }
}

/// Bytes: `64k`, `512m`, `2g`, `1.5GiB`. Powers of 1024, and a unit is needed.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: write it with a unit, like 512m or 2g");
    let lower = text.trim().to_ascii_lowercase();
    let at = lower.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let number: f64 = lower[..at].parse().map_err(|_| wrong())?;
    let unit: u64 = match lower[at..].trim() {
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    let total = number * unit as f64;
    if total >= (1_u64 << 53) as f64 { Err(wrong()) } else { Ok(total as u64) }
}

/// Memory in MB, at least one.
pub(crate) fn memory_mb(text: &str) -> Result<i64, String> {
    match bytes(text)? >> 20 {
        0 => Err(format!("'{text}' is less than 1m")),
        mb => i64::try_from(mb).map_err(|error| error.to_string()),
    }
}

/// A number of bytes, where a bare number is bytes.
pub(crate) fn byte_count(text: &str) -> Result<u64, String> {
    text.trim().parse::<u64>().or_else(|_| bytes(text))
}

pub(crate) fn cpu_cores(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 && n <= 4096.0 => Ok(n),
        _ => Err(format!("'{text}' is not a number of cores: write it like 0.5 or 4")),
    }
}

/// `key=value`; the value may be empty and may have `=` in it.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not a pair: write it like key=value")),
    }
}

/// `KEY=VALUE`, or `KEY` alone for the value that it has here.
pub(crate) fn variable(text: &str) -> Result<(String, Option<String>), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), Some(value.to_owned()))),
        None if !text.is_empty() => Ok((text.to_owned(), None)),
        _ => Err(format!("'{text}' is not a variable: write it like KEY=VALUE")),
    }
}

/// A moment, or how long ago it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    pub(crate) fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(at) => at,
            Moment::Ago(ago) => plus_seconds(now, -i64::try_from(ago.as_secs()).unwrap_or(i64::MAX)),
        }
    }
}

/// `1h`, `2026-01-21`, `2026-01-21 14:30`, `2026-01-21T14:30:00Z`. Without a zone it is UTC, as on the screens.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(ago) = duration(text) {
        return Ok(Moment::Ago(ago));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Moment::At(at));
    }
    let civil = text.trim_end_matches(" UTC").parse::<DateTime>().ok();
    civil.and_then(|at| at.to_zoned(TimeZone::UTC).ok()).map(|at| Moment::At(at.timestamp())).ok_or_else(
        || {
            format!(
                "'{text}' is not a time: write it like 1h (ago), '2026-01-21 14:30' or 2026-01-21T14:30:00Z"
            )
        },
    )
}

/// A TCP address; a bare port is on the loopback interface.
pub(crate) fn listen_address(text: &str) -> Result<std::net::SocketAddr, String> {
    let full = match text.strip_prefix(':').unwrap_or(text) {
        port if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
        _ => text.replace("localhost:", "127.0.0.1:"),
    };
    full.parse().map_err(|_| format!("'{text}' is not an address: write it like 127.0.0.1:7717 or just 7717"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is typed: no panic, an error with words, and what is accepted is in range.
    fn typed<T>(seeds: &[&str], parse: impl Fn(&str) -> Result<T, String>, holds: impl Fn(T) -> bool) {
        let words =
            ["ms", "m", "h", "d", "w", "g", "GiB", ".", "-", "1e9", "inf", "nan", "=", ":", "localhost"];
        parhelia_fuzz::fuzz(seeds, &words, |input| {
            let Ok(text) = std::str::from_utf8(input) else { return parhelia_fuzz::Verdict::Refused };
            match parse(text) {
                Ok(value) => {
                    assert!(holds(value), "out of range");
                    parhelia_fuzz::Verdict::Accepted
                }
                Err(why) if text.len() < 1000 => parhelia_fuzz::says_something(&why),
                // It repeats what was typed.
                Err(_) => parhelia_fuzz::Verdict::Refused,
            }
        });
    }

    #[test]
    fn whatever_is_typed_is_a_quantity_in_range_or_an_error() {
        let most = Duration::from_secs(315_576_000);
        typed(&["90", "1h30m", "1.5h", "250ms"], duration, |d| d <= most);
        typed(&["2s", "100ms"], interval, |d| d >= Duration::from_millis(100) && d <= most);
        typed(&["512m", "2g", "1.5GiB"], memory_mb, |mb| mb > 0);
        typed(&["512", "64k"], byte_count, |_| true);
        typed(&["0.5", "4"], cpu_cores, |n| n > 0.0 && n <= 4096.0);
        typed(&["a=b", "a="], pair, |(key, _)| !key.is_empty());
        typed(&["A=b", "A"], variable, |(key, _)| !key.is_empty());
        typed(&["127.0.0.1:7717", ":7717", "localhost:80", "[::1]:80"], listen_address, |_| true);
        let now: Timestamp = "2026-01-21T14:30:00Z".parse().unwrap();
        typed(&["1h", "2026-01-21", "2026-01-21 14:30 UTC", "2026-01-21T14:30:00Z"], moment, |at| match at {
            Moment::Ago(_) => at.resolve(now) <= now,
            Moment::At(exact) => at.resolve(now) == exact,
        });
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("90", 90.0),
            ("0", 0.0),
            ("90s", 90.0),
            ("10m", 600.0),
            ("1h30m", 5400.0),
            ("1h 30m", 5400.0),
            ("1.5h", 5400.0),
            ("2d", 172_800.0),
            ("1w", 604_800.0),
            ("250ms", 0.25),
        ] {
            assert_eq!(duration(text).unwrap(), Duration::from_secs_f64(seconds), "{text}");
        }
        for bad in ["", "m", "10x", "-5s", "1h30", "9999999d", "1e400s", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("ten").unwrap_err().contains("1h30m"));
        assert!(interval("0").is_err());
        assert!(interval("100ms").is_ok());
    }

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(memory_mb("512m").unwrap(), 512);
        assert_eq!(memory_mb("2g").unwrap(), 2048);
        assert_eq!(memory_mb("1.5GiB").unwrap(), 1536);
        assert_eq!(memory_mb("2 GB").unwrap(), 2048);
        for bad in ["512", "", "m", "10x", "1k", "-2g"] {
            assert!(memory_mb(bad).is_err(), "{bad}");
        }
        assert_eq!(byte_count("4096").unwrap(), 4096);
        assert_eq!(byte_count("64k").unwrap(), 65_536);
    }

    #[test]
    fn moments_are_ages_or_times_in_utc() {
        let now: Timestamp = "2026-01-21T15:30:00Z".parse().unwrap();
        let half_past_two: Timestamp = "2026-01-21T14:30:00Z".parse().unwrap();
        for text in [
            "1h",
            "2026-01-21 14:30",
            "2026-01-21T14:30:00Z",
            "2026-01-21T15:30:00+01:00",
            "2026-01-21 14:30:00 UTC",
        ] {
            assert_eq!(moment(text).unwrap().resolve(now), half_past_two, "{text}");
        }
        assert_eq!(moment("2026-01-21").unwrap().resolve(now).to_string(), "2026-01-21T00:00:00Z");
        assert!(moment("yesterday").unwrap_err().contains("1h (ago)"));
    }

    #[test]
    fn pairs_variables_cores_and_addresses() {
        assert_eq!(pair("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(pair("a").is_err() && pair("=b").is_err());
        assert_eq!(variable("HOME").unwrap(), ("HOME".into(), None));
        assert_eq!(variable("A=").unwrap(), ("A".into(), Some(String::new())));
        assert!(variable("=x").is_err() && variable("").is_err());
        assert_eq!(cpu_cores("0.5").unwrap(), 0.5);
        assert!(cpu_cores("0").is_err() && cpu_cores("nan").is_err() && cpu_cores("-1").is_err());
        for text in ["7717", ":7717", "127.0.0.1:7717", "localhost:7717"] {
            assert_eq!(listen_address(text).unwrap().to_string(), "127.0.0.1:7717", "{text}");
        }
        assert!(listen_address("nowhere").is_err());
    }
}
