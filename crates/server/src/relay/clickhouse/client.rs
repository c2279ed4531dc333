//! One request to ClickHouse's HTTP interface, bounded in time and in what is read of the answer. It decides nothing.
//!
//! Plain requests rather than a driver: what is said here are three kinds of statement, rows travel as JSON, and the
//! errors that matter are a status, a header and a line of text.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parhelia_core::config::Clickhouse;
use parhelia_providers::secret;

const CONNECT: Duration = Duration::from_secs(5);
/// Shorter than any server keeps a connection on which nothing is said: one that it is about to close is not used.
const IDLE: Duration = Duration::from_secs(2);
/// What is read of an answer: the longest that is asked for is a line for each session of a batch.
const ANSWER_BYTES: usize = 16 << 20;
const TROUBLE_CHARS: usize = 300;

/// What went wrong over there, or on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// ClickHouse's own number of the error, if it said one.
    pub code: Option<u32>,
    pub message: String,
}

/// Numbers of errors that are answered with more than a pause.
pub(super) const UNKNOWN_TABLE: u32 = 60;
pub(super) const UNKNOWN_DATABASE: u32 = 81;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

fn trouble(message: impl Into<String>) -> Trouble {
    Trouble { code: None, message: message.into() }
}

/// A server, and the means to ask it.
pub struct ClickHouse {
    pub config: Clickhouse,
    url: String,
    client: Result<reqwest::Client, String>,
    secrets: PathBuf,
}

impl fmt::Debug for ClickHouse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClickHouse").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ClickHouse {
    /// `None`: nobody wants one.
    pub fn new(config: &Clickhouse, secrets: &Path) -> Option<Self> {
        let url = config.url.clone()?;
        Some(Self { client: client(config, &url), config: config.clone(), url, secrets: secrets.to_owned() })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The answer to a statement that needs no database of ours.
    pub async fn ask_anywhere(&self, statement: &str) -> Result<String, Trouble> {
        self.exchange(&[("wait_end_of_query", "1")], statement.to_owned()).await
    }

    /// The answer to a statement.
    pub async fn ask(&self, statement: &str) -> Result<String, Trouble> {
        let given = [("database", self.config.database.as_str()), ("wait_end_of_query", "1")];
        self.exchange(&given, statement.to_owned()).await
    }

    /// Rows, a JSON object on each line; all of them are there when this returns. Rows with a token that were sent
    /// before are dropped over there.
    pub async fn insert(
        &self,
        table: &str,
        columns: &str,
        rows: String,
        token: Option<&str>,
    ) -> Result<(), Trouble> {
        let statement = format!("INSERT INTO {table} ({columns}) FORMAT JSONEachRow");
        let mut given = vec![
            ("database", self.config.database.as_str()),
            ("query", &statement),
            // Buffered over there, a row could be lost after we were told that it was taken.
            ("async_insert", "0"),
            ("wait_end_of_query", "1"),
            // Our times are in UTC, whatever zone that server is in.
            ("date_time_input_format", "best_effort"),
        ];
        given.extend(token.map(|token| ("insert_deduplication_token", token)));
        self.exchange(&given, rows).await.map(drop)
    }

    async fn exchange(&self, given: &[(&str, &str)], body: String) -> Result<String, Trouble> {
        let client = self.client.as_ref().map_err(|why| trouble(why.clone()))?;
        let mut address =
            reqwest::Url::parse(&self.url).map_err(|_| trouble("its address cannot be understood"))?;
        address.query_pairs_mut().extend_pairs(given);
        let mut request = client.post(address).header("X-ClickHouse-User", &self.config.user);
        if let Some(password) = self.password()? {
            request = request.header("X-ClickHouse-Key", password);
        }
        let mut response = request.body(body).send().await.map_err(told)?;
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let code = header("X-ClickHouse-Exception-Code").and_then(|code| code.trim().parse().ok());
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(told)? {
            answer.extend_from_slice(&chunk);
            if answer.len() > ANSWER_BYTES {
                return Err(trouble("its answer is longer than anything that was asked for"));
            }
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        if status.is_success() && code.is_none() {
            return Ok(text);
        }
        let said: String = text.lines().next().unwrap_or_default().chars().take(TROUBLE_CHARS).collect();
        let message = format!("ClickHouse answered {}: {said}", status.as_u16());
        Err(Trouble { code, message: message.trim_end_matches([':', ' ']).to_owned() })
    }

    /// Read anew each time: a secret may be exchanged while the server runs.
    fn password(&self) -> Result<Option<reqwest::header::HeaderValue>, Trouble> {
        let Some(given) = &self.config.password else { return Ok(None) };
        let value = match given.secret() {
            Some(name) => secret::read(&self.secrets, name).map_err(trouble)?,
            None => given.reveal().as_bytes().to_vec(),
        };
        // A file that was written with `echo` ends in a line break, which is not part of it.
        let end = value.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |last| last + 1);
        let mut value = reqwest::header::HeaderValue::from_bytes(&value[..end])
            .map_err(|_| trouble("the password cannot be sent: it holds a control character"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn client(config: &Clickhouse, url: &str) -> Result<reqwest::Client, String> {
    let timeout = Duration::from_secs(config.timeout_seconds);
    let mut builder = reqwest::Client::builder()
        .user_agent(format!("parhelia/{}", parhelia_core::VERSION))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT.min(timeout))
        .pool_idle_timeout(IDLE)
        .timeout(timeout);
    if let Ok(address) = reqwest::Url::parse(url) {
        let host = address.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
            builder = builder.no_proxy();
        }
        if address.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
    }
    builder.build().map_err(|e| format!("cannot make an HTTP client: {}", e.without_url()))
}

/// Without the address, which holds the whole statement.
fn told(error: reqwest::Error) -> Trouble {
    let error = error.without_url();
    let what = if error.is_timeout() {
        "ClickHouse did not answer in time"
    } else if error.is_connect() {
        "ClickHouse cannot be reached"
    } else {
        "the request to ClickHouse broke off"
    };
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    trouble(format!("{what}: {cause}"))
}
