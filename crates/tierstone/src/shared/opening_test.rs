//! The order in which shards are made.

use super::super::message::Message;
use super::{Turn, Turns};
use crate::{Batch, DatabaseOptions, SharedStore};
use crossbeam_channel::{Sender, unbounded};
use std::sync::Mutex;

/// The order in which so many shards get their turns, all of which wait while `held` has one; those in `asked` have been asked
/// for.
fn order_of(turns: &Turns, held: Turn<'_>, shards: u32, asked: &[u32]) -> Vec<u32> {
    let order = Mutex::new(Vec::new());
    let ways: Vec<_> = (0..shards).map(|_| unbounded()).collect();
    std::thread::scope(|scope| {
        for (shard, (_, mailbox)) in (0..).zip(&ways) {
            let order = &order;
            scope.spawn(move || {
                let _turn = turns.take(shard, mailbox);
                order.lock().unwrap().push(shard);
            });
        }
        while turns.state().waiting.len() < shards as usize {
            std::thread::yield_now();
        }
        assert!(order.lock().unwrap().is_empty());
        asked.iter().for_each(|&shard| ask(&ways[shard as usize].0));
        drop(held);
    });
    order.into_inner().unwrap()
}

fn ask(sender: &Sender<Message>) {
    let (reply, _answer) = super::Answer::new();
    sender.send(Message::Statistics { reply }).unwrap();
}

#[test]
fn who_was_asked_for_comes_first_then_the_lowest() {
    let turns = Turns::new(1);
    let (_sender, mailbox) = unbounded();
    let held = turns.take(9, &mailbox);
    assert_eq!(order_of(&turns, held, 5, &[4, 3]), [3, 4, 0, 1, 2]);
}

#[test]
fn no_more_are_made_at_a_time_than_there_are_turns() {
    let turns = Turns::new(2);
    let (_sender, mailbox) = unbounded();
    let first = turns.take(7, &mailbox);
    let _second = turns.take(8, &mailbox);
    assert_eq!(order_of(&turns, first, 3, &[]), [0, 1, 2]);
}

#[test]
fn a_store_serves_while_its_shards_are_made() {
    let path = std::env::temp_dir().join(format!("tierstone-opening-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = DatabaseOptions {
        capacity_bytes: Some(320 << 20),
        memory_bytes: 64 << 20,
        any_guarantee: true,
        shards: 6,
        ..DatabaseOptions::new(format!("nvm:{}", path.display()))
    };
    let key = |number: u32| format!("key-{number}").into_bytes();
    let store = SharedStore::open(&options).unwrap();
    let put: Vec<_> =
        (0..30_000).map(|number| store.put_async(&key(number), &number.to_le_bytes())).collect();
    put.into_iter().try_for_each(super::Answer::wait).unwrap();
    drop(store);
    for round in 0..5_u32 {
        let (store, opening) = SharedStore::open_serving(&options).unwrap();
        let mut batch = Batch::new();
        for number in 0..12 {
            batch.put(&key(number), &(round + 1).to_le_bytes());
        }
        let got: Vec<_> = (100..200).map(|number| (number, store.get_async(&key(number)))).collect();
        store.write(&batch).unwrap();
        for (number, answer) in got {
            assert_eq!(answer.wait().unwrap().as_deref(), Some(&u32::to_le_bytes(number)[..]), "{number}");
        }
        assert!((0..12).all(
            |number| store.get(&key(number)).unwrap().as_deref() == Some(&(round + 1).to_le_bytes()[..])
        ));
        if round % 2 == 0 {
            opening.wait().unwrap();
            store.close().unwrap();
        } else {
            // Closing waits for whoever is still being made.
            store.close().unwrap();
            assert!(opening.is_over());
        }
    }
    std::fs::remove_file(&path).unwrap();
}
