//! `raglan eval`: how good a knowledge base's ranking is on questions whose documents are known.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;
use raglan_rag::backend::{Filters, Note, RetrieveRequest};
use raglan_rag::embedded::open::Ranking;
use raglan_rag::evaluation::{Scores, mean, score};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::EvalArguments;
use crate::language::text;
use crate::search::OpenKnowledgeBase;
use crate::terminal::{Console, table};

/// Passages that are asked for: several of them are often of one document.
const PASSAGES: usize = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuerySet {
    queries: Vec<Query>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    query: String,
    relevant: Relevant,
}

/// File names of relevant documents, or how relevant each of them is.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Relevant {
    Documents(Vec<String>),
    Gains(BTreeMap<String, f64>),
}

impl Relevant {
    fn gains(&self) -> BTreeMap<String, f64> {
        match self {
            Self::Documents(names) => names.iter().map(|name| (name.clone(), 1.0)).collect(),
            Self::Gains(gains) => gains.clone(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// One line, when the set or the index cannot be read.
pub async fn run(arguments: EvalArguments) -> anyhow::Result<Outcome> {
    let set = fs::read(&arguments.file)
        .with_context(|| text!("{file} cannot be read", file = arguments.file.display()))?;
    let set = read(&set)
        .with_context(|| text!("{file} is no query set", file = arguments.file.display()))?;
    let opened = OpenKnowledgeBase::open(&arguments.index).await?;
    let scores = measure(&opened, Ranking::Best, &set, arguments.k).await?;
    let mut by_ranking = Vec::new();
    if opened.has_meaning().await? {
        for (name, ranking) in RANKINGS {
            let scores = measure(&opened, *ranking, &set, arguments.k).await?;
            by_ranking.push((*name, mean(&scores)));
        }
    }
    let measured = Measured { scores, by_ranking };
    show(&set, &measured, &arguments, &mut Console::standard())?;
    Ok(Outcome::Done)
}

/// The rankings that are told apart where there are vectors.
const RANKINGS: &[(&str, Ranking)] = &[
    ("words", Ranking::Words),
    ("meaning", Ranking::Meaning),
    ("both", Ranking::Both),
];

struct Measured {
    /// Of each query, as callers get it.
    scores: Vec<Scores>,
    /// The means of the other rankings.
    by_ranking: Vec<(&'static str, Scores)>,
}

async fn measure(
    opened: &OpenKnowledgeBase,
    ranking: Ranking,
    set: &QuerySet,
    k: u8,
) -> anyhow::Result<Vec<Scores>> {
    let mut scores = Vec::new();
    for query in &set.queries {
        let request = RetrieveRequest {
            query: query.query.clone(),
            top_k: PASSAGES,
            min_score: None,
            filters: Filters::default(),
        };
        let found = opened.retrieve(ranking, &request).await?;
        // Figures of something else than what was asked for would be worse than none.
        anyhow::ensure!(
            !found.notes.contains(&Note::WordsOnly),
            text!("the embedding model did not answer")
        );
        let ranked = found.passages.iter().map(|p| p.filename.as_str());
        scores.push(score(ranked, &query.relevant.gains(), usize::from(k)));
    }
    Ok(scores)
}

fn read(json: &[u8]) -> anyhow::Result<QuerySet> {
    let set: QuerySet = serde_json::from_slice(json)?;
    anyhow::ensure!(!set.queries.is_empty(), text!("it has no queries"));
    for query in &set.queries {
        let gains = query.relevant.gains();
        let usable =
            !gains.is_empty() && gains.values().all(|gain| gain.is_finite() && *gain > 0.0);
        anyhow::ensure!(
            usable,
            text!(
                "the query {query} needs relevant documents, with gains above 0",
                query = format_args!("{:?}", query.query)
            )
        );
    }
    Ok(set)
}

fn show(
    set: &QuerySet,
    measured: &Measured,
    arguments: &EvalArguments,
    console: &mut Console,
) -> anyhow::Result<()> {
    let Measured { scores, by_ranking } = measured;
    let means = mean(scores);
    let k = arguments.k;
    if arguments.json {
        let of = |scores: &Scores| {
            json!({
                "ndcg_at_10": scores.ndcg_at_10, "recall_at_k": scores.recall_at_k,
                "reciprocal_rank": scores.reciprocal_rank,
            })
        };
        let queries: Vec<Value> = set
            .queries
            .iter()
            .zip(scores)
            .map(|(query, scores)| json!({ "query": query.query, "scores": of(scores) }))
            .collect();
        let mut answer = json!({ "k": k, "mean": of(&means), "queries": queries });
        for (name, means) in by_ranking {
            answer["rankings"][*name] = of(means);
        }
        console.say(serde_json::to_string_pretty(&answer)?);
        return Ok(());
    }
    let row = |name: &str, scores: &Scores| {
        let numbers = [
            scores.ndcg_at_10,
            scores.recall_at_k,
            scores.reciprocal_rank,
        ];
        let numbers = numbers.iter().map(|number| format!("{number:.4}"));
        numbers.chain([name.to_owned()]).collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<String>> = set
        .queries
        .iter()
        .zip(scores)
        .map(|(query, scores)| row(&query.query, scores))
        .collect();
    rows.push(row(
        &text!("mean of {count} queries", count = scores.len()),
        &means,
    ));
    let rankings = by_ranking.iter();
    rows.extend(rankings.map(|(name, means)| row(&text!("mean by {name}", name), means)));
    let recall = format!("RECALL@{k}");
    console.say(table(&["NDCG@10", &recall, "MRR", "QUERY"], &rows));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relevance_is_a_list_or_graded_and_never_nothing() {
        let set = read(br#"{"queries":[{"query":"a","relevant":["x.md"]},{"query":"b","relevant":{"y.md":2}}]}"#);
        let gains: Vec<_> = set
            .unwrap()
            .queries
            .iter()
            .map(|query| query.relevant.gains())
            .collect();
        assert_eq!((gains[0]["x.md"], gains[1]["y.md"]), (1.0, 2.0));
        for wrong in [
            r#"{"queries":[]}"#,
            r#"{"queries":[{"query":"a","relevant":[]}]}"#,
            r#"{"queries":[{"query":"a","relevant":{"x":0}}]}"#,
            r#"{"queries":[{"query":"a"}]}"#,
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
