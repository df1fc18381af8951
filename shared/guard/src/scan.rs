//! Puts the rules together: what is found in a text, and the text that comes out.

use std::borrow::Cow;
use std::ops::Range;

use raglan_texts::{Language, translated};

use crate::encoded;
use crate::invisible::unexpected;
use crate::markup::{self, Escape};
use crate::rewrite::{Edit, Rank, apply, excerpt, fold_overlong_lines, marks};
use crate::tokens;
use crate::unit::{CLOSE, ENCODED_CLOSE, ENCODED_OPEN, FOLD, LINE_PREFIX, OPEN};
use crate::{Finding, Rule};

/// Length of the lines of a labelled run, as in MIME (RFC 2045).
const ENCODED_LINE_CHARS: usize = 76;

/// Longest text that is guarded again until nothing changes, in bytes. Guarded text reads like the
/// text it was made from, but for a few odd neighbourhoods (a tag inside a tag); going over it again
/// settles those, and would only cost time in a text that is too long to be a passage.
const MAX_SETTLED_BYTES: usize = 64 * 1024;
/// How often a text is guarded again at most.
const MAX_ROUNDS: usize = 8;

/// Neutralises `text`; gives `None` for the text when it stays as it is.
pub(crate) fn guard(text: &str, language: Language) -> (Option<String>, Vec<Finding>) {
    let (mut out, findings) = guard_once(text, language);
    for _ in 0..MAX_ROUNDS {
        let again = out
            .as_deref()
            .filter(|out| out.len() <= MAX_SETTLED_BYTES)
            .map(|out| guard_once(out, language));
        match again {
            Some((Some(next), _)) if out.as_ref() != Some(&next) => out = Some(next),
            _ => break,
        }
    }
    (out, findings)
}

fn guard_once(text: &str, language: Language) -> (Option<String>, Vec<Finding>) {
    let mut report = Report::default();
    let mut edits = Vec::new();
    let mut marked: Vec<Range<usize>> = Vec::new();

    // A label ends a word, so a word ends where a label will be.
    let mut borders = Vec::new();
    for found in encoded::find(text) {
        // Groups of digits are already too short for a line to matter.
        if text
            .get(found.span.clone())
            .is_some_and(|run| run.contains(' '))
        {
            marked.push(found.span.clone());
        } else {
            label_encoded(text, &found.span, &mut edits);
            borders.extend([found.span.start, found.span.end]);
        }
        report.add(found.rule, found.detail, found.span);
    }
    for hit in tokens::find(text, &borders) {
        if hit.rule == Rule::FakeRoleLine {
            prefix_line(text, hit.span.start, &mut edits);
        } else {
            marked.push(if hit.rule == Rule::FakeToolCall {
                with_quotes(text, &hit.span)
            } else {
                hit.span.clone()
            });
        }
        report.add(hit.rule, hit.detail, hit.span);
    }
    markup::find(text, |found| {
        for bracket in found.brackets.into_iter().flatten() {
            edits.push(neutral_bracket(text, bracket, found.escape));
        }
        report.add(found.rule, found.detail, found.span);
    });
    for span in merged(marked) {
        mark(text, &span, &mut edits);
    }
    let invisible: Vec<_> = unexpected(text).collect();
    for invisible in &invisible {
        let span = invisible.start..invisible.start + invisible.c.len_utf8();
        report.add(Rule::InvisibleChar, "a code point that is not drawn", span);
    }

    let is_rewritten = !edits.is_empty() || !invisible.is_empty() || marks(text).next().is_some();
    let rewritten = is_rewritten.then(|| apply(text, edits, &invisible));
    let folded = fold_overlong_lines(rewritten.as_deref().unwrap_or(text));
    if let Some((_, first, count)) = &folded {
        // Places in the rewritten text are near enough to those in the original only when nothing
        // was rewritten in front of them.
        let span = if rewritten.is_none() {
            first.clone()
        } else {
            longest_line(text)
        };
        report.add(
            Rule::OverlongLine,
            "a line of more than 4000 characters",
            span,
        );
        report.count(Rule::OverlongLine, *count);
    }
    let out = folded.map(|(folded, ..)| folded).or(rewritten);
    (out, report.findings(text, language))
}

/// The span and the quotes around it: marks inside a JSON string would leave the JSON as it is.
fn with_quotes(text: &str, span: &Range<usize>) -> Range<usize> {
    let (before, after) = around(text, span);
    span.start - usize::from(before.ends_with('"'))..span.end + usize::from(after.starts_with('"'))
}

/// What stands before and behind a span.
fn around<'a>(text: &'a str, span: &Range<usize>) -> (&'a str, &'a str) {
    (
        text.get(..span.start).unwrap_or_default(),
        text.get(span.end..).unwrap_or_default(),
    )
}

/// Puts the marks around a span, or keeps those that are there.
fn mark(text: &str, span: &Range<usize>, edits: &mut Vec<Edit>) {
    let (before, after) = around(text, span);
    let (open, close) = if before.ends_with(OPEN) && after.starts_with(CLOSE) {
        (
            span.start - OPEN.len_utf8()..span.start,
            span.end..span.end + CLOSE.len_utf8(),
        )
    } else {
        (span.start..span.start, span.end..span.end)
    };
    edits.push(Edit {
        range: open,
        rank: Rank::OpenMark,
        text: Cow::Borrowed("⟦"),
    });
    edits.push(Edit {
        range: close,
        rank: Rank::CloseMark,
        text: Cow::Borrowed("⟧"),
    });
}

/// Puts the prefix in front of the role at `at`, unless it is there already.
fn prefix_line(text: &str, at: usize, edits: &mut Vec<Edit>) {
    // The mark of an override may stand behind the prefix, and the fold of a long line may have come
    // in between.
    let before = text.get(..at).unwrap_or_default();
    let before = without(without(before, "⟦"), FOLD);
    let has_prefix = before
        .strip_suffix(' ')
        .is_some_and(|before| without(before, FOLD).ends_with(LINE_PREFIX.trim_end()));
    if !has_prefix {
        edits.push(Edit {
            range: at..at,
            rank: Rank::LinePrefix,
            text: Cow::Borrowed(LINE_PREFIX),
        });
    }
}

/// `text` without `end`, if it ends so.
fn without<'a>(text: &'a str, end: &str) -> &'a str {
    text.strip_suffix(end).unwrap_or(text)
}

/// Takes the meaning from one bracket.
fn neutral_bracket(text: &str, range: Range<usize>, escape: Escape) -> Edit {
    let bracket = text.get(range.clone()).unwrap_or_default();
    let text = match (escape, bracket) {
        (Escape::Backslash, _) => Cow::Owned(format!("\\{bracket}")),
        (Escape::Entity, "<") => Cow::Borrowed("&lt;"),
        (Escape::Entity, ">") => Cow::Borrowed("&gt;"),
        (Escape::Entity, _) => Cow::Owned(format!(
            "&#{};",
            bracket.chars().next().map_or(0, u32::from)
        )),
    };
    Edit {
        range,
        rank: Rank::Bracket,
        text,
    }
}

/// Puts the labels around an encoded run and folds its lines, or keeps what is there.
fn label_encoded(text: &str, span: &Range<usize>, edits: &mut Vec<Edit>) {
    let run = text.get(span.clone()).unwrap_or_default();
    let is_one_line = run.len() <= ENCODED_LINE_CHARS && !run.contains('\n');
    if encoded::is_labelled(text, span) {
        // The labels are brought in again, or their marks would be escaped.
        let before = text.get(..span.start).unwrap_or_default();
        let line_break = usize::from(before.ends_with('\n'));
        let open = span.start - line_break - ENCODED_OPEN.len()..span.start - line_break;
        let line_break = usize::from(
            text.get(span.end..)
                .is_some_and(|rest| rest.starts_with('\n')),
        );
        let close = span.end + line_break..span.end + line_break + ENCODED_CLOSE.len();
        edits.push(Edit {
            range: open,
            rank: Rank::OpenLabel,
            text: Cow::Borrowed(ENCODED_OPEN),
        });
        edits.push(Edit {
            range: close,
            rank: Rank::CloseLabel,
            text: Cow::Borrowed(ENCODED_CLOSE),
        });
    } else {
        let line_break = if is_one_line { "" } else { "\n" };
        edits.push(Edit {
            range: span.start..span.start,
            rank: Rank::OpenLabel,
            text: Cow::Owned(format!("{ENCODED_OPEN}{line_break}")),
        });
        edits.push(Edit {
            range: span.end..span.end,
            rank: Rank::CloseLabel,
            text: Cow::Owned(format!("{line_break}{ENCODED_CLOSE}")),
        });
    }
    let mut line_start = span.start;
    for line in run.split('\n') {
        let mut at = line_start + ENCODED_LINE_CHARS;
        while at < line_start + line.len() {
            edits.push(Edit {
                range: at..at,
                rank: Rank::Bracket,
                text: Cow::Borrowed("\n"),
            });
            at += ENCODED_LINE_CHARS;
        }
        line_start += line.len() + 1;
    }
}

/// The spans in order, those that overlap made one.
fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_by_key(|span| (span.start, span.end));
    let mut out: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match out.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => out.push(span),
        }
    }
    out
}

/// The line of `text` with the most bytes.
fn longest_line(text: &str) -> Range<usize> {
    let mut start = 0;
    let mut longest = 0..0;
    for line in text.split('\n') {
        if line.len() > longest.len() {
            longest = start..start + line.len();
        }
        start += line.len() + 1;
    }
    longest
}

/// What was found so far, by rule.
#[derive(Default)]
struct Report {
    entries: Vec<Entry>,
}

struct Entry {
    rule: Rule,
    detail: &'static str,
    /// The match that begins first in the text.
    first: Range<usize>,
    /// All matches of rules whose matches can overlap; `count` of the others.
    spans: Vec<Range<usize>>,
    count: u32,
}

impl Report {
    fn add(&mut self, rule: Rule, detail: &'static str, span: Range<usize>) {
        let overlaps = rule != Rule::InvisibleChar;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.rule == rule) else {
            let spans = if overlaps {
                vec![span.clone()]
            } else {
                Vec::new()
            };
            self.entries.push(Entry {
                rule,
                detail,
                first: span,
                spans,
                count: 1,
            });
            return;
        };
        if (span.start, std::cmp::Reverse(span.end))
            < (entry.first.start, std::cmp::Reverse(entry.first.end))
        {
            entry.first = span.clone();
            entry.detail = detail;
        }
        entry.count = entry.count.saturating_add(1);
        if overlaps {
            entry.spans.push(span);
        }
    }

    /// Sets the number of matches.
    fn count(&mut self, rule: Rule, count: u32) {
        for entry in self.entries.iter_mut().filter(|entry| entry.rule == rule) {
            entry.count = count;
            entry.spans.clear();
        }
    }

    fn findings(self, text: &str, language: Language) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .entries
            .into_iter()
            .map(|entry| {
                let matched = text.get(entry.first.clone()).unwrap_or_default();
                let count = match merged(entry.spans).len() {
                    0 => entry.count,
                    count => u32::try_from(count).unwrap_or(u32::MAX),
                };
                Finding {
                    rule: entry.rule,
                    severity: entry.rule.severity(),
                    detail: translated(language, entry.detail).to_owned(),
                    matched: excerpt(matched, Finding::MATCHED_CHARS),
                    count,
                    span: entry.first,
                }
            })
            .collect();
        findings.sort_by_key(|finding| finding.rule);
        findings
    }
}
