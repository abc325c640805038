//! What the published step of PowerNap can be: the case study under other readings of what its source leaves
//! open, so that a reader sees which inputs the printed value would need.

use super::conditioning::Basis;
use super::describe::Description;
use crate::parts::Table;
use tierstone_base::Result;

/// A reading, and what it changes in the description.
type Reading = (&'static str, fn(&mut Description));

const READINGS: [Reading; 7] = [
    ("as described", |_| {}),
    ("condensers as cold as it is outside (the printed proxy without a limit)", literal),
    ("that, and half of the losses at peak constant", |plant| losses(plant, 0.5)),
    ("that, and none of the losses constant", |plant| losses(plant, 0.0)),
    ("that, and losses of what goes in, not of the servers' power", |plant| {
        losses(plant, 0.0);
        plant.ups.loss_basis = Basis::Input;
    }),
    ("none of the losses constant, network, pumps and lights 4 % instead of 6 % of peak", |plant| {
        losses(plant, 0.0);
        plant.fixed_fraction_of_peak = 0.04;
    }),
    ("nothing constant but air handlers and the chiller's own part", |plant| {
        losses(plant, 0.0);
        plant.fixed_fraction_of_peak = 0.0;
    }),
];

fn literal(plant: &mut Description) {
    plant.chiller.condenser_min_f = 40.0;
}

fn losses(plant: &mut Description, constant: f64) {
    literal(plant);
    plant.pdu.loss_fixed_fraction = constant;
    plant.ups.loss_fixed_fraction = constant;
}

/// The change of the total, as a part of it, that the fourth state brings to the third.
fn change(description: &Description) -> Result<Option<f64>> {
    let cases = description.cases()?;
    let [_, _, before, after, ..] = cases.as_slice() else { return Ok(None) };
    let before = before.plant.draw(&before.at)?.total_kw();
    Ok(Some(after.plant.draw(&after.at)?.total_kw() / before - 1.0))
}

/// The change under a reading by its number, if the description has such states.
fn under(description: &Description, (_, changed): &Reading) -> Result<Option<f64>> {
    let mut description = description.clone();
    changed(&mut description);
    change(&description)
}

/// The change without any constant loss: the most that the printed inputs give.
pub(super) fn without_constant_losses(description: &Description) -> Result<Option<f64>> {
    under(description, &READINGS[3])
}

/// What each reading makes of the step, beside the published -22 %.
pub(super) fn table(description: &Description) -> Result<Table> {
    let mut table = Table::new(
        "powernap",
        "The step of PowerNap under readings of what its source leaves open (modelled; published: -22 %)",
        &["reading", "change of the total %"],
    );
    for reading in &READINGS {
        if let Some(change) = under(description, reading)? {
            table.push([reading.0.into(), (100.0 * change).into()]);
        }
    }
    Ok(table)
}
