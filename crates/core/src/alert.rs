//! Alerts: which events go to which webhook, what its answer means, and when it is tried again. Pure; what sends
//! is `server/src/relay/alerts/`, what is sent is `notice.rs`.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::event::{Event, EventType, NewEvent, Severity, Source};
use crate::ids::DeliveryId;
use crate::interest::Interest;
use crate::time::plus_seconds;
use crate::word_enum;

word_enum!(
    /// What a receiver understands.
    AlertFormat {
        /// Our own JSON.
        Generic = "generic",
        /// What Slack's incoming webhooks take, and those who imitate them.
        Slack = "slack",
    }
);

word_enum!(
    DeliveryState {
        Pending = "pending",
        /// An attempt was claimed, and its outcome is not recorded.
        Sending = "sending",
        Delivered = "delivered",
        /// For good.
        Failed = "failed",
    }
);

/// One `[[alerts]]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    pub name: String,
    pub url: WebhookUrl,
    /// Any of these types; all, when there are none.
    #[serde(default)]
    pub events: Vec<EventType>,
    /// This serious, or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    #[serde(default = "generic")]
    pub format: AlertFormat,
    /// The name of the secret that signs; its value is read when it is needed and kept nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(default = "ten_seconds")]
    pub timeout_seconds: u64,
    /// How long after each failed attempt the next one is made; after the last of them it has failed for good.
    #[serde(default = "usual_retries")]
    pub retry_seconds: Vec<u64>,
}

fn generic() -> AlertFormat {
    AlertFormat::Generic
}

fn ten_seconds() -> u64 {
    10
}

fn usual_retries() -> Vec<u64> {
    vec![30, 120, 600]
}

/// Where an alert goes: an address, or `secret:NAME` where the address itself is the secret (Slack). It may hold
/// credentials, so it is shown without them.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// The whole of it, for whoever sends.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The name of the secret that holds the address.
    pub fn secret(&self) -> Option<&str> {
        self.0.strip_prefix("secret:")
    }

    fn parts(&self) -> Option<(&str, &str, &str)> {
        let (scheme, rest) = self.0.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let path = path.split(['?', '#']).next().unwrap_or_default();
        Some((scheme, host, path))
    }

    /// Without user, password, query and fragment; for Slack without the path, which is the key there.
    pub fn shown(&self, format: AlertFormat) -> String {
        match self.parts() {
            _ if self.secret().is_some() => self.0.clone(),
            None => "(hidden)".to_owned(),
            Some((scheme, host, _)) if format == AlertFormat::Slack => format!("{scheme}://{host}/…"),
            Some((scheme, host, path)) => format!("{scheme}://{host}{path}"),
        }
    }

    fn is_good(&self) -> bool {
        if let Some(name) = self.secret() {
            return is_secret_name(name);
        }
        let plain = self.0.chars().all(|c| c.is_ascii_graphic());
        let host = self.parts().filter(|(scheme, ..)| matches!(*scheme, "http" | "https")).map(|(_, h, _)| h);
        plain && host.is_some_and(|host| !host.is_empty())
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookUrl({})", self.shown(AlertFormat::Slack))
    }
}

impl Serialize for WebhookUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown(AlertFormat::Slack))
    }
}

fn is_secret_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// What is wrong with the first `[[alerts]]` that is: its key, the value, and what it must be.
pub fn first_misfit(alerts: &[Alert]) -> Option<(&'static str, String, &'static str)> {
    let wrong = |key, value: String, allowed| Some((key, value, allowed));
    for (i, alert) in alerts.iter().enumerate() {
        let name = &alert.name;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !(1..=60).contains(&name.len()) || !name.bytes().all(plain) {
            return wrong("alerts.name", format!("'{name}'"), "from 1 to 60 letters, digits, '_' and '-'");
        }
        if alerts.iter().take(i).any(|earlier| earlier.name == *name) {
            return wrong("alerts.name", format!("'{name}'"), "different for each alert");
        }
        if !alert.url.is_good() {
            let allowed = "http://HOST/PATH, https://HOST/PATH, or secret:NAME";
            return wrong("alerts.url", format!("(hidden, of '{name}')"), allowed);
        }
        if alert.events.is_empty() && alert.severity.is_none() {
            let allowed = "given, or events; severity = \"info\" is everything";
            return wrong("alerts.severity", format!("(none, for '{name}')"), allowed);
        }
        if let Some(secret) = alert.secret.as_ref().filter(|secret| !is_secret_name(secret)) {
            let shown: String = if secret.len() > 60 { "(hidden)".into() } else { format!("'{secret}'") };
            let allowed = "the name of a secret (letters, digits, '_' and '-'), not the secret itself";
            return wrong("alerts.secret", shown, allowed);
        }
        if !(1..=120).contains(&alert.timeout_seconds) {
            return wrong("alerts.timeout_seconds", alert.timeout_seconds.to_string(), "from 1 to 120");
        }
        let pauses = &alert.retry_seconds;
        if pauses.len() > 20 || pauses.iter().any(|pause| !(1..=86_400).contains(pause)) {
            return wrong(
                "alerts.retry_seconds",
                format!("{pauses:?}"),
                "at most 20 pauses, each from 1 to 86400",
            );
        }
    }
    None
}

impl Alert {
    /// Whether an event is one of those that it is for. That an alert could not be delivered is never told to that
    /// same alert.
    pub fn wants(&self, event: &Event) -> bool {
        let own = event.event_type == EventType::AlertFailed && event.details["alert"] == self.name.as_str();
        let interest =
            Interest { types: self.events.clone(), at_least: self.severity, ..Interest::default() };
        !own && interest.covers(event)
    }
}

/// An event on its way to a receiver. There is at most one for each alert and event, so its id is what a receiver
/// can tell repetitions by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: DeliveryId,
    pub alert: String,
    pub event_id: i64,
    /// How many have been claimed.
    pub attempts: i64,
    pub next_attempt_at: Timestamp,
}

/// Those whose time has come, and when the next one's comes. A time further away than any pause means that the clock
/// was set back: nobody waits an hour because of it.
pub fn due(
    waiting: Vec<Delivery>,
    retry_seconds: &[u64],
    now: Timestamp,
) -> (Vec<Delivery>, Option<Timestamp>) {
    let longest = retry_seconds.iter().max().map_or(0, |pause| i64::try_from(*pause).unwrap_or(i64::MAX));
    let latest = plus_seconds(now, longest);
    let has_come = |d: &Delivery| d.next_attempt_at <= now || d.next_attempt_at > latest;
    let (due, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(has_come);
    (due, later.into_iter().map(|d| d.next_attempt_at).min())
}

/// What becomes of a delivery after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    Again { at: Timestamp },
    Failed,
}

/// `status` is the receiver's answer; `None` when there was none, or nothing could be sent. What a receiver refuses
/// (4xx) it will refuse again, except when it only asks for patience; a redirect is not followed, and will not go
/// away.
pub fn judge(status: Option<u16>, attempt: i64, retry_seconds: &[u64], now: Timestamp) -> Verdict {
    match status {
        Some(200..=299) => Verdict::Delivered,
        Some(408 | 429) => again(attempt, retry_seconds, now),
        Some(300..=499) => Verdict::Failed,
        _ => again(attempt, retry_seconds, now),
    }
}

fn again(attempt: i64, retry_seconds: &[u64], now: Timestamp) -> Verdict {
    let made = usize::try_from(attempt.saturating_sub(1)).unwrap_or(0);
    match retry_seconds.get(made) {
        Some(pause) => Verdict::Again { at: plus_seconds(now, i64::try_from(*pause).unwrap_or(i64::MAX)) },
        None => Verdict::Failed,
    }
}

/// Tells that an event could not be delivered. Nothing is told of an `alert_failed` that could not be: two broken
/// receivers would tell of each other for ever.
pub fn failed(delivery: &Delivery, of: Option<&Event>, attempt: i64, error: &str) -> Option<NewEvent> {
    if of.is_some_and(|event| event.event_type == EventType::AlertFailed) {
        return None;
    }
    let about = of.map_or("an event that is no longer kept".to_owned(), |event| event.event_type.to_string());
    let message = format!("Alert {}: {about} was not delivered: {error}", delivery.alert);
    let mut event = NewEvent::new(EventType::AlertFailed, Source::System, message).details(json!({
        "alert": delivery.alert,
        "delivery": delivery.id,
        "event_id": delivery.event_id,
        "event_type": of.map(|event| event.event_type),
        "attempts": attempt,
        "error": error,
    }));
    event.container_id = of.and_then(|event| event.container_id.clone());
    event.task_id = of.and_then(|event| event.task_id.clone());
    Some(event)
}

/// What the deliveries of one alert amount to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AlertCounts {
    /// Of those that are kept (`retention.event_days`).
    pub pending: i64,
    pub delivered: i64,
    pub failed: i64,
    pub last_delivered_at: Option<Timestamp>,
    /// Of the last attempt that did not deliver, unless it has been delivered since.
    pub last_error: Option<String>,
    pub last_error_at: Option<Timestamp>,
}

/// An alert as it is shown: never its secret, nor what its address holds of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertView {
    pub name: String,
    pub url: String,
    pub events: Vec<EventType>,
    pub severity: Option<Severity>,
    pub format: AlertFormat,
    /// Whether what it sends is signed.
    pub signed: bool,
    pub pending: i64,
    pub delivered: i64,
    pub failed: i64,
    pub last_delivered_at: Option<Timestamp>,
    pub last_error: Option<String>,
    pub last_error_at: Option<Timestamp>,
}

impl AlertView {
    pub fn of(alert: &Alert, counts: AlertCounts) -> Self {
        Self {
            name: alert.name.clone(),
            url: alert.url.shown(alert.format),
            events: alert.events.clone(),
            severity: alert.severity,
            format: alert.format,
            signed: alert.secret.is_some(),
            pending: counts.pending,
            delivered: counts.delivered,
            failed: counts.failed,
            last_delivered_at: counts.last_delivered_at,
            last_error: counts.last_error,
            last_error_at: counts.last_error_at,
        }
    }
}

/// `GET /api/v1/alerts`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertList {
    pub alerts: Vec<AlertView>,
}

/// `POST /api/v1/alerts/{id}/test`: what the receiver said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertTest {
    pub alert: String,
    pub delivery: String,
    /// Whether it would count as delivered.
    pub ok: bool,
    /// None when there was no answer.
    pub status: Option<u16>,
    /// The beginning of the answer.
    pub answer: String,
    pub error: Option<String>,
    pub duration_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn alert(text: &str) -> Result<Alert, crate::config::ConfigError> {
        let whole = format!("[[alerts]]\nname = 'ops'\n{text}\n");
        Config::parse(&whole).map(|mut config| config.alerts.remove(0))
    }

    fn event(event_type: EventType, details: serde_json::Value) -> Event {
        Event {
            id: 7,
            timestamp: at(0),
            event_type,
            container_id: Some("c-1234".into()),
            worker_id: None,
            task_id: None,
            session_id: None,
            old_value: None,
            new_value: None,
            message: Some("It ended".into()),
            details,
            source: Source::System,
            owner_id: None,
            epoch: None,
        }
    }

    #[test]
    fn the_retries_are_those_of_the_seed_and_what_is_refused_is_final() {
        let retry = alert("url = 'http://h/'\nseverity = 'error'").unwrap().retry_seconds;
        assert_eq!(retry, [30, 120, 600]);
        let of = |status, attempt| judge(status, attempt, &retry, at(0));
        for answer in [Some(500), Some(503), Some(599), Some(408), Some(429), None] {
            assert_eq!(of(answer, 1), Verdict::Again { at: at(30) }, "{answer:?}");
            assert_eq!(of(answer, 2), Verdict::Again { at: at(120) });
            assert_eq!(of(answer, 3), Verdict::Again { at: at(600) });
            assert_eq!(of(answer, 4), Verdict::Failed);
            // An attempt that a crash cut off counts too.
            assert_eq!(of(answer, 9), Verdict::Failed);
        }
        for answer in [400, 401, 404, 410, 499, 301, 302, 307, 308] {
            assert_eq!(of(Some(answer), 1), Verdict::Failed, "{answer}");
        }
        for answer in [200, 201, 202, 204, 299] {
            assert_eq!(of(Some(answer), 4), Verdict::Delivered);
        }
    }

    #[test]
    fn events_are_chosen_by_type_and_by_severity_and_both_must_fit() {
        let dead = event(EventType::ContainerDead, json!({}));
        let sent = event(EventType::StopSent, json!({}));
        let degraded = event(EventType::ContainerDegraded, json!({}));
        let wants = |text: &str| {
            let alert = alert(&format!("url = 'http://h/'\n{text}")).unwrap();
            [&dead, &sent, &degraded].map(|event| alert.wants(event))
        };
        assert_eq!(wants("severity = 'info'"), [true, true, true]);
        assert_eq!(wants("severity = 'warning'"), [true, false, true]);
        assert_eq!(wants("events = ['stop_sent']"), [false, true, false]);
        assert_eq!(
            wants("events = ['stop_sent', 'container_dead']\nseverity = 'error'"),
            [true, false, false]
        );
    }

    #[test]
    fn a_failure_is_not_told_to_the_alert_that_failed_nor_about_a_failure() {
        let ops = alert("url = 'http://h/'\nseverity = 'info'").unwrap();
        let delivery = Delivery {
            id: DeliveryId::mint(1, 1),
            alert: "ops".into(),
            event_id: 7,
            attempts: 4,
            next_attempt_at: at(0),
        };
        let dead = event(EventType::ContainerDead, json!({}));
        let told = failed(&delivery, Some(&dead), 4, "500").unwrap();
        assert_eq!((told.container_id.as_deref(), &told.details["event_id"]), (Some("c-1234"), &json!(7)));
        let again = event(EventType::AlertFailed, told.details);
        assert!(!ops.wants(&again));
        assert!(Alert { name: "pager".into(), ..ops }.wants(&again));
        assert_eq!(failed(&delivery, Some(&again), 4, "500"), None);
    }

    #[test]
    fn mistakes_are_named_and_an_address_is_never_shown_with_what_it_hides() {
        let url = "url = 'https://ann:s3cret@hooks.example.com:8443/in/box?key=s3cret#s3cret'\n";
        let good = alert(&format!("{url}severity = 'error'\nsecret = 'OPS'")).unwrap();
        assert_eq!(good.url.shown(AlertFormat::Generic), "https://hooks.example.com:8443/in/box");
        assert_eq!(good.url.shown(AlertFormat::Slack), "https://hooks.example.com:8443/…");
        assert!(!format!("{good:?}{}", json!(good)).contains("s3cret"));
        let hidden = alert("url = 'secret:SLACK_URL'\nseverity = 'error'\nformat = 'slack'").unwrap();
        assert_eq!(hidden.url.shown(AlertFormat::Slack), "secret:SLACK_URL");
        for (text, named) in [
            ("url = 'ftp://s3cret/'\nseverity = 'error'", "alerts.url"),
            ("url = 'https://?s3cret'\nseverity = 'error'", "alerts.url"),
            ("url = 'secret:a/../b'\nseverity = 'error'", "alerts.url"),
            ("url = 'http://h/'", "alerts.severity"),
            ("url = 'http://h/'\nseverity = 'loud'", "line 4"),
            ("url = 'http://h/'\nevents = ['nothing_happened']", "line 4"),
            ("url = 'http://h/'\nseverity = 'error'\nsecret = 'it is this'", "alerts.secret"),
            ("url = 'http://h/'\nseverity = 'error'\ntimeout_seconds = 0", "alerts.timeout_seconds"),
            ("url = 'http://h/'\nseverity = 'error'\nretry_seconds = [0]", "alerts.retry_seconds"),
            ("url = https://s3cret/", "line 3"),
        ] {
            let error = alert(text).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains("s3cret"), "{text}: {error}");
        }
        let twice = "url = 'http://h/'\nseverity = 'error'\n[[alerts]]\nname = 'ops'\nurl = 'http://i/'\nseverity = 'error'";
        assert!(alert(twice).unwrap_err().to_string().contains("different for each"));
    }

    #[test]
    fn what_is_due_is_apart_from_what_waits() {
        let one = |id, second| Delivery {
            id: DeliveryId::mint(id, 0),
            alert: "ops".into(),
            event_id: 1,
            attempts: 0,
            next_attempt_at: at(second),
        };
        let all = || vec![one(1, 0), one(2, 10), one(3, 20), one(4, 15)];
        let (now, next) = due(all(), &[30, 5], at(10));
        assert_eq!((now, next), (vec![one(1, 0), one(2, 10)], Some(at(15))));
        // The clock was set back by an hour: 30 seconds are the longest that anybody waits.
        assert_eq!(due(all(), &[30, 5], at(-3600)), (all(), None));
    }
}
