use super::*;
use clap::Parser;
use std::collections::BTreeMap;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str) -> Result<Plan> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let line = Line::try_parse_from(words)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))?;
    line.bench.load.plan("127.0.0.1:1".into())
}

#[test]
fn names_of_workloads_give_their_mixes() {
    assert_eq!(parse("--workload B --records 7").unwrap().workload.mix, Workload::ycsb(Ycsb::B, 7).mix);
    assert_eq!(parse("--workload get").unwrap().workload.mix, Mix::GET);
    assert_eq!(parse("--workload set").unwrap().workload.distribution, Distribution::Uniform);
    assert_eq!(parse("--workload d").unwrap().workload.distribution, Distribution::LATEST);
    assert!(parse("--workload g").unwrap_err().message().contains("write a, b, c"));
}

#[test]
fn options_reach_the_plan() {
    let plan = parse(
        "--workload a --records 9 --operations 5 --value-size 77 --connections 3 --pipeline 4 --rate 1000 \
         --distribution zipf:0.5 --seed 8 --threads 2 --verify",
    )
    .unwrap();
    assert_eq!(plan.workload.records, 9);
    assert_eq!(plan.workload.value.size, SizeDistribution::Fixed(77));
    assert_eq!(plan.workload.distribution, Distribution::Zipf { theta: 0.5 });
    assert!(plan.workload.verify && !parse("").unwrap().workload.verify);
    assert_eq!(plan.connections, 3);
    let Pacing { threads, pipeline, rate, extent, seed, .. } = plan.pacing;
    assert_eq!((threads, pipeline, rate, seed), (2, 4, Some(1000.0), 8));
    assert_eq!(extent, Extent::Operations(5));
    assert_eq!(parse("--seconds 2.5").unwrap().pacing.extent, Extent::Seconds(2.5));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "--operations 1 --seconds 1",
        "--records 0",
        "--connections 0",
        "--pipeline 0",
        "--rate -1",
        "--seconds nan",
        "--distribution pareto",
        "--no-load",
        "--address 127.0.0.1:1 --shards 2",
        "--address 127.0.0.1:1 --embedded",
        "--embedded --connections 7",
        "--address 127.0.0.1:1 --index ordered",
        "--workload a null-server",
    ] {
        assert!(parse(line).is_err(), "{line} was taken");
    }
}

#[test]
fn cost_is_the_difference_of_two_looks() {
    let look = |written: u64| {
        BTreeMap::from([
            ("tierstone_device_written_bytes_total".to_owned(), written),
            ("tierstone_index_bytes".to_owned(), 500),
            ("tierstone_keys".to_owned(), 20),
        ])
    };
    let cost = ServerCost::new(10, Some((5, 105)), &look(1_000), &look(3_000));
    assert_eq!(cost.device_written_bytes_per_operation, 200.0);
    assert_eq!(cost.cpu_us_per_operation, Some(10.0));
    assert_eq!(cost.device_read_bytes_per_operation, 0.0);
    assert_eq!(cost.index_bytes_per_key, 25.0);
}

#[test]
fn the_library_is_measured_in_this_process_with_ranges_where_there_is_order() {
    let directory = std::env::temp_dir().join(format!("tierstone-bench-test-{}", std::process::id()));
    for index in ["ordered", "hash"] {
        let words = format!(
            "bench --embedded --index {index} --workload e --records 300 --operations 60 --threads 2 --shards 2 \
             --memory 16MiB --verify"
        );
        let line = Line::try_parse_from(words.split_whitespace()).unwrap();
        let accounting = line.bench.load.energy.accounting().unwrap();
        let report = embedded::measure(&line.bench.load, &directory, &accounting).unwrap();
        judge(&report).unwrap();
        assert_eq!((report.run.operations, report.run.misses), (60, 0), "{index}");
        assert_eq!(report.plan.connections, 0, "there are none");
        let bytes_a_key = report.server.unwrap().index_bytes_per_key;
        assert!(bytes_a_key > 0.0);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
