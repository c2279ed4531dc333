//! The certificate and key of the TCP door.

use std::sync::Arc;

use parhelia_core::config::Server;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::serve::ServeError;

/// `None`: none were given.
pub(crate) fn acceptor(server: &Server) -> Result<Option<TlsAcceptor>, ServeError> {
    let (cert, key) = match (&server.tls_cert, &server.tls_key) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        _ => return Err(ServeError::HalfTls),
    };
    let unusable = |path: &str, reason: String| ServeError::Tls { path: path.to_owned(), reason };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
    let chain = chain.map_err(|e| unusable(cert, e.to_string()))?;
    if chain.is_empty() {
        return Err(unusable(cert, "there is no certificate in it".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| unusable(key, e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(cert, e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| unusable(key, e.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}
