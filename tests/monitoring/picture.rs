//! The picture of docs/guides/monitoring.md: what Prometheus has recorded of one server.

use std::error::Error;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::prometheus::{Prometheus, Series};

const WIDTH: u32 = 860;
const HEIGHT: u32 = 250;
const CARD: RGBColor = RGBColor(252, 252, 250);
const INK: RGBColor = RGBColor(36, 41, 47);
const FAINT: RGBColor = RGBColor(222, 224, 227);
/// Told apart by colour-blind eyes, too (Okabe and Ito).
const PALETTE: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
];

/// Title and query of each chart, and where there is room for the names of its lines.
const CHARTS: [(&str, &str, SeriesLabelPosition); 3] = [
    (
        "Requests that wait",
        "redis_script_values{SERVER, key=~\"lock_waiters|lock_waiters_notified\"}",
        SeriesLabelPosition::UpperLeft,
    ),
    (
        "Longest present wait, ms",
        "redis_script_values{SERVER, key=\"lock_longest_wait_ms\"}",
        SeriesLabelPosition::UpperLeft,
    ),
    (
        "Hand-overs per second, by cause",
        "rate(redis_script_values{SERVER, key=~\"lock_handovers_.+\"}[10s])",
        SeriesLabelPosition::MiddleLeft,
    ),
];

type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;

/// The charts of one server between two times in Unix milliseconds, as SVG.
#[track_caller]
pub fn draw(prometheus: &Prometheus, instance: &str, from: i64, to: i64) -> String {
    let [from, to] = [from, to].map(|ms| ms as f64 / 1000.0);
    let server = format!("instance=\"{instance}\"");
    let mut picture = String::new();
    {
        let height = HEIGHT * CHARTS.len() as u32;
        let all = SVGBackend::with_string(&mut picture, (WIDTH, height)).into_drawing_area();
        all.fill(&CARD).expect("a picture in memory");
        for (area, (title, query, names)) in all.split_evenly((CHARTS.len(), 1)).iter().zip(CHARTS) {
            let series = prometheus.history(&query.replace("SERVER", &server), from, to);
            assert!(!series.is_empty(), "{title}: something to draw");
            chart(area, title, names, &series, (from, to)).expect("a chart in memory");
        }
        all.present().expect("a picture in memory");
    }
    picture
}

fn chart(
    area: &Area<'_>,
    title: &str,
    names: SeriesLabelPosition,
    all: &[Series],
    span: (f64, f64),
) -> Result<(), Box<dyn Error>> {
    let highest = all.iter().flat_map(|series| &series.points).map(|point| point.1).fold(1.0, f64::max);
    let text = |size| ("sans-serif", size).with_color(INK);
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(16))
        .margin(14)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..span.1 - span.0, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .axis_style(FAINT)
        .bold_line_style(FAINT)
        .light_line_style(CARD)
        .label_style(text(13))
        .x_label_formatter(&|second| format!("{second:.0} s"))
        .y_label_formatter(&|number| format!("{number}"))
        .draw()?;
    for (series, colour) in all.iter().zip(PALETTE.into_iter().cycle()) {
        let points = series.points.iter().map(|&(time, value)| (time - span.0, value));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(series.label("key"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(names)
        .background_style(CARD)
        .border_style(FAINT)
        .label_font(text(13))
        .draw()?;
    Ok(())
}
