//! A backup of a running server: its frames come over the connection (`DEBUG BACKUP`), and are checked before they are
//! written.

use crate::connect::ConnectArgs;
use std::path::Path;
use std::time::Duration;
use tierstone::{BackupBase, BackupProgress, BackupReport, BackupWriter};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_client::{Connection, Value};

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn run(
    (server, connect): (&str, &ConnectArgs),
    (out, since): (&Path, Option<&Path>),
    show: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    let mut connection = connect.connect(server, TIMEOUT)?;
    let base = since.map(tierstone::backup_base).transpose()?;
    let told = base.as_ref().map(BackupBase::encode);
    let words: Vec<&[u8]> = [&b"DEBUG"[..], b"BACKUP", b"START"].into_iter().chain(told.as_deref()).collect();
    let Value::Bulk(start) = ask(&mut connection, &words)? else {
        return Err(odd());
    };
    // Nothing is made where the server refuses.
    let mut writer = BackupWriter::create_on(out, base).map_err(|error| super::at(error, out))?;
    writer.frame(&start)?;
    loop {
        match ask(&mut connection, &[b"DEBUG", b"BACKUP", b"NEXT"])? {
            Value::Bulk(frame) => writer.frame(&frame)?,
            Value::Simple(_) => return writer.complete(),
            _ => return Err(odd()),
        }
        show(writer.progress());
    }
}

/// The server's answer; what it refuses is an error.
fn ask(connection: &mut Connection, words: &[&[u8]]) -> Result<Value> {
    let answer = connection.command(words)?;
    let Some(text) = answer.error() else { return Ok(answer) };
    let kind = match &*text {
        text if text.contains("given up") => ErrorKind::SnapshotLost,
        text if text.contains("under way") || text.contains("batches went on") => ErrorKind::Busy,
        text if text.contains("corrupt record") => ErrorKind::Corrupt,
        text if text.starts_with("MISCONF") => ErrorKind::DeviceFailed,
        _ => ErrorKind::InvalidInput,
    };
    Err(Error::new(kind, format!("the server refuses: {text}")))
}

fn odd() -> Error {
    Error::new(ErrorKind::Incompatible, "the server's answer to DEBUG BACKUP cannot be understood")
}
