//! Backups that were made since others: finding these, and reading what the last one shows.
//!
//! Invariants:
//! 1. A backup is read together with the whole chain that it was made since, each by the id and the manifest that the next
//!    one names: none is missing, exchanged or of another store.
//! 2. Everything of the chain is verified before it is called whole, what no longer counts too.

use super::directory::{FRAMES_FILE, MANIFEST_FILE, open, read};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::BackupRecord;
use tierstone_store::backup::chain::BackupChain;
use tierstone_store::backup::since::BackupBase;
use tierstone_store::backup::{BackupReader, BaseName, FrameHeader, FrameKind, HEADER_BYTES, Taken};

/// Backups of a chain at most; every restore reads all of them.
const CHAIN_MAX: usize = 1_000;
/// Directories beside a backup that are looked at for its base.
const BESIDE_MAX: usize = 10_000;

/// The backups that the one at `path` consists of, the whole one first; `bases` are searched for those that it was made
/// since, then the directories beside it.
///
/// # Errors
/// `InvalidInput`: there is no backup, or one of the chain is not to be found. `Corrupt`: one is damaged, or not complete.
pub(super) fn find(path: &Path, bases: &[PathBuf]) -> Result<Vec<(PathBuf, BackupReader)>> {
    let mut chain = vec![(path.to_path_buf(), skim(path)?)];
    while let Some((newest, reader)) = chain.last() {
        let Some((start, wanted)) = reader.start().and_then(|start| Some((start, start.base?))) else {
            break;
        };
        if chain.len() >= CHAIN_MAX {
            let message = format!("more than {CHAIN_MAX} backups follow each other: no chain is so long");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let wanted = Wanted { newer: newest, name: wanted, store: start.store, shards: start.shards };
        let base = find_base(&wanted, (path, bases))?;
        chain.push(base);
    }
    chain.reverse();
    Ok(chain)
}

/// What the base of a backup is.
struct Wanted<'a> {
    /// The backup that was made since it.
    newer: &'a Path,
    name: BaseName,
    store: u64,
    shards: u16,
}

impl Wanted<'_> {
    /// Reads the backup in a directory, which has the right id, and refuses it if it is not whole, or another one.
    fn read(&self, path: &Path) -> Result<BackupReader> {
        let reader = skim(path)?;
        let is_of_store =
            reader.start().is_some_and(|start| (start.store, start.shards) == (self.store, self.shards));
        if is_of_store && reader.name() == Some(self.name) {
            return Ok(reader);
        }
        let message = format!(
            "{} was made since another backup than the one in {}, although that has the same id: one of them was changed",
            self.newer.display(),
            path.display()
        );
        Err(Error::new(ErrorKind::Corrupt, message))
    }
}

/// The backup that is wanted: among `bases`, or in a directory beside the one that was made since it, or beside the last
/// one of the chain. Copies of it that were broken off or changed are passed over; where there is nothing else the first
/// of them is told.
fn find_base(wanted: &Wanted<'_>, (last, bases): (&Path, &[PathBuf])) -> Result<(PathBuf, BackupReader)> {
    let named = bases.iter().cloned();
    let parents = [wanted.newer, last]
        .into_iter()
        .filter_map(|path| Some(path.canonicalize().ok()?.parent()?.to_path_buf()));
    let beside = parents.filter_map(|parent| std::fs::read_dir(parent).ok()).flatten();
    let beside = beside.take(BESIDE_MAX).flatten().map(|entry| entry.path());
    let has_its_id = |path: &PathBuf| path.is_dir() && id_of(path) == Some(wanted.name.id);
    let mut refused = None;
    for path in named.chain(beside).filter(has_its_id) {
        match wanted.read(&path) {
            Ok(reader) => return Ok((path, reader)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let message = format!(
            "the backup in {} was made since the backup with the id {:016x}, which is neither beside it nor in a \
             directory that was named (--base)",
            wanted.newer.display(),
            wanted.name.id
        );
        Error::new(ErrorKind::InvalidInput, message)
    }))
}

/// What the first frame of the backup in a directory says its id is, if it is whole.
fn id_of(path: &Path) -> Option<u64> {
    let mut file = File::open(path.join(FRAMES_FILE)).ok()?;
    let mut head = [0; HEADER_BYTES];
    file.read_exact(&mut head).ok()?;
    let len = FrameHeader::decode(&head).ok()?.len;
    let mut payload = Vec::new();
    file.take(len as u64).read_to_end(&mut payload).ok()?;
    let mut reader = BackupReader::default();
    reader.take(&head, &payload).ok()?;
    reader.start().map(|start| start.id)
}

/// Reads all of the backup in a directory but its records: that frames follow each other and the manifest agrees with
/// what their heads say is checked.
pub(super) fn skim(path: &Path) -> Result<BackupReader> {
    if !path.is_dir() {
        let message = format!("{} is no directory with a backup", path.display());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    // What is missing is told as for reading it.
    drop(open(path)?);
    let in_it = |error: Error| error.context(&format!("the backup in {}", path.display()));
    let mut reader = BackupReader::default();
    for name in [FRAMES_FILE, MANIFEST_FILE] {
        let mut file = BufReader::new(File::open(path.join(name))?);
        skim_file(&mut reader, &mut file).map_err(in_it)?;
    }
    if reader.is_complete() {
        return Ok(reader);
    }
    Err(in_it(Error::new(ErrorKind::Corrupt, "the backup ends too early: it is not complete")))
}

fn skim_file(reader: &mut BackupReader, file: &mut BufReader<File>) -> Result<()> {
    let len = file.get_ref().metadata()?.len();
    let (mut at, mut payload) = (0u64, Vec::new());
    while at < len {
        let mut head = [0; HEADER_BYTES];
        let too_short = |_| Error::new(ErrorKind::Corrupt, "it ends within a frame");
        file.read_exact(&mut head).map_err(too_short)?;
        let header = FrameHeader::decode(&head)?;
        at += (HEADER_BYTES + header.len) as u64;
        if at > len {
            return Err(Error::new(ErrorKind::Corrupt, "it ends within a frame"));
        }
        if header.kind == FrameKind::Records {
            reader.skip(&head)?;
            file.seek_relative(header.len as i64)?;
            continue;
        }
        payload.clear();
        file.take(header.len as u64).read_to_end(&mut payload)?;
        reader.take(&head, &payload)?;
    }
    Ok(())
}

/// The backup in a directory as the base of another one. Cost: what it has besides records is read.
///
/// # Errors
/// `InvalidInput`: there is none, or it is of the first version of the format. `Corrupt`: it is damaged, or not complete.
pub fn backup_base(path: impl AsRef<Path>) -> Result<BackupBase> {
    let path = path.as_ref();
    let reader = skim(path)?;
    match (reader.start(), reader.name()) {
        (Some(start), Some(name)) if start.store != 0 => Ok(BackupBase {
            store: start.store,
            name,
            opening: start.opening,
            taken_at_ms: start.taken_at_ms,
            shards: reader.tables().held(),
        }),
        _ => {
            let message = format!(
                "the backup in {} is of a format without parts, since which none can be made: make a whole one",
                path.display()
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
    }
}

/// Reads the backups of a chain, verifies all of them, and gives `take` each record that the last one shows, once, with
/// its expiry. `progress` is told of bytes. Returns how many records these are, and how many of them keys of users.
pub(super) fn read_chain(
    chain: &[(PathBuf, BackupReader)],
    progress: &mut dyn FnMut(u64),
    mut take: impl FnMut(&BackupRecord<'_>) -> Result<()>,
) -> Result<(u64, u64)> {
    let mut shown = BackupChain::default();
    for (_, reader) in chain {
        let taken_at_ms = reader.start().map_or(0, |start| start.taken_at_ms);
        shown.add(reader.tables(), taken_at_ms)?;
    }
    let (mut records, mut keys, mut before) = (0, 0, 0);
    for (number, (path, skimmed)) in chain.iter().enumerate() {
        let whole = read(&mut *open(path)?, |reader, taken| {
            progress(before + reader.totals().bytes);
            let Taken::Records { records: all, shard } = taken else { return Ok(()) };
            let Some(part) = all.part() else { return Ok(()) };
            for record in all.clone() {
                if let Some(expiry_ms) = shown.shows(number, (*shard, part), &record) {
                    records += 1;
                    keys += u64::from(record.keyspace.is_user());
                    take(&BackupRecord { expiry_ms, ..record })?;
                }
            }
            Ok(())
        });
        let whole = whole.map_err(|error| error.context(&format!("the backup in {}", path.display())))?;
        if whole.name() != skimmed.name() {
            let message = format!("the backup in {} was changed while it was read", path.display());
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        before += whole.totals().bytes;
    }
    shown.check_end()?;
    Ok((records, keys))
}
