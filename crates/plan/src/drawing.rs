//! Plots as SVG and PNG.
//!
//! No font of the machine is used: the pictures are the same everywhere, and building needs no
//! library of the system.

use crate::parts::{Axis, Plot, Scale, Series};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::ops::Range;
use std::sync::Once;
use tierstone_base::{Error, ErrorKind, Result};

/// Width and height of a picture.
const SIZE: (u32, u32) = (960, 600);
const FONT: &str = "sans-serif";
const TEXT: i32 = 17;
/// Colours that people with any colour vision can tell apart (Okabe and Ito, "Color universal design").
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(70, 70, 70),
    RGBColor(160, 140, 0),
];

fn prepare_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Refused only for bytes that are no font; the first picture with text would then say so.
        let _ = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
}

/// `plot` as an SVG document.
///
/// # Errors
/// `Unsupported`: a plot without points, or one that cannot be drawn.
pub fn svg(plot: &Plot) -> Result<String> {
    prepare_font();
    let mut document = String::new();
    draw(plot, SVGBackend::with_string(&mut document, SIZE).into_drawing_area())?;
    Ok(document)
}

/// `plot` as a PNG file's bytes.
///
/// # Errors
/// As [`svg`].
pub fn png(plot: &Plot) -> Result<Vec<u8>> {
    prepare_font();
    let (width, height) = SIZE;
    let mut pixels = vec![255u8; width as usize * height as usize * 3];
    draw(plot, BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels)?;
        writer.finish()
    });
    written.map_err(|error| refused(plot, &error.to_string()))?;
    Ok(file)
}

fn refused(plot: &Plot, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the plot {} cannot be drawn: {why}", plot.name))
}

/// The points of a line as places on the axes; those that a logarithmic axis cannot show are left out.
fn places(plot: &Plot, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let place = |axis: &Axis, value: f64| match axis.scale {
        Scale::Linear => Some(value),
        Scale::Logarithmic => (value > 0.0).then(|| value.log10()),
    };
    points.iter().filter_map(|&(x, y)| Some((place(&plot.x, x)?, place(&plot.y, y)?))).collect()
}

/// Ends of an axis and the places of its numbers.
#[derive(Clone, Debug, PartialEq)]
struct Ticks {
    scale: Scale,
    low: f64,
    high: f64,
    at: Vec<f64>,
}

impl Ranged for Ticks {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (start, end): (i32, i32)) -> i32 {
        let part = (place - self.low) / (self.high - self.low);
        start + (part * f64::from(end - start)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.at.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Ticks {
    fn format(place: &f64) -> String {
        place.to_string()
    }

    fn format_ext(&self, place: &f64) -> String {
        label(self.scale, *place)
    }
}

fn ticks(scale: Scale, is_map: bool, places: impl Iterator<Item = f64>) -> Option<Ticks> {
    let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| {
        (f64::min(low, place), f64::max(high, place))
    });
    if low > high {
        return None;
    }
    Some(match scale {
        Scale::Linear => linear_ticks(low.min(0.0), if high > low.min(0.0) { high } else { low + 1.0 }),
        // The least room, so that an end that is a tick does not move to the next one.
        Scale::Logarithmic if is_map => logarithmic_ticks(low, high, -1e-9),
        Scale::Logarithmic => logarithmic_ticks(low, high, 0.05),
    })
}

/// About six round numbers.
fn linear_ticks(low: f64, high: f64) -> Ticks {
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).floor();
    let last = (high * 1.02 / step).ceil();
    let at: Vec<f64> = (0..=(last - first) as u32).map(|number| (first + f64::from(number)) * step).collect();
    Ticks { scale: Scale::Linear, low: first * step, high: last * step, at }
}

/// Powers of ten; twos and fives between them when there are few.
fn logarithmic_ticks(low: f64, high: f64, room: f64) -> Ticks {
    let (low, high) = (low - room, high + room);
    let factors: &[f64] = match high - low {
        ..2.2 => &[1.0, 2.0, 5.0],
        ..3.5 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let powers = (low.floor() as i32)..=(high.ceil() as i32);
    let all = powers.flat_map(|power| factors.iter().map(move |factor| f64::from(power) + factor.log10()));
    let mut all: Vec<f64> = all.collect();
    // The ends are numbers too, so that every picture says where it begins and ends.
    let start = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    all.drain(..start);
    let end = all.iter().position(|tick| *tick >= high).unwrap_or(all.len() - 1);
    all.truncate(end + 1);
    Ticks { scale: Scale::Logarithmic, low: all[0], high: all[all.len() - 1], at: all }
}

/// A number as people write it: `250`, `1.5k`, `20M`, `0.05`.
fn label(scale: Scale, place: f64) -> String {
    let value = if scale == Scale::Logarithmic { 10f64.powf(place) } else { place };
    let (value, unit) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        // 9,999.99 of a logarithm is 10,000.
        999.5e3.. => (value / 1e6, "M"),
        999.5.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if value != 0.0 && value.abs() < 0.000_95 {
        return format!("{value:.0e}");
    }
    let digits = match value.abs() {
        9.995.. => 0,
        0.995.. => 1,
        0.0995.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{unit}", if text.is_empty() || text == "-0" { "0" } else { text })
}

/// What a series shows, as places on the axes.
struct Shape {
    line: Vec<(f64, f64)>,
    area: Vec<[(f64, f64); 2]>,
}

fn shape(plot: &Plot, series: &Series) -> Shape {
    let corners = |rectangle: &[(f64, f64); 2]| <[(f64, f64); 2]>::try_from(places(plot, rectangle)).ok();
    let area = series.area.iter().filter_map(corners).collect();
    Shape { line: places(plot, &series.points), area }
}

fn draw<B: DrawingBackend>(plot: &Plot, area: DrawingArea<B, Shift>) -> Result<()> {
    let shapes: Vec<Shape> = plot.series.iter().map(|series| shape(plot, series)).collect();
    let all = || shapes.iter().flat_map(|shape| shape.line.iter().chain(shape.area.iter().flatten()));
    // A map fills its frame; lines get some room.
    let is_map = shapes.iter().any(|shape| !shape.area.is_empty());
    let x = ticks(plot.x.scale, is_map, all().map(|place| place.0));
    let y = ticks(plot.y.scale, is_map, all().map(|place| place.1));
    let (Some(x), Some(y)) = (x, y) else { return Err(refused(plot, "it has no points")) };
    paint(plot, &shapes, &x, &y, &area).map_err(|error| refused(plot, &error.to_string()))
}

fn paint<B: DrawingBackend>(
    plot: &Plot,
    shapes: &[Shape],
    x: &Ticks,
    y: &Ticks,
    area: &DrawingArea<B, Shift>,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(&plot.title, (FONT, 22))
        .margin(16)
        .x_label_area_size(52)
        .y_label_area_size(76)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let series = || plot.series.iter().zip(shapes).enumerate();
    for (number, (series, shape)) in series().filter(|(_, (_, shape))| !shape.area.is_empty()) {
        // Opaque, so that rectangles side by side show no seam.
        let colour = pale(COLOURS[number % COLOURS.len()]);
        chart
            .draw_series(shape.area.iter().map(|&corners| Rectangle::new(corners, colour.filled())))?
            .label(&series.name)
            .legend(move |(left, middle)| {
                Rectangle::new([(left, middle - 6), (left + 22, middle + 6)], colour.filled())
            });
    }
    chart
        .configure_mesh()
        .x_labels(x.at.len())
        .y_labels(y.at.len())
        .x_max_light_lines(0)
        .y_max_light_lines(0)
        .bold_line_style(RGBColor(222, 222, 222))
        .x_desc(&plot.x.label)
        .y_desc(&plot.y.label)
        .label_style((FONT, TEXT))
        .axis_desc_style((FONT, TEXT + 1))
        .draw()?;
    for (number, (series, Shape { line, .. })) in series().filter(|(_, (_, shape))| shape.area.is_empty()) {
        let colour = COLOURS[number % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?
            .label(&series.name)
            .legend(move |(left, middle)| {
                PathElement::new(vec![(left, middle), (left + 22, middle)], colour.stroke_width(3))
            });
        // Many points are a curve; few are marked.
        if line.len() <= 24 {
            chart.draw_series(line.iter().map(|&place| Circle::new(place, 4, colour.filled())))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, TEXT))
        .legend_area_size(32)
        .margin(8)
        .draw()?;
    area.present()
}

/// Half way to white: lines of the same palette stay visible on it.
fn pale(RGBColor(red, green, blue): RGBColor) -> RGBColor {
    let half = |part: u8| 255 - (255 - part) / 2;
    RGBColor(half(red), half(green), half(blue))
}

#[cfg(test)]
#[path = "drawing_test.rs"]
mod drawing_test;
