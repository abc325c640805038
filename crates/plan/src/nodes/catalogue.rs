//! The catalogue of present hardware that ships: published figures, each with its source and that one's date.
//! What has no dated source is not in it, and a plan that needs it asks for it.

use crate::field::refused;
use crate::parts::Table;
use crate::quantity::{Dimension, Quantity};
use serde::Deserialize;
use tierstone_base::{Error, ErrorKind, Result};

/// The data file; its name has the day on which it was collected.
const FILE: &str = include_str!("../../catalogue/hardware-2026-11-23.toml");

/// All items and their sources.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    source: Vec<Source>,
    item: Vec<Item>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    id: String,
    title: String,
    address: String,
    date: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    kind: String,
    price: Option<Figure>,
    power: Option<Figure>,
    capacity: Option<Figure>,
    rate: Option<Figure>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    value: String,
    source: String,
}

impl Item {
    fn figures(&self) -> [(&'static str, Option<&Figure>); 4] {
        [
            ("price", self.price.as_ref()),
            ("power", self.power.as_ref()),
            ("capacity", self.capacity.as_ref()),
            ("rate", self.rate.as_ref()),
        ]
    }
}

impl Catalogue {
    /// The one that ships.
    ///
    /// # Errors
    /// `Corrupt` never in a tested build: the file is read by a test.
    pub fn shipped() -> Result<Catalogue> {
        toml::from_str(FILE)
            .map_err(|error| Error::new(ErrorKind::Corrupt, format!("the catalogue: {error}")))
    }

    /// The figure called `field` of a node or part: the description's own, or that of the item it names.
    ///
    /// # Errors
    /// `InvalidInput`: no such item, or neither has the figure; the message says what to give.
    pub fn figure<D: Dimension>(
        &self,
        place: &str,
        field: &'static str,
        own: Option<Quantity<D>>,
        item: Option<&str>,
    ) -> Result<Option<f64>> {
        let named = item.map(|name| self.find(place, name)).transpose()?;
        if let Some(own) = own {
            return Ok(Some(own.get()));
        }
        let Some(named) = named else { return Ok(None) };
        let found = named.figures().into_iter().find(|(name, _)| *name == field);
        let Some(figure) = found.and_then(|(_, figure)| figure) else { return Ok(None) };
        Ok(Some(Quantity::<D>::parse(&figure.value)?.get()))
    }

    /// As [`Catalogue::figure`], where it must be there.
    ///
    /// # Errors
    /// As [`Catalogue::figure`]; and when neither has it.
    pub fn needed<D: Dimension>(
        &self,
        place: &str,
        field: &'static str,
        own: Option<Quantity<D>>,
        item: Option<&str>,
    ) -> Result<f64> {
        self.figure(place, field, own, item)?.ok_or_else(|| {
            let example = D::EXAMPLE;
            match item {
                Some(item) => refused(format!(
                    "{place}: the catalogue has no {field} of '{item}' with a source and a date; give your own, for example \
                     {field} = \"{example}\""
                )),
                None => refused(format!("{place}: `{field}` is missing; write for example {field} = \"{example}\"")),
            }
        })
    }

    fn find(&self, place: &str, name: &str) -> Result<&Item> {
        self.item.iter().find(|item| item.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.item.iter().map(|item| item.name.as_str()).collect();
            refused(format!("{place}: the catalogue has no '{name}'; it has {}", known.join("; ")))
        })
    }

    /// Every figure with its source.
    pub fn table(&self) -> Table {
        let heads = ["item", "kind", "figure", "value", "date", "source", "address"];
        let mut table =
            Table::new("published-catalogue", "The catalogue of present hardware (published)", &heads);
        for item in &self.item {
            for (field, figure) in item.figures() {
                let source =
                    figure.and_then(|figure| self.source.iter().find(|source| source.id == figure.source));
                let (value, date, title, address) = match (figure, source) {
                    (Some(figure), Some(source)) => (
                        figure.value.as_str(),
                        source.date.as_str(),
                        source.title.as_str(),
                        source.address.as_str(),
                    ),
                    _ => ("not sourced: give your own", "-", "-", "-"),
                };
                table.push([
                    item.name.as_str().into(),
                    item.kind.as_str().into(),
                    field.into(),
                    value.into(),
                    date.into(),
                    title.into(),
                    address.into(),
                ]);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Money, Power, Rate, Size};

    #[test]
    fn every_figure_of_the_catalogue_is_a_quantity_with_a_dated_source() {
        let catalogue = Catalogue::shipped().unwrap();
        for item in &catalogue.item {
            for (field, figure) in item.figures() {
                let Some(figure) = figure else { continue };
                let value = match field {
                    "price" => Money::parse(&figure.value).unwrap().get(),
                    "power" => Power::parse(&figure.value).unwrap().get(),
                    "capacity" => Size::parse(&figure.value).unwrap().get(),
                    _ => Rate::parse(&figure.value).unwrap().get(),
                };
                assert!(value > 0.0, "{}: {field}", item.name);
                let source = catalogue.source.iter().find(|source| source.id == figure.source).unwrap();
                assert!(
                    source.address.starts_with("http")
                        && source.date.contains("20")
                        && !source.title.is_empty()
                );
            }
        }
        for source in &catalogue.source {
            let used = |item: &Item| {
                item.figures().iter().any(|(_, of)| of.is_some_and(|of| of.source == source.id))
            };
            assert!(catalogue.item.iter().any(used), "{}", source.id);
        }
    }
}
