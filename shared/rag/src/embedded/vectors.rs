//! The passages' embeddings: one row of 8-bit numbers each, searched from the first to the last.
//!
//! ```text
//! vectors.int8   a row a passage, in the order of the index: its scale (f32, little endian), then one
//!                signed byte a dimension; number × scale is the component of a vector of length 1
//! vectors.keys   a row a passage: the first 16 bytes of the SHA-256 of the text that was embedded, so
//!                that the next build can take the row over
//! ```
//!
//! 100,000 rows of 384 dimensions are 38 MB and are read through in a few milliseconds
//! (`docs/embedded-index.md`), which is why there is no graph and no tree.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tantivy::directory::{Directory as _, OwnedBytes};

use super::read_only_directory::ReadOnlyDirectory;
use super::script::Script;

/// Name of the rows in a generation.
pub const ROWS: &str = "vectors.int8";
/// Name of the keys in a generation.
const KEYS: &str = "vectors.keys";
/// What [`VectorsManifest::quantisation`] says of rows as they are written here.
pub const QUANTISATION: &str = "int8";
/// The largest dimension that is taken; OpenAI's largest model has 3,072.
pub const DIMENSION_MAX: usize = 8192;

const SCALE_BYTES: usize = 4;
const KEY_BYTES: usize = 16;

/// What the manifest of an index says of its vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorsManifest {
    /// The model that they are from.
    pub model: String,
    /// Their length.
    pub dimension: usize,
    /// How they are stored.
    pub quantisation: String,
    /// The scripts that a good part of the passages is written in: who asks in another one is not
    /// helped by words.
    pub scripts: Vec<Script>,
}

/// Identifies the text that was embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextKey([u8; KEY_BYTES]);

impl TextKey {
    /// Of a text for this model.
    #[must_use]
    pub fn of(model: &str, text: &str) -> Self {
        let mut hasher = Sha256::new_with_prefix(model);
        hasher.update([0]);
        hasher.update(text);
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&hasher.finalize()[..KEY_BYTES]);
        Self(key)
    }
}

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(Vec<u8>);

impl Row {
    /// The direction of `vector`; its length is not kept. `None` for one without a direction: zeros, or
    /// something that is no number.
    #[must_use]
    pub fn of(vector: &[f32]) -> Option<Self> {
        let quantised = Quantised::of(vector)?;
        let mut bytes = Vec::with_capacity(SCALE_BYTES + vector.len());
        bytes.extend_from_slice(&quantised.scale.to_le_bytes());
        let numbers = quantised.numbers.iter();
        bytes.extend(numbers.map(|number| number.to_le_bytes()[0]));
        Some(Self(bytes))
    }

    /// Its number of dimensions.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.0.len() - SCALE_BYTES
    }
}

/// A vector of length 1 in numbers from -127 to 127.
struct Quantised {
    scale: f32,
    numbers: Vec<i16>,
}

impl Quantised {
    fn of(vector: &[f32]) -> Option<Self> {
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        let largest = vector.iter().fold(0_f32, |largest, x| largest.max(x.abs()));
        if !(length.is_finite() && largest.is_finite() && largest > f32::MIN_POSITIVE) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded, and not beyond 127 after the division"
        )]
        let number = |x: &f32| (x / largest * 127.0).round() as i16;
        Some(Self {
            scale: largest / length / 127.0,
            numbers: vector.iter().map(number).collect(),
        })
    }
}

/// Writes the vectors of a generation, passage after passage.
pub struct VectorsWriter {
    rows: BufWriter<File>,
    keys: BufWriter<File>,
    dimension: Option<usize>,
}

impl VectorsWriter {
    /// Starts in the folder of a generation.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn create(directory: &Path) -> io::Result<Self> {
        Ok(Self {
            rows: BufWriter::new(File::create_new(directory.join(ROWS))?),
            keys: BufWriter::new(File::create_new(directory.join(KEYS))?),
            dimension: None,
        })
    }

    /// Writes the next passage's row.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when it has another dimension than those before; any other when
    /// it cannot be written.
    pub fn add(&mut self, key: TextKey, row: &Row) -> io::Result<()> {
        let dimension = *self.dimension.get_or_insert(row.dimension());
        if row.dimension() != dimension {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a vector has {} dimensions, others have {dimension}",
                    row.dimension()
                ),
            ));
        }
        self.rows.write_all(&row.0)?;
        self.keys.write_all(&key.0)
    }

    /// Makes the files last through a power cut. Returns the dimension; `None` without any row.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(self) -> io::Result<Option<usize>> {
        for file in [self.rows, self.keys] {
            file.into_inner()?.sync_all()?;
        }
        Ok(self.dimension)
    }
}

/// The rows of an open generation.
pub struct Vectors {
    bytes: OwnedBytes,
    row_bytes: usize,
}

/// The vectors are not those of this index.
#[derive(Debug, thiserror::Error)]
pub enum VectorsError {
    /// Stored in a way that this version does not read.
    #[error("its vectors are stored as {0:?}, this version of raglan reads {QUANTISATION:?}")]
    Quantisation(String),
    /// Not one row a passage.
    #[error("its vectors are damaged")]
    Damaged,
    /// They cannot be read.
    #[error("its vectors cannot be read: {0}")]
    Unreadable(String),
}

impl Vectors {
    /// Maps the rows of a generation with so many passages.
    ///
    /// # Errors
    /// [`VectorsError`]
    pub(super) fn open(
        directory: &ReadOnlyDirectory,
        manifest: &VectorsManifest,
        passages: usize,
    ) -> Result<Self, VectorsError> {
        if manifest.quantisation != QUANTISATION {
            return Err(VectorsError::Quantisation(manifest.quantisation.clone()));
        }
        let file = directory.open_read(Path::new(ROWS));
        let bytes = file
            .map_err(|error| VectorsError::Unreadable(error.to_string()))?
            .read_bytes()
            .map_err(|error| VectorsError::Unreadable(error.to_string()))?;
        let row_bytes = SCALE_BYTES + manifest.dimension;
        let is_whole = (1..=DIMENSION_MAX).contains(&manifest.dimension)
            && passages.checked_mul(row_bytes) == Some(bytes.len());
        if !is_whole {
            return Err(VectorsError::Damaged);
        }
        Ok(Self { bytes, row_bytes })
    }

    /// Maps the rows in a folder.
    ///
    /// # Errors
    /// [`VectorsError`]
    pub fn open_folder(
        directory: &Path,
        manifest: &VectorsManifest,
        passages: usize,
    ) -> Result<Self, VectorsError> {
        let directory = ReadOnlyDirectory::open(directory)
            .map_err(|error| VectorsError::Unreadable(error.to_string()))?;
        Self::open(&directory, manifest, passages)
    }

    /// The `count` rows that are nearest to `vector`, nearest first, with the cosine of the angle
    /// between them; of the rows `among`, in ascending order, or of all. Equal ones are ordered by row.
    /// None when the vector has no direction or another dimension.
    #[must_use]
    pub fn nearest(&self, vector: &[f32], count: usize, among: Option<&[u32]>) -> Vec<(f32, u32)> {
        let Some(query) = Quantised::of(vector) else {
            return Vec::new();
        };
        if SCALE_BYTES + query.numbers.len() != self.row_bytes {
            return Vec::new();
        }
        let rows = self.bytes.chunks_exact(self.row_bytes);
        let mut scored: Vec<(f32, u32)> = match among {
            None => (0..)
                .zip(rows)
                .map(|(at, row)| (query.cosine(row), at))
                .collect(),
            Some(among) => {
                let found = among.iter().filter_map(|at| {
                    let begin = usize::try_from(*at).ok()?.checked_mul(self.row_bytes)?;
                    let row = self.bytes.get(begin..begin + self.row_bytes)?;
                    Some((query.cosine(row), *at))
                });
                found.collect()
            }
        };
        let best_first = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if count < scored.len() {
            scored.select_nth_unstable_by(count, best_first);
            scored.truncate(count);
        }
        scored.sort_unstable_by(best_first);
        scored
    }
}

impl Quantised {
    fn cosine(&self, row: &[u8]) -> f32 {
        let (scale, numbers) = row.split_at(SCALE_BYTES);
        let scale = f32::from_le_bytes(scale.try_into().unwrap_or_default());
        #[expect(
            clippy::cast_precision_loss,
            reason = "the numbers were rounded to 8 bits before"
        )]
        let dot = dot(&self.numbers, numbers) as f32;
        dot * scale * self.scale
    }
}

/// The sum of products. Whole numbers may be added in any order, so the compiler makes SIMD
/// instructions of this; 8,192 products of 127 × 127 stay within 32 bits.
fn dot(query: &[i16], row: &[u8]) -> i32 {
    let products = query
        .iter()
        .zip(row)
        .map(|(a, b)| i32::from(*a) * i32::from(i16::from(b.cast_signed())));
    products.sum()
}

/// The rows of the index that answers now, by the texts that they are of.
#[derive(Default)]
pub struct KnownRows(HashMap<TextKey, Row>);

impl KnownRows {
    /// Reads the rows of the generation in `directory` that are of this model; none when it has none,
    /// or when they cannot be read.
    #[must_use]
    pub fn open(directory: &Path, manifest: Option<&VectorsManifest>, model: &str) -> Self {
        let Some(manifest) = manifest else {
            return Self::default();
        };
        if manifest.model != model || manifest.quantisation != QUANTISATION {
            return Self::default();
        }
        let rows = std::fs::read(directory.join(ROWS)).unwrap_or_default();
        let keys = std::fs::read(directory.join(KEYS)).unwrap_or_default();
        let rows = rows.chunks_exact(SCALE_BYTES + manifest.dimension);
        let keys = keys.chunks_exact(KEY_BYTES);
        if rows.len() != keys.len() {
            return Self::default();
        }
        let pairs = keys.zip(rows).filter_map(|(key, row)| {
            let key = TextKey(key.try_into().ok()?);
            Some((key, Row(row.to_vec())))
        });
        Self(pairs.collect())
    }

    /// The row of a text.
    #[must_use]
    pub fn get(&self, key: TextKey) -> Option<&Row> {
        self.0.get(&key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vectors(rows: &[Vec<f32>]) -> Vectors {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = VectorsWriter::create(folder.path()).unwrap();
        for row in rows {
            let row = Row::of(row).unwrap();
            writer.add(TextKey::of("model", "text"), &row).unwrap();
        }
        let dimension = writer.finish().unwrap().unwrap();
        Vectors::open_folder(folder.path(), &manifest(dimension), rows.len()).unwrap()
    }

    fn manifest(dimension: usize) -> VectorsManifest {
        VectorsManifest {
            model: "model".to_owned(),
            dimension,
            quantisation: QUANTISATION.to_owned(),
            scripts: Vec::new(),
        }
    }

    fn exact_cosine(a: &[f32], b: &[f32]) -> f32 {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    }

    #[test]
    fn the_nearest_come_first_and_only_from_those_that_are_allowed() {
        let vectors = vectors(&[
            vec![1.0, 0.0],
            vec![0.0, 2.0],
            vec![3.0, 3.0],
            vec![-1.0, 0.0],
            vec![10.0, 0.0],
        ]);
        let order = |among| {
            let found = vectors.nearest(&[1.0, 0.1], 3, among);
            found.into_iter().map(|(_, row)| row).collect::<Vec<_>>()
        };
        assert_eq!(
            order(None),
            [0, 4, 2],
            "length is nothing, equal ones by row"
        );
        assert_eq!(order(Some(&[1, 2, 3])), [2, 1, 3]);
        assert_eq!(order(Some(&[])), [0; 0]);
        assert!(vectors.nearest(&[1.0, 0.0, 0.0], 3, None).is_empty());
        assert!(vectors.nearest(&[0.0, 0.0], 3, None).is_empty());
    }

    #[test]
    fn what_has_no_direction_is_no_row_and_dimensions_do_not_mix() {
        assert_eq!(Row::of(&[0.0, 0.0]), None);
        assert_eq!(Row::of(&[f32::NAN, 1.0]), None);
        assert_eq!(Row::of(&[f32::INFINITY, 1.0]), None);
        let folder = tempfile::tempdir().unwrap();
        let mut writer = VectorsWriter::create(folder.path()).unwrap();
        let key = TextKey::of("model", "text");
        writer.add(key, &Row::of(&[1.0, 2.0]).unwrap()).unwrap();
        assert!(writer.add(key, &Row::of(&[1.0]).unwrap()).is_err());
    }

    #[test]
    fn rows_are_taken_over_by_text_and_model() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = VectorsWriter::create(folder.path()).unwrap();
        let row = Row::of(&[1.0, 2.0]).unwrap();
        writer.add(TextKey::of("m", "a"), &row).unwrap();
        writer.finish().unwrap();
        let of_model = VectorsManifest {
            model: "m".to_owned(),
            ..manifest(2)
        };
        let known = KnownRows::open(folder.path(), Some(&of_model), "m");
        assert_eq!(known.get(TextKey::of("m", "a")), Some(&row));
        assert_eq!(known.get(TextKey::of("m", "b")), None);
        let other = KnownRows::open(folder.path(), Some(&of_model), "n");
        assert_eq!(other.get(TextKey::of("m", "a")), None);
    }

    proptest! {
        #[test]
        fn eight_bits_keep_the_angle(
            pair in (2_usize..96).prop_flat_map(|n| (
                proptest::collection::vec(-1_f32..1.0, n),
                proptest::collection::vec(-1_f32..1.0, n),
            )),
        ) {
            let (a, b) = pair;
            prop_assume!(Row::of(&a).is_some() && Row::of(&b).is_some());
            let found = vectors(std::slice::from_ref(&b)).nearest(&a, 1, None);
            let error = (found[0].0 - exact_cosine(&a, &b)).abs();
            prop_assert!(error < 0.03, "{error}");
        }
    }
}
