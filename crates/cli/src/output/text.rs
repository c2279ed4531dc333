//! Small pieces of every screen: money, percentages, times, colours, and the cleaning of foreign text.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use parhelia_core::event::Severity;
use parhelia_core::state::{ContainerState, Health};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const YELLOW_BOLD: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const RED_BOLD: Style = AnsiColor::Red.on_default().bold();

pub(crate) fn painted(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

/// `$1.23`, and four digits where two would say nothing: `$0.0042`.
pub(crate) fn money(usd: f64) -> String {
    let sign = if usd < 0.0 { "-" } else { "" };
    match usd.abs() {
        x if !x.is_finite() => "-".to_owned(),
        x if x > 0.0 && x < 0.000_05 => format!("{sign}<$0.0001"),
        x if x > 0.0 && x < 0.01 => format!("{sign}${x:.4}"),
        x => format!("{sign}${x:.2}"),
    }
}

pub(crate) fn rate(usd_per_hour: f64) -> String {
    format!("{}/hr", money(usd_per_hour))
}

pub(crate) fn percent(value: Option<f64>) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| "-".to_owned(), |v| format!("{v:.0}%"))
}

/// `4`, `0.5`: no more digits than there are.
pub(crate) fn number(value: f64) -> String {
    format!("{value}")
}

/// `2026-01-21 14:30:00`, in UTC.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub(crate) fn time_utc(at: Timestamp) -> String {
    format!("{} UTC", time(at))
}

pub(crate) fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

/// `30 seconds`, `1 minute`, `2 hours`: the largest unit, in words.
pub(crate) fn spoken(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    let (n, unit) = match s {
        0..120 => (s, "second"),
        120..7200 => (s / 60, "minute"),
        7200..172_800 => (s / 3600, "hour"),
        _ => (s / 86_400, "day"),
    };
    counted(n as i64, unit)
}

/// `1 container`, `3 containers`.
pub(crate) fn counted(n: i64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

pub(crate) fn or_dash(text: Option<&str>) -> &str {
    text.filter(|t| !t.is_empty()).unwrap_or("-")
}

/// Text from outside on one line: what could move the cursor, change colours or reorder the line is shown
/// escaped instead.
pub(crate) fn clean(text: &str) -> String {
    cleaned(text, false)
}

/// The same, for text that may have several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    cleaned(text, true)
}

fn cleaned(text: &str, keep_lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let reorders = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
        match c {
            '\n' if keep_lines => out.push(c),
            c if c.is_control() || reorders => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// An argument vector as one would type it.
pub(crate) fn command_line(arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,~^".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// At most `max` characters, the last of them an ellipsis when something was cut.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// At most `columns` wide on a terminal, the last of them an ellipsis when something was cut.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    kept.chain((columns > 0).then_some('…')).collect()
}

/// In lines of at most `width` columns, broken between words. A word that is longer stays whole: it may be a name that
/// somebody wants to copy.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

pub(crate) fn state_style(state: ContainerState) -> Style {
    match state {
        ContainerState::Orphaned => RED,
        ContainerState::Unknown => YELLOW,
        ContainerState::Stopped | ContainerState::Terminated => DIM,
        ContainerState::Created | ContainerState::Running => PLAIN,
    }
}

pub(crate) fn health_style(health: Health) -> Style {
    match health {
        Health::Healthy => GREEN,
        Health::Degraded => YELLOW,
        Health::Unhealthy => RED,
        Health::Dead => RED_BOLD,
        Health::Unknown => DIM,
    }
}

pub(crate) fn severity_style(severity: Severity) -> Style {
    match severity {
        Severity::Info => PLAIN,
        Severity::Warning => YELLOW,
        Severity::Error => RED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_two_digits_or_enough() {
        for (usd, text) in [
            (1.23, "$1.23"),
            (0.0, "$0.00"),
            (0.0042, "$0.0042"),
            (0.000_01, "<$0.0001"),
            (1234.5, "$1234.50"),
            (-0.5, "-$0.50"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(money(usd), text);
        }
    }

    #[test]
    fn foreign_text_cannot_reach_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\r\n\tc\u{9b}1m\u{202e}d"), r"a\u{1b}[31mb\r\n\tc\u{9b}1m\u{202e}d");
        assert_eq!(clean("größer ↑ 漢字"), "größer ↑ 漢字");
        assert_eq!(clean_lines("a\nb\x07"), "a\nb\\u{7}");
    }

    #[test]
    fn commands_read_as_typed() {
        let line = |words: &[&str]| command_line(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(line(&["sh", "-c", "echo 'hi' $X", ""]), r"sh -c 'echo '\''hi'\'' $X' ''");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
    }

    #[test]
    fn lines_break_between_words_alone() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("a much-too-long-word b", 6), ["a", "much-too-long-word", "b"]);
        assert_eq!(wrapped("", 6), [""]);
        assert_eq!(
            (cut("abcdef", 4), cut("漢字漢字", 6), cut("abcd", 4)),
            ("abc…".into(), "漢字…".into(), "abcd".into())
        );
        assert_eq!(cut("ab", 0), "");
    }

    #[test]
    fn spans_are_spoken() {
        for (seconds, text) in [
            (30.0, "30 seconds"),
            (1.0, "1 second"),
            (90.0, "90 seconds"),
            (150.0, "2 minutes"),
            (7300.0, "2 hours"),
        ] {
            assert_eq!(spoken(seconds), text);
        }
    }
}
