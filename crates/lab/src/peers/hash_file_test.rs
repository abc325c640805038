use super::*;
use crate::peers::BTree;
use crate::scratch::Scratch;
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;

fn settings(records: u64) -> HashFileSettings {
    HashFileSettings {
        records,
        key_bytes: 4,
        value_bytes: 200,
        memory_bytes: 3 * BLOCK_BYTES as u64,
        method: DurableMethod::DurableWrite,
    }
}

/// Random batches against a map.
fn behaves_as_a_map(target: &mut dyn Target, keys: u64, rounds: usize) {
    let mut random = SeededRandom::new(11);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for round in 0..rounds {
        let batch: Vec<(Vec<u8>, Vec<u8>)> = (0..1 + random.below(40))
            .map(|_| {
                let mut value = vec![0; 200];
                random.fill(&mut value);
                ((random.below(keys) as u32).to_be_bytes().to_vec(), value)
            })
            .collect();
        let records: Vec<(&[u8], &[u8])> = batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        target.put_many(&records).unwrap();
        model.extend(batch);
        let asked: Vec<[u8; 4]> = (0..30).map(|_| (random.below(keys) as u32).to_be_bytes()).collect();
        let asked: Vec<&[u8]> = asked.iter().map(|key| &key[..]).collect();
        let mut answered = 0;
        target
            .get_many(&asked, &mut |place, found| {
                assert_eq!(found, model.get(asked[place]).map(|value| &value[..]), "round {round}");
                answered += 1;
            })
            .unwrap();
        assert_eq!(answered, asked.len());
    }
}

#[test]
fn the_hash_table_answers_as_a_map_with_little_memory_and_overflow() {
    let scratch = Scratch::new(&std::env::temp_dir(), 0).unwrap();
    // As full as it gets: blocks overflow into their neighbours.
    let mut table = HashFile::create(scratch.path(), settings(300)).unwrap();
    behaves_as_a_map(&mut table, 400, 60);
    assert!(table.frames.len() <= 3);
    assert_eq!(table.frames.len(), table.order.len());
}

#[test]
fn a_full_hash_table_says_so() {
    let scratch = Scratch::new(&std::env::temp_dir(), 0).unwrap();
    let mut table = HashFile::create(scratch.path(), settings(20)).unwrap();
    let full = (0..100u32).find_map(|key| table.put(&key.to_be_bytes(), &[7; 200]).err());
    assert_eq!(full.unwrap().kind(), ErrorKind::NoSpace);
    assert_eq!(table.put(b"longer", &[7; 200]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(table.put(b"four", &[7; 20]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn the_b_tree_answers_as_a_map() {
    let scratch = Scratch::new(&std::env::temp_dir(), 0).unwrap();
    let mut tree = BTree::create(&scratch.path().join("tree"), 1 << 20).unwrap();
    behaves_as_a_map(&mut tree, 400, 15);
    let mut value = Vec::new();
    assert!(!tree.get(b"none", &mut value).unwrap() && value.is_empty());
}
