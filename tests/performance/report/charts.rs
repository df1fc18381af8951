//! The charts, as SVG.

use plotters::prelude::*;

use super::figures::{Figures, Point, median};

const SIZE: (u32, u32) = (720, 380);
const FONT: &str = "sans-serif";
const COLORS: [RGBColor; 4] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
];

/// A line: its name and its points.
type Line = (String, Vec<(f64, f64)>);

/// Every chart, by the name of its file.
///
/// # Errors
/// The drawing library's.
pub fn all(figures: &Figures) -> anyhow::Result<Vec<(&'static str, String)>> {
    let growth = &figures.growth;
    let time = |points: &[Point]| {
        vec![
            line("CPU, ms", points, |point| scaled(&point.call.cpu_us, 1e-3)),
            line("p50, ms", points, |point| median(&point.call.p50_ms)),
        ]
    };
    let memory = |points: &[Point]| {
        vec![line("most memory, MiB", points, |point| {
            scaled(&point.peak_kib, 1.0 / 1024.0)
        })]
    };
    let mut charts = vec![
        (
            "passages-in-index-time",
            "passages in the index",
            "ms a call",
            time(&growth.passages_in_index),
        ),
        (
            "passages-in-index-memory",
            "passages in the index",
            "MiB",
            memory(&growth.passages_in_index),
        ),
        (
            "knowledge-bases-one-asked-time",
            "knowledge bases of the key, one asked",
            "ms a call",
            time(&growth.knowledge_bases_of_key_one_asked),
        ),
        (
            "knowledge-bases-all-asked-time",
            "knowledge bases of the key, all asked",
            "ms a call",
            time(&growth.knowledge_bases_of_key_all_asked),
        ),
        (
            "passages-in-answer-time",
            "passages in the answer",
            "ms a call",
            time(&growth.passages_in_answer),
        ),
        (
            "request-bytes-time",
            "bytes of the request",
            "ms a call",
            time(&growth.request_bytes),
        ),
    ];
    if let Some(load) = &figures.load {
        let of_server = load.servers.iter().map(|(server, bench)| {
            let points = bench.loads.iter();
            let points = points.map(|point| (f64::from(point.connections), point.calls_per_second));
            (server.clone(), points.collect())
        });
        charts.push(("load", "connections", "calls a second", of_server.collect()));
    }
    let drawn = charts
        .into_iter()
        .map(|(name, x, y, lines)| Ok((name, chart(x, y, &lines)?)));
    drawn.collect()
}

fn scaled(values: &[f64], factor: f64) -> Option<f64> {
    median(values).map(|value| value * factor)
}

fn line(name: &str, points: &[Point], y: impl Fn(&Point) -> Option<f64>) -> Line {
    let points = points.iter().filter_map(|point| Some((point.x, y(point)?)));
    (name.to_owned(), points.collect())
}

/// Lines over a logarithmic axis.
fn chart(x_axis: &str, y_axis: &str, lines: &[Line]) -> anyhow::Result<String> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let least_x = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most_x = all().map(|point| point.0).fold(1.0, f64::max);
    let most_y = all().map(|point| point.1).fold(0.0, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d((least_x..most_x).log_scale(), 0.0..most_y * 1.15)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(x_axis)
            .y_desc(y_axis)
            .label_style((FONT, 13))
            .x_label_formatter(&|x| format!("{x}"))
            .draw()?;
        for ((name, points), color) in lines.iter().zip(COLORS) {
            let style = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font((FONT, 13))
            .draw()?;
        area.present()?;
    }
    Ok(svg + "\n")
}
