//! The text of a document that an engine gives in pieces.

use raglan_rag::backend::BackendError;

/// A longer text is given up.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Adds a piece, with an empty line between it and the one before.
///
/// # Errors
/// [`BackendError::UnreadableAnswer`] when the text becomes longer than what is given out.
pub fn append(text: &mut String, piece: &str) -> Result<(), BackendError> {
    if text.len() + piece.len() > MAX_BYTES {
        let message = format!("a document of more than {MAX_BYTES} bytes");
        return Err(BackendError::UnreadableAnswer(message));
    }
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(piece);
    Ok(())
}
