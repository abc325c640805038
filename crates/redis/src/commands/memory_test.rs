use super::*;

const MIB: u64 = 1 << 20;

/// A shard with nothing to complain of.
fn fine(shard: u64) -> MemoryNumbers {
    MemoryNumbers {
        shard,
        keys: 10,
        records: 12,
        index: MIB,
        cache: 4 * MIB,
        buffer: 2 * MIB,
        part: 32 * MIB,
        connected: 2,
        connections: MIB / 2,
        connections_max: 4 * MIB,
        requests: MIB / 2,
        requests_max: 4 * MIB,
        peak: 9 * MIB,
        budget: 64 * MIB,
        resident: 128 * MIB,
        failure: None,
    }
}

#[test]
fn what_a_shard_tells_is_read() {
    let failed = MemoryNumbers { failure: Some("EIO: 5".into()), ..fine(1) };
    for numbers in [fine(3), failed, MemoryNumbers::default()] {
        assert_eq!(MemoryNumbers::read(&numbers.clone().write()), numbers);
    }
    assert_eq!(MemoryNumbers::read("nonsense\nkeys:x\nother:1"), MemoryNumbers::default());
}

#[test]
fn memory_as_it_should_be_is_said_to_be() {
    assert_eq!(
        doctor(&[fine(0), fine(1)]),
        "Memory is as it should be: 20 keys; the index takes 2 MiB, cached records 8 MiB, buffers 4 MiB, \
         connections 1 MiB, requests 1 MiB.\n"
    );
}

#[test]
fn what_is_wrong_with_any_shard_is_told_with_what_to_do() {
    let index = MemoryNumbers { index: 22 * MIB, ..fine(1) };
    let connections = MemoryNumbers { connections: 4 * MIB, ..fine(2) };
    let requests = MemoryNumbers { requests: 4 * MIB, ..fine(3) };
    let failed = MemoryNumbers { failure: Some("EIO".into()), ..fine(4) };
    let told = doctor(&[fine(0), index, connections, requests, failed]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    for (line, [start, advice]) in lines.iter().zip([
        ["Indexes of shard 1 take 22 MiB of at most 24 MiB: ", "maxmemory-policy"],
        ["Buffers of connections of shard 2 take 4 MiB of at most 4 MiB: ", "maxmemory-clients"],
        ["Requests that have not come to their end of shard 3 take 4 MiB of at most 4 MiB: ", "shorter"],
        ["The device of shard 4 has failed: EIO. ", "restart"],
    ]) {
        assert!(line.starts_with(start) && line.contains(advice), "{line}");
    }
}

#[test]
fn a_process_above_its_budget_is_told() {
    let above = MemoryNumbers { resident: 129 * MIB, ..fine(0) };
    assert!(
        doctor(&[fine(1), above.clone()]).starts_with("The process takes 129 MiB, more than the 64 MiB of")
    );
    let many = MemoryNumbers { connected: 100, ..above };
    assert!(doctor(&[many]).starts_with("Memory is as it should be"));
}
