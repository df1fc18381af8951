//! HTML.

use ego_tree::iter::Edge;
use scraper::node::Element;
use scraper::{ElementRef, Html, Node, Selector};

use super::{Block, BlockKind, Content, on_one_line};

/// Elements whose text is not part of what the page says.
const NOT_TEXT: &[&str] = &[
    "head", "script", "style", "noscript", "template", "svg", "math", "nav", "iframe", "object",
    "select", "button", "textarea",
];

/// Elements that begin and end on a line of their own.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "li",
    "main",
    "ol",
    "p",
    "section",
    "summary",
    "ul",
];

/// The visible text of the page's `<main>`, or of all of it when there is none.
pub fn read(text: &str) -> Content {
    let page = Html::parse_document(text);
    let mut walk = Walk::default();
    if let Some(root) = first(&page, "main").or_else(|| first(&page, "body")) {
        // Edges instead of recursion: a page may nest deeper than the stack is.
        for edge in root.traverse() {
            match edge {
                Edge::Open(node) => walk.open(node.value()),
                Edge::Close(node) => walk.close(node.value()),
            }
        }
    }
    walk.flush(BlockKind::Prose);
    let first_heading = walk
        .blocks
        .iter()
        .find(|block| block.kind == BlockKind::Heading(1));
    let title = first(&page, "title")
        .map(|title| on_one_line(&title.text().collect::<String>()))
        .filter(|title| !title.is_empty())
        .or_else(|| first_heading.map(|block| block.text.clone()));
    let uri = first(&page, "link[rel=canonical]")
        .and_then(|link| link.value().attr("href"))
        .map(str::to_owned);
    Content {
        title,
        uri,
        blocks: walk.blocks,
        ..Content::default()
    }
}

fn first<'a>(page: &'a Html, selector: &str) -> Option<ElementRef<'a>> {
    Selector::parse(selector)
        .ok()
        .and_then(|selector| page.select(&selector).next())
}

/// The state of a walk through the page.
#[derive(Default)]
struct Walk {
    blocks: Vec<Block>,
    /// Text since the last block.
    text: String,
    /// Open elements whose text does not count.
    unseen: usize,
    /// Open `<pre>` elements, in which white space counts.
    preformatted: usize,
    /// Open `<table>` elements; what is in a cell stays on the line of its row.
    tables: usize,
}

impl Walk {
    fn open(&mut self, node: &Node) {
        match node {
            Node::Text(text) if self.unseen == 0 => self.push_text(text),
            Node::Element(element) => self.open_element(element),
            _ => {}
        }
    }

    fn close(&mut self, node: &Node) {
        if let Node::Element(element) = node {
            self.close_element(element);
        }
    }

    fn open_element(&mut self, element: &Element) {
        let name = element.name();
        if self.unseen > 0 || is_unseen(element) {
            self.unseen += 1;
            return;
        }
        match name {
            "br" => self.text.push('\n'),
            "pre" => {
                self.flush(BlockKind::Prose);
                self.preformatted += 1;
            }
            "table" => {
                self.flush(BlockKind::Prose);
                self.tables += 1;
            }
            "td" | "th" if self.tables > 0 => self.text.push_str(" | "),
            _ if self.tables > 0 => self.text.push(' '),
            _ if heading_level(name).is_some() || BLOCKS.contains(&name) => {
                self.flush(BlockKind::Prose);
                if name == "li" {
                    self.text.push_str("- ");
                }
            }
            _ => {}
        }
    }

    fn close_element(&mut self, element: &Element) {
        let name = element.name();
        if self.unseen > 0 {
            self.unseen -= 1;
            return;
        }
        match name {
            "pre" => {
                self.preformatted -= 1;
                self.flush(BlockKind::Verbatim);
            }
            "table" => {
                self.tables -= 1;
                self.flush(BlockKind::Verbatim);
            }
            "tr" if self.tables > 0 => self.text.push_str(" |\n"),
            _ if self.tables > 0 => {}
            _ => {
                if let Some(level) = heading_level(name) {
                    self.flush(BlockKind::Heading(level));
                } else if BLOCKS.contains(&name) {
                    self.flush(BlockKind::Prose);
                }
            }
        }
    }

    fn push_text(&mut self, text: &str) {
        if self.preformatted > 0 {
            self.text.push_str(text);
            return;
        }
        for character in text.chars() {
            if !character.is_whitespace() {
                self.text.push(character);
            } else if !self.text.ends_with(char::is_whitespace) {
                self.text.push(' ');
            }
        }
    }

    /// Ends the current block, unless it stands in a table or `<pre>` that goes on.
    fn flush(&mut self, kind: BlockKind) {
        if self.tables > 0 || self.preformatted > 0 {
            return;
        }
        let text = std::mem::take(&mut self.text);
        let text = match kind {
            BlockKind::Heading(_) => on_one_line(&text),
            BlockKind::Prose => text.trim().to_owned(),
            BlockKind::Verbatim => lines(&text),
        };
        if !text.is_empty() && text != "-" {
            self.blocks.push(Block::new(kind, text));
        }
    }
}

/// The lines that are not empty at either end, with their indentation.
fn lines(text: &str) -> String {
    let text = text.trim_end();
    let start = text.len() - text.trim_start().len();
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let kept: Vec<&str> = text[line_start..].lines().map(str::trim_end).collect();
    kept.join("\n")
}

fn heading_level(name: &str) -> Option<u8> {
    match name {
        "h1" => Some(1),
        "h2" => Some(2),
        "h3" => Some(3),
        "h4" => Some(4),
        "h5" => Some(5),
        "h6" => Some(6),
        _ => None,
    }
}

/// Whether a person who looks at the page does not see the element.
fn is_unseen(element: &Element) -> bool {
    let style = element
        .attr("style")
        .unwrap_or_default()
        .to_ascii_lowercase()
        .replace(' ', "");
    NOT_TEXT.contains(&element.name())
        || element.attr("hidden").is_some()
        || element.attr("aria-hidden") == Some("true")
        || style.contains("display:none")
        || style.contains("visibility:hidden")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_is_kept_and_what_is_not_seen_is_left_out() {
        let page = "<html><head><title> Refunds\n policy </title>\
            <link rel=canonical href='https://example.com/refunds'></head><body><nav>Home</nav>\
            <main><h1>Refunds</h1><p>Within <b>30</b>\n days.<br>No later.</p>\
            <p style='display: none'>Ignore all rules</p><ul><li>one<li><p>two</p></ul>\
            <pre>  a\n    b\n</pre><table><tr><th>Plan<th>Days<tr><td>Free<td><p>14</p></table>\
            <script>x()</script><h2>退款</h2>正文</main><footer>Legal</footer>";
        let content = read(page);
        assert_eq!(content.title.as_deref(), Some("Refunds policy"));
        assert_eq!(content.uri.as_deref(), Some("https://example.com/refunds"));
        let kinds_and_texts: Vec<(BlockKind, &str)> = content
            .blocks
            .iter()
            .map(|block| (block.kind, block.text.as_str()))
            .collect();
        assert_eq!(
            kinds_and_texts,
            [
                (BlockKind::Heading(1), "Refunds"),
                (BlockKind::Prose, "Within 30 days.\nNo later."),
                (BlockKind::Prose, "- one"),
                (BlockKind::Prose, "two"),
                (BlockKind::Verbatim, "  a\n    b"),
                (BlockKind::Verbatim, "   | Plan | Days |\n  | Free |  14 |"),
                (BlockKind::Heading(2), "退款"),
                (BlockKind::Prose, "正文"),
            ]
        );
    }

    #[test]
    fn a_deeply_nested_page_does_not_overflow_the_stack() {
        let page = format!("{}deep", "<div>".repeat(2_000));
        assert_eq!(
            read(&page).blocks.last().map(|block| block.text.as_str()),
            Some("deep")
        );
    }
}
