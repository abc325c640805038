//! Barriers whose lack shows only in a history that is written for it. What lies in a free segment may be anything, also
//! what looks like a block of this store.

use crate::common;
use crate::common::{Store, always_checkpoint, flip_bit, fresh, machine_of, open_all, small_settings};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_all_caught, explore};
use tierstone_engine::Engine;
use tierstone_media::Wait;
use tierstone_media::sim::{CutPoints, PowerCut, SimMachine};
use tierstone_pmstore::OpenSettings;

const KEYSPACE: KeyspaceId = KeyspaceId(2);
/// Sixty of values that leave a block some room; the others leave the last block less.
const KEYS: u32 = 87;

fn settings(mutations: &Mutations) -> OpenSettings {
    OpenSettings { mutations: mutations.clone(), ..small_settings() }
}

fn name(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn within(last: u64) -> PowerCut {
    PowerCut::Within { points: CutPoints::Every, last }
}

/// Whether damage of the last frame is told, when power has kept nothing but what was durable.
fn is_told(mutations: &Mutations) -> bool {
    let settings = settings(mutations);
    let (machine, mut store) = fresh(256 << 10, &settings);
    let value = b"a value that was acknowledged";
    store.put(KEYSPACE, b"key", value).unwrap();
    store.sync().unwrap();
    store.now.monotonic_us += 10 * settings.shard.mark_every_us;
    (0..3).for_each(|_| store.turn(Wait::Poll));
    drop(store);
    machine.cut_power();
    machine.power_on_after_loss();
    let image = machine.region().image();
    let at = image.windows(value.len()).position(|bytes| bytes == value).unwrap();
    flip_bit(&machine, at, 1);
    open_all(&machine, &settings).is_err_and(|error| error.kind() == ErrorKind::Corrupt)
}

#[test]
fn the_mark_is_durable_when_it_is_noted() {
    assert!(is_told(&Mutations::none()));
    assert!(!is_told(&Mutations::one("mark_unfenced")), "the mutation is not caught");
}

/// Ends in good order.
fn shut(mut store: Store) {
    store.engine.shut();
    for _ in 0..10_000 {
        if store.engine.is_shut() {
            break;
        }
        store.turn(Wait::One);
    }
    assert!(store.engine.is_shut());
}

fn open_first<const UNIT: usize>(
    machine: &SimMachine<UNIT>,
    settings: &OpenSettings,
) -> Result<Store, Violation> {
    open_all(machine, settings)?.0.pop().ok_or_else(|| Violation::new("no shard".to_owned()))
}

/// Does `work` in which power may be lost; then power is lost.
fn cut<const UNIT: usize>(machine: &SimMachine<UNIT>, within: PowerCut, work: impl FnOnce()) {
    machine.set_power_cut(within);
    // Whatever goes wrong without power, nobody is told.
    let _ = catch_unwind(AssertUnwindSafe(work));
    machine.set_power_cut(PowerCut::Never);
}

/// A store with a checkpoint, whose listed blocks have more room than the others: openings append to them.
fn with_room_in_listed_blocks<const UNIT: usize>(
    machine: &SimMachine<UNIT>,
    once: &OpenSettings,
) -> Result<(), Violation> {
    let mut store = open_first(machine, once)?;
    for number in 0..60 {
        store.put(KEYSPACE, &name(number), &[1; 760])?;
    }
    for number in 60..KEYS {
        store.put(KEYSPACE, &name(number), &[1; 100])?;
    }
    shut(store);
    Ok(())
}

/// What was written is there when the checkpoint that counts was passed over by the opening before.
fn holds<const UNIT: usize>(machine: &SimMachine<UNIT>, once: &OpenSettings) -> Result<(), Violation> {
    let mut store = open_first(machine, once)?;
    for number in 0..KEYS {
        let expected = if number < 10 { vec![2; 100] } else { vec![1; if number < 60 { 760 } else { 100 }] };
        let found = store.get(KEYSPACE, &name(number))?.map(|(_, value)| value);
        Violation::unless(found.as_ref() == Some(&expected), || format!("key {number} is {found:?}"))?;
    }
    Ok(())
}

fn overwrite_ten(store: &mut Store) -> Result<(), Violation> {
    (0..10).try_for_each(|number| store.put(KEYSPACE, &name(number), &[2; 100]).map(drop))?;
    Ok(store.sync()?)
}

/// Power is lost in an opening that takes a checkpoint over. The next one writes, the one after that reads.
fn opened_again(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine_of::<8>(1 << 20, choices);
    let mut never = settings(mutations);
    never.shard.checkpoint_bytes_min = u64::MAX;
    let mut once = settings(mutations);
    always_checkpoint(&mut once.shard);
    with_room_in_listed_blocks(&machine, &once)?;
    cut(&machine, within(12), || drop(open_all(&machine, &never)));
    machine.power_on_after_loss();
    let mut store = open_first(&machine, &never)?;
    overwrite_ten(&mut store)?;
    shut(store);
    holds(&machine, &once)
}

#[test]
fn the_number_of_an_opening_is_durable_before_it_takes_a_checkpoint_over() {
    let explored = |mutations: &Mutations| -> Report {
        explore(ExploreSettings::random(4711, 100), |choices| opened_again(choices, mutations))
    };
    assert_all_caught(&["opening_unfenced"], explored);
}

/// An opening looks for damage, passes over the checkpoint and appends behind its blocks. The next one makes another
/// checkpoint, in whose naming power is lost.
fn named_anew(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine_of::<8>(1 << 20, choices);
    let mut never = settings(mutations);
    never.shard.checkpoint_bytes_min = u64::MAX;
    // Blocks of one segment are taken from its end after an opening: the old pages stay what they are.
    never.geometry.segment_bytes = 64 << 10;
    let mut once = never.clone();
    always_checkpoint(&mut once.shard);
    with_room_in_listed_blocks(&machine, &once)?;
    let mut store = open_first(&machine, &OpenSettings { loss_accepted: true, ..never })?;
    overwrite_ten(&mut store)?;
    shut(store);
    cut(&machine, within(100), || open_first(&machine, &once).map(shut).unwrap_or_default());
    machine.power_on_after_loss();
    holds(&machine, &once)
}

#[test]
fn a_page_is_named_before_the_opening_is() {
    let explored = |mutations: &Mutations| -> Report {
        explore(ExploreSettings::random(4711, 100), |choices| named_anew(choices, mutations))
    };
    assert_all_caught(&["page_unfenced"], explored);
}

/// Blocks of one segment of storage that is free again, as another store of the same name left it: with the record of a
/// key that this store never had. Between the two nothing differs but that key.
struct Ghost {
    segment: u64,
    image: Vec<u8>,
}

const GHOST: &[u8] = b"key-ghost";
const SEGMENTS: std::ops::Range<u64> = 4..11;
const BYTES: u64 = 192 << 10;

/// Where in an image the table's word of a segment is, and where the segment begins.
fn places(image: &[u8], settings: &OpenSettings, segment: u64) -> (usize, usize) {
    let (table, data) = common::table_and_data(image, settings);
    ((table + segment * 8) as usize, (data + segment * settings.geometry.segment_bytes) as usize)
}

fn word(image: &[u8], settings: &OpenSettings, segment: u64) -> u64 {
    let (word, _) = places(image, settings, segment);
    u64::from_le_bytes(image[word..][..8].try_into().unwrap())
}

/// Whether the word of `segment` says that it is free: the kind in its lowest byte.
fn is_free(image: &[u8], settings: &OpenSettings, segment: u64) -> bool {
    word(image, settings, segment) & 0xff == 8
}

/// Fills some segments; the key of number 20 has another name where it is a ghost.
fn filled<const UNIT: usize>(
    machine: &SimMachine<UNIT>,
    settings: &OpenSettings,
    is_ghost: bool,
) -> Result<Store, Violation> {
    let mut store = open_first(machine, settings)?;
    for number in 0..60 {
        let key = if is_ghost && number == 20 { GHOST.to_vec() } else { name(number) };
        store.put(KEYSPACE, &key, &[1; 900])?;
    }
    store.sync()?;
    Ok(store)
}

/// The segment with the ghost's record.
fn ghost(settings: &OpenSettings) -> Ghost {
    let machine = common::machine(BYTES);
    drop(filled(&machine, settings, true).unwrap());
    let image = machine.region().image();
    let holds = |segment: &u64| {
        let (_, start) = places(&image, settings, *segment);
        let bytes = &image[start..start + settings.geometry.segment_bytes as usize];
        bytes.windows(GHOST.len()).any(|bytes| bytes == GHOST)
    };
    let segment = SEGMENTS.clone().find(holds).unwrap();
    let (_, start) = places(&image, settings, segment);
    Ghost { segment, image: image[start..start + settings.geometry.segment_bytes as usize].to_vec() }
}

/// All keys but some are deleted; the store has so many steps to give segments back.
fn emptied(store: &mut Store, turns: u32) -> Result<(), Violation> {
    for number in 0..55 {
        store.delete(KEYSPACE, &name(number))?;
    }
    turn(store, turns);
    Ok(())
}

fn turn(store: &mut Store, turns: u32) {
    (0..turns).for_each(|_| store.turn(Wait::Poll));
}

fn put(store: &mut Store, number: u32) -> Result<(), Violation> {
    store.put(KEYSPACE, &name(100 + number), &[3; 900])?;
    Ok(())
}

fn has_no_ghost<const UNIT: usize>(
    machine: &SimMachine<UNIT>,
    settings: &OpenSettings,
) -> Result<(), Violation> {
    let mut store = open_first(machine, settings)?;
    let found = store.get(KEYSPACE, GHOST)?.map(|(_, value)| value.len());
    Violation::unless(found.is_none(), || format!("a key that was never written has {found:?} bytes"))
}

fn cleaning(mutations: &Mutations) -> OpenSettings {
    let mut settings = settings(mutations);
    // Of 28; segments of what is beyond are given back.
    settings.shard.clean_below_blocks = 24;
    settings
}

impl Ghost {
    /// After how many steps its segment is given back, and after how many writes then it is taken again.
    fn times(&self) -> (u32, u32) {
        let settings = cleaning(&Mutations::none());
        let machine = common::machine(BYTES);
        let mut store = filled(&machine, &settings, false).unwrap();
        let is_free = || is_free(&machine.region().image(), &settings, self.segment);
        emptied(&mut store, 0).unwrap();
        let turns = (0..300).find(|_| {
            turn(&mut store, 1);
            is_free()
        });
        turn(&mut store, 50);
        let puts = (0..300).find(|&number| {
            put(&mut store, number).unwrap();
            !is_free()
        });
        (turns.unwrap(), puts.unwrap())
    }

    /// Puts it where it comes from.
    fn haunt<const UNIT: usize>(&self, machine: &SimMachine<UNIT>, settings: &OpenSettings) {
        let image = machine.region().image();
        machine.region().overwrite(places(&image, settings, self.segment).1 as u64, &self.image);
    }
}

/// A segment is given back, and what others may put there once it is free lies there; power is lost meanwhile.
fn given_back(choices: &Choices, mutations: &Mutations, ghost: &Ghost, turns: u32) -> Result<(), Violation> {
    let machine = machine_of::<64>(BYTES, choices);
    let settings = cleaning(mutations);
    let mut store = filled(&machine, &settings, false)?;
    emptied(&mut store, turns)?;
    cut(&machine, within(20), || turn(&mut store, 1));
    drop(store);
    if is_free(&machine.region().image(), &settings, ghost.segment) {
        ghost.haunt(&machine, &settings);
    }
    machine.power_on_after_loss();
    has_no_ghost(&machine, &settings)
}

#[test]
fn a_segment_is_free_when_its_word_is_durable() {
    let ghost = ghost(&cleaning(&Mutations::none()));
    let (turns, _) = ghost.times();
    let explored = |mutations: &Mutations| -> Report {
        let settings = ExploreSettings::random(4711, 200);
        explore(settings, |choices| given_back(choices, mutations, &ghost, turns))
    };
    assert_all_caught(&["released_unfenced"], explored);
}

/// A free segment in which a long value has left what looks like blocks becomes one of blocks; power is lost meanwhile.
fn divided(
    choices: &Choices,
    mutations: &Mutations,
    ghost: &Ghost,
    (turns, puts): (u32, u32),
) -> Result<(), Violation> {
    let machine = machine_of::<64>(BYTES, choices);
    let settings = cleaning(mutations);
    let mut store = filled(&machine, &settings, false)?;
    emptied(&mut store, turns + 51)?;
    ghost.haunt(&machine, &settings);
    (0..puts).try_for_each(|number| put(&mut store, number))?;
    cut(&machine, within(30), || put(&mut store, puts).unwrap_or_default());
    drop(store);
    machine.power_on_after_loss();
    has_no_ghost(&machine, &settings)
}

#[test]
fn blocks_of_a_new_segment_are_free_before_it_has_them() {
    let ghost = ghost(&cleaning(&Mutations::none()));
    let (turns, puts) = ghost.times();
    let explored = |mutations: &Mutations| -> Report {
        let settings = ExploreSettings::random(4711, 600);
        explore(settings, |choices| divided(choices, mutations, &ghost, (turns, puts)))
    };
    assert_all_caught(&["leads_unfenced"], explored);
}

/// Frames that nothing has fenced are followed by a new segment of the log, in whose beginning power is lost: what is
/// torn is no damage.
fn begun(choices: &Choices, mutations: &Mutations, puts: u32) -> Result<(), Violation> {
    let machine = machine_of::<8>(BYTES, choices);
    let settings = settings(mutations);
    let mut store = open_first(&machine, &settings)?;
    (0..puts).try_for_each(|number| put(&mut store, number))?;
    cut(&machine, within(12), || put(&mut store, puts).unwrap_or_default());
    drop(store);
    machine.power_on_after_loss();
    open_first(&machine, &settings).map(drop)
}

/// How many writes the first segment of the log takes.
fn puts_of_a_segment() -> u32 {
    let settings = settings(&Mutations::none());
    let machine = common::machine(BYTES);
    let mut store = open_first(&machine, &settings).unwrap();
    let words =
        || (0..4).map(|segment| word(&machine.region().image(), &settings, segment)).collect::<Vec<_>>();
    let before = words();
    let puts = (0..100).find(|&number| {
        put(&mut store, number).unwrap();
        words() != before
    });
    puts.unwrap()
}

#[test]
fn frames_are_durable_before_the_segment_behind_them_is_named() {
    let puts = puts_of_a_segment();
    let explored = |mutations: &Mutations| -> Report {
        explore(ExploreSettings::random(4711, 400), |choices| begun(choices, mutations, puts))
    };
    assert_all_caught(&["lead_unfenced"], explored);
}

/// Bytes of each record of [`record`], and of its head.
const RECORD: usize = 960;
const HEAD: usize = 48;

fn record(store: &mut Store, key: &[u8]) {
    store.put(KEYSPACE, key, &[7; 900]).unwrap();
}

/// Where the last record of a key begins.
fn place_of(image: &[u8], key: &[u8]) -> usize {
    image.windows(key.len()).rposition(|bytes| bytes == key).unwrap() - HEAD
}

/// A region after three openings, and where in it two records lie one behind the other, of which the first is not
/// whole. Nobody was told of the second: it is no record as long as the first is not whole.
///
/// Three blocks with room for four records each. Of the last two records power has kept the second only; of those before,
/// all in the third block and the first of each other one. The next opening finds room for the others without the third
/// block, gives the numbers of the lost ones to other writes, and loses power.
fn torn() -> (Vec<u8>, usize) {
    let settings = settings(&Mutations::none());
    let machine = common::machine(BYTES);
    let mut store = open_first(&machine, &settings).unwrap();
    for number in [1, 13, 13, 13, 5, 6, 7, 8, 13, 14] {
        record(&mut store, &name(number));
    }
    store.sync().unwrap();
    record(&mut store, &name(15));
    record(&mut store, GHOST);
    let region = machine.region();
    let image = region.image();
    let keep = |key: &[u8]| {
        let at = place_of(&image, key);
        region.overwrite(at as u64, &image[at..at + RECORD]);
        at
    };
    for first in [1, 5, 13] {
        let at = keep(&name(first)) - 64;
        region.overwrite(at as u64, &image[at..at + 64]);
    }
    keep(&name(14));
    let ghost = keep(GHOST);
    drop(store);
    machine.cut_power();
    machine.power_on_after_loss();
    let mut store = open_first(&machine, &settings).unwrap();
    (20..24).for_each(|number| record(&mut store, &name(number)));
    store.sync().unwrap();
    drop(store);
    machine.cut_power();
    machine.power_on_after_loss();
    (machine.region().image(), ghost)
}

/// The opening appends in front of the ghost, and power is lost when that is written, perhaps before anything else.
fn zeroed(
    choices: &Choices,
    mutations: &Mutations,
    (image, ghost): &(Vec<u8>, usize),
) -> Result<(), Violation> {
    let machine = machine_of::<8>(BYTES, choices);
    let settings = settings(mutations);
    machine.region().overwrite(0, image);
    cut(&machine, within(60), || drop(open_all(&machine, &settings)));
    let region = machine.region();
    let appended = &region.image()[ghost - RECORD..*ghost];
    if region.image()[*ghost..ghost + RECORD].iter().all(|&byte| byte == 0) {
        region.overwrite((ghost - RECORD) as u64, appended);
    }
    machine.power_on_after_loss();
    has_no_ghost(&machine, &settings)
}

#[test]
fn what_lies_behind_a_tear_is_zeros_before_anything_is_appended() {
    let torn = torn();
    let explored = |mutations: &Mutations| -> Report {
        explore(ExploreSettings::random(4711, 300), |choices| zeroed(choices, mutations, &torn))
    };
    assert_all_caught(&["zeros_unfenced"], explored);
}

/// Values of which some stay, in blocks behind others that have become free: records that move come to lie before the old
/// ones, and an opening meets them first. Power is lost while a segment of long values is emptied for one of another length.
fn long_values_moved(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine_of::<8>(256 << 10, choices);
    let settings = settings(mutations);
    let mut store = open_first(&machine, &settings)?;
    for number in 0..60 {
        store.put(KEYSPACE, &name(number), &[1; 100])?;
    }
    let long = |number: u32| vec![number as u8; 1_500];
    let mut count = 0;
    while store.put(KEYSPACE, &name(100 + count), &long(count)).is_ok() {
        count += 1;
    }
    for number in (0..60).chain((100..100 + count).filter(|number| number % 5 != 2)) {
        store.delete(KEYSPACE, &name(number))?;
    }
    store.settle(1_000);
    cut(&machine, within(600), || {
        (0..8).for_each(|number| drop(store.put(KEYSPACE, &name(900 + number), &[9; 12_000])));
    });
    drop(store);
    machine.power_on_after_loss();
    let mut store = open_first(&machine, &settings)?;
    for number in (0..count).filter(|number| (100 + number) % 5 == 2) {
        let found = store.get(KEYSPACE, &name(100 + number))?.map(|(_, value)| value);
        Violation::unless(found == Some(long(number)), || format!("value {number} is not whole"))?;
    }
    Ok(())
}

#[test]
fn a_long_value_that_moves_is_durable_before_its_record() {
    // Of two copies the whole one would count.
    let explored = |mutations: &Mutations| -> Report {
        let mutations = mutations.clone().and("twins_not_compared");
        explore(ExploreSettings::random(4711, 220), |choices| long_values_moved(choices, &mutations))
    };
    assert_all_caught(&["moved_unfenced"], explored);
}
