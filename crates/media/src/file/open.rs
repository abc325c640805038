//! Opening and creating a store: which directories belong to it, its lock, its first files.
//!
//! Invariant: a name that is relied upon is durable: what an earlier process made, renamed or removed and did not live to
//! flush is flushed first.
//!
//! Crash: see `marker` for the three steps by which a store is created and grows.

use super::layout::cannot_open;
use super::marker::{DIRECTORY_MODE, FILE_MODE, Marker, at, no_directory, sync_directory, sync_parent};
use super::member::Member;
use super::plan::Place;
use super::settings::FileStoreSettings;
use crate::Geometry;
use crate::lock::LockedFile;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

/// A store whose lock is held and whose directories are all there.
#[derive(Debug)]
pub(crate) struct Opened {
    pub lock: LockedFile,
    /// The marker of member 0.
    pub marker: Marker,
    pub members: Vec<Member>,
}

/// Directories in the order of the store.
struct Survey {
    /// The marker of member 0; `None` when a store is to be created.
    marker: Option<Marker>,
    directories: Vec<PathBuf>,
}

/// What directories say of their store, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStore {
    /// The size of its segments, in bytes.
    pub segment_bytes: u64,
    /// Those of the directories that are no part of it: an opening that may create adds them, and none can be taken away
    /// again.
    pub others: Vec<PathBuf>,
}

/// Looks for a store in `directories` and changes nothing; `None`: there is none, or its making was cut off. It may be
/// another one by the time it is opened. Cost: one small file a directory is read.
///
/// # Errors
/// `Corrupt`: a marker cannot be understood. Others: what the file system says.
pub fn find_store(directories: &[PathBuf]) -> Result<Option<FoundStore>> {
    let (mut first, mut others) = (None, Vec::new());
    for directory in directories {
        match Marker::read(directory)? {
            Some(marker) => first = first.or((marker.index == 0 && marker.ready > 0).then_some(marker)),
            None => others.push(directory.clone()),
        }
    }
    Ok(first.map(|marker| FoundStore { segment_bytes: marker.segment_bytes, others }))
}

/// Finds out whose directories these are, takes the lock, and finishes what creation left undone.
pub(crate) fn open_members(settings: &FileStoreSettings) -> Result<Opened> {
    let directories = canonical(settings)?;
    let first = survey(&directories, settings.create)?.directories.remove(0);
    let lock = take_lock(&first)?;
    // Only under the lock do the markers stand still.
    let Survey { marker, directories } = survey(&directories, settings.create)?;
    if directories[0] != first {
        return Err(Error::new(ErrorKind::Retry, "the store's directories changed while it was opened"));
    }
    let marker = match marker {
        Some(marker) => marker,
        None => Marker {
            store: SeededRandom::system_seed()?,
            index: 0,
            members: directories.len() as u16,
            ready: 0,
            segment_bytes: settings.segment_bytes,
            meta_bytes: settings.meta_bytes,
        },
    };
    let stored = FileStoreSettings {
        segment_bytes: marker.segment_bytes,
        meta_bytes: marker.meta_bytes,
        ..settings.clone()
    };
    stored.check().map_err(|error| foreign(&first, &format!("its marker is out of range: {error}")))?;
    let fits = u64::from(settings.segment_limit)
        .checked_mul(marker.segment_bytes)
        .and_then(|bytes| bytes.checked_add(marker.meta_bytes));
    if fits.is_none_or(|end| end > i64::MAX as u64) {
        let wrong = "segment_limit: the space would end above 2^63 bytes";
        return Err(Error::new(ErrorKind::InvalidInput, wrong));
    }
    flush_names(&directories, marker.ready)?;
    let marker = complete(marker, &directories)?;
    let members = directories
        .iter()
        .map(|directory| Member::open(directory, settings.direct_io))
        .collect::<Result<Vec<_>>>()?;
    ensure_superblock(&members[0], &marker)?;
    let marker = mark_ready(marker, &directories[0])?;
    Ok(Opened { lock, marker, members })
}

/// Where each segment's file is: segment to member.
///
/// # Errors
/// A segment in two directories, or above the limit.
pub(crate) fn find_segments(members: &[Member], geometry: &Geometry) -> Result<BTreeMap<u32, u16>> {
    let mut found: BTreeMap<u32, u16> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        for segment in member.list_segments(geometry.segment_bytes)? {
            if segment >= geometry.segment_limit {
                let limit = geometry.segment_limit;
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("segment_limit {limit} is too low: {} exists", Place::Segment(segment)),
                ));
            }
            if let Some(other) = found.insert(segment, index as u16) {
                let (first, second) = (&members[usize::from(other)].path, &member.path);
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!(
                        "{} is in {} and in {}; remove the copy",
                        Place::Segment(segment),
                        first.display(),
                        second.display()
                    ),
                ));
            }
        }
    }
    Ok(found)
}

/// The directories with links and dots resolved; made first when `create` says so.
fn canonical(settings: &FileStoreSettings) -> Result<Vec<PathBuf>> {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    let failed = |error: std::io::Error, doing: &str, directory: &Path| match error.kind() {
        AlreadyExists | NotADirectory => no_directory(directory),
        _ => at(error, doing, directory),
    };
    let mut directories = Vec::new();
    check_different(&settings.directories)?;
    for directory in &settings.directories {
        if settings.create {
            make_directory(directory).map_err(|error| failed(error, "cannot make", directory))?;
        }
        let resolved = directory.canonicalize().map_err(|error| failed(error, "cannot open", directory))?;
        // By another path, which nobody could tell before the first was made.
        if directories.contains(&resolved) {
            return Err(named_twice(&resolved));
        }
        directories.push(resolved);
    }
    Ok(directories)
}

/// Makes a directory, and those above it that are not there, durably.
fn make_directory(directory: &Path) -> std::io::Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    missing.into_iter().rev().try_for_each(sync_parent)
}

/// Makes the names in all directories durable, and those of directories that hold nothing yet, from the `ready`-th on.
fn flush_names(directories: &[PathBuf], ready: u16) -> Result<()> {
    for directory in &directories[usize::from(ready).min(directories.len())..] {
        sync_parent(directory).map_err(|error| at(error, "cannot make durable the name of", directory))?;
    }
    directories.iter().try_for_each(|directory| sync_directory(directory))
}

/// Refuses directories of which one is named twice, before any is made.
fn check_different(directories: &[PathBuf]) -> Result<()> {
    let mut places = Vec::new();
    for directory in directories {
        let place = match directory.canonicalize() {
            Ok(place) => place,
            Err(_) => std::path::absolute(directory)?,
        };
        if places.contains(&place) {
            return Err(named_twice(directory));
        }
        places.push(place);
    }
    Ok(())
}

fn named_twice(directory: &Path) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("the directory {} is named twice", directory.display()))
}

/// Puts the directories into the order of their store, or says why they are not one store.
fn survey(directories: &[PathBuf], create: bool) -> Result<Survey> {
    let (mut marked, unmarked) = read_markers(directories)?;
    let Some(truth) = marked.get(&0).map(|(_, marker)| *marker) else {
        return match marked.pop_first() {
            Some((index, (directory, _))) => Err(first_missing(&directory, index, unmarked.first())),
            None if create => Ok(Survey { marker: None, directories: unmarked }),
            None => {
                let nothing = format!("there is no store in {}", directories[0].display());
                Err(Error::new(ErrorKind::InvalidInput, nothing))
            }
        };
    };
    check_members(&truth, &marked, &unmarked, create)?;
    let members = directories.len() as u16;
    let mut places = unmarked.into_iter();
    let mut ordered = Vec::new();
    for index in 0..members {
        // Both lists together have as many entries as there are places.
        ordered.extend(marked.remove(&index).map(|(directory, _)| directory).or_else(|| places.next()));
    }
    Ok(Survey { marker: Some(Marker { members, ..truth }), directories: ordered })
}

type Marked = BTreeMap<u16, (PathBuf, Marker)>;

/// Directories with a marker by their place, and those without.
fn read_markers(directories: &[PathBuf]) -> Result<(Marked, Vec<PathBuf>)> {
    let mut marked = Marked::new();
    let mut unmarked = Vec::new();
    for directory in directories {
        match Marker::read(directory)? {
            Some(marker) => {
                if let Some((other, first)) = marked.insert(marker.index, (directory.clone(), marker)) {
                    let whose = if marker.store == first.store { "" } else { ", of another store" };
                    return Err(misplaced(
                        directory,
                        &format!("it has the same place as {}{whose}", other.display()),
                    ));
                }
            }
            None if Member::holds_store_files(directory)? => {
                let why = "it holds segments but no marker; restore member.tier from a backup";
                return Err(foreign(directory, why));
            }
            None => unmarked.push(directory.clone()),
        }
    }
    Ok((marked, unmarked))
}

/// Refuses directories of other stores, and a store of which directories are missing.
fn check_members(truth: &Marker, marked: &Marked, unmarked: &[PathBuf], create: bool) -> Result<()> {
    for (directory, marker) in marked.values() {
        if marker.store != truth.store || marker.index >= truth.members {
            return Err(misplaced(directory, "it belongs to another store"));
        }
    }
    if let Some(index) = (0..truth.ready).find(|index| !marked.contains_key(index)) {
        let missing = match unmarked.first() {
            Some(empty) => format!("{} holds no part of it: is its disk mounted?", empty.display()),
            None => "name all of them".to_string(),
        };
        let has =
            format!("the store has {} directories, number {index} is missing; {missing}", truth.members);
        return Err(Error::new(ErrorKind::InvalidInput, has));
    }
    let named = marked.len() + unmarked.len();
    match unmarked.first() {
        Some(new) if named > usize::from(truth.members) && !create => {
            let why = format!("{} is no part of the store; set create to add it", new.display());
            Err(Error::new(ErrorKind::InvalidInput, why))
        }
        _ if named < usize::from(truth.members) => {
            let cut_off = format!("adding directories was cut off; name all {} again", truth.members);
            Err(Error::new(ErrorKind::InvalidInput, cut_off))
        }
        _ => Ok(()),
    }
}

/// The directory with the truth about the store is not among those that were named; one that is empty may stand for it.
fn first_missing(directory: &Path, index: u16, empty: Option<&PathBuf>) -> Error {
    let missing = match empty {
        Some(empty) => format!("{} holds no part of it: is its disk mounted?", empty.display()),
        None => "name all of them".to_string(),
    };
    let has = format!(
        "{} is number {index} of a store's directories, and the first directory is missing; {missing}",
        directory.display()
    );
    Error::new(ErrorKind::InvalidInput, has)
}

/// Whole by itself, and named where it has no place.
fn misplaced(directory: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{} does not fit: {why}", directory.display()))
}

fn foreign(directory: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Incompatible, format!("{} does not fit: {why}", directory.display()))
}

/// Marks the directories from `marker.ready` on; the count is named in member 0 first.
fn complete(marker: Marker, directories: &[PathBuf]) -> Result<Marker> {
    if marker.ready == marker.members {
        return Ok(marker);
    }
    marker.write(&directories[0])?;
    // crash here [members_half_marked]: the new directories are empty or marked; the next open takes both.
    for index in marker.ready.max(1)..marker.members {
        Marker { index, ready: marker.members, ..marker }.write(&directories[usize::from(index)])?;
    }
    Ok(marker)
}

/// The last step of creation and growth: from now on every directory must be there.
fn mark_ready(marker: Marker, first: &Path) -> Result<Marker> {
    let ready = Marker { ready: marker.members, ..marker };
    if ready != marker {
        ready.write(first)?;
    }
    Ok(ready)
}

/// The superblock file, made while the store is being created; later it must be there and whole.
fn ensure_superblock(first: &Member, marker: &Marker) -> Result<()> {
    let path = first.path.join(Place::Meta.to_string());
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.len() == marker.meta_bytes => Ok(()),
        Ok(metadata) => Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{} has {} bytes and not {}; restore it",
                path.display(),
                metadata.len(),
                marker.meta_bytes
            ),
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && marker.ready == 0 => {
            first.create_file(Place::Meta, marker.meta_bytes).map_err(|refused| refused.error)?;
            first.sync()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!(
                "{} is missing, without which the store cannot be opened; restore it",
                path.display()
            );
            Err(Error::new(ErrorKind::Corrupt, text))
        }
        Err(error) => Err(cannot_open(error, &path)),
    }
}

/// Takes the exclusive lock of a store and leaves this process's id in it for whoever is refused.
fn take_lock(first: &Path) -> Result<LockedFile> {
    let path = first.join("lock");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(&path)
        .map_err(|error| cannot_open(error, &path))?;
    let mut file = match LockedFile::lock(file) {
        Ok(file) => file,
        Err((mut file, None)) => {
            let mut holder = String::new();
            // The id is a help for the reader; without it the refusal stands all the same.
            let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut holder);
            let holder = match holder.trim().parse::<u32>() {
                Ok(id) => format!("process {id}"),
                Err(_) => "another process".to_string(),
            };
            let busy = format!("{holder} has the store in {} open", first.display());
            return Err(Error::new(ErrorKind::Busy, busy));
        }
        Err((_, Some(error))) => return Err(at(error, "cannot lock", &path)),
    };
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| {
        let id = std::process::id();
        writeln!(file, "{id}")
    });
    written.map_err(|error| at(error, "cannot write", &path))?;
    Ok(file)
}
