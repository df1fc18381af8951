//! How the words of callers are written down: as they are, as keyed hashes, or not at all.
//!
//! Whatever is not known to be an identifier or a number of the protocol is taken for free text: the
//! names of the arguments are ours, so an argument of another name may hold anything, its name included.

use std::borrow::Cow;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::Sha256;

use super::cut_at_characters;
use crate::redact::masked;

/// What becomes of free text: queries, questions, filter values, and what callers invent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextPolicy {
    /// It is kept. Credentials, card numbers and e-mail addresses in it are hidden.
    #[default]
    Plain,
    /// A keyed hash is kept: equal texts can be found, and nobody can read them.
    Hash,
    /// It is not kept. Also what a word is taken for that this version does not know.
    #[serde(other)]
    Drop,
}

impl TextPolicy {
    /// Every policy, from the most to the least that is kept.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Hash, Self::Drop];

    /// The name in settings and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Hash => "hash",
            Self::Drop => "drop",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// The key of the hashes. It cannot be printed.
#[derive(Clone)]
pub struct TextHashKey([u8; 32]);

impl TextHashKey {
    /// A key of its own, made of another secret by HMAC-SHA256 with a label, so that neither says
    /// anything about the other one.
    #[must_use]
    pub fn derived_from(secret: &[u8; 32]) -> Self {
        Self(hmac(secret, b"raglan audit text 1"))
    }

    /// What stands for a text: `hmac:` and 128 bits as hexadecimal digits.
    #[must_use]
    pub fn hash(&self, text: &str) -> String {
        let bytes = hmac(&self.0, text.as_bytes());
        let number = u128::from_be_bytes(std::array::from_fn(|n| bytes[n]));
        format!("{HASH_PREFIX}{number:032x}")
    }
}

impl fmt::Debug for TextHashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextHashKey(secret)")
    }
}

fn hmac(key: &[u8; 32], text: &[u8]) -> [u8; 32] {
    // A key of one block (RFC 2104 §2), padded as HMAC would.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(text);
    mac.finalize().into_bytes().into()
}

const HASH_PREFIX: &str = "hmac:";
const DROPPED: &str = "[dropped]";

/// Arguments whose values are identifiers or numbers, not words.
const IDENTIFIERS: [&str; 13] = [
    "cursor",
    "document_type",
    "domain",
    "idempotency_key",
    "kb_id",
    "limit",
    "min_score",
    "name",
    "session_id",
    "task_id",
    "top_k",
    "updated_after",
    "updated_before",
];
/// The other arguments of ours: their names tell nothing, their values may.
const ARGUMENTS: [&str; 16] = [
    "answer",
    "arguments",
    "eq",
    "filters",
    "gt",
    "gte",
    "history",
    "in",
    "lt",
    "lte",
    "metadata",
    "ne",
    "nin",
    "query",
    "question",
    "uri",
];
/// A longer text is no identifier.
const IDENTIFIER_MAX_BYTES: usize = 128;

/// Writes down what callers send.
#[derive(Debug, Clone)]
pub struct Keeper {
    /// What becomes of free text.
    pub text: TextPolicy,
    /// The parameters as a whole are cut after this many characters.
    pub max_chars: usize,
    /// The key of the hashes.
    pub hash_key: TextHashKey,
}

/// Parameters as they are written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The parameters as JSON text.
    pub text: String,
    /// Whether the text was cut; it ends in `…` then.
    pub cut: bool,
    /// Size of the parameters as JSON, before anything was hidden or cut.
    pub size_bytes: u64,
}

impl Keeper {
    /// The parameters of a call.
    #[must_use]
    pub fn parameters(&self, parameters: &Map<String, Value>) -> Kept {
        let size_bytes = serde_json::to_vec(parameters).map_or(0, |json| json.len() as u64);
        let whole = self.members(parameters).to_string();
        let text = cut_at_characters(&whole, self.max_chars);
        Kept {
            cut: text != whole,
            text,
            size_bytes,
        }
    }

    /// A name that a caller may have invented: of a method, a tool or a prompt.
    #[must_use]
    pub fn name(&self, name: &str, max_chars: usize) -> String {
        cut_at_characters(&self.text(name, true), max_chars)
    }

    /// `identifier`: whether the place where the value stands is one for identifiers and numbers.
    fn value(&self, value: &Value, identifier: bool) -> Value {
        match value {
            Value::Null | Value::Bool(_) => value.clone(),
            Value::Number(number) => {
                let digits = number.to_string();
                if self.text == TextPolicy::Plain || identifier {
                    match masked(&digits) {
                        Cow::Borrowed(_) => value.clone(),
                        Cow::Owned(hidden) => hidden.into(),
                    }
                } else {
                    self.text(&digits, false).into()
                }
            }
            Value::String(text) => self.text(text, identifier).into(),
            Value::Array(values) => values
                .iter()
                .map(|value| self.value(value, identifier))
                .collect(),
            Value::Object(members) => self.members(members),
        }
    }

    fn members(&self, members: &Map<String, Value>) -> Value {
        let members = members.iter().map(|(name, value)| {
            let identifier = IDENTIFIERS.contains(&name.as_str());
            if identifier || ARGUMENTS.contains(&name.as_str()) {
                let value = if name == "uri" {
                    self.uri(value)
                } else {
                    self.value(value, identifier)
                };
                (name.clone(), value)
            } else {
                (self.text(name, false), self.value(value, false))
            }
        });
        Value::Object(members.collect())
    }

    /// The address of a resource of ours is made of identifiers.
    fn uri(&self, value: &Value) -> Value {
        let ours = value.as_str().is_some_and(|uri| uri.starts_with("kb://"));
        self.value(value, ours)
    }

    fn text(&self, text: &str, identifier: bool) -> String {
        if self.text == TextPolicy::Plain || (identifier && is_identifier(text)) {
            return masked(text).into_owned();
        }
        match self.text {
            TextPolicy::Hash => self.hash_key.hash(text),
            TextPolicy::Plain | TextPolicy::Drop => DROPPED.to_owned(),
        }
    }
}

/// Whether the text is made of what identifiers, dates and cursors are made of.
fn is_identifier(text: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/=+".contains(&byte);
    text.len() <= IDENTIFIER_MAX_BYTES && text.bytes().all(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn keeper(text: TextPolicy) -> Keeper {
        Keeper {
            text,
            max_chars: 2_000,
            hash_key: TextHashKey::derived_from(&[7; 32]),
        }
    }

    fn kept(text: TextPolicy, parameters: &Value) -> Value {
        let kept = keeper(text).parameters(parameters.as_object().unwrap());
        assert_eq!(kept.size_bytes, parameters.to_string().len() as u64);
        serde_json::from_str(&kept.text).unwrap()
    }

    #[test]
    fn free_text_is_kept_hashed_or_dropped_and_identifiers_stay() {
        let call = json!({
            "query": "salary of Anna", "kb_id": ["hr", "a b"], "top_k": 5, "min_score": 0.5,
            "filters": {
                "domain": "hr", "updated_after": "2026-01-01T00:00:00+01:00",
                "metadata": { "customer": "Anna", "number": 7 },
            },
            "chat": ["salary of Anna", { "role": "user" }], "verbose": true,
        });
        assert_eq!(kept(TextPolicy::Plain, &call), call);

        let hashed = kept(TextPolicy::Hash, &call);
        let hash = |text: &str| Value::from(keeper(TextPolicy::Hash).hash_key.hash(text));
        assert_eq!(hashed["query"], hash("salary of Anna"));
        assert_eq!(hashed["kb_id"], json!(["hr", hash("a b")]));
        assert_eq!(
            (&hashed["top_k"], &hashed["min_score"]),
            (&json!(5), &json!(0.5))
        );
        assert_eq!(hashed["filters"]["domain"], "hr");
        assert_eq!(
            hashed["filters"]["metadata"][hash("customer").as_str().unwrap()],
            hash("Anna")
        );
        assert_eq!(hashed[hash("chat").as_str().unwrap()][0], hashed["query"]);
        assert_eq!(hashed[hash("verbose").as_str().unwrap()], true);

        let dropped = kept(TextPolicy::Drop, &call).to_string();
        for word in ["Anna", "a b", "chat", "customer", "user", "hmac:", "7"] {
            assert!(!dropped.contains(word), "{word} in {dropped}");
        }
        assert!(
            dropped.contains(r#""kb_id":["hr","[dropped]"],"top_k":5"#),
            "{dropped}"
        );
    }

    #[test]
    fn a_resource_of_ours_is_named_and_another_address_is_free_text() {
        let ours = json!({ "uri": "kb://hr/documents/leave.md" });
        assert_eq!(kept(TextPolicy::Drop, &ours), ours);
        for other in ["https://anna.example", "kb://who is anna"] {
            assert_eq!(
                kept(TextPolicy::Drop, &json!({ "uri": other }))["uri"],
                DROPPED
            );
        }
    }

    #[test]
    fn names_that_callers_invent_are_kept_only_when_they_look_like_names() {
        let name = |policy, name: &str| keeper(policy).name(name, 10);
        assert_eq!(name(TextPolicy::Drop, "tools/call"), "tools/call");
        assert_eq!(name(TextPolicy::Drop, "who is anna"), DROPPED);
        assert_eq!(name(TextPolicy::Plain, "who is anna"), "who is ann…");
    }

    #[test]
    fn in_kept_text_patterns_are_hidden_in_values_names_and_numbers() {
        let call = json!({
            "query": "\n4111 1111 1111 1111 of anna@example.com",
            "anna@example.com": 4_111_111_111_111_111_u64,
        });
        assert_eq!(
            kept(TextPolicy::Plain, &call),
            json!({ "query": "\n[card] of [e-mail]", "[e-mail]": "[card]" })
        );
    }

    #[test]
    fn a_hash_depends_on_the_key_and_the_key_cannot_be_printed() {
        let (one, other) = (
            TextHashKey::derived_from(&[1; 32]),
            TextHashKey::derived_from(&[2; 32]),
        );
        assert_eq!(one.hash("leave"), one.hash("leave"));
        assert_ne!(one.hash("leave"), other.hash("leave"));
        assert_ne!(one.hash("leave"), one.hash("leave "));
        assert_eq!(one.hash("").len(), HASH_PREFIX.len() + 32);
        assert_eq!(format!("{one:?}"), "TextHashKey(secret)");
    }

    #[test]
    fn an_unknown_policy_keeps_nothing() {
        let read = |word: &str| serde_json::from_value::<TextPolicy>(word.into()).unwrap();
        for policy in TextPolicy::ALL {
            assert_eq!(read(policy.name()), policy);
            assert_eq!(TextPolicy::from_name(policy.name()), Some(policy));
        }
        assert_eq!(read("everything"), TextPolicy::Drop);
        assert_eq!(TextPolicy::from_name("everything"), None);
    }

    proptest! {
        #[test]
        fn no_words_survive_hashing_or_dropping(
            words in "[a-z]{3,8} [a-z ]{3,20}", name in "[A-Z]{8}", nested in any::<bool>(),
        ) {
            let inner = json!({ name.clone(): [words.clone()] });
            let call = json!({
                "query": words, "kb_id": words, "uri": words,
                "filters": if nested { json!({ "metadata": inner }) } else { inner },
            });
            for policy in [TextPolicy::Hash, TextPolicy::Drop] {
                let text = keeper(policy).parameters(call.as_object().unwrap()).text;
                prop_assert!(!text.contains(&words) && !text.contains(&name), "{}", text);
            }
        }

        #[test]
        fn parameters_are_cut_between_characters(text in ".*", max_chars in 0_usize..40) {
            let keeper = Keeper { max_chars, ..keeper(TextPolicy::Plain) };
            let kept = keeper.parameters(json!({ "query": text }).as_object().unwrap());
            prop_assert!(kept.text.chars().count() <= max_chars + 1);
            prop_assert_eq!(kept.cut, kept.text.chars().count() == max_chars + 1 && kept.text.ends_with('…'));
        }
    }
}
