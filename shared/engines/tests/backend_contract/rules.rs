//! The rules, each with its sentence.

use std::cmp::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use raglan_rag::backend::{BackendError, EngineCall, Filters, RetrieveRequest};
use serde_json::{Value, json};

use crate::subject::Subject;

/// What became of a rule.
pub enum Verdict {
    Kept,
    /// The server may leave this out, and does.
    NotOffered(&'static str),
}

/// Kept, or what was seen instead.
type Checked = Result<Verdict, String>;

/// One rule.
pub struct Rule {
    pub sentence: &'static str,
    pub check: fn(&Subject) -> BoxFuture<'_, Checked>,
}

macro_rules! rules {
    ($($sentence:literal => $check:ident,)*) => {
        &[$(Rule { sentence: $sentence, check: |subject| Box::pin($check(subject)) },)*]
    };
}

/// All of them.
pub const RULES: &[Rule] = rules! {
    "vector stores are listed with their ids and names" => stores_are_listed,
    "the vector store is described under its own id" => store_is_described,
    "an unknown vector store is not found, whatever is asked of it" => unknown_is_not_found,
    "a request without the token is a 401 or 403" => token_is_asked_for,
    "a search gives texts with a file, a score and attributes, best first" => search_is_read,
    "reserved attributes have their types" => reserved_attributes,
    "max_num_results is an upper limit" => limit_holds,
    "a search that finds nothing is an empty list" => nothing_is_a_list,
    "a filter that nothing satisfies lets nothing through" => filters_fail_closed,
    "each comparison of a filter means what it says, or is refused" => comparisons_hold,
    "conditions in an `and` all hold, or it is refused" => and_holds,
    "a comparison that is not known is refused" => unknown_comparison,
    "a query in Chinese is answered" => chinese_is_answered,
    "files are listed page by page, each once" => files_are_paged,
    "the text of a file is given whole" => content_is_whole,
    "an unknown batch of files is not found" => unknown_batch,
    "raglan's own adapter works with the server" => adapter_works,
};

fn seen(answer: &(u16, Value)) -> String {
    let text: String = answer.1.to_string().chars().take(300).collect();
    format!("the answer was {} {text}", answer.0)
}

/// The list of a successful answer.
fn list(answer: &(u16, Value)) -> Result<&Vec<Value>, String> {
    match (answer.0, answer.1["data"].as_array()) {
        (200, Some(list)) => Ok(list),
        _ => Err(format!(
            "expected 200 and a list in `data`; {}",
            seen(answer)
        )),
    }
}

fn require(holds: bool, expected: &str, saw: &dyn std::fmt::Display) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("expected {expected}; saw {saw}"))
    }
}

/// 404, or a 400 that says so, as some servers answer.
fn is_missing(answer: &(u16, Value)) -> bool {
    answer.0 == 404 || (answer.0 == 400 && answer.1.to_string().contains("not found"))
}

const fn is_refusal(status: u16) -> bool {
    matches!(status, 400 | 422 | 501)
}

async fn stores_are_listed(subject: &Subject) -> Checked {
    let answer = subject.get("/vector_stores?limit=100&order=asc").await?;
    let stores = list(&answer)?;
    require(!stores.is_empty(), "a vector store", &"none")?;
    for store in stores {
        require(store["id"].is_string(), "an id", store)?;
        let name = &store["name"];
        require(name.is_string() || name.is_null(), "a name or null", name)?;
    }
    let more = &answer.1["has_more"];
    require(more.is_boolean(), "has_more", more)?;
    Ok(Verdict::Kept)
}

async fn store_is_described(subject: &Subject) -> Checked {
    let answer = subject.of_store("").await?;
    require(
        answer.0 == 200 && answer.1["id"] == subject.store.as_str(),
        "200 and the id",
        &seen(&answer),
    )?;
    let counts = &answer.1["file_counts"]["completed"];
    require(counts.is_u64(), "file_counts.completed", counts)?;
    Ok(Verdict::Kept)
}

async fn unknown_is_not_found(subject: &Subject) -> Checked {
    let unknown = "vs_raglan_no_such_store";
    let answers = [
        subject.get(&format!("/vector_stores/{unknown}")).await?,
        subject
            .get(&format!("/vector_stores/{unknown}/files"))
            .await?,
        subject.search_in(unknown, json!({})).await?,
    ];
    for answer in answers {
        require(is_missing(&answer), "404", &seen(&answer))?;
    }
    Ok(Verdict::Kept)
}

async fn token_is_asked_for(subject: &Subject) -> Checked {
    if !subject.has_token {
        return Ok(Verdict::NotOffered("no --token-env was given"));
    }
    let answer = subject.get_as_nobody("/vector_stores").await?;
    require(matches!(answer.0, 401 | 403), "401 or 403", &seen(&answer))?;
    Ok(Verdict::Kept)
}

async fn hits(subject: &Subject) -> Result<Vec<Value>, String> {
    let answer = subject.search(json!({})).await?;
    let hits = list(&answer)?.clone();
    let expected = "a result (name a query that has one with --query)";
    require(!hits.is_empty(), expected, &"none")?;
    Ok(hits)
}

async fn search_is_read(subject: &Subject) -> Checked {
    let mut before = f64::INFINITY;
    for hit in hits(subject).await? {
        require(hit["file_id"].is_string(), "file_id", &hit)?;
        require(hit["filename"].is_string(), "filename", &hit)?;
        let score = hit["score"].as_f64().unwrap_or(f64::NAN);
        require(score <= before, "scores in descending order", &hit)?;
        before = score;
        let attributes = &hit["attributes"];
        require(
            attributes.is_object() || attributes.is_null(),
            "attributes, an object or null",
            attributes,
        )?;
        let parts = hit["content"].as_array().cloned().unwrap_or_default();
        let is_text = |part: &Value| part["type"] == "text" && part["text"].is_string();
        require(
            !parts.is_empty() && parts.iter().all(is_text),
            "content, a list of texts",
            &hit["content"],
        )?;
    }
    Ok(Verdict::Kept)
}

async fn reserved_attributes(subject: &Subject) -> Checked {
    let mut any = false;
    for hit in hits(subject).await? {
        let attributes = &hit["attributes"];
        for name in ["uri", "title", "section", "doc_type", "domain", "lang"] {
            if let Some(value) = attributes.get(name) {
                any = true;
                require(value.is_string(), "a text", &format!("{name} {value}"))?;
            }
        }
        for name in ["page", "chunk_index"] {
            if let Some(value) = attributes.get(name) {
                any = true;
                let is_whole = value.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0);
                require(is_whole, "a whole number", &format!("{name} {value}"))?;
            }
        }
        if let Some(value) = attributes.get("updated_at") {
            any = true;
            let expected = "seconds since 1970 as a number, so that it can be compared";
            require(value.is_number(), expected, &format!("updated_at {value}"))?;
        }
    }
    if any {
        Ok(Verdict::Kept)
    } else {
        Ok(Verdict::NotOffered("no result has one"))
    }
}

async fn limit_holds(subject: &Subject) -> Checked {
    let answer = subject.search(json!({ "max_num_results": 1 })).await?;
    let found = list(&answer)?.len();
    require(found == 1, "one result", &found)?;
    Ok(Verdict::Kept)
}

async fn nothing_is_a_list(subject: &Subject) -> Checked {
    let query = json!({ "query": "qxzvjkw qxzvjkw" });
    list(&subject.search(query).await?)?;
    Ok(Verdict::Kept)
}

fn comparison(operator: &str, key: &str, value: &Value) -> Value {
    json!({ "type": operator, "key": key, "value": value })
}

async fn filters_fail_closed(subject: &Subject) -> Checked {
    let nothing = comparison("eq", "domain", &json!("raglan-no-such-domain"));
    let answer = subject.search(json!({ "filters": nothing })).await?;
    if is_refusal(answer.0) {
        return Ok(Verdict::NotOffered("filters are refused"));
    }
    let found = list(&answer)?.len();
    require(found == 0, "no result", &format!("{found} results"))?;
    Ok(Verdict::Kept)
}

/// An attribute of a result, text or number, with a value to compare with: a reserved one if there is
/// one, because servers add others that filters do not know.
fn comparable(hits: &[Value], is_wanted: fn(&Value) -> bool) -> Option<(String, Value)> {
    let reserved = ["domain", "doc_type", "lang", "title", "updated_at", "page"];
    let of_hits = |accepts: &dyn Fn(&str) -> bool| {
        hits.iter().find_map(|hit| {
            let mut attributes = hit["attributes"].as_object()?.iter();
            let (key, value) = attributes.find(|(key, value)| accepts(key) && is_wanted(value))?;
            Some((key.clone(), value.clone()))
        })
    };
    of_hits(&|key| reserved.contains(&key)).or_else(|| of_hits(&|_| true))
}

async fn comparisons_hold(subject: &Subject) -> Checked {
    let found = hits(subject).await?;
    let text = comparable(&found, Value::is_string);
    let number = comparable(&found, Value::is_number);
    let mut checked = 0;
    for (operator, operand) in [
        ("eq", &text),
        ("ne", &text),
        ("in", &text),
        ("nin", &text),
        ("eq", &number),
        ("gt", &number),
        ("gte", &number),
        ("lt", &number),
        ("lte", &number),
    ] {
        let Some((key, value)) = operand else {
            continue;
        };
        let operand = match operator {
            "in" | "nin" => json!([value, "raglan-no-such-value"]),
            _ => value.clone(),
        };
        let filter = comparison(operator, key, &operand);
        let answer = subject.search(json!({ "filters": filter })).await?;
        if is_refusal(answer.0) {
            continue;
        }
        checked += 1;
        let results = list(&answer)?;
        let includes_itself = matches!(operator, "eq" | "in" | "gte" | "lte");
        require(
            !includes_itself || !results.is_empty(),
            "the result that has the value",
            &format!("none for {filter}"),
        )?;
        for hit in results {
            let held = &hit["attributes"][key];
            require(
                satisfies(operator, held, value),
                "only results that satisfy it",
                &format!("{key} {held} for {filter}"),
            )?;
        }
    }
    if checked == 0 {
        Ok(Verdict::NotOffered(
            "no result has an attribute, or filters are refused",
        ))
    } else {
        Ok(Verdict::Kept)
    }
}

fn satisfies(operator: &str, held: &Value, value: &Value) -> bool {
    let order = match (held, value) {
        (Value::String(held), Value::String(value)) => Some(held.cmp(value)),
        _ => held
            .as_f64()
            .zip(value.as_f64())
            .and_then(|(held, value)| held.partial_cmp(&value)),
    };
    match operator {
        "eq" | "in" => order == Some(Ordering::Equal),
        "ne" | "nin" => order != Some(Ordering::Equal),
        "gt" => order == Some(Ordering::Greater),
        "gte" => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        "lt" => order == Some(Ordering::Less),
        _ => matches!(order, Some(Ordering::Less | Ordering::Equal)),
    }
}

async fn and_holds(subject: &Subject) -> Checked {
    let found = hits(subject).await?;
    let Some((key, value)) = comparable(&found, Value::is_string) else {
        return Ok(Verdict::NotOffered("no result has an attribute"));
    };
    let filter = json!({ "type": "and", "filters": [
        comparison("eq", &key, &value),
        comparison("eq", &key, &json!("raglan-no-such-value")),
    ] });
    let answer = subject.search(json!({ "filters": filter })).await?;
    if is_refusal(answer.0) {
        return Ok(Verdict::NotOffered("`and` is refused"));
    }
    let found = list(&answer)?.len();
    require(found == 0, "no result", &format!("{found} results"))?;
    Ok(Verdict::Kept)
}

async fn unknown_comparison(subject: &Subject) -> Checked {
    let filter = comparison("resembles", "domain", &json!("x"));
    let answer = subject.search(json!({ "filters": filter })).await?;
    require(is_refusal(answer.0), "400 or 422", &seen(&answer))?;
    Ok(Verdict::Kept)
}

async fn chinese_is_answered(subject: &Subject) -> Checked {
    list(&subject.search(json!({ "query": "年假有多少天" })).await?)?;
    Ok(Verdict::Kept)
}

async fn files_are_paged(subject: &Subject) -> Checked {
    let mut ids: Vec<String> = Vec::new();
    let mut path = "/files?limit=2&order=asc".to_owned();
    // Enough to see that pages follow each other.
    for _ in 0..5 {
        let answer = subject.of_store(&path).await?;
        for file in list(&answer)? {
            let id = file["id"].as_str().unwrap_or_default();
            require(!id.is_empty(), "an id", file)?;
            require(!ids.iter().any(|known| known == id), "each file once", file)?;
            let status = file["status"].as_str().unwrap_or_default();
            let known = ["in_progress", "completed", "failed", "cancelled"];
            require(known.contains(&status), "a status", file)?;
            ids.push(id.to_owned());
        }
        let length = list(&answer)?.len();
        require(length <= 2, "at most two files", &length)?;
        if answer.1["has_more"] != true {
            break;
        }
        let last = ids.last().map(String::as_str).unwrap_or_default();
        path = format!("/files?limit=2&order=asc&after={last}");
    }
    require(!ids.is_empty(), "a file", &"none")?;
    Ok(Verdict::Kept)
}

async fn content_is_whole(subject: &Subject) -> Checked {
    let first = hits(subject).await?.swap_remove(0);
    let of_attributes = first["attributes"]["file_id"].as_str();
    let id = of_attributes.or_else(|| first["file_id"].as_str());
    let id = id.unwrap_or_default();
    let answer = subject.of_store(&format!("/files/{id}/content")).await?;
    if answer.0 == 404 {
        return Ok(Verdict::NotOffered("there is no such route"));
    }
    let parts = list(&answer)?;
    let is_text = |part: &Value| part["text"].is_string();
    require(parts.iter().all(is_text), "a list of texts", &seen(&answer))?;
    require(answer.1["has_more"] != true, "the whole text", &"has_more")?;
    let unknown = subject
        .of_store("/files/raglan-no-such-file/content")
        .await?;
    let is_empty = unknown.0 == 200 && list(&unknown)?.is_empty();
    let expected = "404 (or no text at all) for an unknown file";
    require(is_missing(&unknown) || is_empty, expected, &seen(&unknown))?;
    Ok(Verdict::Kept)
}

async fn unknown_batch(subject: &Subject) -> Checked {
    let answer = subject
        .of_store("/file_batches/raglan-no-such-batch")
        .await?;
    require(is_missing(&answer), "404", &seen(&answer))?;
    Ok(Verdict::Kept)
}

async fn adapter_works(subject: &Subject) -> Checked {
    let call = EngineCall::within(Duration::from_secs(20));
    let (adapter, store) = (&subject.adapter, subject.store.as_str());
    let request = RetrieveRequest {
        query: subject.query.clone(),
        top_k: 5,
        min_score: None,
        filters: Filters::default(),
    };
    let say = |error: BackendError| error.to_string();
    let found = adapter
        .retrieve(store, &request, &call)
        .await
        .map_err(say)?;
    require(!found.passages.is_empty(), "passages", &"none")?;
    adapter.describe(store, &call).await.map_err(say)?;
    let documents = adapter.list_documents(store, None, 10, &call).await;
    let documents = documents.map_err(say)?.documents;
    require(!documents.is_empty(), "documents", &"none")?;
    let known = adapter.list_knowledge_bases(None, 100, &call).await;
    let known = known.map_err(say)?.knowledge_bases;
    let is_there = known.iter().any(|one| one.id == subject.store);
    require(is_there, "the vector store among the listed", &known.len())?;
    let document = &found.passages[0].document_id;
    match adapter.read_document(store, document, &call).await {
        Ok(Some(_)) | Err(BackendError::Unsupported(_)) => Ok(Verdict::Kept),
        Ok(None) => Err(format!("expected the document {document}; saw none")),
        Err(error) => Err(say(error)),
    }
}
