//! Heartbeat intake. It stores samples and touches `last_heartbeat_at` and the usage columns, and never any
//! other column: a late heartbeat cannot revive, move or un-cancel anything. A sample of a terminated
//! container is kept as evidence; what it means is the reconciler's to decide.

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
        let ids: Vec<Value> =
            order.iter().map(|place| Value::Shared(samples[*place].container_id.as_str().into())).collect();
        let mut touched = vec![0; samples.len()];
        // The same statement in a row for all samples: a database that can takes each row of them at once.
        for (place, id) in order.iter().zip(&ids) {
            let sample = &samples[*place];
            let mut touch = Vec::with_capacity(7);
            touch.extend([id.clone(), (&now).into()]);
            touch.extend(usage(sample));
            touched[*place] = script.step(&sql::HEARTBEAT_TOUCH, touch);
        }
        for (place, id) in order.iter().zip(&ids) {
            let sample = &samples[*place];
            let mut insert = Vec::with_capacity(10);
            insert.extend([id.clone(), (&now).into()]);
            insert.extend(usage(sample));
            insert.extend([sample.tmux_active.into(), sample.claude_responsive.into(), metadata(sample)]);
            script.step_if(touched[*place], &sql::HEARTBEAT_INSERT, insert);
        }
        for (place, id) in order.iter().zip(ids) {
            script.step_if(touched[*place], &sql::HEARTBEAT_WORKERS, vec![id, (&now).into()]);
        }
        let done = self.write(script).await?;
        Ok(touched.into_iter().map(|step| changed(&done, step)).collect())
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
