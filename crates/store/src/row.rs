//! From cells to types. Columns are read in order, by position: the order is that of the statement's
//! `SELECT`, and a hundred thousand rows do not look a name up each time.

use std::str::FromStr;

use jiff::Timestamp;
use parhelia_core::container::Container;
use parhelia_core::event::Event;
use parhelia_core::heartbeat::{Heartbeat, HeartbeatHour};
use parhelia_core::ids::ContainerId;
use parhelia_core::reconcile::{Counts, ProviderMemory, Tracked};
use parhelia_core::sandbox::Resources;
use parhelia_core::time;
use serde::de::DeserializeOwned;

use crate::error::{Result, StoreError};
use crate::script::Cells;
use crate::types::{Cycle, Foreign, Instance, Leadership, Owner, Task, Worker};

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
            Some(text) => match stored_time(text.as_bytes()) {
                Some(at) => Ok(Some(at)),
                None => time::from_text(text).map(Some).map_err(|e| e.to_string()),
            },
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

    fn id_opt(&mut self) -> Result<Option<ContainerId>> {
        self.next(|cells, at| match cells.text(at)? {
            None => Ok(None),
            Some(text) => ContainerId::parse(text).map(Some).map_err(|e| e.to_string()),
        })
    }

    fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.json_opt().and_then(|value| self.need(value))
    }

    fn json_opt<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.next(|cells, at| match cells.text(at)? {
            None => Ok(None),
            Some(text) => serde_json::from_str(text).map(Some).map_err(|e| e.to_string()),
        })
    }

    fn resources(&mut self) -> Result<Resources> {
        Ok(Resources { cpu_cores: self.real_opt()?, memory_mb: self.int_opt()?, gpu_type: self.text_opt()? })
    }
}

/// Reads the one form that `time::to_text` writes (`2026-01-21T14:30:00.000Z`), or gives up. A pass over a
/// hundred thousand rows reads several hundred thousand times, and the general parser is what it waits for.
fn stored_time(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 24] = text.try_into().ok()?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (23, b'Z')];
    if marks.iter().any(|(place, mark)| text[*place] != *mark) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to]
            .iter()
            .try_fold(0_i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days = *days_in_month.get(usize::try_from(month - 1).ok()?)?;
    if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Days since 1970-01-01, in years that begin in March so that the leap day is the last.
    let march_year = if month > 2 { year } else { year - 1 };
    let (era, year_of_era) = (march_year.div_euclid(400), march_year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Timestamp::from_millisecond(seconds * 1000 + number(20, 23)?).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stored_times_are_read_as_the_general_parser_reads_them(millis in -62_167_219_200_000_i64..=253_402_207_200_000) {
            let at = Timestamp::from_millisecond(millis).unwrap();
            prop_assert_eq!(stored_time(time::to_text(at).as_bytes()), Some(at));
        }
    }

    #[test]
    fn anything_else_is_left_to_the_general_parser() {
        for text in [
            "",
            "2026-01-21T14:30:00Z",
            "2026-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-01-21T24:00:00.000Z",
            "2026-01-21T14:30:60.000Z",
            "2026-01-21 14:30:00.000Z",
            "2026-01-21T14:30:00.0é0Z",
        ] {
            assert_eq!(stored_time(text.as_bytes()), None, "{text}");
        }
        assert!(stored_time(b"2024-02-29T23:59:59.999Z").is_some());
    }
}
