//! Counts the files that name each option. A setting of the protocol or of a host should be defined once, and
//! read only where it is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::baseline::{Mode, compare_or_write};
use crate::circles::crates;
use crate::modules::{Modules, read};
use crate::source::{Token, tokens};

/// Files, each with a struct whose public fields are options.
const DEFINITIONS: [(&str, &str); 2] =
    [("crates/homa-proto/src/config.rs", "Config"), ("crates/homa/src/api/builder.rs", "HostConfig")];

/// Prints the number of files that name each option, and compares it with the committed list.
///
/// # Errors
/// A number differs from the list, or a file cannot be read.
pub fn run(root: &Path, mode: Mode) -> Result<()> {
    let mut options: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (file, name) in DEFINITIONS {
        let fields = fields(&read(&root.join(file))?, name);
        ensure!(!fields.is_empty(), "{file} has no struct {name} with public fields");
        // A name that consists of a single word often means other things too.
        options
            .extend(fields.into_iter().filter(|field| field.contains('_')).map(|field| (field, Vec::new())));
    }
    for directory in crates(root)? {
        for file in Modules::below(&directory.join("src"))?.files.into_values() {
            let words: std::collections::HashSet<String> =
                tokens(&read(&file)?).into_iter().filter_map(word).collect();
            let named = options.iter_mut().filter(|(option, _)| words.contains(*option));
            named.for_each(|(_, files)| files.push(file.clone()));
        }
    }
    for (option, files) in &options {
        println!("{option:28} {:3} files", files.len());
        if mode == Mode::List {
            files.iter().for_each(|file| println!("  {}", file.strip_prefix(root).unwrap_or(file).display()));
        }
    }
    let counts = options.into_iter().map(|(option, files)| (option, files.len())).collect();
    compare_or_write(&root.join(".ci/options"), "options", &counts, mode)
}

fn word(token: Token) -> Option<String> {
    match token {
        Token::Word(word) => Some(word),
        _ => None,
    }
}

/// Returns the public fields of a struct, in order.
fn fields(text: &str, name: &str) -> Vec<String> {
    let tokens = tokens(text);
    let is = |at: usize, word: &str| matches!(tokens.get(at), Some(Token::Word(found)) if found == word);
    let Some(start) = (0..tokens.len()).find(|&at| is(at, "struct") && is(at + 1, name)) else {
        return Vec::new();
    };
    let end = (start..tokens.len()).find(|&at| tokens[at] == Token::Sign('}')).unwrap_or(tokens.len());
    let field = |at: usize| match (&tokens[at], tokens.get(at + 1)) {
        (Token::Word(field), Some(Token::Sign(':'))) if is(at - 1, "pub") => Some(field.clone()),
        _ => None,
    };
    (start + 1..end).filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_fields_of_the_struct_are_found() {
        let text = "struct Other { pub x: u8 }\n/// A doc: text\npub struct Config { pub a: u8, b: u8, #[doc(hidden)] pub c: Option<u8> }";
        assert_eq!(fields(text, "Config"), ["a", "c"]);
        assert!(fields(text, "Missing").is_empty());
    }
}
