//! Evidence of life: one sample of one container, as it arrives and as it is kept.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::ContainerId;

/// A heartbeat as its sender gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    pub container_id: ContainerId,
    /// When it was taken, by the sender's clock. Kept for people; liveness counts from when it is received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// How long it waited at the sender (buffered while the server was away). Needs no common clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux_active: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claude_responsive: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Sample {
    /// A sample that says only "alive".
    pub fn bare(container_id: ContainerId) -> Self {
        Self {
            container_id,
            timestamp: None,
            delayed_seconds: None,
            cpu_percent: None,
            memory_percent: None,
            memory_mb: None,
            disk_percent: None,
            uptime_seconds: None,
            tmux_active: None,
            claude_responsive: None,
            metadata: None,
        }
    }
}

/// A row of `heartbeats`. `timestamp` is the receive time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Heartbeat {
    pub id: i64,
    pub container_id: ContainerId,
    pub timestamp: Timestamp,
    pub cpu_percent: Option<f64>,
    pub memory_percent: Option<f64>,
    pub memory_mb: Option<i64>,
    pub disk_percent: Option<f64>,
    pub uptime_seconds: Option<i64>,
    pub tmux_active: Option<bool>,
    pub claude_responsive: Option<bool>,
    pub metadata: serde_json::Value,
}

/// One hour of one container's heartbeats, kept after the raw ones have gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HeartbeatHour {
    pub container_id: ContainerId,
    pub hour: Timestamp,
    pub samples: i64,
    pub cpu_percent_avg: Option<f64>,
    pub cpu_percent_max: Option<f64>,
    pub memory_percent_avg: Option<f64>,
    pub memory_percent_max: Option<f64>,
    pub memory_mb_max: Option<i64>,
    pub disk_percent_max: Option<f64>,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}
