//! Why a container is as it is.

use jiff::Timestamp;

use super::{Evidence, HOST, NOBODY, OPERATOR, Page, Wait, Why, Word, ago, times};
use crate::api::CycleView;
use crate::config;
use crate::container::Container;
use crate::event::Event;
use crate::ids::ContainerId;
use crate::liveness::Ladder;
use crate::reconcile::ProviderMemory;
use crate::sandbox::Phase;
use crate::state::{ContainerState, Desired, Health, TerminationReason};
use crate::time::{due_at, human_age, plus_seconds};

#[derive(Debug, Clone)]
pub struct ContainerFacts {
    pub record: Container,
    /// Its provider, asked by id just now.
    pub provider: Word,
    /// What else the provider can show: a lock, a sentinel.
    pub shown: Vec<Evidence>,
    pub memory: ProviderMemory,
    /// The last pass over its provider.
    pub cycle: Option<CycleView>,
    /// How long this server has not heard it, on its own clock; `None` when it has not listened for it.
    pub silent_seconds: Option<f64>,
    /// How long this server has been listening at all.
    pub watching_seconds: f64,
    pub ladder: Ladder,
    pub settings: config::Reconciler,
    /// How long an unanswered create may still arrive.
    pub create_settles_seconds: i64,
    /// Where only the server of another home can see it.
    pub other_home: Option<OtherHome>,
    pub events: Vec<Event>,
}

/// A home whose processes nobody but its own server sees.
#[derive(Debug, Clone)]
pub struct OtherHome {
    pub id: String,
    pub host: Option<String>,
    /// A server of it holds a lease.
    pub is_served: bool,
}

pub fn container(facts: &ContainerFacts, now: Timestamp) -> Why {
    let row = &facts.record;
    let mut page = Page::new(row.id.as_str(), "container", now, state(facts, now));
    evidence(facts, now, &mut page);
    let unserved = facts.other_home.as_ref().filter(|home| !home.is_served);
    if let Some(home) = unserved.filter(|_| row.state != ContainerState::Terminated) {
        alone(home, &mut page);
        return page.events(&facts.events);
    }
    whole_provider(facts, &mut page);
    planner(facts, &mut page);
    let ended = matches!(row.state, ContainerState::Stopped | ContainerState::Terminated);
    match (row.state, row.desired) {
        (ContainerState::Terminated, _) => over(facts, &mut page),
        (_, Desired::Terminated) if !ended => stopping(facts, now, &mut page),
        (ContainerState::Created, _) => creating(facts, now, &mut page),
        (ContainerState::Stopped, _) => {
            page.wait("the next pass, which records it as terminated", next_pass(facts));
            page.remedy(OPERATOR, "has that pass made now", "parhelia reconciler run");
        }
        (ContainerState::Unknown, _) => suspected(facts, &mut page),
        (ContainerState::Orphaned, _) => orphaned(facts, now, &mut page),
        (ContainerState::Running, _) => running(facts, now, &mut page),
    }
    page.events(&facts.events)
}

/// A record that this program cannot read.
pub fn unreadable(id: &ContainerId, error: &str, events: &[Event], now: Timestamp) -> Why {
    let state = "Its record cannot be read, so nothing is decided about it.";
    let mut page = Page::new(id.as_str(), "container", now, state);
    page.evidence("store", error);
    page.wait("somebody who repairs its row: until then no pass sees it, and nothing of it is ended", None);
    page.remedy(
        HOST,
        "repairs that column of its row in 'containers', or puts a backup back",
        "parhelia doctor",
    );
    page.events(events)
}

fn state(facts: &ContainerFacts, now: Timestamp) -> String {
    let row = &facts.record;
    let provider = &row.provider;
    let asked = format!(
        "{} has asked for its end{}",
        row.desired_by.as_deref().unwrap_or("somebody"),
        row.desired_reason.map(|reason| format!(" ({reason})")).unwrap_or_default()
    );
    let to_end = row.desired == Desired::Terminated;
    match row.state {
        ContainerState::Created if to_end => format!("It never ran, and {asked}."),
        ContainerState::Created if row.create_attempts == 0 => {
            format!("It is to be created: {provider} has not been asked for it yet.")
        }
        ContainerState::Created if row.sandbox_id.is_none() => format!(
            "Nobody knows whether it was created: {provider} was asked {}, the last time {}, and has not confirmed it.",
            times(row.create_attempts),
            ago(row.create_attempted_at.unwrap_or(row.created_at), now)
        ),
        ContainerState::Created => format!("{provider} has taken it, and it was not seen running yet."),
        ContainerState::Stopped => format!("It has ended ({}), and its end is being recorded.", reason(row)),
        ContainerState::Terminated => {
            let code = row.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
            let when = row.terminated_at.map(|at| format!(" {}", ago(at, now))).unwrap_or_default();
            format!("It has ended{when}: {}{code}. {}", reason(row), meaning(row.termination_reason))
        }
        _ if to_end && row.stop_error.is_some() => {
            format!("It still runs although {asked}: {provider} refuses to end it.")
        }
        _ if to_end => format!("It is being ended: {asked} {}.", ago(row.desired_at.unwrap_or(now), now)),
        ContainerState::Unknown => {
            "It runs with our tag and nobody here asked for it: suspected of being an orphan.".to_owned()
        }
        ContainerState::Orphaned => {
            "It is an orphan: it runs with our tag, costs, and nobody here asked for it.".to_owned()
        }
        ContainerState::Running if facts.memory.breaker_since.is_some() && facts.provider == Word::Absent => {
            format!(
                "By its record it runs. It vanished from {provider} together with too many others, and that is not believed yet."
            )
        }
        ContainerState::Running if matches!(facts.provider, Word::Unknown(_)) => format!(
            "By its record it runs ({}). {provider} does not answer now, and nothing is concluded from that.",
            row.health_status
        ),
        ContainerState::Running => match row.health_status {
            Health::Healthy => "It runs and is healthy.".to_owned(),
            Health::Unknown => "It runs, and was not heard yet.".to_owned(),
            Health::Dead => {
                "It runs by its provider's word, and was silent for so long that it is called dead."
                    .to_owned()
            }
            silent => format!("It runs by its provider's word, and is silent: {silent}."),
        },
    }
}

fn reason(row: &Container) -> &'static str {
    row.termination_reason.map_or("for no known reason", |reason| reason.as_str())
}

fn meaning(reason: Option<TerminationReason>) -> &'static str {
    use TerminationReason::*;
    match reason {
        Some(Completed) => "Its command ended by itself and well.",
        Some(Failed) => "Its command ended by itself and said that it failed.",
        Some(Crash) => "A signal that was not ours ended it.",
        Some(Oom) => "It took more memory than it may.",
        Some(IdleTimeout) => "It neither gave output nor used the CPU for its idle timeout.",
        Some(Timeout) => "It ran for longer than its timeout.",
        Some(Manual) => "Somebody asked for it.",
        Some(External) => "Its provider no longer has it, and nobody here asked for that.",
        Some(SupervisorLost) => "Its supervisor died, and what it left was swept away.",
        Some(HostRebooted) => "Its machine was restarted under it.",
        Some(StartFailed) => "Its command could not be started at all.",
        Some(CreateFailed) => "The provider refused to create it.",
        Some(CreateLost) => "Nobody could say whether it was created, so a successor took its place.",
        Some(OrphanCleanup) => "It was an orphan and was cleaned up.",
        Some(DeadCleanup) => "It was dead and was cleaned up.",
        Some(Stale) => "It was silent for longer than the stale threshold, and auto_terminate_stale is on.",
        Some(Silent) => "No heartbeat of it was kept for max_silent_hours.",
        None => "",
    }
}

fn evidence(facts: &ContainerFacts, now: Timestamp, page: &mut Page) {
    let row = &facts.record;
    page.evidence(format!("provider {} now", row.provider), facts.provider.said());
    page.0.evidence.extend(facts.shown.iter().cloned());
    let heard = match (row.last_heartbeat_at, facts.silent_seconds) {
        (None, _) => "none was ever received".to_owned(),
        (Some(at), None) => format!("the last {}", ago(at, now)),
        (Some(at), Some(silent)) => {
            format!("the last {}; by this server's own clock {} of silence", ago(at, now), human_age(silent))
        }
    };
    page.evidence("heartbeats", format!("{heard}; health {}", row.health_status));
    if row.state == ContainerState::Created || row.create_attempts > 1 {
        let last =
            row.create_attempted_at.map(|at| format!(", the last {}", ago(at, now))).unwrap_or_default();
        let sandbox =
            row.sandbox_id.as_deref().map_or("no sandbox yet".to_owned(), |id| format!("sandbox {id}"));
        page.evidence("create", format!("{} attempts{last}; {sandbox}", row.create_attempts));
    }
    if row.desired == Desired::Terminated {
        page.evidence("stop receipts", receipts(row, now));
        if let Some(error) = &row.stop_error {
            page.evidence("last stop", format!("attempt {} failed: {error}", row.stop_attempts));
        }
    }
    let disagrees = match (&facts.provider, row.state) {
        (Word::Absent, ContainerState::Running | ContainerState::Orphaned | ContainerState::Unknown) => true,
        (Word::Present(Phase::Exited(_)), state) => state.is_active() && state != ContainerState::Stopped,
        (Word::Present(Phase::Running), ContainerState::Stopped | ContainerState::Terminated) => true,
        _ => false,
    };
    if disagrees {
        page.wait("the next pass: the record does not say yet what the provider just said", next_pass(facts));
    }
}

fn receipts(row: &Container, now: Timestamp) -> String {
    let receipt = |name: &str, at: Option<Timestamp>| match at {
        Some(at) => format!("{name} {}", ago(at, now)),
        None => format!("{name} not yet"),
    };
    [
        receipt("requested", row.desired_at),
        receipt("seen", row.stop_seen_at),
        receipt("sent", row.stopping_at),
        receipt("confirmed gone", row.stop_confirmed_at),
    ]
    .join(", ")
}

/// What holds up everything at its provider.
fn whole_provider(facts: &ContainerFacts, page: &mut Page) {
    let (row, memory) = (&facts.record, &facts.memory);
    if row.state == ContainerState::Terminated {
        return;
    }
    if let Some(since) = memory.unreachable_since {
        page.evidence(
            "reconciler",
            format!("{} has not answered since {since}; nothing is concluded from that", row.provider),
        );
        page.wait(format!("{} to answer again; it is asked at every pass", row.provider), next_pass(facts));
        page.remedy(
            HOST,
            format!("brings {} back; what is wrong is said by", row.provider),
            "parhelia doctor",
        );
    }
    if let (Some(at), Some(now_answers)) = (&row.provider_identity, &memory.identity)
        && at != now_answers
    {
        page.evidence("reconciler", format!("it is at {at}, and {now_answers} answers now"));
        page.wait(format!("{at} to answer again: another one says nothing about it"), None);
        page.remedy(HOST, format!("lets {} be {at} again", row.provider), "parhelia reconciler status");
    }
    if let Some(since) = memory.breaker_since {
        page.evidence(
            "reconciler",
            format!("too many vanished from {} at once; the breaker is open since {since}", row.provider),
        );
        let next = memory.breaker_agreed_at.map(|at| plus_seconds(at, 10)).or_else(|| next_pass(facts));
        page.wait(
            format!(
                "three complete listings that agree with the inspections ({} so far)",
                memory.breaker_agreed
            ),
            next,
        );
        page.remedy(
            NOBODY,
            "needs to: it closes when they are there again, or are agreed to be gone",
            "parhelia reconciler status",
        );
    }
}

/// Nobody sees it, so nothing that is asked of it happens.
fn alone(home: &OtherHome, page: &mut Page) {
    let place = home.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    page.wait(format!("the next server of its home {}{place}: no other can see or end it", home.id), None);
    page.remedy(HOST, format!("starts the server of the home {}{place}", home.id), "parhelia up");
}

/// In the planner's own words.
fn planner(facts: &ContainerFacts, page: &mut Page) {
    let Some(cycle) = facts.cycle.as_ref().filter(|_| facts.record.state != ContainerState::Terminated)
    else {
        return;
    };
    let own = cycle.waiting.iter().filter(|waiting| waiting.id.as_ref() == Some(&facts.record.id));
    page.0.waiting.extend(own.map(|waiting| Wait {
        what: waiting.why.clone(),
        until: None,
        said_at: Some(cycle.finished_at),
    }));
}

fn next_pass(facts: &ContainerFacts) -> Option<Timestamp> {
    facts.cycle.as_ref().and_then(|cycle| cycle.next_at)
}

fn creating(facts: &ContainerFacts, now: Timestamp, page: &mut Page) {
    let row = &facts.record;
    match (row.create_attempts, &row.sandbox_id) {
        (0, _) => page.wait(format!("the next pass, which asks {} for it", row.provider), next_pass(facts)),
        (_, None) => {
            let tried = row.create_attempted_at.unwrap_or(row.created_at);
            let settled = due_at(tried, facts.create_settles_seconds, now);
            page.wait("its creation to arrive; from then on a missing one counts as lost", Some(settled));
        }
        (_, Some(_)) => page.wait("a pass that sees it running", next_pass(facts)),
    }
    page.remedy(
        NOBODY,
        "needs to: it is tried until it is seen, refused or given up; a pass at once is",
        "parhelia reconciler run",
    );
    page.remedy(OPERATOR, "gives it up", format!("parhelia containers terminate {}", row.id));
}

fn stopping(facts: &ContainerFacts, now: Timestamp, page: &mut Page) {
    let row = &facts.record;
    let grace = row.stop_grace_seconds.unwrap_or(10);
    match (row.stop_seen_at, row.stopping_at) {
        (None, _) => page.wait("the reconciler to see the request", next_pass(facts)),
        (Some(_), None) if row.stop_error.is_some() => {
            page.wait(format!("the next attempt; {} so far", times(row.stop_attempts)), next_pass(facts));
        }
        (Some(_), None) => page.wait(format!("{} to take the request", row.provider), None),
        (Some(_), Some(sent)) => {
            let force = plus_seconds(sent, grace);
            let what = if force > now { "its own end; then force" } else { "its end; force was due" };
            page.wait(what, Some(force));
        }
    }
    page.remedy(NOBODY, "needs to: it is repeated, with growing pauses, until its end is seen", "");
    if row.stop_error.is_some() {
        page.remedy(
            HOST,
            format!("sees to it that {} can end it; what is wrong is said by", row.provider),
            "parhelia doctor",
        );
    } else if grace > 0 {
        page.remedy(
            OPERATOR,
            "ends it without further grace",
            format!("parhelia containers terminate {} --force", row.id),
        );
    }
}

fn suspected(facts: &ContainerFacts, page: &mut Page) {
    let row = &facts.record;
    let since = row.suspected_at.unwrap_or(row.created_at).min(row.created_at);
    let expires = plus_seconds(since, facts.settings.orphan_grace_period_seconds as i64);
    page.wait("its grace; then it is called an orphan, unless something claims it", Some(expires));
    page.remedy(OPERATOR, "ends it now", format!("parhelia containers terminate {}", row.id));
}

fn orphaned(facts: &ContainerFacts, now: Timestamp, page: &mut Page) {
    let row = &facts.record;
    if facts.settings.auto_terminate_orphans {
        page.wait("the next pass, which ends it (auto_terminate_orphans is on)", next_pass(facts));
    } else {
        page.wait(
            "somebody's decision: orphans are not ended by themselves (auto_terminate_orphans is off)",
            None,
        );
        silence(facts, now, page);
    }
    page.remedy(OPERATOR, "ends every orphan, after showing them", "parhelia cleanup --orphans");
    page.remedy(OPERATOR, "ends this one", format!("parhelia containers terminate {}", row.id));
}

fn running(facts: &ContainerFacts, now: Timestamp, page: &mut Page) {
    let row = &facts.record;
    ladder(facts, now, page);
    if matches!(row.health_status, Health::Healthy | Health::Unknown) {
        page.remedy(OPERATOR, "ends it", format!("parhelia containers stop {}", row.id));
        return;
    }
    silence(facts, now, page);
    let stale = matches!(row.health_status, Health::Unhealthy | Health::Dead);
    if stale && facts.settings.auto_terminate_stale && !row.keep {
        page.wait("the next pass, which ends it (auto_terminate_stale is on)", next_pass(facts));
    }
    page.remedy(OPERATOR, "sees what it last said", format!("parhelia containers logs {} --tail 50", row.id));
    if row.health_status == Health::Dead {
        page.remedy(OPERATOR, "ends every dead one, after showing them", "parhelia cleanup --dead");
    }
    page.remedy(OPERATOR, "ends it", format!("parhelia containers terminate {}", row.id));
}

/// The steps of the ladder that are still to come.
fn ladder(facts: &ContainerFacts, now: Timestamp, page: &mut Page) {
    let row = &facts.record;
    let Some(silent) = facts.silent_seconds else { return };
    // Nobody is older for what could not be heard.
    if facts.memory.unreachable_since.is_some() {
        return;
    }
    let steps = [
        (Health::Degraded, facts.ladder.degraded_seconds),
        (Health::Unhealthy, facts.ladder.unhealthy_seconds),
        (Health::Dead, facts.ladder.dead_seconds),
    ];
    let told = steps.iter().position(|(health, _)| *health == row.health_status).map_or(0, |at| at + 1);
    // One that is heard as it should be waits for nothing.
    let quiet = row.health_status != Health::Healthy || silent * 2.0 > facts.ladder.degraded_seconds;
    if !quiet || row.health_status == Health::Dead {
        return;
    }
    for (health, after) in &steps[told..] {
        let mut left = after - silent;
        if *health == Health::Dead {
            left = left.max(facts.ladder.resumption_seconds - facts.watching_seconds);
        }
        let at = plus_seconds(now, left.max(0.0).ceil() as i64);
        page.wait(format!("a heartbeat; without one it is called {health}"), Some(at));
    }
}

/// When silence alone ends it.
fn silence(facts: &ContainerFacts, now: Timestamp, page: &mut Page) {
    let row = &facts.record;
    let since = [row.last_heartbeat_at, row.started_at, row.suspected_at, row.create_attempted_at];
    let Some(heard) = since.into_iter().flatten().max() else { return };
    let at = plus_seconds(heard.min(now), (facts.settings.max_silent_hours * 3600.0) as i64);
    let hours = facts.settings.max_silent_hours;
    if row.keep {
        page.wait(
            format!("nothing that ends it: it was started with --keep; it is only told of after {hours} h"),
            Some(at),
        );
    } else {
        page.wait(
            format!("a heartbeat; after {hours} h without one that was kept, a dead one is ended"),
            Some(at),
        );
    }
}

fn over(facts: &ContainerFacts, page: &mut Page) {
    let row = &facts.record;
    page.remedy(OPERATOR, "reads what it left", format!("parhelia containers logs {}", row.id));
    if row.termination_reason == Some(TerminationReason::CreateLost)
        && let Some(successor) = facts.events.iter().find_map(|e| e.details.get("successor")?.as_str())
    {
        page.remedy(OPERATOR, "looks at its successor", format!("parhelia why {successor}"));
    }
}
