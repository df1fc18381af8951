//! What Bedrock finds, as passages.

use std::collections::HashMap;

use aws_sdk_bedrockagentruntime::types::{
    KnowledgeBaseRetrievalResult, RetrievalResultContent, RetrievalResultLocation,
    RetrievedReference,
};
use aws_smithy_types::{Document, Number};
use raglan_engines::configuration::AttributeNames;
use raglan_engines::hits::Hit;
use raglan_rag::backend::Passage;
use serde_json::{Map, Value};

/// Where Bedrock and Kendra put the identifier of a passage.
const CHUNK_ID_KEYS: [&str; 2] = ["x-amz-bedrock-kb-chunk-id", "x-amz-kendra-passage-id"];
/// Where Bedrock puts the page of a document.
const PAGE_KEY: &str = "x-amz-bedrock-kb-document-page-number";
/// Where Kendra puts a document's title.
const TITLE_KEY: &str = "x-amz-kendra-document-title";

/// What Bedrock tells of a passage, whether it was searched for or cited.
pub(crate) struct Told<'a> {
    pub(crate) content: Option<&'a RetrievalResultContent>,
    pub(crate) location: Option<&'a RetrievalResultLocation>,
    pub(crate) metadata: Option<&'a HashMap<String, Document>>,
    pub(crate) document_id: Option<&'a str>,
    pub(crate) score: Option<f64>,
}

impl<'a> From<&'a KnowledgeBaseRetrievalResult> for Told<'a> {
    fn from(result: &'a KnowledgeBaseRetrievalResult) -> Self {
        Self {
            content: result.content(),
            location: result.location(),
            metadata: result.metadata(),
            document_id: result.document_id(),
            score: result.score(),
        }
    }
}

impl<'a> From<&'a RetrievedReference> for Told<'a> {
    fn from(reference: &'a RetrievedReference) -> Self {
        Self {
            content: reference.content(),
            location: reference.location(),
            metadata: reference.metadata(),
            document_id: None,
            // Citations have none.
            score: None,
        }
    }
}

/// The passage; `None` when it has no text (images, audio, video).
pub(crate) fn passage(told: &Told<'_>, names: &AttributeNames) -> Option<Passage> {
    let content = text(told.content?)?;
    let metadata = told.metadata.map(object);
    let value = |key: &str| metadata.as_ref().and_then(|metadata| metadata.get(key));
    let place = told.location.and_then(place);
    let document_id = place
        .as_ref()
        .map(|place| place.identity.clone())
        .or_else(|| told.document_id.map(ToOwned::to_owned))
        .unwrap_or_default();
    let id = CHUNK_ID_KEYS.iter().find_map(|key| value(key)?.as_str());
    let hit = Hit {
        id: id.map(ToOwned::to_owned),
        filename: file_name(&document_id),
        document_id,
        chunk_index: None,
        score: score(told.score),
        content,
        attributes: metadata.as_ref(),
    };
    let mut passage = hit.into_passage(names);
    if passage.uri.is_none() {
        passage.uri = place.and_then(|place| place.uri);
    }
    if passage.page.is_none() {
        passage.page = value(PAGE_KEY).and_then(page);
    }
    if let Some(title) = value(TITLE_KEY).and_then(Value::as_str)
        && passage.title == passage.filename
    {
        title.clone_into(&mut passage.title);
    }
    Some(passage)
}

/// Text as it is; a row of a table as one line for each of its columns.
fn text(content: &RetrievalResultContent) -> Option<String> {
    let text = match content.row.as_deref() {
        Some(columns) => {
            let lines: Vec<String> = columns
                .iter()
                .map(|column| {
                    let name = column.column_name().unwrap_or_default();
                    let value = column.column_value().unwrap_or_default();
                    format!("{name}: {value}")
                })
                .collect();
            lines.join("\n")
        }
        None => content.text.clone(),
    };
    (!text.trim().is_empty()).then_some(text)
}

/// Where a document is.
struct Place {
    /// What `ListKnowledgeBaseDocuments` calls the document too, where that lists it.
    identity: String,
    uri: Option<String>,
}

fn place(location: &RetrievalResultLocation) -> Option<Place> {
    if let Some(custom) = location.custom_document_location() {
        return custom.id().map(|id| Place {
            identity: id.to_owned(),
            uri: None,
        });
    }
    if let Some(sql) = location.sql_location() {
        return sql.query.as_ref().map(|query| Place {
            identity: query.clone(),
            uri: None,
        });
    }
    let uri = None
        .or_else(|| location.s3_location()?.uri())
        .or_else(|| location.web_location()?.url())
        .or_else(|| location.confluence_location()?.url())
        .or_else(|| location.salesforce_location()?.url())
        .or_else(|| location.share_point_location()?.url())
        .or_else(|| location.one_drive_location()?.url())
        .or_else(|| location.google_drive_location()?.url())
        .or_else(|| location.kendra_document_location()?.uri())?;
    Some(Place {
        identity: uri.to_owned(),
        uri: Some(uri.to_owned()),
    })
}

/// The key of an S3 object; the last part of another address; anything else as it is.
pub(crate) fn file_name(identity: &str) -> String {
    if let Some(object) = identity.strip_prefix("s3://") {
        return object.split_once('/').map_or(object, |(_, key)| key).into();
    }
    let Some((_, address)) = identity.split_once("://") else {
        return identity.to_owned();
    };
    let path = address.split(['?', '#']).next().unwrap_or(address);
    let last = path.trim_end_matches('/').rsplit('/').next();
    last.unwrap_or(path).to_owned()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "scores have far fewer digits than either width"
)]
fn score(score: Option<f64>) -> f32 {
    score.filter(|score| score.is_finite()).unwrap_or_default() as f32
}

/// Numbers in metadata are written with a fraction: `3.0`.
fn page(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    let is_page = number >= 0.0 && number.fract() == 0.0;
    is_page.then(|| format!("{number:.0}").parse().ok())?
}

fn object(metadata: &HashMap<String, Document>) -> Value {
    let entries = metadata
        .iter()
        .map(|(key, value)| (key.clone(), json(value)));
    Value::Object(entries.collect::<Map<String, Value>>())
}

fn json(document: &Document) -> Value {
    match document {
        Document::Object(members) => object(members),
        Document::Array(elements) => elements.iter().map(json).collect(),
        Document::Number(number) => match *number {
            Number::PosInt(number) => number.into(),
            Number::NegInt(number) => number.into(),
            Number::Float(number) => number.into(),
        },
        Document::String(text) => text.as_str().into(),
        Document::Bool(value) => (*value).into(),
        Document::Null => Value::Null,
    }
}
