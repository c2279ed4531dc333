//! The one door to a server: the home's unix socket, or an address with a token. It knows about broken
//! connections, about starting a server that is not there, and about nothing that the answers mean.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parhelia_core::api::Problem;
use parhelia_providers::SystemClock;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::autostart::Autostart;
use crate::error::{CliError, Exit, Result, Transport};
use crate::output::Out;

/// The longest path that a unix socket can have: 108 bytes with the zero at its end.
const SOCKET_PATH_MAX: usize = 107;
/// How long an ordinary answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// A server in the middle of a restart is asked again this often, a little later each time.
const REPEATS: u32 = 5;

pub(crate) type Query<'a> = &'a [(&'a str, String)];

/// What to do when the connection broke after the question was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Asking twice is the same as asking once.
    Safe,
    /// It might be done twice: rather tell.
    Never,
}

#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    /// For messages: the socket or the address.
    place: String,
    start: Option<Autostart>,
    remote: bool,
    clock: SystemClock,
}

#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

struct Request<'a> {
    method: Method,
    root: &'a str,
    path: &'a str,
    headers: HeaderMap,
    query: Query<'a>,
    body: Option<Vec<u8>>,
    patience: Duration,
}

impl<'a> Request<'a> {
    /// Of `/api/v1{path}`, and nothing besides.
    fn new(method: Method, path: &'a str) -> Self {
        let headers = HeaderMap::new();
        Self { method, root: "/api/v1", path, headers, query: &[], body: None, patience: PATIENCE }
    }
}

pub(crate) fn socket_path(home: &Path) -> Result<PathBuf> {
    let socket = home.join("parhelia.sock");
    let length = socket.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        let message = format!(
            "{} has {length} bytes, and the path of a socket can have at most {SOCKET_PATH_MAX}",
            socket.display()
        );
        return Err(CliError::usage(message).fix("use a shorter PARHELIA_HOME"));
    }
    Ok(socket)
}

fn unusable(error: &reqwest::Error) -> CliError {
    CliError::failure("client", format!("cannot make an HTTP client: {error}"))
}

fn builder() -> reqwest::ClientBuilder {
    // No redirects: a token goes where it was meant to go.
    reqwest::Client::builder()
        .user_agent(format!("parhelia-cli/{}", parhelia_core::VERSION))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
}

impl Client {
    pub(crate) fn local(home: &Path, start: Option<Autostart>, clock: SystemClock) -> Result<Self> {
        let socket = socket_path(home)?;
        let place = socket.display().to_string();
        // No certificates are needed, so none are loaded.
        let http =
            builder().tls_certs_only([]).no_proxy().unix_socket(socket).build().map_err(|e| unusable(&e))?;
        Ok(Self { http, base: "http://localhost".to_owned(), place, start, remote: false, clock })
    }

    pub(crate) fn remote(
        url: &str,
        token_file: Option<&Path>,
        clock: SystemClock,
        out: &Out,
    ) -> Result<Self> {
        let wrong = |why: String| {
            CliError::usage(format!("'{url}' is not the address of a server: {why}"))
                .fix("write it like http://127.0.0.1:7717 or https://parhelia.example.com")
        };
        let parsed = reqwest::Url::parse(url.trim()).map_err(|e| wrong(e.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(wrong("it must begin with http:// or https://".to_owned()));
        }
        let host = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let loopback =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let mut builder = builder();
        if loopback {
            builder = builder.no_proxy();
        }
        if parsed.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        if let Some(token) = token(token_file)? {
            if parsed.scheme() == "http" && !loopback {
                out.note(&format!("warning: the token goes to {host} unencrypted; use https"));
            }
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| CliError::usage("the token has characters that no token has"))?;
            value.set_sensitive(true);
            builder = builder.default_headers(HeaderMap::from_iter([(AUTHORIZATION, value)]));
        }
        let http = builder.build().map_err(|e| unusable(&e))?;
        let base = parsed.as_str().trim_end_matches('/').trim_end_matches("/api/v1").to_owned();
        Ok(Self { http, place: base.clone(), base, start: None, remote: true, clock })
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// `GET /api/v1{path}`
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<T> {
        self.decode(&self.get_raw(path, query, Duration::ZERO).await?)
    }

    /// `GET /api/admin{path}`
    pub(crate) async fn get_admin<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = Request { root: "/api/admin", ..Request::new(Method::GET, path) };
        self.decode(&self.send(request, Repeat::Safe).await?)
    }

    /// A question that the server may hold for `hold` before it answers.
    pub(crate) async fn get_held<T: DeserializeOwned>(
        &self,
        path: &str,
        query: Query<'_>,
        hold: Duration,
    ) -> Result<T> {
        self.decode(&self.get_raw(path, query, hold).await?)
    }

    pub(crate) async fn get_raw(&self, path: &str, query: Query<'_>, hold: Duration) -> Result<Answer> {
        let request = Request { query, patience: PATIENCE + hold, ..Request::new(Method::GET, path) };
        self.send(request, Repeat::Safe).await
    }

    /// `POST /api/v1{path}`, of something that must not be done twice.
    pub(crate) async fn post_once<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T> {
        self.decode(&self.post(path, Some(encode(body)?), PATIENCE, Repeat::Never).await?)
    }

    /// `POST /api/v1{path}`, of something that may be asked again.
    pub(crate) async fn post_again<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T> {
        self.decode(&self.post(path, Some(encode(body)?), PATIENCE, Repeat::Safe).await?)
    }

    /// A bare `POST`, whose answer may take long.
    pub(crate) async fn post_bare<T: DeserializeOwned>(&self, path: &str, patience: Duration) -> Result<T> {
        self.decode(&self.post(path, None, patience, Repeat::Safe).await?)
    }

    async fn post(
        &self,
        path: &str,
        body: Option<Vec<u8>>,
        patience: Duration,
        repeat: Repeat,
    ) -> Result<Answer> {
        self.send(Request { body, patience, ..Request::new(Method::POST, path) }, repeat).await
    }

    /// Asks a running server to stop. `false` when none is there.
    pub(crate) async fn shut_down(&self) -> Result<bool> {
        let request = Request::new(Method::POST, "/server/shutdown");
        match self.exchange(&request).await {
            Ok(answer) => self.judge(answer).map(|_| true),
            Err(Transport::NoServer) => Ok(false),
            // It may have left before it had answered; whoever asked looks whether it is gone.
            Err(Transport::Broken(_)) => Ok(true),
            Err(other) => Err(other.into_error(&self.place, self.remote)),
        }
    }

    /// Whether somebody answers there at all.
    pub(crate) async fn is_served(&self) -> Result<bool> {
        match self.probe("/livez").await {
            Ok(_) | Err(Transport::TimedOut | Transport::Broken(_)) => Ok(true),
            Err(Transport::NoServer) => Ok(false),
            Err(other) => Err(other.into_error(&self.place, self.remote)),
        }
    }

    async fn probe(&self, path: &str) -> Result<bool, Transport> {
        let url = format!("{}{path}", self.base);
        let request = self.http.get(url).timeout(Duration::from_secs(2));
        request.send().await.map(|response| response.status().is_success()).map_err(|e| Transport::of(&e))
    }

    async fn send(&self, request: Request<'_>, repeat: Repeat) -> Result<Answer> {
        self.judge(self.deliver(request, repeat).await?)
    }

    /// A message to `/mcp`. What the protocol itself answers, errors too, is for the caller.
    pub(crate) async fn mcp(&self, headers: HeaderMap, message: Vec<u8>, twice: bool) -> Result<Vec<u8>> {
        let request =
            Request { root: "", headers, body: Some(message), ..Request::new(Method::POST, "/mcp") };
        let answer = self.deliver(request, if twice { Repeat::Safe } else { Repeat::Never }).await?;
        let kind = answer.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if kind.starts_with("application/json") {
            return Ok(answer.body);
        }
        self.judge(answer).map(|answer| answer.body)
    }

    /// Whatever is answered, by a server that is started or waited for when it has to be.
    async fn deliver(&self, request: Request<'_>, repeat: Repeat) -> Result<Answer> {
        let mut started = false;
        let mut broken = 0;
        loop {
            let trouble = match self.exchange(&request).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            tracing::debug!(place = self.place, path = request.path, ?trouble, "no answer");
            match (trouble, &self.start) {
                // Nothing was sent, so any question may be asked again once somebody listens.
                (Transport::NoServer, Some(start)) if !started => {
                    start.run(&self.clock, async || self.probe("/readyz").await == Ok(true)).await?;
                    started = true;
                }
                (Transport::Broken(_), _) if repeat == Repeat::Safe && broken < REPEATS => broken += 1,
                // It is being restarted: a moment ago it was there.
                (Transport::NoServer, _) if (1..REPEATS).contains(&broken) => broken += 1,
                (trouble, _) => return Err(trouble.into_error(&self.place, self.remote)),
            }
            if broken > 0 {
                tokio::time::sleep(Duration::from_millis(100 << broken.min(4))).await;
            }
        }
    }

    async fn exchange(&self, request: &Request<'_>) -> Result<Answer, Transport> {
        let url = format!("{}{}{}", self.base, request.root, request.path);
        let mut outgoing = self.http.request(request.method.clone(), url).timeout(request.patience);
        outgoing = outgoing.headers(request.headers.clone());
        if !request.query.is_empty() {
            outgoing = outgoing.query(request.query);
        }
        if let Some(body) = &request.body {
            outgoing = outgoing.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let trouble = |e: reqwest::Error| Transport::of(&e);
        let response = outgoing.send().await.map_err(trouble)?;
        tracing::debug!(path = request.path, status = response.status().as_u16(), "answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(trouble)?.to_vec();
        Ok(Answer { status, headers, body })
    }

    /// A problem becomes an error; anything else is for the caller.
    fn judge(&self, answer: Answer) -> Result<Answer> {
        if answer.status.is_success() {
            return Ok(answer);
        }
        let status = answer.status;
        match serde_json::from_slice::<Problem>(&answer.body) {
            Ok(problem) => Err(problem.into()),
            Err(_) => {
                let text = String::from_utf8_lossy(&answer.body);
                let first = text.lines().next().unwrap_or_default().chars().take(200).collect::<String>();
                Err(CliError::from(Problem {
                    kind: String::new(),
                    title: status.to_string(),
                    status: status.as_u16(),
                    detail: format!("{} answered {status} {first}", self.place).trim_end().to_owned(),
                    code: format!("http_{}", status.as_u16()),
                    fix: String::new(),
                }))
            }
        }
    }

    fn decode<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T> {
        serde_json::from_slice(&answer.body).map_err(|error| {
            CliError::failure(
                "unexpected_answer",
                format!("{} answered something unexpected: {error}", self.place),
            )
            .fix("is it a Parhelia server of this version? See 'parhelia version --server'")
        })
    }
}

fn encode<B: Serialize>(body: &B) -> Result<Vec<u8>> {
    serde_json::to_vec(body)
        .map_err(|error| CliError::failure("client", format!("cannot write the request: {error}")))
}

/// The token for a remote server: from the environment, or from a file, never from the command line.
fn token(file: Option<&Path>) -> Result<Option<String>> {
    if let Some(token) = std::env::var("PARHELIA_TOKEN").ok().filter(|token| !token.trim().is_empty()) {
        return Ok(Some(token.trim().to_owned()));
    }
    let Some(file) = file else { return Ok(None) };
    match std::fs::read_to_string(file) {
        Ok(text) if text.trim().is_empty() => {
            Err(CliError::new(Exit::Usage, "usage", format!("the token file {} is empty", file.display())))
        }
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) => Err(CliError::io(format!("cannot read the token file {}", file.display()), &error)),
    }
}

/// One segment of a path, so that no id can become another address.
pub(crate) fn segment(id: &str) -> Result<String> {
    if id.trim().is_empty() || matches!(id, "." | "..") {
        return Err(
            CliError::usage(format!("'{id}' is not an id")).fix("ids are listed by 'parhelia containers'")
        );
    }
    let mut out = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_one_segment() {
        assert_eq!(segment("c-01k9").unwrap(), "c-01k9");
        assert_eq!(segment("../server?x#y z").unwrap(), "..%2Fserver%3Fx%23y%20z");
        assert!(segment("..").is_err() && segment(" ").is_err());
    }

    #[test]
    fn a_home_that_is_too_deep_says_so() {
        assert!(socket_path(Path::new("/home/someone/.parhelia")).is_ok());
        let exactly = "/".to_owned() + &"x".repeat(SOCKET_PATH_MAX - 1 - "/parhelia.sock".len());
        assert!(socket_path(Path::new(&exactly)).is_ok());
        let error = socket_path(Path::new(&(exactly + "x"))).unwrap_err();
        assert_eq!((error.exit.code(), error.fix.as_str()), (2, "use a shorter PARHELIA_HOME"));
    }
}
