//! What is kept of the terms that many passages have, so that their lists need not be read again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use tantivy::postings::TermInfo;
use tantivy::{DocId, Score, TantivyError};

use super::bm25::SearchedField;
use super::window::{GROUP, Group, rounded};

/// A list is kept from this length on. tantivy stores shorter ones in one piece.
const KEPT_LENGTH_MIN: u32 = 128;

/// A list is kept if one passage of so many is on it: going through all passages takes about as long as
/// reading a list of that length.
const KEPT_ONE_OF: u32 = 16;

/// Higher frequencies are looked up.
const FREQUENCY_MAX: u32 = 32;

/// The frequent terms of a field, kept when they are asked for the second time: the first search is not made
/// slower by it, and many words are asked for only once. When there is no room, the more frequent ones stay.
pub struct FrequentTerms {
    terms: RwLock<Terms>,
    passages: u32,
    /// How many terms are kept.
    limit: usize,
}

#[derive(Default)]
struct Terms {
    kept: HashMap<Box<str>, Arc<FrequentTerm>>,
    /// Those that were asked for. An index has few that are frequent enough.
    asked: HashSet<Box<str>>,
}

impl FrequentTerms {
    /// Those of a field of so many passages, which may take so many bytes. None is kept yet.
    pub fn new(passages: u32, limit_bytes: usize) -> Self {
        Self {
            terms: RwLock::default(),
            passages,
            limit: limit_bytes / (passages as usize).max(1),
        }
    }

    /// What is kept of a term.
    pub fn get(&self, text: &str) -> Option<Arc<FrequentTerm>> {
        let terms = self.terms.read().unwrap_or_else(PoisonError::into_inner);
        terms.kept.get(text).cloned()
    }

    /// Reads a term's list and keeps what it says, if it is frequent and was asked for before, and there is
    /// room or a rarer term that makes room. Otherwise remembers that it was asked for.
    ///
    /// # Errors
    /// When the files are damaged.
    pub fn keep(
        &self,
        text: &str,
        term: &TermInfo,
        field: &SearchedField,
    ) -> Result<Option<Arc<FrequentTerm>>, TantivyError> {
        let frequent = KEPT_LENGTH_MIN.max(self.passages / KEPT_ONE_OF);
        if term.doc_freq < frequent || self.limit == 0 {
            return Ok(None);
        }
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        if !terms.asked.contains(text) {
            terms.asked.insert(text.into());
            return Ok(None);
        }
        if !terms.make_room(self.limit, term.doc_freq) {
            return Ok(None);
        }
        // Read without the lock. Who reads the same at the same time replaces it by its like.
        drop(terms);
        let kept = Arc::new(FrequentTerm::read(term, field, self.passages)?);
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        if terms.make_room(self.limit, term.doc_freq) {
            terms.kept.insert(text.into(), Arc::clone(&kept));
        }
        Ok(Some(kept))
    }
}

impl Terms {
    /// Whether there is room for a term that so many passages have. The rarest of those that fewer have is
    /// forgotten for it, if no search is using it: its memory would not be free.
    fn make_room(&mut self, limit: usize, passages: u32) -> bool {
        if self.kept.len() < limit {
            return true;
        }
        let rarer = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.term.doc_freq < passages && Arc::strong_count(kept) == 1);
        let rarest = rarer.min_by_key(|(_, kept)| kept.term.doc_freq);
        let Some(rarest) = rarest.map(|(text, _)| text.clone()) else {
            return false;
        };
        self.kept.remove(&rarest);
        true
    }
}

/// A term, and which part of its weight it gives to each passage: in 255ths, 0 to those that do not have it.
pub struct FrequentTerm {
    term: TermInfo,
    shares: Box<[Group]>,
    /// The largest share of each group, in groups again.
    largest: Box<[Group]>,
}

impl FrequentTerm {
    fn read(term: &TermInfo, field: &SearchedField, passages: u32) -> Result<Self, TantivyError> {
        let lengths = field.lengths();
        let mut shares = vec![[0; GROUP]; (passages as usize).div_ceil(GROUP)];
        let of_passages = shares.as_flattened_mut();
        let mut blocks = field.blocks(term)?;
        while !blocks.docs().is_empty() {
            for (passage, frequency) in blocks.docs().iter().zip(blocks.freqs()) {
                of_passages[*passage as usize] = share(lengths.part(*passage, *frequency));
            }
            blocks.advance();
        }
        let mut largest = vec![[0; GROUP]; shares.len().div_ceil(GROUP)];
        for (largest, shares) in largest.as_flattened_mut().iter_mut().zip(&shares) {
            *largest = shares.iter().fold(0, |largest, share| largest.max(*share));
        }
        Ok(Self {
            term: term.clone(),
            shares: shares.into_boxed_slice(),
            largest: largest.into_boxed_slice(),
        })
    }

    /// Where its list is.
    pub const fn term(&self) -> &TermInfo {
        &self.term
    }

    /// The shares of the passages in groups, the last of which is filled up.
    pub const fn shares(&self) -> &[Group] {
        &self.shares
    }

    /// The largest shares of as many groups as one has passages.
    pub fn largest_shares(&self, group: usize) -> Option<&Group> {
        self.largest.get(group / GROUP)
    }

    /// How often a passage has the term, if its share tells.
    pub fn frequency(&self, field: &SearchedField, passage: DocId) -> Option<u32> {
        let found = self.shares.as_flattened()[passage as usize];
        if found == 0 {
            return Some(0);
        }
        let share = |frequency| share(field.lengths().part(passage, frequency));
        let frequency = (1..FREQUENCY_MAX).find(|frequency| share(*frequency) >= found)?;
        // The next one may have the same share.
        (share(frequency + 1) > found).then_some(frequency)
    }
}

/// How much more the share of one passage may be above its part than that of another.
pub const SHARE_TOLERANCE: Score = 2.0 / 255.0;

/// A part of 1 in 255ths. Up to one and a half is added to small ones, so that none becomes 0.
#[inline]
fn share(part: Score) -> u8 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 255")]
    let share = rounded(part * 254.0 + 1.0) as u8;
    share
}
