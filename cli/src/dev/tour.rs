//! A first look: real calls over HTTP, with their answers shown, each checked for what it should be.

use anyhow::{Context as _, ensure};
use http::StatusCode;
use raglan_core::key::PlainKey;
use serde_json::{Value, json};

use super::Indexed;
use crate::http_client::JsonClient;
use crate::language::text;
use crate::terminal::say;

/// What the sample is asked.
const SAMPLE_QUERY: &str = "torque of the hinge bolt";
const SAMPLE_QUESTIONS: [&str; 2] = [
    "How long can the old key stay valid after a rotation?",
    "成都员工入职满一年有多少天年假？",
];
/// Longest piece of a passage that is shown.
const EXCERPT_CHARS: usize = 160;

/// Calls that show that everything works.
pub struct Tour<'a> {
    /// Sends them.
    pub client: JsonClient,
    /// The MCP endpoint.
    pub url: &'a str,
    /// The key.
    pub key: &'a PlainKey,
    /// The knowledge base that is asked.
    pub indexed: Indexed,
}

impl Tour<'_> {
    /// Makes the calls, shows the answers, and returns how many rows they leave in the audit trail.
    ///
    /// # Errors
    /// The first answer that is not what it should be.
    pub async fn take(&self) -> anyhow::Result<usize> {
        let sample = self.indexed.is_sample;
        let query = if sample {
            SAMPLE_QUERY.to_owned()
        } else {
            self.first_title().await?
        };
        let mut calls = usize::from(!sample);
        self.retrieve(&query).await?;
        calls += 1;
        let own = [query.as_str()];
        for question in if sample {
            &SAMPLE_QUESTIONS[..]
        } else {
            &own[..]
        } {
            self.ask(question, sample).await?;
            calls += 1;
        }
        self.be_refused().await?;
        Ok(calls + 1)
    }

    async fn first_title(&self) -> anyhow::Result<String> {
        let documents = self.call("list_documents", json!({ "limit": 200 })).await?;
        let items = documents["items"].as_array().into_iter().flatten();
        // One that could not be read is listed too, but cannot be found.
        let mut indexed = items.filter(|document| document["status"] == "indexed");
        let title = indexed.find_map(|document| document["title"].as_str());
        Ok(title
            .context(text!("the knowledge base has no documents"))?
            .to_owned())
    }

    async fn retrieve(&self, query: &str) -> anyhow::Result<()> {
        say(format_args!("\nretrieve  {query}"));
        let arguments = json!({ "query": query, "kb_id": self.indexed.kb_id, "top_k": 3 });
        let result = self.call("retrieve", arguments).await?;
        let items = result["items"]
            .as_array()
            .context(text!("the answer has no items"))?;
        ensure!(
            !items.is_empty(),
            text!(
                "nothing was found for {query}",
                query = format_args!("{:?}", query)
            )
        );
        for item in items {
            let metadata = &item["metadata"];
            let page = metadata["page"]
                .as_u64()
                .map(|page| text!(", page {page}", page));
            say(text!(
                "  {rank}. {title} ({filename}{page}), score {score}",
                rank = item["rank"],
                title = text(&metadata["title"]),
                filename = text(&metadata["filename"]),
                page = page.unwrap_or_default(),
                score = format_args!("{:.2}", item["score"].as_f64().unwrap_or_default())
            ));
            say(format_args!("     {}", excerpt(text(&item["content"]))));
        }
        Ok(())
    }

    async fn ask(&self, question: &str, must_be_grounded: bool) -> anyhow::Result<()> {
        say(format_args!("\nask       {question}"));
        let arguments = json!({ "question": question, "kb_id": self.indexed.kb_id });
        let result = self.call("ask", arguments).await?;
        let grounded = result["grounded"] == true;
        ensure!(
            grounded || !must_be_grounded,
            text!(
                "{question} was not answered: {result}",
                question = format_args!("{:?}", question),
                result
            )
        );
        say(format_args!(
            "  {}",
            if grounded {
                text(&result["answer"])
            } else {
                text(&result["hint"])
            }
        ));
        for source in result["sources"].as_array().into_iter().flatten() {
            let section = source["section"]
                .as_str()
                .map(|section| format!(", {section}"));
            say(format_args!(
                "  [{}] {} ({}{})",
                source["n"],
                text(&source["title"]),
                text(&source["filename"]),
                section.unwrap_or_default()
            ));
        }
        Ok(())
    }

    /// A key that looks right and is not known.
    async fn be_refused(&self) -> anyhow::Result<()> {
        let body = request("retrieve", &json!({ "query": "x" }));
        let stranger = "not-a-key-of-this-system";
        let (status, answer) = self.client.post(self.url, Some(stranger), &body).await?;
        ensure!(
            status == StatusCode::UNAUTHORIZED,
            text!("a foreign key was answered with {status}", status)
        );
        say(text!(
            "\nretrieve  with an unknown key\n  {status}: {message}",
            status,
            message = text(&answer["message"])
        ));
        Ok(())
    }

    async fn call(&self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let body = request(tool, &arguments);
        let (status, answer) = self
            .client
            .post(self.url, Some(self.key.reveal()), &body)
            .await?;
        ensure!(
            status == StatusCode::OK,
            text!(
                "{tool} was answered with {status}: {answer}",
                tool,
                status,
                answer
            )
        );
        let result = &answer["result"];
        ensure!(
            result.is_object() && result["isError"] != true,
            "{tool} failed: {answer}"
        );
        Ok(result["structuredContent"].clone())
    }
}

fn request(tool: &str, arguments: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments }
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The beginning of a passage on one line, without the envelope around it.
fn excerpt(content: &str) -> String {
    // The envelope is two lines before the text and one after it.
    let mut lines: Vec<&str> = content.lines().skip(2).map(str::trim).collect();
    lines.pop();
    let line = lines.join(" ");
    match line.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
