//! Filters as queries.

use std::ops::Bound;

use raglan_core::clock::Timestamp;
use tantivy::Term;
use tantivy::query::{
    BooleanQuery, ConstScoreQuery, InvertedIndexRangeQuery, Occur, Query, RangeQuery, TermQuery,
};
use tantivy::schema::IndexRecordOption;

use super::attributes::{DOCUMENT_TYPE, DOMAIN, Wanted, wanted};
use super::schema::IndexSchema;
use crate::backend::{Comparison, Filters};

/// A clause for each condition: what a passage must be, or must not be. A condition lets through or
/// not; it does not change the order of what is found.
pub fn clauses(schema: &IndexSchema, filters: &Filters) -> Vec<(Occur, Box<dyn Query>)> {
    let mut clauses = Vec::new();
    let named = [
        (DOMAIN, &filters.domain),
        (DOCUMENT_TYPE, &filters.document_type),
    ];
    for (field, values) in named {
        let values: Vec<_> = values.iter().map(|value| value.as_str().into()).collect();
        clauses.extend(clause(schema, field, &Comparison::OneOf(values)));
    }
    for condition in &filters.metadata {
        clauses.extend(clause(schema, &condition.field, &condition.comparison));
    }
    if filters.updated_after.is_some() || filters.updated_before.is_some() {
        let edge = |moment: Option<Timestamp>| {
            moment.map_or(Bound::Unbounded, |moment| {
                let term = Term::from_field_i64(schema.updated_at_ms, moment.epoch_ms());
                Bound::Excluded(term)
            })
        };
        let period = RangeQuery::new(edge(filters.updated_after), edge(filters.updated_before));
        clauses.push((Occur::Must, without_score(Box::new(period))));
    }
    clauses
}

/// `None` when nothing is asked. A comparison that no value can satisfy (with null, an object) lets
/// nothing through: it must not widen the result.
fn clause(
    schema: &IndexSchema,
    field: &str,
    comparison: &Comparison,
) -> Option<(Occur, Box<dyn Query>)> {
    let occur = match comparison {
        Comparison::OneOf(values) | Comparison::NoneOf(values) if values.is_empty() => return None,
        Comparison::NoneOf(_) => Occur::MustNot,
        _ => Occur::Must,
    };
    let any = wanted(field, comparison)
        .into_iter()
        .map(|wanted| query(schema, wanted))
        .collect();
    Some((occur, without_score(Box::new(BooleanQuery::union(any)))))
}

fn query(schema: &IndexSchema, wanted: Wanted) -> Box<dyn Query> {
    let term = |text: String| Term::from_field_text(schema.attribute, &text);
    match wanted {
        Wanted::Term(text) => Box::new(TermQuery::new(term(text), IndexRecordOption::Basic)),
        Wanted::Range(from, to) => {
            Box::new(InvertedIndexRangeQuery::new(from.map(term), to.map(term)))
        }
    }
}

fn without_score(query: Box<dyn Query>) -> Box<dyn Query> {
    Box::new(ConstScoreQuery::new(query, 0.0))
}
