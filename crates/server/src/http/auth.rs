//! Who may come in. The unix socket is guarded by its file mode; TCP by a bearer token, of which only the
//! hash is kept, compared in constant time.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{App, Fault};
use crate::service::Caller;

#[derive(Debug, Clone)]
pub struct TokenHash(Arc<[u8; 32]>);

impl TokenHash {
    pub fn of(token: &str) -> Self {
        Self(Arc::new(Sha256::digest(token.as_bytes()).into()))
    }

    fn admits(&self, presented: &str) -> bool {
        let hash: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        bool::from(self.0.ct_eq(&hash))
    }
}

#[derive(Debug, Clone)]
pub enum Door {
    Socket,
    Tcp(TokenHash),
}

pub(super) async fn guard(
    State((app, door)): State<(App, Door)>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match &door {
        Door::Socket => Caller { subject: "local".to_owned() },
        Door::Tcp(hash) => match bearer(&request) {
            Some(token) if hash.admits(token) => Caller { subject: "admin".to_owned() },
            Some(_) => return Fault::unauthorized("the token is not known here").into_response(),
            None => return Fault::unauthorized("a token is needed on this address").into_response(),
        },
    };
    // Heartbeats come whether or not anybody is interested; everything else is a question.
    if !request.uri().path().ends_with("/heartbeats") {
        app.service.asked();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}
