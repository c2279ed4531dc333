//! Sessions in the world: who advances them, when, and what is read of them after a step. Beside the server that leads
//! there may be another, at a home of its own, with sessions of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parhelia_core::cascade::{Cascade, Work as Kind};
use parhelia_core::event::Event;
use parhelia_core::ids::{ContainerId, SessionId};
use parhelia_core::reconcile::Tracked;
use parhelia_core::time::Clock;
use parhelia_server::service::Service;
use parhelia_store::StoreError;

use crate::interrupt::{Progress, Work};
use crate::invariants::Moment;
use crate::server::Server;
use crate::session_invariants::{Owners, Record};
use crate::world::Sim;

const PEER: &str = "peer";
const LOOK_FOR_HEIRS: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Leader,
    Peer,
}

impl Sim {
    pub(crate) fn slot(&mut self, who: Who) -> &mut Option<Server> {
        match who {
            Who::Leader => &mut self.server,
            Who::Peer => &mut self.peer,
        }
    }

    pub(crate) async fn start_peer(&mut self) -> Result<(), StoreError> {
        self.peer = Some(Server::join(&self.world, PEER).await?);
        Ok(())
    }

    /// When something of the peer is to be done.
    pub(crate) fn peer_at(&self) -> Option<Duration> {
        if !self.has_peer {
            return None;
        }
        let wakes = |peer: &Server| peer.asleep_until.unwrap_or(peer.sessions.next_turn);
        Some(self.peer.as_ref().map_or(self.peer_restart_at, wakes))
    }

    pub(crate) async fn serve_peer(&mut self) -> Result<(), String> {
        match self.peer.take() {
            None => self.start_peer().await.map_err(|e| e.to_string()),
            Some(mut peer) if peer.asleep_until.is_some() => {
                peer.asleep_until = None;
                self.peer = Some(peer);
                Ok(())
            }
            Some(peer) => self.sessions_turn(Who::Peer, peer),
        }
    }

    /// A turn of a server's sessions loop, if nothing happens to it meanwhile.
    pub(crate) fn sessions_turn(&mut self, who: Who, mut server: Server) -> Result<(), String> {
        let now = self.now();
        let heirs = self.sessions.has_others(server.owner());
        let Some(mut work) = turn_of(&mut server, heirs) else {
            return Err("a sessions loop got lost".to_owned());
        };
        let breaths = self.breaths(15);
        match work.go_on(breaths) {
            Progress::Done(turn) => {
                let fenced = matches!(turn.went, Err(StoreError::Fenced { .. }));
                let failed = turn.went.as_ref().err().map(|e| self.store_failed(e));
                let busy = self.sessions.unfinished() > 0;
                server.sessions.done(turn, self.world.clock.as_ref(), busy);
                if fenced {
                    self.outcome.refused_owners += 1;
                    let ended = self.world.ledger.has_ended(server.owner());
                    let owner = server.owner().to_owned();
                    self.server_dies(who, server);
                    return ended
                        .then_some(())
                        .ok_or_else(|| format!("{owner} was refused and has not ended"));
                }
                *self.slot(who) = Some(server);
                // What it began or wants ended is the reconciler's to do.
                self.asked();
                failed.unwrap_or(Ok(()))
            }
            Progress::OutOfBreath | Progress::Waiting => {
                server.sessions.under_way = Some(work);
                match self.world.dice.roll(5) {
                    0 | 1 => self.server_dies(who, server),
                    2 => self.server_is_put_to_sleep(who, server),
                    // Something else gets its turn in the middle of this one.
                    _ => {
                        server.sessions.next_turn = now + Duration::from_millis(self.world.dice.roll(3000));
                        *self.slot(who) = Some(server);
                    }
                }
                Ok(())
            }
        }
    }

    /// Whoever slept goes on with its sessions as if nobody had taken them.
    pub(crate) fn sessions_too_late(&mut self, server: &mut Server) -> Result<(), String> {
        self.sessions.somebody_woke();
        for _ in 0..2 {
            let Some(mut work) = turn_of(server, true) else { return Ok(()) };
            let Progress::Done(turn) = work.go_on(u64::MAX) else { return Ok(()) };
            match &turn.went {
                Err(StoreError::Fenced { .. }) => return Ok(()),
                Err(e) => self.was_made_to_fail(e)?,
                Ok(_) => {}
            }
            server.sessions.done(turn, self.world.clock.as_ref(), true);
        }
        Ok(())
    }

    fn server_dies(&mut self, who: Who, server: Server) {
        match who {
            Who::Leader => self.dies(server),
            Who::Peer => {
                self.outcome.crashes += 1;
                let dice = &self.world.dice;
                let away = if dice.chance(50) { dice.seconds(0, 5) } else { dice.seconds(5, 600) };
                self.peer_restart_at = self.now() + away;
            }
        }
    }

    fn server_is_put_to_sleep(&mut self, who: Who, mut server: Server) {
        match who {
            Who::Leader => self.put_to_sleep(server),
            Who::Peer => {
                self.outcome.faults += 1;
                server.asleep_until = Some(self.now() + self.world.dice.seconds(1, 300));
                self.peer = Some(server);
            }
        }
    }

    pub(crate) fn peer_sleeps(&mut self) {
        if let Some(peer) = self.peer.take_if(|peer| peer.is_awake()) {
            self.server_is_put_to_sleep(Who::Peer, peer);
        }
    }

    /// A server that can be reached, and which.
    pub(crate) fn any_door(&self) -> Option<(Who, Arc<Service>)> {
        let leader = self.server.as_ref().map(|s| (Who::Leader, s));
        let peer = self.peer.as_ref().map(|s| (Who::Peer, s));
        let awake: Vec<_> = leader.into_iter().chain(peer).filter(|(_, s)| s.is_awake()).collect();
        self.world.dice.pick(&awake).map(|(who, server)| (*who, server.service.clone()))
    }

    /// Has one of them do something; it may die meanwhile.
    pub(crate) fn ask_of<T>(&mut self, who: Who, mut work: Work<T>) -> Option<T> {
        match work.go_on(self.breaths(5)) {
            Progress::Done(done) => Some(done),
            Progress::OutOfBreath | Progress::Waiting => {
                if let Some(server) = self.slot(who).take() {
                    self.server_dies(who, server);
                }
                None
            }
        }
    }

    /// While there were no sessions nobody looked at a lease: they have all been kept.
    pub(crate) async fn leases_were_kept(&mut self) {
        if self.sessions.living_count() > 0 {
            return;
        }
        let now = self.now();
        let until = parhelia_core::time::plus_seconds(self.world.clock.now(), 60);
        for server in self.server.iter_mut().chain(&mut self.peer).filter(|s| s.is_awake()) {
            if self.store.renew_owner(server.owner(), until).await.is_ok() {
                server.sessions.leased(now);
            }
        }
    }

    pub(crate) fn owners(&self) -> Owners {
        let servers = self.server.iter().chain(&self.peer).filter(|s| s.is_awake());
        Owners {
            awake: servers.map(|s| s.owner().to_owned()).collect(),
            store_fails: self.world.ledger.fails(),
        }
    }

    /// What was told and written since the last look.
    pub(crate) async fn see_sessions(&mut self, events: &[Event], moment: &Moment) -> Result<(), String> {
        let mut touched = self.world.ledger.take_touched();
        touched.extend(events.iter().filter_map(|event| event.session_id.clone()));
        let heard = self.sessions.hear(events, moment);
        if touched.is_empty() && self.sessions.unfinished() == 0 {
            return heard;
        }
        let seen = self.see_each(touched, moment).await;
        if !events.is_empty() {
            let at = self.now() + Duration::from_millis(self.world.dice.roll(50));
            for server in self.server.iter_mut().chain(&mut self.peer) {
                server.sessions.hint(at);
            }
        }
        heard.and(seen)
    }

    async fn see_each(&mut self, touched: BTreeSet<String>, moment: &Moment) -> Result<(), String> {
        for id in touched {
            let Ok(id) = SessionId::parse(&id) else { continue };
            let cascade = match self.sessions.cascade_of(&id) {
                Some(known) => known,
                None => match self.definition(&id).await.map_err(|e| e.to_string())? {
                    Some(read) => Arc::new(read),
                    None => continue,
                },
            };
            let record = self.record(&id, &cascade).await.map_err(|e| e.to_string())?;
            if let Some(record) = record {
                self.sessions.see(record, cascade, moment)?;
            }
        }
        Ok(())
    }

    async fn definition(&self, id: &SessionId) -> Result<Option<Cascade>, StoreError> {
        let Some(values) = self.store.session_values(id).await? else { return Ok(None) };
        let text = self.store.cascade_by_hash(&values.cascade_hash).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn record(&self, id: &SessionId, cascade: &Cascade) -> Result<Option<Record>, StoreError> {
        let store = &self.store;
        let Some(session) = store.session(id).await? else { return Ok(None) };
        let phases = store.session_phases(id).await?;
        let mut tasks = Vec::new();
        for phase in &phases {
            let work = cascade.phases.get(phase.position.max(0) as usize).map(|phase| &phase.work);
            if matches!(work, Some(Kind::Run(_) | Kind::Agent(_) | Kind::Tasks(_) | Kind::Await(_))) {
                tasks.extend(store.session_tasks(id, &phase.name, None, -1, 100).await?);
            }
        }
        let ids: Vec<_> = tasks.iter().map(|task| &task.id).collect();
        let attempts = if ids.is_empty() { Vec::new() } else { store.attempts_of(&ids).await? };
        let waits = store.waits_of(id, 100).await?;
        Ok(Some(Record { session, phases, tasks, attempts, waits }))
    }

    pub(crate) fn check_sessions(&mut self, moment: &Moment) -> Result<(), String> {
        if self.next_session_happening == Duration::MAX {
            return Ok(());
        }
        let owners = self.owners();
        if self.sessions.is_unowned(&owners.awake) {
            let at = self.now() + LOOK_FOR_HEIRS;
            for server in self.server.iter_mut().chain(&mut self.peer) {
                server.sessions.hint(at);
            }
        }
        let world = self.world.provider.world();
        let elsewhere = |row: &Tracked| row.provider_identity.as_ref().is_some_and(|i| *i != world.identity);
        let away = |id: &ContainerId| self.witness.row(id).is_some_and(elsewhere);
        self.sessions.check(&world, &owners, away, moment)
    }
}

fn turn_of(server: &mut Server, heirs: bool) -> Option<Work<crate::session_loop::Turn>> {
    let Server { context, sessions, .. } = server;
    sessions.turn(&context.store, &context.fence.owner_id, context.clock.clone(), heirs)
}
