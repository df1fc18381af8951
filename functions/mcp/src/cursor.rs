//! Opaque cursors: where a list goes on. Bound to the key and to the question, and signed, so that an
//! altered or foreign cursor is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::config::CursorSecret;

/// A tag of 128 bits cannot be guessed.
const TAG_BYTES: usize = 16;

/// Not one of our cursors, or not for this key and this question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor was altered, or made for another key or question")]
pub struct InvalidCursor;

/// What a cursor belongs to.
#[derive(Debug, Clone, Copy)]
pub struct CursorScope<'a> {
    /// The key's id.
    pub key_id: &'a str,
    /// The tool's name.
    pub tool: &'a str,
    /// All arguments that decide what the list holds, as text.
    pub question: &'a str,
}

impl CursorScope<'_> {
    /// A cursor that goes on after `position`.
    #[must_use]
    pub fn seal(&self, secret: &CursorSecret, position: &str) -> String {
        let mut bytes = self.tag(secret, position);
        bytes.extend_from_slice(position.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position of a cursor. The empty cursor is the beginning.
    ///
    /// # Errors
    /// [`InvalidCursor`] when it was altered, or made for another key or question.
    pub fn open(
        &self,
        secret: &CursorSecret,
        cursor: &str,
    ) -> Result<Option<String>, InvalidCursor> {
        if cursor.is_empty() {
            return Ok(None);
        }
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| InvalidCursor)?;
        let (tag, position) = bytes.split_at_checked(TAG_BYTES).ok_or(InvalidCursor)?;
        let position = std::str::from_utf8(position).map_err(|_| InvalidCursor)?;
        // Compared by the library in constant time.
        self.mac(secret, position)
            .verify_truncated_left(tag)
            .map_err(|_| InvalidCursor)?;
        Ok(Some(position.to_owned()))
    }

    fn tag(&self, secret: &CursorSecret, position: &str) -> Vec<u8> {
        let mut tag = self.mac(secret, position).finalize().into_bytes().to_vec();
        tag.truncate(TAG_BYTES);
        tag
    }

    fn mac(&self, secret: &CursorSecret, position: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&secret.block().into());
        for part in [self.key_id, self.tool, self.question, position] {
            // The length first: no two different lists of parts give the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope<'a>(key_id: &'a str, question: &'a str) -> CursorScope<'a> {
        CursorScope {
            key_id,
            tool: "list_documents",
            question,
        }
    }

    fn secret() -> CursorSecret {
        CursorSecret::new(*b"0123456789abcdef0123456789abcdef")
    }

    #[test]
    fn a_cursor_leads_back_to_its_position_for_the_same_key_and_question_only() {
        let cursor = scope("k1", "all").seal(&secret(), "doc-7");
        let open = |scope: CursorScope<'_>| scope.open(&secret(), &cursor);
        assert_eq!(open(scope("k1", "all")), Ok(Some("doc-7".to_owned())));
        assert_eq!(open(scope("k2", "all")), Err(InvalidCursor));
        assert_eq!(open(scope("k1", "other")), Err(InvalidCursor));
        let other = CursorSecret::new(*b"ffffffffffffffffffffffffffffffff");
        assert_eq!(scope("k1", "all").open(&other, &cursor), Err(InvalidCursor));
    }

    #[test]
    fn the_empty_cursor_is_the_beginning() {
        assert_eq!(scope("k", "q").open(&secret(), ""), Ok(None));
    }

    proptest! {
        #[test]
        fn any_change_to_a_cursor_is_noticed(position in ".{0,40}", at in 0_usize..90, letter in "[A-Za-z0-9_-]") {
            let good = scope("k", "q").seal(&secret(), &position);
            let mut bad: Vec<char> = good.chars().collect();
            let at = at % bad.len();
            bad[at] = letter.chars().next().unwrap();
            let bad: String = bad.into_iter().collect();
            prop_assume!(bad != good);
            prop_assert_eq!(scope("k", "q").open(&secret(), &bad), Err(InvalidCursor));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            let _ = scope("k", "q").open(&secret(), &text);
        }
    }
}
