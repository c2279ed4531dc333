//! The connection to one engine: where it is, which version of its interface both sides speak, and what its
//! errors mean. It keeps no connection open between two questions, so an engine that is replaced behind the
//! same socket is simply the one that answers next.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::errors::Error;
use bollard::{ClientVersion, Docker};
use tokio::sync::Mutex;

use crate::ProviderError;

/// Tried in this order: the newest that engines of today still have to speak, and that of Docker 20.10.
const VERSIONS: [(usize, usize); 2] = [(1, 44), (1, 41)];
const NEGOTIATE_WAIT: Duration = Duration::from_secs(10);
pub(crate) const USUAL_SOCKET: &str = "/var/run/docker.sock";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(String),
    Tls { address: String, certificates: PathBuf },
}

impl Address {
    /// By the configuration, else by the environment as every Docker client reads it, else the usual socket.
    pub fn find(
        host: Option<&str>,
        cert_path: Option<&str>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let given = |name: &str| env(name).filter(|value| !value.is_empty());
        let Some(host) = host.map(str::to_owned).or_else(|| given("DOCKER_HOST")) else {
            return Ok(Self::Unix(PathBuf::from(USUAL_SOCKET)));
        };
        if let Some(path) = host.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self::Unix(PathBuf::from(path)))
            } else {
                Err(format!("'{host}' is not a socket: write unix:///path"))
            };
        }
        let Some(place) = ["tcp://", "http://", "https://"].iter().find_map(|p| host.strip_prefix(p)) else {
            return Err(format!(
                "'{host}' is not an engine's address: write unix:///path or tcp://host:port"
            ));
        };
        let place = place.trim_end_matches('/');
        let tls = host.starts_with("https://") || given("DOCKER_TLS_VERIFY").is_some();
        match cert_path.map(str::to_owned).or_else(|| given("DOCKER_CERT_PATH").filter(|_| tls)) {
            Some(certificates) => {
                Ok(Self::Tls { address: format!("tcp://{place}"), certificates: PathBuf::from(certificates) })
            }
            None if tls => Err(format!(
                "{host} wants TLS: set docker.cert_path (or DOCKER_CERT_PATH) to a directory with ca.pem, cert.pem, key.pem"
            )),
            None => Ok(Self::Tcp(format!("tcp://{place}"))),
        }
    }

    /// On this machine, so that a path means the same to the engine and to us.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    fn connect(&self, timeout: Duration, version: (usize, usize)) -> Result<Docker, Error> {
        let version = &ClientVersion { major_version: version.0, minor_version: version.1 };
        let seconds = timeout.as_secs().max(1);
        match self {
            Self::Unix(path) => Docker::connect_with_unix(&path.to_string_lossy(), seconds, version),
            Self::Tcp(address) => Docker::connect_with_http(address, seconds, version),
            Self::Tls { address, certificates } => {
                let file = |name: &str| -> PathBuf { Path::new(certificates).join(name) };
                let (key, certificate, authority) = (file("key.pem"), file("cert.pem"), file("ca.pem"));
                Docker::connect_with_ssl(address, &key, &certificate, &authority, seconds, version)
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
            Self::Tls { address, .. } => write!(f, "{address} (TLS)"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) address: Address,
    timeout: Duration,
    /// What was agreed with the engine that answered last. Forgotten when it fails: another may come.
    agreed: Mutex<Option<Docker>>,
}

impl Engine {
    pub(crate) fn new(address: Address, timeout: Duration) -> Self {
        Self { address, timeout, agreed: Mutex::default() }
    }

    pub(crate) async fn client(&self) -> Result<Docker, ProviderError> {
        let mut agreed = self.agreed.lock().await;
        if let Some(docker) = agreed.as_ref() {
            return Ok(docker.clone());
        }
        let mut last = None;
        for version in VERSIONS {
            // A path without a socket is the engine being away, not a mistake of ours.
            let docker = match self.address.connect(self.timeout, version) {
                Ok(docker) => docker,
                Err(error) => return Err(self.away(&error)),
            };
            match tokio::time::timeout(NEGOTIATE_WAIT, docker.negotiate_version()).await {
                Ok(Ok(docker)) => {
                    *agreed = Some(docker.clone());
                    return Ok(docker);
                }
                Ok(Err(error)) if status(&error) == Some(400) => last = Some(error),
                Ok(Err(error)) => return Err(self.away(&error)),
                Err(_) => return Err(self.away(&Error::RequestTimeoutError)),
            }
        }
        let why = last.map_or_else(String::new, |error| told(&error));
        Err(ProviderError::Unreachable(format!(
            "the engine at {} speaks no version of the interface that we do ({why}); Docker 20.10 or newer is needed",
            self.address
        )))
    }

    /// An error as the trait has it; whatever was agreed is forgotten unless the engine itself spoke.
    pub(crate) async fn failed(&self, error: &Error) -> ProviderError {
        match status(error) {
            Some(code) if code < 500 && !old_or_new(error) => ProviderError::Rejected(told(error)),
            _ => {
                *self.agreed.lock().await = None;
                self.away(error)
            }
        }
    }

    fn away(&self, error: &Error) -> ProviderError {
        ProviderError::Unreachable(format!("the engine at {} does not answer: {}", self.address, told(error)))
    }
}

/// The engine was exchanged for one of another version.
fn old_or_new(error: &Error) -> bool {
    status(error) == Some(400) && told(error).contains("client version")
}

pub(crate) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// In words for people, with the causes that the outermost error hides.
pub(crate) fn told(error: &Error) -> String {
    if let Error::DockerResponseServerError { message, .. } = error {
        return message.trim().to_owned();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_comes_first_then_the_environment_then_the_usual_socket() {
        let env = |name: &str| match name {
            "DOCKER_HOST" => Some("tcp://far:2375".to_owned()),
            _ => None,
        };
        let find = |host: Option<&str>| Address::find(host, None, env);
        assert_eq!(find(Some("unix:///x.sock")).unwrap(), Address::Unix("/x.sock".into()));
        assert_eq!(find(None).unwrap(), Address::Tcp("tcp://far:2375".into()));
        assert_eq!(Address::find(None, None, |_| None).unwrap(), Address::Unix(USUAL_SOCKET.into()));
        let tls = Address::find(Some("tcp://far:2376"), Some("/certs"), |_| None).unwrap();
        assert_eq!(tls, Address::Tls { address: "tcp://far:2376".into(), certificates: "/certs".into() });
        assert!(find(Some("ssh://far")).is_err() && find(Some("https://far:1")).is_err());
    }
}
