//! The one place where an error becomes an HTTP status and a problem document.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parhelia_core::api::Problem;

use crate::service::ServiceError;

/// More of an explanation than this explains nothing.
const DETAIL_CHARS: usize = 1000;

/// An error on its way out.
#[derive(Debug)]
pub struct Fault {
    status: StatusCode,
    code: &'static str,
    detail: String,
    fix: String,
    retry_after: u64,
}

impl Fault {
    fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let mut detail = detail.into();
        // What was sent is quoted in places, and may have been long.
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS) {
            detail.truncate(end);
            detail.push('…');
        }
        Self { status, code, detail, fix: fix.into(), retry_after: 1 }
    }

    pub fn bad_request(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail, fix)
    }

    pub fn unprocessable(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", detail, fix)
    }

    pub fn too_large(detail: impl Into<String>) -> Self {
        let fix = "send less at once, or raise server.max_body_bytes in the configuration";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail, fix)
    }

    pub fn media_type() -> Self {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(
            status,
            "media_type",
            "the body is not JSON",
            "send it with 'content-type: application/json'",
        )
    }

    pub fn unauthorized(detail: impl Into<String>) -> Self {
        let fix = "send 'Authorization: Bearer TOKEN'; an admin makes one with 'parhelia tokens create'; the home's own is in admin.token";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail, fix)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        let fix = "use a token with that role; an admin makes one with 'parhelia tokens create'";
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail, fix)
    }

    /// A request that names another host than this one, or comes from a page.
    pub fn foreign_host(detail: impl Into<String>) -> Self {
        let fix = "use an address of this server; a name of its own is added with server.allowed_hosts; pages in a browser are not served here";
        Self::new(StatusCode::FORBIDDEN, "foreign_host", detail, fix)
    }

    pub fn too_fast(seconds: u64) -> Self {
        let fix = "wait as long as 'retry-after' says, or raise server.max_requests_per_second";
        let mut fault = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_fast", "too many requests", fix);
        fault.retry_after = seconds;
        fault
    }

    pub fn too_slow() -> Self {
        let detail = "the body took too long to arrive";
        Self::new(StatusCode::REQUEST_TIMEOUT, "too_slow", detail, "send it in one piece")
    }

    /// Whether somebody was turned away, rather than something gone wrong.
    pub fn is_refusal(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }

    /// The same in words, for every door.
    pub fn problem(&self) -> Problem {
        Problem {
            kind: format!("urn:parhelia:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.to_owned(),
            fix: self.fix.clone(),
        }
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub fn not_found(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail, fix)
    }

    pub fn method(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail, "see the 'allow' header")
    }

    pub fn unavailable(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail, fix)
    }

    pub fn busy(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail, fix)
    }

    pub fn internal(detail: impl Into<String>) -> Self {
        let fix = "repeat the request; if it fails again, report it with the server's log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail, fix)
    }
}

impl From<ServiceError> for Fault {
    fn from(error: ServiceError) -> Self {
        let detail = error.to_string();
        match error {
            ServiceError::NotFound { fix, .. } => Self::not_found(detail, fix),
            ServiceError::Ambiguous { fix, .. } => Self::new(StatusCode::CONFLICT, "ambiguous", detail, fix),
            ServiceError::Invalid { code, fix, .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail, fix)
            }
            ServiceError::Conflict { fix, .. } => Self::new(StatusCode::CONFLICT, "conflict", detail, fix),
            ServiceError::Unavailable { fix, .. } => Self::unavailable(detail, fix),
            ServiceError::Provider { fix, .. } => Self::new(StatusCode::BAD_GATEWAY, "provider", detail, fix),
            ServiceError::Internal(_) => Self::internal(detail),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.problem()).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
