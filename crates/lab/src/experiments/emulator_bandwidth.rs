//! Shared bandwidth of the emulator of slower memories: what is asked for, and what threads get.

use crate::experiment::{Experiment, Kind, Published, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use tierstone_base::Result;
use tierstone_media::probe::emulator::{KEPT_SHARE, ReservationShare, reserved_share, threshold};

/// Bytes of a transfer in the table of bandwidths: the granule of DCPMM.
const TRANSFER_BYTES: u64 = 256;
/// Durations of reservations, in nanoseconds, long ones first.
const DURATIONS_NS: [u64; 13] = [1_024, 512, 256, 180, 140, 128, 120, 96, 64, 48, 32, 24, 16];
/// Table 5.2: nanoseconds that keep 99 % of the time, in the order of its cells.
const TABLE: [(&str, f64); 8] = [
    ("6 threads, spread over sockets, spread over cores", 109.0),
    ("6 threads, spread over sockets, packed on cores", 122.0),
    ("6 threads, packed on sockets, spread over cores", 44.0),
    ("6 threads, packed on sockets, packed on cores", 104.0),
    ("12 threads, spread over sockets, spread over cores", 96.0),
    ("12 threads, spread over sockets, packed on cores", 101.0),
    ("12 threads, packed on sockets, spread over cores", 51.0),
    ("12 threads, packed on sockets, packed on cores", 51.0),
];

const SHORTEST: &str = "shortest reservation that keeps 99 % of the time, most threads";
const FOUR_LINES: &str = "four lines of 35 ns reserved together, most threads: share of the time";

/// Table 5.2 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "emulator-bandwidth",
    title: "Bandwidth reservation of the emulator of slower memories",
    source: "Pelley 2014 (University of Michigan), Table 5.2 and section 5.1",
    measures: "Threads reserve a duration of one shared channel again and again and wait until it is over; the share of \
               the time that is reserved in the best of many windows of 0.2 ms in which all of them ran. 1, 2, 4 … threads \
               up to the number of processors, placed by the system. Published: 6 and 12 threads on two sockets of six \
               cores, placed by hand.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: SHORTEST,
            value: 122.0,
            unit: "ns",
            place: "Table 5.2: 44 to 122 ns, the longest",
            because: "whether a few lines can be charged at once; other processors exchange a word faster or slower",
            rule: Rule::AtMost(180.0),
        },
        Published {
            name: FOUR_LINES,
            value: 0.99,
            unit: "ratio",
            place: "section 5.1: at least four lines are reserved together, 35 ns each",
            because: "whether the bandwidth of the published experiments is kept",
            rule: Rule::AtLeast(0.97),
        },
    ],
    series: &[],
    space_bytes: |_| 0,
    run: measure,
};

fn measure(run: &mut Run<'_>) -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<usize> =
        (0..5).map(|power| 1 << power).filter(|&threads| threads <= processors).collect();
    let repeats = run.pick(1, 3, 10);
    run.set("processors", processors);
    run.set("tries of each duration", repeats);
    run.expect_steps(threads.len() as u32);
    let mut shares = Vec::new();
    for &count in &threads {
        run.step(format!("{count} threads"))?;
        shares.push((count, share_of_each(run, count, repeats)?));
    }
    let most: &[ReservationShare] = shares.last().map_or(&[], |(_, found)| found);
    // Nothing that was tried: longer than the longest.
    let shortest = threshold(most).map_or(2.0 * DURATIONS_NS[0] as f64, |ns| ns as f64);
    let four_lines = most.iter().find(|tried| tried.reserved_ns == 140).map_or(0.0, |tried| tried.share);
    let detail = format!("{} threads here", threads.last().copied().unwrap_or(1));
    run.compare(SHORTEST, shortest, &detail)?;
    run.compare(FOUR_LINES, four_lines, &detail)?;
    report(run, &shares);
    Ok(())
}

fn share_of_each(run: &mut Run<'_>, threads: usize, repeats: usize) -> Result<Vec<ReservationShare>> {
    let mut found = Vec::new();
    for (number, &reserved_ns) in DURATIONS_NS.iter().enumerate() {
        let share = (0..repeats).map(|_| reserved_share(threads, reserved_ns)).fold(0.0, f64::max);
        found.push(ReservationShare { reserved_ns, share });
        run.go_on((number + 1) as f64 / DURATIONS_NS.len() as f64)?;
    }
    Ok(found)
}

fn report(run: &mut Run<'_>, shares: &[(usize, Vec<ReservationShare>)]) {
    let mut table = Table::new(
        "reservations",
        "Share of the time that is reserved, and bandwidth in transfers of 256 bytes (measured)",
        &["threads", "a reservation, ns", "share of the time", "asked, GB/s", "got, GB/s"],
    );
    for (threads, found) in shares {
        for tried in found {
            let asked = TRANSFER_BYTES as f64 / tried.reserved_ns as f64;
            // No number at all where the threads never ran together.
            let share = if tried.share > 0.0 { tried.share } else { f64::NAN };
            table.push([
                (*threads as u64).into(),
                tried.reserved_ns.into(),
                share.into(),
                asked.into(),
                (asked * share.clamp(0.0, 1.0)).into(),
            ]);
        }
    }
    run.table(table);
    run.note("A dash, 0 in the picture: the threads never ran together, for the machine was busy. Run again on a quiet one.");
    let mut kept = Table::new(
        "shortest",
        "The shortest reservation that keeps 99 % of the time, ns",
        &["threads", "ns", "measured or published"],
    );
    for (threads, found) in shares {
        let shortest = threshold(found).map_or("none that was tried".to_owned(), |ns| ns.to_string());
        kept.push([threads.to_string().into(), shortest.into(), "measured".into()]);
    }
    for (threads, ns) in TABLE {
        kept.push([threads.into(), ns.to_string().into(), "published".into()]);
    }
    run.table(kept);
    let line = |(threads, found): &(usize, Vec<ReservationShare>)| {
        let points = found.iter().map(|tried| (tried.reserved_ns as f64, tried.share));
        Series::new(&format!("{threads} threads"), points)
    };
    let needed = DURATIONS_NS.map(|ns| (ns as f64, KEPT_SHARE));
    run.plot(Plot {
        name: "shares".to_owned(),
        title: "Share of the time that threads keep reserved".to_owned(),
        x: Axis::logarithmic("a reservation, ns"),
        y: Axis::linear("share of the time"),
        series: shares.iter().map(line).chain([Series::new("99 %", needed)]).collect(),
    });
}
