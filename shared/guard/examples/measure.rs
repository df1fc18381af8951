//! Measures the guard on a file of labelled texts and, on request, records the figures.
//!
//! `cargo run --release -p raglan-guard --example measure -- [FILE] [--misses] [--write DOCUMENT --date YYYY-MM-DD]`
//!
//! The file has one JSON object a line with `label` (`attack` or `benign`), `family`, `source` and
//! `text`; without an argument it is taken from the variable `RAGLAN_GUARD_DATA`. `--write` replaces
//! the part of the document between the markers `<!-- figures -->` and `<!-- /figures -->`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use raglan_guard::{Guard, Severity};

#[path = "measure/transforms.rs"]
mod transforms;

use transforms::TRANSFORMS;

const FIGURES_START: &str = "<!-- figures -->";
const FIGURES_END: &str = "<!-- /figures -->";

/// One text of the file.
struct Sample {
    is_attack: bool,
    family: String,
    text: String,
}

/// Counts of one family.
#[derive(Default)]
struct Family {
    texts: u32,
    found: u32,
    high: u32,
}

struct Arguments {
    data: Option<String>,
    document: Option<String>,
    date: Option<String>,
    shows_misses: bool,
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = arguments()?;
    let Some(path) = arguments
        .data
        .or_else(|| std::env::var("RAGLAN_GUARD_DATA").ok())
    else {
        println!(
            "skipped: no file of texts given, neither as an argument nor in RAGLAN_GUARD_DATA"
        );
        return Ok(ExitCode::SUCCESS);
    };
    let samples = samples(&std::fs::read_to_string(&path)?)?;
    let figures = figures(&samples, arguments.date.as_deref())?;
    println!("{figures}");
    if arguments.shows_misses {
        println!("{}", wrong_verdicts(&samples));
    }
    if let Some(document) = arguments.document {
        let text = std::fs::read_to_string(&document)?;
        let (before, rest) = text
            .split_once(FIGURES_START)
            .ok_or("the document has no figures")?;
        let (_, after) = rest
            .split_once(FIGURES_END)
            .ok_or("the document's figures have no end")?;
        std::fs::write(
            &document,
            format!("{before}{FIGURES_START}\n{figures}{FIGURES_END}{after}"),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments {
        data: None,
        document: None,
        date: None,
        shows_misses: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--write" => arguments.document = Some(given.next().ok_or("--write needs a document")?),
            "--date" => arguments.date = Some(given.next().ok_or("--date needs a date")?),
            "--misses" => arguments.shows_misses = true,
            _ => arguments.data = Some(argument),
        }
    }
    if arguments.document.is_some() && arguments.date.is_none() {
        return Err("--write needs --date".into());
    }
    Ok(arguments)
}

fn samples(lines: &str) -> Result<Vec<Sample>, Box<dyn Error>> {
    lines
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line)?;
            let field = |name: &str| {
                value
                    .get(name)
                    .and_then(|v| v.as_str())
                    .ok_or_else(|| format!("a line without {name}"))
            };
            Ok(Sample {
                is_attack: field("label")? == "attack",
                family: field("family")?.to_owned(),
                text: field("text")?.to_owned(),
            })
        })
        .collect()
}

/// The tables, as Markdown.
fn figures(samples: &[Sample], date: Option<&str>) -> Result<String, std::fmt::Error> {
    let guard = Guard::default();
    let mut families: BTreeMap<(bool, &str), Family> = BTreeMap::new();
    for sample in samples {
        let severity = guard.sanitize(&sample.text).severity();
        let family = families
            .entry((sample.is_attack, &sample.family))
            .or_default();
        family.texts += 1;
        family.found += u32::from(severity.is_some());
        family.high += u32::from(severity == Some(Severity::High));
    }
    let mut out = String::new();
    if let Some(date) = date {
        writeln!(out, "Measured on {date}.\n")?;
    }
    for (is_attack, title) in [(true, "Attacks found"), (false, "Harmless texts marked")] {
        writeln!(out, "### {title}\n")?;
        writeln!(
            out,
            "| family | texts | at severity high | at any severity |\n|---|---:|---:|---:|"
        )?;
        for ((_, name), family) in families
            .iter()
            .filter(|((attack, _), _)| *attack == is_attack)
        {
            writeln!(
                out,
                "| {name} | {} | {} ({}) | {} ({}) |",
                family.texts,
                family.high,
                percent(family.high, family.texts),
                family.found,
                percent(family.found, family.texts)
            )?;
        }
        writeln!(out)?;
    }
    writeln!(out, "### Disguises of what is found in clear text\n")?;
    writeln!(
        out,
        "| disguise | texts | at severity high | at any severity |\n|---|---:|---:|---:|"
    )?;
    let clear: Vec<&str> = samples
        .iter()
        .filter(|s| s.is_attack && guard.sanitize(&s.text).severity() == Some(Severity::High))
        .map(|s| s.text.as_str())
        .collect();
    for (name, transform) in TRANSFORMS {
        let mut family = Family::default();
        for text in &clear {
            let severity = guard.sanitize(&transform(text)).severity();
            family.texts += 1;
            family.found += u32::from(severity.is_some());
            family.high += u32::from(severity == Some(Severity::High));
        }
        writeln!(
            out,
            "| {name} | {} | {} ({}) | {} ({}) |",
            family.texts,
            family.high,
            percent(family.high, family.texts),
            family.found,
            percent(family.found, family.texts)
        )?;
    }
    writeln!(out)?;
    Ok(out)
}

fn percent(part: u32, whole: u32) -> String {
    format!("{:.1} %", 100.0 * f64::from(part) / f64::from(whole.max(1)))
}

/// Attacks that were not found and harmless texts that were, at severity high.
fn wrong_verdicts(samples: &[Sample]) -> String {
    let guard = Guard::default();
    let mut out = String::new();
    for sample in samples {
        let guarded = guard.sanitize(&sample.text);
        if (guarded.severity() == Some(Severity::High)) == sample.is_attack {
            continue;
        }
        let found: Vec<String> = guarded
            .findings
            .iter()
            .map(|finding| format!("{}: {} {}", finding.rule, finding.detail, finding.matched))
            .collect();
        let beginning: String = sample.text.chars().take(160).collect();
        let _ = writeln!(out, "{}\t{beginning:?}\t{found:?}", sample.family);
    }
    for sample in samples.iter().filter(|sample| sample.is_attack) {
        if guard.sanitize(&sample.text).severity() != Some(Severity::High) {
            continue;
        }
        for (name, transform) in TRANSFORMS {
            let disguised = transform(&sample.text);
            if guard.sanitize(&disguised).severity() != Some(Severity::High) {
                let beginning: String = disguised.chars().take(160).collect();
                let _ = writeln!(out, "{} as {name}\t{beginning:?}", sample.family);
            }
        }
    }
    out
}
