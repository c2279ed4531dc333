//! The providers and the loops of a server: those of its own home, and those that only a leader runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::config::Switch;
use parhelia_providers::Provider;
use parhelia_providers::docker::engine::Address;
use parhelia_providers::docker::{DockerConfig, DockerProvider, Supervisor};
use parhelia_providers::fake::FakeProvider;
use parhelia_providers::process::{ProcessConfig, ProcessProvider};
use parhelia_store::Fence;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{ServeError, ServeOptions};
use crate::home::Home;
use crate::loops::driver::{self, Company, Ended, SharedQueue};
use crate::loops::election::{Election, Lead};
use crate::loops::health::HealthLoop;
use crate::loops::jobs::JobsLoop;
use crate::loops::reconciler::Reconciler;
use crate::loops::{Context, lease, retention, stopped};
use crate::relay::alerts::{self, Posts};
use crate::relay::clickhouse::{self, ClickHouse};
use crate::service::{ProviderHandle, Service};

/// The docker provider, unless it is off or (`auto`) nothing speaks for an engine here: no address was given,
/// the usual socket is not there, and no container of one is recorded.
pub(super) fn docker(
    options: &ServeOptions,
    home: &Home,
    context: &Context,
    recorded: bool,
) -> Result<Option<DockerProvider>, ServeError> {
    let config = &options.config.docker;
    let env = |name: &str| std::env::var(name).ok();
    if config.enabled == Switch::Off {
        return Ok(None);
    }
    let found = Address::find(config.host.as_deref(), config.cert_path.as_deref(), env);
    let address = match found {
        Ok(address) => address,
        // It comes from the surroundings of whoever starts us, who may not think of containers at all.
        Err(reason) if config.enabled == Switch::Auto && config.host.is_none() && !recorded => {
            warn!(%reason, "the docker provider is off: no engine can be used by what DOCKER_HOST and the like say");
            return Ok(None);
        }
        Err(reason) => return Err(ServeError::Docker { reason }),
    };
    if config.enabled == Switch::Auto {
        let named = config.host.is_some() || env("DOCKER_HOST").is_some_and(|host| !host.is_empty());
        let there = matches!(&address, Address::Unix(path) if path.exists());
        if !named && !there && !recorded {
            return Ok(None);
        }
    }
    info!(%address, "the docker provider is on");
    Ok(Some(DockerProvider::new(DockerConfig {
        address,
        timeout: Duration::from_secs(options.config.reconciler.provider_timeout_seconds),
        pull: config.pull,
        remove_after_seconds: config.remove_after_seconds,
        secrets: home.secrets(),
        supervisor: Supervisor {
            mode: config.supervisor,
            binary: options.supervisor.clone(),
            door: home.door(),
            heartbeat_interval_seconds: options.config.health.heartbeat_interval_seconds,
        },
        clock: context.clock.clone(),
    })))
}

#[allow(clippy::too_many_arguments, reason = "called once, at the start of a server")]
pub(super) fn start_loops(
    options: &ServeOptions,
    home: &Home,
    context: &Context,
    stopping: &watch::Receiver<bool>,
    docker: Option<DockerProvider>,
    posts: Posts,
    shown: Option<(Arc<ClickHouse>, String)>,
    company: Company,
    loops: &mut JoinSet<Ended>,
) -> Result<(BTreeMap<String, ProviderHandle>, Lead), ServeError> {
    let seat = context.store.seat();
    let process = ProcessProvider::new(ProcessConfig {
        home: home.path.clone(),
        home_id: home.id.clone(),
        supervisor: options.supervisor.clone(),
        heartbeat_interval_seconds: options.config.health.heartbeat_interval_seconds,
        output_rotate_bytes: options.config.process.output_rotate_bytes,
        keep_ended_seconds: options.config.jobs.keep_days * 86_400,
        clock: context.clock.clone(),
    })
    .map_err(|e| ServeError::Process { home: home.path.clone(), reason: e.to_string() })?;
    // Only this server can see the processes of its home, so it reconciles them whoever leads; where several
    // homes share a store, each has rows of its own.
    let process = match &seat {
        Some(_) => process.named(format!("process:{}", home.id.get(..8).unwrap_or(&home.id))),
        None => process,
    };
    let mut providers: Vec<(Arc<dyn Provider>, bool)> = vec![(Arc::new(process), false)];
    providers.extend(docker.map(|docker| (Arc::new(docker) as Arc<dyn Provider>, true)));
    if let Some(world) = &options.config.fake_world {
        warn!(%world, "the fake provider is on: it runs nothing, it is for tests");
        providers.push((Arc::new(FakeProvider::in_file(PathBuf::from(world), context.clock.clone())), true));
    }
    let (mut handles, mut queues) = (BTreeMap::new(), Vec::new());
    for (provider, shared) in providers {
        let (requests, queue) = driver::requests();
        handles.insert(
            provider.name().to_owned(),
            ProviderHandle { provider: provider.clone(), requests, shared },
        );
        if shared {
            queues.push((provider, queue));
        } else {
            let watch =
                JobsLoop::new(context.clone(), provider.clone(), company.jobs.clone(), company.start.clone());
            loops.spawn(watch.run(stopping.clone()));
            let reconciler = Reconciler::new(context.clone(), provider).with_jobs(company.jobs.clone());
            let company = Company { first: true, ..company.clone() };
            loops.spawn(driver::reconcile(context.clone(), reconciler, queue, company, stopping.clone()));
        }
    }
    loops.spawn(lease::run(context.clone(), seat.is_none(), stopping.clone()));
    let (lead, held) = watch::channel(seat.is_none().then(|| context.fence.clone()));
    let (tell, fenced) = watch::channel(0);
    let leading = Leading { context: context.clone(), queues, posts, shown, company, fenced: tell };
    match seat {
        Some(seat) => {
            let election =
                Election { context: context.clone(), seat, home_id: home.id.clone(), lead, fenced };
            loops.spawn(election.run(stopping.clone()));
            loops.spawn(leading.while_led(held.clone(), stopping.clone()));
        }
        None => leading.start(&context.fence, stopping, loops),
    }
    Ok((handles, held))
}

/// The loops that there is one of, run by the leader.
struct Leading {
    context: Context,
    queues: Vec<(Arc<dyn Provider>, SharedQueue)>,
    /// The epoch of a lead in which a loop has ended.
    fenced: watch::Sender<i64>,
    posts: Posts,
    /// Where sessions are shown, and the store's instance.
    shown: Option<(Arc<ClickHouse>, String)>,
    company: Company,
}

impl Leading {
    fn start(&self, fence: &Fence, stopping: &watch::Receiver<bool>, loops: &mut JoinSet<Ended>) {
        let context = Context { fence: fence.clone(), ..self.context.clone() };
        for (provider, queue) in &self.queues {
            let Company { start, jobs, .. } = self.company.clone();
            loops.spawn(JobsLoop::new(context.clone(), provider.clone(), jobs, start).run(stopping.clone()));
            let reconciler = Reconciler::new(context.clone(), provider.clone());
            let company = self.company.clone();
            loops.spawn(driver::reconcile(
                context.clone(),
                reconciler,
                queue.clone(),
                company,
                stopping.clone(),
            ));
        }
        loops.spawn(HealthLoop::new(context.clone()).run(stopping.clone()));
        loops.spawn(alerts::run(context.clone(), self.posts.clone(), stopping.clone()));
        if let Some((clickhouse, instance)) = self.shown.clone() {
            loops.spawn(clickhouse::run(context.clone(), clickhouse, instance, stopping.clone()));
        }
        loops.spawn(retention::run(context, stopping.clone()));
    }

    /// Starts them when the lead is won and stops them at once, wherever they are, when it is lost.
    async fn while_led(self, mut lead: Lead, mut stopping: watch::Receiver<bool>) -> Ended {
        loop {
            let mut loops = JoinSet::new();
            let fence = lead.borrow_and_update().clone();
            if let Some(fence) = &fence {
                // While another led, nobody watched here, and that must age nobody (contract 11).
                self.context.observer.was_away();
                self.start(fence, &stopping, &mut loops);
            }
            tokio::select! {
                () = stopped(&mut stopping) => {
                    while loops.join_next().await.is_some() {}
                    return Ended::Shutdown;
                }
                changed = lead.changed() => {
                    if changed.is_err() {
                        return Ended::Shutdown;
                    }
                }
                Some(ended) = loops.join_next() => {
                    warn!(?ended, "a loop of the leader has ended");
                    self.fenced.send_replace(fence.map_or(0, |fence| fence.epoch));
                    // The election answers by giving the lead up.
                    let _ = lead.changed().await;
                }
            }
            loops.shutdown().await;
        }
    }
}

/// What other servers ask to look at.
pub(super) async fn hear_wakes(
    service: Arc<Service>,
    mut wakes: broadcast::Receiver<String>,
    mut stopping: watch::Receiver<bool>,
) -> Ended {
    loop {
        tokio::select! {
            () = stopped(&mut stopping) => return Ended::Shutdown,
            heard = wakes.recv() => match heard {
                Ok(name) => service.woken(&name),
                Err(broadcast::error::RecvError::Lagged(_)) => service.poke_all(),
                Err(broadcast::error::RecvError::Closed) => {
                    stopped(&mut stopping).await;
                    return Ended::Shutdown;
                }
            },
        }
    }
}
