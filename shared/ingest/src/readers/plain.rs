//! Plain text.

use super::{Block, BlockKind, Content};

/// A block for every paragraph; a blank line ends one.
pub fn read(text: &str) -> Content {
    Content {
        blocks: paragraphs(text),
        ..Content::default()
    }
}

/// The paragraphs of `text`.
pub fn paragraphs(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut paragraph: Vec<&str> = Vec::new();
    // One more empty line ends the last paragraph.
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            if !paragraph.is_empty() {
                blocks.push(Block::new(BlockKind::Prose, paragraph.join("\n")));
                paragraph.clear();
            }
        } else {
            paragraph.push(line.trim_end());
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_part_paragraphs() {
        let texts: Vec<String> = read("one\r\n two \n\n \n三\n")
            .blocks
            .into_iter()
            .map(|block| block.text)
            .collect();
        assert_eq!(texts, ["one\n two", "三"]);
    }
}
