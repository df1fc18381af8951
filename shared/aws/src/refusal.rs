//! What a service says when it refuses.

use http::HeaderName;
use serde::Deserialize;

/// The services with resources in their paths say the code in this header, the others in the body.
pub(crate) const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// A refusal in JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `ThrottlingException`
    pub code: Option<String>,
    /// A sentence for people.
    pub message: Option<String>,
}

#[derive(Default, Deserialize)]
struct Body {
    #[serde(rename = "__type")]
    kind: Option<String>,
    code: Option<String>,
    #[serde(alias = "Message")]
    message: Option<String>,
}

impl Refusal {
    /// Reads the header, if there is one, and the body; what is not as usual says nothing.
    pub fn read(error_type: Option<&str>, body: &[u8]) -> Self {
        let body: Body = serde_json::from_slice(body).unwrap_or_default();
        let code = error_type.map(ToOwned::to_owned);
        Self {
            code: code
                .or(body.kind)
                .or(body.code)
                .map(|code| name_of(&code).to_owned()),
            message: body.message,
        }
    }
}

/// `com.amazonaws.dynamodb.v20120810#ThrottlingException:http://…` → `ThrottlingException`
fn name_of(code: &str) -> &str {
    let name = code.rsplit('#').next().unwrap_or(code);
    name.split(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_in_the_header_or_in_the_body_and_comes_without_its_surroundings() {
        let code = |header: Option<&str>, body: &str| {
            let refusal = Refusal::read(header, body.as_bytes());
            (refusal.code, refusal.message)
        };
        let told = |code: &str, message: &str| (Some(code.to_owned()), Some(message.to_owned()));
        assert_eq!(
            code(None, r#"{"__type":"com.amazon.x#Busy","Message":"m"}"#),
            told("Busy", "m")
        );
        assert_eq!(
            code(Some("Busy:http://internal/"), r#"{"message":"m"}"#),
            told("Busy", "m")
        );
        assert_eq!(
            code(None, r#"{"code":"Busy","message":"m"}"#),
            told("Busy", "m")
        );
        assert_eq!(code(None, "<html>"), (None, None));
    }
}
