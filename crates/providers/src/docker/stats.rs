//! The engine's statistics as heartbeats, for containers in which no supervisor of ours beats.
//!
//! Percentages mean what they mean for the supervisor: of the cores and of the memory that it may use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::{ContainerStatsResponse, ContainerSummaryStateEnum};
use bollard::query_parameters::{ListContainersOptionsBuilder, StatsOptionsBuilder};
use futures::{StreamExt, stream};
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::TAG_CONTAINER;
use parhelia_core::time::seconds_between;

use super::{Inner, LABEL_SUPERVISOR, locked, observe};
use crate::{ProviderError, Vital, Vitals};

/// Its CPU time at the last look, and when that was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    cpu_nanoseconds: u64,
    at: Duration,
}

/// One sample of each running container. A paused one gets none: it does not live. One that cannot be asked, or does
/// not answer in its share of the time, is left out, and its silence will tell.
pub(crate) async fn vitals(inner: &Arc<Inner>) -> Result<Vitals, ProviderError> {
    let identity = observe::identity(inner).await?;
    let docker = inner.engine.client().await?;
    let filters = HashMap::from([
        ("label".to_owned(), vec![TAG_CONTAINER.to_owned()]),
        ("status".to_owned(), vec!["running".to_owned()]),
    ]);
    let options = ListContainersOptionsBuilder::default().filters(&filters).build();
    let listed = match docker.list_containers(Some(options)).await {
        Ok(listed) => listed,
        Err(error) => return Err(inner.engine.failed(&error).await),
    };
    let bare = listed.into_iter().filter_map(|summary| {
        let labels = summary.labels.unwrap_or_default();
        let running = summary.state == Some(ContainerSummaryStateEnum::RUNNING);
        let own = labels.contains_key(LABEL_SUPERVISOR);
        let container = ContainerId::parse(labels.get(TAG_CONTAINER)?).ok()?;
        (running && !own).then_some((summary.id?, container))
    });
    let bare: Vec<(String, ContainerId)> = bare.collect();
    locked(&inner.meters).retain(|id, _| bare.iter().any(|(running, _)| running == id));
    let asked: Vec<_> = bare
        .into_iter()
        .map(|(sandbox_id, container_id)| {
            let docker = docker.clone();
            let asked = async move {
                let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
                let answer = docker.stats(&sandbox_id, Some(options)).boxed().next().await?.ok()?;
                let found = docker.inspect_container(&sandbox_id, None).await.ok()?;
                // It ended meanwhile: figures of nothing.
                found.state.as_ref().filter(|state| state.running == Some(true))?;
                let sample = sample(inner, &sandbox_id, container_id, &answer, &found);
                Some(Vital { sandbox_id, sample })
            };
            async move { tokio::time::timeout(inner.patience(), asked).await.ok().flatten() }
        })
        .collect();
    let answers = stream::iter(asked).buffer_unordered(observe::QUESTIONS);
    Ok(Vitals { identity, seen: answers.filter_map(std::future::ready).collect().await })
}

fn sample(
    inner: &Inner,
    sandbox_id: &str,
    container_id: ContainerId,
    stats: &ContainerStatsResponse,
    found: &bollard::models::ContainerInspectResponse,
) -> Sample {
    let host = found.host_config.as_ref();
    let cpu = stats.cpu_stats.as_ref();
    let online = cpu.and_then(|cpu| cpu.online_cpus).filter(|n| *n > 0).map(f64::from);
    let limit = host.and_then(|h| h.nano_cpus).filter(|n| *n > 0).map(|n| n as f64 / 1e9);
    let used = cpu.and_then(|cpu| cpu.cpu_usage.as_ref()).and_then(|usage| usage.total_usage);
    let cpu_percent = used
        .and_then(|used| cores_used(inner, sandbox_id, used))
        .zip(limit.or(online))
        .map(|(used, cores)| round(100.0 * used / cores));
    let memory = stats.memory_stats.as_ref();
    let bytes = memory.and_then(|memory| {
        // Cache that the kernel may drop at any time is not used.
        let detail = memory.stats.as_ref();
        let cache = ["total_inactive_file", "inactive_file"]
            .iter()
            .find_map(|name| detail.and_then(|detail| detail.get(*name)))
            .copied()
            .unwrap_or(0);
        memory.usage.map(|usage| usage.saturating_sub(cache) as f64)
    });
    let most = memory.and_then(|memory| memory.limit).filter(|limit| *limit > 0).map(|limit| limit as f64);
    let now = inner.config.clock.now();
    let started = found.state.as_ref().and_then(|s| s.started_at.as_deref()).and_then(observe::moment);
    Sample {
        cpu_percent,
        memory_percent: bytes.zip(most).map(|(used, most)| round(100.0 * used / most)),
        memory_mb: bytes.map(|bytes| (bytes / (1024.0 * 1024.0)).round() as i64),
        uptime_seconds: started.map(|at| seconds_between(at, now).max(0.0) as i64),
        metadata: Some([("source".to_owned(), "docker_stats".into())].into_iter().collect()),
        ..Sample::bare(container_id)
    }
}

/// Cores kept busy since the last look; nothing at the first.
fn cores_used(inner: &Inner, sandbox_id: &str, cpu_nanoseconds: u64) -> Option<f64> {
    let at = inner.config.clock.monotonic();
    let before = locked(&inner.meters).insert(sandbox_id.to_owned(), Meter { cpu_nanoseconds, at })?;
    let elapsed = at.saturating_sub(before.at).as_secs_f64();
    let used = cpu_nanoseconds.checked_sub(before.cpu_nanoseconds)? as f64 / 1e9;
    (elapsed > 0.0).then(|| used / elapsed)
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
