//! An answer's body: JSON in pieces. A function URL wants the body as a text inside of another JSON
//! document, so that all of it is escaped once more. What is the same in many answers, or stands in one
//! answer more than once, is kept in both forms.

use bytes::Bytes;
use raglan_core::json_text::push_escaped;

/// A body. Empty, or JSON as UTF-8.
#[derive(Debug, Clone, Default)]
pub struct JsonBody {
    pieces: Vec<Piece>,
}

/// A part of a body.
#[derive(Debug, Clone)]
enum Piece {
    /// As it is.
    Plain(Bytes),
    /// In both forms.
    Prepared(PreparedJson),
}

/// A part of a JSON document, as it is and as it stands inside of a JSON text.
#[derive(Debug, Clone)]
pub struct PreparedJson {
    plain: Bytes,
    escaped: Bytes,
}

impl PreparedJson {
    /// Prepares this part, which is UTF-8.
    #[must_use]
    pub fn new(plain: Bytes) -> Self {
        let mut escaped = Vec::new();
        push_escaped(&mut escaped, &plain);
        Self {
            plain,
            escaped: escaped.into(),
        }
    }

    /// The part as it stands between the quotes of a JSON text.
    #[must_use]
    pub const fn escaped(&self) -> &Bytes {
        &self.escaped
    }

    /// An object without its braces, an array without its brackets.
    #[must_use]
    pub fn without_ends(&self) -> Self {
        let inner = |whole: &Bytes| {
            let end = whole.len().saturating_sub(1);
            whole.slice(end.min(1)..end)
        };
        Self {
            plain: inner(&self.plain),
            escaped: inner(&self.escaped),
        }
    }
}

impl JsonBody {
    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds a part as it is; UTF-8.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.pieces.push(Piece::Plain(part));
        }
    }

    /// Adds a prepared part.
    pub fn push_prepared(&mut self, part: PreparedJson) {
        self.pieces.push(Piece::Prepared(part));
    }

    /// Adds all parts of another body.
    pub fn append(&mut self, mut other: Self) {
        self.pieces.append(&mut other.pieces);
    }

    /// The whole body, copied only when it has several parts.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match <[Piece; 1]>::try_from(self.pieces) {
            Ok([piece]) => piece.into_plain(),
            Err(pieces) => {
                let plain: Vec<Bytes> = pieces.into_iter().map(Piece::into_plain).collect();
                plain.concat().into()
            }
        }
    }

    /// Writes the whole body as it stands between the quotes of a JSON text.
    pub fn write_escaped(&self, target: &mut Vec<u8>) {
        let length_bytes = self.pieces.iter().map(|piece| match piece {
            // Some of it will be escaped.
            Piece::Plain(part) => part.len() + part.len() / 4,
            Piece::Prepared(part) => part.escaped.len(),
        });
        target.reserve(length_bytes.sum());
        for piece in &self.pieces {
            match piece {
                Piece::Plain(part) => push_escaped(target, part),
                Piece::Prepared(part) => target.extend_from_slice(&part.escaped),
            }
        }
    }
}

impl From<Bytes> for JsonBody {
    fn from(whole: Bytes) -> Self {
        let mut body = Self::default();
        body.push(whole);
        body
    }
}

impl Piece {
    fn into_plain(self) -> Bytes {
        match self {
            Self::Plain(part) => part,
            Self::Prepared(part) => part.plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(text: &str) -> String {
        let mut target = Vec::new();
        push_escaped(&mut target, text.as_bytes());
        String::from_utf8(target).unwrap()
    }

    proptest! {
        #[test]
        fn the_parts_of_a_body_are_the_body_in_both_forms(parts in prop::collection::vec(any::<(String, bool)>(), 0..5)) {
            let mut body = JsonBody::default();
            for (part, is_prepared) in &parts {
                let part = Bytes::from(part.clone());
                if *is_prepared {
                    body.push_prepared(PreparedJson::new(part));
                } else {
                    body.push(part);
                }
            }
            let whole: String = parts.iter().map(|(part, _)| part.as_str()).collect();
            let mut target = Vec::new();
            body.write_escaped(&mut target);
            prop_assert_eq!(String::from_utf8(target).unwrap(), escaped(&whole));
            prop_assert_eq!(body.into_bytes(), whole.as_bytes());
        }
    }
}
