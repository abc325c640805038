use super::capping::caps;
use super::control::{Budget, Control, Controller, simulate};
use super::cost::Terms;
use super::describe::{Description, idle_w, kinds};
use super::safety::overloads;
use super::schedule::{Limits, Loads, least_capacity, pair_power, round, split};
use super::synthetic::generate;
use super::topology::{Kind, Topology};
use super::trace::Trace;
use super::wiring::{Cords, PHASES, Placement, Racks, Wiring, place};
use super::*;
use std::collections::BTreeMap;
use tierstone_base::random::SeededRandom;

/// The plan of a TOML text.
fn plan(text: &str) -> Result<Report> {
    super::plan(&crate::Description::toml("a test", text))
}

/// The same with a trace from elsewhere.
fn plan_traced(text: &str, trace: &str) -> Result<Report> {
    super::plan_traced(&crate::Description::toml("a test", text), trace)
}

const FLOOR: Placement = Placement { servers_per_rack: 20, cords: Cords::Server, racks: Racks::Grouped };
const CONTROL: Control = Control { budget: Budget::Peak, window: 1 };

fn room(kind: Kind, pdus: usize, servers: usize) -> Wiring {
    let topology = Topology::new(kind, pdus, 1).unwrap();
    place(&topology, &[wiring::Kind { servers, peak_w: 300.0 }], FLOOR).unwrap()
}

fn demand(servers: usize, random: &mut SeededRandom) -> Vec<f64> {
    (0..servers).map(|_| 80.0 + 220.0 * random.unit()).collect()
}

#[test]
fn connectivity_is_as_published_and_stays_with_size() {
    for (kind, six, twelve) in
        [(Kind::Wrapped, 2, 2), (Kind::CrossRoads, 3, 6), (Kind::Serpentine, 4, 4), (Kind::Full, 5, 11)]
    {
        assert_eq!(Topology::new(kind, 6, 1).unwrap().connectivity(), six);
        assert_eq!(Topology::new(kind, 12, 1).unwrap().connectivity(), twelve);
        assert_eq!(Topology::new(kind, 6, 3).unwrap().connectivity(), six);
    }
    assert!((Topology::new(Kind::Full, 6, 1).unwrap().reserve_factor() - 1.2).abs() < 1e-12);
}

#[test]
fn topologies_that_cannot_be_are_refused() {
    for (kind, pdus, islands) in [
        (Kind::Wrapped, 2, 1),
        (Kind::CrossRoads, 5, 1),
        (Kind::Serpentine, 4, 1),
        (Kind::Full, 6, 0),
        (Kind::Full, 6, 1_000_000),
        (Kind::Full, 500, 1),
        (Kind::CrossRoads, 10_000, 1),
    ] {
        assert!(Topology::new(kind, pdus, islands).is_err(), "{kind:?} {pdus} {islands}");
    }
    for (pdus, zones, word) in [
        (3, vec![vec![(0, 1), (1, 1)]], "PDU 1 with 1"),
        (3, vec![vec![(0, 3)]], "PDU 0 with 3"),
        (3, vec![vec![(0, 1)]], "PDU 2"),
        (2, vec![vec![]], "zone 0 has no pair"),
    ] {
        let text = Topology::custom(pdus, &zones).unwrap_err().message().to_owned();
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn cords_lead_to_two_pdus_and_pairs_get_as_many_servers_as_any_other() {
    for kind in Kind::ALL {
        let wiring = room(kind, 6, 1_080);
        let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for &pair in &wiring.pair_of {
            let [a, b] = wiring.pairs[pair];
            assert_ne!(a / PHASES, b / PHASES);
            *counts.entry((a / PHASES, b / PHASES)).or_default() += 1;
        }
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        // Racks of 20 come whole to zones; a zone's pairs then differ by one.
        let whole = if kind == Kind::Full { 1 } else { 20 };
        assert!(most - least <= whole, "{kind:?}: {counts:?}");
    }
}

#[test]
fn the_program_is_as_good_as_a_fine_grid() {
    let mut random = SeededRandom::new(5);
    for case in 0..5 {
        // Three PDUs, a pair of phases A between any two: three shares.
        let wiring = Wiring::new(3, &[[0, 3], [3, 6], [0, 6]]).unwrap();
        let power: Vec<f64> = (0..3).map(|_| 50.0 + 200.0 * random.unit()).collect();
        let limits =
            Limits { feed_w: (0..9).map(|_| 300.0 + 100.0 * random.unit()).collect(), phase_skew: 2.0 };
        let found = split(&wiring, &power, &limits).unwrap();
        let spare = |shares: [f64; 3]| {
            let mut loads = Loads::none(&wiring);
            for pair in 0..3 {
                loads.add(&wiring, pair, false, shares[pair]);
                loads.add(&wiring, pair, true, power[pair] - shares[pair]);
            }
            let needs = loads.needs(&wiring);
            [0, 3, 6].map(|feed| limits.feed_w[feed] - needs[feed]).into_iter().fold(f64::INFINITY, f64::min)
        };
        let at = |step: usize, pair: usize| power[pair] * step as f64 / 60.0;
        let mut best = f64::NEG_INFINITY;
        for step in 0..61 * 61 * 61 {
            best = best.max(spare([at(step % 61, 0), at(step / 61 % 61, 1), at(step / 3721, 2)]));
        }
        assert!(
            found.slack_w >= best - 1e-4 && found.slack_w <= best + 8.0,
            "case {case}: {} {best}",
            found.slack_w
        );
        let own = spare([found.first_w[0], found.first_w[1], found.first_w[2]]);
        assert!((own - found.slack_w).abs() < 1e-3, "case {case}");
    }
}

#[test]
fn no_way_to_place_whole_servers_spares_more_than_the_program() {
    let mut random = SeededRandom::new(6);
    for case in 0..6 {
        let feeds: Vec<[usize; 2]> =
            (0..12).map(|server| [[0, 3], [3, 6], [0, 6], [1, 4]][server % 4]).collect();
        let wiring = Wiring::new(3, &feeds).unwrap();
        let watts = demand(12, &mut random);
        let limits = Limits::even(9.0 * 1_400.0, 9, 3.0);
        let found = split(&wiring, &pair_power(&wiring, &watts), &limits).unwrap();
        let spare = |sides: &Vec<bool>| {
            let needs = Loads::of(&wiring, sides, &watts).needs(&wiring);
            needs.iter().map(|need| 1_400.0 - need).fold(f64::INFINITY, f64::min)
        };
        let all = (0..1u32 << 12).map(|bits| spare(&(0..12).map(|server| bits >> server & 1 == 1).collect()));
        let best = all.fold(f64::NEG_INFINITY, f64::max);
        let rounded = spare(&round(&wiring, &watts, &found, &limits).sides);
        assert!(found.slack_w >= best - 1e-3, "case {case}: {} {best}", found.slack_w);
        // Few large servers are the worst case for rounding; it stays within one of them.
        assert!(rounded <= best + 1e-9 && rounded >= best - 300.0, "case {case}: {rounded} {best}");
    }
}

#[test]
fn at_most_one_server_of_a_pair_fits_on_no_side() {
    let mut random = SeededRandom::new(7);
    for case in 0..20 {
        let wiring = room(Kind::ALL[case % 4], 6, 200 + 37 * case);
        let watts = demand(wiring.pair_of.len(), &mut random);
        let limits = Limits::even(watts.iter().sum::<f64>() * 1.6, wiring.feeds(), 0.2);
        let found = split(&wiring, &pair_power(&wiring, &watts), &limits).unwrap();
        let rounded = round(&wiring, &watts, &found, &limits);
        assert!(rounded.pending.iter().all(|&pending| pending <= 1), "case {case}");
        for pdu in 0..6 {
            let mut loads = Loads::none(&wiring);
            let power = pair_power(&wiring, &watts);
            for (pair, (power, first)) in power.iter().zip(&found.first_w).enumerate() {
                loads.add(&wiring, pair, false, *first);
                loads.add(&wiring, pair, true, power - first);
            }
            let phases = &loads.feed_w[pdu * PHASES..(pdu + 1) * PHASES];
            let most = phases.iter().copied().fold(0.0, f64::max);
            let least = phases.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(most - least <= 0.2 * limits.feed_w[0] + 1e-3, "case {case}, PDU {pdu}");
        }
    }
}

#[test]
fn needs_are_what_going_through_every_failure_finds() {
    let mut random = SeededRandom::new(8);
    for kind in Kind::ALL {
        let wiring = room(kind, 6, 240);
        let watts = demand(240, &mut random);
        let sides: Vec<bool> = (0..240).map(|_| random.chance(0.5)).collect();
        let needs = Loads::of(&wiring, &sides, &watts).needs(&wiring);
        assert!(overloads(&wiring, &sides, &watts, &needs).is_empty());
        let less: Vec<f64> = needs.iter().map(|need| need - 1.0).collect();
        let found = overloads(&wiring, &sides, &watts, &less);
        for (feed, &need) in needs.iter().enumerate() {
            let worst =
                found.iter().filter(|over| over.feed == feed).map(|over| over.load_w).fold(0.0, f64::max);
            assert!((worst - need).abs() < 1e-6, "{kind:?} feed {feed}");
        }
    }
}

#[test]
fn caps_are_safe_within_their_bounds_and_grant_more_than_scaling_all_alike() {
    let mut random = SeededRandom::new(9);
    for kind in Kind::ALL {
        let wiring = room(kind, 6, 300);
        let watts = demand(300, &mut random);
        let idle: Vec<f64> = watts.iter().map(|watts| 0.5 * watts).collect();
        let (_, least) = least_capacity(&wiring, &pair_power(&wiring, &watts), 0.2).unwrap();
        let limits = Limits::even(0.9 * least, wiring.feeds(), 0.5);
        let found = split(&wiring, &pair_power(&wiring, &watts), &limits).unwrap();
        assert!(found.slack_w < 0.0);
        let sides = round(&wiring, &watts, &found, &limits).sides;
        let granted = caps(&wiring, &sides, &idle, &watts, &limits.feed_w).unwrap();
        assert!(overloads(&wiring, &sides, &granted, &limits.feed_w).is_empty(), "{kind:?}");
        for server in 0..300 {
            assert!(granted[server] >= idle[server] - 1e-9 && granted[server] <= watts[server] + 1e-9);
        }
        // All alike, as much as the tightest feed allows.
        let at = |part: f64| -> Vec<f64> {
            idle.iter().zip(&watts).map(|(idle, watts)| idle + part * (watts - idle)).collect()
        };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            let safe = overloads(&wiring, &sides, &at(middle), &limits.feed_w).is_empty();
            if safe { low = middle } else { high = middle }
        }
        let (sum, alike) = (granted.iter().sum::<f64>(), at(low).iter().sum::<f64>());
        assert!(sum >= alike - 1e-3, "{kind:?}: {sum} {alike}");
    }
}

#[test]
fn too_little_even_for_idle_servers_names_the_feed_and_what_is_missing() {
    let wiring = Wiring::new(2, &[[0, 3], [0, 3]]).unwrap();
    let refusal =
        caps(&wiring, &vec![false, false], &[60.0, 60.0], &[100.0, 100.0], &[100.0; 6]).unwrap_err();
    let text = refusal.message();
    assert!(
        text.contains("PDU 0 phase A is short by 20 W") || text.contains("PDU 1 phase A is short by 20 W"),
        "{text}"
    );
}

#[test]
fn phases_that_cannot_be_kept_even_are_refused_with_how_even_they_can_be() {
    // All servers on phase A: it carries everything, at least half of 100 W on one of both PDUs.
    let wiring = Wiring::new(2, &[[0, 3], [0, 3]]).unwrap();
    let refusal = split(&wiring, &[100.0], &Limits { feed_w: vec![200.0; 6], phase_skew: 0.2 }).unwrap_err();
    assert!(
        refusal.message().contains("differ by 25.0 %") && refusal.message().contains("20.0"),
        "{refusal:?}"
    );
}

#[test]
fn islands_are_scheduled_one_by_one_and_as_well_as_alone() {
    let one = Topology::new(Kind::Serpentine, 6, 1).unwrap();
    let three = Topology::new(Kind::Serpentine, 6, 3).unwrap();
    let kind = |servers| [wiring::Kind { servers, peak_w: 300.0 }];
    let (alone, together) =
        (place(&one, &kind(240), FLOOR).unwrap(), place(&three, &kind(720), FLOOR).unwrap());
    assert_eq!((alone.islands.len(), together.islands.len()), (1, 3));
    let limits = |wiring: &Wiring| Limits { feed_w: vec![6_000.0; wiring.feeds()], phase_skew: 0.2 };
    let slack = |wiring: &Wiring, servers| {
        split(wiring, &pair_power(wiring, &vec![200.0; servers]), &limits(wiring)).unwrap().slack_w
    };
    let (alone, together) = (slack(&alone, 240), slack(&together, 720));
    assert!((alone - together).abs() < 0.05 * alone.abs(), "{alone} {together}");
}

#[test]
fn what_islands_need_and_meet_together_is_what_they_do_alone() {
    let topology = Topology::new(Kind::Serpentine, 5, 3).unwrap();
    let description = Description::read(&SCENARIOS[1].description()).unwrap();
    let classes = description.class_list().unwrap();
    let wiring = place(&topology, &kinds(&classes), FLOOR).unwrap();
    let (trace, idle) = (generate(&classes, 200, 5).unwrap(), idle_w(&classes));
    let (mut bound_each, mut least_each) = (0.0f64, 0.0f64);
    let mut servers = Vec::new();
    let parts = part::Part::all(&wiring).unwrap();
    assert_eq!(parts.len(), 3);
    for part in &parts {
        servers.extend(part.servers.iter().copied());
        for (local, &server) in part.servers.iter().enumerate() {
            let feeds = part.wiring.pairs[part.wiring.pair_of[local]];
            let back = feeds.map(|feed| part.pdus[feed / PHASES] * PHASES + feed % PHASES);
            assert_eq!(back, wiring.pairs[wiring.pair_of[server]]);
        }
        let (own, trace) = (part.values(&idle), part.trace(&trace));
        let bound = capacity::bound(&part.wiring, &trace, 0.2).unwrap();
        let least = capacity::routed(&part.wiring, &own, &trace, CONTROL, 0.2, bound).unwrap();
        let feeds = part.wiring.feeds() as f64;
        (bound_each, least_each) = (bound_each.max(bound / feeds), least_each.max(least / feeds));
    }
    servers.sort_unstable();
    assert_eq!(servers, (0..trace.servers()).collect::<Vec<_>>());
    let feeds = wiring.feeds() as f64;
    let bound = capacity::bound(&wiring, &trace, 0.2).unwrap();
    assert!((bound / feeds / bound_each - 1.0).abs() < 1e-6, "{bound} {bound_each}");
    let least = capacity::routed(&wiring, &idle, &trace, CONTROL, 0.2, bound).unwrap();
    assert!((least / feeds / least_each - 1.0).abs() < 0.003, "{least} {least_each}");
    // What is least may be so for the phases' sake; with less, nothing may be throttled, but all stays safe.
    for part_of_least in [1.0, 0.93] {
        let limits = Limits::even(least * part_of_least, wiring.feeds(), 0.2);
        let seen = simulate(&wiring, &limits, &idle, &trace, CONTROL, false).unwrap();
        let (samples, unmet) = (seen.throttled_samples, seen.unmet);
        assert!(seen.safe && (part_of_least < 1.0 || samples == 0), "{part_of_least}: {samples}");
        assert_eq!(samples > 0, unmet > 0.0, "{part_of_least}: {samples} {unmet}");
        for (sample, total) in trace.totals().into_iter().enumerate() {
            assert!((seen.series[sample].0 - total).abs() < 1e-6 * total, "sample {sample}");
        }
    }
}

#[test]
fn feeds_fixed_by_means_level_pdus_and_leave_reserves_to_chance() {
    let wiring = room(Kind::Full, 4, 240);
    let mut random = SeededRandom::new(11);
    let watts: Vec<f32> = demand(240, &mut random).into_iter().map(|watts| watts as f32).collect();
    let trace = Trace::new(240, watts).unwrap();
    let by_means = capacity::sides_by_means(&wiring, &trace);
    let pdus: Vec<f64> = Loads::of(&wiring, &by_means, &trace.means())
        .feed_w
        .chunks(PHASES)
        .map(|feeds| feeds.iter().sum())
        .collect();
    let (most, least) =
        (pdus.iter().copied().fold(0.0, f64::max), pdus.iter().copied().fold(f64::INFINITY, f64::min));
    assert!(most - least < 300.0, "{pdus:?}");
    let with_reserves = capacity::unrouted_sides(&wiring, &trace, 0.2).unwrap();
    let needs = |sides| capacity::unrouted(&wiring, sides, &trace);
    assert!(needs(&with_reserves) < needs(&by_means));
}

#[test]
fn a_request_is_granted_in_place_while_both_feeds_have_room() {
    let wiring = Wiring::new(3, &[[0, 3], [3, 6], [0, 6]]).unwrap();
    let limits = Limits { feed_w: vec![400.0; 9], phase_skew: 2.0 };
    let idle = [50.0; 3];
    let mut controller = Controller::new(&wiring, &limits, &idle, &[100.0; 3]).unwrap();
    assert!(controller.request(0, 120.0) && controller.caps_w()[0] == 120.0);
    assert!(!controller.request(0, 5_000.0) && controller.caps_w()[0] == 120.0);
    assert!(overloads(&wiring, controller.sides(), controller.caps_w(), &limits.feed_w).is_empty());
    assert_eq!(controller.schedules, 1);
}

#[test]
fn the_loop_throttles_only_when_there_is_too_little() {
    let description = Description::read(&SCENARIOS[1].description()).unwrap();
    let classes = description.class_list().unwrap();
    let trace = generate(&classes, 300, 3).unwrap();
    let room = study::Room::new(description.wires().unwrap(), &classes, &description).unwrap();
    let needs = room.needs(&trace, CONTROL, 0.2).unwrap();
    assert!(needs.bound_w <= needs.routed_w && needs.routed_w <= needs.unrouted_w * 1.01, "{needs:?}");
    assert!(needs.balanced_w <= needs.bound_w * (1.0 + 1e-6));
    for (part, throttled) in [(1.001, false), (0.9, true)] {
        let limits = Limits::even(needs.routed_w * part, room.wiring.feeds(), 0.2);
        let seen = simulate(&room.wiring, &limits, &room.idle_w, &trace, CONTROL, false).unwrap();
        assert_eq!(seen.throttled_samples > 0, throttled, "{part}: {seen:?}");
        assert_eq!(seen.cappings > 0, throttled);
        assert!(seen.safe && (seen.unmet > 0.0) == throttled);
    }
    let average = Control { budget: Budget::Average, window: 5 };
    let limits = Limits::even(needs.routed_w * 1.1, room.wiring.feeds(), 0.2);
    let seen = simulate(&room.wiring, &limits, &room.idle_w, &trace, average, false).unwrap();
    assert!(seen.safe && seen.throttled_samples == 0);
}

#[test]
fn one_seed_gives_one_trace_and_the_mixes_come_near_the_published_ones() {
    let description = Description::read(&SCENARIOS[0].description()).unwrap();
    let classes = description.class_list().unwrap();
    let trace = generate(&classes, 1_440, 1).unwrap();
    assert_eq!(trace, generate(&classes, 1_440, 1).unwrap());
    assert_ne!(trace, generate(&classes, 1_440, 2).unwrap());
    for seed in 1..4 {
        for (mix, [mean, most, deviation]) in description.study.as_ref().unwrap().mixes.iter().zip([
            [180.5, 208.7, 9.0],
            [114.9, 116.4, 0.8],
            [254.6, 263.6, 2.4],
            [99.8, 153.9, 18.9],
        ]) {
            let trace = generate(&description.mixed(mix).unwrap(), 1_440, seed).unwrap();
            let here = trace.summary();
            let near = |here: f64, published: f64, part: f64| (here / 1e3 / published - 1.0).abs() <= part;
            assert!(
                near(here.0, mean, 0.05) && near(here.1, most, 0.08),
                "seed {seed}, {}: {here:?}",
                mix.name
            );
            assert!(near(here.2, deviation, 0.35), "seed {seed}, {}: {here:?}", mix.name);
        }
    }
    // All web servers are one trace.
    let sample = trace.sample(700);
    assert!(sample[700..1_000].iter().all(|watts| *watts == sample[700]));
    assert_eq!(kinds(&classes).len(), 3);
    assert_eq!(idle_w(&classes)[0], 240.0);
}

#[test]
fn the_loan_costs_what_is_published_and_provisioning_keeps_its_order() {
    let terms = Terms { dollars_per_w: 15.0, years: 15.0, interest: 0.05 };
    assert!((terms.monthly_part() - 0.007_907_9).abs() < 5e-8);
    assert!((terms.monthly(208_700.0) - 24_756.0).abs() < 1.0);
    assert!((Terms { interest: 0.0, ..terms }.monthly_part() - 1.0 / 180.0).abs() < 1e-12);
    let report = plan(SCENARIOS[1].text).unwrap();
    let table = report.tables.iter().find(|table| table.name == "cost").unwrap();
    let watts: Vec<f64> = table.rows[..4]
        .iter()
        .map(|row| if let crate::parts::Cell::Number(kw) = row[1] { kw } else { 0.0 })
        .collect();
    assert!(watts.windows(2).all(|pair| pair[0] > pair[1]), "{watts:?}");
}

#[test]
fn a_trace_of_ones_own_is_read_and_broken_ones_are_refused_with_their_line() {
    let power = |_: usize, utilisation: f64| 100.0 * utilisation;
    let trace =
        Trace::read_csv("time_s,server,utilisation\n0,0,0.5\n0,1,1\n60,1,0.25\n60,0,0\n", 2, power).unwrap();
    assert_eq!((trace.samples(), trace.sample(0), trace.sample(1)), (2, vec![50.0, 100.0], vec![0.0, 25.0]));
    assert_eq!((trace.means(), trace.peaks()), (vec![25.0, 62.5], vec![50.0, 100.0]));
    let seconds = [0.0, 60.0, 119.5, 179.9];
    let steady: String = seconds.map(|second| format!("{second},0,7\n{second},1,7\n")).concat();
    let steady = Trace::read_csv(&format!("time_s,server,watts\n{steady}"), 2, power).unwrap();
    assert_eq!(steady.samples(), 4, "clocks need not be exact");
    for (text, word) in [
        ("time,server,watts\n0,0,1\n0,1,1\n", "head must be"),
        ("time_s,server,watts\n60,0,1\n60,1,1\n0,0,1\n0,1,1\n", "line 4: time 0 s comes after 60 s"),
        (
            "time_s,server,watts\n0,0,1\n0,1,1\n60,0,1\n60,1,1\n3660,0,9\n3660,1,9\n",
            "line 6: time 3660 s comes 3,600 s after the one before, the second came 60 s after the first",
        ),
        ("time_s,server,watts\n0,0,1\n0,0,1\n", "line 3: server 0 has a second value"),
        ("time_s,server,watts\n0,0,1\n60,0,1\n60,1,1\n", "before line 3: server 1 has no value at 0 s"),
        ("time_s,server,watts\n0,0,1\n", "server 1 has no value"),
        ("time_s,server,watts\n0,7,1\n", "line 2: server \"7\""),
        ("time_s,server,watts\n0,0,x\n", "line 2: `watts` is \"x\""),
        ("time_s,server,watts\n0,0,-4\n", "line 2: -4 W"),
        ("time_s,server,utilisation\n0,0,1.5\n", "line 2: a utilisation of 1.5"),
        ("time_s,server,watts\n0,0\n", "line"),
        ("time_s,server,watts\n", "no line"),
    ] {
        let refusal = Trace::read_csv(text, 2, power).unwrap_err();
        assert!(refusal.message().contains(word), "{word}: {}", refusal.message());
    }
}

#[test]
fn rooms_with_too_little_say_so() {
    let text = SCENARIOS[1].text;
    let enough = plan(text).unwrap();
    assert_eq!(enough, plan(text).unwrap());
    assert!(enough.answer[0].contains("are enough"), "{:?}", enough.answer);
    // What is said, the numbers, the table and the price are of one and the same need.
    let fact = |name: &str| enough.facts.iter().find(|fact| fact.name == name).unwrap().value;
    let (routed, other) = (fact("least capacity, routed"), fact("of it for loads that cannot be controlled"));
    assert!((other - 15.0 * 0.150).abs() < 1e-9, "{other}");
    assert!(enough.answer[1].starts_with(&format!("{routed:.1} kW carry")), "{:?}", enough.answer);
    let cell = |table: &str, row: usize, column: usize| {
        let table = enough.tables.iter().find(|known| known.name == table).unwrap();
        if let crate::parts::Cell::Number(number) = table.rows[row][column] { number } else { f64::NAN }
    };
    assert_eq!((cell("needs", 0, 8), cell("cost", 5, 1)), (routed, routed));
    assert_eq!(cell("cost", 4, 1), fact("least capacity, unrouted"));
    let free = plan(&text.replace("\"150 W\"", "\"0 W\"")).unwrap();
    let servers = free.facts.iter().find(|fact| fact.name == "least capacity, routed").unwrap().value;
    assert!((routed - other - servers).abs() < 1e-9, "{routed} {servers}");
    let short = plan(&text.replace("total = \"84 kW\"", "total = \"62 kW\"")).unwrap();
    assert!(short.answer[0].contains("too little by"), "{:?}", short.answer);
    let refusal = plan(&text.replace("total = \"84 kW\"", "total = \"30 kW\"")).unwrap_err();
    assert!(refusal.message().contains("is short by"), "{}", refusal.message());
    let refusal = plan(&text.replace("\"150 W\"", "\"6 kW\"")).unwrap_err();
    assert!(refusal.message().contains("are missing a feed"), "{}", refusal.message());
    let large = plan(&text.replace("length = \"12 h\"", "length = \"900000 min\"")).unwrap_err();
    assert!(large.message().contains("above the limit"), "{}", large.message());
    let zeros: String = (0..240).map(|server| format!("0,{server},0\n")).collect();
    let nothing = plan_traced(text, &format!("time_s,server,watts\n{zeros}")).unwrap_err();
    assert!(nothing.message().contains("draws nothing"), "{}", nothing.message());
    let csv: String = (0..240).map(|server| format!("0,{server},200\n")).collect();
    let traced = plan_traced(text, &format!("time_s,server,watts\n{csv}")).unwrap();
    assert!(traced.asked[1].contains("a given trace, 1 samples"), "{:?}", traced.asked);
}

#[test]
fn descriptions_with_missing_unknown_or_absurd_fields_are_refused_by_name() {
    let text = SCENARIOS[1].text;
    for (from, to, word) in [
        ("kind = \"custom\"", "kind = \"star\"", "star"),
        ("kind = \"custom\"", "kind = \"full\"", "topology.zones"),
        ("phase-skew = \"20 %\"", "", "phase-skew"),
        ("phase-skew = \"20 %\"", "phase-skew = \"0 %\"", "limits.phase-skew"),
        ("total = \"84 kW\"", "", "capacity"),
        ("total = \"84 kW\"", "total = \"0 kW\"", "capacity.total"),
        ("total = \"84 kW\"", "total_kw = 84.0", "total = \"80 kW\""),
        ("total = \"84 kW\"", "total = \"84 kWh\"", "a unit that is none of a power"),
        ("peak = \"320 W\"", "", "application"),
        ("seed = 7", "", "`seed` is missing"),
        ("length = \"12 h\"", "", "`length` is missing"),
        ("length = \"12 h\"", "minutes = 720", "`minutes` has become `length`"),
        ("job-busy = 1.0", "job-busy = 2.0", "job-busy"),
        ("servers-per-rack = 24", "servers-per-rack = 0", "servers-per-rack"),
        ("price = \"12 $/W\"", "", "price"),
        ("price = \"12 $/W\"", "dollars_per_w = 12.0", "price = \"15 $/W\""),
    ] {
        assert!(text.contains(from), "{from}");
        let refusal = plan(&text.replacen(from, to, 1)).unwrap_err();
        assert!(refusal.message().contains(word), "{word}: {}", refusal.message());
    }
}
