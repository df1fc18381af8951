//! Takes fields out of a JSON object, one by one, and notes every problem; what is left over at the end
//! is unknown.

use serde_json::{Map, Value};

/// The object at `place`. Problems name the place and the field, and never a value.
pub(super) struct Fields<'a> {
    place: String,
    values: Map<String, Value>,
    problems: &'a mut Vec<String>,
    /// Whether the rest cannot be judged.
    is_given_up: bool,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(
        place: String,
        values: Map<String, Value>,
        problems: &'a mut Vec<String>,
    ) -> Self {
        Self {
            place,
            values,
            problems,
            is_given_up: false,
        }
    }

    pub(super) fn problem(&mut self, name: &str, problem: &str) {
        let place = &self.place;
        self.problems.push(format!("{place}.{name}: {problem}"));
    }

    /// Notes what was expected of a field that decides what the others mean.
    pub(super) fn give_up(&mut self, name: &str, expected: &str) {
        self.problem(name, &format!("expected {expected}"));
        self.forgive();
    }

    /// What is left over is no problem of its own.
    pub(super) const fn forgive(&mut self) {
        self.is_given_up = true;
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.values.remove(name)? {
            Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            _ => {
                self.problem(name, "expected a text");
                None
            }
        }
    }

    pub(super) fn required_text(&mut self, name: &str) -> Option<String> {
        if !self.values.contains_key(name) {
            self.problem(name, "is missing");
            return None;
        }
        self.text(name)
    }

    /// A text that decides what the other fields mean.
    pub(super) fn deciding_text(&mut self, name: &str) -> Option<String> {
        let text = self.required_text(name);
        if text.is_none() {
            self.forgive();
        }
        text
    }

    /// One of these words; the first is the default.
    pub(super) fn word(&mut self, name: &str, words: &[&str]) -> String {
        let default = words.first().copied().unwrap_or_default();
        let Some(text) = self.text(name) else {
            return default.to_owned();
        };
        if !words.contains(&text.as_str()) {
            self.problem(name, &format!("expected one of {}", words.join(", ")));
        }
        text
    }

    pub(super) fn switch(&mut self, name: &str, default: bool) -> bool {
        match self.values.remove(name) {
            None => default,
            Some(Value::Bool(value)) => value,
            Some(_) => {
                self.problem(name, "expected true or false");
                default
            }
        }
    }

    pub(super) fn number(&mut self, name: &str, default: u64, least: u64, most: u64) -> u64 {
        let Some(value) = self.values.remove(name) else {
            return default;
        };
        match value.as_u64() {
            Some(number) if (least..=most).contains(&number) => number,
            _ => {
                self.problem(name, &format!("expected a number from {least} to {most}"));
                default
            }
        }
    }

    pub(super) fn decimal(&mut self, name: &str, least: f32, most: f32) -> Option<f32> {
        let value = self.values.remove(name)?;
        // Parsed from the text, which is the nearest number of this width.
        let number = value.is_number().then(|| value.to_string().parse().ok());
        match number.flatten() {
            Some(number) if (least..=most).contains(&number) => Some(number),
            _ => {
                self.problem(name, &format!("expected a number from {least} to {most}"));
                None
            }
        }
    }

    pub(super) fn object(&mut self, name: &str) -> Option<Fields<'_>> {
        let value = self.values.remove(name)?;
        let place = format!("{}.{name}", self.place);
        if let Value::Object(values) = value {
            Some(Fields::new(place, values, self.problems))
        } else {
            self.problem(name, "expected an object");
            None
        }
    }

    /// An object whose fields are not ours.
    pub(super) fn free_object(&mut self, name: &str) -> Option<Map<String, Value>> {
        let value = self.values.remove(name)?;
        if let Value::Object(values) = value {
            Some(values)
        } else {
            self.problem(name, "expected an object");
            None
        }
    }

    /// Reads each object of a list with `read`.
    pub(super) fn each_object(&mut self, name: &str, mut read: impl FnMut(&mut Fields<'_>)) {
        let elements = match self.values.remove(name) {
            None => return,
            Some(Value::Array(elements)) => elements,
            Some(_) => return self.problem(name, "expected a list of objects"),
        };
        for (index, element) in elements.into_iter().enumerate() {
            let place = format!("{}.{name}[{index}]", self.place);
            if let Value::Object(values) = element {
                let mut inner = Fields::new(place, values, self.problems);
                read(&mut inner);
                inner.finish();
            } else {
                self.problems.push(format!("{place}: expected an object"));
            }
        }
    }

    /// Notes what nobody asked for.
    pub(super) fn finish(self) {
        if self.is_given_up {
            return;
        }
        for name in self.values.keys() {
            let place = &self.place;
            self.problems.push(format!("{place}.{name:?} is not known"));
        }
    }
}
