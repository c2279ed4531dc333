//! What servers do: the loop that is due, requests at the door, heartbeats, and what befalls whoever works meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use parhelia_core::heartbeat::Sample;
use parhelia_core::ids::ContainerId;
use parhelia_core::time::Clock;
use parhelia_server::service::{Caller, Service};
use parhelia_store::StoreError;

use crate::breakage::Breakage;
use crate::interrupt::{Progress, Work};
use crate::invariants::{Arrival, Watch};
use crate::server::{Pass, Server};
use crate::session_world::Who;
use crate::world::{INSTANCE, Sim};

/// A health pass that comes this much later than three periods is noticed by the server itself.
const FROZEN: Duration = Duration::from_secs(20);
/// Somebody silent was heard: the health loop looks after this long.
const GOOD_NEWS: Duration = Duration::from_millis(50);

impl Sim {
    pub(crate) async fn start_server(&mut self) -> Result<(), StoreError> {
        let ages = self.settings.breakage == Some(Breakage::OutageAges);
        let server = Server::start(&self.world, &self.home, self.former.take().filter(|_| ages)).await?;
        self.server = Some(server);
        self.up_since = self.now();
        self.steady_since = self.now();
        self.left_asleep = None;
        Ok(())
    }

    /// Lets the loop that is due do its work, if nothing happens to its server meanwhile.
    pub(crate) async fn serve(&mut self, mut server: Server) -> Result<(), String> {
        let now = self.now();
        if server.asleep_until.take().is_some() {
            self.mark(4);
            self.steady_since = now;
            // Its last health pass was before that, and its next is the first thing that it does.
            if now.saturating_sub(server.fell_asleep_at) > self.noticed() {
                if server.under_way.is_some() && self.left_asleep.is_none() {
                    let watched = Watch { since: self.up_since, until: server.fell_asleep_at };
                    self.left_asleep = Some(watched);
                }
                self.up_since = now;
            }
            self.server = Some(server);
        } else if now >= server.next_health {
            self.mark(5);
            server.next_health = now + Duration::from_secs(self.world.config.health.check_interval_seconds);
            let work = server.health_pass();
            self.server = Some(server);
            match self.ask(work) {
                Some(Ok(_)) => self.judged = true,
                Some(Err(e)) => self.store_failed(&e)?,
                None => {}
            }
        } else if now >= server.sessions.next_turn {
            self.mark(12);
            self.sessions_turn(Who::Leader, server)?;
        } else if now >= server.next_retention {
            self.mark(6);
            server.next_retention = now + Duration::from_secs(self.world.config.retention.interval_seconds);
            let work = server.retention_pass();
            self.server = Some(server);
            if let Some(Err(e)) = self.ask(work) {
                self.store_failed(&e)?;
            }
        } else {
            self.mark(7);
            self.reconcile(server).await?;
        }
        Ok(())
    }

    /// A sleep that is longer always makes the next health pass too late.
    fn noticed(&self) -> Duration {
        Duration::from_secs(self.world.config.health.check_interval_seconds) * 3 + FROZEN
    }

    pub(crate) async fn reconcile(&mut self, mut server: Server) -> Result<(), String> {
        let breaths = self.breaths(10);
        let now = self.now();
        if server.under_way.is_none() {
            self.left_asleep = None;
        }
        match self.go_on(&mut server, breaths).await {
            Progress::Done(pass) => {
                server.schedule_pass(&pass, now);
                self.server = Some(server);
                if let Err(e) = &pass {
                    self.store_failed(e)?;
                }
            }
            Progress::Waiting => {
                server.next_pass =
                    now + Duration::from_secs(self.world.config.reconciler.provider_timeout_seconds);
                self.server = Some(server);
            }
            Progress::OutOfBreath => match self.world.dice.roll(4) {
                0 | 1 => self.dies(server),
                2 => self.put_to_sleep(server),
                // Something else gets its turn in the middle of this pass.
                _ => {
                    server.next_pass = now + Duration::from_millis(self.world.dice.roll(3000));
                    self.server = Some(server);
                }
            },
        }
        Ok(())
    }

    /// Begins a pass, or goes on with the one that waits for its provider or was left in the middle.
    pub(crate) async fn go_on(&self, server: &mut Server, breaths: u64) -> Progress<Pass> {
        let mut work = match server.under_way.take() {
            Some(work) => {
                let left_for = self.now().saturating_sub(server.left_at);
                tokio::time::advance(left_for + Duration::from_millis(1)).await;
                work
            }
            None => server.pass(),
        };
        let progress = work.go_on(breaths);
        if !matches!(progress, Progress::Done(_)) {
            server.under_way = Some(work);
            server.left_at = self.now();
        }
        progress
    }

    /// A server that was replaced while it slept goes on as if it still led.
    pub(crate) async fn wakes_too_late(&mut self, mut server: Server) -> Result<(), String> {
        let resumed = server.under_way.is_some();
        match self.go_on(&mut server, u64::MAX).await {
            Progress::Waiting => {
                let patience = self.world.config.reconciler.provider_timeout_seconds;
                server.asleep_until = Some(self.now() + Duration::from_secs(patience));
                self.sleepers.push(server);
                return Ok(());
            }
            // It may have been left after its last write.
            Progress::Done(Ok(_)) if resumed => {}
            Progress::Done(Ok(_)) => return Err("a pass of a replaced server was not refused".to_owned()),
            Progress::Done(Err(StoreError::Fenced { .. })) | Progress::OutOfBreath => {}
            Progress::Done(Err(e)) => self.was_made_to_fail(&e)?,
        }
        self.sessions_too_late(&mut server)?;
        // A store that fails would prove nothing.
        if !self.world.ledger.fails() {
            let kept = server.retention_pass().go_on(u64::MAX);
            if !matches!(kept, Progress::Done(Err(StoreError::Fenced { .. }))) {
                return Err("the retention of a replaced server was not refused".to_owned());
            }
        }
        match server.health_pass().go_on(u64::MAX) {
            Progress::Done(Err(StoreError::Fenced { .. })) => Ok(()),
            Progress::Done(Err(e)) => self.was_made_to_fail(&e),
            // Nobody's health had changed: it wrote nothing. The ledger would know.
            _ => Ok(()),
        }
    }

    pub(crate) fn dies(&mut self, server: Server) {
        self.outcome.crashes += 1;
        self.former = Some(server.observer().clone());
        let dice = &self.world.dice;
        let soon = dice.chance(80) || self.healing;
        let away = if soon { dice.seconds(0, 5) } else { dice.seconds(5, 1200) };
        self.restart_at = self.now() + away;
    }

    pub(crate) fn put_to_sleep(&mut self, mut server: Server) {
        self.outcome.faults += 1;
        let now = self.now();
        let dice = &self.world.dice;
        server.fell_asleep_at = now;
        if self.healing {
            self.server = Some(server);
        } else if dice.chance(50) {
            server.asleep_until = Some(now + dice.seconds(1, 1200));
            self.server = Some(server);
        } else {
            self.outcome.replaced += 1;
            self.restart_at = now + dice.seconds(1, 20);
            server.asleep_until = Some(self.restart_at + dice.seconds(1, 1800));
            self.former = Some(server.observer().clone());
            self.sleepers.push(server);
            // Whoever sleeps keeps the lock of its home, unless somebody has broken it.
            if self.world.dice.chance(50) {
                self.home = format!("home-{}", self.outcome.replaced);
            }
        }
    }

    /// After how many breaths something happens to whoever works now.
    pub(crate) fn breaths(&self, percent: u64) -> u64 {
        let dice = &self.world.dice;
        let unlucky = !self.healing && if self.stormy { dice.chance(percent) } else { dice.roll(1000) < 1 };
        if unlucky { dice.roll(40) } else { u64::MAX }
    }

    /// The service of a server that can be reached.
    pub(crate) fn door(&self) -> Option<Arc<Service>> {
        self.server.as_ref().filter(|s| s.asleep_until.is_none()).map(|s| s.service.clone())
    }

    /// Has the server do something; it may die meanwhile.
    pub(crate) fn ask<T>(&mut self, mut work: Work<T>) -> Option<T> {
        match work.go_on(self.breaths(2)) {
            Progress::Done(done) => Some(done),
            Progress::OutOfBreath | Progress::Waiting => {
                if let Some(server) = self.server.take() {
                    self.dies(server);
                }
                None
            }
        }
    }

    /// Whatever was answered, a service may have poked the reconciler, its own or that of the server that leads. Not every
    /// such hint arrives.
    pub(crate) fn asked(&mut self) {
        let now = self.now();
        let own = self.server.as_ref().is_some_and(Server::was_poked);
        let other = self.world.ledger.take_woken();
        if (own || other) && self.world.dice.chance(90) {
            self.server.iter_mut().for_each(|server| server.poke(now));
        }
    }

    /// Something of the server that is here could not be written.
    pub(crate) fn store_failed(&mut self, error: &StoreError) -> Result<(), String> {
        self.steady_since = self.now();
        self.listable_since = None;
        self.calm_since = None;
        self.was_made_to_fail(error)
    }

    /// Only a store that was made to fail may fail; who slept on its answer may hear of it late, which changes nothing for
    /// the others.
    pub(crate) fn was_made_to_fail(&self, error: &StoreError) -> Result<(), String> {
        match error {
            StoreError::Unavailable { .. } if self.world.ledger.failed_writes.load(Ordering::Relaxed) > 0 => {
                Ok(())
            }
            other => Err(format!("a loop failed: {other}")),
        }
    }

    /// Every agent that can be heard sends its heartbeat.
    pub(crate) fn beat(&mut self) {
        let now = self.now();
        self.next_beat = now + Duration::from_secs(self.world.config.health.heartbeat_interval_seconds);
        let Some(service) = self.door() else { return };
        self.mute.retain(|_, until| *until > now);
        let wall = self.world.clock.now();
        let arrival = Arrival { at: now, wall };
        let fleet = self.world.provider.world();
        let beats = |s: &&parhelia_providers::fake::FakeSandbox| {
            s.ended_at.is_none()
                && !s.removed
                && s.visible_at <= wall
                && s.tags.instance == INSTANCE
                && !self.mute.contains_key(&s.sandbox_id)
        };
        let ids: Vec<ContainerId> =
            fleet.sandboxes.iter().filter(beats).map(|s| s.tags.container.clone()).collect();
        drop(fleet);
        if ids.is_empty() {
            return;
        }
        if self.settings.breakage == Some(Breakage::HeartbeatsLost) {
            ids.iter().for_each(|id| self.witness.arrived(id, arrival));
            return;
        }
        let samples = ids.iter().cloned().map(Sample::bare).collect();
        match self.ask(Work::new(async move { service.heartbeats(samples, &Caller::admin("agents")).await }))
        {
            Some(Ok(receipt)) => {
                let refused = |at: usize| receipt.rejected.iter().any(|no| no.index == at);
                for (at, id) in ids.iter().enumerate() {
                    if receipt.rejected.is_empty() || !refused(at) {
                        self.witness.arrived(id, arrival);
                    }
                }
                if let Some(server) = &mut self.server
                    && server.observer().good_news.notified().now_or_never().is_some()
                {
                    server.next_health = server.next_health.min(now + GOOD_NEWS);
                }
            }
            unknown => {
                ids.iter().for_each(|id| self.witness.may_have_arrived(id, wall));
                if unknown.is_some() {
                    self.steady_since = now;
                }
            }
        }
    }
}
