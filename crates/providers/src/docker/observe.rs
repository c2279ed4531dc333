//! What the engine shows, as sandboxes. A container whose details cannot be had is `Phase::Unknown`, never
//! left out: somebody would take it for gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, ContainerSummary};
use bollard::query_parameters::ListContainersOptionsBuilder;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use parhelia_core::ids::{ContainerId, IdError};
use parhelia_core::sandbox::{
    Exit, Inspection, Listing, Phase, Resources, Sandbox, TAG_CONTAINER, TAG_INSTANCE, TAG_TASK, Tags,
};
use parhelia_core::state::TerminationReason;
use parhelia_core::time::seconds_between;

use super::engine::{status, told};
use super::{Inner, LABEL_NAME, OUR_LABELS, locked};
use crate::{ProviderError, SandboxRef};

/// Questions to the engine under way at once.
pub(crate) const QUESTIONS: usize = 8;
/// At those that may have died for lack of memory.
const SECOND_LOOKS: u32 = 3;
const SECOND_LOOK: Duration = Duration::from_millis(200);
/// What ended longer ago is known in full, unless the engine's clock is another than ours.
const FRESH_END_SECONDS: f64 = 60.0;

/// The engine, and its directory: older engines of one machine share an id, however many of them run there.
pub(crate) async fn identity(inner: &Inner) -> Result<String, ProviderError> {
    let docker = inner.engine.client().await?;
    let info = match docker.info().await {
        Ok(info) => info,
        Err(error) => return Err(inner.engine.failed(&error).await),
    };
    let id = info.id.filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| {
        ProviderError::Unreachable(format!("the engine at {} does not say who it is", inner.engine.address))
    })?;
    Ok(match info.docker_root_dir.filter(|dir| !dir.is_empty()) {
        Some(dir) => format!("docker:{id}:{dir}"),
        None => format!("docker:{id}"),
    })
}

pub(crate) async fn list(inner: &Arc<Inner>) -> Result<Listing, ProviderError> {
    let before = identity(inner).await?;
    let docker = inner.engine.client().await?;
    let filters = HashMap::from([("label".to_owned(), vec![TAG_CONTAINER.to_owned()])]);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    let summaries = match docker.list_containers(Some(options)).await {
        Ok(summaries) => summaries,
        Err(error) => return Err(inner.engine.failed(&error).await),
    };
    let mut seen = Vec::with_capacity(summaries.len());
    let mut ids = std::collections::HashSet::new();
    let mut wanted = Vec::new();
    for summary in summaries {
        let Some(id) = summary.id.clone() else { continue };
        ids.insert(id.clone());
        let Some(tags) = tags(inner, summary.labels.as_ref(), &id) else { continue };
        match inner.remembered(&id, summary.state.map(|s| s.to_string())) {
            Some(sandbox) => seen.push(sandbox),
            None => wanted.push((id, tags, summary)),
        }
    }
    let mut looked = look(inner, &docker, wanted.iter().map(|(id, ..)| id.clone()).collect()).await;
    let docker = &docker;
    let described: Vec<_> = wanted
        .into_iter()
        .map(|(id, tags, summary)| {
            let looked = looked.remove(&id);
            async move {
                match looked? {
                    (epoch, Ok(found)) => {
                        let mut sandbox = sandbox(&found, id.clone(), tags);
                        super::inside::explain(inner, docker, &found, &mut sandbox).await;
                        inner.remember(epoch, &id, &found, &sandbox);
                        Some(sandbox)
                    }
                    // Removed since it was listed: the next listing will not have it.
                    (_, Err(error)) if status(&error) == Some(404) => None,
                    (_, Err(error)) => Some(undescribed(id, tags, summary, told(&error))),
                }
            }
        })
        .collect();
    let described: Vec<Option<Sandbox>> = stream::iter(described).buffer_unordered(QUESTIONS).collect().await;
    let complete = described.iter().all(Option::is_some);
    seen.extend(described.into_iter().flatten());
    inner.forget_all_but(&ids);
    if identity(inner).await? != before {
        return Err(ProviderError::Unreachable(format!(
            "another engine took the place of the one at {} while it was asked",
            inner.engine.address
        )));
    }
    Ok(Listing { identity: before, complete, sandboxes: seen })
}

/// By the engine's id, else by the name that we gave it.
pub(crate) async fn inspect(inner: &Arc<Inner>, sandbox: &SandboxRef) -> Result<Inspection, ProviderError> {
    Ok(match find(inner, sandbox).await? {
        None => Inspection::Absent,
        Some((id, found)) => match tags(inner, labels(&found), &id) {
            Some(tags) => {
                let mut sandbox = self::sandbox(&found, id, tags);
                super::inside::explain(inner, &inner.engine.client().await?, &found, &mut sandbox).await;
                Inspection::Present(Box::new(sandbox))
            }
            None => {
                return Err(ProviderError::Rejected(format!(
                    "the container {id} has the name of ours and not its label; rename or remove it"
                )));
            }
        },
    })
}

/// What the engine says of a container, and what it had told of changes before it was asked.
type Look = (u64, Result<ContainerInspectResponse, Error>);

/// The engine's word of each. It learns of a lack of memory a moment after the death itself, so those that may have died of
/// it are looked at again, all together, before anything is made of them. One that it cannot describe keeps nobody waiting.
async fn look(inner: &Inner, docker: &Docker, names: Vec<String>) -> HashMap<String, Look> {
    let ask = |name: String| async move {
        let epoch = inner.memory_epoch();
        let answer = tokio::time::timeout(inner.patience(), docker.inspect_container(&name, None)).await;
        (name, (epoch, answer.unwrap_or(Err(Error::RequestTimeoutError))))
    };
    let ask_all = |names: Vec<String>| stream::iter(names).map(ask).buffer_unordered(QUESTIONS);
    let mut looked: HashMap<String, Look> = ask_all(names).collect().await;
    for _ in 0..SECOND_LOOKS {
        let now = inner.config.clock.now();
        let in_doubt = |(_, answer): &Look| answer.as_ref().is_ok_and(|it| perhaps_for_memory(it, now));
        let in_doubt: Vec<String> =
            looked.iter().filter(|(_, look)| in_doubt(look)).map(|(name, _)| name.clone()).collect();
        if in_doubt.is_empty() {
            break;
        }
        tokio::time::sleep(SECOND_LOOK).await;
        looked.extend(ask_all(in_doubt).collect::<Vec<_>>().await);
    }
    looked
}

/// Killed under a limit of memory a moment ago, and the engine does not say why.
fn perhaps_for_memory(found: &ContainerInspectResponse, now: Timestamp) -> bool {
    let limited = found.host_config.as_ref().and_then(|host| host.memory).is_some_and(|bytes| bytes > 0);
    let killed = |state: &ContainerState| state.exit_code == Some(137) && state.oom_killed != Some(true);
    let fresh = |state: &ContainerState| {
        let at = state.finished_at.as_deref().and_then(moment);
        at.is_none_or(|at| seconds_between(at, now) < FRESH_END_SECONDS)
    };
    let state = found.state.as_ref().filter(|state| state.running != Some(true));
    limited && state.is_some_and(|state| killed(state) && fresh(state))
}

pub(crate) async fn find(
    inner: &Inner,
    sandbox: &SandboxRef,
) -> Result<Option<(String, ContainerInspectResponse)>, ProviderError> {
    let docker = inner.engine.client().await?;
    let name = sandbox.sandbox_id.as_deref().unwrap_or(sandbox.container_id.as_str());
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
        let shown: String = name.chars().take(60).collect();
        return Err(ProviderError::Rejected(format!("'{shown}' is not a container of the docker provider")));
    }
    let looked = look(inner, &docker, vec![name.to_owned()]).await.remove(name);
    match looked.map_or(Err(Error::RequestTimeoutError), |(_, answer)| answer) {
        Ok(found) => {
            let id = found.id.clone().unwrap_or_else(|| name.to_owned());
            Ok(Some((id, found)))
        }
        Err(error) if status(&error) == Some(404) => Ok(None),
        Err(error) => Err(inner.engine.failed(&error).await),
    }
}

pub(crate) fn labels(found: &ContainerInspectResponse) -> Option<&HashMap<String, String>> {
    found.config.as_ref().and_then(|config| config.labels.as_ref())
}

fn tags(inner: &Inner, labels: Option<&HashMap<String, String>>, id: &str) -> Option<Tags> {
    read_tags(labels)?
        .inspect_err(|error| {
            inner.set_aside(format!(
                "The docker container {id} has an unusable label {TAG_CONTAINER}: {error}"
            ));
        })
        .ok()
}

/// `None`: nobody claims that it is ours.
fn read_tags(labels: Option<&HashMap<String, String>>) -> Option<Result<Tags, IdError>> {
    let label = |name: &str| labels.and_then(|all| all.get(name)).filter(|value| !value.is_empty());
    let container = ContainerId::parse(label(TAG_CONTAINER)?);
    Some(container.map(|container| Tags {
        instance: label(TAG_INSTANCE).cloned().unwrap_or_else(|| "none".to_owned()),
        container,
        task: label(TAG_TASK).cloned(),
    }))
}

pub(crate) fn sandbox(found: &ContainerInspectResponse, id: String, tags: Tags) -> Sandbox {
    let config = found.config.as_ref();
    let host = found.host_config.as_ref();
    let phase = match &found.state {
        Some(state) => phase(state),
        None => Phase::Unknown { why: "the engine does not tell its state".to_owned() },
    };
    let mut command: Vec<String> = found.path.iter().filter(|path| !path.is_empty()).cloned().collect();
    command.extend(found.args.iter().flatten().cloned());
    let mut labels: BTreeMap<String, String> =
        labels(found).into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    let named = labels.get(LABEL_NAME).cloned();
    labels.retain(|name, _| !OUR_LABELS.contains(&name.as_str()));
    let name = found.name.as_deref().map(|name| name.trim_start_matches('/').to_owned());
    Sandbox {
        phase,
        created_at: found.created.as_deref().and_then(moment),
        started_at: found.state.as_ref().and_then(|s| s.started_at.as_deref()).and_then(moment),
        name: named.or(name.filter(|name| name != tags.container.as_str())),
        image: config.and_then(|config| config.image.clone()),
        command,
        labels,
        region: None,
        resources: Resources {
            cpu_cores: host.and_then(cores),
            memory_mb: host.and_then(|host| host.memory).filter(|m| *m > 0).map(|m| m / (1024 * 1024)),
            gpu_type: None,
        },
        reported_cost_usd: None,
        sandbox_id: id,
        tags,
    }
}

/// Listed, and its details could not be had.
fn undescribed(id: String, tags: Tags, summary: ContainerSummary, why: String) -> Sandbox {
    Sandbox {
        sandbox_id: id,
        tags,
        phase: Phase::Unknown { why },
        created_at: summary.created.and_then(|at| Timestamp::from_second(at).ok()),
        started_at: None,
        name: None,
        image: summary.image,
        command: Vec::new(),
        labels: BTreeMap::new(),
        region: None,
        resources: Resources::default(),
        reported_cost_usd: None,
    }
}

fn cores(host: &bollard::models::HostConfig) -> Option<f64> {
    if let Some(nano) = host.nano_cpus.filter(|nano| *nano > 0) {
        return Some(nano as f64 / 1e9);
    }
    let quota = host.cpu_quota.filter(|quota| *quota > 0)? as f64;
    Some(quota / host.cpu_period.filter(|period| *period > 0).unwrap_or(100_000) as f64)
}

/// The engine says "never" as the year 1.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>().ok().filter(|at| *at > Timestamp::UNIX_EPOCH)
}

pub(crate) fn phase(state: &ContainerState) -> Phase {
    use ContainerStateStatusEnum as Status;
    let failed = state.error.as_deref().filter(|error| !error.is_empty());
    match state.status {
        Some(Status::CREATED) if failed.is_some() => Phase::Exited(exit(state)),
        Some(Status::CREATED) => Phase::Starting,
        Some(Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING) => Phase::Running,
        Some(Status::EXITED | Status::DEAD) => Phase::Exited(exit(state)),
        Some(Status::REMOVING) if state.running == Some(false) => Phase::Exited(exit(state)),
        other => {
            let shown = other.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
            Phase::Unknown { why: format!("the engine calls its state '{shown}'") }
        }
    }
}

fn exit(state: &ContainerState) -> Exit {
    let error = state.error.clone().filter(|error| !error.is_empty());
    let at = state.finished_at.as_deref().and_then(moment);
    let never_ran = state.started_at.as_deref().and_then(moment).is_none();
    let code = state.exit_code;
    if error.is_some() && (never_ran || matches!(code, Some(125..=128))) {
        return Exit { code, reason: TerminationReason::StartFailed, at, message: error };
    }
    let (reason, message) = match code {
        Some(0) => (TerminationReason::Completed, None),
        Some(_) if state.oom_killed == Some(true) => {
            (TerminationReason::Oom, Some("the engine killed it for lack of memory".to_owned()))
        }
        // A shell says it in the same words when a signal ended what it ran.
        Some(code @ 129..=192) => (TerminationReason::Crash, Some(signal(code - 128))),
        Some(_) => (TerminationReason::Failed, None),
        None => (TerminationReason::Crash, None),
    };
    Exit { code, reason, at, message: error.or(message) }
}

fn signal(number: i64) -> String {
    i32::try_from(number)
        .ok()
        .and_then(rustix::process::Signal::from_named_raw)
        .map_or_else(|| format!("signal {number}"), |signal| format!("{signal:?}").replace("Signal::", ""))
}

impl Inner {
    /// What an earlier look found, when no event of it has been heard since and its state is the same.
    fn remembered(&self, id: &str, state: Option<String>) -> Option<Sandbox> {
        let memory = locked(&self.memory);
        let known = memory.known.get(id).filter(|_| memory.listening)?;
        (state.as_deref() == Some(known.state.as_str())).then(|| known.sandbox.clone())
    }

    fn memory_epoch(&self) -> u64 {
        locked(&self.memory).epoch
    }

    fn remember(&self, epoch: u64, id: &str, found: &ContainerInspectResponse, sandbox: &Sandbox) {
        let mut memory = locked(&self.memory);
        let status = found.state.as_ref().and_then(|state| state.status);
        // Something was heard meanwhile, perhaps of this one: what we have may be of before.
        if !memory.listening || memory.epoch != epoch {
            return;
        }
        if let (Some(status), false) = (status, matches!(sandbox.phase, Phase::Unknown { .. })) {
            let known = super::Known { state: status.to_string(), sandbox: sandbox.clone() };
            memory.known.insert(id.to_owned(), known);
        }
    }

    fn forget_all_but(&self, ids: &std::collections::HashSet<String>) {
        locked(&self.memory).known.retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(status: ContainerStateStatusEnum, code: i64) -> ContainerState {
        ContainerState {
            status: Some(status),
            exit_code: Some(code),
            started_at: Some("2026-01-01T00:00:00.5Z".into()),
            finished_at: Some("2026-01-01T00:01:00Z".into()),
            ..ContainerState::default()
        }
    }

    #[test]
    fn every_state_of_the_engine_has_a_phase_and_none_of_them_is_absence() {
        use ContainerStateStatusEnum as Status;
        for status in [Status::RUNNING, Status::PAUSED, Status::RESTARTING, Status::STOPPING] {
            assert_eq!(phase(&state(status, 0)), Phase::Running, "{status}");
        }
        assert_eq!(phase(&state(Status::CREATED, 0)), Phase::Starting);
        assert!(matches!(phase(&state(Status::REMOVING, 0)), Phase::Unknown { .. }));
        assert!(matches!(phase(&ContainerState::default()), Phase::Unknown { .. }));
        let ended = |state: &ContainerState| match phase(state) {
            Phase::Exited(exit) => exit,
            other => panic!("{other:?}"),
        };
        assert_eq!(ended(&state(Status::EXITED, 0)).reason, TerminationReason::Completed);
        assert_eq!(ended(&state(Status::DEAD, 3)).reason, TerminationReason::Failed);
        let killed = ended(&state(Status::EXITED, 137));
        assert_eq!((killed.reason, killed.code), (TerminationReason::Crash, Some(137)));
        assert!(killed.message.unwrap().to_uppercase().contains("KILL"));
        let oom = ContainerState { oom_killed: Some(true), ..state(Status::EXITED, 137) };
        assert_eq!(ended(&oom).reason, TerminationReason::Oom);
        let unstartable = ContainerState {
            error: Some("no such file".into()),
            started_at: Some("0001-01-01T00:00:00Z".into()),
            ..state(Status::CREATED, 127)
        };
        assert_eq!(ended(&unstartable).reason, TerminationReason::StartFailed);
    }

    #[test]
    fn whatever_an_engine_describes_is_a_sandbox_or_not_ours() {
        let seeds = [
            r#"{"Id": "3f4e", "Created": "2026-01-01T00:00:00.5Z", "Path": "sleep", "Args": ["60"], "Name": "/c-01k9z3q8xw4f7m2a",
                "State": {"Status": "running", "Running": true, "Pid": 17, "ExitCode": 0, "OOMKilled": false, "Error": "",
                    "StartedAt": "2026-01-01T00:00:01Z", "FinishedAt": "0001-01-01T00:00:00Z"},
                "HostConfig": {"NanoCpus": 500000000, "Memory": 67108864, "CpuQuota": 50000, "CpuPeriod": 100000},
                "Config": {"Image": "busybox", "Labels": {"parhelia.container": "c-01k9z3q8xw4f7m2a",
                    "parhelia.instance": "i", "parhelia.task": "t", "team": "core"}}}"#,
            r#"{"Id": "3f4e", "State": {"Status": "exited", "Running": false, "ExitCode": 137, "OOMKilled": true,
                "StartedAt": "2026-01-01T00:00:01Z", "FinishedAt": "2026-01-01T00:00:02Z"},
                "Config": {"Labels": {"parhelia.container": "c-01k9z3q8xw4f7m2a"}}}"#,
        ];
        parhelia_fuzz::fuzz(&seeds, &["exited", "dead", "created", "removing", TAG_CONTAINER], |input| {
            let found: ContainerInspectResponse = match serde_json::from_slice(input) {
                Ok(found) => found,
                Err(error) => return parhelia_fuzz::says_something(&error),
            };
            match read_tags(labels(&found)) {
                Some(Ok(tags)) => {
                    let seen = sandbox(&found, "3f4e".to_owned(), tags);
                    assert!(seen.resources.cpu_cores.is_none_or(|cores| cores > 0.0), "{seen:?}");
                    assert!(!seen.labels.contains_key(TAG_CONTAINER), "{seen:?}");
                    if let Phase::Unknown { why } = &seen.phase {
                        parhelia_fuzz::says_something(why);
                    }
                    parhelia_fuzz::Verdict::Accepted
                }
                Some(Err(error)) => parhelia_fuzz::says_something(&error),
                None => parhelia_fuzz::Verdict::Refused,
            }
        });
    }

    #[test]
    fn the_year_one_is_never() {
        assert_eq!(moment("0001-01-01T00:00:00Z"), None);
        assert!(moment("2026-05-01T10:00:00.123456789Z").is_some());
    }
}
