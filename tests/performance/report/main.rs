//! Makes the tables and charts of `docs/performance.md` out of the figures beside it.
//!
//!     cargo run --bin performance-report
//!
//! The figures are `docs/performance/*.json`, as the scripts in `tests/performance` write them. A table
//! stands in the document between `<!-- table: NAME -->` and `<!-- end -->`, and is written anew; the
//! charts are SVG files beside the figures.

mod charts;
mod figures;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use self::figures::Figures;

fn main() -> anyhow::Result<()> {
    for (path, content) in made_from_figures()? {
        fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Every file that is made, with what belongs into it.
fn made_from_figures() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let folder = docs().join("performance");
    let figures = Figures::read(&folder)?;
    let document = docs().join("performance.md");
    let text = fs::read_to_string(&document).with_context(|| document.display().to_string())?;
    let mut made = vec![(document, with_tables(&text, &tables::all(&figures))?)];
    for (name, svg) in charts::all(&figures)? {
        made.push((folder.join(name).with_extension("svg"), svg));
    }
    Ok(made)
}

/// The document with these tables, by name.
fn with_tables(text: &str, tables: &[(&str, String)]) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    for (name, table) in tables {
        let (begin, end) = (format!("<!-- table: {name} -->\n"), "<!-- end -->");
        let missing = || format!("docs/performance.md has no place for the table {name}");
        let start = text.find(&begin).with_context(missing)? + begin.len();
        let length = text[start..].find(end).with_context(missing)?;
        text.replace_range(start..start + length, table);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_and_its_charts_are_made_from_the_figures() {
        for (path, content) in made_from_figures().unwrap() {
            let there = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                there == content,
                "{} is out of date: cargo run --bin performance-report",
                path.display()
            );
        }
    }

    #[test]
    fn a_table_replaces_the_one_before_and_nothing_else() {
        let text = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n";
        let made = with_tables(text, &[("x", "new\n".to_owned())]).unwrap();
        assert_eq!(made, "a\n<!-- table: x -->\nnew\n<!-- end -->\nb\n");
        assert!(with_tables(text, &[("y", String::new())]).is_err());
    }
}
