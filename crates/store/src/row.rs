//! From cells to types. Columns are read in order, by position: the order is that of the statement's
//! `SELECT`, and a hundred thousand rows do not look a name up each time.

use std::str::FromStr;

use jiff::Timestamp;
use parhelia_core::access::Token;
use parhelia_core::alert::{AlertCounts, Delivery};
use parhelia_core::container::Container;
use parhelia_core::event::Event;
use parhelia_core::heartbeat::{Heartbeat, HeartbeatHour};
use parhelia_core::ids::{ContainerId, DeliveryId, IdError, TokenId};
use parhelia_core::job::api::CancelReceipts;
use parhelia_core::job::classify::ContainerSeen;
use parhelia_core::job::{Job, Startup};
use parhelia_core::reconcile::{Counts, ProviderMemory, Tracked};
use parhelia_core::sandbox::Resources;
use parhelia_core::state::Desired;
use parhelia_core::time;
use serde::de::DeserializeOwned;

use crate::error::{Result, StoreError};
use crate::script::Cells;
use crate::types::{Cycle, Figures, Foreign, Instance, JobCount, Leadership, Owner, ShownJob, Task, Worker};

/// Reads one row from left to right.
pub(crate) struct Columns<'a> {
    cells: &'a dyn Cells,
    at: usize,
    query: &'static str,
}

impl<'a> Columns<'a> {
    pub(crate) fn new(cells: &'a dyn Cells, query: &'static str) -> Self {
        Self { cells, at: 0, query }
    }

    fn bad(&self, detail: impl Into<String>) -> StoreError {
        StoreError::Unreadable { query: self.query, column: self.at, detail: detail.into() }
    }

    fn need<T>(&self, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.bad("it is empty"))
    }

    /// Runs a conversion on the next column, naming it in the error.
    fn next<T>(&mut self, read: impl FnOnce(&'a dyn Cells, usize) -> Result<T, String>) -> Result<T> {
        let value = read(self.cells, self.at).map_err(|detail| self.bad(detail))?;
        self.at += 1;
        Ok(value)
    }

    /// Passes over columns that are not wanted.
    pub(crate) fn skip(&mut self, columns: usize) -> &mut Self {
        self.at += columns;
        self
    }

    pub(crate) fn str_opt(&mut self) -> Result<Option<&'a str>> {
        self.next(|cells, at| cells.text(at))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        self.text_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn text_opt(&mut self) -> Result<Option<String>> {
        Ok(self.str_opt()?.map(str::to_owned))
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        self.int_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn int_opt(&mut self) -> Result<Option<i64>> {
        self.next(|cells, at| cells.int(at))
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        Ok(self.int()? != 0)
    }

    fn flag_opt(&mut self) -> Result<Option<bool>> {
        Ok(self.int_opt()?.map(|value| value != 0))
    }

    pub(crate) fn real(&mut self) -> Result<f64> {
        self.real_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn real_opt(&mut self) -> Result<Option<f64>> {
        self.next(|cells, at| cells.real(at))
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        self.time_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn time_opt(&mut self) -> Result<Option<Timestamp>> {
        self.next(|cells, at| match cells.text(at)? {
            None => Ok(None),
            Some(text) => time::from_text(text).map(Some).map_err(|e| e.to_string()),
        })
    }

    pub(crate) fn word<T: FromStr<Err = E>, E: ToString>(&mut self) -> Result<T> {
        self.word_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn word_opt<T: FromStr<Err = E>, E: ToString>(&mut self) -> Result<Option<T>> {
        self.next(|cells, at| match cells.text(at)? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|e: E| e.to_string()),
        })
    }

    pub(crate) fn id(&mut self) -> Result<ContainerId> {
        self.id_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn id_opt(&mut self) -> Result<Option<ContainerId>> {
        self.next(|cells, at| match cells.text(at)? {
            None => Ok(None),
            Some(text) => ContainerId::parse(text).map(Some).map_err(|e| e.to_string()),
        })
    }

    /// Any of our own ids.
    pub(crate) fn own<T: TryFrom<String, Error = IdError>>(&mut self) -> Result<T> {
        self.own_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn own_opt<T: TryFrom<String, Error = IdError>>(&mut self) -> Result<Option<T>> {
        self.next(|cells, at| match cells.text(at)? {
            None => Ok(None),
            Some(text) => T::try_from(text.to_owned()).map(Some).map_err(|e| e.to_string()),
        })
    }

    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.json_opt().and_then(|value| self.need(value))
    }

    pub(crate) fn json_opt<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.next(|cells, at| match cells.text(at)? {
            None => Ok(None),
            Some(text) => serde_json::from_str(text).map(Some).map_err(|e| e.to_string()),
        })
    }

    fn resources(&mut self) -> Result<Resources> {
        Ok(Resources { cpu_cores: self.real_opt()?, memory_mb: self.int_opt()?, gpu_type: self.text_opt()? })
    }
}

/// Some columns of a whole row, at the places that they have there.
pub(crate) fn figures(c: &mut Columns<'_>) -> Result<Figures> {
    let provider = c.skip(1).text()?;
    let state = c.skip(7).word()?;
    let started_at = c.skip(1).time_opt()?;
    let resources = c.skip(25).resources()?;
    let cost_accrued_usd = c.skip(1).real()?;
    let cost_rate_per_hour = c.real_opt()?;
    let cost_source = c.word()?;
    let labels = c.skip(2).json()?;
    Ok(Figures {
        provider,
        state,
        started_at,
        resources,
        cost_accrued_usd,
        cost_rate_per_hour,
        cost_source,
        labels,
    })
}

pub(crate) fn container(c: &mut Columns<'_>) -> Result<Container> {
    Ok(Container {
        id: c.id()?,
        provider: c.text()?,
        provider_identity: c.text_opt()?,
        sandbox_id: c.text_opt()?,
        instance_id: c.text()?,
        name: c.text_opt()?,
        worker_id: c.text_opt()?,
        task_id: c.text_opt()?,
        session_id: c.text_opt()?,
        state: c.word()?,
        created_at: c.time()?,
        started_at: c.time_opt()?,
        terminated_at: c.time_opt()?,
        exit_code: c.int_opt()?,
        termination_reason: c.word_opt()?,
        suspected_at: c.time_opt()?,
        desired: c.word()?,
        desired_at: c.time_opt()?,
        desired_by: c.text_opt()?,
        desired_reason: c.word_opt()?,
        stop_grace_seconds: c.int_opt()?,
        stop_seen_at: c.time_opt()?,
        stopping_at: c.time_opt()?,
        stop_confirmed_at: c.time_opt()?,
        stop_attempts: c.int()?,
        stop_attempted_at: c.time_opt()?,
        stop_error: c.text_opt()?,
        create_attempts: c.int()?,
        create_attempted_at: c.time_opt()?,
        last_heartbeat_at: c.time_opt()?,
        health_status: c.word()?,
        consecutive_failures: c.int()?,
        cpu_percent: c.real_opt()?,
        memory_percent: c.real_opt()?,
        memory_used_mb: c.int_opt()?,
        disk_percent: c.real_opt()?,
        uptime_seconds: c.int_opt()?,
        cpu_cores: c.real_opt()?,
        memory_mb: c.int_opt()?,
        gpu_type: c.text_opt()?,
        region: c.text_opt()?,
        cost_accrued_usd: c.real()?,
        cost_rate_per_hour: c.real_opt()?,
        cost_source: c.word()?,
        image: c.text_opt()?,
        command: c.json()?,
        labels: c.json()?,
        keep: c.flag()?,
        spec: c.json_opt()?,
        metadata: c.json()?,
        updated_at: c.time()?,
    })
}

pub(crate) fn tracked(c: &mut Columns<'_>) -> Result<Tracked> {
    Ok(Tracked {
        id: c.id()?,
        provider_identity: c.text_opt()?,
        sandbox_id: c.text_opt()?,
        task_id: c.text_opt()?,
        state: c.word()?,
        created_at: c.time()?,
        started_at: c.time_opt()?,
        terminated_at: c.time_opt()?,
        exit_code: c.int_opt()?,
        termination_reason: c.word_opt()?,
        suspected_at: c.time_opt()?,
        desired: c.word()?,
        desired_at: c.time_opt()?,
        desired_reason: c.word_opt()?,
        stop_grace_seconds: c.int_opt()?,
        stop_seen_at: c.time_opt()?,
        stopping_at: c.time_opt()?,
        stop_confirmed_at: c.time_opt()?,
        stop_attempts: c.int()?,
        stop_attempted_at: c.time_opt()?,
        stop_error: c.text_opt()?,
        create_attempts: c.int()?,
        create_attempted_at: c.time_opt()?,
        last_heartbeat_at: c.time_opt()?,
        silent_alerted_at: c.time_opt()?,
        health: c.word()?,
        keep: c.flag()?,
        region: c.text_opt()?,
        resources: c.resources()?,
        cost_accrued_usd: c.real()?,
        cost_rate_per_hour: c.real_opt()?,
        cost_source: c.word()?,
    })
}

pub(crate) fn event(c: &mut Columns<'_>) -> Result<Event> {
    Ok(Event {
        id: c.int()?,
        timestamp: c.time()?,
        event_type: c.word()?,
        container_id: c.text_opt()?,
        worker_id: c.text_opt()?,
        task_id: c.text_opt()?,
        session_id: c.text_opt()?,
        old_value: c.text_opt()?,
        new_value: c.text_opt()?,
        message: c.text_opt()?,
        details: c.json()?,
        source: c.word()?,
        owner_id: c.text_opt()?,
        epoch: c.int_opt()?,
    })
}

pub(crate) fn heartbeat(c: &mut Columns<'_>) -> Result<Heartbeat> {
    Ok(Heartbeat {
        id: c.int()?,
        container_id: c.id()?,
        timestamp: c.time()?,
        cpu_percent: c.real_opt()?,
        memory_percent: c.real_opt()?,
        memory_mb: c.int_opt()?,
        disk_percent: c.real_opt()?,
        uptime_seconds: c.int_opt()?,
        tmux_active: c.flag_opt()?,
        claude_responsive: c.flag_opt()?,
        metadata: c.json()?,
    })
}

pub(crate) fn heartbeat_hour(c: &mut Columns<'_>) -> Result<HeartbeatHour> {
    Ok(HeartbeatHour {
        container_id: c.id()?,
        hour: c.time()?,
        samples: c.int()?,
        cpu_percent_avg: c.real_opt()?,
        cpu_percent_max: c.real_opt()?,
        memory_percent_avg: c.real_opt()?,
        memory_percent_max: c.real_opt()?,
        memory_mb_max: c.int_opt()?,
        disk_percent_max: c.real_opt()?,
        first_at: c.time()?,
        last_at: c.time()?,
    })
}

pub(crate) fn task(c: &mut Columns<'_>) -> Result<Task> {
    Ok(Task {
        id: c.text()?,
        title: c.text()?,
        state: c.text()?,
        session_id: c.text_opt()?,
        attempt: c.int()?,
        retry_count: c.int()?,
        crash_count: c.int()?,
        failure_reason: c.text_opt()?,
        metadata: c.json()?,
        created_at: c.time()?,
        updated_at: c.time()?,
    })
}

pub(crate) fn worker(c: &mut Columns<'_>) -> Result<Worker> {
    Ok(Worker {
        id: c.text()?,
        task_id: c.text_opt()?,
        state: c.word()?,
        container_id: c.id_opt()?,
        session_id: c.text_opt()?,
        last_heartbeat_at: c.time_opt()?,
        health_status: c.word()?,
        terminated_at: c.time_opt()?,
        exit_code: c.int_opt()?,
        metadata: c.json()?,
        created_at: c.time()?,
        updated_at: c.time()?,
    })
}

pub(crate) fn owner(c: &mut Columns<'_>) -> Result<Owner> {
    Ok(Owner {
        id: c.text()?,
        home_id: c.text()?,
        host: c.text()?,
        boot_id: c.text()?,
        epoch: c.int()?,
        started_at: c.time()?,
        lease_until: c.time()?,
        ended_at: c.time_opt()?,
        version: c.text()?,
    })
}

pub(crate) fn leadership(c: &mut Columns<'_>) -> Result<Leadership> {
    Ok(Leadership { owner_id: c.text()?, epoch: c.int()?, lease_until: c.time()? })
}

pub(crate) fn instance(c: &mut Columns<'_>) -> Result<Instance> {
    Ok(Instance {
        id: c.text()?,
        is_self: c.flag()?,
        created_at: c.time()?,
        adopted_at: c.time_opt()?,
        adopted_by: c.text_opt()?,
        foreign_alive: c.int()?,
    })
}

pub(crate) fn foreign(c: &mut Columns<'_>) -> Result<Foreign> {
    Ok(Foreign {
        provider: c.text()?,
        sandbox_id: c.text()?,
        provider_identity: c.text()?,
        instance_id: c.text()?,
        container_id: c.id()?,
        task_id: c.text_opt()?,
        name: c.text_opt()?,
        created_at: c.time_opt()?,
        started_at: c.time_opt()?,
        resources: c.resources()?,
        region: c.text_opt()?,
        command: c.json()?,
        labels: c.json()?,
        first_seen_at: c.time()?,
        last_seen_at: c.time()?,
        gone_at: c.time_opt()?,
    })
}

pub(crate) fn provider_memory(c: &mut Columns<'_>) -> Result<ProviderMemory> {
    Ok(ProviderMemory {
        identity: c.text_opt()?,
        unreachable_since: c.time_opt()?,
        breaker_since: c.time_opt()?,
        breaker_agreed: c.int()?,
        breaker_agreed_at: c.time_opt()?,
    })
}

pub(crate) fn cycle(c: &mut Columns<'_>) -> Result<Cycle> {
    Ok(Cycle {
        id: c.int()?,
        provider: c.text()?,
        trigger: c.text()?,
        started_at: c.time()?,
        finished_at: c.time()?,
        duration_ms: c.int()?,
        outcome: c.word()?,
        error: c.text_opt()?,
        counts: Counts {
            sandboxes: c.int()?,
            rows: c.int()?,
            suspected: c.int()?,
            orphans: c.int()?,
            adopted: c.int()?,
            started: c.int()?,
            terminated: c.int()?,
            corrections: c.int()?,
            foreign: c.int()?,
        },
        actions: c.int()?,
        failures: c.int()?,
        waiting: c.json()?,
        next_at: c.time_opt()?,
    })
}

pub(crate) fn token(c: &mut Columns<'_>) -> Result<Token> {
    Ok(Token {
        id: c.next(|cells, at| match cells.text(at)? {
            None => Err("it is empty".to_owned()),
            Some(text) => TokenId::parse(text).map_err(|e| e.to_string()),
        })?,
        subject: c.text()?,
        role: c.word()?,
        container_id: c.id_opt()?,
        created_at: c.time()?,
        created_by: c.text()?,
        expires_at: c.time_opt()?,
        revoked_at: c.time_opt()?,
        last_used_at: c.time_opt()?,
    })
}

pub(crate) fn delivery(c: &mut Columns<'_>) -> Result<Delivery> {
    Ok(Delivery {
        id: c.next(|cells, at| match cells.text(at)? {
            None => Err("it is empty".to_owned()),
            Some(text) => DeliveryId::parse(text).map_err(|e| e.to_string()),
        })?,
        alert: c.text()?,
        event_id: c.int()?,
        attempts: c.int()?,
        next_attempt_at: c.time()?,
    })
}

pub(crate) fn alert_counts(c: &mut Columns<'_>) -> Result<AlertCounts> {
    Ok(AlertCounts {
        pending: c.int()?,
        delivered: c.int()?,
        failed: c.int()?,
        last_delivered_at: c.time_opt()?,
        ..AlertCounts::default()
    })
}

pub(crate) fn job(c: &mut Columns<'_>) -> Result<Job> {
    Ok(Job {
        id: c.word()?,
        container_id: c.id()?,
        name: c.text_opt()?,
        engine: c.text()?,
        origin_id: c.word_opt()?,
        timeout_seconds: c.int_opt()?,
        interactive: c.flag()?,
        created_at: c.time()?,
        created_by: c.text()?,
        status: c.word()?,
        status_at: c.time()?,
        status_reason: c.text_opt()?,
        activity: c.word()?,
        waiting_reason: c.text_opt()?,
        waiting_since: c.time_opt()?,
        agent_session: c.text_opt()?,
        heartbeat_at: c.time_opt()?,
        reattached_at: c.time_opt()?,
        reattached_count: c.int()?,
        reattach_ms: c.int_opt()?,
        ended_at: c.time_opt()?,
        exit_code: c.int_opt()?,
        cleanup_at: c.time_opt()?,
        cleaned_at: c.time_opt()?,
    })
}

/// A job, then what is recorded of its container.
pub(crate) fn watched_job(c: &mut Columns<'_>) -> Result<(Job, ContainerSeen)> {
    let job = job(c)?;
    let container = ContainerSeen {
        id: job.container_id.clone(),
        provider: c.text()?,
        last_heartbeat_at: c.time_opt()?,
        task_id: c.text_opt()?,
        state: c.word()?,
        health: c.word()?,
        exit_code: c.int_opt()?,
        reason: c.word_opt()?,
        terminated_at: c.time_opt()?,
        desired_by: c.text_opt()?,
        refusal: c.text_opt()?,
    };
    Ok((job, container))
}

pub(crate) fn shown_job(c: &mut Columns<'_>) -> Result<ShownJob> {
    Ok(ShownJob {
        job: job(c)?,
        state: c.word()?,
        command: c.json()?,
        provider: c.text()?,
        termination_reason: c.word_opt()?,
        exit_code: c.int_opt()?,
        receipts: receipts(c)?,
    })
}

fn receipts(c: &mut Columns<'_>) -> Result<Option<CancelReceipts>> {
    let desired: Desired = c.word()?;
    let receipts = CancelReceipts {
        desired_at: c.time_opt()?,
        desired_by: c.text_opt()?,
        reason: c.word_opt()?,
        grace_seconds: c.int_opt()?,
        stop_seen_at: c.time_opt()?,
        stopping_at: c.time_opt()?,
        stop_confirmed_at: c.time_opt()?,
        stop_error: c.text_opt()?,
    };
    Ok((desired == Desired::Terminated).then_some(receipts))
}

pub(crate) fn job_count(c: &mut Columns<'_>) -> Result<JobCount> {
    Ok(JobCount { status: c.word()?, jobs: c.int()?, waiting: c.int()? })
}

pub(crate) fn startup(c: &mut Columns<'_>) -> Result<Startup> {
    Ok(Startup {
        owner_id: c.text()?,
        host: c.text()?,
        version: c.text()?,
        started_at: c.time()?,
        finished_at: c.time_opt()?,
        steps: c.json()?,
    })
}
