//! What the lines say of each class of work of the study (Vasudevan's thesis, 2011): is the node good at it, and what
//! is in the way.
//!
//! The rules are our own; the thesis compares two machines, of which no other is at hand here.

use tierstone_workload::node::Work;

/// Of a second that is the limit of the latency-sensitive class, so many bytes are to be hashed (thesis: 64 MB encrypted).
pub const DEADLINE_BYTES: f64 = 64e6;
/// So much of the device's bandwidth, or of the processors, is all of it.
const NEARLY_ALL: f64 = 0.7;

/// A line and the part of the processors' time that it took.
pub struct Seen<'a> {
    pub work: &'a Work,
    pub busy: Option<f64>,
}

/// Sentences, one for each class of which something was run.
pub fn conclude(seen: &[Seen<'_>]) -> Vec<String> {
    [cache(seen), deadline(seen), scan(seen), seek(seen), hungry(seen)].into_iter().flatten().collect()
}

fn rate(work: &Work) -> f64 {
    work.amount / work.seconds.max(1e-9)
}

fn named<'a>(seen: &'a [Seen<'_>], start: &str) -> impl Iterator<Item = &'a Seen<'a>> {
    seen.iter().filter(move |line| line.work.name.starts_with(start))
}

/// Class 1: bound by processor and caches.
fn cache(seen: &[Seen<'_>]) -> Option<String> {
    let lines: Vec<&Seen<'_>> = named(seen, "cache-bound kernel").collect();
    let best = lines.iter().map(|line| rate(line.work)).fold(0.0, f64::max);
    let last = lines.last().filter(|_| best > 0.0)?;
    let good = lines.iter().take_while(|line| rate(line.work) >= best / 2.0).last();
    let size = good.map_or("no size", |line| line.work.name.trim_start_matches("cache-bound kernel, "));
    Some(format!(
        "memory- and CPU-bound: half of its best rate or more up to {size}, {:.0} % of it at the largest size",
        100.0 * rate(last.work) / best
    ))
}

/// Class 3: a piece of work that cannot be divided, with a deadline.
fn deadline(seen: &[Seen<'_>]) -> Option<String> {
    let line = named(seen, "SHA-256, one thread").next()?;
    let seconds = DEADLINE_BYTES / rate(line.work).max(1.0);
    let verdict = match seconds <= 1.0 {
        true => "good at it".to_owned(),
        false => format!("not good at it unless the work can be split {:.0} ways or more", seconds.ceil()),
    };
    Some(format!(
        "latency-sensitive, not to be divided: 64 MB hashed by one thread take {seconds:.2} s of the second allowed: {verdict}"
    ))
}

/// Class 2, in order: whether the processor keeps up with the device.
fn scan(seen: &[Seen<'_>]) -> Option<String> {
    let bound = seen.iter().find_map(|line| line.work.device.as_ref()?.bound.as_ref())?;
    let verdict = match bound.part >= NEARLY_ALL {
        true => "good at it, the device is the limit",
        false => "the processors are the limit, a quicker device would be wasted",
    };
    Some(format!(
        "I/O-bound, in order: a sort in two passes takes {:.0} % of the device's bandwidth: {verdict}",
        100.0 * bound.part
    ))
}

/// Class 2, at random.
fn seek(seen: &[Seen<'_>]) -> Option<String> {
    let line = named(seen, "KV, 0 % puts").next()?;
    let busy = line.busy?;
    let verdict = match busy >= NEARLY_ALL {
        true => "the processors are the limit",
        false => "the processors have time left: the device, or waiting for it, is the limit",
    };
    Some(format!(
        "I/O-bound, at random: {:.0} reads of small values a second with the processors {:.0} % busy: {verdict}",
        rate(line.work),
        100.0 * busy
    ))
}

/// Class 4: a working set that fits large memories only, made small.
fn hungry(seen: &[Seen<'_>]) -> Option<String> {
    let line = named(seen, "search for").next()?;
    let device = seen.iter().find_map(|line| line.work.device.as_ref()?.bound.as_ref());
    let beside = device.map_or(String::new(), |bound| {
        let keeps_up = rate(line.work) >= bound.read_bytes_per_second;
        format!(", {} than the device reads", if keeps_up { "faster" } else { "slower" })
    });
    Some(format!(
        "memory-hungry: {:.0} MB/s of text searched with a filter in place of an automaton{beside}",
        rate(line.work) / 1e6
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_workload::node::{Bound, DeviceWork};

    fn work(name: &str, amount: f64) -> Work {
        Work { name: name.into(), unit: "x", amount, seconds: 1.0, note: String::new(), device: None }
    }

    fn told(works: &[Work], busy: f64) -> Vec<String> {
        conclude(&works.iter().map(|work| Seen { work, busy: Some(busy) }).collect::<Vec<_>>())
    }

    #[test]
    fn each_class_is_judged_by_its_own_lines() {
        let kernel = |size: &str, rate| work(&format!("cache-bound kernel, {size} a thread"), rate);
        let sizes = [kernel("16 KiB", 9.0), kernel("128 KiB", 5.0), kernel("8192 KiB", 1.0)];
        assert!(told(&sizes, 1.0)[0].contains("up to 128 KiB a thread, 11 %"), "{:?}", told(&sizes, 1.0));
        for (rate, verdict) in [(1e8, "0.64 s of the second allowed: good at it"), (2e7, "split 4 ways")] {
            let sentence = told(&[work("SHA-256, one thread", rate)], 1.0).join("");
            assert!(sentence.contains(verdict), "{sentence}");
        }
        for (part, verdict) in [(0.8, "the device is the limit"), (0.5, "the processors are the limit")] {
            let bound = Bound { part, ..Bound::default() };
            let device = Some(DeviceWork { bound: Some(bound), ..DeviceWork::default() });
            let sentence = told(&[Work { device, ..work("sort", 1.0) }], 1.0).join("");
            assert!(sentence.contains(verdict), "{sentence}");
        }
        let reads = [work("KV, 0 % puts, 256 B", 5.0)];
        assert!(told(&reads, 0.9)[0].contains("the processors are the limit"));
        assert!(told(&reads, 0.2)[0].contains("have time left"));
        assert!(told(&[work("sort", 1.0)], 1.0).is_empty(), "what was not run is not judged");
    }
}
