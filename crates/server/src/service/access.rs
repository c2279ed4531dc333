//! Tokens: who presents one, who gets one, who loses it; and the memory of who was turned away.
//!
//! A presented secret is looked up by its hash and compared in constant time. What was found is believed for
//! [`BELIEVED`], so that a token that is in use does not cost a read each time: a revocation by another server on
//! the same database takes effect after that long at the latest, one by this server at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use parhelia_core::Timestamp;
use parhelia_core::access::{Access, NewToken, Role, Token, TokenList, TokenRequest};
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::ids::{ContainerId, TokenId};
use parhelia_core::time::{plus_seconds, seconds_between};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tracing::warn;

use super::error::LONGER;
use super::{Caller, Service, ServiceError};

const BELIEVED: Duration = Duration::from_secs(2);
/// Tokens in use that are remembered; beyond it all are looked up again.
const REMEMBERED: usize = 10_000;
/// How exact `last_used_at` is.
const USE_SECONDS: f64 = 60.0;
const LONGEST_LIFE_SECONDS: u64 = 10 * 366 * 86_400;
/// Refused calls that wait to be written. Those that do not fit are counted, and the count is written.
const REFUSALS: usize = 1024;

/// A call that was turned away. Never the secret that came with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub reason: String,
    pub subject: Option<String>,
    pub role: Option<Role>,
    pub method: String,
    pub path: String,
    pub from: String,
}

/// What the doors remember between calls.
#[derive(Debug)]
pub(super) struct Guests {
    known: Mutex<HashMap<[u8; 32], (Token, Duration)>>,
    used: Mutex<HashMap<TokenId, Timestamp>>,
    refusals: mpsc::Sender<Refusal>,
    waiting: Mutex<mpsc::Receiver<Refusal>>,
    untold: std::sync::atomic::AtomicU64,
}

impl Default for Guests {
    fn default() -> Self {
        let (refusals, waiting) = mpsc::channel(REFUSALS);
        Self {
            known: Mutex::default(),
            used: Mutex::default(),
            refusals,
            waiting: Mutex::new(waiting),
            untold: Default::default(),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is kept of a secret.
pub fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// As the store keeps it.
pub fn secret_hash(secret: &str) -> String {
    hex::encode(hash(secret))
}

impl Service {
    /// Whose secret this is. `None`: nobody's, or no longer anybody's.
    pub async fn caller(&self, secret: &str) -> Result<Option<Caller>, ServiceError> {
        let hash = hash(secret);
        let now = self.clock.now();
        let Some(token) = self.token(&hash).await? else { return Ok(None) };
        if !token.is_valid(now) {
            return Ok(None);
        }
        let stale = token.last_used_at.is_none_or(|at| seconds_between(at, now) >= USE_SECONDS);
        if stale {
            locked(&self.guests.used).insert(token.id.clone(), now);
        }
        Ok(Some(Caller { subject: token.subject, role: token.role, container: token.container_id }))
    }

    /// Whether the token with this hash still opens anything: for what goes on long after it was presented.
    pub async fn holds(&self, hash: &[u8; 32]) -> Result<bool, ServiceError> {
        Ok(self.token(hash).await?.is_some_and(|token| token.is_valid(self.clock.now())))
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<Token>, ServiceError> {
        let moment = self.clock.monotonic();
        let fresh = |since: &Duration| moment.saturating_sub(*since) < BELIEVED;
        if let Some((token, since)) = locked(&self.guests.known).get(hash)
            && fresh(since)
        {
            return Ok(Some(token.clone()));
        }
        // The index finds it by the hash of what was presented; nothing of the secret itself is compared.
        let found = self.store.token_by_hash(&hex::encode(hash)).await?;
        let mut known = locked(&self.guests.known);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        match &found {
            Some(token) => drop(known.insert(*hash, (token.clone(), moment))),
            None => drop(known.remove(hash)),
        }
        Ok(found)
    }

    pub async fn create_token(&self, request: TokenRequest, by: &Caller) -> Result<NewToken, ServiceError> {
        let subject = request.subject.trim().to_owned();
        let odd = |c: char| c.is_control();
        if subject.is_empty() || subject.len() > 100 || subject.contains(odd) {
            return Err(ServiceError::invalid(
                "the subject of a token must be from 1 to 100 plain characters",
                "name the person or program that gets it, for example 'ci'",
            ));
        }
        if request.expires_in_seconds.is_some_and(|s| s == 0 || s > LONGEST_LIFE_SECONDS) {
            return Err(ServiceError::invalid(
                "a token lives from a second to ten years",
                "give expires_in_seconds in that range, or leave it out: then it holds until it is revoked",
            ));
        }
        let container_id = match (request.role, &request.container) {
            (Role::Worker, Some(given)) => Some(self.resolve(given).await?),
            (Role::Worker, None) => {
                return Err(ServiceError::invalid(
                    "a worker's token speaks for one container, and none was named",
                    "give its id as 'container'",
                ));
            }
            (_, Some(_)) => {
                return Err(ServiceError::invalid(
                    "only a worker's token is for one container",
                    "leave the container out, or make it a worker's",
                ));
            }
            (_, None) => None,
        };
        let now = self.clock.now();
        let token = Token {
            id: self.entropy.token_id(now),
            subject,
            role: request.role,
            container_id,
            created_at: now,
            created_by: by.subject.clone(),
            expires_at: request.expires_in_seconds.map(|s| plus_seconds(now, s as i64)),
            revoked_at: None,
            last_used_at: None,
        };
        let secret = self.new_secret()?;
        let message = format!("Token for {} ({})", token.subject, token.role);
        let event = about(&token, EventType::TokenCreated, message, by);
        self.store.create_token(&token, &secret_hash(&secret), Some(event), now).await?;
        Ok(NewToken { secret, token })
    }

    fn new_secret(&self) -> Result<String, ServiceError> {
        let random = self.entropy.token();
        if random.is_empty() {
            return Err(ServiceError::Unavailable {
                message:
                    "the system gives no random numbers, and a token that can be guessed is worse than none"
                        .into(),
                fix: "check /dev/urandom on the server's machine".into(),
            });
        }
        Ok(format!("ptk_{random}"))
    }

    pub async fn tokens(&self, of_containers: bool) -> Result<TokenList, ServiceError> {
        Ok(TokenList { tokens: self.store.tokens(of_containers, 1000).await? })
    }

    /// Ends a token, by its id or a unique prefix of it. One that is revoked already stays so.
    pub async fn revoke_token(&self, given: &str, by: &Caller) -> Result<Token, ServiceError> {
        let all = self.store.tokens(true, i64::MAX).await?;
        let mut fits: Vec<Token> = all.into_iter().filter(|t| t.id.as_str().starts_with(given)).collect();
        if let Some(exact) = fits.iter().position(|t| t.id.as_str() == given) {
            fits = vec![fits.swap_remove(exact)];
        }
        let mut token = match fits.pop() {
            Some(only) if fits.is_empty() && given.len() > TokenId::PREFIX.len() => only,
            Some(last) if given.len() > TokenId::PREFIX.len() => {
                let matches = fits.iter().chain([&last]).map(|t| t.id.to_string()).take(5).collect();
                return Err(ServiceError::Ambiguous { given: given.to_owned(), matches, fix: LONGER });
            }
            _ => {
                return Err(ServiceError::NotFound {
                    what: "token",
                    id: given.chars().take(64).collect(),
                    fix: "'parhelia tokens list' shows every token; a unique prefix of an id is enough",
                });
            }
        };
        if token.revoked_at.is_none() {
            let now = self.clock.now();
            let message = format!("Token of {} revoked", token.subject);
            let event = about(&token, EventType::TokenRevoked, message, by);
            self.store.revoke_token(&token.id, event, now).await?;
            token.revoked_at = Some(now);
        }
        locked(&self.guests.known).retain(|_, (known, _)| known.id != token.id);
        Ok(token)
    }

    /// Notes a call that was turned away; [`Self::tell_guests`] writes it. Never waits.
    pub fn refused(&self, refusal: Refusal) {
        if self.guests.refusals.try_send(refusal).is_err() {
            self.guests.untold.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    pub(crate) fn refusals_waiting(&self) -> usize {
        self.guests.refusals.max_capacity() - self.guests.refusals.capacity()
    }

    /// Writes what the doors have noted since the last time: equal refusals become one event with their count.
    /// Whether all of it could be written.
    pub async fn tell_guests(&self) -> bool {
        let mut well = true;
        let mut counted: Vec<(Refusal, u64)> = Vec::new();
        {
            let mut waiting = locked(&self.guests.waiting);
            while let Ok(refusal) = waiting.try_recv() {
                match counted.iter_mut().find(|(known, _)| *known == refusal) {
                    Some((_, count)) => *count += 1,
                    None => counted.push((refusal, 1)),
                }
            }
        }
        let refused: u64 = counted.iter().map(|(_, count)| count).sum();
        let mut events: Vec<NewEvent> =
            counted.into_iter().map(|(r, count)| refusal_event(r, count)).collect();
        let untold = self.guests.untold.swap(0, std::sync::atomic::Ordering::Relaxed);
        if untold > 0 {
            let message = format!("{untold} more calls were refused than could be told one by one");
            events.push(
                NewEvent::new(EventType::AccessRefused, Source::System, message)
                    .details(json!({ "count": untold })),
            );
        }
        let now = self.clock.now();
        if !events.is_empty()
            && let Err(e) = self.store.append_events(events, now).await
        {
            warn!(error = %e, "refused calls could not be written down; they will be counted");
            self.guests.untold.fetch_add(refused + untold, std::sync::atomic::Ordering::Relaxed);
            well = false;
        }
        let used: Vec<(TokenId, Timestamp)> = locked(&self.guests.used).drain().collect();
        if !used.is_empty()
            && let Err(e) = self.store.tokens_used(&used).await
        {
            warn!(error = %e, "the last use of tokens could not be written down");
            let mut waiting = locked(&self.guests.used);
            for (id, at) in used {
                waiting.entry(id).or_insert(at);
            }
            well = false;
        }
        well
    }
}

/// Whether a caller that was let in may touch this container: a worker only its own.
pub fn may_touch(caller: &Caller, container: &ContainerId) -> bool {
    caller.container.as_ref().is_none_or(|own| own == container)
}

/// Why this caller may not, in a sentence; `None`: it may.
pub fn denied(caller: &Caller, access: Access) -> Option<String> {
    (!caller.role.may(access)).then(|| {
        let least = match access {
            Access::Public | Access::Viewer | Access::ViewerOrOwn => Role::Viewer,
            Access::Operator | Access::OperatorOrOwn => Role::Operator,
            Access::Admin => Role::Admin,
        };
        format!("{} is {}, and this needs {least}", caller.subject, caller.role)
    })
}

fn about(token: &Token, kind: EventType, message: String, by: &Caller) -> NewEvent {
    let event = NewEvent::new(kind, Source::User, message).details(json!({
        "token_id": token.id,
        "subject": token.subject,
        "role": token.role,
        "expires_at": token.expires_at,
        "by": by.subject,
    }));
    match &token.container_id {
        Some(id) => event.container(id),
        None => event,
    }
}

fn refusal_event(refusal: Refusal, count: u64) -> NewEvent {
    let Refusal { reason, subject, role, method, path, from } = refusal;
    let message = format!("Refused {method} {path}: {reason}");
    NewEvent::new(EventType::AccessRefused, Source::System, message).details(json!({
        "reason": reason, "subject": subject, "role": role, "method": method, "path": path, "from": from,
        "count": count,
    }))
}
