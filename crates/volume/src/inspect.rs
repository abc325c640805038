//! What a device says of the volume or flash buffer that it holds, without opening either.

use crate::core::JOURNAL_START;
use crate::judge::{Said, authority, is_stale};
use crate::layout::{Layout, Redundancy};
use crate::open::journal_bytes;
use crate::superblock::{Health, Superblock, newer, newer_text, unusable};
use tierstone_media::{BLOCK_BYTES, Geometry};

/// How many bytes at the start of a device [`inspect`] looks at.
pub const INSPECTED_BYTES: usize = 2 * BLOCK_BYTES;

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It is a member of a volume.
    Member(Box<MemberFacts>),
    /// It begins with a superblock of a newer program, whatever the other says: which version, in words that follow the device's
    /// name. Nothing may be concluded from it, nor written.
    Newer(String),
    /// It begins with a superblock of a volume that cannot be used: why, in words that follow the device's name.
    Unusable(String),
    /// It is a flash buffer, whole or not.
    Buffer,
    /// It begins with bytes that are not zeros.
    Something,
    /// It begins with zeros.
    Nothing,
}

/// What a member says of itself and its volume; see [`judged`] for what is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// The volume's identity.
    pub volume: u128,
    /// The member's place.
    pub index: u32,
    /// Of its superblock.
    pub generation: u64,
    /// Whether the volume was closed in good order.
    pub is_clean: bool,
    /// The shape of the data.
    pub layout: Layout,
    /// The shape of the volume's space.
    pub geometry: Geometry,
    /// The identity of the flash buffer, if it has one.
    pub buffer: Option<u128>,
    /// What it says of all members.
    pub members: Vec<Health>,
    /// Whether pairs may sleep whole: then members need not have every generation.
    pub may_stand: bool,
    /// How many bytes a member needs whose own superblock area ends within the volume's records.
    pub bytes_needed: u64,
}

impl MemberFacts {
    fn said(&self) -> Said<'_> {
        let MemberFacts { generation, layout, members: states, may_stand, .. } = self;
        Said { generation: *generation, layout, states, may_stand: *may_stand }
    }
}

/// What is true of a volume by what its members say, each in its own place: the facts of the one whose word counts, with
/// members that missed generations named failed, as an opening judges. `None` when there is none of them.
pub fn judged(members: &[Option<&MemberFacts>]) -> Option<MemberFacts> {
    let said: Vec<Option<Said<'_>>> = members.iter().map(|facts| facts.map(MemberFacts::said)).collect();
    let newest = authority(&said)?;
    let mut truth = (*members.get(newest)?)?.clone();
    for index in (0..truth.members.len()).filter(|&index| is_stale(&said, newest, index)) {
        truth.members[index] = Health::Failed;
    }
    Some(truth)
}

/// Whether a disk is behind, so that a flash buffer holds what it lacks, by what the member says whose word counts: also one in
/// whose place another device was found.
pub fn is_any_behind(members: &[Option<&MemberFacts>]) -> bool {
    let said: Vec<Option<Said<'_>>> = members.iter().map(|facts| facts.map(MemberFacts::said)).collect();
    authority(&said)
        .and_then(|newest| said.get(newest).copied().flatten())
        .is_some_and(|truth| truth.states.contains(&Health::Behind))
}

/// Looks at the first [`INSPECTED_BYTES`] of a device.
pub fn inspect(start: &[u8]) -> Holds {
    if let Some(version) = newer(start) {
        return Holds::Newer(newer_text(version));
    }
    let slots = start.chunks(BLOCK_BYTES).filter_map(Superblock::decode);
    if let Some(newest) = slots.max_by_key(|superblock| superblock.generation) {
        let (layout, slots) = (newest.layout, newest.journal_slots);
        let journal =
            journal_bytes(layout.redundancy, layout.width, layout.chunk_bytes, slots, newest.spare_rows);
        let data_start = JOURNAL_START
            .saturating_add(journal)
            .checked_next_multiple_of(layout.chunk_bytes)
            .unwrap_or(u64::MAX);
        return Holds::Member(Box::new(MemberFacts {
            bytes_needed: data_start.saturating_add(layout.rows.saturating_mul(layout.chunk_bytes)),
            volume: newest.volume,
            index: newest.index,
            generation: newest.generation,
            is_clean: newest.clean,
            layout: newest.layout,
            geometry: newest.geometry,
            buffer: (newest.buffer != 0).then_some(newest.buffer),
            may_stand: newest.spare_rows > 0,
            members: newest.states,
        }));
    }
    if let Some(why) = unusable(start) {
        return Holds::Unusable(why);
    }
    match start {
        start if start.starts_with(crate::sleep::BUFFER_MAGIC) => Holds::Buffer,
        start if start.iter().any(|&byte| byte != 0) => Holds::Something,
        _ => Holds::Nothing,
    }
}

impl Layout {
    /// The usual name of its level.
    pub fn level_name(&self) -> &'static str {
        match (self.redundancy, self.groups) {
            (Redundancy::None, _) => "raid0",
            (Redundancy::Mirror, 1) => "raid1",
            (Redundancy::Mirror, _) => "raid10",
            (Redundancy::Parity, 1) => "raid5",
            (Redundancy::Parity, _) => "raid50",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Volume, VolumeSettings};
    use tierstone_crash::Choices;
    use tierstone_media::{BlockDevice, IoBuffer, IoRequest, SimDevice, SimMedium, SimSettings, Wait};

    fn start_of(device: &mut SimDevice) -> IoBuffer {
        let mut done = Vec::new();
        device.submit(&mut vec![IoRequest::read(0, 0, IoBuffer::zeroed(INSPECTED_BYTES))]);
        device.complete(Wait::All, &mut done);
        done.pop().and_then(|done| done.buffer).unwrap()
    }

    #[test]
    fn members_buffers_and_foreign_bytes_are_told_apart() {
        let geometry = Geometry { meta_bytes: 8192, segment_bytes: 64 << 10, segment_limit: 8 };
        let choices = Choices::quiet();
        let media = [1, 2].map(|_| SimMedium::new(SimSettings::new(geometry), &choices));
        let devices = || media.iter().map(SimMedium::device).collect::<Vec<_>>();
        assert_eq!(inspect(&start_of(&mut media[0].device())), Holds::Nothing);
        let settings = VolumeSettings {
            meta_bytes: 8192,
            is_zeroed: true,
            chunk_bytes: 16 << 10,
            ..VolumeSettings::new(Level::Raid1, 77, 64 << 10)
        };
        Volume::create(devices(), &settings).unwrap().close().unwrap();
        let Holds::Member(facts) = inspect(&start_of(&mut media[1].device())) else {
            panic!("a member holds no superblock")
        };
        assert_eq!((facts.volume, facts.index, facts.is_clean, facts.buffer), (77, 1, true, None));
        assert_eq!(facts.bytes_needed, (16 << 10) * (facts.layout.rows + 1), "one chunk before the data");
        assert_eq!((facts.layout.level_name(), facts.members), ("raid1", vec![Health::InSync; 2]));
        assert_eq!(inspect(b"TIERBUFF and so on"), Holds::Buffer);
        let mut start = start_of(&mut media[1].device());
        start.chunks_mut(BLOCK_BYTES).for_each(|slot| slot[100] ^= 1);
        let Holds::Unusable(why) = inspect(&start) else { panic!("a damaged superblock is not told") };
        assert!(why.contains("damaged") && why.contains("checksum"), "{why}");
        start.chunks_mut(BLOCK_BYTES).for_each(|slot| slot[8] = 9);
        let Holds::Unusable(why) = inspect(&start) else { panic!("another version is not told") };
        assert!(why.contains("version 9") && why.contains("damaged"), "{why}");
        assert_eq!(inspect(&[0, 0, 1]), Holds::Something);
        assert_eq!(inspect(&[]), Holds::Nothing);
    }
}
