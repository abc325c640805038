use super::*;

#[test]
fn full_space_is_foreseen_while_records_grow() {
    let full_in = |live, capacity, growth| {
        let statistics = EngineStatistics {
            space_live_bytes: live,
            space_capacity_bytes: capacity,
            space_growth_bytes_per_day: growth,
            ..EngineStatistics::default()
        };
        statistics.space_full_in_seconds()
    };
    assert_eq!(full_in(450, 1_000, 500), Some(86_400));
    assert_eq!(full_in(450, 1_000, 1_000), Some(43_200));
    assert_eq!(full_in(960, 1_000, 1), Some(0));
    assert_eq!(full_in(450, 1_000, 0), None);
    assert_eq!(full_in(450, 1_000, -500), None);
    assert_eq!(full_in(0, u64::MAX, 1), Some(u64::MAX));
}
