//! The passages that have a term, and what it adds to their scores: roughly to all, exactly to some.

use std::sync::Arc;

use tantivy::postings::BlockSegmentPostings;
use tantivy::{DocId, Score, TantivyError};

use super::bm25::SearchedField;
use super::frequent::{FrequentTerm, SHARE_TOLERANCE};
use super::window::{GROUP, RoughScores, WINDOW, rounded};

/// A frequent term with less units, a five hundredth of all, is not worth adding to rough scores.
const LIGHT: Score = 128.0;

/// The passages that have a term, in ascending order, from one of them on.
pub struct Postings<'a> {
    field: &'a SearchedField,
    weight: Score,
    list: List,
}

enum List {
    /// A list that is read as the search goes on.
    Read {
        blocks: Box<BlockSegmentPostings>,
        /// The first one in the block that was not read yet.
        at: usize,
        /// The list once more, to look up frequencies.
        again: Box<BlockSegmentPostings>,
    },
    /// A frequent term.
    Kept {
        term: Arc<FrequentTerm>,
        /// Its list, from when a frequency had to be looked up.
        blocks: Option<Box<BlockSegmentPostings>>,
    },
}

impl<'a> Postings<'a> {
    /// Those of a list.
    pub fn listed(field: &'a SearchedField, weight: Score, blocks: BlockSegmentPostings) -> Self {
        let list = List::Read {
            again: Box::new(blocks.clone()),
            blocks: Box::new(blocks),
            at: 0,
        };
        Self {
            field,
            weight,
            list,
        }
    }

    /// Those of a term that was kept.
    pub const fn kept(field: &'a SearchedField, weight: Score, term: Arc<FrequentTerm>) -> Self {
        let list = List::Kept { term, blocks: None };
        Self {
            field,
            weight,
            list,
        }
    }

    /// What the term gives at most.
    pub const fn weight(&self) -> Score {
        self.weight
    }

    /// How many units more the rough score may be above the exact one for one passage than for another.
    pub fn tolerance(&self, units_of_1: Score) -> Score {
        // The weight and what is added are whole units, and sums of floats are rounded.
        let rounding = 4.0;
        let units = self.weight * units_of_1;
        match &self.list {
            List::Read { .. } => rounding,
            List::Kept { .. } if units < LIGHT => rounding + units,
            List::Kept { .. } => rounding + units * SHARE_TOLERANCE,
        }
    }

    /// The first passage that was not read and may have the term, from `start` on.
    pub fn next(&self, start: DocId) -> Option<DocId> {
        match &self.list {
            List::Read { blocks, at, .. } => blocks.docs().get(*at).copied(),
            List::Kept { term, .. } => {
                (start as usize / GROUP < term.shares().len()).then_some(start)
            }
        }
    }

    /// The term and the units of its weight, if [`Postings::read`] does not add them.
    pub fn frequent(&self, units_of_1: Score) -> Option<(Arc<FrequentTerm>, u16)> {
        let units = self.weight * units_of_1;
        match &self.list {
            List::Kept { term, .. } if units >= LIGHT => Some((Arc::clone(term), rounded(units))),
            _ => None,
        }
    }

    /// Marks the passages of the window from `start` on that have the term. What it gives to them is added
    /// if it is not a frequent term.
    pub fn read(&mut self, rough: &mut RoughScores, units_of_1: Score, start: DocId) {
        match &mut self.list {
            List::Read { blocks, at, .. } => {
                // A window without a passage that is asked for is left out.
                if blocks.docs().get(*at).is_some_and(|next| *next < start) {
                    *at = blocks.seek(start);
                }
                let (lengths, units) = (self.field.lengths(), self.weight * units_of_1);
                let end = start.saturating_add(WINDOW);
                while let Some(last) = blocks.docs().last() {
                    let passages = blocks.docs().get(*at..).unwrap_or_default();
                    let frequencies = blocks.freqs().get(*at..).unwrap_or_default();
                    let inside = if *last < end {
                        passages.len()
                    } else {
                        passages.partition_point(|passage| *passage < end)
                    };
                    for (passage, frequency) in passages[..inside].iter().zip(frequencies) {
                        let place = (passage % WINDOW) as usize;
                        rough.add(place, rounded(lengths.part(*passage, *frequency) * units));
                    }
                    if inside < passages.len() {
                        *at += inside;
                        return;
                    }
                    blocks.advance();
                    *at = 0;
                }
            }
            List::Kept { term, .. } => {
                let shares = term.shares().get(start as usize / GROUP..);
                rough.find(shares.unwrap_or_default());
            }
        }
    }

    /// Adds what the term gives to the scores of some passages, by their `places` in the window from `start`
    /// on. They ascend, from window to window as well.
    ///
    /// # Errors
    /// When the files are damaged.
    pub fn add(
        &mut self,
        scores: &mut [Score],
        places: &[u16],
        start: DocId,
    ) -> Result<(), TantivyError> {
        for (sum, place) in scores.iter_mut().zip(places) {
            let passage = start + DocId::from(*place);
            let frequency = self.frequency(passage)?;
            if frequency > 0 {
                *sum += self.weight * self.field.lengths().part(passage, frequency);
            }
        }
        Ok(())
    }

    /// How often a passage has the term.
    fn frequency(&mut self, passage: DocId) -> Result<u32, TantivyError> {
        let list = match &mut self.list {
            List::Read { again, .. } => again,
            List::Kept { term, blocks } => match (term.frequency(self.field, passage), blocks) {
                (Some(frequency), _) => return Ok(frequency),
                (None, Some(list)) => list,
                (None, none) => none.insert(Box::new(self.field.blocks(term.term())?)),
            },
        };
        let at = list.seek(passage);
        let has_it = list.docs().get(at) == Some(&passage);
        Ok(if has_it { list.freq(at) } else { 0 })
    }
}
