use super::*;

#[test]
fn counters_of_all_shards_are_added_and_facts_are_not() {
    let own = "# Server\r\nuptime_in_seconds:7\r\n\r\n# Memory\r\nused_memory:1048576\r\nused_memory_human:1 MiB\r\n\
               used_memory_peak:2097152\r\nused_memory_peak_human:2 MiB\r\n\r\n\
               # Keyspace\r\ndb0:keys=3,expires=0,avg_ttl=0\r\n";
    let other = "# Server\r\nuptime_in_seconds:9\r\n\r\n# Memory\r\nused_memory:1048576\r\nused_memory_human:1 MiB\r\n\
                 used_memory_peak:1048576\r\nused_memory_peak_human:1 MiB\r\n\r\n\
                 # Keyspace\r\ndb0:keys=4,expires=0,avg_ttl=0\r\ndb2:keys=5,expires=0,avg_ttl=0\r\n";
    assert_eq!(
        merge_info(own, &[other]),
        "# Server\r\nuptime_in_seconds:7\r\n\r\n# Memory\r\nused_memory:2097152\r\nused_memory_human:2 MiB\r\n\
         used_memory_peak:3145728\r\nused_memory_peak_human:3 MiB\r\n\r\n\
         # Keyspace\r\ndb0:keys=7,expires=0,avg_ttl=0\r\ndb2:keys=5,expires=0,avg_ttl=0\r\n"
    );
}

#[test]
fn a_section_that_is_empty_at_the_asked_shard_has_the_lines_of_the_others() {
    let other = "# Errorstats\r\nerrorstat_ERR:count=2\r\n\r\n# Keyspace\r\ndb10:keys=4,expires=0,avg_ttl=0\r\n\
                 db2:keys=5,expires=0,avg_ttl=0\r\n";
    let expected = "# Errorstats\r\nerrorstat_ERR:count=2\r\n\r\n# Keyspace\r\ndb2:keys=5,expires=0,avg_ttl=0\r\n\
                    db10:keys=4,expires=0,avg_ttl=0\r\n";
    assert_eq!(merge_info("# Errorstats\r\n\r\n# Keyspace\r\n", &[other]), expected);
    assert_eq!(merge_info("# Keyspace\r\n", &["# Keyspace\r\n"]), "# Keyspace\r\n");
    assert_eq!(merge_info("# Stats\r\nuntold_expirations:1\r\n", &[]), "# Stats\r\nuntold_expirations:1\r\n");
}

#[test]
fn a_device_that_has_failed_is_told_whoever_is_asked() {
    let health = |text: &str, failed: u8| {
        format!("# Persistence\r\ndevice_health:{text}\r\ndevice_failed_shards:{failed}\r\n")
    };
    let (fine, first, second) =
        (health("ok", 0), health("failed: EIO (5)", 1), health("failed: no such device", 1));
    let seen = |own: &str, others: &[&str]| merge_info(own, others);
    assert_eq!(seen(&fine, &[&fine, &fine]), fine);
    assert_eq!(seen(&fine, &[&fine, &first]), first);
    assert_eq!(seen(&first, &[&fine, &fine]), first);
    assert_eq!(seen(&fine, &[&second, &first]), health("failed: no such device", 2));
    assert_eq!(seen(&first, &[&second, &fine]), health("failed: EIO (5)", 2));
    let in_redis_words = |text: &str| format!("# Persistence\r\naof_last_write_status:{text}\r\n");
    assert_eq!(seen(&in_redis_words("ok"), &[&in_redis_words("err")]), in_redis_words("err"));
    assert_eq!(seen(&in_redis_words("ok"), &[&in_redis_words("ok")]), in_redis_words("ok"));
}

#[test]
fn what_follows_from_numbers_of_one_shard_is_worked_out_for_all() {
    let told = |index: u64, records: u64, saved: u64| {
        let average = index as f64 / records.max(1) as f64;
        format!(
            "# Memory\r\nindex_bytes:{index}\r\nindex_records:{records}\r\nindex_bytes_per_key:{average:.1}\r\n\r\n\
             # Persistence\r\nrdb_last_save_time:{saved}\r\n"
        )
    };
    assert_eq!(merge_info(&told(100, 10, 7), &[&told(50, 0, 9), &told(0, 5, 8)]), told(150, 15, 9));
}

#[test]
fn full_space_is_foreseen_for_all_shards_together() {
    let storage = |live: u64, capacity: u64, growth: i64, full_in: i64| {
        format!(
            "# Storage\r\nspace_live_bytes:{live}\r\nspace_capacity_bytes:{capacity}\r\n\
             space_growth_bytes_per_day:{growth}\r\nspace_full_in_seconds:{full_in}\r\n"
        )
    };
    let seen = |others: &[&str]| {
        let merged = merge_info(&storage(40, 100, 30, 158_400), others);
        merged.lines().skip(3).map(str::to_owned).collect::<Vec<_>>()
    };
    let (shrinks, grows) = (storage(30, 0, -20, -1), storage(50, 0, 20, 0));
    assert_eq!(seen(&[&shrinks]), ["space_growth_bytes_per_day:10", "space_full_in_seconds:216000"]);
    assert_eq!(seen(&[&grows]), ["space_growth_bytes_per_day:50", "space_full_in_seconds:8640"]);
    assert_eq!(seen(&[&shrinks, &shrinks]), ["space_growth_bytes_per_day:-10", "space_full_in_seconds:-1"]);
}

#[test]
fn the_memory_of_each_shard_is_shown() {
    let own = "# Memory\r\nmemory_part_bytes:3\r\nmemory_part_bytes_shard_1:3\r\n\r\n# Stats\r\n";
    let other = "# Memory\r\nmemory_part_bytes:4\r\nmemory_part_bytes_shard_0:4\r\n\r\n# Stats\r\n";
    assert_eq!(
        merge_info(own, &[other]),
        "# Memory\r\nmemory_part_bytes:7\r\nmemory_part_bytes_shard_1:3\r\nmemory_part_bytes_shard_0:4\r\n\r\n# Stats\r\n"
    );
}

#[test]
fn joules_a_request_are_those_of_all_shards_over_the_requests_of_all() {
    let energy = |device: u64, requests: u64| {
        format!(
            "# Energy\r\nenergy_label:measured\r\nenergy_measured_uj:9000\r\nenergy_measured_mean_uw:1500\r\n\
             energy_uptime_us:8000000\r\nenergy_model:cloud\r\n\
             energy_modelled_idle_uj:5000\r\nenergy_modelled_cpu_uj:1000\r\n\
             energy_modelled_device_uj:{device}\r\nenergy_requests:{requests}\r\n\
             energy_modelled_active_uj_per_request:1.5\r\nenergy_modelled_uj_per_request:2.5\r\n\
             energy_measured_uj_per_request:3.5\r\n"
        )
    };
    // The meters cover six of eight seconds: 9 mJ in six seconds are 12 mJ in eight, over ten requests.
    let merged = merge_info(&energy(200, 3), &[&energy(300, 7)]);
    let lines: Vec<&str> = merged.lines().skip(6).collect();
    assert_eq!(
        lines,
        [
            "energy_modelled_idle_uj:5000",
            "energy_modelled_cpu_uj:1000",
            "energy_modelled_device_uj:500",
            "energy_requests:10",
            "energy_modelled_active_uj_per_request:150.000",
            "energy_modelled_uj_per_request:650.000",
            "energy_measured_uj_per_request:1200.000",
        ]
    );
}
