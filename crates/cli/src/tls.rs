//! How subcommands that talk to a server encrypt their connections: the same flags for all of them.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_client::{Connection, ConnectionSettings, TlsFiles};

/// Flags of a client that may speak TLS.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Speak TLS to the server, whose certificate must name its host and be signed by one of --cacert
    #[arg(long, requires = "cacert")]
    tls: bool,
    /// The roots of servers' certificates, as PEM
    #[arg(long, value_name = "FILE", requires = "tls")]
    cacert: Option<PathBuf>,
    /// The certificate to show to the server, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// The private key of --cert, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"])]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// The files that were given; `None`: the connection is in the clear.
    pub fn files(&self) -> Option<TlsFiles> {
        let ca_cert_file = self.cacert.clone().filter(|_| self.tls)?;
        Some(TlsFiles { ca_cert_file, cert_file: self.cert.clone(), key_file: self.key.clone() })
    }

    /// Refuses to be given where nobody is connected to.
    ///
    /// # Errors
    /// `InvalidInput`: TLS was asked for, which needs `flag`.
    pub fn needs(&self, flag: &str) -> Result<()> {
        match self.tls {
            true => Err(Error::new(ErrorKind::InvalidInput, format!("--tls needs {flag}"))),
            false => Ok(()),
        }
    }

    /// Connects to `address`, a host and a port, with one timeout for everything.
    ///
    /// # Errors
    /// Those of the files and of [`Connection::connect_over`].
    pub fn connect(&self, address: &str, timeout: Duration) -> Result<Connection> {
        let tls = self.files().map(|files| files.load()).transpose()?;
        Connection::connect_over(address, &ConnectionSettings::with_timeout(timeout), tls.as_ref())
    }
}
