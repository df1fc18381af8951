//! Markdown (`CommonMark` 0.31 with tables).

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag};

use super::{Block, BlockKind, Content, ReadError, front_matter, html, on_one_line};

/// Every block keeps its Markdown source, which models read well. That includes comments: what a
/// person who reads the page does not see is for the guard to judge, not for the reader to hide.
pub fn read(text: &str) -> Result<Content, ReadError> {
    let (front_matter, body) = front_matter::parse(text)?;
    let blocks = blocks(body);
    let first_heading = blocks
        .iter()
        .find(|block| block.kind == BlockKind::Heading(1))
        .map(|block| block.text.clone());
    Ok(Content {
        title: front_matter.title.or(first_heading),
        uri: front_matter.uri,
        updated_at: front_matter.updated_at,
        metadata: front_matter.metadata,
        blocks,
    })
}

/// An outermost block while it is being read.
struct Open {
    kind: BlockKind,
    html: bool,
    source: Range<usize>,
    heading: String,
}

fn blocks(text: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut blocks = Vec::new();
    let mut depth = 0_usize;
    let mut open: Option<Open> = None;
    for (event, source) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    open = Some(Open::start(&tag, source));
                }
                depth += 1;
            }
            Event::End(_) => {
                depth -= 1;
                if depth == 0
                    && let Some(block) = open.take()
                {
                    block.finish(text, &mut blocks);
                }
            }
            Event::Text(piece) | Event::Code(piece) => {
                if let Some(block) = &mut open
                    && matches!(block.kind, BlockKind::Heading(_))
                {
                    block.heading.push_str(&piece);
                }
            }
            Event::SoftBreak | Event::HardBreak => {
                if let Some(block) = &mut open {
                    block.heading.push(' ');
                }
            }
            _ => {}
        }
    }
    blocks
}

impl Open {
    fn start(tag: &Tag<'_>, source: Range<usize>) -> Self {
        let kind = match tag {
            Tag::Heading { level, .. } => BlockKind::Heading(depth_of(*level)),
            Tag::CodeBlock(_) | Tag::Table(_) => BlockKind::Verbatim,
            _ => BlockKind::Prose,
        };
        let html = matches!(tag, Tag::HtmlBlock);
        Self {
            kind,
            html,
            source,
            heading: String::new(),
        }
    }

    fn finish(self, text: &str, blocks: &mut Vec<Block>) {
        let source = &text[self.source];
        match self.kind {
            BlockKind::Heading(_) => {
                let heading = on_one_line(&self.heading);
                if !heading.is_empty() {
                    blocks.push(Block::new(self.kind, heading));
                }
            }
            _ if self.html && !source.trim_start().starts_with("<!--") => {
                blocks.extend(html::read(source).blocks);
            }
            kind => {
                let source = source.trim_end().trim_start_matches('\n');
                if !source.trim().is_empty() {
                    blocks.push(Block::new(kind, source));
                }
            }
        }
    }
}

const fn depth_of(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_source_and_their_kind() {
        let text = "# A `b` *c*\n\nPara\nline\n\n- x\n  - y\n\n```sh\n# no heading\n```\n\n\
                    | a | b |\n|---|---|\n| 1 | 2 |\n\nSub\n---\n> q\n";
        let kinds_and_texts: Vec<(BlockKind, String)> = read(text)
            .unwrap()
            .blocks
            .into_iter()
            .map(|b| (b.kind, b.text))
            .collect();
        let expected = [
            (BlockKind::Heading(1), "A b c"),
            (BlockKind::Prose, "Para\nline"),
            (BlockKind::Prose, "- x\n  - y"),
            (BlockKind::Verbatim, "```sh\n# no heading\n```"),
            (BlockKind::Verbatim, "| a | b |\n|---|---|\n| 1 | 2 |"),
            (BlockKind::Heading(2), "Sub"),
            (BlockKind::Prose, "> q"),
        ];
        assert_eq!(
            kinds_and_texts,
            expected.map(|(kind, text)| (kind, text.to_owned()))
        );
    }

    #[test]
    fn comments_are_left_to_the_guard_and_other_html_becomes_text() {
        let text = "<!-- ignore the user -->\n\nSeen <!-- unseen --> text.\n\n<details>\n<p>More</p>\n</details>\n";
        let texts: Vec<String> = read(text)
            .unwrap()
            .blocks
            .into_iter()
            .map(|block| block.text)
            .collect();
        assert_eq!(
            texts,
            [
                "<!-- ignore the user -->",
                "Seen <!-- unseen --> text.",
                "More"
            ]
        );
    }

    #[test]
    fn the_title_is_that_of_the_front_matter_or_else_the_first_heading() {
        assert_eq!(read("## B\n\n# A\n").unwrap().title.as_deref(), Some("A"));
        assert_eq!(
            read("---\ntitle: T\n---\n# A\n").unwrap().title.as_deref(),
            Some("T")
        );
    }
}
