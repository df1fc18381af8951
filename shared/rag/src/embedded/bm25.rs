//! The ranking by words: BM25 as tantivy defines it, counted list by list.
//!
//! tantivy goes through the passages and asks the list of every term whether it has the passage. A question
//! has a dozen terms, most passages hold one of them, and how many do is part of the result, so that none
//! can be skipped. Here each list is read on its own, block after block, and adds to the scores of a
//! window of passages. The scores are the same to the last bit, because the sums are made in the same order; a property
//! test compares them.

use std::sync::Arc;

use tantivy::directory::OwnedBytes;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::{InvertedIndexReader, SegmentReader};
use tantivy::postings::BlockSegmentPostings;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, Score, TantivyError};

/// How soon more occurrences of a term stop to count.
const K1: Score = 1.2;
/// How much the length of a text counts.
const B: Score = 0.75;

/// Passages whose scores are added up together: few enough for the processor's nearest cache.
const WINDOW: DocId = 2048;

/// The scores of a window.
type Scores = [Score; WINDOW as usize];

/// Scores that are compared at a time with the least that is among the best.
const COMPARED: usize = 32;

/// A field that is searched, and what is the same for all of its terms.
pub struct SearchedField {
    terms: Arc<InvertedIndexReader>,
    /// The lengths of the texts as tantivy keeps them, a byte for each passage.
    lengths: OwnedBytes,
    /// What is added to a term's frequency below the fraction, by the length of the text.
    dampers: [Score; 256],
    passages: DocId,
}

impl SearchedField {
    /// The field in the index's only segment.
    ///
    /// # Errors
    /// When the files are damaged.
    pub fn open(segment: &SegmentReader, field: Field) -> Result<Self, TantivyError> {
        let terms = segment.inverted_index(field)?;
        let passages = segment.max_doc();
        #[expect(
            clippy::cast_precision_loss,
            reason = "what tantivy does, and the ranking needs no more"
        )]
        let average = terms.total_num_tokens() as Score / passages as Score;
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
            passages,
        })
    }

    /// The passages that have a term, with `boost` as its weight among other terms; `None` when no passage
    /// has it.
    ///
    /// # Errors
    /// When the files are damaged.
    pub fn postings(&self, term: &str, boost: Score) -> Result<Option<Postings<'_>>, TantivyError> {
        let Some(found) = self.terms.terms().get(term)? else {
            return Ok(None);
        };
        let option = IndexRecordOption::WithFreqs;
        let blocks = self
            .terms
            .read_block_postings_from_terminfo(&found, option)?;
        let without = self.passages.saturating_sub(found.doc_freq);
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        let (with, without) = (found.doc_freq as Score, without as Score);
        let rarity = (1.0 + (without + 0.5) / (with + 0.5)).ln();
        Ok(Some(Postings {
            field: self,
            blocks,
            at: 0,
            weight: rarity * (1.0 + K1) * boost,
        }))
    }
}

/// The passages that have a term, in ascending order, from one of them on.
pub struct Postings<'a> {
    field: &'a SearchedField,
    blocks: BlockSegmentPostings,
    /// The first one in the block that was not read yet.
    at: usize,
    weight: Score,
}

impl Postings<'_> {
    fn next(&self) -> Option<DocId> {
        self.blocks.docs().get(self.at).copied()
    }

    /// Adds what the term gives to the passages of the window from `start` on.
    fn add_to(&mut self, scores: &mut Scores, start: DocId) {
        let (lengths, dampers) = (self.field.lengths.as_slice(), &self.field.dampers);
        let end = start.saturating_add(WINDOW);
        loop {
            let passages = self.blocks.docs().get(self.at..).unwrap_or_default();
            let frequencies = self.blocks.freqs().get(self.at..).unwrap_or_default();
            let inside = match passages.last() {
                None => return,
                Some(last) if *last < end => passages.len(),
                Some(_) => passages.partition_point(|passage| *passage < end),
            };
            for (passage, frequency) in passages[..inside].iter().zip(frequencies) {
                #[expect(clippy::cast_precision_loss, reason = "as above")]
                let frequency = *frequency as Score;
                let damper = dampers[usize::from(lengths[*passage as usize])];
                scores[(passage % WINDOW) as usize] +=
                    self.weight * (frequency / (frequency + damper));
            }
            if inside < passages.len() {
                self.at += inside;
                return;
            }
            self.blocks.advance();
            self.at = 0;
        }
    }
}

/// The best `count` of the passages that have a term of `required`, best first, equal ones by their place
/// in the index; and how many passages have one. Terms of `optional` add to the scores. `among`, in
/// ascending order, are the passages that are looked at, if not all.
pub fn rank(
    mut required: Vec<Postings<'_>>,
    mut optional: Vec<Postings<'_>>,
    among: Option<&[DocId]>,
    count: usize,
) -> (Vec<(Score, DocId)>, u64) {
    let mut best = Best {
        passages: Vec::with_capacity(count + 1),
        count,
    };
    let mut matched = 0;
    let (mut sums, mut extras): (Scores, Scores) = ([0.0; _], [0.0; _]);
    let mut among = among;
    let mut after = 0;
    while let Some(next) = required.iter().filter_map(Postings::next).min() {
        // Damaged lists may lead back; windows never do.
        let start = (next - next % WINDOW).max(after);
        let Some(end) = start.checked_add(WINDOW) else {
            break;
        };
        after = end;
        sums.fill(0.0);
        for postings in &mut required {
            postings.add_to(&mut sums, start);
        }
        if let Some(rows) = &mut among {
            let rest = &rows[rows.partition_point(|row| *row < start)..];
            let (inside, rest) = rest.split_at(rest.partition_point(|row| *row < end));
            *rows = rest;
            let mut kept = inside.iter().map(|row| row - start).peekable();
            for (place, score) in (0..).zip(&mut sums) {
                if kept.next_if_eq(&place).is_none() {
                    *score = 0.0;
                }
            }
        }
        // What a term adds is more than 0.
        matched += sums.iter().filter(|score| **score > 0.0).count() as u64;
        if !optional.is_empty() {
            extras.fill(0.0);
            for postings in &mut optional {
                postings.add_to(&mut extras, start);
            }
            for (sum, extra) in sums.iter_mut().zip(&extras) {
                *sum = if *sum > 0.0 { *sum + extra } else { 0.0 };
            }
        }
        best.take(&sums, start);
    }
    (best.passages, matched)
}

/// The best passages so far, best first.
struct Best {
    passages: Vec<(Score, DocId)>,
    count: usize,
}

impl Best {
    /// What a passage has to score more than.
    fn least(&self) -> Score {
        match self.passages.last() {
            Some((score, _)) if self.passages.len() >= self.count => *score,
            _ => 0.0,
        }
    }

    fn take(&mut self, scores: &Scores, start: DocId) {
        let firsts = (start..).step_by(COMPARED);
        for (compared, first) in scores.chunks_exact(COMPARED).zip(firsts) {
            let least = self.least();
            if compared.iter().filter(|score| **score > least).count() > 0 {
                for (passage, score) in (first..).zip(compared) {
                    self.offer(*score, passage);
                }
            }
        }
    }

    fn offer(&mut self, score: Score, passage: DocId) {
        if score > self.least() {
            // Behind equal ones, which come before it in the index.
            let place = self
                .passages
                .partition_point(|(better, _)| *better >= score);
            self.passages.insert(place, (score, passage));
            self.passages.truncate(self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tantivy::collector::{Count, TopDocs};
    use tantivy::query::{BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, TermQuery};
    use tantivy::{Index, Searcher, TantivyDocument, Term};

    use super::*;
    use crate::embedded::schema::IndexSchema;

    /// Words by how often they are in a text: the first ones in most, the last ones in few.
    const WORDS: [&str; 12] = [
        "the", "of", "key", "leave", "days", "refund", "index", "audit", "lake", "报", "销", "报销",
    ];

    fn searcher(schema: &IndexSchema, texts: &[(String, String)]) -> Searcher {
        let mut index = Index::builder()
            .schema(schema.schema.clone())
            .tokenizers(IndexSchema::tokenizers())
            .single_segment_index_writer(tantivy::directory::RamDirectory::create(), 15_000_000)
            .unwrap();
        for (title, content) in texts {
            let mut document = TantivyDocument::new();
            document.add_text(schema.title, title);
            document.add_text(schema.content, content);
            index.add_document(document).unwrap();
        }
        let index = index.finalize().unwrap();
        index.reader().unwrap().searcher()
    }

    /// A field, a word and its boost.
    type Asked = (Field, &'static str, Score);

    fn by_tantivy(
        searcher: &Searcher,
        required: &[Asked],
        optional: &[Asked],
        among: Option<&Asked>,
        count: usize,
    ) -> (Vec<(Score, DocId)>, u64) {
        let term = |(field, word, boost): &Asked| -> Box<dyn Query> {
            let term = Term::from_field_text(*field, word);
            let term = TermQuery::new(term, IndexRecordOption::WithFreqs);
            Box::new(BoostQuery::new(Box::new(term), *boost))
        };
        let any = BooleanQuery::union(required.iter().map(term).collect());
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = vec![(Occur::Must, Box::new(any))];
        clauses.extend(optional.iter().map(|asked| (Occur::Should, term(asked))));
        clauses.extend(among.map(|asked| {
            let filter: Box<dyn Query> = Box::new(ConstScoreQuery::new(term(asked), 0.0));
            (Occur::Must, filter)
        }));
        let best = TopDocs::with_limit(count).order_by_score();
        let (hits, matched) = searcher
            .search(&BooleanQuery::new(clauses), &(best, Count))
            .unwrap();
        let hits = hits.into_iter().map(|(score, at)| (score, at.doc_id));
        (hits.collect(), matched as u64)
    }

    fn postings<'a>(fields: &'a [(SearchedField, &str, Score)]) -> Vec<Postings<'a>> {
        let lists = fields
            .iter()
            .filter_map(|(field, word, boost)| field.postings(word, *boost).unwrap());
        lists.collect()
    }

    fn by_lists(
        searcher: &Searcher,
        required: &[Asked],
        optional: &[Asked],
        among: Option<&Asked>,
        count: usize,
    ) -> (Vec<(Score, DocId)>, u64) {
        let [segment] = searcher.segment_readers() else {
            panic!("there is one segment")
        };
        let open = |asked: &[Asked]| -> Vec<(SearchedField, &'static str, Score)> {
            let fields = asked.iter().map(|(field, word, boost)| {
                (SearchedField::open(segment, *field).unwrap(), *word, *boost)
            });
            fields.collect()
        };
        let among = among.map(|(field, word, _)| {
            let field = SearchedField::open(segment, *field).unwrap();
            let mut rows = Vec::new();
            if let Some(mut list) = field.postings(word, 1.0).unwrap() {
                while !list.blocks.docs().is_empty() {
                    rows.extend_from_slice(list.blocks.docs());
                    list.blocks.advance();
                }
            }
            rows
        });
        let (required, optional) = (open(required), open(optional));
        rank(
            postings(&required),
            postings(&optional),
            among.as_deref(),
            count,
        )
    }

    /// A text for each seed: word `n` of the list is in one of `n + 1` places.
    fn text(seed: u64) -> String {
        let mut state = seed | 1;
        let mut words = Vec::new();
        for _ in 0..seed % 23 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (a, b) = ((state >> 33) % 12, (state >> 45) % 12);
            words.push(WORDS[usize::try_from(a.min(b)).unwrap()]);
        }
        words.join(" ")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn lists_give_the_ranking_of_tantivy_to_the_bit(
            texts in 1_u64..5000,
            seed in any::<u32>(),
            required in prop::collection::vec((0..2_usize, 0..12_usize, 0..3_usize), 1..12),
            optional in prop::collection::vec((0..2_usize, 0..12_usize, 0..3_usize), 0..4),
            filter in prop::option::of(0..12_usize),
            count in prop::sample::select(vec![1_usize, 3, 50, 200]),
        ) {
            let schema = IndexSchema::new();
            let texts: Vec<_> = (0..texts)
                .map(|n| (text(n.wrapping_mul(31) ^ u64::from(seed)), text(n ^ u64::from(seed) << 7)))
                .collect();
            let searcher = searcher(&schema, &texts);
            let asked = |chosen: Vec<(usize, usize, usize)>| -> Vec<Asked> {
                let fields = [schema.title, schema.content];
                let boosts = [1.0, 1.5, 0.25];
                chosen.into_iter().map(|(f, w, b)| (fields[f], WORDS[w], boosts[b])).collect()
            };
            let (required, optional) = (asked(required), asked(optional));
            let filter = filter.map(|word| (schema.content, WORDS[word], 1.0));
            let expected = by_tantivy(&searcher, &required, &optional, filter.as_ref(), count);
            let found = by_lists(&searcher, &required, &optional, filter.as_ref(), count);
            prop_assert_eq!(found.1, expected.1);
            let bits = |hits: &[(Score, DocId)]| -> Vec<(u32, DocId)> {
                hits.iter().map(|(score, at)| (score.to_bits(), *at)).collect()
            };
            prop_assert_eq!(bits(&found.0), bits(&expected.0));
        }
    }
}
