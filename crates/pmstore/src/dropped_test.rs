use crate::recount::recount_test::{HASHED, ORDERED, Small};
use tierstone_base::Position;
use tierstone_crash::Mutations;
use tierstone_engine::{BatchTicket, Engine, Write, WriteKind};

fn name(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// A part of a batch is written to a keyspace that a backup shows still, and cleaning goes on. How many places of what is being
/// given up are no records of theirs, and how many keys of another keyspace are lost.
fn reborn_beside_a_backup(mutations: &Mutations) -> (usize, usize) {
    let mut small = Small::new(10_000, mutations.clone());
    for number in 0..400 {
        small.write(ORDERED, &name(number), Some(&[1; 100]));
        small.write(HASHED, &name(number), Some(&[2; 100]));
        small.step();
    }
    (0..200).for_each(|_| small.step());
    small.shard.begin_backup(small.now, None).unwrap();
    small.shard.drop_keyspace(ORDERED);
    let names: Vec<_> = (1_000..1_600).map(name).collect();
    let put = |value: &'static [u8]| WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    for (at, names) in (1..).zip(names.chunks(20)) {
        let writes: Vec<_> =
            names.iter().map(|name| Write { key: small.key(ORDERED, name), kind: put(&[3; 40]) }).collect();
        small.shard.write_part(small.now, &writes, &BatchTicket::new(at, 1)).unwrap();
        // What gives blocks free space. No step comes between.
        for _ in 0..4 {
            let key = small.key(HASHED, &names[0]);
            small.shard.write(small.now, &[Write { key, kind: put(&[4; 40]) }]).unwrap();
        }
    }
    let mut strangers = 0;
    for _ in 0..40 {
        small.step();
        for (id, keys, _) in &small.shard.sweeping {
            keys.scan(Position(0), usize::MAX, |place| {
                let is_own = small
                    .shard
                    .record(place)
                    .is_ok_and(|(head, _)| head.keyspace == id.0 && keys.has(Position(head.position), place));
                strangers += usize::from(!is_own);
            });
        }
    }
    small.shard.end_backup();
    for round in 0..40 {
        // What was freed is used again.
        for number in 2_000..2_060 {
            small.write(HASHED, &name(number), Some(&[round; 100]));
        }
        small.step();
    }
    let is_there = |number: &u32| {
        let found = small.shard.find(&small.key(HASHED, &name(*number)));
        matches!(found, Ok(Some(_)))
    };
    (strangers, (0..400).filter(|number| !is_there(number)).count())
}

#[test]
fn what_is_written_to_a_dropped_keyspace_is_none_of_a_snapshots() {
    assert_eq!(reborn_beside_a_backup(&Mutations::none()), (0, 0));
    let (strangers, lost) = reborn_beside_a_backup(&Mutations::one("reborn_taken_for_retained"));
    println!("{strangers} places of others, {lost} keys are lost");
    assert!(strangers > 0, "the mutation is not caught");
}
