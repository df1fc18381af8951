use std::thread;

use proptest::prelude::*;
use tantivy::collector::{Count, TopDocs};
use tantivy::query::{BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{Index, Searcher, TantivyDocument, Term};

use super::*;
use crate::embedded::bm25::SearchedField;
use crate::embedded::schema::IndexSchema;
use crate::embedded::window::rounded;

/// Words by how often they are in a text: the first ones in most, the last ones in few.
const WORDS: [&str; 12] = [
    "the", "of", "key", "leave", "days", "refund", "index", "audit", "lake", "报", "销", "报销",
];

/// Enough to keep every frequent term.
const ROOM_FOR_ALL: usize = 1 << 20;

type Hits = (Vec<(Score, DocId)>, u64);

/// A field, a word and its boost.
type Asked = (Field, &'static str, Score);

/// What is looked for.
#[derive(Debug, Clone)]
struct Question {
    required: Vec<Asked>,
    optional: Vec<Asked>,
    among: Option<Asked>,
    count: usize,
}

impl Question {
    fn of(field: Field, word: &'static str, count: usize) -> Self {
        Self {
            required: vec![(field, word, 1.0)],
            optional: Vec::new(),
            among: None,
            count,
        }
    }
}

/// An index, and its fields as they are searched.
struct Fixture {
    schema: IndexSchema,
    searcher: Searcher,
    title: SearchedField,
    content: SearchedField,
}

impl Fixture {
    fn new(texts: impl Iterator<Item = (String, String)>, kept_bytes: usize) -> Self {
        let schema = IndexSchema::new();
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
        let searcher = index.finalize().unwrap().reader().unwrap().searcher();
        let [segment] = searcher.segment_readers() else {
            panic!("there is one segment")
        };
        Self {
            title: SearchedField::open(segment, schema.title, kept_bytes).unwrap(),
            content: SearchedField::open(segment, schema.content, kept_bytes).unwrap(),
            schema,
            searcher,
        }
    }

    fn by_tantivy(&self, question: &Question) -> Hits {
        let term = |(field, word, boost): &Asked| -> Box<dyn Query> {
            let term = Term::from_field_text(*field, word);
            let term = TermQuery::new(term, IndexRecordOption::WithFreqs);
            Box::new(BoostQuery::new(Box::new(term), *boost))
        };
        let any = BooleanQuery::union(question.required.iter().map(term).collect());
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = vec![(Occur::Must, Box::new(any))];
        let optional = question.optional.iter();
        clauses.extend(optional.map(|asked| (Occur::Should, term(asked))));
        clauses.extend(question.among.iter().map(|asked| {
            let filter: Box<dyn Query> = Box::new(ConstScoreQuery::new(term(asked), 0.0));
            (Occur::Must, filter)
        }));
        let best = TopDocs::with_limit(question.count).order_by_score();
        let query = BooleanQuery::new(clauses);
        let (hits, matched) = self.searcher.search(&query, &(best, Count)).unwrap();
        let hits = hits.into_iter().map(|(score, at)| (score, at.doc_id));
        (hits.collect(), matched as u64)
    }

    fn field(&self, field: Field) -> &SearchedField {
        if field == self.schema.title {
            &self.title
        } else {
            &self.content
        }
    }

    fn ours(&self, question: &Question) -> Hits {
        let postings = |asked: &[Asked]| {
            let lists = asked.iter().filter_map(|(field, word, boost)| {
                self.field(*field).postings(word, *boost).unwrap()
            });
            lists.collect()
        };
        let among = question.among.as_ref().map(|(field, word, _)| {
            let every = usize::try_from(self.searcher.num_docs()).unwrap();
            let every = Question::of(*field, word, every);
            let (hits, _) = self.by_tantivy(&every);
            let mut rows: Vec<_> = hits.into_iter().map(|(_, row)| row).collect();
            rows.sort_unstable();
            rows
        });
        let (required, optional) = (postings(&question.required), postings(&question.optional));
        rank(required, optional, among.as_deref(), question.count).unwrap()
    }

    /// Whether a word is kept after it was asked for twice.
    fn is_kept(&self, word: &str) -> bool {
        self.content.postings(word, 1.0).unwrap();
        let list = self.content.postings(word, 1.0).unwrap().unwrap();
        // So many units that no term is a light one.
        list.frequent(1e9).is_some()
    }
}

/// The scores as bits, because equal ones may differ in nothing.
fn bits((hits, matched): &Hits) -> (Vec<(u32, DocId)>, u64) {
    let hits = hits.iter().map(|(score, at)| (score.to_bits(), *at));
    (hits.collect(), *matched)
}

/// A text of up to 40 words, of which most are frequent ones.
fn text(n: u64) -> String {
    let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut words = Vec::new();
    for _ in 0..next(40) {
        let (a, b) = (next(12), next(12));
        words.push(WORDS[usize::try_from(a.min(b)).unwrap()]);
    }
    words.join(" ")
}

fn texts(number: u64, kinds: u64, seed: u64) -> impl Iterator<Item = (String, String)> {
    (0..number).map(move |n| {
        let n = n % kinds;
        (text(n.wrapping_mul(31) ^ seed), text(n ^ seed << 7))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn the_ranking_is_that_of_tantivy_to_the_bit(
        number in 1_u64..5000,
        // Few kinds of texts: many equal scores.
        kinds in prop::sample::select(vec![5_u64, 300, u64::MAX]),
        seed in any::<u32>(),
        kept in prop::sample::select(vec![0_usize, 1, 2, usize::MAX]),
        questions in prop::collection::vec((
            prop::collection::vec((0..2_usize, 0..12_usize, 0..3_usize), 1..12),
            prop::collection::vec((0..2_usize, 0..12_usize, 0..3_usize), 0..4),
            prop::option::of(0..12_usize),
            prop::sample::select(vec![1_usize, 3, 50, 200, 5000]),
        ), 4),
    ) {
        let kept_bytes = kept.saturating_mul(usize::try_from(number).unwrap());
        let fixture = Fixture::new(texts(number, kinds, seed.into()), kept_bytes);
        let asked = |chosen: Vec<(usize, usize, usize)>| -> Vec<Asked> {
            let fields = [fixture.schema.title, fixture.schema.content];
            let boosts = [1.0, 1.5, 0.25];
            chosen.into_iter().map(|(f, w, b)| (fields[f], WORDS[w], boosts[b])).collect()
        };
        for (required, optional, among, count) in questions {
            let question = Question {
                required: asked(required),
                optional: asked(optional),
                among: among.map(|word| (fixture.schema.content, WORDS[word], 1.0)),
                count,
            };
            let expected = bits(&fixture.by_tantivy(&question));
            // By lists, when frequent terms are kept, and by those that were.
            for _ in 0..3 {
                prop_assert_eq!(&bits(&fixture.ours(&question)), &expected);
            }
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_whole_number(number in 0.0_f32..65_535.0) {
        let difference = f32::from(rounded(number)) - number.round_ties_even();
        prop_assert!(difference.abs() < 0.1);
    }
}

#[test]
fn what_is_optional_counts_only_in_passages_that_have_what_is_required() {
    // Thousands of passages have the optional word before the first that has the required one.
    let texts = (0..6000).map(|n| {
        let lake = if n == 4000 || n == 5500 { " lake" } else { "" };
        (String::new(), format!("{}{lake}", "key ".repeat(n % 7)))
    });
    let fixture = Fixture::new(texts, 0);
    let content = fixture.schema.content;
    let question = Question {
        optional: vec![(content, "key", 1.0)],
        ..Question::of(content, "lake", 3)
    };
    assert_eq!(
        bits(&fixture.ours(&question)),
        bits(&fixture.by_tantivy(&question))
    );
}

#[test]
fn very_high_frequencies_and_very_long_texts_are_scored_exactly() {
    let texts = (0..3000).map(|n| {
        let (often, rest) = ("the ".repeat(n % 300), "key ".repeat(n % 11));
        (String::new(), format!("{often}{rest}of"))
    });
    let fixture = Fixture::new(texts, ROOM_FOR_ALL);
    let content = fixture.schema.content;
    for count in [1, 1, 10, 3000] {
        let question = Question {
            required: vec![
                (content, "the", 1.0),
                (content, "of", 1.0),
                (content, "key", 0.25),
            ],
            ..Question::of(content, "the", count)
        };
        let expected = bits(&fixture.by_tantivy(&question));
        assert_eq!(bits(&fixture.ours(&question)), expected, "{count}");
    }
    assert!(fixture.is_kept("the") && fixture.is_kept("of") && fixture.is_kept("key"));
}

#[test]
fn the_most_frequent_terms_are_kept_within_the_limit() {
    let texts = || {
        (0..1000).map(|n| {
            let key = if n % 2 == 0 { "key" } else { "" };
            let days = if n % 4 == 0 { "days" } else { "" };
            let lake = if n % 20 == 0 { "lake" } else { "" };
            (String::new(), format!("the {key} {days} {lake}"))
        })
    };
    let fixture = Fixture::new(texts(), 1000);
    assert!(fixture.is_kept("days"));
    assert!(
        fixture.is_kept("key"),
        "a more frequent one takes its place"
    );
    assert!(!fixture.is_kept("days"), "and a rarer one does not");

    let used = fixture.content.postings("key", 1.0).unwrap();
    assert!(used.is_some());
    assert!(
        !fixture.is_kept("the"),
        "no memory is free while it is used"
    );
    drop(used);
    assert!(fixture.is_kept("the"));

    let fixture = Fixture::new(texts(), ROOM_FOR_ALL);
    assert!(!fixture.is_kept("lake"), "a rare one is not worth it");
    assert!(!Fixture::new(texts(), 999).is_kept("the"), "no room at all");
}

#[test]
fn searches_at_the_same_time_find_the_same() {
    let seed = 7;
    let fixture = Fixture::new(texts(4000, u64::MAX, seed), 3 * 4000);
    let field = fixture.schema.content;
    let questions: Vec<_> = WORDS
        .iter()
        .map(|word| Question::of(field, word, 10))
        .collect();
    thread::scope(|scope| {
        for offset in 0..4 {
            let (fixture, questions) = (&fixture, &questions);
            scope.spawn(move || {
                for question in questions.iter().cycle().skip(offset * 3).take(24) {
                    let expected = bits(&fixture.by_tantivy(question));
                    assert_eq!(bits(&fixture.ours(question)), expected);
                }
            });
        }
    });
}
