use super::*;
use crate::parts::Series;

fn plot(points: Vec<(f64, f64)>) -> Plot {
    Plot {
        name: "test".into(),
        title: "Gets a second".into(),
        x: Axis::logarithmic("bytes"),
        y: Axis::linear("gets/s"),
        series: vec![Series::new("ours", points.clone()), Series::new("theirs", points)],
    }
}

#[test]
fn a_plot_becomes_a_picture_with_its_words_in_both_formats() {
    let plot = plot(vec![(1_000.0, 5.0), (0.0, 7.0), (1e9, 80_000.0)]);
    let document = svg(&plot).unwrap();
    for word in ["Gets a second", "bytes", "gets/s", "theirs", "80k", "1k"] {
        assert!(document.contains(word), "{word} is missing");
    }
    let file = png(&plot).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), SIZE);
    // Text is drawn, not boxes: the heading leaves many shades of grey in its lines.
    let shades: std::collections::BTreeSet<u8> = pixels[..SIZE.0 as usize * 3 * 40]
        .chunks(3)
        .filter(|p| p[0] == p[1] && p[1] == p[2])
        .map(|p| p[0])
        .collect();
    assert!(shades.len() > 20, "{shades:?}");
}

#[test]
fn a_plot_without_points_is_refused() {
    assert_eq!(svg(&plot(Vec::new())).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(png(&plot(vec![(-1.0, 2.0)])).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn one_point_and_equal_points_are_drawn() {
    assert!(svg(&plot(vec![(10.0, 0.0)])).is_ok());
    assert!(svg(&plot(vec![(10.0, 3.0), (10.0, 3.0)])).is_ok());
}

#[test]
fn labels_are_short() {
    for (value, text) in [
        (0.0, "0"),
        (5.0, "5"),
        (10.0, "10"),
        (100.0, "100"),
        (1_500.0, "1.5k"),
        (20_000.0, "20k"),
        (1e6, "1M"),
        (0.05, "0.05"),
        (0.25, "0.25"),
        (0.005, "0.005"),
        (0.000_01, "1e-5"),
    ] {
        assert_eq!(label(Scale::Linear, value), text);
    }
    assert_eq!(label(Scale::Logarithmic, 4.0), "10k");
    assert_eq!(label(Scale::Logarithmic, 2f64.log10() + 6.0), "2M");
}

#[test]
fn ticks_enclose_what_is_shown() {
    for (low, high) in [(0.0, 1.0), (0.0, 87_123.0), (0.0, 1e-3)] {
        let ticks = linear_ticks(low, high);
        assert!(ticks.low <= low && ticks.high >= high && (3..=9).contains(&ticks.at.len()), "{ticks:?}");
    }
    for (low, high) in [(0.0, 0.0), (1.3, 1.4), (0.2, 3.1), (-3.0, 6.0)] {
        let ticks = logarithmic_ticks(low, high, 0.05);
        assert!(ticks.low <= low && ticks.high >= high && ticks.at.len() >= 2, "{ticks:?}");
    }
}

#[test]
fn areas_fill_the_frame_and_lie_below_lines() {
    let mut plot = plot(vec![(1e3, 1e3)]);
    plot.y = Axis::logarithmic("rate");
    plot.series.push(Series::area("cheap", [[(1e2, 1e2), (1e4, 1e3)], [(1e2, 1e3), (1e4, 1e5)]]));
    let document = svg(&plot).unwrap();
    assert!(document.contains("cheap"));
    let colour = pale(COLOURS[2]);
    let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
    assert!(document.find(&hex) < document.find("<polyline"));
    assert_eq!(document.matches(&hex).count(), 3, "two rectangles and one in the legend");
    let ticks = ticks(Scale::Logarithmic, true, [2.0, 4.0].into_iter()).unwrap();
    assert_eq!((ticks.low, ticks.high), (2.0, 4.0));
    assert!(png(&plot).is_ok());
}
