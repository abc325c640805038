//! Where in the plane of data size and rate which design is cheapest.
//!
//! For parts of nodes the winner depends on queries a second and gigabyte alone: a design costs the
//! larger of its cost a gigabyte, and its cost a query a second times that ratio. The lower envelope of
//! those broken lines gives the boundaries exactly; the map is drawn for whole nodes.

use super::case::{Case, Map};
use super::model::{allowed, cheapest, cost_of_node};
use crate::parts::{Axis, Plot, Series};

/// Places of the map in each direction.
const COLUMNS: u32 = 160;
const ROWS: u32 = 120;

/// A range of ratios in which one design is cheapest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// The design's place in the catalogue.
    pub node: usize,
    /// From which queries a second and gigabyte on; the first is 0.
    pub from: f64,
}

/// What a design costs a gigabyte of data, for parts of nodes, at `ratio` queries a second and gigabyte.
struct Line {
    node: usize,
    a_gb: f64,
    a_rate: f64,
}

impl Line {
    fn at(&self, ratio: f64) -> f64 {
        self.a_gb.max(self.a_rate * ratio)
    }
}

/// The designs that are cheapest somewhere, in order of rising ratio.
pub fn regions(case: &Case) -> Vec<Region> {
    let lines: Vec<Line> = allowed(case)
        .map(|(place, node)| {
            let cost = cost_of_node(&case.terms, node, node.total_price());
            Line { node: place, a_gb: cost / node.total_gb(), a_rate: cost / node.total_rate() }
        })
        .collect();
    // The winner changes only where a rising part of one meets the flat part of another, or at a bend.
    let mut turns: Vec<f64> =
        lines.iter().flat_map(|rising| lines.iter().map(|flat| flat.a_gb / rising.a_rate)).collect();
    turns.sort_by(f64::total_cmp);
    turns.dedup();
    let winner = |ratio: f64| {
        let best = lines.iter().min_by(|a, b| a.at(ratio).total_cmp(&b.at(ratio)));
        best.map_or(0, |line| line.node)
    };
    let mut regions = vec![Region { node: winner(turns[0] / 2.0), from: 0.0 }];
    for (place, &from) in turns.iter().enumerate() {
        let middle = turns.get(place + 1).map_or(from * 2.0, |next| (from * next).sqrt());
        let node = winner(middle);
        if regions.last().is_some_and(|last| last.node != node) {
            regions.push(Region { node, from });
        }
    }
    regions
}

/// The map of the cheapest designs in whole nodes, with the boundaries of [`regions`] as lines.
pub fn map(case: &Case, regions: &[Region]) -> Plot {
    let map = case.map;
    let mut areas: Vec<Vec<[(f64, f64); 2]>> = vec![Vec::new(); case.nodes.len()];
    let (x, y) = (
        |column: f64| place(map.gb, column / f64::from(COLUMNS)),
        |row: f64| place(map.rate, row / f64::from(ROWS)),
    );
    for row in 0..ROWS {
        let winner = |column: u32| cheapest(case, x(f64::from(column) + 0.5), y(f64::from(row) + 0.5)).0;
        let (mut start, mut last) = (0, winner(0));
        for column in 1..=COLUMNS {
            let next = if column < COLUMNS { Some(winner(column)) } else { None };
            if next != Some(last) {
                let corners = [(start, row), (column, row + 1)];
                areas[last].push(corners.map(|(column, row)| (x(f64::from(column)), y(f64::from(row)))));
                (start, last) = (column, next.unwrap_or(last));
            }
        }
    }
    let mut series: Vec<Series> = Vec::new();
    for (node, area) in case.nodes.iter().zip(areas) {
        if !area.is_empty() {
            series.push(Series::area(&node.name, area));
        }
    }
    series.extend(regions.iter().skip(1).filter_map(|region| boundary(map, region.from)));
    Plot {
        name: "regions".to_owned(),
        title: "The cheapest design".to_owned(),
        x: Axis::logarithmic("data (GB)"),
        y: Axis::logarithmic("rate (queries/s)"),
        series,
    }
}

/// The place at `part` of the way from one end to the other, in equal ratios; the ends exactly.
fn place((from, to): (f64, f64), part: f64) -> f64 {
    if part >= 1.0 { to } else { from * (to / from).powf(part) }
}

/// The line of a ratio through the map, if it goes through.
fn boundary(map: Map, ratio: f64) -> Option<Series> {
    let (from, to) = (map.gb.0.max(map.rate.0 / ratio), map.gb.1.min(map.rate.1 / ratio));
    let name = format!("{} queries/s a GB", crate::number::number(ratio));
    (from < to).then(|| Series::new(&name, [from, to].map(|gb| (gb, gb * ratio))))
}
