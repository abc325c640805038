//! A backup of a store that nobody has open.

use std::path::{Path, PathBuf};
use tierstone::{BackupProgress, BackupReport, BackupWriter, DatabaseOptions, SharedStore};
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_logstore::redo::NewestWrites;

pub(super) fn run(
    directories: Vec<PathBuf>,
    memory: &str,
    (out, since): (&Path, Option<&Path>),
    show: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    BackupWriter::check_apart(out, &directories)?;
    let base = since.map(tierstone::backup_base).transpose()?;
    // What has changed is known by shards.
    let of_base = base.as_ref().and_then(|base| u16::try_from(base.shards.len()).ok());
    let options = DatabaseOptions {
        shards: tierstone::nvm_shards(&directories)?.or(of_base).unwrap_or(1),
        directories,
        memory_bytes: parse_size(memory)?,
        create: false,
        // Nothing is acknowledged here.
        any_guarantee: true,
        ..DatabaseOptions::default()
    };
    let store = SharedStore::open(&options).map_err(|error| without_region(error, &options.directories))?;
    let writer = BackupWriter::create_on(out, base).map_err(|error| super::at(error, out));
    let report = writer.and_then(|writer| store.backup_to(writer, show));
    let closed = store.close();
    let report = report?;
    closed.map(|()| report)
}

/// What a command that takes no region says when it cannot open the store in `directories`: what the opening advises where
/// the newest writes lie in a region is for servers.
pub(crate) fn without_region(error: Error, directories: &[PathBuf]) -> Error {
    if error.kind() != ErrorKind::InvalidInput {
        return error;
    }
    match tierstone::newest_writes(directories) {
        // It cannot be told: the first error says more.
        Ok(NewestWrites::OnDevice) | Err(_) => error,
        Ok(newest @ (NewestWrites::InRegion | NewestWrites::MayBeInRegion)) => {
            let message = format!(
                "{newest}, and this command takes no region: start its server once with the region, as before (--nvm), and \
                 stop it in good order; then everything lies in the files"
            );
            Error::new(ErrorKind::InvalidInput, message)
        }
    }
}
