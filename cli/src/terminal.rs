//! What people read and type: standard input, standard output and standard error.

use std::fmt::Display;
use std::io::{BufRead, BufReader, IsTerminal as _, Write};

use tokio::signal::unix::{SignalKind, signal};
use unicode_width::UnicodeWidthStr as _;

use crate::failure::Failure;
use crate::language::text;

/// Columns of a label.
const LABEL_WIDTH: usize = 16;

/// Writes one line to standard output. A reader that went away (`raglan … | head`) is no failure.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes one line to standard error.
pub fn warn(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An error and its causes on one line; a cause that the line before tells already is not repeated.
#[must_use]
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.replace('\n', " ")
}

/// Ends when the process is asked to stop: by Ctrl-C or by SIGTERM.
pub async fn stop_signal() {
    let terminate = async {
        if let Ok(mut signal) = signal(SignalKind::terminate()) {
            signal.recv().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}

/// The three standard streams of a command, so that a test can be the terminal.
pub struct Console {
    /// Results, and nothing else.
    pub out: Box<dyn Write>,
    /// Questions, warnings and hints.
    pub err: Box<dyn Write>,
    /// Answers.
    pub input: Box<dyn BufRead>,
    /// Whether somebody looks at `out`.
    pub is_out_terminal: bool,
    /// Whether somebody can answer.
    pub is_input_terminal: bool,
}

impl Console {
    /// The process's own streams.
    #[must_use]
    pub fn standard() -> Self {
        let input = std::io::stdin();
        Self {
            is_out_terminal: std::io::stdout().is_terminal(),
            is_input_terminal: input.is_terminal(),
            out: Box::new(std::io::stdout()),
            err: Box::new(std::io::stderr()),
            input: Box::new(BufReader::new(input)),
        }
    }

    /// One line of the result. A reader that went away is no failure.
    pub fn say(&mut self, line: impl Display) {
        let _ = writeln!(self.out, "{line}");
    }

    /// A part of the result that has its own line ends. A reader that went away is no failure.
    pub fn print(&mut self, text: impl Display) {
        let _ = write!(self.out, "{text}");
    }

    /// One line beside the result.
    pub fn note(&mut self, line: impl Display) {
        let _ = writeln!(self.err, "{line}");
    }

    /// Goes on only if the operator agrees to something that cannot be undone: by `--yes`, or by
    /// typing it.
    ///
    /// # Errors
    /// [`Failure::Refused`] when the answer is no, or when nobody can be asked.
    pub fn confirm(&mut self, what: &str, yes: bool) -> Result<(), Failure> {
        if yes {
            return Ok(());
        }
        if !self.is_input_terminal {
            let message = text!(
                "{what} This cannot be undone; say --yes to do it unasked",
                what
            );
            return Err(Failure::Refused(message));
        }
        let question = text!("{what} This cannot be undone. Type yes to go on: ", what);
        let _ = write!(self.err, "{question}");
        let _ = self.err.flush();
        let mut answer = String::new();
        let read = self.input.read_line(&mut answer);
        if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES") {
            Ok(())
        } else {
            Err(Failure::Refused(
                text!("not confirmed: nothing was changed").to_owned(),
            ))
        }
    }
}

/// Values behind their labels, one a line. The values begin in the same column.
#[must_use]
pub fn labelled(lines: &[(&str, String)]) -> String {
    let lines = lines.iter().map(|(label, value)| {
        let room = " ".repeat(LABEL_WIDTH.saturating_sub(label.width()));
        format!("{label}{room} {value}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Rows under a heading, in columns as wide as they need to be. The last column is not padded.
#[must_use]
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.width())
            .chain(heading.get(column).map(|title| title.width()))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width.saturating_sub(cell.width()) + 2));
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![line(heading)];
    lines.extend(rows.iter().map(|row| {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        line(&cells)
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn console(answer: &'static str, is_input_terminal: bool) -> Console {
        Console {
            out: Box::new(Vec::new()),
            err: Box::new(Vec::new()),
            input: Box::new(Cursor::new(answer)),
            is_out_terminal: false,
            is_input_terminal,
        }
    }

    #[test]
    fn only_a_yes_confirms() {
        for (answer, confirmed) in [
            ("yes\n", true),
            ("y\n", true),
            ("\n", false),
            ("no\n", false),
            ("yess\n", false),
            ("", false),
        ] {
            let mut console = console(answer, true);
            assert_eq!(console.confirm("?", false).is_ok(), confirmed, "{answer:?}");
        }
    }

    #[test]
    fn without_a_terminal_only_the_option_confirms() {
        assert!(console("yes\n", false).confirm("?", false).is_err());
        assert!(console("", false).confirm("?", true).is_ok());
    }

    #[test]
    fn columns_are_as_wide_as_what_a_terminal_shows() {
        let rows = [
            vec!["知识库".to_owned(), "x".to_owned()],
            vec!["a".to_owned(), String::new()],
        ];
        assert_eq!(table(&["ID", "NAME"], &rows), "ID      NAME\n知识库  x\na");
    }
}
