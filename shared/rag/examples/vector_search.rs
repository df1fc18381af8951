//! Measures how long it takes to compare a query with every vector of an index.
//!
//! Usage: `cargo run --release -p raglan-rag --example vector_search -- ROWS DIMENSION`

#![expect(
    clippy::print_stdout,
    reason = "the numbers are what this program is for"
)]

use std::time::Instant;

use raglan_rag::embedded::vectors::{
    QUANTISATION, Row, TextKey, Vectors, VectorsManifest, VectorsWriter,
};

const QUERIES: usize = 200;

/// Numbers from -1 to 1 that look random (xorshift).
struct Numbers(u32);

impl Numbers {
    fn vector(&mut self, dimension: usize) -> Vec<f32> {
        (0..dimension).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        f32::from(self.0.to_le_bytes()[0]) / 127.5 - 1.0
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || -> Result<usize, Box<dyn std::error::Error>> {
        let text = arguments.next().ok_or("say ROWS and DIMENSION")?;
        Ok(text.parse()?)
    };
    let (rows, dimension) = (number()?, number()?);
    let folder = tempfile::tempdir()?;
    let mut numbers = Numbers(1);
    let mut writer = VectorsWriter::create(folder.path())?;
    for _ in 0..rows {
        let row = Row::of(&numbers.vector(dimension)).ok_or("a vector without a direction")?;
        writer.add(TextKey::of("numbers", ""), &row)?;
    }
    writer.finish()?;
    let manifest = VectorsManifest {
        model: "numbers".to_owned(),
        dimension,
        quantisation: QUANTISATION.to_owned(),
        scripts: Vec::new(),
    };
    let vectors = Vectors::open_folder(folder.path(), &manifest, rows)?;
    let mut times = Vec::new();
    for _ in 0..QUERIES {
        let query = numbers.vector(dimension);
        let started = Instant::now();
        let found = vectors.nearest(&query, 100, None);
        times.push(started.elapsed());
        assert_eq!(found.len(), rows.min(100));
    }
    times.sort();
    println!(
        "{rows} x {dimension}: p50 {:?}, p99 {:?}",
        times[QUERIES / 2],
        times[QUERIES * 99 / 100]
    );
    Ok(())
}
