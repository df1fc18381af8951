//! The server behind `main.rs` and behind the contract's own test.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The only vector store.
const STORE: &str = "vs_handbook";
/// When everything here was made.
const CREATED_AT: u64 = 1_796_000_000;
const REQUEST_MAX_BYTES: usize = 64 * 1024;

/// Answers with a status and JSON.
type Answer = (StatusCode, Value);

/// Serves until the process ends.
///
/// # Errors
/// When no connection can be accepted any more.
pub async fn serve(listener: TcpListener, token: Option<String>) -> io::Result<()> {
    let token = Arc::new(token.map(|token| format!("Bearer {token}")));
    loop {
        let (stream, _) = listener.accept().await?;
        let token = Arc::clone(&token);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let token = Arc::clone(&token);
                async move {
                    let (status, body) = answer(request, token.as_deref()).await;
                    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
                    *response.status_mut() = status;
                    let json = http::HeaderValue::from_static("application/json");
                    response.headers_mut().insert("content-type", json);
                    Ok::<_, Infallible>(response)
                }
            });
            // A client that goes away is no fault of ours.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>, token: Option<&str>) -> Answer {
    let sent = request.headers().get("authorization");
    if token.is_some() && sent.and_then(|value| value.to_str().ok()) != token {
        return error(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
    }
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_start_matches("/v1/").to_owned();
    let query = parts.uri.query().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    match (&parts.method, segments.as_slice()) {
        (&Method::GET, ["vector_stores"]) => page(&[store()], query),
        (_, ["vector_stores", id, ..]) if *id != STORE => missing("vector store"),
        (&Method::GET, ["vector_stores", _]) => (StatusCode::OK, store()),
        (&Method::POST, ["vector_stores", _, "search"]) => {
            let body = Limited::new(body, REQUEST_MAX_BYTES).collect().await;
            let body = body.ok().map(http_body_util::Collected::to_bytes);
            match body.and_then(|body| serde_json::from_slice(&body).ok()) {
                Some(body) => search(&body),
                None => error(StatusCode::BAD_REQUEST, "the body is no JSON"),
            }
        }
        (&Method::GET, ["vector_stores", _, "files"]) => {
            let files: Vec<Value> = documents().iter().map(file).collect();
            page(&files, query)
        }
        (&Method::GET, ["vector_stores", _, "files", id, rest @ ..]) => {
            let documents = documents();
            let found = documents.iter().find(|document| document["id"] == *id);
            match (found, rest) {
                (Some(document), []) => (StatusCode::OK, file(document)),
                (Some(document), ["content"]) => {
                    let text = json!({ "type": "text", "text": document["text"] });
                    let page = json!({ "object": "vector_store.file_content.page",
                        "data": [text], "has_more": false, "next_page": null });
                    (StatusCode::OK, page)
                }
                _ => missing("file"),
            }
        }
        _ => missing("route"),
    }
}

fn error(status: StatusCode, message: &str) -> Answer {
    (status, json!({ "error": { "message": message } }))
}

fn missing(what: &str) -> Answer {
    error(StatusCode::NOT_FOUND, &format!("there is no such {what}"))
}

/// A list in pages: `limit` elements behind the one that `after` names.
fn page(all: &[Value], query: &str) -> Answer {
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let limit = parameter("limit").and_then(|text| text.parse().ok());
    let limit: usize = limit.unwrap_or(20);
    let start = parameter("after").map_or(0, |after| {
        let found = all.iter().position(|element| element["id"] == after);
        found.map_or(all.len(), |index| index + 1)
    });
    let data: Vec<&Value> = all.iter().skip(start).take(limit).collect();
    let id = |element: Option<&&Value>| element.map(|element| element["id"].clone());
    let list = json!({ "object": "list", "data": data,
        "first_id": id(data.first()), "last_id": id(data.last()),
        "has_more": start + data.len() < all.len() });
    (StatusCode::OK, list)
}

fn store() -> Value {
    let count = documents().len();
    json!({ "id": STORE, "object": "vector_store", "name": "Handbook", "created_at": CREATED_AT,
        "status": "completed", "usage_bytes": 4096, "metadata": {},
        "file_counts": { "completed": count, "failed": 0, "in_progress": 0, "cancelled": 0,
                         "total": count } })
}

fn file(document: &Value) -> Value {
    json!({ "id": document["id"], "object": "vector_store.file", "vector_store_id": STORE,
        "created_at": CREATED_AT, "status": "completed", "last_error": null,
        "usage_bytes": document["text"].as_str().map_or(0, str::len),
        "attributes": document["attributes"] })
}

fn search(request: &Value) -> Answer {
    let Some(query) = request["query"].as_str().filter(|query| !query.is_empty()) else {
        return error(StatusCode::BAD_REQUEST, "query is missing");
    };
    let terms = terms(query);
    let limit = request["max_num_results"].as_u64().unwrap_or(10);
    if !(1..=50).contains(&limit) {
        return error(StatusCode::BAD_REQUEST, "max_num_results is 1 to 50");
    }
    let mut hits = Vec::new();
    for document in documents() {
        match holds(&request["filters"], &document["attributes"]) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(message) => return error(StatusCode::BAD_REQUEST, &message),
        }
        let text = document["text"].as_str().unwrap_or_default().to_lowercase();
        let shared = terms.iter().filter(|term| text.contains(term.as_str()));
        let (shared, all) = (shared.count(), terms.len().max(1));
        if shared > 0 {
            // Hundredths, which are the same wherever they are read.
            hits.push((100 * shared / all, document));
        }
    }
    hits.sort_by(|(a, _), (b, _)| b.cmp(a));
    let data: Vec<Value> = hits
        .iter()
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|(hundredths, document)| {
            json!({ "file_id": document["id"], "filename": document["filename"],
                "score": f64::from(u32::try_from(*hundredths).unwrap_or(100)) / 100.0,
                "attributes": document["attributes"],
                "content": [{ "type": "text", "text": document["text"] }] })
        })
        .collect();
    let page = json!({ "object": "vector_store.search_results.page", "search_query": [query],
        "data": data, "has_more": false, "next_page": null });
    (StatusCode::OK, page)
}

/// Words in lower case, and each Chinese character.
fn terms(query: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for word in query.to_lowercase().split(|c: char| !c.is_alphanumeric()) {
        if word.is_ascii() {
            terms.extend((!word.is_empty()).then(|| word.to_owned()));
        } else {
            terms.extend(word.chars().map(String::from));
        }
    }
    terms
}

/// Whether attributes satisfy a filter. What is not understood is an error: a filter that is left out
/// would show documents that nobody asked for.
fn holds(filter: &Value, attributes: &Value) -> Result<bool, String> {
    if filter.is_null() {
        return Ok(true);
    }
    let operator = filter["type"].as_str().unwrap_or_default();
    if let ("and" | "or", Some(inner)) = (operator, filter["filters"].as_array()) {
        let mut each = Vec::new();
        for filter in inner {
            each.push(holds(filter, attributes)?);
        }
        let all = operator == "and";
        return Ok(if all {
            each.iter().all(|holds| *holds)
        } else {
            each.iter().any(|holds| *holds)
        });
    }
    let Some(key) = filter["key"].as_str() else {
        return Err("a filter without key".to_owned());
    };
    let (held, wanted) = (&attributes[key], &filter["value"]);
    let listed = || wanted.as_array().is_some_and(|list| list.contains(held));
    let compare = || match (held, wanted) {
        (Value::String(held), Value::String(wanted)) => held.partial_cmp(wanted),
        _ => held.as_f64()?.partial_cmp(&wanted.as_f64()?),
    };
    let ordered = |fits: fn(std::cmp::Ordering) -> bool| compare().is_some_and(fits);
    Ok(match operator {
        "eq" => held == wanted,
        "ne" => held != wanted,
        "in" => listed(),
        "nin" => !listed(),
        "gt" => ordered(std::cmp::Ordering::is_gt),
        "gte" => ordered(std::cmp::Ordering::is_ge),
        "lt" => ordered(std::cmp::Ordering::is_lt),
        "lte" => ordered(std::cmp::Ordering::is_le),
        _ => return Err(format!("the filter type {operator:?} is not known")),
    })
}

fn documents() -> Vec<Value> {
    let document = |id: &str, title: &str, day: u64, domain: &str, lang: &str, text: &str| {
        json!({ "id": id, "filename": format!("{id}.md"), "text": text, "attributes": {
            "title": title, "uri": format!("https://wiki.example/{id}"), "page": 1,
            "chunk_index": 0, "updated_at": CREATED_AT + day * 86_400,
            "doc_type": "policy", "domain": domain, "lang": lang } })
    };
    vec![
        document(
            "leave",
            "Annual leave",
            0,
            "hr",
            "en",
            "Every employee has thirty days of annual leave. Leave is asked for in advance.",
        ),
        document(
            "sick-leave",
            "Sick leave",
            1,
            "hr",
            "en",
            "Whoever is ill calls in on the first day. Sick leave is paid for six weeks.",
        ),
        document(
            "travel",
            "Travel",
            2,
            "finance",
            "en",
            "Travel is booked by the travel desk. Leave time between two flights.",
        ),
        document(
            "passwords",
            "Passwords",
            3,
            "it",
            "en",
            "Passwords are kept in the password manager and never sent by mail.",
        ),
        document(
            "nianjia",
            "年假",
            4,
            "hr",
            "zh",
            "每位员工每年有三十天年假。年假须提前申请。",
        ),
    ]
}
