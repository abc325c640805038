//! The files of TLS: the server's certificate and key, and whose clients' certificates are believed.
//!
//! Invariant: the key is neither logged nor kept beside what rustls keeps of it.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result};

/// Whether clients must have certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsClients {
    /// They are not asked for one.
    No,
    /// Those that show one must show a good one.
    Optional,
    /// All must, the default: without a good one the handshake fails.
    #[default]
    Yes,
}

impl TlsClients {
    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            TlsClients::No => "no",
            TlsClients::Optional => "optional",
            TlsClients::Yes => "yes",
        }
    }
}

/// What TLS is set up from: PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate, and those between it and a root, in order.
    pub cert_file: PathBuf,
    /// The certificate's private key: PKCS #8, PKCS #1 or SEC 1.
    pub key_file: PathBuf,
    /// The roots of clients' certificates.
    pub ca_cert_file: Option<PathBuf>,
    /// Whether clients must have certificates.
    pub auth_clients: TlsClients,
}

impl TlsSettings {
    /// Reads the files: TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// `InvalidInput` with the file and what is wrong with it.
    pub fn load(&self) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?;
        let builder = match (self.auth_clients, &self.ca_cert_file) {
            (TlsClients::No, _) => builder.with_no_client_auth(),
            (_, None) => {
                let text = "clients' certificates are asked for, but there is no tls-ca-cert-file: name one, or say tls-auth-clients no";
                return Err(wrong(&text));
            }
            (clients, Some(path)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| about(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match clients {
                    TlsClients::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                let verifier = verifier.build().map_err(|error| about(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key =
            PrivateKeyDer::from_pem_file(&self.key_file).map_err(|error| about(&self.key_file, &error))?;
        let config = builder
            .with_single_cert(certificates(&self.cert_file)?, key)
            .map_err(|error| about(&self.cert_file, &error))?;
        Ok(Arc::new(config))
    }
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
