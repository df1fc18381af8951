//! `raglan search` and the opening of an index for it and for `raglan eval`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use raglan_core::catalog::KnowledgeBaseId;
use raglan_rag::backend::{
    Backend as _, Comparison, Condition, EngineCall, Filters, Note, Passage, Retrieval,
    RetrieveRequest,
};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::embedded::highlight::highlights;
use raglan_rag::embedded::open::Ranking;
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::{IndexChoice, SearchArguments};
use crate::embedding;
use crate::failure::Failure;
use crate::language::text;
use crate::target::{MissingFolder, Target};
use crate::terminal::{Console, warn};

/// How long one search may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Characters of a passage that are shown before its first highlight, and in all.
const SNIPPET_BEFORE_CHARS: usize = 80;
const SNIPPET_CHARS: usize = 400;

/// An embedded index that can be asked.
pub struct OpenKnowledgeBase {
    engine: EmbeddedBackend,
    kb_id: KnowledgeBaseId,
}

impl OpenKnowledgeBase {
    /// Finds the index that the command line chooses.
    ///
    /// # Errors
    /// [`Failure::NotFound`] when there is none, [`Failure::Usage`] when there are several to choose
    /// from.
    pub async fn open(choice: &IndexChoice) -> anyhow::Result<Self> {
        let root = if let Some(folder) = &choice.index_dir {
            folder.clone()
        } else {
            let target = Target::open(&choice.target, MissingFolder::Refuse).await?;
            let folder = target.index_dir().map(Path::to_owned);
            target.close().await?;
            folder?
        };
        let kb_id = match &choice.kb_id {
            Some(id) => id.clone(),
            None => only_one(&root)?,
        };
        let engine = EmbeddedBackend::new(root);
        let engine = match embedding::from_environment()? {
            Some(embedder) => engine.with_embedder(embedder),
            None => engine,
        };
        Ok(Self { engine, kb_id })
    }

    /// Whether it can be searched by meaning.
    ///
    /// # Errors
    /// One line, when the index cannot be used.
    pub async fn has_meaning(&self) -> anyhow::Result<bool> {
        let call = EngineCall::within(PATIENCE);
        let described = self.engine.describe(self.kb_id.as_str(), &call).await?;
        Ok(described.embedding_model.is_some())
    }

    /// Asks it.
    ///
    /// # Errors
    /// One line, when the index cannot be used.
    pub async fn retrieve(
        &self,
        ranking: Ranking,
        request: &RetrieveRequest,
    ) -> anyhow::Result<Retrieval> {
        let call = EngineCall::within(PATIENCE);
        let id = self.kb_id.as_str();
        Ok(self.engine.retrieve_by(ranking, id, request, &call).await?)
    }
}

fn only_one(root: &PathBuf) -> anyhow::Result<KnowledgeBaseId> {
    let names = fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<KnowledgeBaseId> = names
        .filter_map(|name| KnowledgeBaseId::parse(&name).ok())
        .collect();
    ids.sort();
    if ids.len() > 1 {
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let message = text!(
            "choose a knowledge base with --kb: {join}",
            join = names.join(", ")
        );
        return Err(Failure::Usage(message).into());
    }
    ids.pop().ok_or_else(|| {
        let message = text!(
            "there is no index in {root}: build one with `raglan index DIR --kb ID`",
            root = root.display()
        );
        Failure::NotFound(message).into()
    })
}

/// Runs the command.
///
/// # Errors
/// One line; see [`crate::failure`] for the exit codes.
pub async fn run(arguments: SearchArguments) -> anyhow::Result<Outcome> {
    let opened = OpenKnowledgeBase::open(&arguments.index).await?;
    search(&opened, arguments, &mut Console::standard()).await
}

async fn search(
    opened: &OpenKnowledgeBase,
    arguments: SearchArguments,
    console: &mut Console,
) -> anyhow::Result<Outcome> {
    let request = RetrieveRequest {
        query: arguments.query,
        top_k: usize::from(arguments.top_k),
        min_score: None,
        filters: Filters {
            metadata: arguments.filters,
            ..Filters::default()
        },
    };
    let found = opened.retrieve(Ranking::Best, &request).await?;
    if found.notes.contains(&Note::WordsOnly) {
        warn(text!(
            "the embedding model did not answer: searched by words only"
        ));
    }
    if arguments.json {
        let passages: Vec<Value> = found
            .passages
            .iter()
            .map(|passage| as_json(&request.query, passage))
            .collect();
        let answer = json!({ "matched": found.matched, "passages": passages });
        console.say(serde_json::to_string_pretty(&answer)?);
        return Ok(Outcome::Done);
    }
    let marks = if console.is_out_terminal {
        ("\u{1b}[1m", "\u{1b}[0m")
    } else {
        ("**", "**")
    };
    for (rank, passage) in (1..).zip(&found.passages) {
        let section = passage.section.as_deref().unwrap_or(&passage.title);
        let page = passage
            .page
            .map(|page| format!(", page {page}"))
            .unwrap_or_default();
        console.say(format_args!(
            "{rank}. {:.2}  {}  ({}{page})",
            passage.score,
            printable(section),
            printable(&passage.filename)
        ));
        console.say(snippet(&request.query, &passage.content, marks));
        console.say("");
    }
    console.note(text!(
        "{matched} passages match; {count} are shown.",
        matched = found.matched,
        count = found.passages.len()
    ));
    Ok(Outcome::Done)
}

fn as_json(query: &str, passage: &Passage) -> Value {
    let ranges: Vec<[usize; 2]> = highlights(query, &passage.content)
        .into_iter()
        .map(|range| [range.start, range.end])
        .collect();
    json!({
        "passage_id": passage.id, "document_id": passage.document_id, "score": passage.score,
        "title": passage.title, "filename": passage.filename, "section": passage.section,
        "page": passage.page, "uri": passage.uri, "updated_at": passage.updated_at,
        "metadata": passage.metadata, "content": passage.content, "highlights_bytes": ranges,
    })
}

/// The part of the text around its first highlight, on one line, with the highlights marked.
fn snippet(query: &str, text: &str, (open, close): (&str, &str)) -> String {
    let ranges = highlights(query, text);
    let first = ranges.first().map_or(0, |range| range.start);
    let start = text[..first]
        .char_indices()
        .rev()
        .nth(SNIPPET_BEFORE_CHARS - 1)
        .map_or(0, |(at, _)| at);
    let end = text[start..]
        .char_indices()
        .nth(SNIPPET_CHARS)
        .map_or(text.len(), |(at, _)| start + at);
    let mut shown = String::from(if start > 0 { "   …" } else { "   " });
    let mut at = start;
    for range in ranges.into_iter().filter(|range| range.end <= end) {
        shown += &printable(&text[at..range.start]);
        shown += open;
        shown += &printable(&text[range.clone()]);
        shown += close;
        at = range.end;
    }
    shown += &printable(&text[at..end]);
    if end < text.len() {
        shown.push('…');
    }
    shown
}

/// Documents are not trusted: their control characters would reach the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// A filter as it is typed: `domain=hr`, `tags!=old`, `year>=2024`, `domain=hr,it`.
///
/// # Errors
/// A sentence, when there is no operator or no name.
pub fn parse_filter(text: &str) -> Result<Condition, String> {
    let wrong = || {
        text!(
            "{text} is not like field=value, field!=value or field>=value",
            text = format_args!("{:?}", text)
        )
    };
    let at = text.find(['!', '=', '<', '>']).ok_or_else(wrong)?;
    let (field, rest) = text.split_at(at);
    let operator = ["!=", ">=", "<=", "=", ">", "<"]
        .into_iter()
        .find(|operator| rest.starts_with(operator))
        .ok_or_else(wrong)?;
    let operand = rest[operator.len()..].trim();
    let field = field.trim();
    if field.is_empty() || operand.is_empty() {
        return Err(wrong());
    }
    let list = || operand.split(',').map(|part| scalar(part.trim())).collect();
    let comparison = match operator {
        "=" => Comparison::OneOf(list()),
        "!=" => Comparison::NoneOf(list()),
        ">" => Comparison::Greater(scalar(operand)),
        ">=" => Comparison::GreaterOrEqual(scalar(operand)),
        "<" => Comparison::Less(scalar(operand)),
        _ => Comparison::LessOrEqual(scalar(operand)),
    };
    Ok(Condition {
        field: field.to_owned(),
        comparison,
    })
}

fn scalar(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use raglan_core::clock::SystemClock;
    use raglan_ingest::build::{IndexOptions, Reading, index_folder};

    use super::*;
    use crate::arguments::{Arguments, Command};
    use crate::testing::Capture;

    #[tokio::test]
    async fn an_index_is_found_searched_and_filtered() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("docs")).unwrap();
        for (name, year) in [("old.md", 2024), ("new.md", 2026)] {
            let text = format!("---\nyear: {year}\n---\nRefunds take {year} days.\n");
            fs::write(folder.path().join("docs").join(name), text).unwrap();
        }
        let kb_id = KnowledgeBaseId::parse("kb").unwrap();
        let root = folder.path().join("index");
        let options = IndexOptions {
            source_dir: folder.path().join("docs"),
            index_root: root.clone(),
            kb_id,
            reading: Reading::Changed,
        };
        index_folder(&options, &SystemClock, &mut |_| {}).unwrap();
        let line = |more: &[&str]| {
            let root = root.to_str().unwrap();
            let words = ["raglan", "search", "refund", "--json", "--index-dir", root];
            let line = Arguments::try_parse_from([&words, more].concat()).unwrap();
            match line.command {
                Command::Search(arguments) => arguments,
                other => panic!("{other:?}"),
            }
        };
        for (more, expected) in [
            (&[][..], vec!["new.md", "old.md"]),
            (&["--filter", "year>=2025"], vec!["new.md"]),
            (&["--kb", "kb", "--filter", "year!=2026"], vec!["old.md"]),
        ] {
            let out = Capture::default();
            let mut console = Console {
                out: Box::new(out.clone()),
                err: Box::new(std::io::sink()),
                input: Box::new(std::io::empty()),
                is_out_terminal: false,
                is_input_terminal: false,
            };
            let arguments = line(more);
            let opened = OpenKnowledgeBase::open(&arguments.index).await.unwrap();
            search(&opened, arguments, &mut console).await.unwrap();
            let answer: Value = serde_json::from_str(&out.text()).unwrap();
            let passages = answer["passages"].as_array().unwrap();
            let mut names: Vec<&str> = passages
                .iter()
                .map(|passage| passage["filename"].as_str().unwrap())
                .collect();
            names.sort_unstable();
            assert_eq!(names, expected);
            assert_eq!(passages[0]["highlights_bytes"], json!([[0, 7]]));
        }
        fs::create_dir(root.join("other")).unwrap();
        let Err(error) = OpenKnowledgeBase::open(&line(&[]).index).await else {
            panic!("two indexes, and none was chosen");
        };
        assert!(error.to_string().contains("kb, other"), "{error}");
    }

    #[test]
    fn filters_are_read_as_they_are_typed() {
        let read = |text: &str| parse_filter(text).map(|condition| condition.comparison);
        assert_eq!(
            read("domain = hr,it"),
            Ok(Comparison::OneOf(vec![json!("hr"), json!("it")]))
        );
        assert_eq!(
            read("year>=2024"),
            Ok(Comparison::GreaterOrEqual(json!(2024)))
        );
        assert_eq!(
            read("tags!=old"),
            Ok(Comparison::NoneOf(vec![json!("old")]))
        );
        assert_eq!(
            read("day<2026-03-01"),
            Ok(Comparison::Less(json!("2026-03-01")))
        );
        for wrong in ["domain", "=hr", "domain=", "a!b"] {
            assert!(parse_filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_snippet_shows_the_match_and_no_control_characters() {
        let text = format!("{}the \u{1b}[31m refunds are paid", "x ".repeat(200));
        let shown = snippet("refund", &text, ("<", ">"));
        assert!(shown.contains("<refunds> are paid"), "{shown}");
        assert!(shown.contains('…') && !shown.contains('\u{1b}'));
    }
}
