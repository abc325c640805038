use super::*;
use tierstone_media::probe::published_profiles;

#[test]
fn measured_and_published_numbers_keep_to_their_columns() {
    let rows = comparison(None, published_profiles());
    assert_eq!(rows[0][2], "measured here");
    assert_eq!(rows[0][4], "published");
    let mut published = 0;
    for row in &rows[1..] {
        assert_eq!(row.len(), 7, "{row:?}");
        assert!(!row[1].is_empty(), "a number without a unit: {row:?}");
        assert!(matches!(row[2].as_str(), "-" | ""), "nothing was measured: {row:?}");
        if row[4] != "-" {
            published += 1;
            assert!(!row[5].is_empty() && !row[6].is_empty(), "a number without a source: {row:?}");
        }
    }
    let given = published_profiles().iter().map(|profile| {
        let numbers = [
            profile.random_read_us,
            profile.random_reads_per_second,
            profile.sequential_read_bytes_per_second,
            profile.sequential_write_bytes_per_second,
            profile.durable_write_us,
            profile.writes_per_second,
        ];
        numbers.iter().flatten().count()
    });
    assert_eq!(published, given.sum::<usize>(), "every published number is shown once");
}

#[test]
fn durable_methods_have_names() {
    assert_eq!(parse_durable_method("auto").expect("known"), None);
    for method in [DurableMethod::DurableWrite, DurableMethod::WriteThenFlush] {
        assert_eq!(parse_durable_method(method.name()).expect("known"), Some(method));
    }
    assert!(parse_durable_method("hope").is_err_and(|error| error.message().contains("write-then-flush")));
}
