//! Backups that were made since others: finding these, and reading what the last one shows.
//!
//! Invariants:
//! 1. A backup is read together with the whole chain that it was made since, each by the id and the manifest that the next
//!    one names: none is missing, exchanged or of another store.
//! 2. Everything of the chain is verified before it is called whole, what no longer counts too.

use super::directory::{FRAMES_FILE, MANIFEST_FILE, open, read};
use super::{BackupProgress, BackupReport};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::BackupRecord;
use tierstone_store::backup::chain::BackupChain;
use tierstone_store::backup::since::BackupBase;
use tierstone_store::backup::{
    BackupReader, BackupStart, BaseName, FrameHeader, FrameKind, HEADER_BYTES, Taken,
};

/// Backups of a chain at most; every restore reads all of them.
const CHAIN_MAX: usize = 1_000;
/// Directories beside a backup that are looked at for its base.
const BESIDE_MAX: usize = 10_000;

/// The backups that one consists of, the whole one first. Their tables are not kept: there may be a thousand of them.
pub(super) struct Chain {
    pub links: Vec<Link>,
    /// What the last one is of.
    pub start: BackupStart,
}

/// A backup of a chain that was skimmed, and is whole.
pub(super) struct Link {
    pub path: PathBuf,
    name: Option<BaseName>,
    /// Of the backup that it was made since.
    base: Option<BaseName>,
    bytes: u64,
}

impl Link {
    fn new(path: &Path, reader: &BackupReader) -> Link {
        let base = reader.start().and_then(|start| start.base);
        Link { path: path.to_path_buf(), name: reader.name(), base, bytes: reader.totals().bytes }
    }

    /// Refuses what was read of it again if it is another one by now.
    fn check_same(&self, reader: &BackupReader) -> Result<()> {
        if reader.name() == self.name {
            return Ok(());
        }
        let message = format!("the backup in {} was changed while it was read", self.path.display());
        Err(Error::new(ErrorKind::Corrupt, message))
    }
}

impl Chain {
    /// Bytes of records in all of them.
    pub fn bytes(&self) -> u64 {
        self.links.iter().map(|link| link.bytes).sum()
    }

    /// The tables of all of them together, which are read once more, each by itself.
    fn shown(&self) -> Result<BackupChain> {
        let mut shown = BackupChain::default();
        for link in &self.links {
            let reader = skim(&link.path)?;
            link.check_same(&reader)?;
            let taken_at_ms = reader.start().map_or(0, |start| start.taken_at_ms);
            shown.add(reader.into_tables(), taken_at_ms)?;
        }
        Ok(shown)
    }
}

/// The backups that the one at `path` consists of; `bases` are searched for those that it was made since, then the
/// directories beside it.
///
/// # Errors
/// `InvalidInput`: there is no backup, or one of the chain is not to be found. `Corrupt`: one is damaged, or not complete.
pub(super) fn find(path: &Path, bases: &[PathBuf]) -> Result<Chain> {
    let last = skim(path)?;
    let Some(start) = last.start().cloned() else { unreachable!("a backup that is complete has begun") };
    let mut links = vec![Link::new(path, &last)];
    drop(last);
    while let Some((newest, name)) = links.last().and_then(|link| Some((&link.path, link.base?))) {
        if links.len() >= CHAIN_MAX {
            let message = format!("more than {CHAIN_MAX} backups follow each other: no chain is so long");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let wanted = Wanted { newer: newest, name, store: start.store, shards: start.shards };
        let base = find_base(&wanted, (path, bases))?;
        links.push(base);
    }
    links.reverse();
    Ok(Chain { links, start })
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
    fn read(&self, path: &Path) -> Result<Link> {
        let reader = skim(path)?;
        let is_of_store =
            reader.start().is_some_and(|start| (start.store, start.shards) == (self.store, self.shards));
        if is_of_store && reader.name() == Some(self.name) {
            return Ok(Link::new(path, &reader));
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
fn find_base(wanted: &Wanted<'_>, (last, bases): (&Path, &[PathBuf])) -> Result<Link> {
    // Each is a backup itself, or a directory of some.
    let within = bases.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten();
    let within = within.take(BESIDE_MAX).flatten().map(|entry| entry.path());
    let named = bases.iter().cloned().chain(within);
    let parents = [wanted.newer, last]
        .into_iter()
        .filter_map(|path| Some(path.canonicalize().ok()?.parent()?.to_path_buf()));
    let beside = parents.filter_map(|parent| std::fs::read_dir(parent).ok()).flatten();
    let beside = beside.take(BESIDE_MAX).flatten().map(|entry| entry.path());
    let has_its_id = |path: &PathBuf| path.is_dir() && id_of(path) == Some(wanted.name.id);
    let mut refused = None;
    for path in named.chain(beside).filter(has_its_id) {
        match wanted.read(&path) {
            Ok(link) => return Ok(link),
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
/// its expiry. `progress` is told of bytes. Returns what was found.
pub(super) fn read_chain(
    chain: &Chain,
    progress: &mut dyn FnMut(BackupProgress),
    mut take: impl FnMut(&BackupRecord<'_>) -> Result<()>,
) -> Result<BackupReport> {
    let mut shown = chain.shown()?;
    let (mut records, mut keys, mut before, bytes_total) = (0, 0, 0, chain.bytes());
    let mut report = None;
    for (number, link) in chain.links.iter().enumerate() {
        let whole = read(&mut *open(&link.path)?, |reader, taken| {
            progress(BackupProgress { bytes: before + reader.totals().bytes, bytes_total });
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
        let whole =
            whole.map_err(|error| error.context(&format!("the backup in {}", link.path.display())))?;
        link.check_same(&whole)?;
        before += whole.totals().bytes;
        report = Some(BackupReport::of(&whole, keys));
    }
    shown.check_end()?;
    match report {
        Some(report) => Ok(BackupReport { shown: records, bases: chain.links.len() as u64 - 1, ..report }),
        None => unreachable!("a chain has the backup that it was found for"),
    }
}
