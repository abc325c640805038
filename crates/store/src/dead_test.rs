use super::*;
use crate::large::ValueIds;
use tierstone_base::{KeyspaceId, SeededRandom};

#[test]
fn the_free_ones_are_those_that_nobody_holds_in_the_order_of_their_deaths() {
    let mut random = SeededRandom::new(5);
    let ids = ValueIds::new(0, 0, 256);
    let maps: Vec<LargeMap> = (0..8).map(|_| ids.new_map(1)).collect();
    let (mut dead, mut model, mut held) = (DeadValues::default(), Vec::<usize>::new(), [false; 8]);
    for _ in 0..10_000 {
        let which = random.below(8) as usize;
        let (id, place) = (maps[which].id, Place { keyspace: KeyspaceId(which as u32 % 3), slot: 0 });
        match random.below(6) {
            0 | 1 => {
                let mark = dead.mark();
                dead.push(Dead::whole(place, maps[which].clone()), held[which]);
                assert!(dead.since(mark).map(|dead| dead.map.id).eq([id]));
                model.retain(|other| *other != which);
                model.push(which);
            }
            2 => {
                dead.remove(id);
                model.retain(|other| *other != which);
            }
            3 if which == 0 => {
                dead.retain(|place| place.keyspace != KeyspaceId(1));
                model.retain(|other| other % 3 != 1);
            }
            _ => {
                held[which] = !held[which];
                dead.note_held(id, held[which]);
            }
        }
        let free: Vec<u64> = dead.free().collect();
        let mut found = Vec::new();
        for number in free {
            let taken = dead.take(number).expect("a free one is there");
            found.push(taken.map.id);
            dead.put_back(number, taken);
        }
        let free = model.iter().filter(|which| !held[**which]).map(|which| maps[*which].id);
        assert!(free.eq(found));
        assert_eq!(dead.is_empty(), model.is_empty());
        assert!((0..8).all(|which| dead.contains(maps[which].id) == model.contains(&which)));
    }
}
