//! Turns `catalogue/*.toml` into tables that are part of the program: nothing is parsed when it starts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

const CATALOGUE: &str = "catalogue/zh.toml";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={CATALOGUE}");
    let sections: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&std::fs::read_to_string(CATALOGUE)?)?;
    let mut texts = BTreeMap::new();
    for (english, chinese) in sections.into_values().flatten() {
        if texts.contains_key(&english) {
            return Err(format!("{CATALOGUE} has this text twice: {english}").into());
        }
        texts.insert(english, chinese);
    }
    let mut table = String::from("pub(crate) static CHINESE: &[(&str, &str)] = &[\n");
    for (english, chinese) in &texts {
        writeln!(table, "    ({english:?}, {chinese:?}),")?;
    }
    table.push_str("];\n");
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("catalogue.rs"), table)?;
    Ok(())
}
