use super::*;

fn options(name: &str) -> (std::path::PathBuf, DatabaseOptions) {
    let path = std::env::temp_dir().join(format!("tierstone-local-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let options = DatabaseOptions {
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(4 << 20),
        memory_bytes: 4 << 20,
        databases: 2,
        durable_method: Some(tierstone_media::file::DurableMethod::DurableWrite),
        ..DatabaseOptions::new(&path)
    };
    (path, options)
}

#[test]
fn a_value_is_read_where_it_lies_and_into_the_callers_buffer() {
    let (path, options) = options("read");
    let mut store = Store::open(&options).unwrap();
    store.put(b"key", b"value").unwrap();
    assert_eq!(store.get_with(b"key", <[u8]>::len).unwrap(), Some(5));
    let mut buffer = b"the ".to_vec();
    assert!(store.get_into(b"key", &mut buffer).unwrap());
    assert!(!store.get_into(b"nothing", &mut buffer).unwrap());
    assert_eq!(buffer, b"the value");
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_value_is_gone_when_its_time_is_over() {
    let (path, options) = options("expiry");
    let mut store = Store::open(&options).unwrap();
    store.put_with(b"gone", b"1", PutOptions { expiry: Expiry::At(1) }).unwrap();
    store.put_with(b"there", b"2", PutOptions::expires_in(Duration::from_secs(3_600))).unwrap();
    store.put_with(b"brief", b"3", PutOptions::expires_in(Duration::from_millis(30))).unwrap();
    assert_eq!(store.get(b"gone").unwrap(), None);
    assert_eq!(store.get(b"there").unwrap().unwrap(), b"2");
    // The clock of the handle goes on by itself; every look at an expiring record reads it.
    while store.get(b"brief").unwrap().is_some() {}
    let seen: Vec<Entry> = store.scan().map(Result::unwrap).collect();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].key == b"there" && seen[0].expires_at_ms.is_some());
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_ticket_is_waited_for_and_databases_are_apart() {
    let (path, options) = options("tickets");
    let mut store = Store::open(&options).unwrap();
    let tickets: Vec<Ticket> =
        (0..300u32).map(|n| store.put_nowait(&n.to_be_bytes(), &[1; 50]).unwrap()).collect();
    let groups = store.statistics().groups;
    store.wait(tickets[299]).unwrap();
    assert!(store.statistics().groups < groups + 300, "puts that were not waited for share groups");
    assert_eq!(store.lanes[0].engine.durable_seq(), store.lanes[0].engine.applied_seq());
    let mut second = store.keyspace(1).unwrap();
    assert!(second.is_empty());
    second.put(&0u32.to_be_bytes(), b"other").unwrap();
    assert_eq!((second.len(), store.len()), (1, 300));
    assert_eq!(store.get(&0u32.to_be_bytes()).unwrap().unwrap(), [1; 50]);
    assert_eq!(store.keyspace(2).unwrap_err().kind(), ErrorKind::InvalidInput);
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn lent_time_writes_what_was_not_waited_for() {
    let (path, mut options) = options("turn");
    options.shard.durability = tierstone_engine::Durability::Relaxed;
    let mut store = Store::open(&options).unwrap();
    store.put(b"key", b"value").unwrap();
    let next = store.turn().unwrap();
    assert!(next.is_some_and(|next| next <= Duration::from_secs(1)), "{next:?}");
    while store.lanes[0].engine.durable_seq() < store.lanes[0].engine.applied_seq() {
        store.turn().unwrap();
    }
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

/// A batch that puts `value` under some keys on all of several shards.
fn spread(batch: &mut Batch, keys: u32, value: &[u8]) {
    batch.clear();
    for key in 0..keys {
        batch.put(format!("spread:{key}").as_bytes(), value);
    }
}

#[test]
fn batches_over_shards_are_there_after_a_close_and_after_an_end_without_one() {
    let (path, options) = options("across");
    let options = DatabaseOptions { shards: 3, ..options };
    let mut batch = Batch::new();
    for (round, closes) in [(0u8, true), (1, false), (2, true)] {
        let mut store = Store::open(&options).unwrap();
        if round > 0 {
            let report = store.database().report();
            assert_eq!(report.walked_segments > 0, round == 2, "{report:?}");
            assert_eq!(report.dropped_records, 0);
            for key in 0..20u32 {
                let found = store.get(format!("spread:{key}").as_bytes()).unwrap().unwrap();
                assert_eq!(found, [round - 1; 100]);
            }
        }
        for value in [7, round] {
            spread(&mut batch, 20, &[value; 100]);
            store.write(&batch).unwrap();
            store.put(b"alone", b"1").unwrap();
        }
        if closes {
            store.close().unwrap();
        }
    }
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn shards_give_space_back_that_batches_over_all_of_them_have_used() {
    let (path, options) = options("across-space");
    let mut store = Store::open(&DatabaseOptions { shards: 2, ..options }).unwrap();
    let mut batch = Batch::new();
    // Sixteen megabytes of changes in a store of four; then one shard alone goes on.
    for round in 0..400u32 {
        spread(&mut batch, 20, &[round as u8; 2_000]);
        store.write(&batch).unwrap();
    }
    for _ in 0..2_000 {
        store.put(b"alone", &[3; 4_000]).unwrap();
    }
    assert_eq!(store.get(b"spread:7").unwrap().unwrap(), [399u32 as u8; 2_000]);
    store.close().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn large_values_of_the_server_are_not_overwritten_whatever_the_number_of_shards() {
    for shards in [1, 2] {
        let (path, options) = options("large");
        let mut store = Store::open(&DatabaseOptions { shards, ..options }).unwrap();
        crate::simulated::put_large(&mut store, "xx");
        let refused = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Unsupported);
        refused(store.put(b"{xx}large", b"small"));
        refused(store.put_nowait(b"{xx}large", b"small").map(drop));
        refused(store.delete(b"{xx}large").map(drop));
        let mut batch = Batch::new();
        batch.put(b"{xx}other", b"small").put(b"{xx}large", b"small");
        refused(store.write(&batch));
        // Over all shards.
        spread(&mut batch, 20, b"value");
        refused(store.write(batch.put(b"{xx}large", b"small")));
        spread(&mut batch, 20, b"value");
        refused(store.write(batch.delete(b"{xx}large")));
        let mut load = store.bulk_load(Default::default()).unwrap();
        load.put(b"{xx}large", b"small").unwrap();
        refused(load.finish().map(drop));
        assert_eq!(store.len(), 1, "of {shards} shards one took a part of what was refused");
        spread(&mut batch, 20, b"value");
        store.write(&batch).unwrap();
        assert_eq!(store.len(), 21);
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn what_belongs_to_another_handle_is_refused() {
    let (path, one_options) = options("mixed-one");
    let (other_path, other_options) = options("mixed-other");
    let mut one = Store::open(&DatabaseOptions { shards: 2, ..one_options }).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    let kind = |error: Error| error.kind();
    for number in 0..20u8 {
        let ticket = one.put_nowait(&[number], b"value").unwrap();
        assert_eq!(kind(other.wait(ticket).unwrap_err()), ErrorKind::InvalidInput);
        one.wait(ticket).unwrap();
    }
    let mut backup = one.begin_backup(crate::BackupWriter::stream(std::io::sink())).unwrap();
    assert_eq!(kind(backup.step(&mut other).unwrap_err()), ErrorKind::InvalidInput);
    let report = loop {
        if let Some(report) = backup.step(&mut one).unwrap() {
            break report;
        }
    };
    assert_eq!(report.records, 20);
    drop((one, other));
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::remove_dir_all(&other_path).unwrap();
}

#[test]
fn a_backup_that_is_refused_leaves_nothing_that_the_next_one_is_refused_for() {
    let (path, store_options) = options("backed-up");
    let backup = path.join("backups/backup");
    let mut store = Store::open(&DatabaseOptions { shards: 2, ..store_options.clone() }).unwrap();
    let under_way = store.begin_backup(crate::BackupWriter::stream(std::io::sink())).unwrap();
    assert_eq!(store.backup(&backup, &mut |_| {}).unwrap_err().kind(), ErrorKind::Busy);
    assert!(!path.join("backups").exists());
    drop(under_way);
    store.backup(&backup, &mut |_| {}).unwrap();
    store.close().unwrap();

    let next = path.join("next");
    let store = crate::SharedStore::open(&DatabaseOptions { shards: 2, ..store_options }).unwrap();
    let mut refused = 0;
    store
        .backup_to(crate::BackupWriter::stream(std::io::sink()), &mut |_| {
            refused += usize::from(store.backup(&next, &mut |_| {}).unwrap_err().kind() == ErrorKind::Busy);
        })
        .unwrap();
    assert!(refused > 0 && !next.exists());
    store.backup(&next, &mut |_| {}).unwrap();
    let error = store.backup(&next, &mut |_| {}).unwrap_err();
    assert!(error.message().contains("already"), "{error}");
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}
