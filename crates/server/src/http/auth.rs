//! Who may come in, and what for. The unix socket is guarded by its file mode; everywhere else a bearer token
//! says who it is. Every route has said what it asks for (`routes.rs`); here that is held against the caller.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use governor::DefaultKeyedRateLimiter;
use governor::clock::Clock as _;
use parhelia_core::access::Access;
use subtle::ConstantTimeEq;

use super::{App, Fault};
use crate::service::{Caller, Refusal, denied, hash};

/// Where a connection came from; every request carries it.
#[derive(Debug, Clone)]
pub enum Door {
    /// The home's own socket: whoever can open it owns the home. A token that is presented all the same counts.
    Socket,
    /// The socket that is mounted into containers.
    Containers,
    Tcp(SocketAddr),
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Door::Socket => f.write_str("socket"),
            Door::Containers => f.write_str("containers' socket"),
            Door::Tcp(peer) => write!(f, "{}", peer.ip()),
        }
    }
}

/// The hash of the token that a caller has shown; none for one whose right cannot be revoked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown(pub(super) Option<[u8; 32]>);

/// What every guard knows: the home's own token, and how fast anybody may ask.
#[derive(Clone)]
pub struct Gate {
    admin: Arc<[u8; 32]>,
    rates: Option<Arc<DefaultKeyedRateLimiter<String>>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("rated", &self.rates.is_some()).finish_non_exhaustive()
    }
}

impl Gate {
    /// `per_second` requests of one subject, with twice that at once; 0 is no limit.
    pub fn new(admin_token: &str, per_second: u64) -> Self {
        let per_second = u32::try_from(per_second).ok().and_then(NonZeroU32::new);
        let quota = per_second.map(|n| governor::Quota::per_second(n).allow_burst(n.saturating_mul(TWICE)));
        Self {
            admin: Arc::new(hash(admin_token)),
            rates: quota.map(|quota| Arc::new(DefaultKeyedRateLimiter::keyed(quota))),
        }
    }

    /// Seconds until this one may ask again, when it asks too fast.
    fn too_fast(&self, door: &Door, who: &str) -> Option<u64> {
        // The owner of the home could as well write to its database.
        if matches!(door, Door::Socket) {
            return None;
        }
        let rates = self.rates.as_ref()?;
        if rates.len() > KEYS {
            rates.retain_recent();
        }
        let too_early = rates.check_key(&who.to_owned()).err()?;
        Some(too_early.wait_time_from(rates.clock().now()).as_secs().max(1))
    }

    async fn admit(&self, app: &App, door: &Door, presented: Option<&str>) -> Result<(Caller, Shown), Fault> {
        match (presented, door) {
            (None, Door::Socket) => Ok((Caller::admin("local"), Shown(None))),
            (None, _) => Err(Fault::unauthorized("a token is needed on this address")),
            (Some(secret), _) if bool::from(self.admin.ct_eq(&hash(secret))) => {
                Ok((Caller::admin("admin"), Shown(None)))
            }
            (Some(secret), _) => match app.service.caller(secret).await {
                Ok(Some(caller)) => Ok((caller, Shown(Some(hash(secret))))),
                Ok(None) => Err(Fault::unauthorized("the token is not known here, or holds no longer")),
                Err(e) => Err(e.into()),
            },
        }
    }
}

const TWICE: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");
const KEYS: usize = 10_000;

/// In front of every route that is not public: notes who comes, or says why not. Boxed, as most may come in.
pub(super) async fn guard(
    app: &App,
    gate: &Gate,
    access: Access,
    head: &mut Parts,
) -> Result<(), Box<Response>> {
    let (caller, shown) = admitted(app, gate, access, head).await.map_err(Box::new)?;
    head.extensions.insert(caller);
    head.extensions.insert(shown);
    Ok(())
}

async fn admitted(app: &App, gate: &Gate, access: Access, head: &Parts) -> Result<(Caller, Shown), Response> {
    let door = head.extensions.get::<Door>().unwrap_or(&Door::Containers);
    let (caller, shown) = match gate.admit(app, door, bearer(head)).await {
        Ok(admitted) => admitted,
        Err(fault) => {
            // Who cannot say who it is may not ask for long either.
            if let Some(seconds) = gate.too_fast(door, &format!("from {door}")) {
                return Err(Fault::too_fast(seconds).into_response());
            }
            return Err(refuse(app, door, head, None, fault));
        }
    };
    if let Some(seconds) = gate.too_fast(door, &caller.subject) {
        return Err(Fault::too_fast(seconds).into_response());
    }
    if let Some(why) = denied(&caller, access) {
        return Err(refuse(app, door, head, Some(&caller), Fault::forbidden(why)));
    }
    if let Some(own) = &caller.container
        && named_container(head.uri.path()).is_some_and(|named| named != own.as_str())
    {
        let why = format!("{} speaks for {own} and for no other container", caller.subject);
        return Err(refuse(app, door, head, Some(&caller), Fault::forbidden(why)));
    }
    // Heartbeats and scrapes come whether or not anybody is interested; everything else is a question.
    let path = head.uri.path();
    if !path.ends_with("/heartbeats") && path != "/metrics" {
        app.service.asked();
    }
    Ok((caller, shown))
}

fn refuse(app: &App, door: &Door, head: &Parts, caller: Option<&Caller>, fault: Fault) -> Response {
    if fault.is_refusal() {
        app.service.refused(Refusal {
            reason: fault.detail().to_owned(),
            subject: caller.map(|c| c.subject.clone()),
            role: caller.map(|c| c.role),
            method: head.method.to_string(),
            path: head.uri.path().chars().take(200).collect(),
            from: door.to_string(),
        });
    }
    fault.into_response()
}

fn bearer(head: &Parts) -> Option<&str> {
    let value = head.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The container that a path is about.
fn named_container(path: &str) -> Option<&str> {
    let about = ["/api/v1/containers/", "/api/v1/why/"].iter().find_map(|root| path.strip_prefix(root));
    about?.split('/').next().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_container() {
        assert_eq!(named_container("/api/v1/containers/c-01/heartbeats"), Some("c-01"));
        assert_eq!(named_container("/api/v1/why/c-01"), Some("c-01"));
        assert_eq!(named_container("/api/v1/containers"), None);
        assert_eq!(named_container("/api/v1/heartbeats"), None);
    }

    #[test]
    fn one_subject_is_slowed_and_another_is_not() {
        let gate = Gate::new("secret", 5);
        let tcp = Door::Tcp("127.0.0.1:9".parse().unwrap());
        let waits: Vec<_> = (0..40).filter_map(|_| gate.too_fast(&tcp, "greedy")).collect();
        assert!(waits.len() > 20 && waits.iter().all(|s| *s >= 1), "{waits:?}");
        assert_eq!(gate.too_fast(&tcp, "patient"), None);
        assert_eq!(gate.too_fast(&Door::Socket, "greedy"), None);
    }
}
