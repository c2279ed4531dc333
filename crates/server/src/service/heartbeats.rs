//! Heartbeat intake: acknowledged only when durable, refused with a reason, one bad one never hurts the rest.

use parhelia_core::Timestamp;
use parhelia_core::api::{HeartbeatHistory, HeartbeatReceipt, RejectedHeartbeat};
use parhelia_core::heartbeat::Sample;
use parhelia_core::time::seconds_between;

use super::{Caller, Service, ServiceError, may_touch};

impl Service {
    /// A worker's are of its own container; of another they are refused one by one.
    pub async fn heartbeats(
        &self,
        samples: Vec<Sample>,
        by: &Caller,
    ) -> Result<HeartbeatReceipt, ServiceError> {
        let most = self.config.server.max_batch as usize;
        if samples.len() > most {
            return Err(ServiceError::invalid(
                format!("{} heartbeats in one request are too many", samples.len()),
                format!("send at most {most} at once"),
            ));
        }
        let now = self.clock.now();
        let mut rejected = Vec::new();
        let mut places = Vec::new();
        let mut good = Vec::with_capacity(samples.len());
        for (index, sample) in samples.into_iter().enumerate() {
            let refusal = if may_touch(by, &sample.container_id) {
                self.refusal(&sample, now)
            } else {
                Some(("not_yours", format!("{} speaks for another container", by.subject)))
            };
            match refusal {
                Some((code, message)) => {
                    self.metrics.heartbeats.rejected(code);
                    rejected.push(refused(index, &sample, code, message));
                }
                None => {
                    places.push(index);
                    good.push(sample);
                }
            }
        }
        let stored = match self.store.heartbeats(&good, now).await {
            Ok(stored) => stored,
            Err(e) => {
                // They were heard, and could not be kept: that is our silence, not theirs.
                self.observer.was_away();
                self.metrics.heartbeats.unkept(good.len());
                return Err(e.into());
            }
        };
        for ((index, sample), known) in places.iter().zip(&good).zip(&stored) {
            if !known {
                let message = format!(
                    "there is no container {}; it is listed as soon as its provider shows it",
                    sample.container_id
                );
                self.metrics.heartbeats.rejected("unknown_container");
                rejected.push(refused(*index, sample, "unknown_container", message));
            }
        }
        if stored.contains(&false) {
            self.stranger_heard();
        }
        let heard = good.iter().zip(&stored).filter(|(_, known)| **known).map(|(s, _)| &s.container_id);
        self.observer.heard(heard, now);
        self.job_news.heard(good.iter().zip(&stored).filter(|(_, known)| **known).map(|(sample, _)| sample));
        let accepted = stored.iter().filter(|known| **known).count();
        self.metrics.heartbeats.accepted(accepted);
        Ok(HeartbeatReceipt { accepted, rejected })
    }

    /// One heartbeat, for senders that want a plain yes or no.
    pub async fn heartbeat(&self, sample: Sample, by: &Caller) -> Result<HeartbeatReceipt, ServiceError> {
        let mut receipt = self.heartbeats(vec![sample], by).await?;
        match receipt.rejected.pop() {
            None => Ok(receipt),
            Some(no) if no.code == "unknown_container" => Err(ServiceError::no_container(no.container_id.as_str())),
            Some(no) => Err(ServiceError::Invalid {
                code: "invalid_heartbeat",
                message: no.message,
                fix: "correct it and send it again; a heartbeat without a timestamp counts from when it is received".into(),
            }),
        }
    }

    fn refusal(&self, sample: &Sample, now: Timestamp) -> Option<(&'static str, String)> {
        let tolerance = self.config.health.future_tolerance_seconds as f64;
        if let Some(claimed) = sample.timestamp {
            let ahead = seconds_between(now, claimed);
            if ahead > tolerance {
                return Some((
                    "heartbeat_from_the_future",
                    format!(
                        "its timestamp is {ahead:.0}s ahead of this server: set the sender's clock, or leave the timestamp out"
                    ),
                ));
            }
        }
        let numbers = [
            ("cpu_percent", sample.cpu_percent, 1e6),
            ("memory_percent", sample.memory_percent, 1e6),
            ("disk_percent", sample.disk_percent, 100.0),
            ("delayed_seconds", sample.delayed_seconds, 1e9),
        ];
        for (name, value, most) in numbers {
            if value.is_some_and(|v| !v.is_finite() || v < 0.0 || v > most) {
                return Some(("out_of_range", format!("{name} must be from 0 to {most}")));
            }
        }
        let counts = [("memory_mb", sample.memory_mb), ("uptime_seconds", sample.uptime_seconds)];
        counts
            .into_iter()
            .find(|(_, value)| value.is_some_and(|v| v < 0))
            .map(|(name, _)| ("out_of_range", format!("{name} must not be negative")))
    }

    pub async fn heartbeat_history(
        &self,
        id: &str,
        since: Option<Timestamp>,
        limit: Option<i64>,
    ) -> Result<HeartbeatHistory, ServiceError> {
        let id = self.resolve(id).await?;
        let limit = limit.unwrap_or(100).clamp(1, 10_000);
        Ok(HeartbeatHistory {
            heartbeats: self.store.heartbeat_history(&id, since, limit).await?,
            hours: self.store.heartbeat_hours(&id, since, limit).await?,
        })
    }
}

fn refused(index: usize, sample: &Sample, code: &str, message: String) -> RejectedHeartbeat {
    RejectedHeartbeat { index, container_id: sample.container_id.clone(), code: code.to_owned(), message }
}
