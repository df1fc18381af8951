//! BM25 as tantivy defines it: what a term gives to a passage's score, in one of the fields.

use std::sync::Arc;

use tantivy::directory::OwnedBytes;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::{InvertedIndexReader, SegmentReader};
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, Score, TantivyError};

use super::frequent::FrequentTerms;
use super::postings::Postings;

/// How soon more occurrences of a term stop to count.
const K1: Score = 1.2;
/// How much the length of a text counts.
const B: Score = 0.75;

/// A field that is searched, and what is the same for all of its terms.
pub struct SearchedField {
    terms: Arc<InvertedIndexReader>,
    /// The lengths of the texts as tantivy keeps them, a byte for each passage.
    lengths: OwnedBytes,
    /// What is added to a term's frequency below the fraction, by the length of the text.
    dampers: [Score; 256],
    passages: u32,
    frequent: FrequentTerms,
}

impl SearchedField {
    /// The field in the index's only segment, which keeps at most `kept_bytes` of its frequent terms.
    ///
    /// # Errors
    /// When the files are damaged.
    pub fn open(
        segment: &SegmentReader,
        field: Field,
        kept_bytes: usize,
    ) -> Result<Self, TantivyError> {
        let terms = segment.inverted_index(field)?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "what tantivy does, and the ranking needs no more"
        )]
        let average = terms.total_num_tokens() as Score / segment.max_doc() as Score;
        let mut dampers = [0.0; 256];
        for (damper, id) in dampers.iter_mut().zip(0..=u8::MAX) {
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            let length = FieldNormReader::id_to_fieldnorm(id) as Score;
            *damper = K1 * (1.0 - B + B * length / average);
        }
        // The bytes themselves: asking tantivy's reader for one takes as long as all else that is done
        // with a match.
        let lengths = segment.fieldnorms_readers().get_inner_file();
        let lengths = lengths
            .open_read(field)
            .ok_or_else(|| TantivyError::SchemaError("a field without lengths".to_owned()))?;
        Ok(Self {
            terms,
            lengths: lengths.read_bytes()?,
            dampers,
            passages: segment.max_doc(),
            frequent: FrequentTerms::new(segment.max_doc(), kept_bytes),
        })
    }

    /// The passages that have a term, with `boost` as its weight among other terms; `None` when no passage
    /// has it.
    ///
    /// # Errors
    /// When the files are damaged.
    pub fn postings(&self, term: &str, boost: Score) -> Result<Option<Postings<'_>>, TantivyError> {
        if let Some(kept) = self.frequent.get(term) {
            let weight = self.weight(kept.term(), boost);
            return Ok(Some(Postings::kept(self, weight, kept)));
        }
        let Some(found) = self.terms.terms().get(term)? else {
            return Ok(None);
        };
        let weight = self.weight(&found, boost);
        if let Some(kept) = self.frequent.keep(term, &found, self)? {
            return Ok(Some(Postings::kept(self, weight, kept)));
        }
        Ok(Some(Postings::listed(self, weight, self.blocks(&found)?)))
    }

    /// What a term gives at most.
    fn weight(&self, term: &TermInfo, boost: Score) -> Score {
        let without = self.passages.saturating_sub(term.doc_freq);
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        let (with, without) = (term.doc_freq as Score, without as Score);
        let rarity = (1.0 + (without + 0.5) / (with + 0.5)).ln();
        rarity * (1.0 + K1) * boost
    }

    /// A term's list as the index has it.
    ///
    /// # Errors
    /// When the files are damaged.
    pub fn blocks(&self, term: &TermInfo) -> Result<BlockSegmentPostings, TantivyError> {
        let option = IndexRecordOption::WithFreqs;
        let blocks = self.terms.read_block_postings_from_terminfo(term, option);
        blocks.map_err(TantivyError::from)
    }

    /// The lengths of the texts.
    pub fn lengths(&self) -> Lengths<'_> {
        Lengths {
            of_passages: self.lengths.as_slice(),
            dampers: &self.dampers,
        }
    }
}

/// The lengths of a field's texts.
#[derive(Clone, Copy)]
pub struct Lengths<'a> {
    of_passages: &'a [u8],
    dampers: &'a [Score; 256],
}

impl Lengths<'_> {
    /// Which part of its weight a term gives to a passage that has it so often: above 0, below 1.
    #[inline]
    pub fn part(self, passage: DocId, frequency: u32) -> Score {
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        let frequency = frequency as Score;
        let damper = self.dampers[usize::from(self.of_passages[passage as usize])];
        frequency / (frequency + damper)
    }
}
