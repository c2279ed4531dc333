//! The append-only history: what kinds of event there are, how serious each is, and the shape of one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::word_enum;

word_enum!(
    /// Every kind of event that Parhelia writes. `docs/events.md` says when each happens.
    EventType {
        ContainerCreated = "container_created",
        ContainerStarted = "container_started",
        ContainerAdopted = "container_adopted",
        ContainerStopped = "container_stopped",
        ContainerTerminated = "container_terminated",
        ContainerSuspected = "container_suspected",
        OrphanDetected = "orphan_detected",
        StateDriftCorrected = "state_drift_corrected",
        CreateFailed = "create_failed",
        CreateLost = "create_lost",

        /// The directory of a job that is over goes, with its output.
        JobCleaned = "job_cleaned",

        StopRequested = "stop_requested",
        StopSeen = "stop_seen",
        StopSent = "stop_sent",
        StopFailed = "stop_failed",

        ContainerHealthy = "container_healthy",
        ContainerDegraded = "container_degraded",
        ContainerUnhealthy = "container_unhealthy",
        ContainerDead = "container_dead",
        ContainerRecovered = "container_recovered",
        ContainerSilent = "container_silent",

        CostCorrected = "cost_corrected",

        ProviderUnreachable = "provider_unreachable",
        ProviderRecovered = "provider_recovered",
        ProviderIdentityChanged = "provider_identity_changed",
        BreakerTripped = "breaker_tripped",
        BreakerReleased = "breaker_released",
        ReconcileFailed = "reconcile_failed",
        SandboxQuarantined = "sandbox_quarantined",

        ForeignDetected = "foreign_detected",
        InstanceAdopted = "instance_adopted",

        TokenCreated = "token_created",
        TokenRevoked = "token_revoked",
        AccessRefused = "access_refused",

        AlertFailed = "alert_failed",

        JobStarted = "job_started",
        JobReattached = "job_reattached",
        JobStale = "job_stale",
        JobRecovered = "job_recovered",
        JobDead = "job_dead",
        JobFinished = "job_finished",
        JobFailed = "job_failed",
        JobCancelled = "job_cancelled",
        JobWaiting = "job_waiting",
        JobWorking = "job_working",
        JobQuarantined = "job_quarantined",

        SessionStarted = "session_started",
        /// Its first phase has begun, and it waits for nothing.
        SessionRunning = "session_running",
        SessionBlocked = "session_blocked",
        SessionUnblocked = "session_unblocked",
        SessionCompleted = "session_completed",
        SessionFailed = "session_failed",
        SessionCancelRequested = "session_cancel_requested",
        SessionCancelled = "session_cancelled",
        SessionOrphaned = "session_orphaned",
        SessionResumed = "session_resumed",
        PhaseStarted = "phase_started",
        PhaseCompleted = "phase_completed",
        PhaseSkipped = "phase_skipped",
        PhaseFailed = "phase_failed",
        TaskStarted = "task_started",
        TaskCompleted = "task_completed",
        TaskFailed = "task_failed",
        TaskRetried = "task_retried",
        WaitAnswered = "wait_answered",
        WaitTimedOut = "wait_timed_out",
        SignalFired = "signal_fired",
        SignalDelivered = "signal_delivered",

        /// What is shown elsewhere (ClickHouse) is behind, and why.
        ProjectionDelayed = "projection_delayed",
        ProjectionRecovered = "projection_recovered",

        ServerStarted = "server_started",
        StartupCompleted = "startup_completed",
        ServerStopped = "server_stopped",
        LeaderElected = "leader_elected",
    }
);

word_enum!(
    /// How much a person should care.
    Severity {
        Info = "info",
        Warning = "warning",
        Error = "error",
    }
);

word_enum!(
    /// Who wrote an event.
    Source {
        System = "system",
        Reconciler = "reconciler",
        HealthMonitor = "health_monitor",
        User = "user",
        Container = "container",
        /// Whoever advances a session.
        Sessions = "sessions",
    }
);

impl EventType {
    pub fn severity(self) -> Severity {
        use EventType::*;
        match self {
            ContainerDegraded
            | ContainerSuspected
            | StateDriftCorrected
            | CreateLost
            | ProviderUnreachable
            | ProviderIdentityChanged
            | ForeignDetected
            | SandboxQuarantined
            | JobStale
            | JobWaiting
            | JobQuarantined
            | SessionBlocked
            | SessionOrphaned
            | TaskRetried
            | WaitTimedOut
            | ProjectionDelayed
            | AccessRefused => Severity::Warning,
            OrphanDetected | CreateFailed | StopFailed | ContainerUnhealthy | ContainerDead
            | ContainerSilent | BreakerTripped | ReconcileFailed | AlertFailed | JobDead | JobFailed
            | SessionFailed | PhaseFailed | TaskFailed => Severity::Error,
            _ => Severity::Info,
        }
    }

    /// About a provider as a whole, which its details name.
    pub fn is_of_provider(self) -> bool {
        use EventType::*;
        matches!(
            self,
            ProviderUnreachable
                | ProviderRecovered
                | ProviderIdentityChanged
                | BreakerTripped
                | BreakerReleased
                | ReconcileFailed
                | SandboxQuarantined
        )
    }

    /// The word of the `containers events` screen: without the `container_` that every row would repeat.
    pub fn short(self) -> &'static str {
        let word = self.as_str();
        word.strip_prefix("container_").unwrap_or(word)
    }
}

/// A row of `events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    pub id: i64,
    pub timestamp: Timestamp,
    pub event_type: EventType,
    pub container_id: Option<String>,
    pub worker_id: Option<String>,
    pub task_id: Option<String>,
    pub session_id: Option<String>,
    pub old_value: Option<String>,
    pub new_value: Option<String>,
    pub message: Option<String>,
    pub details: serde_json::Value,
    pub source: Source,
    /// The server whose fence guarded the transaction that wrote it; absent when a person asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// The epoch in which that server led; absent when it wrote for its own home, whoever led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
}

/// An event about to be written, in the transaction of the change that it tells of.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub event_type: EventType,
    pub source: Source,
    pub container_id: Option<String>,
    pub worker_id: Option<String>,
    pub task_id: Option<String>,
    pub session_id: Option<String>,
    pub old_value: Option<String>,
    pub new_value: Option<String>,
    pub message: String,
    pub details: serde_json::Value,
}

impl NewEvent {
    pub fn new(event_type: EventType, source: Source, message: impl Into<String>) -> Self {
        Self {
            event_type,
            source,
            container_id: None,
            worker_id: None,
            task_id: None,
            session_id: None,
            old_value: None,
            new_value: None,
            message: message.into(),
            details: serde_json::json!({}),
        }
    }

    pub fn container(mut self, id: &crate::ids::ContainerId) -> Self {
        self.container_id = Some(id.to_string());
        self
    }

    pub fn task(mut self, id: Option<&str>) -> Self {
        self.task_id = id.map(str::to_owned);
        self
    }

    pub fn session(mut self, id: &crate::ids::SessionId) -> Self {
        self.session_id = Some(id.to_string());
        self
    }

    pub fn change(mut self, old: impl ToString, new: impl ToString) -> Self {
        self.old_value = Some(old.to_string());
        self.new_value = Some(new.to_string());
        self
    }

    pub fn details(mut self, details: serde_json::Value) -> Self {
        self.details = details;
        self
    }
}
