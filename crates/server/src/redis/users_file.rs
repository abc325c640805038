//! The file of users: read when the node starts and by `ACL LOAD`, written by `ACL SAVE`.
//!
//! Invariant: what is read is bounded, and what is wrong in it is told by its line; nothing of it is logged.

use super::node::NodeSettings;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tierstone::replace_file;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_redis::{USERS_FILE_BYTES_MAX, Users};

/// The users that a node begins with; `None`: there is no file.
pub(super) fn read_users(settings: &NodeSettings) -> Result<Option<Arc<Users>>> {
    let Some(path) = settings.users_file.as_deref() else { return Ok(None) };
    let wrong = |text: String| Error::new(ErrorKind::InvalidInput, text);
    let bytes = read(Some(path)).map_err(|error| wrong(error.message().to_owned()))?;
    let users = Users::with_password(&settings.password);
    users.of_file(&shown(Some(path)), &bytes).map(|users| Some(Arc::new(users))).map_err(wrong)
}

/// Its path as clients see it; empty: there is none.
pub(super) fn shown(path: Option<&Path>) -> String {
    path.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string())
        .unwrap_or_default()
}

/// Its bytes, and one more at most than it may have.
pub(super) fn read(path: Option<&Path>) -> Result<Vec<u8>> {
    let Some(path) = path else { return Err(no_file()) };
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(USERS_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => {
            let text = format!("Error loading ACLs, opening file '{}': {error}", path.display());
            Err(Error::new(ErrorKind::Retry, text))
        }
    }
}

/// Gives it other bytes, durably.
pub(super) fn write(path: Option<&Path>, bytes: &[u8]) -> Result<()> {
    let Some(path) = path else { return Err(no_file()) };
    replace_file(path, bytes).map_err(|error| {
        tracing::error!(%error, "the file of users could not be written");
        let text =
            "There was an error trying to save the ACLs. Please check the server logs for more information";
        Error::new(ErrorKind::Retry, text)
    })
}

fn no_file() -> Error {
    Error::new(ErrorKind::Retry, "the server has no file of users")
}
