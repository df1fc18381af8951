//! Reads settings from environment variables and collects every problem, so that one line names them
//! all.

use std::fmt::Display;
use std::str::FromStr;

use raglan_texts::Language;
use tracing::Level;

/// The settings cannot be used. One line names every variable that is off and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad configuration: {}", .0.join("; "))]
pub struct BadSettings(pub Vec<String>);

/// A reader of variables. A variable that is blank counts as not set.
pub struct Settings<L> {
    lookup: L,
    problems: Vec<String>,
}

impl<L: Fn(&str) -> Option<String>> Settings<L> {
    /// Reads through `lookup`.
    pub const fn new(lookup: L) -> Self {
        Self {
            lookup,
            problems: Vec::new(),
        }
    }

    /// The value as it is.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.trim().is_empty())
    }

    /// A value that has to be there.
    pub fn required(&mut self, name: &str) -> String {
        self.get(name).unwrap_or_else(|| {
            self.problem(format!("{name} is not set"));
            String::new()
        })
    }

    /// A text.
    pub fn text(&self, name: &str, default: &str) -> String {
        self.get(name).unwrap_or_else(|| default.to_owned())
    }

    /// `true` or `false`.
    pub fn switch(&mut self, name: &str, default: bool) -> bool {
        match self.get(name).as_deref().map(str::trim) {
            None => default,
            Some("true") => true,
            Some("false") => false,
            Some(other) => {
                self.problem(format!("{name} is {other:?}, expected true or false"));
                default
            }
        }
    }

    /// A whole number from `least` to `most`.
    pub fn number<N>(&mut self, name: &str, default: N, least: N, most: N) -> N
    where
        N: FromStr + PartialOrd + Display + Copy,
    {
        let Some(text) = self.get(name) else {
            return default;
        };
        match text.trim().parse() {
            Ok(number) if number >= least && number <= most => number,
            _ => {
                self.problem(format!(
                    "{name} is {text:?}, expected a number from {least} to {most}"
                ));
                default
            }
        }
    }

    /// A log level by its name.
    pub fn log_level(&mut self, name: &str) -> Level {
        match self.text(name, "info").trim() {
            "error" => Level::ERROR,
            "warn" => Level::WARN,
            "info" => Level::INFO,
            "debug" => Level::DEBUG,
            "trace" => Level::TRACE,
            other => {
                self.problem(format!(
                    "{name} is {other:?}, expected error, warn, info, debug or trace"
                ));
                Level::INFO
            }
        }
    }

    /// A language by its code.
    pub fn language(&mut self, name: &str) -> Language {
        let code = self.text(name, Language::English.code());
        Language::from_code(code.trim()).unwrap_or_else(|| {
            let codes = Language::ALL.map(Language::code).join(" or ");
            self.problem(format!("{name} is {code:?}, expected {codes}"));
            Language::English
        })
    }

    /// Notes a problem.
    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`BadSettings`] with every problem there is, not just the first one.
    pub fn finish<T>(self, value: T) -> Result<T, BadSettings> {
        if self.problems.is_empty() {
            Ok(value)
        } else {
            Err(BadSettings(self.problems))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_names_every_bad_variable() {
        let values = [("B", "maybe"), ("C", "9"), ("D", "inof"), ("E", "  ")];
        let mut settings = Settings::new(|name: &str| {
            values
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        });
        settings.required("A");
        settings.switch("B", true);
        settings.number("C", 1_u32, 1, 5);
        settings.log_level("D");
        settings.required("E");
        let error = settings.finish(()).unwrap_err();
        insta::assert_snapshot!(error, @r#"bad configuration: A is not set; B is "maybe", expected true or false; C is "9", expected a number from 1 to 5; D is "inof", expected error, warn, info, debug or trace; E is not set"#);
    }
}
