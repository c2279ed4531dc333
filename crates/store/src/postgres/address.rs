//! Where the database is and how it is reached. Owns the URL with its password, which leaves this module only
//! towards the driver; everything that is shown goes through `Display`, which has none.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Result, StoreError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer that has vanished without a word is believed in.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// What comes over a connection besides answers; polling it is what drives the connection.
pub type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send + 'static>>;

#[derive(Clone)]
pub(super) struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    shown: Arc<str>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shown).finish()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Is it a PostgreSQL address, and not the path of a file?
pub fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// The same address without its password, to show to people.
pub fn redacted(url: &str) -> String {
    match Address::parse(url) {
        Ok(address) => address.to_string(),
        Err(_) => "postgres://…".to_owned(),
    }
}

/// Whether it can be understood at all; says why not, and never repeats what was given.
pub fn check_url(url: &str) -> Result<()> {
    Address::parse(url).map(drop)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Trust {
    Plain,
    /// Encrypted, as libpq's `require`: against listening, not against an impostor.
    Anybody,
    /// The certificate must be signed by a root that we know, and be for this host.
    Verified {
        root: Option<PathBuf>,
    },
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        well_put_together(url)?;
        let (url, trust) = take_tls_options(url)?;
        let mut config: Config = url.parse().map_err(|_| bad("it is not a PostgreSQL URL"))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(bad("it names no host"));
        }
        // As with libpq: a unix socket needs no encryption and has no name that a certificate could be for.
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)))
            && config.get_hostaddrs().is_empty();
        let trust = if local { Trust::Plain } else { trust };
        config.ssl_mode(if trust == Trust::Plain { SslMode::Disable } else { SslMode::Require });
        if config.get_application_name().is_none() {
            config.application_name("parhelia");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        config.keepalives_idle(Duration::from_secs(15)).keepalives_interval(Duration::from_secs(5));
        let shown = shown(&config).into();
        let tls = tls(trust)?.map(MakeRustlsConnect::new);
        Ok(Self { config, tls, shown })
    }

    pub(super) async fn connect(&self) -> Result<(Client, Messages), tokio_postgres::Error> {
        use futures::stream::poll_fn;
        Ok(match &self.tls {
            None => {
                let (client, mut connection) = self.config.connect(NoTls).await?;
                (client, Box::pin(poll_fn(move |cx| connection.poll_message(cx))))
            }
            Some(tls) => {
                let (client, mut connection) = self.config.connect(tls.clone()).await?;
                (client, Box::pin(poll_fn(move |cx| connection.poll_message(cx))))
            }
        })
    }
}

fn bad(why: &str) -> StoreError {
    StoreError::Unavailable {
        what: format!("the database address cannot be used: {why}"),
        fix: "write it as postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full, with special \
              characters of the password percent-encoded"
            .into(),
    }
}

/// With a password that is not encoded, what is left of it would be taken for the host, and be looked up and shown.
fn well_put_together(url: &str) -> Result<()> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = base.split_once('/').unwrap_or((base, ""));
    let misplaced = authority.matches('@').count() > 1
        || path.contains('@')
        || (query.contains('@') && !authority.contains('@'));
    if misplaced {
        return Err(bad("an '@' is where none can be: in a password '@' is %40, '/' is %2F, '?' is %3F"));
    }
    Ok(())
}

/// What an address may say besides: the driver's own parameters.
const PARAMETERS: [&str; 18] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// The driver knows fewer modes than libpq: ours are taken out of the query before it sees it.
fn take_tls_options(url: &str) -> Result<(String, Trust)> {
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), Trust::Plain)) };
    let (mut mode, mut root, mut rest) = ("prefer".to_owned(), None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = value.to_owned(),
            Some(("sslrootcert", value)) => root = Some(PathBuf::from(value.replace("%2F", "/"))),
            Some(("sslcert" | "sslkey", _)) => {
                return Err(bad(
                    "certificates of clients (sslcert, sslkey) are not supported; use a password",
                ));
            }
            Some((name, _)) if PARAMETERS.contains(&name) => rest.push(pair),
            _ => {
                return Err(bad(&format!("it has a parameter that is not one of {}", PARAMETERS.join(", "))));
            }
        }
    }
    let trust = match mode.as_str() {
        "disable" | "allow" | "prefer" => Trust::Plain,
        "require" if root.is_none() => Trust::Anybody,
        "require" | "verify-ca" | "verify-full" => Trust::Verified { root },
        _ => return Err(bad("sslmode must be disable, prefer, require, verify-ca or verify-full")),
    };
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, trust))
}

fn tls(trust: Trust) -> Result<Option<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|_| bad("TLS cannot be set up"))
    };
    match trust {
        Trust::Plain => Ok(None),
        Trust::Anybody => {
            let verifier = Arc::new(AnyCertificate(provider.clone()));
            let config = builder()?.dangerous().with_custom_certificate_verifier(verifier);
            Ok(Some(config.with_no_client_auth()))
        }
        Trust::Verified { root } => {
            let config = builder()?.with_root_certificates(roots(root)?);
            Ok(Some(config.with_no_client_auth()))
        }
    }
}

fn roots(file: Option<PathBuf>) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    let certificates: Vec<CertificateDer<'static>> = match &file {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|e| bad(&format!("sslrootcert {} cannot be read ({e})", path.display())))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    store.add_parsable_certificates(certificates);
    if store.is_empty() {
        return Err(bad("there is no root certificate to verify the server with: name one with sslrootcert"));
    }
    Ok(store)
}

/// Signatures of the handshake are still checked; only whose certificate it is, is not.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn shown(config: &Config) -> String {
    let user = config.get_user().map(|user| format!("{}@", plain(user))).unwrap_or_default();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(i, host)| {
            let ports = config.get_ports();
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{}:{port}", plain(name)),
                Host::Unix(path) => format!("[{}]:{port}", plain(&path.display().to_string())),
            }
        })
        .collect();
    let database = plain(config.get_dbname().unwrap_or_default());
    format!("postgres://{user}{}/{database}", hosts.join(","))
}

/// Of an address that was put together wrongly, a part may hold what was meant as the password.
fn plain(part: &str) -> &str {
    if part.contains(['@', '=']) { "…" } else { part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let url = "postgres://ann:s3cret@db.example:5433/fleet?sslmode=require";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.to_string(), "postgres://ann@db.example:5433/fleet");
        assert!(!format!("{address:?}").contains("s3cret"));
        for broken in ["postgres://ann:s3cret@h:s3cret/d", "postgres://ann:s3cret@h/d?sslmode=s3cret"] {
            let error = check_url(broken).unwrap_err().to_string();
            assert!(!error.contains("s3cret") && error.contains("postgres://USER"), "{error}");
        }
        assert_eq!(redacted("postgres://ann:s3cret@h:s3cret/d"), "postgres://…");
        for unencoded in ["p@s3cret", "p@s3cret/x", "p/s3cret", "p?s3cret", "p@s3cret?x=y"] {
            let url = format!("postgres://ann:{unencoded}@db.example:5433/fleet");
            let error = check_url(&url).unwrap_err().to_string();
            assert!(!error.contains("s3cret") && error.contains("percent-encoded"), "{unencoded}: {error}");
            assert_eq!(redacted(&url), "postgres://…");
        }
        check_url("postgres://ann:p%40s@db.example:5433/fleet?application_name=a@b").unwrap();
    }

    #[test]
    fn a_parameter_that_nobody_knows_is_named_as_that() {
        let told = |query: &str| check_url(&format!("postgres://h/d?{query}")).unwrap_err().to_string();
        assert!(told("bogus=1").contains("is not one of user, password"));
        assert!(told("sslcert=a&sslkey=b").contains("certificates of clients"));
        check_url("postgres:///d?host=/run/postgresql&connect_timeout=3").unwrap();
    }

    #[test]
    fn the_modes_of_tls_are_those_of_libpq() {
        let trust = |query: &str| take_tls_options(&format!("postgres://h/d{query}")).unwrap().1;
        assert_eq!(trust(""), Trust::Plain);
        assert_eq!(trust("?sslmode=prefer"), Trust::Plain);
        assert_eq!(trust("?sslmode=require"), Trust::Anybody);
        assert_eq!(trust("?connect_timeout=3&sslmode=verify-full"), Trust::Verified { root: None });
        let (url, _) = take_tls_options("postgres://h/d?port=1&sslmode=require&user=d").unwrap();
        assert_eq!(url, "postgres://h/d?port=1&user=d");
        assert!(Address::parse("postgres://h/d?sslmode=require").unwrap().tls.is_some());
    }
}
