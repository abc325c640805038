//! How many machines scan the data in time, and what they draw.

use super::case::{Case, Machine, Source};
use super::model::scanned;

/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// Machines of one kind that meet the demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Whole machines and hubs.
    pub machines: f64,
    pub hubs: f64,
    /// Whether time asks for more of them than data.
    pub bound_by_time: bool,
    /// Seconds that a scan takes.
    pub seconds: f64,
    /// Watts while scanning and while idle, hubs included.
    pub watts: f64,
    pub idle_watts: f64,
    /// Joules a scan.
    pub joules_a_scan: f64,
    /// Joules a day with the scans asked for, idle time included.
    pub joules_a_day: f64,
    /// Seconds to load the data over each machine's link.
    pub load_seconds: Option<f64>,
    /// Seconds that batteries carry the scan when the power fails.
    pub battery_seconds: Option<f64>,
    /// Dollars over the life.
    pub dollars: Option<f64>,
}

/// The fleet of `machine`s that reads from `source`; `Err` says why there is none.
pub fn fleet(case: &Case, machine: &Machine, source: Source) -> Result<Fleet, String> {
    let demand = &case.demand;
    let one = scanned(machine, &case.scans[demand.scan], source, None);
    let room = match source {
        Source::Storage => machine.storage.ok_or("the size of its storage is not given")?,
        Source::Memory => machine.memory,
    };
    let for_data = demand.bytes / room;
    // n machines are n to the power of the scale-out as fast as one.
    let times_faster = demand.bytes / one.bandwidth() / demand.seconds;
    let for_time = times_faster.max(0.0).powf(1.0 / demand.scale_out);
    let machines = (for_data.max(for_time) * (1.0 - 1e-12)).ceil().max(1.0);
    if machines > 1e9 {
        return Err("more than a billion machines".to_owned());
    }
    let seconds = demand.bytes / one.bandwidth() / machines.powf(demand.scale_out);
    let busy = demand.scans_a_second * seconds;
    if busy > 1.0 {
        return Err(format!(
            "a scan takes {seconds:.1} s, and one is asked for every {:.1} s",
            1.0 / demand.scans_a_second
        ));
    }
    let hubs = machine.hub.map_or(0.0, |hub| (machines / hub.machines).ceil());
    let hub_watts = machine.hub.map_or(0.0, |hub| hubs * hub.power);
    // Machines beyond what linear scaling needs wait for the others at the power of the scan.
    let watts = machines * one.watts + hub_watts;
    let idle_watts = machines * machine.idle + hub_watts;
    let joules_a_scan = watts * seconds;
    let joules_a_day = DAY * (busy * watts + (1.0 - busy) * idle_watts);
    let dollars = case.cost.zip(machine.price).map(|(terms, price)| {
        let hubs = machine.hub.and_then(|hub| hub.price).map_or(0.0, |price| hubs * price);
        let kilowatt_hours = joules_a_day / DAY / 1_000.0 * terms.hours;
        machines * price + hubs + kilowatt_hours * terms.electricity
    });
    Ok(Fleet {
        machines,
        hubs,
        bound_by_time: for_time > for_data,
        seconds,
        watts,
        idle_watts,
        joules_a_scan,
        joules_a_day,
        load_seconds: machine.link.map(|link| demand.bytes / (machines * link)),
        battery_seconds: machine.battery.map(|joules| joules / one.watts),
        dollars,
    })
}
