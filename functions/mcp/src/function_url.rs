//! Events and answers of a function URL (AWS Lambda Developer Guide, "Request and response payloads";
//! the same as version 2.0 of API Gateway's HTTP APIs). Of an event only what somebody reads is
//! taken out.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use raglan_core::json_text::push_escaped;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, de};

use crate::reply::Reply;

/// An HTTP request as the function is told of it.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Payload")]
pub struct Event {
    /// The request, without its query, which nobody reads. A path that cannot be one leads nowhere.
    pub request: Request<Bytes>,
    /// The address that the request came from.
    pub source_ip: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    #[serde(default)]
    raw_path: Option<String>,
    #[serde(default)]
    headers: Headers,
    request_context: RequestContext,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Deserialize)]
struct RequestContext {
    http: Http,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Http {
    #[serde(deserialize_with = "method")]
    method: Method,
    #[serde(default)]
    source_ip: Option<String>,
}

/// The body is not the base64 that the event says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is no base64")]
struct InvalidBody;

impl TryFrom<Payload> for Event {
    type Error = InvalidBody;

    fn try_from(payload: Payload) -> Result<Self, InvalidBody> {
        let body = payload.body.unwrap_or_default();
        let body = if payload.is_base64_encoded {
            STANDARD.decode(body).map_err(|_| InvalidBody)?
        } else {
            body.into_bytes()
        };
        let mut request = Request::new(Bytes::from(body));
        let http = payload.request_context.http;
        *request.method_mut() = http.method;
        *request.headers_mut() = payload.headers.0;
        let path = payload.raw_path.unwrap_or_default();
        *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
        Ok(Self {
            request,
            source_ip: http.source_ip,
        })
    }
}

fn method<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
    let name = Text::deserialize(deserializer)?;
    Method::from_bytes(name.0.as_bytes()).map_err(D::Error::custom)
}

/// A text that is only copied when it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Names are in lower case, and a header that came twice is there once, with a comma inside.
#[derive(Debug, Default)]
struct Headers(HeaderMap);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("headers by their names")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Headers, E> {
        Ok(Headers::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Headers, A::Error> {
        let mut headers = HeaderMap::with_capacity(16);
        while let Some((name, value)) = access.next_entry::<Text<'_>, Text<'_>>()? {
            let name = HeaderName::from_bytes(name.0.as_bytes()).map_err(A::Error::custom)?;
            let value = HeaderValue::from_bytes(value.0.as_bytes()).map_err(A::Error::custom)?;
            headers.insert(name, value);
        }
        Ok(Headers(headers))
    }
}

/// The answer as the function URL wants it: JSON with the body as a text inside.
#[must_use]
pub fn written(reply: &Reply) -> Vec<u8> {
    let mut answer = Vec::with_capacity(1024);
    answer.extend_from_slice(br#"{"statusCode":"#);
    answer.extend_from_slice(reply.status().as_str().as_bytes());
    answer.extend_from_slice(br#","headers":{"#);
    let mut separator: &[u8] = b"\"";
    for (name, value) in reply.headers() {
        // Every header of ours is text.
        let Ok(value) = value.to_str() else { continue };
        answer.extend_from_slice(separator);
        answer.extend_from_slice(name.as_str().as_bytes());
        answer.extend_from_slice(br#"":""#);
        push_escaped(&mut answer, value.as_bytes());
        answer.push(b'"');
        separator = b",\"";
    }
    answer.push(b'}');
    if !reply.body().is_empty() {
        answer.extend_from_slice(br#","body":""#);
        reply.body().write_escaped(&mut answer);
        answer.push(b'"');
    }
    // `cargo lambda watch` insists on the cookies.
    answer.extend_from_slice(br#","isBase64Encoded":false,"cookies":[]}"#);
    answer
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::json_body::JsonBody;

    fn event(change: impl FnOnce(&mut Value)) -> Result<Event, serde_json::Error> {
        let mut event = json!({
            "version": "2.0", "routeKey": "$default", "rawPath": "/mcp", "rawQueryString": "a=b",
            "headers": { "host": "a.example", "content-type": "application/json" },
            "requestContext": {
                "accountId": "anonymous", "authorizer": { "iam": {} },
                "http": { "method": "POST", "path": "/mcp", "sourceIp": "203.0.113.9" }
            },
            "body": "{\"a\":\"知识\"}", "isBase64Encoded": false
        });
        change(&mut event);
        serde_json::from_str(&event.to_string())
    }

    #[test]
    fn an_event_becomes_the_request_that_it_tells_of() {
        let event = event(|_| {}).unwrap();
        assert_eq!(event.source_ip.as_deref(), Some("203.0.113.9"));
        assert_eq!(*event.request.method(), Method::POST);
        assert_eq!(event.request.uri().path(), "/mcp");
        assert_eq!(event.request.headers()["content-type"], "application/json");
        assert_eq!(*event.request.body(), "{\"a\":\"知识\"}".as_bytes());
    }

    #[test]
    fn what_may_be_absent_may_be_null() {
        for field in ["headers", "body", "rawPath"] {
            assert!(event(|event| event[field] = Value::Null).is_ok(), "{field}");
            let absent = event(|event| {
                event.as_object_mut().unwrap().remove(field);
            });
            assert!(absent.is_ok(), "{field}");
        }
    }

    #[test]
    fn a_path_that_is_none_is_not_the_endpoint() {
        for path in ["", "no path", "\u{0}", "http://"] {
            let event = event(|event| event["rawPath"] = path.into()).unwrap();
            assert_ne!(event.request.uri().path(), "/mcp", "{path}");
        }
    }

    #[test]
    fn a_body_that_is_not_the_base64_it_claims_to_be_is_no_event() {
        let body = |text: &str| {
            event(|event| {
                event["isBase64Encoded"] = true.into();
                event["body"] = text.into();
            })
        };
        assert_eq!(body("e30=").unwrap().request.body(), "{}");
        let error = body("e30").unwrap_err();
        assert_eq!(error.to_string(), InvalidBody.to_string());
    }

    #[test]
    fn an_event_of_another_kind_is_none() {
        assert!(serde_json::from_str::<Event>(r#"{"Records":[]}"#).is_err());
        let control = event(|event| event["headers"]["x"] = "a\nb".into());
        assert!(control.is_err());
    }

    #[test]
    fn an_answer_without_a_body_has_none() {
        let mut reply = Response::new(JsonBody::default());
        *reply.status_mut() = StatusCode::ACCEPTED;
        let written: Value = serde_json::from_slice(&written(&reply)).unwrap();
        assert_eq!(
            written,
            json!({ "statusCode": 202, "headers": {}, "isBase64Encoded": false, "cookies": [] })
        );
    }

    proptest! {
        #[test]
        fn whatever_stands_in_an_answer_it_is_json(
            body in any::<String>(), value in "[ -~]{0,40}", status in 200_u16..600,
        ) {
            let mut reply = Response::new(JsonBody::from(Bytes::from(body.clone())));
            *reply.status_mut() = StatusCode::from_u16(status).unwrap();
            for name in ["one", "two"] {
                reply.headers_mut().insert(name, value.parse().unwrap());
            }
            let written: Value = serde_json::from_slice(&written(&reply)).unwrap();
            prop_assert_eq!(&written["statusCode"], status);
            prop_assert_eq!(&written["headers"], &json!({ "one": value.clone(), "two": value }));
            prop_assert_eq!(written["body"].as_str().unwrap_or_default(), body);
        }
    }
}
