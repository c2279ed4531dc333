//! What people and the world do to sessions: start, answer, fire, cancel, resume; tasks end, well or not.

use parhelia_core::session::api::{
    AnswerReport, AnswerWaits, CancelSession, FireSignal, ResumeSession, StartSession, Verdict,
};
use parhelia_core::session::{BlockedType, SessionStatus, WaitRow};
use parhelia_core::time::Clock;
use parhelia_server::service::{Caller, ServiceError};
use serde_json::{Value, json};

use crate::interrupt::{Progress, Work};
use crate::session_cascades::{SIGNALS, cascade};
use crate::world::Sim;

/// So many sessions are not over at once.
const MOST: usize = 4;

impl Sim {
    pub(crate) async fn session_happens(&mut self) -> Result<(), String> {
        let dice = &self.world.dice;
        let pause = if self.stormy { dice.seconds(0, 15) } else { dice.seconds(10, 240) };
        self.next_session_happening = self.now() + pause;
        let few = self.sessions.unfinished() < MOST;
        match self.world.dice.roll(100) {
            0..25 if few => self.start_session().await,
            25..55 => {
                self.tasks_end();
                Ok(())
            }
            55..70 => self.fire(),
            70..84 => self.answer(),
            84..91 => self.cancel_one(),
            91..96 => self.resume_one(),
            96..97 => self.clean_up(),
            97..99 if self.stormy => {
                self.peer_sleeps();
                Ok(())
            }
            _ => {
                self.tasks_end();
                Ok(())
            }
        }
    }

    async fn start_session(&mut self) -> Result<(), String> {
        self.leases_were_kept().await;
        let Some((who, service)) = self.any_door() else { return Ok(()) };
        let request = StartSession {
            cascade: Some(cascade(&self.world.dice, 0)),
            provider: Some("fake".to_owned()),
            auto_resume: self.world.dice.chance(10).then_some(false),
            ..StartSession::default()
        };
        let work = Work::new(async move { service.start_session(request, &person()).await });
        match self.ask_of(who, work) {
            Some(Err(ServiceError::Unavailable { .. })) | None => Ok(()),
            Some(Err(other)) => Err(format!("a session could not be started: {other}")),
            Some(Ok(_)) => {
                self.outcome.sessions += 1;
                Ok(())
            }
        }
    }

    /// What runs for tasks ends: mostly as it should.
    fn tasks_end(&mut self) {
        let now = self.world.clock.now();
        let dice = self.world.dice.clone();
        let mut world = self.world.provider.world();
        let alive = world
            .sandboxes
            .iter_mut()
            .filter(|s| s.tags.task.is_some() && s.ended_at.is_none() && !s.removed && s.visible_at <= now);
        for sandbox in alive {
            match dice.roll(100) {
                0..50 => {
                    sandbox.ended_at = Some(now);
                    sandbox.exit_code = Some(0);
                }
                50..62 => {
                    sandbox.ended_at = Some(now);
                    sandbox.exit_code = Some(1 + dice.roll(2) as i64);
                }
                62..65 => sandbox.ended_at = Some(now),
                65..68 => sandbox.removed = true,
                _ => {}
            }
        }
    }

    fn some_session(&self, mut fits: impl FnMut(SessionStatus) -> bool) -> Option<String> {
        let all: Vec<_> =
            self.sessions.sessions().filter(|s| fits(s.status)).map(|s| &s.session_id).collect();
        self.world.dice.pick(&all).map(|id| id.to_string())
    }

    fn fire(&mut self) -> Result<(), String> {
        let Some((who, service)) = self.any_door() else { return Ok(()) };
        let name = self.world.dice.pick(&SIGNALS).copied().unwrap_or_default().to_owned();
        let any = self.world.dice.chance(5);
        let session = match self.world.dice.chance(50) {
            true => self.some_session(|status| any || !status.is_over()),
            false => None,
        };
        let request = FireSignal { name, session, payload: json!(self.world.dice.roll(1000)) };
        let work = Work::new(async move { service.fire_signal(request, &person()).await });
        match self.ask_of(who, work) {
            Some(Err(e @ (ServiceError::Invalid { .. } | ServiceError::NotFound { .. }))) => {
                Err(e.to_string())
            }
            Some(Ok(signal)) => {
                self.sessions.fire_accepted(signal.id.as_str());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// One person answers, or two at once.
    fn answer(&mut self) -> Result<(), String> {
        let questions = self.sessions.questions();
        let Some(wait) = self.world.dice.pick(&questions).cloned() else { return Ok(()) };
        let Some((who, service)) = self.any_door() else { return Ok(()) };
        let request = self.reply(&wait);
        let mut first = Work::new(async move { service.answer_waits(request, &person()).await });
        let mut rival = None;
        if self.world.dice.chance(30) {
            // The first one is on its way while the second is asked.
            if let Progress::Done(done) = first.go_on(self.world.dice.roll(3)) {
                self.answered(done)?;
            } else {
                rival = Some(first);
            }
            let Some((who, service)) = self.any_door() else { return Ok(()) };
            let request = self.reply(&wait);
            let second = Work::new(async move { service.answer_waits(request, &person()).await });
            if let Some(done) = self.ask_of(who, second) {
                self.answered(done)?;
            }
        } else if let Some(done) = self.ask_of(who, first) {
            self.answered(done)?;
        }
        match rival.map(|mut work| work.go_on(u64::MAX)) {
            Some(Progress::Done(done)) => self.answered(done),
            _ => Ok(()),
        }
    }

    fn answered(&mut self, done: Result<AnswerReport, ServiceError>) -> Result<(), String> {
        match done {
            Ok(report) => report.answered.iter().try_for_each(|wait| {
                self.world.ledger.touch_session(wait.session_id.as_str());
                self.sessions.answer_accepted(wait)
            }),
            Err(ServiceError::Unavailable { .. }) => Ok(()),
            Err(other) => Err(format!("a wait could not be answered: {other}")),
        }
    }

    fn reply(&self, wait: &WaitRow) -> AnswerWaits {
        let dice = &self.world.dice;
        let yes = dice.chance(70);
        let (verdict, answer) = match (wait.wait_type, wait.wait_on.as_str()) {
            (BlockedType::Approval | BlockedType::Checkpoint, _) if yes => (Verdict::Approve, None),
            (BlockedType::Approval | BlockedType::Checkpoint, _) => (Verdict::Deny, None),
            (_, "confirmation") => (Verdict::Answer, Some(Value::Bool(yes))),
            _ => (Verdict::Answer, dice.pick(&["a", "b", "c"]).map(|choice| json!(choice))),
        };
        let reason = dice.chance(30).then(|| "so it is".to_owned());
        AnswerWaits { ids: vec![wait.id.to_string()], verdict, answer, text: None, choices: None, reason }
    }

    fn cancel_one(&mut self) -> Result<(), String> {
        let Some(id) = self.some_session(|status| !status.is_over()) else { return Ok(()) };
        let Some((who, service)) = self.any_door() else { return Ok(()) };
        let dice = &self.world.dice;
        let grace_seconds = dice.chance(50).then(|| dice.roll(30) as i64);
        let request = CancelSession { reason: None, force: dice.chance(30), grace_seconds };
        let work = Work::new(async move { service.cancel_session(&id, request, &person()).await });
        if let Some(Ok(session)) = self.ask_of(who, work) {
            self.world.ledger.touch_session(session.session_id.as_str());
            self.sessions.cancel_accepted(&session.session_id);
        }
        Ok(())
    }

    /// What failed or was left goes on; sometimes from an earlier phase.
    fn resume_one(&mut self) -> Result<(), String> {
        let from = self.world.dice.chance(40).then(|| format!("p{}", self.world.dice.roll(3)));
        let any = from.is_some();
        let fits = |status| {
            use SessionStatus::*;
            any || matches!(status, Error | Cancelled | Orphaned)
        };
        let Some(id) = self.some_session(fits) else { return Ok(()) };
        let Some((who, service)) = self.any_door() else { return Ok(()) };
        let request = ResumeSession { from };
        let work = Work::new(async move { service.resume_session(&id, request, &person()).await });
        self.ask_of(who, work);
        Ok(())
    }

    fn clean_up(&mut self) -> Result<(), String> {
        let Some((who, service)) = self.any_door() else { return Ok(()) };
        self.ask_of(who, Work::new(async move { service.cleanup_sessions(false).await }));
        Ok(())
    }
}

fn person() -> Caller {
    Caller::admin("sim")
}
