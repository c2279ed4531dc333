//! One request to a receiver: signed, bounded in time and in what is read of the answer, never redirected. It
//! decides nothing; `core::alert::judge` says what an answer means.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use parhelia_core::Timestamp;
use parhelia_core::alert::Alert;
use parhelia_core::notice::Notice;
use parhelia_providers::secret;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use sha2::Sha256;

const SIGNATURE: HeaderName = HeaderName::from_static("parhelia-signature");
const TIMESTAMP: HeaderName = HeaderName::from_static("parhelia-timestamp");
const DELIVERY: HeaderName = HeaderName::from_static("parhelia-delivery");
const ATTEMPT: HeaderName = HeaderName::from_static("parhelia-attempt");
/// What is read of an answer, and what is kept of it.
const ANSWER_BYTES: usize = 4096;
const ANSWER_CHARS: usize = 300;
/// To reach somebody at all; the alert's own timeout is for the whole.
const CONNECT: Duration = Duration::from_secs(5);

/// What came back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// None: nothing was sent, or nobody answered.
    pub status: Option<u16>,
    /// The beginning of the answer.
    pub text: String,
    /// Why there is no status.
    pub error: Option<String>,
}

impl Reply {
    fn none(error: String) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// In a few words, for one that did not deliver.
    pub fn trouble(&self) -> String {
        let redirect = "; redirects are not followed: configure the address that it leads to";
        match (&self.error, self.status) {
            (Some(error), _) => error.clone(),
            (None, Some(status @ 300..=399)) => format!("the receiver answered {status}{redirect}"),
            (None, Some(status)) => {
                let first = self.text.lines().next().unwrap_or_default();
                format!("the receiver answered {status} {first}").trim_end().to_owned()
            }
            (None, None) => "the receiver gave no answer".to_owned(),
        }
    }
}

/// An alert, and the means to send it.
pub struct Post {
    pub alert: Alert,
    client: Result<reqwest::Client, String>,
    secrets: PathBuf,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("alert", &self.alert).finish_non_exhaustive()
    }
}

impl Post {
    pub fn new(alert: &Alert, secrets: &Path) -> Self {
        Self { alert: alert.clone(), client: client(alert), secrets: secrets.to_owned() }
    }

    /// One attempt. The delivery's id is the same at every attempt; the time and with it the signature are not.
    pub async fn send(&self, notice: &Notice, delivery: &str, attempt: i64, now: Timestamp) -> Reply {
        match self.prepare(notice, delivery, attempt, now) {
            Ok(request) => exchange(request).await,
            Err(error) => Reply::none(error),
        }
    }

    fn prepare(
        &self,
        notice: &Notice,
        delivery: &str,
        attempt: i64,
        now: Timestamp,
    ) -> Result<reqwest::RequestBuilder, String> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let address = match self.alert.url.secret() {
            Some(name) => String::from_utf8(trimmed(secret::read(&self.secrets, name)?))
                .map_err(|_| format!("the secret {name} is no address"))?,
            None => self.alert.url.reveal().to_owned(),
        };
        // The error of the parser may quote what it was given.
        let address = reqwest::Url::parse(address.trim()).map_err(|_| "its address cannot be understood")?;
        let body = notice.body(self.alert.format, &self.alert.name, delivery).to_string();
        let at = now.as_second().to_string();
        let mut request = client
            .post(address)
            .timeout(Duration::from_secs(self.alert.timeout_seconds))
            .header(CONTENT_TYPE, "application/json")
            .header(DELIVERY, delivery)
            .header(ATTEMPT, attempt)
            .header(TIMESTAMP, &at);
        if let Some(name) = &self.alert.secret {
            let key = trimmed(secret::read(&self.secrets, name)?);
            request = request.header(SIGNATURE, signature(&key, &at, &body)?);
        }
        Ok(request.body(body))
    }
}

/// A file that was written with `echo` ends in a line break, which is not part of the secret.
fn trimmed(mut value: Vec<u8>) -> Vec<u8> {
    while value.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        value.pop();
    }
    value
}

/// `v1=` and the HMAC-SHA256 of time, a dot and the body, in hexadecimal.
fn signature(key: &[u8], at: &str, body: &str) -> Result<String, String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|e| e.to_string())?;
    for part in [at, ".", body] {
        mac.update(part.as_bytes());
    }
    Ok(format!("v1={}", hex::encode(mac.finalize().into_bytes())))
}

fn client(alert: &Alert) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder()
        .user_agent(format!("parhelia/{}", parhelia_core::VERSION))
        // What is meant for one receiver goes to no other.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT.min(Duration::from_secs(alert.timeout_seconds)));
    let address = reqwest::Url::parse(alert.url.reveal()).ok();
    if let Some(address) = &address {
        let host = address.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if here {
            builder = builder.no_proxy();
        }
        if address.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
    }
    builder.build().map_err(|e| format!("cannot make an HTTP client: {}", e.without_url()))
}

async fn exchange(request: reqwest::RequestBuilder) -> Reply {
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return Reply::none(told(error)),
    };
    let status = response.status().as_u16();
    let mut answer = Vec::new();
    // The status is the answer; what follows is for people, and a receiver that never ends is not waited for.
    while answer.len() < ANSWER_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                answer.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES - answer.len())])
            }
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let text = text.trim().chars().take(ANSWER_CHARS).collect();
    Reply { status: Some(status), text, error: None }
}

/// Without the address, which may hold credentials.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let what = if error.is_timeout() {
        "the receiver did not answer in time"
    } else if error.is_connect() {
        "the receiver cannot be reached"
    } else {
        "the request could not be made"
    };
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    format!("{what}: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_standard() {
        // RFC 4231, test case 2, split where the dot stands for the question's own.
        let mac = |key: &[u8], text: &str| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
            mac.update(text.as_bytes());
            hex::encode(mac.finalize().into_bytes())
        };
        assert_eq!(
            mac(b"Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            signature(b"k", "1700000000", "{}").unwrap(),
            format!("v1={}", mac(b"k", "1700000000.{}"))
        );
        assert_eq!(trimmed(b"s3cret\r\n".to_vec()), b"s3cret");
    }
}
