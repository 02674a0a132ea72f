//! Committed lists of named numbers that may only shrink.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The operation on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Compare the numbers with the file.
    Check,
    /// Write the numbers to the file.
    Write,
    /// Print the names behind each number.
    List,
}

/// Compares the numbers with the file, or writes them to it.
///
/// # Errors
/// A number differs from that in the file, or the file cannot be read or written.
pub fn compare_or_write(
    path: &Path,
    command: &str,
    numbers: &BTreeMap<String, usize>,
    mode: Mode,
) -> Result<()> {
    if mode == Mode::Write {
        let mut text =
            format!("# Written by `cargo xtask {command} --write`. The numbers may only shrink.\n");
        for (name, number) in numbers {
            let _ = writeln!(text, "{name} {number}");
        }
        return std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let differences = compare(&parse(&text)?, numbers);
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nLower numbers, and names that come or go, are written by `cargo xtask {command} --write`; higher ones \
         need a reason",
        differences.join("\n")
    )
}

fn parse(text: &str) -> Result<BTreeMap<String, usize>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let entry = |line: &str| {
        let (name, number) = line.split_once(' ').with_context(|| format!("`{line}` has no number"))?;
        Ok((name.to_owned(), number.parse().with_context(|| format!("`{line}`"))?))
    };
    lines.map(entry).collect()
}

fn compare(known: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, number) in now {
        match known.get(name) {
            Some(before) if before == number => {}
            Some(before) => differences.push(format!("{name}: {before} before, {number} now")),
            None => differences.push(format!("{name}: {number}, not in the list")),
        }
    }
    let gone = known.keys().filter(|name| !now.contains_key(*name));
    differences.extend(gone.map(|name| format!("{name}: in the list, and gone")));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> BTreeMap<String, usize> {
        parse(text).expect("a list")
    }

    #[test]
    fn every_difference_is_told() {
        let known = numbers("# a comment\na 1\nb 2\nc 3\n");
        assert!(compare(&known, &known).is_empty());
        let differences = compare(&known, &numbers("a 2\nb 1\nd 4"));
        assert_eq!(
            differences,
            ["a: 1 before, 2 now", "b: 2 before, 1 now", "d: 4, not in the list", "c: in the list, and gone"]
        );
        assert!(parse("a").is_err() && parse("a b").is_err());
    }
}
