//! When a certificate ends.

use parhelia_core::Timestamp;
use parhelia_core::doctor::{self, Finding};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Of the first certificate in the file: the server's own.
pub fn expiry(path: &str, now: Timestamp) -> Finding {
    let fix = "give the certificate with its chain in PEM (server.tls_cert)";
    let first = match CertificateDer::from_pem_file(path) {
        Ok(first) => first,
        Err(error) => return Finding::error(format!("{path} cannot be read: {error}"), fix),
    };
    match Certificate::from_der(&first) {
        Ok(certificate) => {
            let end = certificate.tbs_certificate.validity.not_after.to_unix_duration().as_secs();
            let end = i64::try_from(end).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
            doctor::certificate(path, end.unwrap_or(Timestamp::MAX), now)
        }
        Err(error) => Finding::error(format!("{path} holds no certificate: {error}"), fix),
    }
}
