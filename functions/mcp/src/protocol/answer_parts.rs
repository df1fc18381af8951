//! The large parts of an answer. The library decides about every answer and writes it, but with empty
//! places for these parts: they are the same in many answers, or stand in one answer several times,
//! and are written only once. They are put in behind the library.

use std::sync::OnceLock;

use bytes::Bytes;
use memchr::memmem;

use crate::json_body::{JsonBody, PreparedJson};

/// The empty places, as the library writes them. No text of a caller looks like one: its quotes are
/// escaped. The last byte closes the place.
const TOOLS: &str = r#""tools":[]"#;
const TEXT: &str = r#""text":"""#;
const STRUCTURED_CONTENT: &str = r#""structuredContent":{}"#;

/// The parts of the answer to one request, as soon as a handler has made them.
#[derive(Debug, Default)]
pub struct AnswerParts {
    parts: OnceLock<Vec<(&'static str, JsonBody)>>,
}

impl AnswerParts {
    /// The tools of a list that the library sees as an empty one.
    pub fn set_tools(&self, tools: impl Iterator<Item = PreparedJson>) {
        let mut list = JsonBody::default();
        for tool in tools {
            if !list.is_empty() {
                list.push(Bytes::from_static(b","));
            }
            list.push_prepared(tool);
        }
        self.set(vec![(TOOLS, list)]);
    }

    /// The JSON object of a tool's result: its structured content, and as text for clients that read
    /// nothing else. The library sees an empty text and an empty object.
    pub fn set_tool_result(&self, object: String) {
        let object = PreparedJson::new(object.into());
        let mut text = JsonBody::default();
        text.push(object.escaped().clone());
        let mut members = JsonBody::default();
        members.push_prepared(object.without_ends());
        self.set(vec![(TEXT, text), (STRUCTURED_CONTENT, members)]);
    }

    fn set(&self, parts: Vec<(&'static str, JsonBody)>) {
        // A request has one handler.
        let _ = self.parts.set(parts);
    }

    /// The answer with the parts in their places; `None` when it has no place for one of them.
    #[must_use]
    pub fn put_into(&self, answer: &Bytes) -> Option<JsonBody> {
        let mut body = JsonBody::default();
        let mut done = 0;
        for (place, part) in self.parts.get().into_iter().flatten() {
            let found = memmem::find(&answer[done..], place.as_bytes())?;
            let end = done + found + place.len() - 1;
            body.push(answer.slice(done..end));
            body.append(part.clone());
            done = end;
        }
        body.push(answer.slice(done..));
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        CallToolResult, ContentBlock, JsonRpcMessage, ListToolsResult, NumberOrString,
    };
    use serde::Serialize;
    use serde_json::{Map, Value, json};

    use super::*;

    /// As the library writes it, for a caller whose id looks like every place.
    fn written(result: impl Serialize) -> Bytes {
        let id = NumberOrString::String(format!("{TOOLS}{TEXT}{STRUCTURED_CONTENT}").into());
        let message = JsonRpcMessage::<(), _, ()>::response(result, id);
        serde_json::to_vec(&message).unwrap().into()
    }

    #[test]
    fn a_list_of_tools_is_what_the_library_would_have_written() {
        let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        let (one, two) = (tool("one \"\\\n"), tool("two"));
        let parts = AnswerParts::default();
        parts.set_tools(
            [&one, &two]
                .into_iter()
                .map(|tool| PreparedJson::new(tool.to_string().into())),
        );
        let empty = written(ListToolsResult::with_all_items(Vec::new()));
        let tools = serde_json::from_value(json!([one, two])).unwrap();
        let whole = written(ListToolsResult::with_all_items(tools));
        assert_eq!(parts.put_into(&empty).unwrap().into_bytes(), whole);
    }

    #[test]
    fn a_tools_result_is_what_the_library_would_have_written() {
        for object in [
            json!({}),
            json!({ "a": "\"text\":\"\" \\ 知识", "b": [1, {}] }),
        ] {
            let result = |text: String, object: Value| {
                let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
                result.structured_content = Some(object);
                written(result)
            };
            let parts = AnswerParts::default();
            parts.set_tool_result(object.to_string());
            let empty = result(String::new(), Map::new().into());
            let whole = result(object.to_string(), object);
            assert_eq!(parts.put_into(&empty).unwrap().into_bytes(), whole);
        }
    }

    #[test]
    fn an_answer_without_a_place_for_a_part_is_none() {
        let answer = Bytes::from_static(b"{\"result\":{}}");
        let parts = AnswerParts::default();
        assert_eq!(parts.put_into(&answer).unwrap().into_bytes(), answer);
        parts.set_tools(std::iter::empty());
        assert!(parts.put_into(&answer).is_none());
    }
}
