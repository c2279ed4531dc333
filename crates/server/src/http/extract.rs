//! Reading what a request carries: JSON bodies and query strings, with errors that say where and what.

use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use bytes::BytesMut;
use futures::StreamExt;
use parhelia_core::Timestamp;
use serde::de::DeserializeOwned;

use super::Fault;

/// A body may take this long, however slowly it comes.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// A JSON body. An empty one is `{}`, so that a bare POST works where everything is optional.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let kind = request.headers().get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
        let is_json = kind.windows(4).any(|part| part.eq_ignore_ascii_case(b"json"));
        let bytes = whole_body(request).await?;
        if bytes.is_empty() {
            let empty = serde_json::from_slice(b"{}");
            return empty
                .map(Body)
                .map_err(|e| Fault::unprocessable(format!("there is no body: {e}"), "send a JSON object"));
        }
        if !is_json {
            return Err(Fault::media_type());
        }
        object(&bytes)?;
        read(&bytes).map(Body)
    }
}

/// Every body of this API is an object. An array would be read as the fields in their order: by accident.
fn object(bytes: &[u8]) -> Result<(), Fault> {
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'[' | b'"' | b'n' | b't' | b'f' | b'0'..=b'9' | b'-') => {
            Err(Fault::unprocessable("the body does not fit: it is not an object", "send a JSON object"))
        }
        _ => Ok(()),
    }
}

/// The longest that a question may be held open.
pub(super) const LONGEST_WAIT_SECONDS: u64 = 60;

pub(super) fn wait(seconds: u64) -> Result<u64, Fault> {
    if seconds > LONGEST_WAIT_SECONDS {
        let detail = format!("wait_seconds: {seconds} is more than {LONGEST_WAIT_SECONDS}");
        return Err(Fault::unprocessable(detail, "ask again when the answer comes without news"));
    }
    Ok(seconds)
}

/// The largest body of a route, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room(pub(super) usize);

/// Of a body that is too large, so much is taken and thrown away: whoever still sends does not hear the answer.
const MOST_DRAINED: usize = 256 << 20;

/// The body, if it comes in time and is not too large.
pub(super) async fn whole_body(request: Request) -> Result<Bytes, Fault> {
    let Room(most) = request.extensions().get().copied().unwrap_or(Room(0));
    let arrived = tokio::time::timeout(BODY_PATIENCE, arriving(request, most)).await;
    arrived.map_err(|_| Fault::too_slow())?
}

async fn arriving(request: Request, most: usize) -> Result<Bytes, Fault> {
    let mut parts = request.into_body().into_data_stream();
    let (mut body, mut seen) = (Arrived::Whole(Bytes::new()), 0usize);
    while let Some(part) = parts.next().await {
        let broken = |_| Fault::bad_request("the body did not arrive whole", "repeat the request");
        let part = part.map_err(broken)?;
        seen = seen.saturating_add(part.len());
        if seen <= most {
            body = body.and(part);
        } else if seen > MOST_DRAINED {
            break;
        } else {
            body = Arrived::Whole(Bytes::new());
        }
    }
    if seen > most {
        return Err(Fault::too_large(format!(
            "the body is larger than the {most} bytes that this server takes"
        )));
    }
    Ok(match body {
        Arrived::Whole(bytes) => bytes,
        Arrived::Gathered(bytes) => bytes.freeze(),
    })
}

/// Most bodies come in one piece, which need not be copied.
enum Arrived {
    Whole(Bytes),
    Gathered(BytesMut),
}

impl Arrived {
    fn and(self, part: Bytes) -> Self {
        let mut so_far = match self {
            Arrived::Whole(bytes) if bytes.is_empty() => return Arrived::Whole(part),
            Arrived::Whole(bytes) => BytesMut::from(bytes),
            Arrived::Gathered(bytes) => bytes,
        };
        so_far.extend_from_slice(&part);
        Arrived::Gathered(so_far)
    }
}

/// JSON into what is wanted, or which field of it does not fit.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let invalid = |e: &dyn std::fmt::Display| {
        Fault::bad_request(format!("the body is not valid JSON: {e}"), "correct it and send it again")
    };
    // Following the path costs as much again as reading, so that is only done when there is something to say.
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| match e.inner() {
        inner if inner.is_data() => misfit("the body", &e),
        inner => invalid(inner),
    })?;
    reader.end().map(|()| value).map_err(|e| invalid(&e))
}

/// Names the field whose value is of the wrong kind.
pub(super) fn misfit<E: std::error::Error>(what: &str, error: &serde_path_to_error::Error<E>) -> Fault {
    let path: String = error.path().to_string().chars().take(100).collect();
    let place = if path == "." { String::new() } else { format!(" at '{path}'") };
    let detail = format!("{what} does not fit{place}: {}", error.inner());
    Fault::unprocessable(detail, "correct that field and send it again")
}

/// What the path names.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(e) if e.status().is_server_error() => Err(Fault::internal(e.body_text())),
            Err(e) => Err(Fault::bad_request(e.body_text(), "write names in UTF-8, percent-encoded")),
        }
    }
}

/// A query string.
#[derive(Debug)]
pub(super) struct Ask<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Ask<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Ask(value)),
            Err(e) => Err(wrong_query(&e)),
        }
    }
}

fn wrong_query(e: &QueryRejection) -> Fault {
    Fault::unprocessable(e.body_text(), "correct that parameter and ask again")
}

/// A query string in which one parameter may stand more than once: its values, and the rest.
pub(super) fn repeated<T: DeserializeOwned>(uri: &Uri, name: &str) -> Result<(Vec<String>, T), Fault> {
    let is_it = |part: &&str| part.split('=').next() == Some(name);
    let (these, rest): (Vec<&str>, Vec<&str>) = uri.query().unwrap_or("").split('&').partition(is_it);
    let of = |parts: Vec<&str>| {
        format!("/?{}", parts.join("&")).parse::<Uri>().map_err(|e| {
            Fault::unprocessable(format!("the query cannot be read: {e}"), "correct it and ask again")
        })
    };
    let Query(pairs) =
        Query::<Vec<(String, String)>>::try_from_uri(&of(these)?).map_err(|e| wrong_query(&e))?;
    let Query(rest) = Query::<T>::try_from_uri(&of(rest)?).map_err(|e| wrong_query(&e))?;
    Ok((pairs.into_iter().map(|(_, value)| value).collect(), rest))
}

/// `a,b,c` as words of one kind.
pub(super) fn words<T: FromStr>(name: &str, text: Option<&str>) -> Result<Vec<T>, Fault>
where
    T::Err: std::fmt::Display,
{
    let parts = text.unwrap_or("").split(',').map(str::trim).filter(|w| !w.is_empty());
    parts
        .map(|word| {
            word.parse()
                .map_err(|e: T::Err| Fault::unprocessable(format!("{name}: {e}"), "correct it and ask again"))
        })
        .collect()
}

pub(super) fn moment(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Fault> {
    text.map(|t| {
        t.parse().map_err(|_| {
            let shown: String = t.chars().take(60).collect();
            Fault::unprocessable(
                format!("{name}: '{shown}' is not a moment"),
                "write it as 2026-01-21T14:30:00Z",
            )
        })
    })
    .transpose()
}
