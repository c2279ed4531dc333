//! The screens of `parhelia containers`, as the seed draws them (SPEC-21.31).

use std::fmt::Write;

use jiff::Timestamp;
use parhelia_core::api::{ContainerView, HeartbeatHistory, Totals};
use parhelia_core::overview::HealthRow;
use parhelia_core::state::{ContainerState, Desired, Health};
use parhelia_core::time::{human_age, seconds_between};

use super::table::{Cell, Table, cell, styled};
use super::text::{
    clean, command_line, counted, health_style, money, number, or_dash, painted, percent, rate, shortened,
    state_style, time, time_utc,
};

/// What a screen calls its state: a suspected one is `unknown`, whatever its record says.
fn shown_state(view: &ContainerView) -> ContainerState {
    if view.suspected { ContainerState::Unknown } else { view.record.state }
}

fn state_cell(view: &ContainerView) -> Cell {
    let state = shown_state(view);
    styled(state.as_str(), state_style(state))
}

fn health_cell(health: Health) -> Cell {
    styled(health.as_str(), health_style(health))
}

fn age(view: &ContainerView) -> String {
    human_age(view.age as f64)
}

/// The rows of `containers list`.
pub(crate) fn table(views: &[ContainerView], wide: bool) -> String {
    let mut columns = vec![
        ("ID", 12),
        ("SANDBOX", 13),
        ("STATE", 11),
        ("HEALTH", 11),
        ("TASK", 13),
        ("AGE", 9),
        ("COST", 0),
    ];
    if wide {
        columns.extend([
            ("NAME", 0),
            ("PROVIDER", 0),
            ("REASON", 0),
            ("EXIT", 0),
            ("CPU", 0),
            ("MEM", 0),
            ("COMMAND", 0),
        ]);
    }
    let mut table = Table::new(&columns);
    for view in views {
        let record = &view.record;
        let mut row = vec![
            cell(record.id.as_str()),
            cell(or_dash(view.sandbox.as_deref())),
            state_cell(view),
            health_cell(view.health),
            cell(or_dash(view.task.as_deref())),
            cell(age(view)),
            cell(money(view.cost)),
        ];
        if wide {
            row.extend([
                cell(or_dash(record.name.as_deref())),
                cell(&record.provider),
                cell(record.termination_reason.map_or("-", |reason| reason.as_str())),
                cell(record.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string())),
                cell(percent(record.cpu_percent)),
                cell(percent(record.memory_percent)),
                cell(shortened(&command_line(&record.command), 60)),
            ]);
        }
        table.row(row);
    }
    table.render()
}

/// The line under the list.
pub(crate) fn totals(totals: &Totals) -> String {
    let mut line = format!(
        "Total: {} | Running: {} | Orphaned: {} | Cost: {} accrued, {}",
        counted(totals.total, "container"),
        totals.running,
        totals.orphaned,
        money(totals.cost_accrued_usd),
        rate(totals.cost_per_hour_usd)
    );
    if totals.foreign > 0 {
        let cost = rate(totals.foreign_cost_per_hour_usd);
        let _ = write!(line, " | Foreign: {} ({cost}), see 'parhelia instances list'", totals.foreign);
    }
    line
}

pub(crate) fn list(views: &[ContainerView], sums: &Totals, as_of: Option<Timestamp>, wide: bool) -> String {
    let moment = as_of.map(|at| format!("As of {}. ", time_utc(at))).unwrap_or_default();
    format!("{}\n{moment}{}\n", table(views, wide), totals(sums))
}

/// Orphans, and what is suspected of being one: seen at first sight, called so after the grace.
pub(crate) fn orphans(views: &[ContainerView]) -> String {
    let mut table =
        Table::new(&[("ID", 12), ("SANDBOX", 13), ("AGE", 9), ("COST", 9), ("TASK (if known)", 0)]);
    for view in views {
        table.row(vec![
            cell(view.record.id.as_str()),
            cell(or_dash(view.sandbox.as_deref())),
            cell(if view.suspected { format!("{} (suspected)", age(view)) } else { age(view) }),
            cell(money(view.cost)),
            cell(or_dash(view.task.as_deref())),
        ]);
    }
    let mut out = table.render();
    let suspected = views.iter().filter(|view| view.suspected).count() as i64;
    let count = counted(views.len() as i64 - suspected, "orphan");
    let _ = writeln!(out, "\n{count} detected. Run 'parhelia cleanup --orphans' to terminate.");
    if suspected > 0 {
        let _ = writeln!(out, "{}", suspects(suspected));
    }
    out
}

pub(crate) fn suspects(count: i64) -> String {
    format!("({count} suspected: younger than the grace period)")
}

pub(crate) fn health(rows: &[HealthRow]) -> String {
    let mut table = Table::new(&[("HEALTH", 12), ("COUNT", 9), ("CONTAINERS", 0)]);
    for row in rows {
        let style = match row.health.parse::<Health>() {
            _ if row.count == 0 => super::text::PLAIN,
            Ok(health) => health_style(health),
            Err(_) => state_style(ContainerState::Orphaned),
        };
        let names = if row.containers.is_empty() { "-".to_owned() } else { row.containers.join(", ") };
        table.row(vec![styled(&row.health, style), cell(row.count.to_string()), cell(names)]);
    }
    table.render()
}

/// How long it has been up, or was.
fn uptime(view: &ContainerView, now: Timestamp) -> Option<String> {
    let from = view.record.started_at?;
    Some(human_age(seconds_between(from, view.record.terminated_at.unwrap_or(now))))
}

/// `[14:32:15] c-abc123  healthy   CPU: 45%  MEM: 62%  ↑ 2h 15m`
pub(crate) fn watch_line(view: &ContainerView, now: Timestamp) -> String {
    let health = painted(&format!("{:<9}", view.health.as_str()), health_style(view.health));
    let up = uptime(view, now).unwrap_or_else(|| age(view));
    format!(
        "[{}] {}  {health} CPU: {}  MEM: {}  ↑ {up}",
        super::text::clock(now),
        view.record.id,
        percent(view.record.cpu_percent),
        percent(view.record.memory_percent)
    )
}

/// Label and value, the value in the column where the seed has it.
struct Block(String);

impl Block {
    fn field(&mut self, label: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "  {:<13} {}", format!("{label}:"), value.as_ref());
    }

    fn section(&mut self, label: &str) {
        let _ = writeln!(self.0, "\n  {label}:");
    }

    fn detail(&mut self, label: &str, value: impl AsRef<str>) {
        let _ = writeln!(self.0, "    {:<11} {}", format!("{label}:"), value.as_ref());
    }
}

/// The block of `containers show`.
pub(crate) fn show(view: &ContainerView, now: Timestamp) -> String {
    let mut block = Block(format!("Container: {}\n", view.record.id));
    identity(&mut block, view, now);
    resources(&mut block, view);
    lifecycle(&mut block, view, now);
    stop(&mut block, view, now);
    block.section("Cost");
    block.detail("Rate", view.record.cost_rate_per_hour.map_or_else(|| "-".to_owned(), rate));
    block.detail("Accrued", money(view.cost));
    block.detail("Source", view.record.cost_source.as_str());
    block.0
}

fn identity(block: &mut Block, view: &ContainerView, now: Timestamp) {
    let record = &view.record;
    let state = shown_state(view);
    block.field("Sandbox", clean(or_dash(view.sandbox.as_deref())));
    block.field("Provider", clean(&record.provider));
    if let Some(name) = &record.name {
        block.field("Name", clean(name));
    }
    block.field("State", painted(state.as_str(), state_style(state)));
    if let Some(reason) = record.termination_reason {
        block.field("Reason", reason.as_str());
    }
    if let Some(code) = record.exit_code {
        block.field("Exit code", code.to_string());
    }
    let heard = match record.last_heartbeat_at {
        Some(at) => format!("last heartbeat: {} ago", human_age(seconds_between(at, now))),
        None => "no heartbeat yet".to_owned(),
    };
    block.field("Health", format!("{} ({heard})", painted(view.health.as_str(), health_style(view.health))));
    let task = match (&view.task, &view.task_title) {
        (Some(task), Some(title)) => format!("{task} ({title})"),
        (task, _) => or_dash(task.as_deref()).to_owned(),
    };
    block.field("Task", clean(&task));
    block.field("Worker", clean(or_dash(record.worker_id.as_deref())));
    block.field("Session", clean(or_dash(record.session_id.as_deref())));
    if !record.command.is_empty() {
        block.field("Command", clean(&command_line(&record.command)));
    }
    if let Some(image) = &record.image {
        block.field("Image", clean(image));
    }
    if !record.labels.is_empty() {
        let labels: Vec<String> = record.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        block.field("Labels", clean(&labels.join(", ")));
    }
    if record.keep {
        block.field("Keep", "yes (never ended for silence alone)");
    }
    if let Some(at) = record.suspected_at {
        let since = human_age(seconds_between(at, now));
        block.field(
            "Suspected",
            format!("since {} ({since} ago): no record of ours asked for it", time_utc(at)),
        );
    }
}

fn resources(block: &mut Block, view: &ContainerView) {
    let record = &view.record;
    let used =
        |value: Option<f64>| value.map_or_else(String::new, |v| format!(" ({} used)", percent(Some(v))));
    block.section("Resources");
    let cores =
        record.cpu_cores.map(|n| format!("{} {}", number(n), if n == 1.0 { "core" } else { "cores" }));
    block.detail("CPU", format!("{}{}", or_dash(cores.as_deref()), used(record.cpu_percent)));
    let memory = match (record.memory_mb, record.memory_used_mb) {
        (Some(mb), _) => format!("{mb} MB"),
        (None, Some(mb)) => format!("{mb} MB in use"),
        (None, None) => "-".to_owned(),
    };
    block.detail("Memory", format!("{memory}{}", used(record.memory_percent)));
    block.detail("GPU", clean(record.gpu_type.as_deref().unwrap_or("None")));
    if let Some(region) = &record.region {
        block.detail("Region", clean(region));
    }
    if record.disk_percent.is_some() {
        block.detail("Disk", format!("{} used", percent(record.disk_percent)));
    }
}

fn lifecycle(block: &mut Block, view: &ContainerView, now: Timestamp) {
    let record = &view.record;
    block.section("Lifecycle");
    block.detail("Created", time_utc(record.created_at));
    block.detail("Started", record.started_at.map_or_else(|| "-".to_owned(), time_utc));
    if let Some(at) = record.terminated_at {
        block.detail("Terminated", time_utc(at));
    }
    block.detail("Uptime", or_dash(uptime(view, now).as_deref()));
}

/// The receipts of a request to end it: asked, seen, being done, confirmed.
fn stop(block: &mut Block, view: &ContainerView, now: Timestamp) {
    let record = &view.record;
    if record.desired != Desired::Terminated {
        return;
    }
    block.section("Stop");
    let asked = record.desired_at.map_or_else(|| "-".to_owned(), time_utc);
    let by = record.desired_by.as_deref().map_or_else(String::new, |who| format!(" by {}", clean(who)));
    block.detail("Desired", format!("terminated{by}"));
    if let Some(reason) = record.desired_reason {
        block.detail("Because", reason.as_str());
    }
    block.detail("Requested", asked);
    if let Some(grace) = record.stop_grace_seconds {
        block.detail("Grace", format!("{grace}s"));
    }
    for (label, at) in [
        ("Seen", record.stop_seen_at),
        ("Stopping", record.stopping_at),
        ("Confirmed", record.stop_confirmed_at),
    ] {
        block.detail(label, at.map_or_else(|| "not yet".to_owned(), time_utc));
    }
    if record.stop_confirmed_at.is_none() && record.stop_attempts > 0 {
        let last = record
            .stop_attempted_at
            .map_or_else(String::new, |at| format!(", the last {} ago", human_age(seconds_between(at, now))));
        block.detail("Attempts", format!("{}{last}", record.stop_attempts));
    }
    if let Some(error) = &record.stop_error {
        block.detail("Error", clean(error));
    }
}

pub(crate) fn heartbeats(history: &HeartbeatHistory) -> String {
    let mut out = String::new();
    if !history.hours.is_empty() {
        let mut table = Table::new(&[
            ("HOUR", 0),
            ("SAMPLES", 0),
            ("CPU AVG", 0),
            ("CPU MAX", 0),
            ("MEM AVG", 0),
            ("MEM MAX", 0),
        ]);
        for hour in &history.hours {
            table.row(vec![
                cell(time(hour.hour)),
                cell(hour.samples.to_string()),
                cell(percent(hour.cpu_percent_avg)),
                cell(percent(hour.cpu_percent_max)),
                cell(percent(hour.memory_percent_avg)),
                cell(percent(hour.memory_percent_max)),
            ]);
        }
        out.push_str(&table.render());
        out.push('\n');
    }
    let mut table = Table::new(&[
        ("TIMESTAMP", 0),
        ("CPU", 0),
        ("MEM", 0),
        ("MEMORY", 0),
        ("DISK", 0),
        ("UPTIME", 0),
        ("TMUX", 0),
        ("CLAUDE", 0),
    ]);
    let word = |value: Option<bool>, yes: &'static str, no: &'static str| match value {
        Some(true) => yes,
        Some(false) => no,
        None => "-",
    };
    for beat in &history.heartbeats {
        table.row(vec![
            cell(time(beat.timestamp)),
            cell(percent(beat.cpu_percent)),
            cell(percent(beat.memory_percent)),
            cell(beat.memory_mb.map_or_else(|| "-".to_owned(), |mb| format!("{mb} MB"))),
            cell(percent(beat.disk_percent)),
            cell(beat.uptime_seconds.map_or_else(|| "-".to_owned(), |s| human_age(s as f64))),
            cell(word(beat.tmux_active, "active", "idle")),
            cell(word(beat.claude_responsive, "responsive", "silent")),
        ]);
    }
    out.push_str(&table.render());
    out
}

#[cfg(test)]
#[path = "containers_tests.rs"]
mod tests;
