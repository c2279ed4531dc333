//! Heartbeat intake. It stores samples and touches the container's vitals (when it was last heard, its usage), and
//! never any other column: a late heartbeat cannot revive, move or un-cancel anything. A sample of a terminated
//! container is kept as evidence; what it means is the reconciler's to decide.

use std::sync::Arc;

use jiff::Timestamp;
use parhelia_core::heartbeat::{Heartbeat, HeartbeatHour, Sample};
use parhelia_core::ids::ContainerId;
use parhelia_core::time;

use super::{changed, text_of};
use crate::error::Result;
use crate::script::{Script, Value};
use crate::{Store, row, sql};

impl Store {
    /// Stores samples in one script. For each: `true`, it is durable; `false`, no such container is known
    /// and it was not kept.
    pub async fn heartbeats(&self, samples: &[Sample], received_at: Timestamp) -> Result<Vec<bool>> {
        if samples.is_empty() {
            return Ok(vec![]);
        }
        let now = text_of(received_at);
        let mut script = Script::with_room("heartbeats", samples.len() * 3);
        let order = freshest_last(samples);
        // The same statement in a row for all samples: a database that can takes each row of them at once.
        // The touches come first, so their place in the script is their place in the order.
        let ids: Vec<Arc<str>> =
            order.iter().map(|place| Arc::from(samples[*place].container_id.as_str())).collect();
        for (place, id) in order.iter().zip(&ids) {
            let [cpu, memory, memory_mb, disk, uptime] = usage(&samples[*place]);
            let touch = vec![id.into(), (&now).into(), cpu, memory, memory_mb, disk, uptime];
            script.step(&sql::HEARTBEAT_TOUCH, touch);
        }
        for (touched, (place, id)) in order.iter().zip(&ids).enumerate() {
            let sample = &samples[*place];
            let [cpu, memory, memory_mb, disk, uptime] = usage(sample);
            let (tmux, claude) = (sample.tmux_active.into(), sample.claude_responsive.into());
            let insert = vec![
                id.into(),
                (&now).into(),
                cpu,
                memory,
                memory_mb,
                disk,
                uptime,
                tmux,
                claude,
                metadata(sample),
            ];
            script.step_if(touched, &sql::HEARTBEAT_INSERT, insert);
        }
        for (touched, id) in ids.iter().enumerate() {
            script.step_if(touched, &sql::HEARTBEAT_WORKERS, vec![id.into(), (&now).into()]);
        }
        let done = self.write(script).await?;
        let mut known = vec![false; samples.len()];
        for (touched, place) in order.into_iter().enumerate() {
            known[place] = changed(&done, touched);
        }
        Ok(known)
    }

    /// The newest `limit` raw heartbeats since then, oldest first.
    pub async fn heartbeat_history(
        &self,
        container_id: &ContainerId,
        since: Option<Timestamp>,
        limit: i64,
    ) -> Result<Vec<Heartbeat>> {
        let since = since.map_or(Value::Word(""), Value::from);
        let params = vec![container_id.into(), since, limit.into()];
        let mut all = self.query(&sql::HEARTBEAT_HISTORY, params, row::heartbeat).await?;
        all.reverse();
        Ok(all)
    }

    /// The newest `limit` aggregated hours since then, oldest first.
    pub async fn heartbeat_hours(
        &self,
        container_id: &ContainerId,
        since: Option<Timestamp>,
        limit: i64,
    ) -> Result<Vec<HeartbeatHour>> {
        let since = since.map_or(Value::Word(""), Value::from);
        let params = vec![container_id.into(), since, limit.into()];
        let mut all = self.query(&sql::HEARTBEAT_HOURS, params, row::heartbeat_hour).await?;
        all.reverse();
        Ok(all)
    }
}

/// The order to store a batch in: what waited longest at its sender first, so that the usage that remains
/// in the container's row is the freshest.
fn freshest_last(samples: &[Sample]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    if samples.iter().any(|sample| sample.delayed_seconds.is_some()) {
        let delay = |place: &usize| samples[*place].delayed_seconds.unwrap_or(0.0);
        order.sort_by(|a, b| delay(b).total_cmp(&delay(a)));
    }
    order
}

fn usage(sample: &Sample) -> [Value; 5] {
    [
        sample.cpu_percent.into(),
        sample.memory_percent.into(),
        sample.memory_mb.into(),
        sample.disk_percent.into(),
        sample.uptime_seconds.into(),
    ]
}

fn metadata(sample: &Sample) -> Value {
    if sample.timestamp.is_none() && sample.delayed_seconds.is_none() && sample.metadata.is_none() {
        return Value::Word("{}");
    }
    let mut map = sample.metadata.clone().unwrap_or_default();
    if let Some(at) = sample.timestamp {
        map.insert("sampled_at".into(), time::to_text(at).into());
    }
    if let Some(seconds) = sample.delayed_seconds {
        map.insert("delayed_seconds".into(), seconds.into());
    }
    Value::Text(serde_json::Value::Object(map).to_string())
}
