//! A finding, and how a list of findings is formatted.

use std::fmt::Write;

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The setting costs tail latency or loses packets.
    Cost,
    /// The setting may cost tail latency, depending on the use.
    Note,
    /// The system does not reveal the setting.
    Unknown,
    /// No action is required.
    Fine,
}

impl Severity {
    /// Returns the name used in the text.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Severity::Cost => "COST",
            Severity::Note => "NOTE",
            Severity::Unknown => "UNKNOWN",
            Severity::Fine => "FINE",
        }
    }
}

/// A value read from the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// The file or command from which the value was read.
    pub path: String,
    /// The value, or the reason why it could not be read.
    pub value: String,
}

/// The state of one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name used in the JSON, which is the same for all devices.
    pub name: &'static str,
    /// The device to which the finding applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The severity of the finding.
    pub severity: Severity,
    /// The values that were read.
    pub read: Vec<Reading>,
    /// Why the setting costs latency, or what it is useful for.
    pub why: String,
    /// The source of the statement in `why`, with its date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// The command that changes the setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Finding {
    /// Creates a finding that requires no action. [`Finding::with_severity`] and [`Finding::unknown`] change
    /// this.
    pub(crate) fn ok(name: &'static str, why: &str) -> Finding {
        Finding {
            name,
            device: None,
            severity: Severity::Fine,
            read: Vec::new(),
            why: why.to_owned(),
            source: None,
            command: None,
        }
    }

    /// Adds a value that was read.
    pub(crate) fn read(mut self, path: &str, value: &str) -> Finding {
        // Paths below the root have no leading slash.
        let path = if ["proc/", "sys/", "dev/"].iter().any(|start| path.starts_with(start)) {
            format!("/{path}")
        } else {
            path.to_owned()
        };
        self.read.push(Reading { path, value: value.to_owned() });
        self
    }

    /// Sets the device to which the finding applies.
    pub(crate) fn of(mut self, device: &str) -> Finding {
        self.device = Some(device.to_owned());
        self
    }

    /// Sets the source.
    pub(crate) fn source(mut self, source: &'static str) -> Finding {
        self.source = Some(source);
        self
    }

    /// Sets the severity, the reason and the command that changes the setting.
    pub(crate) fn with_severity(mut self, severity: Severity, why: &str, command: &str) -> Finding {
        self.severity = severity;
        self.why = why.to_owned();
        self.command = (!command.is_empty()).then(|| command.to_owned());
        self
    }

    /// Marks the setting as unreadable.
    pub(crate) fn unknown(mut self, why: &str, command: &str) -> Finding {
        self.command = (!command.is_empty()).then(|| command.to_owned());
        Finding { severity: Severity::Unknown, why: why.to_owned(), ..self }
    }
}

/// Width of the text, in characters.
const WIDTH: usize = 110;
/// Indentation of the text of a finding, in characters.
const INDENT: usize = 9;

/// Formats the findings for a terminal, with the worst first. Settings without a problem are included only if
/// `all` is set.
pub fn text(findings: &[Finding], all: bool) -> String {
    let mut out = String::new();
    let mut shown: Vec<&Finding> =
        findings.iter().filter(|finding| all || finding.severity != Severity::Fine).collect();
    shown.sort_by_key(|finding| finding.severity);
    // Writing to a string cannot fail.
    for finding in shown {
        let device = finding.device.as_ref().map_or(String::new(), |device| format!(" of {device}"));
        let _ = writeln!(out, "{:<INDENT$}{}{device}", finding.severity.title(), finding.name);
        for Reading { path, value } in &finding.read {
            let _ = writeln!(out, "{:INDENT$}{path}: {}", "", value.replace('\n', " | "));
        }
        let source = finding.source.map_or(String::new(), |source| format!(" [{source}]"));
        for line in wrapped(&format!("{}{source}", finding.why)) {
            let _ = writeln!(out, "{:INDENT$}{line}", "");
        }
        if let Some(command) = &finding.command {
            let _ = writeln!(out, "{:INDENT$}$ {command}", "");
        }
        out.push('\n');
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let _ = writeln!(
        out,
        "{} cost, {} may, {} unknown, {} fine{}",
        count(Severity::Cost),
        count(Severity::Note),
        count(Severity::Unknown),
        count(Severity::Fine),
        if all { "" } else { " (--all shows them)" }
    );
    out
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH - INDENT {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_stands_first_and_what_is_fine_only_if_asked() {
        let fine = Finding::ok("swap", "nothing is swapped out");
        let cost = Finding::ok("gro", "").of("eth0").read("proc/x", "1\n2").source("PERF.md").with_severity(
            Severity::Cost,
            &"word ".repeat(60),
            "ethtool -K eth0 gro on",
        );
        let findings = [fine, cost];
        let shown = text(&findings, true);
        assert!(
            shown.starts_with("COST     gro of eth0\n         /proc/x: 1 | 2\n         word word"),
            "{shown}"
        );
        assert!(shown.contains("[PERF.md]\n         $ ethtool -K eth0 gro on\n\nFINE     swap\n"), "{shown}");
        assert!(shown.ends_with("1 cost, 0 may, 0 unknown, 1 fine\n"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        assert!(!text(&findings, false).contains("swap"));
    }
}
