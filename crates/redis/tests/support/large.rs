//! What tests of large values look at, and how they upload.

use super::{Server, settings};
use tierstone_base::KeyspaceId;
use tierstone_engine::Engine;
use tierstone_engine::map_engine::MapEngine;
use tierstone_redis::Executor;

/// Databases of the support's servers have keyspaces from 1 on.
const KEYSPACES: std::ops::RangeInclusive<u32> = 1..=40;

pub fn records<E: Engine>(server: &Server<E>, companion: impl Fn(KeyspaceId) -> KeyspaceId) -> u64 {
    let of = |engine: &E| KEYSPACES.map(|id| engine.len(companion(KeyspaceId(id)))).sum::<u64>();
    server.executors.iter().map(|executor| of(executor.shard().engine())).sum()
}

/// Chunks of large values on all shards.
pub fn chunks<E: Engine>(server: &Server<E>) -> u64 {
    records(server, KeyspaceId::chunks)
}

/// Steps until nothing is left to be reclaimed.
pub fn rest<E: Engine>(server: &mut Server<E>) {
    for _ in 0..100_000 {
        server.step();
        if server.executors.iter().all(|executor| executor.shard().ledger().is_idle()) {
            // What was read for the ledger is held for some steps more.
            (0..100).for_each(|_| server.step());
            return;
        }
    }
    panic!("the ledger never came to rest");
}

/// Nothing is left of large values when all keys are gone.
pub fn assert_all_given_back<E: Engine>(server: &mut Server<E>, place: &str) {
    rest(server);
    assert_eq!(chunks(server), 0, "{place}: chunks are left");
    assert_eq!(records(server, KeyspaceId::ledger), 0, "{place}: entries of the ledger are left");
}

/// Feeds `value` as argument of a request that begins with `words` and ends with `rest`.
pub fn upload<E: Engine>(
    server: &mut Server<E>,
    id: u64,
    words: &[&[u8]],
    value: &[u8],
    rest: &[&[u8]],
) -> Vec<u8> {
    let args = staged(server, id, words, value, rest);
    server.send_owned(id, args);
    server.settle();
    server.take_received(id)
}

/// The same request, with its value uploaded, before it is made.
pub fn staged<E: Engine>(
    server: &mut Server<E>,
    id: u64,
    words: &[&[u8]],
    value: &[u8],
    rest: &[&[u8]],
) -> tierstone_redis::OwnedArgs {
    let mut args: tierstone_redis::OwnedArgs = words.iter().copied().collect();
    let (now, shard) = (server.now, server.shard_of(id));
    let ticket = loop {
        match server.executors[shard].begin_upload(now, id, &args, value.len() as u64) {
            tierstone_redis::Begun::Upload(ticket) => break ticket,
            tierstone_redis::Begun::Wait => server.step(),
            refused => panic!("{refused:?}"),
        }
    };
    let mut at = 0;
    while at < value.len() {
        let end = value.len().min(at + 50_000);
        let taken = server.executors[shard].feed_upload(server.now, ticket, &value[at..end]);
        at += taken;
        if taken == 0 {
            server.step();
        }
    }
    let staged = loop {
        match server.executors[shard].end_upload(server.now, ticket) {
            Some(staged) => break staged.unwrap(),
            None => server.step(),
        }
    };
    args.push_staged(staged);
    args.extend(rest.iter().copied());
    args
}

/// A server whose shards may each hold so many bytes for one run.
pub fn limited(shards: u16, held_bytes_max: u64) -> Server<MapEngine> {
    let mut server = Server::new((0..shards).map(|_| MapEngine::new(0)));
    for (index, executor) in (0..shards).zip(&mut server.executors) {
        let mut settings = settings(index, shards);
        settings.held_bytes_max = held_bytes_max;
        *executor = Executor::new(MapEngine::new(0), settings);
    }
    server
}
