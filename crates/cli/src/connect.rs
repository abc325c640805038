//! How subcommands that talk to a server log in and encrypt their connections: the same flags for all of them.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_client::{Connection, ConnectionSettings, TlsFiles};

/// Where a password is found that is not given: other users of the machine see the flags of a process.
const PASSWORD_VARIABLE: &str = "TIERSTONE_PASSWORD";

/// Flags of a client that may log in, and speak TLS.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectArgs {
    /// The user that the server wants with AUTH [default: the default user]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The password that the server wants with AUTH [default: that in the variable TIERSTONE_PASSWORD]
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
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

impl ConnectArgs {
    /// The files that were given; `None`: the connection is in the clear.
    pub fn files(&self) -> Option<TlsFiles> {
        let ca_cert_file = self.cacert.clone().filter(|_| self.tls)?;
        Some(TlsFiles { ca_cert_file, cert_file: self.cert.clone(), key_file: self.key.clone() })
    }

    /// Refuses to be given where nobody is connected to.
    ///
    /// # Errors
    /// `InvalidInput`: TLS was asked for, or a login, which need `flag`.
    pub fn needs(&self, flag: &str) -> Result<()> {
        let given =
            [("--tls", self.tls), ("--user", self.user.is_some()), ("--password", self.password.is_some())];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Error::new(ErrorKind::InvalidInput, format!("{name} needs {flag}"))),
            None => Ok(()),
        }
    }

    /// The user, if one was named.
    pub fn user(&self) -> Option<String> {
        self.user.clone()
    }

    /// The password, of the flag or of the environment.
    ///
    /// # Errors
    /// `InvalidInput`: a user without one.
    pub fn password(&self) -> Result<Option<String>> {
        let password = self.password.clone().or_else(|| std::env::var(PASSWORD_VARIABLE).ok());
        if password.is_none() && self.user.is_some() {
            let message = format!("--user needs --password, or the password in {PASSWORD_VARIABLE}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(password)
    }

    /// Connects to `address`, a host and a port or `unix:PATH`, with one timeout for everything, and logs in.
    ///
    /// # Errors
    /// Those of the files and of [`Connection::connect_over`]; `InvalidInput`: the server refuses the login.
    pub fn connect(&self, address: &str, timeout: Duration) -> Result<Connection> {
        let tls = self.files().map(|files| files.load()).transpose()?;
        let password = self.password()?;
        let settings = ConnectionSettings::with_timeout(timeout);
        let mut connection = Connection::connect_over(address, &settings, tls.as_ref())?;
        if let Some(password) = password {
            let user = self.user.as_deref().unwrap_or("default");
            let answer =
                speaks(address, connection.command(&[b"AUTH", user.as_bytes(), password.as_bytes()]))?;
            if let Some(text) = answer.error() {
                return Err(Error::new(ErrorKind::InvalidInput, format!("the server refuses: {text}")));
            }
        }
        // Whatever it answers, an error too: who speaks another protocol is told apart before something is taken for damage.
        speaks(address, connection.command(&[b"PING"]))?;
        Ok(connection)
    }
}

/// The first answer of the server at `address`.
fn speaks<T>(address: &str, answer: Result<T>) -> Result<T> {
    answer.map_err(|error| match error.kind() {
        ErrorKind::Incompatible => {
            let message = format!("{address} is not the address of such a server: {}", error.message());
            Error::new(ErrorKind::InvalidInput, message)
        }
        _ => error,
    })
}
