//! What happens in the world and to it. Calm stretches of hours, in which agents work, end and are replaced,
//! alternate with storms of a few minutes, in which everything that can fail does.

use parhelia_core::api::{RunRequest, StopRequest};
use parhelia_core::sandbox::SandboxSpec;
use parhelia_core::time::{Clock, plus_seconds};
use parhelia_providers::fake::{CreateFault, FakeSandbox, Faults, InspectFault, ListFault, StopFault};
use parhelia_server::entropy::Entropy;
use parhelia_server::service::Caller;

use crate::interrupt::Work;
use crate::world::{FOREIGN, HOME_ENGINE, INSTANCE, OTHER_ENGINE, Sim};

/// The command of what was started by hand.
pub(crate) const STRAY: &str = "stray";
/// Whoever asks for something here.
pub(crate) const PERSON: &str = "sim";
/// The least seconds by which a create is too late to be waited for, where that happens.
const TOO_LATE: u64 = 31;

impl Sim {
    pub(crate) fn weather_turns(&mut self) {
        let now = self.now();
        let dice = self.world.dice.clone();
        self.stormy = !self.stormy && !self.healing;
        if self.stormy {
            self.weather_until = now + dice.seconds(120, 900);
            if dice.chance(30) {
                self.world.ledger.fail(1 + dice.roll(8));
            }
        } else {
            self.weather_until = now + dice.seconds(1200, 5 * 3600);
            self.world.ledger.fail(0);
            self.set_engine(HOME_ENGINE);
            self.world.provider.world().faults = Faults::default();
        }
        self.schedule_happening();
    }

    fn schedule_happening(&mut self) {
        let dice = &self.world.dice;
        self.next_happening =
            self.now() + if self.stormy { dice.seconds(0, 20) } else { dice.seconds(120, 1500) };
    }

    pub(crate) fn happen(&mut self) {
        self.schedule_happening();
        if self.stormy {
            self.in_a_storm()
        } else {
            self.in_the_calm()
        }
        // Hints come at random; the timer comes for certain.
        if self.world.dice.chance(40) {
            let now = self.now();
            self.server.iter_mut().for_each(|server| server.poke(now));
        }
    }

    fn in_the_calm(&mut self) {
        let few = self.alive() < self.fleet;
        match self.world.dice.roll(100) {
            0..45 if few => self.want_one(),
            0..45 => self.one_exits(),
            45..60 => self.unwant_one(),
            60..75 => self.one_exits(),
            75..85 => self.one_falls_silent(),
            85..88 => self.one_vanishes(),
            88..90 => self.stranger(INSTANCE),
            90..92 => self.stranger(FOREIGN),
            92..94 => self.server_sleeps(),
            _ => {}
        }
    }

    fn in_a_storm(&mut self) {
        match self.world.dice.roll(100) {
            0..22 if self.alive() < self.fleet + 4 => self.want_one(),
            22..32 => self.unwant_one(),
            32..40 => self.one_exits(),
            40..43 => self.one_vanishes(),
            43..46 => self.stranger(INSTANCE),
            46..48 => self.stranger(FOREIGN),
            48..70 => self.misbehave(),
            70..84 => self.world.provider.world().faults = Faults::default(),
            84..87 => self.clock_is_set(),
            87..89 => self.engine_changes(),
            89..91 => self.one_falls_silent(),
            91..93 => self.server_sleeps(),
            _ => {}
        }
    }

    fn alive(&self) -> usize {
        self.world.provider.world().alive(self.world.clock.now()).count()
    }

    fn want_one(&mut self) {
        let Some(service) = self.door() else { return };
        let request = RunRequest {
            provider: "fake".to_owned(),
            image: None,
            name: None,
            command: vec!["work".to_owned()],
            env: Default::default(),
            workdir: None,
            labels: Default::default(),
            resources: Default::default(),
            task_id: None,
            task_title: None,
            idle_timeout_seconds: None,
            keep: self.world.dice.chance(10),
            tmux_session: None,
            user: None,
            network: None,
            volumes: Vec::new(),
            secrets: Vec::new(),
        };
        if let Some(Ok(view)) = self.ask(Work::new(async move { service.run(request, &person()).await })) {
            self.witness.wishes.acknowledged_run(view.record.id);
        }
        self.asked();
    }

    fn unwant_one(&mut self) {
        let Some(service) = self.door() else { return };
        let active: Vec<_> = self.witness.rows().filter(|r| r.state.is_active()).map(|r| &r.id).collect();
        let Some(id) = self.world.dice.pick(&active).map(|id| id.to_string()) else { return };
        let grace_seconds = self.world.dice.chance(50).then(|| self.world.dice.roll(40) as i64);
        let request = StopRequest { grace_seconds, reason: None };
        self.witness.wishes.ask_end(&id);
        let work = Work::new(async move { service.terminate(&id, request, &person()).await });
        if let Some(Ok(view)) = self.ask(work) {
            self.witness.wishes.acknowledged_end(view.record.id);
        }
        self.asked();
    }

    fn one_exits(&mut self) {
        let now = self.world.clock.now();
        let code = self.world.dice.roll(3) as i64;
        self.with_one_alive(|s| {
            s.ended_at = Some(now);
            s.exit_code = Some(code);
        });
    }

    fn one_vanishes(&mut self) {
        self.outcome.faults += 1;
        self.with_one_alive(|s| s.removed = true);
    }

    /// It hangs, or its network does: for a while, or for good.
    fn one_falls_silent(&mut self) {
        self.outcome.faults += 1;
        let until = self.now() + self.world.dice.seconds(60, 7200);
        let mut chosen = None;
        self.with_one_alive(|s| chosen = Some(s.sandbox_id.clone()));
        if let Some(sandbox) = chosen {
            self.mute.insert(sandbox, until);
        }
    }

    fn with_one_alive(&self, change: impl FnOnce(&mut FakeSandbox)) {
        let now = self.world.clock.now();
        let mut world = self.world.provider.world();
        let alive: Vec<String> = world.alive(now).map(|s| s.sandbox_id.clone()).collect();
        let Some(chosen) = self.world.dice.pick(&alive) else { return };
        if let Some(sandbox) = world.sandboxes.iter_mut().find(|s| s.sandbox_id == *chosen) {
            change(sandbox);
        }
    }

    /// A sandbox that nobody recorded.
    fn stranger(&mut self, instance: &str) {
        self.outcome.faults += 1;
        let now = self.world.clock.now();
        let spec = SandboxSpec {
            container_id: self.world.dice.container_id(now),
            instance_id: instance.to_owned(),
            task_id: None,
            session_id: None,
            name: None,
            image: None,
            command: vec![STRAY.into()],
            env: Default::default(),
            workdir: None,
            labels: Default::default(),
            resources: Default::default(),
            idle_timeout_seconds: None,
            tmux_session: None,
            job: None,
            surroundings: Default::default(),
        };
        self.world.provider.world().start(&spec, now, now);
    }

    fn misbehave(&mut self) {
        self.outcome.faults += 1;
        let dice = &self.world.dice;
        let list = [
            ListFault::None,
            ListFault::None,
            ListFault::Error,
            ListFault::Hang,
            ListFault::Empty,
            ListFault::Half,
            ListFault::Partial,
        ];
        let late = match dice.roll(20) {
            seconds if self.settings.has_too_late() => TOO_LATE + 3 * seconds,
            seconds => 5 + seconds,
        };
        let inspect = [InspectFault::None, InspectFault::None, InspectFault::Error, InspectFault::Hang];
        let create = [
            CreateFault::None,
            CreateFault::LostBefore,
            CreateFault::LostAfter,
            CreateFault::Late(late as i64),
            CreateFault::Reject,
            CreateFault::Hang,
        ];
        let stop = [StopFault::None, StopFault::Error, StopFault::Ignore, StopFault::LostAfter];
        let faults = Faults {
            list: dice.pick(&list).copied().unwrap_or_default(),
            inspect: dice.pick(&inspect).copied().unwrap_or_default(),
            create: dice.pick(&create).copied().unwrap_or_default(),
            stop: dice.pick(&stop).copied().unwrap_or_default(),
            slow_millis: 0,
        };
        self.world.provider.world().faults = faults;
    }

    fn clock_is_set(&mut self) {
        self.outcome.faults += 1;
        let seconds = self.world.dice.roll(7200) as i64 - 3600;
        self.witness.wishes.clock_is_set(self.now(), self.world.clock.now());
        self.world.clock.jump_wall(seconds * 1000);
        // A late arrival is late by time that passes, whatever our clock is set to.
        for sandbox in &mut self.world.provider.world().sandboxes {
            sandbox.visible_at = plus_seconds(sandbox.visible_at, seconds);
        }
    }

    /// Another engine answers for a while: it has nothing of ours, and says nothing about what was.
    fn engine_changes(&mut self) {
        self.outcome.faults += 1;
        let home = self.world.provider.world().identity == HOME_ENGINE;
        self.set_engine(if home { OTHER_ENGINE } else { HOME_ENGINE });
    }

    /// Whatever is under way at the former engine ends with it: a call is not answered half by one engine and
    /// half by another.
    fn set_engine(&mut self, identity: &str) {
        let mut world = self.world.provider.world();
        if world.identity == identity {
            return;
        }
        world.identity = identity.to_owned();
        drop(world);
        self.listable_since = None;
        for server in self.server.iter_mut().chain(&mut self.sleepers) {
            server.under_way = None;
        }
    }

    /// The server is stopped by a signal: for long enough that another takes its place, or not.
    fn server_sleeps(&mut self) {
        if let Some(server) = self.server.take() {
            self.put_to_sleep(server);
        }
    }
}

fn person() -> Caller {
    Caller::admin(PERSON)
}
