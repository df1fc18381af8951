//! From the blocks of a document to passages: first by headings, then by size.

use raglan_rag::runs::is_cjk;

use crate::readers::{Block, BlockKind};

/// Size that a passage aims at. A Chinese, Japanese or Korean character counts twice, because it
/// says about as much as two letters: this is 1,200 letters or 600 such characters.
pub const TARGET_SIZE: usize = 1200;
/// Size that no passage exceeds.
pub const MAX_SIZE: usize = 2000;

/// A longer heading is a paragraph that somebody made large.
const HEADING_MAX_CHARS: usize = 200;

/// Between the blocks of a passage.
const BLOCK_SEPARATOR: &str = "\n\n";

/// Between the headings of [`Chunk::section`].
const SECTION_SEPARATOR: &str = " › ";

/// A passage of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The text, not empty.
    pub content: String,
    /// The headings above it, outermost first, joined with ` › `.
    pub section: Option<String>,
    /// The page on which it begins.
    pub page: Option<u64>,
}

/// Splits a document. A passage never crosses a heading or a page; a block is torn only when it
/// alone exceeds [`MAX_SIZE`], then where a paragraph, a line, a sentence or a word ends.
#[must_use]
pub fn split(blocks: &[Block]) -> Vec<Chunk> {
    let mut splitter = Splitter::default();
    for block in blocks {
        match block.kind {
            BlockKind::Heading(level) if block.text.chars().count() <= HEADING_MAX_CHARS => {
                splitter.heading(level, block);
            }
            _ => splitter.block(block),
        }
    }
    splitter.end_section();
    splitter.chunks
}

#[derive(Default)]
struct Splitter {
    chunks: Vec<Chunk>,
    /// The headings above, with their levels, outermost first.
    path: Vec<(u8, String)>,
    /// Nothing has followed the innermost heading yet.
    bare_heading: bool,
    /// The page of the innermost heading.
    heading_page: Option<u64>,
    content: String,
    size: usize,
    page: Option<u64>,
}

impl Splitter {
    fn heading(&mut self, level: u8, block: &Block) {
        self.end_chunk();
        if self.path.last().is_some_and(|(above, _)| *above >= level) {
            self.end_section();
        }
        while self.path.last().is_some_and(|(above, _)| *above >= level) {
            self.path.pop();
        }
        self.path.push((level, block.text.clone()));
        self.bare_heading = true;
        self.heading_page = block.page;
    }

    fn block(&mut self, block: &Block) {
        self.bare_heading = false;
        if block.page != self.page {
            self.end_chunk();
            self.page = block.page;
        }
        let block_size = size(&block.text);
        if self.size + BLOCK_SEPARATOR.len() + block_size > TARGET_SIZE {
            self.end_chunk();
        }
        if block_size > MAX_SIZE {
            for piece in pieces(&block.text) {
                self.append(piece);
                self.end_chunk();
            }
        } else {
            self.append(&block.text);
        }
    }

    fn append(&mut self, text: &str) {
        if !self.content.is_empty() {
            self.content.push_str(BLOCK_SEPARATOR);
            self.size += BLOCK_SEPARATOR.len();
        }
        self.content.push_str(text);
        self.size += size(text);
    }

    fn end_chunk(&mut self) {
        let content = std::mem::take(&mut self.content);
        self.size = 0;
        if !content.trim().is_empty() {
            self.chunks.push(Chunk {
                content,
                section: self.section(),
                page: self.page,
            });
        }
    }

    /// A heading without text and without headings below it still says something.
    fn end_section(&mut self) {
        self.end_chunk();
        if std::mem::take(&mut self.bare_heading)
            && let Some((_, heading)) = self.path.last()
        {
            let (content, page) = (heading.clone(), self.heading_page);
            self.chunks.push(Chunk {
                content,
                section: self.section(),
                page,
            });
        }
    }

    fn section(&self) -> Option<String> {
        let headings: Vec<&str> = self
            .path
            .iter()
            .map(|(_, heading)| heading.as_str())
            .collect();
        (!headings.is_empty()).then(|| headings.join(SECTION_SEPARATOR))
    }
}

/// The size of a text, white space at its ends included.
fn size(text: &str) -> usize {
    text.chars().map(size_of_character).sum()
}

fn size_of_character(character: char) -> usize {
    if is_cjk(character) { 2 } else { 1 }
}

/// Cuts a long text; the pieces together are the text, but for white space at the cuts.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while size(rest) > MAX_SIZE {
        let (piece, after) = rest.split_at(cut(rest));
        pieces.push(piece.trim_end());
        rest = after.trim_start_matches(['\n', '\r', ' ']);
    }
    pieces.push(rest);
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// Where to cut a text that is longer than [`MAX_SIZE`]: a byte position greater than 0.
fn cut(text: &str) -> usize {
    let target = &text[..prefix(text, TARGET_SIZE)];
    let longest = &text[..prefix(text, MAX_SIZE)];
    // Whatever is cut off should be at least a third of what a passage aims at.
    let least = prefix(text, TARGET_SIZE / 3);
    let found = |window: &str, end: fn(&str) -> Option<usize>| end(window).filter(|at| *at > least);
    found(target, paragraph_end)
        .or_else(|| found(target, line_end))
        .or_else(|| found(target, sentence_end))
        .or_else(|| found(longest, line_end))
        .or_else(|| found(longest, sentence_end))
        .or_else(|| found(target, word_end))
        .unwrap_or(target.len())
}

/// The length in bytes of the longest prefix whose size is at most `limit`.
fn prefix(text: &str, limit: usize) -> usize {
    let mut total = 0;
    for (at, character) in text.char_indices() {
        total += size_of_character(character);
        if total > limit {
            return at;
        }
    }
    text.len()
}

fn paragraph_end(text: &str) -> Option<usize> {
    text.rfind("\n\n").map(|at| at + 2)
}

fn line_end(text: &str) -> Option<usize> {
    text.rfind('\n').map(|at| at + 1)
}

fn word_end(text: &str) -> Option<usize> {
    text.rfind(char::is_whitespace)
}

/// After the last sentence that ends in `text`.
fn sentence_end(text: &str) -> Option<usize> {
    let full_width = text
        .rfind(['。', '!', '?', '！', '？', '；'])
        .and_then(|at| text[at..].chars().next().map(|mark| at + mark.len_utf8()));
    let with_space = text.rfind(". ").map(|at| at + 1);
    full_width.max(with_space)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(kind: BlockKind, text: &str) -> Block {
        Block {
            kind,
            text: text.to_owned(),
            page: None,
        }
    }

    #[test]
    fn a_passage_knows_the_headings_above_it() {
        let blocks = [
            block(BlockKind::Heading(1), "Guide"),
            block(BlockKind::Heading(2), "Refunds"),
            block(BlockKind::Prose, "Within 30 days."),
            block(BlockKind::Heading(3), "Exceptions"),
            block(BlockKind::Heading(2), "Shipping"),
            block(BlockKind::Prose, "Two days."),
        ];
        let found: Vec<(String, String)> = split(&blocks)
            .into_iter()
            .map(|chunk| (chunk.section.unwrap_or_default(), chunk.content))
            .collect();
        let expected = [
            ("Guide › Refunds", "Within 30 days."),
            ("Guide › Refunds › Exceptions", "Exceptions"),
            ("Guide › Shipping", "Two days."),
        ];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_table_that_fits_is_not_torn() {
        let table = "| a | b |\n".repeat(190);
        let blocks = [
            block(BlockKind::Prose, &"x ".repeat(400)),
            block(BlockKind::Verbatim, &table),
        ];
        let chunks = split(&blocks);
        assert!(
            chunks.iter().any(|chunk| chunk.content == table),
            "{}",
            chunks.len()
        );
    }

    #[test]
    fn a_long_text_is_cut_where_a_sentence_ends() {
        let english = "The quick brown fox jumps over the lazy dog again. ".repeat(100);
        let chinese = "报销单应在出差结束后十个工作日内提交。".repeat(100);
        for (text, end) in [(english, '.'), (chinese, '。')] {
            let chunks = split(&[block(BlockKind::Prose, &text)]);
            assert!(chunks.len() > 2);
            for chunk in chunks {
                assert!(chunk.content.trim_end().ends_with(end), "{}", chunk.content);
            }
        }
    }

    #[test]
    fn a_passage_does_not_cross_a_page() {
        let mut first = block(BlockKind::Prose, "one");
        let mut second = block(BlockKind::Prose, "two");
        first.page = Some(1);
        second.page = Some(2);
        let pages: Vec<_> = split(&[first, second])
            .into_iter()
            .map(|chunk| chunk.page)
            .collect();
        assert_eq!(pages, [Some(1), Some(2)]);
    }

    /// Headings are written in capitals and nothing else is, so that each can be told in the result.
    fn blocks() -> impl Strategy<Value = Vec<Block>> {
        let heading = (1..=6_u8, "[A-Z]{1,20}|[A-Z]{201,300}")
            .prop_map(|(level, text)| (BlockKind::Heading(level), text));
        let text = prop_oneof![
            "[a-z中文。. \n]{0,30}[a-z中]",
            "([a-z]{1,9}[ .。\n]{0,2}|[知识库]{1,40}){100,600}x",
            "[中é]{900,3000}",
        ];
        let body = (
            prop_oneof![Just(BlockKind::Prose), Just(BlockKind::Verbatim)],
            text,
        );
        let page = proptest::option::of(1..4_u64);
        let one = (prop_oneof![heading, body], page).prop_map(|((kind, text), page)| Block {
            kind,
            text,
            page,
        });
        proptest::collection::vec(one, 0..12)
    }

    fn is_short_heading(text: &str) -> bool {
        text.len() <= HEADING_MAX_CHARS && text.bytes().all(|b| b.is_ascii_uppercase())
    }

    /// Every character that is not white space, in order.
    fn characters(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn nothing_is_lost_and_no_passage_is_too_long(blocks in blocks()) {
            let chunks = split(&blocks);
            for chunk in &chunks {
                prop_assert!(!chunk.content.trim().is_empty());
                prop_assert!(size(&chunk.content) <= MAX_SIZE, "{}", size(&chunk.content));
            }
            let (headings, bodies): (Vec<&Block>, Vec<&Block>) =
                blocks.iter().partition(|block| is_short_heading(&block.text));
            for heading in headings {
                let held = chunks.iter().filter_map(|chunk| chunk.section.as_ref());
                prop_assert!(
                    held.flat_map(|section| section.split(SECTION_SEPARATOR)).any(|h| h == heading.text),
                    "lost heading {:?}", heading.text
                );
            }
            let expected: String = bodies.iter().map(|block| characters(&block.text)).collect();
            let found: String = chunks
                .iter()
                .filter(|chunk| !is_short_heading(&chunk.content))
                .map(|chunk| characters(&chunk.content))
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
