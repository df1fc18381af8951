//! The tables, in Markdown.

use std::fmt::Write as _;

use super::figures::{Call, Figures, Load, Machine, Point, SideBySide, median};

/// Every table, by name.
pub fn all(figures: &Figures) -> Vec<(&'static str, String)> {
    let growth = &figures.growth;
    vec![
        ("machine", machine(figures)),
        ("start", start(&figures.side_by_side)),
        ("calls", calls(&figures.side_by_side)),
        ("size", size(&figures.side_by_side)),
        (
            "passages-in-index",
            grown(&growth.passages_in_index, "passages in the index"),
        ),
        (
            "knowledge-bases-one-asked",
            grown(
                &growth.knowledge_bases_of_key_one_asked,
                "knowledge bases of the key, one asked",
            ),
        ),
        (
            "knowledge-bases-all-asked",
            grown(
                &growth.knowledge_bases_of_key_all_asked,
                "knowledge bases of the key, all asked",
            ),
        ),
        (
            "passages-in-answer",
            grown(&growth.passages_in_answer, "passages in the answer"),
        ),
        (
            "request-bytes",
            grown(&growth.request_bytes, "bytes of the request"),
        ),
        (
            "load",
            figures.load.as_ref().map_or_else(not_measured, load),
        ),
    ]
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn header(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
    row(&cells) + &"|---".repeat(cells.len()) + "|\n"
}

/// Least, median and largest value.
fn spread(values: &[f64], digits: usize) -> String {
    let Some(middle) = median(values) else {
        return "-".to_owned();
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:.digits$} / {middle:.digits$} / {most:.digits$}")
}

fn mebibytes(kib: &[f64]) -> Vec<f64> {
    kib.iter().map(|kib| kib / 1024.0).collect()
}

fn machine(figures: &Figures) -> String {
    let described = |what: &str, machine: &Machine| {
        row(&[
            what.to_owned(),
            format!("{} × {}", machine.cores, machine.processor),
            machine.kernel.clone(),
            machine.date.clone(),
        ])
    };
    let of_load = figures
        .load
        .as_ref()
        .map(|load| described("load", &load.machine));
    header(&["figures", "processor", "kernel", "date"])
        + &described("side by side", &figures.side_by_side.machine)
        + &described("growth", &figures.growth.machine)
        + &of_load.unwrap_or_default()
}

fn not_measured() -> String {
    "Not measured on this machine yet: `tests/performance/load` does it.\n".to_owned()
}

fn start(measured: &SideBySide) -> String {
    let mut table = header(&[
        "system",
        "to the first poll, ms",
        "CPU of that, ms",
        "first call, ms",
        "CPU of start and first call, ms",
        "most memory, MiB",
    ]);
    for system in &measured.systems {
        table += &row(&[
            system.name.clone(),
            spread(&system.init_ms, 1),
            spread(&system.init_cpu_ms, 1),
            spread(&system.first_ms, 2),
            spread(&system.first_cpu_ms, 1),
            spread(&mebibytes(&system.peak_kib), 1),
        ]);
    }
    table
}

fn calls(measured: &SideBySide) -> String {
    let mut table = header(&[
        "system",
        "call",
        "p50, ms",
        "p99, ms",
        "CPU, µs",
        "CPU, × echo",
    ]);
    let of_echo = measured.systems.first();
    let floor = of_echo.and_then(|echo| {
        let medians = echo.calls.values().filter_map(|call| median(&call.cpu_us));
        medians.min_by(f64::total_cmp)
    });
    for system in &measured.systems {
        for (
            name,
            Call {
                p50_ms,
                p99_ms,
                cpu_us,
            },
        ) in &system.calls
        {
            let Some(middle) = median(cpu_us) else {
                continue;
            };
            table += &row(&[
                system.name.clone(),
                name.clone(),
                spread(p50_ms, 3),
                spread(p99_ms, 2),
                spread(cpu_us, 0),
                floor.map_or_else(String::new, |floor| format!("{:.1}", middle / floor)),
            ]);
        }
    }
    table
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes of programs are far below 2^52"
)]
fn size(measured: &SideBySide) -> String {
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    header(&["program without symbols, MB", "zipped, MB"])
        + &row(&[
            megabytes(measured.sizes.stripped_bytes),
            megabytes(measured.sizes.zip_bytes),
        ])
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes of indexes are far below 2^52"
)]
fn grown(points: &[Point], what: &str) -> String {
    let mut columns = vec![what, "p50, ms", "p99, ms", "CPU, µs", "most memory, MiB"];
    let has_index = points.iter().any(|point| point.index_bytes.is_some());
    if has_index {
        columns.push("index, MB");
    }
    let mut table = header(&columns);
    for point in points {
        let mut cells = vec![
            format!("{}", point.x),
            spread(&point.call.p50_ms, 2),
            spread(&point.call.p99_ms, 2),
            spread(&point.call.cpu_us, 0),
            spread(&mebibytes(&point.peak_kib), 1),
        ];
        if has_index {
            let bytes = point.index_bytes.unwrap_or_default();
            cells.push(format!("{:.1}", bytes as f64 / 1e6));
        }
        table += &row(&cells);
    }
    table
}

fn load(measured: &Load) -> String {
    let mut table = header(&[
        "server and call",
        "connections",
        "calls a second",
        "p50, ms",
        "p95, ms",
        "p99, ms",
        "errors",
    ]);
    for (server, bench) in &measured.servers {
        for point in &bench.loads {
            table += &row(&[
                server.clone(),
                point.connections.to_string(),
                format!("{:.0}", point.calls_per_second),
                format!("{:.2}", point.p50_ms),
                format!("{:.2}", point.p95_ms),
                format!("{:.2}", point.p99_ms),
                point.errors.to_string(),
            ]);
        }
    }
    if let Some(soak) = &measured.soak
        && let (Some((_, first)), Some((_, last))) =
            (soak.resident_kib.first(), soak.resident_kib.last())
    {
        let errors: u64 = soak.load.loads.iter().map(|point| point.errors).sum();
        // Writing to a string cannot fail.
        let _ = write!(
            table,
            "\nUnder a steady load for {} minutes the process had {:.1} MiB at the beginning and {:.1} MiB at \
             the end; {errors} calls failed.\n",
            soak.minutes,
            first / 1024.0,
            last / 1024.0
        );
    }
    table
}
