//! Whom an encrypted connection believes, and how it shows who it is: PEM files.
//!
//! Invariant: the key is neither logged nor kept beside what rustls keeps of it.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result};

/// The files of TLS, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsFiles {
    /// The roots of servers' certificates.
    pub ca_cert_file: PathBuf,
    /// The client's certificate, and those between it and its root, in order; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The certificate's private key: PKCS #8, PKCS #1 or SEC 1.
    pub key_file: Option<PathBuf>,
}

/// What encrypted connections are set up from: read once, for any number of them.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
}

impl TlsFiles {
    /// Reads the files: TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// `InvalidInput` with the file and what is wrong with it.
    pub fn load(&self) -> Result<Tls> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca_cert_file)? {
            roots.add(certificate).map_err(|error| about(&self.ca_cert_file, &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .with_root_certificates(roots);
        let config = match (&self.cert_file, &self.key_file) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert_file), Some(key_file)) => {
                let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| about(key_file, &error))?;
                let shown = builder.with_client_auth_cert(certificates(cert_file)?, key);
                shown.map_err(|error| about(cert_file, &error))?
            }
            _ => return Err(wrong(&"a certificate and its key belong together: give both or neither")),
        };
        Ok(Tls { config: Arc::new(config) })
    }
}

impl Tls {
    /// The client's side of a connection to `host`, whose certificate must name it.
    pub(crate) fn session(&self, host: &str) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        session.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

/// The host of `HOST:PORT`; of an IPv6 address without its brackets.
pub(crate) fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(|error| about(path, &error))?;
    if found.is_empty() { Err(about(path, &"there is no certificate in it")) } else { Ok(found) }
}

fn about(path: &Path, error: &dyn std::fmt::Display) -> Error {
    wrong(&format!("{}: {error}", path.display()))
}

fn wrong(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("TLS: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses_of_both_kinds() {
        for (address, host) in
            [("localhost:6379", "localhost"), ("127.0.0.1:1", "127.0.0.1"), ("[::1]:6379", "::1"), ("x", "x")]
        {
            assert_eq!(host_of(address), host);
        }
    }

    #[test]
    fn wrong_files_are_named() {
        let files = TlsFiles { ca_cert_file: "no/such/file".into(), ..TlsFiles::default() };
        let error = files.load().expect_err("there is no such file");
        assert!(error.message().contains("no/such/file"), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
