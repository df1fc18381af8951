//! Cuts a passage into sentences.

use crate::runs::is_cjk;

/// Longer sentences are cut, in characters.
const MAX_CHARS: usize = 500;

/// Words before a full stop that does not end a sentence.
const ABBREVIATIONS: &[&str] = &[
    "e.g", "i.e", "etc", "cf", "vs", "no", "nr", "fig", "sec", "dr", "mr", "mrs", "ms", "prof",
    "st", "approx", "ca", "incl", "excl", "max", "min", "vol", "p", "pp",
];

/// The sentences of a passage in order: of every paragraph, list item, table row and line of code,
/// without the marks of lists and quotations; a cell of a table is told with its column's head. None is
/// empty.
pub fn sentences(passage: &str) -> Vec<String> {
    units(passage)
        .iter()
        .flat_map(|unit| sentences_of(unit))
        .collect()
}

/// Paragraphs, list items, headings, table rows and lines of code, each on one line.
fn units(passage: &str) -> Vec<String> {
    let mut units = Units::default();
    for line in passage.lines().map(str::trim) {
        units.line(line);
    }
    units.found.retain(|unit| !unit.is_empty());
    units.found
}

#[derive(Default)]
struct Units {
    found: Vec<String>,
    /// The next line may go on with the last unit.
    open: bool,
    /// Between fences, where every line stands alone.
    code: bool,
    /// The head of the table, once the line below it was seen.
    head: Vec<String>,
    /// The line before this one, if it was a table row.
    last_row: Vec<String>,
}

impl Units {
    fn line(&mut self, line: &str) {
        if let Some(row) = line.strip_prefix('|') {
            self.open = false;
            self.row(line, row);
            return;
        }
        self.head.clear();
        self.last_row.clear();
        if line.starts_with("```") || line.starts_with("~~~") {
            self.code = !self.code;
            self.open = false;
        } else if line.is_empty() || is_rule(line) {
            self.open = false;
        } else if self.code {
            self.found.push(line.to_owned());
        } else if let Some(text) = unmarked(line) {
            self.found.push(text.to_owned());
            self.open = true;
        } else {
            match self.found.last_mut() {
                Some(unit) if self.open => append_line(unit, line),
                _ => self.found.push(line.to_owned()),
            }
            self.open = true;
        }
    }

    /// A row means little without the head of its table, so each cell is told with its head's.
    fn row(&mut self, line: &str, row: &str) {
        if is_rule(line) {
            self.head = std::mem::take(&mut self.last_row);
            if !self.head.is_empty() {
                self.found.pop();
            }
            return;
        }
        let row = row.strip_suffix('|').unwrap_or(row);
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        let told: Vec<String> = cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| !cell.is_empty())
            .map(|(column, cell)| match self.head.get(column) {
                Some(head) if !head.is_empty() => format!("{head}: {cell}"),
                _ => cell.clone(),
            })
            .collect();
        self.found.push(told.join("; "));
        self.last_row = cells;
    }
}

/// Lines of dashes and the like: rules, and the line below a table's head.
fn is_rule(line: &str) -> bool {
    line.chars()
        .all(|c| matches!(c, '-' | '=' | '*' | '_' | '|' | ':' | ' '))
}

/// The text of a line that starts a list item, a heading or a quotation.
fn unmarked(line: &str) -> Option<&str> {
    for mark in ["- ", "* ", "+ ", "> ", "• "] {
        if let Some(text) = line.strip_prefix(mark) {
            return Some(text.trim_start());
        }
    }
    if line.starts_with('#') {
        return Some(line.trim_start_matches('#').trim_start());
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &line[digits..];
    let numbered = (1..=3).contains(&digits) && (rest.starts_with(". ") || rest.starts_with(") "));
    numbered.then(|| rest[2..].trim_start())
}

/// Chinese is written without spaces, so that a line break in it is nothing.
fn append_line(unit: &mut String, line: &str) {
    let wide =
        |c: char| is_cjk(c) || matches!(c, '\u{3001}'..='\u{303F}' | '\u{FF01}'..='\u{FF5E}');
    let joined =
        unit.chars().next_back().is_some_and(wide) && line.chars().next().is_some_and(wide);
    if !joined {
        unit.push(' ');
    }
    unit.push_str(line);
}

fn sentences_of(unit: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut characters = unit.char_indices().peekable();
    while let Some((at, mark)) = characters.next() {
        let mut end = at + mark.len_utf8();
        let next = characters.peek().map(|(_, next)| *next);
        let ends = match mark {
            '。' | '！' | '？' | '；' => true,
            '!' | '?' => next.is_none_or(char::is_whitespace),
            '.' => next.is_none_or(char::is_whitespace) && !is_abbreviation(&unit[start..at]),
            _ => false,
        };
        if !ends {
            continue;
        }
        while let Some((at, closing)) =
            characters.next_if(|(_, c)| matches!(c, '”' | '’' | '」' | '』' | '）' | ')' | '"'))
        {
            end = at + closing.len_utf8();
        }
        push_bounded(&mut found, &unit[start..end]);
        start = end;
    }
    push_bounded(&mut found, &unit[start..]);
    found
}

/// Whether the full stop after `text` belongs to its last word: an abbreviation or an initial.
fn is_abbreviation(text: &str) -> bool {
    let word = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    let word = word.trim_start_matches(['(', '[', '"']).to_lowercase();
    ABBREVIATIONS.contains(&word.as_str())
        || (word.chars().count() == 1 && word.chars().all(char::is_alphabetic))
}

fn push_bounded(found: &mut Vec<String>, sentence: &str) {
    let sentence = sentence.trim();
    if sentence.is_empty() {
        return;
    }
    match sentence.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => found.push(format!("{}…", &sentence[..end])),
        None => found.push(sentence.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn english_and_chinese_sentences_end_where_readers_think() {
        assert_eq!(
            sentences("Refunds take 3.5 days, e.g. by card. Ask Dr. Lee! Is it\nlate? Yes"),
            [
                "Refunds take 3.5 days, e.g. by card.",
                "Ask Dr. Lee!",
                "Is it late?",
                "Yes"
            ]
        );
        assert_eq!(
            sentences("年假为 12 天。“可以结转。”最多\n4 天；逾期作废"),
            ["年假为 12 天。", "“可以结转。”", "最多 4 天；", "逾期作废"]
        );
    }

    #[test]
    fn items_rows_and_lines_of_code_stand_alone() {
        let passage =
            "Steps:\n- one\n  more\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n```sh\nx. y\n```\n";
        assert_eq!(
            sentences(passage),
            ["Steps:", "one more", "two", "a: 1; b: 2", "x. y"]
        );
    }

    proptest! {
        #[test]
        fn sentences_are_bounded_never_empty_and_hold_only_what_the_passage_holds(
            passage in "([a-z]{1,5}[ .!?\n|#-]{0,3}|[中文。；\n]{1,6}){0,300}|\\PC{0,100}",
        ) {
            for sentence in sentences(&passage) {
                prop_assert!(!sentence.trim().is_empty());
                prop_assert!(sentence.chars().count() <= MAX_CHARS + 1);
                let held = |c: char| passage.contains(c) || matches!(c, ' ' | ';' | ':' | '…');
                prop_assert!(sentence.chars().all(held), "{sentence}");
            }
        }
    }
}
