//! Writes any metrics in the Prometheus text format.

use std::fmt::{Display, Write};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// A value that only increases until the process restarts.
    Counter,
    /// A value that can increase and decrease.
    Gauge,
    /// Counts of times up to fixed bounds, together with the total number and the sum of the times.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the kind in the text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A text in the Prometheus format, to which metrics are appended.
#[derive(Clone, Debug, Default)]
pub struct Text {
    text: String,
}

impl Text {
    /// Creates an empty text.
    #[must_use]
    pub fn new() -> Text {
        Text::default()
    }

    /// Begins the samples of a metric. All samples of the metric must follow before the next metric begins.
    /// `help` is one sentence.
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        self.words(&["# HELP ", name, " "]);
        self.escaped(help, false);
        self.words(&["\n# TYPE ", name, " ", kind.name(), "\n"]);
    }

    /// Writes one sample. The sample's name is the family's name, followed in a histogram by `_bucket`,
    /// `_sum` or `_count`.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.words(&[if index == 0 { "{" } else { "," }, label, "=\""]);
            self.escaped(value, true);
            self.text.push('"');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn words(&mut self, words: &[&str]) {
        words.iter().for_each(|word| self.text.push_str(word));
    }

    /// Appends text that is in `quotes` or at the end of a line. Copies long runs of letters at a time: fewer
    /// than one in a thousand values needs escaping, and a scrape takes processor time from the host.
    fn escaped(&mut self, text: &str, quotes: bool) {
        let is_special = |letter: char| matches!(letter, '\\' | '\n') || quotes && letter == '"';
        for piece in text.split_inclusive(is_special) {
            match piece.char_indices().next_back() {
                Some((at, '\n')) => self.words(&[&piece[..at], "\\n"]),
                Some((at, last)) if is_special(last) => self.words(&[&piece[..at], "\\", &piece[at..]]),
                _ => self.text.push_str(piece),
            }
        }
    }

    /// Returns the text written so far.
    #[must_use]
    pub fn into_string(self) -> String {
        self.text
    }
}
