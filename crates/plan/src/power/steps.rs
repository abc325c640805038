//! What the published claims of the case study can be: its steps under other readings of what its source leaves
//! open, so that a reader sees which inputs the printed values need.

use super::conditioning::Basis;
use super::describe::{Description, Peak};
use crate::parts::Table;
use crate::quantity::Temperature;
use tierstone_base::Result;

/// A reading, and what it changes in the description.
type Reading = (&'static str, fn(&mut Description));

const READINGS: [Reading; 9] = [
    ("as described", |_| {}),
    ("the UPS stands outside the cooled room", |plant| plant.ups.in_cooled_room = false),
    ("the chiller's condensers are as cold as it is outside (the printed proxy without a limit)", |plant| {
        plant.chiller.condenser_min = Temperature::new(40.0);
    }),
    ("they are kept at 60 F or above, where the curves end", condensers),
    ("network, pumps and lights are 6 % of the total at peak, not of the servers'", |plant| {
        plant.fixed_basis = Peak::Total;
    }),
    ("both of the last two", |plant| {
        condensers(plant);
        plant.fixed_basis = Peak::Total;
    }),
    ("half of the losses of distribution at peak are constant", |plant| losses(plant, 0.5)),
    ("none of them is, though A.4 and A.5 print a constant", |plant| losses(plant, 0.0)),
    ("percentages of loss are of what goes in, not of the servers' power", |plant| {
        plant.ups.loss_basis = Basis::Input;
    }),
];

fn condensers(plant: &mut Description) {
    plant.chiller.condenser_min = Temperature::new(60.0);
}

fn losses(plant: &mut Description, constant: f64) {
    plant.pdu.loss_fixed_fraction = constant;
    plant.ups.loss_fixed_fraction = constant;
}

/// What a reading makes of two claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims {
    /// The change of the total, as a part of it, that the fourth state (PowerNap) brings to the third.
    pub nap: f64,
    /// Losses of distribution over cooling in the last state (containers).
    pub limiting: f64,
}

/// The claims under a reading, if the description has such states.
fn under(description: &Description, (_, changed): &Reading) -> Result<Option<Claims>> {
    let mut description = description.clone();
    changed(&mut description);
    let cases = description.cases()?;
    let [_, _, before, after, .., last] = cases.as_slice() else { return Ok(None) };
    let before = before.plant.draw(&before.at)?.total_kw();
    let last = last.plant.draw(&last.at)?;
    Ok(Some(Claims {
        nap: after.plant.draw(&after.at)?.total_kw() / before - 1.0,
        limiting: last.conditioning_kw() / last.cooling_kw(),
    }))
}

/// The claims with the UPS outside the cooled room, where both hold.
pub(super) fn ups_outside(description: &Description) -> Result<Option<Claims>> {
    under(description, &READINGS[1])
}

/// What each reading makes of the claims.
pub(super) fn table(description: &Description) -> Result<Table> {
    let mut table = Table::new(
        "readings",
        "Two claims under readings of what their source leaves open (modelled; published: -22 %, and above 1)",
        &["reading", "PowerNap: change of the total %", "containers: losses of distribution over cooling"],
    );
    for reading in &READINGS {
        if let Some(claims) = under(description, reading)? {
            table.push([reading.0.into(), (100.0 * claims.nap).into(), claims.limiting.into()]);
        }
    }
    Ok(table)
}
