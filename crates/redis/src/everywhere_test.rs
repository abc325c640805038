use super::*;

fn text(body: &str) -> Vec<u8> {
    let mut reply = Vec::new();
    ReplyWriter::new(&mut reply, Version::Resp2).verbatim(*b"txt", body.as_bytes());
    reply
}

#[test]
fn counters_of_all_shards_are_added_and_facts_are_not() {
    let own = text(
        "# Server\r\nuptime_in_seconds:7\r\n\r\n# Memory\r\nused_memory:1048576\r\nused_memory_human:1 MiB\r\n\r\n\
         # Keyspace\r\ndb0:keys=3\r\n",
    );
    let other = text(
        "# Server\r\nuptime_in_seconds:9\r\n\r\n# Memory\r\nused_memory:1048576\r\nused_memory_human:1 MiB\r\n\r\n\
         # Keyspace\r\ndb0:keys=4\r\ndb2:keys=5\r\n",
    );
    let merged = merge((Merge::Info, &OwnedArgs::default()), &own, &[&other], Version::Resp3);
    let merged = text_of(&merged).unwrap();
    assert_eq!(
        merged,
        "# Server\r\nuptime_in_seconds:7\r\n\r\n# Memory\r\nused_memory:2097152\r\nused_memory_human:2 MiB\r\n\r\n\
         # Keyspace\r\ndb0:keys=7\r\ndb2:keys=5\r\n"
    );
}

#[test]
fn full_space_is_foreseen_for_all_shards_together() {
    let storage = |live: u64, capacity: u64, growth: i64, full_in: i64| {
        text(&format!(
            "# Storage\r\nspace_live_bytes:{live}\r\nspace_capacity_bytes:{capacity}\r\n\
             space_growth_bytes_per_day:{growth}\r\nspace_full_in_seconds:{full_in}\r\n"
        ))
    };
    let seen = |others: &[&[u8]]| {
        let merged = merge(
            (Merge::Info, &OwnedArgs::default()),
            &storage(40, 100, 30, 158_400),
            others,
            Version::Resp3,
        );
        text_of(&merged).unwrap().lines().skip(3).map(str::to_owned).collect::<Vec<_>>()
    };
    let (shrinks, grows) = (storage(30, 0, -20, -1), storage(50, 0, 20, 0));
    assert_eq!(seen(&[&shrinks]), ["space_growth_bytes_per_day:10", "space_full_in_seconds:216000"]);
    assert_eq!(seen(&[&grows]), ["space_growth_bytes_per_day:50", "space_full_in_seconds:8640"]);
    assert_eq!(seen(&[&shrinks, &shrinks]), ["space_growth_bytes_per_day:-10", "space_full_in_seconds:-1"]);
}

#[test]
fn the_memory_of_each_shard_is_shown() {
    let own = text("# Memory\r\nmemory_part_bytes:3\r\nmemory_part_bytes_shard_1:3\r\n\r\n# Stats\r\n");
    let other = text("# Memory\r\nmemory_part_bytes:4\r\nmemory_part_bytes_shard_0:4\r\n\r\n# Stats\r\n");
    let merged = merge((Merge::Info, &OwnedArgs::default()), &own, &[&other], Version::Resp3);
    assert_eq!(
        text_of(&merged).unwrap(),
        "# Memory\r\nmemory_part_bytes:7\r\nmemory_part_bytes_shard_1:3\r\nmemory_part_bytes_shard_0:4\r\n\r\n# Stats\r\n"
    );
}

#[test]
fn who_kills_is_told_how_many_at_all_shards() {
    let numbers = |own: &[u8], others: &[&[u8]]| {
        merge((Merge::Numbers, &OwnedArgs::default()), own, others, Version::Resp2)
    };
    assert_eq!(numbers(b":1\r\n", &[b":2\r\n", b":0\r\n"]), b":3\r\n");
    let none: &[u8] = b"-ERR No such client\r\n";
    assert_eq!(numbers(none, &[b"+OK\r\n"]), b"+OK\r\n");
    assert_eq!(numbers(none, &[none]), none);
}

#[test]
fn lists_of_all_shards_follow_each_other() {
    let merged =
        merge((Merge::Texts, &OwnedArgs::default()), &text("id=1\n"), &[&text("id=2\n")], Version::Resp2);
    assert_eq!(text_of(&merged), Some("id=1\nid=2\n"));
}

#[test]
fn joules_a_request_are_those_of_all_shards_over_the_requests_of_all() {
    let energy = |device: u64, requests: u64| {
        text(&format!(
            "# Energy\r\nenergy_label:measured\r\nenergy_measured_uj:9000\r\nenergy_model:cloud\r\n\
             energy_modelled_idle_uj:5000\r\nenergy_modelled_cpu_uj:1000\r\n\
             energy_modelled_device_uj:{device}\r\nenergy_requests:{requests}\r\n\
             energy_modelled_active_uj_per_request:1.5\r\nenergy_modelled_uj_per_request:2.5\r\n\
             energy_measured_uj_per_request:3.5\r\n"
        ))
    };
    let merged =
        merge((Merge::Info, &OwnedArgs::default()), &energy(200, 3), &[&energy(300, 7)], Version::Resp3);
    let lines: Vec<String> = text_of(&merged).unwrap().lines().skip(4).map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "energy_modelled_idle_uj:5000",
            "energy_modelled_cpu_uj:1000",
            "energy_modelled_device_uj:500",
            "energy_requests:10",
            "energy_modelled_active_uj_per_request:150.000",
            "energy_modelled_uj_per_request:650.000",
            "energy_measured_uj_per_request:900.000",
        ]
    );
}
