//! Ranges of ordered keyspaces, as they are and as snapshots show them.

use super::{Model, ModelSettings, Snapshots, delete_random, key_bytes, put_random};
use crate::contract::{Direction, Engine, RangeEntry, RangeRequest, SnapshotId, Write, WriteKind};
use crate::harness::Harness;
use std::ops::{Bound, RangeBounds};
use tierstone_base::{ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_media::BlockDevice;

const SPACE: KeyspaceId = KeyspaceId(1);

/// A whole range of `keyspace`, of a snapshot or as it is.
fn whole(keyspace: KeyspaceId, snapshot: Option<SnapshotId>, direction: Direction) -> RangeRequest {
    let (from, to) = (Bound::Unbounded, Bound::Unbounded);
    RangeRequest { token: 0, keyspace, from, to, limit: 7, direction, snapshot }
}

fn random_request(
    random: &mut SeededRandom,
    settings: ModelSettings,
    keyspace: KeyspaceId,
    snapshot: Option<SnapshotId>,
) -> RangeRequest {
    let bound = |random: &mut SeededRandom| match random.below(5) {
        0 | 1 => Bound::Unbounded,
        2 => Bound::Excluded(key_bytes(random.below(settings.keys))),
        _ => Bound::Included(key_bytes(random.below(settings.keys))),
    };
    let (from, to) = (bound(random), bound(random));
    let direction = if random.chance(0.5) { Direction::Forward } else { Direction::Backward };
    let limit = random.below(70) as u32;
    RangeRequest { token: 0, keyspace, from, to, limit, direction, snapshot }
}

type Shown = Vec<(Vec<u8>, (Vec<u8>, u64))>;

fn shown(entries: Vec<RangeEntry>) -> Shown {
    entries.into_iter().map(|entry| (entry.key, (entry.value, entry.meta.expiry_ms))).collect()
}

/// What `request` gives at `wall_ms` if its keyspace is as `model` says.
fn expected(model: &Model, request: &RangeRequest, wall_ms: u64) -> Shown {
    let bounds = (request.from.as_ref().map(Vec::as_slice), request.to.as_ref().map(Vec::as_slice));
    let own = model.iter().filter(|((id, key), (_, expiry))| {
        let is_live = *expiry == 0 || *expiry > wall_ms;
        *id == request.keyspace.0 && bounds.contains(key.as_slice()) && is_live
    });
    let mut expected: Shown = own.map(|((_, key), value)| (key.clone(), value.clone())).collect();
    if request.direction == Direction::Backward {
        expected.reverse();
    }
    expected
}

/// Compares one random range with the model, page by page; a keyspace without order refuses it.
pub(super) fn check<E: Engine, D: BlockDevice>(
    random: &mut SeededRandom,
    settings: ModelSettings,
    harness: &mut Harness<E, D>,
    model: &Model,
    keyspace: KeyspaceId,
    place: &str,
) {
    let request = random_request(random, settings, keyspace, None);
    let RangeRequest { from, to, limit, direction, .. } = &request;
    let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
    let found = match harness.range_all(keyspace, bounds.0, bounds.1, *limit, *direction) {
        Ok(entries) => shown(entries),
        Err(error) if keyspace.0 > settings.ordered => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{place}: {error}");
            return;
        }
        Err(error) => panic!("{place}: range {bounds:?}: {error}"),
    };
    assert!(keyspace.0 <= settings.ordered, "{place}: a keyspace without order gives a range");
    let expected = expected(model, &request, harness.now.wall_ms);
    assert!(found == expected, "{place}: range {bounds:?} {direction:?}: {found:?}, not {expected:?}");
}

impl Snapshots {
    /// A walk of a random range of a snapshot, with writes between its pages: each key of the cut exactly
    /// once, in order, with its value of then. An error is that the snapshot is lost.
    pub(super) fn range<E: Engine, D: BlockDevice>(
        &mut self,
        chosen: usize,
        random: &mut SeededRandom,
        settings: ModelSettings,
        harness: &mut Harness<E, D>,
        now: &mut Model,
        place: &str,
    ) -> Result<()> {
        let alive = &self.alive[chosen];
        let keyspace = KeyspaceId(1 + random.below(u64::from(settings.keyspaces)) as u32);
        let request = random_request(random, settings, keyspace, Some(alive.id));
        let walked = harness.range_walk(request.clone(), |harness| {
            for _ in 0..random.below(8) {
                put_random(random, settings, harness, now, place);
                delete_random(random, settings, harness, now, place);
            }
        });
        let found = match walked {
            Ok(entries) => shown(entries),
            Err(error) if error.kind() == ErrorKind::SnapshotLost => return Err(error),
            Err(error) if keyspace.0 > settings.ordered => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{place}: {error}");
                return Ok(());
            }
            Err(error) => panic!("{place}: {request:?}: {error}"),
        };
        assert!(keyspace.0 <= settings.ordered, "{place}: a keyspace without order gives a range");
        let expected = expected(&alive.model, &request, alive.wall_ms);
        assert!(found == expected, "{place}: {request:?}: {found:?}, not {expected:?}");
        self.ranges += 1;
        Ok(())
    }
}

/// Ranges of a dropped keyspace of the keys 0 to 49, all with `value` at the first snapshot: that one shows
/// it, the other, which is younger than the drop, says that it was dropped, as does a range of what is there.
pub(super) fn outlive_the_drop<E: Engine, D: BlockDevice>(
    harness: &mut Harness<E, D>,
    keyspace: KeyspaceId,
    (before, after): (SnapshotId, SnapshotId),
    value: &[u8],
) {
    for direction in [Direction::Forward, Direction::Backward] {
        let shown = match harness.range_walk(whole(keyspace, Some(before), direction), |_| {}) {
            Ok(entries) => entries,
            Err(error) => panic!("a range of a keyspace that was dropped after the snapshot: {error}"),
        };
        let mut keys: Vec<_> = (0..50).map(key_bytes).collect();
        keys.sort();
        if direction == Direction::Backward {
            keys.reverse();
        }
        assert!(shown.iter().map(|entry| &entry.key).eq(keys.iter()), "{direction:?}: {shown:?}");
        assert!(shown.iter().all(|entry| entry.value == value));
        for snapshot in [Some(after), None] {
            let refused = harness.range_walk(whole(keyspace, snapshot, direction), |_| {});
            let refused = refused.map_err(|error| (error.kind(), error.message().contains("was dropped")));
            assert_eq!(refused, Err((ErrorKind::InvalidInput, true)), "{snapshot:?}");
        }
    }
}

/// Keys that are deleted, expire, come or change after the cut, before and behind the place of the walk: a range
/// of the snapshot shows the cut, both ways, and says when it was released. Keyspace 1 has an order.
pub fn a_range_of_a_snapshot_shows_the_keys_of_the_cut<E: Engine, D: BlockDevice>(
    mut harness: Harness<E, D>,
) {
    let put = |harness: &mut Harness<E, D>, key: u8, value: &[u8], expiry_ms| {
        let kind = WriteKind::Put { value, expiry_ms, kind: Default::default() };
        if let Err(error) = harness.write(&[Write { key: harness.key(SPACE, &[key]), kind }]) {
            panic!("put: {error}");
        }
    };
    let delete = |harness: &mut Harness<E, D>, key: u8| {
        if let Err(error) = harness.delete(SPACE, &[key]) {
            panic!("delete: {error}");
        }
    };
    let behind = |key: u8, by: u16| ((u16::from(key) + by) % 200) as u8;
    let mut ids = Vec::new();
    for direction in [Direction::Forward, Direction::Backward] {
        for key in (1..200).step_by(2) {
            delete(&mut harness, key);
        }
        // Even keys; every fourth is to expire.
        for key in (0..200).step_by(2) {
            let expiry_ms = if key % 8 == 0 { harness.now.wall_ms + 1_000 } else { 0 };
            put(&mut harness, key, &[key; 40], expiry_ms);
        }
        let Ok(id) = harness.engine.snapshot(harness.now) else { panic!("no snapshot") };
        ids.push(id);
        harness.now.wall_ms += 2_000;
        let (mut page, mut seen) = (0, Vec::new());
        let walked = harness.range_walk(whole(SPACE, Some(id), direction), |harness| {
            // Anywhere in the range, so that some of it lies before the walk and some behind.
            for key in [page * 10, 198 - page * 10] {
                put(harness, key + 1, b"came later", 0);
                delete(harness, key);
                put(harness, behind(key, 40), b"changed", 0);
                // Gone, there again, and gone again.
                delete(harness, behind(key, 80));
                put(harness, behind(key, 80), b"again", 0);
                delete(harness, behind(key, 80));
            }
            seen.push(page);
            page = (page + 1) % 20;
        });
        let found: Vec<_> = match walked {
            Ok(entries) => entries.into_iter().map(|entry| (entry.key, entry.value)).collect(),
            Err(error) => panic!("a range of a snapshot: {error}"),
        };
        let mut expected: Vec<_> = (0..200).step_by(2).map(|key: u8| (vec![key], vec![key; 40])).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert!(found == expected, "{direction:?}: {found:?}");
        assert!(seen.len() > 10, "{} pages", seen.len());
    }
    for id in ids {
        harness.engine.release_snapshot(id);
        let refused = harness.range_request(whole(SPACE, Some(id), Direction::Forward));
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    }
}

/// A range sees what was written before it, also when its records must be read, and goes on where the
/// last page ended, whatever happens to that key meanwhile.
pub fn pages_of_a_range_join<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    for number in 0..40u8 {
        if let Err(error) = harness.put(KeyspaceId(1), &[number], &[number; 9]) {
            panic!("put: {error}");
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let page = |harness: &mut Harness<E, D>, from: Bound<&[u8]>, to: Bound<&[u8]>| match harness
            .range_page(KeyspaceId(1), from, to, 10, direction)
        {
            Ok((entries, Some(next))) => {
                assert_eq!(entries.last().map(|entry| &entry.key), Some(&next));
                next
            }
            other => panic!("{other:?}"),
        };
        let next = page(&mut harness, Bound::Unbounded, Bound::Unbounded);
        if let Err(error) = harness.delete(KeyspaceId(1), &next) {
            panic!("delete: {error}");
        }
        let after = Bound::Excluded(next.as_slice());
        let last = match direction {
            Direction::Forward => page(&mut harness, after, Bound::Unbounded),
            Direction::Backward => page(&mut harness, Bound::Unbounded, after),
        };
        assert_eq!(last, if direction == Direction::Forward { [19] } else { [20] });
        if let Err(error) = harness.put(KeyspaceId(1), &next, b"again") {
            panic!("put: {error}");
        }
    }
}
