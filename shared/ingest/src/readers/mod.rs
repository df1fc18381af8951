//! Readers: from the bytes of a file to what it says.

mod front_matter;
mod html;
mod markdown;
mod pdf;
mod plain;

use std::collections::BTreeMap;

use raglan_core::clock::Timestamp;
use raglan_texts::{process_language, text};
use serde_json::Value;

/// A kind of file that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Markdown (`CommonMark` with tables), with or without YAML front matter.
    Markdown,
    /// Plain text.
    Text,
    /// HTML.
    Html,
    /// PDF.
    Pdf,
}

impl Format {
    /// The format that goes with a file name's extension; `None` when it cannot be read.
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "md" | "markdown" => Some(Self::Markdown),
            "txt" | "text" => Some(Self::Text),
            "html" | "htm" => Some(Self::Html),
            "pdf" => Some(Self::Pdf),
            _ => None,
        }
    }

    /// The name, as documents show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Text => "text",
            Self::Html => "html",
            Self::Pdf => "pdf",
        }
    }
}

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    /// The title that it gives itself, in front matter, `<title>` or its first heading.
    pub title: Option<String>,
    /// Where a person can open it.
    pub uri: Option<String>,
    /// When it last changed, if it says so.
    pub updated_at: Option<Timestamp>,
    /// What else it says of itself: strings, numbers, booleans and lists of them.
    pub metadata: BTreeMap<String, Value>,
    /// The text, in order.
    pub blocks: Vec<Block>,
}

/// A piece of a document that belongs together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What it is.
    pub kind: BlockKind,
    /// Its text, not empty.
    pub text: String,
    /// The page on which it stands, from 1, for documents that have pages.
    pub page: Option<u64>,
}

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// A heading; 1 is the outermost level, 6 the innermost.
    Heading(u8),
    /// A paragraph, list or quotation.
    Prose,
    /// Code or a table, whose lines must stay whole.
    Verbatim,
}

impl Block {
    fn new(kind: BlockKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            page: None,
        }
    }
}

/// Why a file could not be read. The text is shown to whoever builds the index.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not UTF-8.
    #[error(
        "{}",
        text!(
            process_language(),
            "it is not UTF-8 text (byte {at} is not); convert it, for example with iconv",
            at = .0
        )
    )]
    NotUtf8(usize),
    /// The front matter is not YAML.
    #[error(
        "{}",
        text!(
            process_language(),
            "its front matter is not valid YAML: {cause}",
            cause = .0
        )
    )]
    FrontMatter(String),
    /// A field of the front matter has the wrong kind of value.
    #[error(
        "{}",
        text!(
            process_language(),
            "its front matter has an unusable {field}: {reason}",
            field = format_args!("{field:?}"),
            reason = .reason
        )
    )]
    FrontMatterField {
        /// The field.
        field: &'static str,
        /// What is expected.
        reason: String,
    },
    /// The PDF is damaged, encrypted or uses something that the library does not know.
    #[error("{}", text!(process_language(), "the PDF cannot be read: {cause}", cause = .0))]
    Pdf(String),
    /// Nothing to index.
    #[error("{}", text!(process_language(), "there is no text in it"))]
    NoText,
}

/// Reads a file of `format`.
///
/// # Errors
/// [`ReadError`] says what is wrong with the file. A file without any text is an error too.
pub fn read(format: Format, bytes: &[u8]) -> Result<Content, ReadError> {
    let content = match format {
        Format::Markdown => markdown::read(utf8(bytes)?)?,
        Format::Text => plain::read(utf8(bytes)?),
        Format::Html => html::read(utf8(bytes)?),
        Format::Pdf => pdf::read(bytes)?,
    };
    if content.blocks.is_empty() {
        Err(ReadError::NoText)
    } else {
        Ok(content)
    }
}

/// The text, without a byte order mark.
fn utf8(bytes: &[u8]) -> Result<&str, ReadError> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| ReadError::NotUtf8(error.valid_up_to()))?;
    Ok(text.strip_prefix('\u{FEFF}').unwrap_or(text))
}

/// `text` with every stretch of white space as one space.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_that_is_not_utf8_is_refused_and_a_byte_order_mark_is_dropped() {
        let gbk = [0xD6, 0xD0, 0xCE, 0xC4];
        assert!(matches!(
            read(Format::Text, &gbk),
            Err(ReadError::NotUtf8(0))
        ));
        let content = read(
            Format::Markdown,
            "\u{FEFF}---\ntitle: T\n---\nBody".as_bytes(),
        )
        .unwrap();
        assert_eq!(content.title.as_deref(), Some("T"));
    }

    #[test]
    fn a_file_without_text_is_refused() {
        for (format, text) in [
            (Format::Text, " \n"),
            (Format::Markdown, "---\ntitle: T\n---\n"),
            (Format::Html, "<html><script>x</script></html>"),
        ] {
            assert!(
                matches!(read(format, text.as_bytes()), Err(ReadError::NoText)),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic_or_gives_an_empty_block(
            text in "(---\n.{0,20}\n---\n)?([#>|`<\\-!/a-z中 \n*&;\\[\\]()\"=]{0,80}|\\PC{0,60})",
        ) {
            for format in [Format::Markdown, Format::Text, Format::Html] {
                if let Ok(content) = read(format, text.as_bytes()) {
                    for block in content.blocks {
                        prop_assert!(!block.text.trim().is_empty(), "{format:?}");
                    }
                }
            }
        }
    }
}
