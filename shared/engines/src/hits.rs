//! What engines find, in the form that [`raglan_rag::backend`] has for it.

use raglan_rag::backend::{Note, Passage, Retrieval};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::attributes::Attributes;
use crate::configuration::AttributeNames;

/// One passage as an engine tells it. Attributes of the document say the rest.
#[derive(Debug, Clone, Default)]
pub struct Hit<'a> {
    /// The engine's identifier of the passage; without one the passage is known by its document and
    /// its text.
    pub id: Option<String>,
    /// The engine's identifier of the document.
    pub document_id: String,
    /// The document's file name; empty when the engine does not tell.
    pub filename: String,
    /// The position in the document, where the engine tells it outside of the attributes.
    pub chunk_index: Option<u64>,
    /// The engine's score.
    pub score: f32,
    /// The text.
    pub content: String,
    /// The attributes: an object, or nothing.
    pub attributes: Option<&'a Value>,
}

impl Hit<'_> {
    /// The passage, with what the attributes say of it. Without a title it has the file name's.
    #[must_use]
    pub fn into_passage(self, names: &AttributeNames) -> Passage {
        let attributes = Attributes::new(names, self.attributes);
        let title = attributes.text("title");
        Passage {
            id: self.id.unwrap_or_else(|| {
                let digest = Sha256::digest(&self.content);
                let beginning = digest.iter().take(8);
                let number = beginning.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
                format!("{}-{number:016x}", self.document_id)
            }),
            chunk_index: attributes
                .whole_number("chunk_index")
                .or(self.chunk_index)
                .unwrap_or(0),
            title: title.unwrap_or_else(|| self.filename.clone()),
            uri: attributes.text("uri"),
            section: attributes.text("section"),
            page: attributes.whole_number("page"),
            updated_at: attributes.updated_at(),
            metadata: attributes.metadata(),
            document_id: self.document_id,
            score: self.score,
            content: self.content,
            filename: self.filename,
        }
    }
}

/// The passages of one search, best first as the engine gave them. The lowest score is applied here and
/// not by the engine, so that "found, but not relevant enough" can be told from "not found".
#[must_use]
pub fn retrieval(mut passages: Vec<Passage>, least_score: Option<f32>, top_k: usize) -> Retrieval {
    let matched = passages.len() as u64;
    passages.truncate(top_k);
    let before = passages.len();
    if let Some(least) = least_score {
        passages.retain(|passage| passage.score >= least);
    }
    Retrieval {
        matched,
        below_threshold: (before - passages.len()) as u64,
        notes: Vec::new(),
        passages,
    }
}

/// The stricter of two lowest scores: what the caller asks for and what the configuration says.
#[must_use]
pub fn least_score(asked: Option<f32>, configured: Option<f32>) -> Option<f32> {
    match (asked, configured) {
        (Some(asked), Some(configured)) => Some(asked.max(configured)),
        (one, other) => one.or(other),
    }
}

/// The beginning of a query, in at most `max_chars` characters: whole words where there are any in the
/// second half of it. With the note that tells the caller.
#[must_use]
pub fn cut_query(query: &str, max_chars: usize) -> (&str, Option<Note>) {
    let Some((end, _)) = query.char_indices().nth(max_chars) else {
        return (query, None);
    };
    let next_is_space = query[end..].starts_with(char::is_whitespace);
    let start = &query[..end];
    let words_end = start.rfind(char::is_whitespace);
    let end = match words_end {
        Some(space) if !next_is_space && space >= end / 2 => space,
        _ => end,
    };
    (query[..end].trim_end(), Some(Note::QueryCut { max_chars }))
}

/// The format of a document, by the ending of its file name.
#[must_use]
pub fn format_of(filename: &str) -> &'static str {
    let extension = filename.rsplit_once('.').map(|(_, extension)| extension);
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "md" | "markdown" => "markdown",
        "txt" => "text",
        "html" | "htm" => "html",
        "pdf" => "pdf",
        "docx" | "doc" => "word",
        "pptx" => "powerpoint",
        "json" => "json",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn hit(content: &str, attributes: &Value) -> Passage {
        Hit {
            document_id: "file-1".to_owned(),
            filename: "leave.md".to_owned(),
            score: 0.5,
            content: content.to_owned(),
            attributes: Some(attributes),
            ..Hit::default()
        }
        .into_passage(&AttributeNames::default())
    }

    #[test]
    fn reserved_attributes_become_fields_of_the_passage() {
        let passage = hit(
            "Thirty days.",
            &json!({
                "title": "Leave", "uri": "https://wiki.example/leave", "page": 2,
                "section": "Annual leave", "chunk_index": 4, "updated_at": "2026-11-30",
                "domain": "hr", "colour": "blue",
            }),
        );
        assert_eq!((passage.title.as_str(), passage.page), ("Leave", Some(2)));
        assert_eq!(passage.uri.unwrap(), "https://wiki.example/leave");
        assert_eq!(passage.section.unwrap(), "Annual leave");
        assert_eq!(passage.chunk_index, 4);
        assert_eq!(
            passage.updated_at.unwrap().to_string(),
            "2026-11-30T00:00:00.000Z"
        );
        assert_eq!(passage.metadata["domain"], "hr");
        assert_eq!(passage.metadata["colour"], "blue");
    }

    #[test]
    fn without_attributes_the_file_name_is_the_title_and_the_text_is_the_identity() {
        let one = hit("Thirty days.", &Value::Null);
        assert_eq!((one.title.as_str(), one.chunk_index), ("leave.md", 0));
        assert_eq!(one.id, hit("Thirty days.", &json!({})).id);
        assert_ne!(one.id, hit("Twenty days.", &json!({})).id);
    }

    #[test]
    fn what_is_below_the_lowest_score_is_counted_among_the_best() {
        let scored = |score| Passage {
            score,
            ..hit("text", &Value::Null)
        };
        let passages: Vec<Passage> = [0.9, 0.5, 0.2, 0.1].map(scored).into();
        let found = retrieval(passages, Some(0.5), 3);
        assert_eq!(found.passages.len(), 2);
        assert_eq!((found.matched, found.below_threshold), (4, 1));
        assert_eq!(least_score(Some(0.2), Some(0.4)), Some(0.4));
        assert_eq!(least_score(None, Some(0.4)), Some(0.4));
    }

    #[test]
    fn a_query_is_cut_between_words_where_it_has_any() {
        assert_eq!(cut_query("one two", 7), ("one two", None));
        let cut = |query, max| cut_query(query, max).0;
        assert_eq!(cut("one two three", 9), "one two");
        assert_eq!(cut("one two three", 7), "one two");
        assert_eq!(cut("a bcdefghijklm", 9), "a bcdefgh");
        assert_eq!(cut("年假有多少天", 3), "年假有");
        let note = cut_query("one two three", 9).1;
        assert_eq!(note, Some(Note::QueryCut { max_chars: 9 }));
    }

    proptest! {
        #[test]
        fn a_cut_query_is_a_beginning_that_fits(query in "\\PC{0,40}", max in 1_usize..30) {
            let (cut, note) = cut_query(&query, max);
            prop_assert!(query.starts_with(cut));
            prop_assert!(cut.chars().count() <= max);
            prop_assert_eq!(note.is_some(), query.chars().count() > max);
        }
    }
}
