//! The names in the public interface of `homa`: what applications see, and what a release may break.
//!
//! The names are the types that `lib.rs` exports, and their public functions, fields and variants. They are
//! read from the source, so that the check needs neither a nightly toolchain nor a build.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::baseline::Mode;
use crate::modules::{Modules, read};
use crate::source::{Token, tokens};

/// Maximum number of names in the root of the crate, so that their list fits on a page.
const MOST_ROOT_NAMES: usize = 15;

const SOURCE: &str = "crates/homa/src";
const LIST: &str = ".ci/api";

/// Prints the number of names, and compares them with the committed list.
///
/// # Errors
/// The names differ from the list, there are too many in the root, or a file cannot be read.
pub fn run(root: &Path, mode: Mode) -> Result<()> {
    let source = root.join(SOURCE);
    let exported = exported(&tokens(&read(&source.join("lib.rs"))?));
    let kernel_api = exported_by(&tokens(&read(&source.join("kernel_api/mod.rs"))?), "kernel_api::");
    let errors = exported_by(&tokens(&read(&source.join("types/error.rs"))?), "error::");
    let mut names: BTreeSet<String> = exported.into_iter().chain(kernel_api).chain(errors).collect();
    let in_root = names.iter().filter(|name| !name.contains("::")).count();
    let types: BTreeSet<String> = names.iter().map(|name| last(name)).collect();
    for file in Modules::below(&source)?.files.into_values() {
        names.extend(members(&tokens(&read(&file)?), &types));
    }
    println!("homa: {in_root} names in the root, {} in all", names.len());
    if mode == Mode::List {
        names.iter().for_each(|name| println!("  {name}"));
    }
    ensure!(
        in_root <= MOST_ROOT_NAMES,
        "the root of homa has {in_root} names, and at most {MOST_ROOT_NAMES} are allowed: export from a module"
    );
    compare_or_write(&root.join(LIST), &names, mode)
}

fn compare_or_write(path: &Path, names: &BTreeSet<String>, mode: Mode) -> Result<()> {
    if mode == Mode::Write {
        let lines: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = format!(
            "# Written by `cargo xtask api --write`. A name that goes, or changes, breaks users: say so in CHANGELOG.md.\n{}\n",
            lines.join("\n")
        );
        return std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    let text = read(path)?;
    let known: BTreeSet<String> =
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let gone = known.difference(names).map(|name| format!("{name}: gone"));
    let new = names.difference(&known).map(|name| format!("{name}: new"));
    let differences: Vec<String> = gone.chain(new).collect();
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nIf this is meant, write the list by `cargo xtask api --write`, and say so in CHANGELOG.md",
        differences.join("\n")
    )
}

fn last(name: &str) -> String {
    name.rsplit("::").next().unwrap_or(name).to_owned()
}

fn is_type(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
}

/// Returns the types exported by the crate's root, and those of its inline modules prefixed with the module's
/// name.
fn exported(tokens: &[Token]) -> Vec<String> {
    let mut names = Vec::new();
    let mut prefix = String::new();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at..] {
            [Token::Word(word), Token::Word(name), Token::Sign('{'), ..] if word == "mod" => {
                prefix = format!("{name}::");
                at += 3;
            }
            [Token::Sign('}'), ..] => {
                prefix.clear();
                at += 1;
            }
            [Token::Word(word), Token::Word(used), ..] if word == "pub" && used == "use" => {
                let end = end_of_use(tokens, at);
                names.extend(used_types(&tokens[at..end]).map(|name| format!("{prefix}{name}")));
                at = end;
            }
            _ => at += 1,
        }
    }
    names
}

/// Returns the types that a module's file defines or exports.
fn exported_by(tokens: &[Token], prefix: &str) -> Vec<String> {
    let defined = (0..tokens.len()).filter_map(|at| match &tokens[at..] {
        [Token::Word(public), Token::Word(kind), Token::Word(name), ..]
            if public == "pub" && ["struct", "enum", "trait"].contains(&kind.as_str()) =>
        {
            Some(name.clone())
        }
        _ => None,
    });
    let mut names: Vec<String> = exported(tokens);
    names.extend(defined);
    names.into_iter().map(|name| format!("{prefix}{name}")).collect()
}

fn end_of_use(tokens: &[Token], start: usize) -> usize {
    (start..tokens.len()).find(|&at| tokens[at] == Token::Sign(';')).unwrap_or(tokens.len())
}

/// Returns the types in a `pub use`, without modules and crates.
fn used_types(tokens: &[Token]) -> impl Iterator<Item = String> + '_ {
    tokens.iter().enumerate().filter_map(|(at, token)| match token {
        Token::Word(name) if is_type(name) && tokens.get(at + 1) != Some(&Token::PathSeparator) => {
            Some(name.clone())
        }
        _ => None,
    })
}

/// Returns the public functions, constants, fields and variants of these types that a file defines.
fn members(tokens: &[Token], types: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let Token::Word(word) = &tokens[at] else { continue };
        let (Some(open), true) =
            (body(tokens, at), ["impl", "struct", "enum", "trait"].contains(&word.as_str()))
        else {
            continue;
        };
        let head = &tokens[at + 1..open];
        let Some(name) = head.iter().find_map(type_name).filter(|name| types.contains(*name)) else {
            continue;
        };
        let is_trait_impl = head.contains(&Token::Word("for".to_owned()));
        let is_public = word == "impl" || at > 0 && tokens[at - 1] == Token::Word("pub".to_owned());
        if is_trait_impl || !is_public {
            continue;
        }
        let inside = top_level_tokens(tokens, open);
        let names = match word.as_str() {
            "enum" => variants(inside),
            "trait" => functions(inside, false),
            _ => functions(inside, true),
        };
        found.extend(names.into_iter().map(|member| format!("{name}::{member}")));
    }
    found
}

fn type_name(token: &Token) -> Option<&String> {
    match token {
        Token::Word(word) if is_type(word) => Some(word),
        _ => None,
    }
}

/// Returns the brace that opens the body of the item at `start`, or `None` if it has no body.
fn body(tokens: &[Token], start: usize) -> Option<usize> {
    let end = (start..tokens.len()).find(|&at| matches!(tokens[at], Token::Sign('{' | ';' | '=')))?;
    (tokens[end] == Token::Sign('{')).then_some(end)
}

/// Returns the tokens directly inside the body, without those inside nested braces, brackets and parentheses.
fn top_level_tokens(tokens: &[Token], open: usize) -> Vec<&Token> {
    let (mut depth, mut found) = (0, Vec::new());
    let public = Token::Word("pub".to_owned());
    for token in &tokens[open..] {
        match token {
            // `pub(crate)` is not public.
            Token::Sign('(') if depth == 1 && found.last() == Some(&&public) => {
                found.pop();
                depth += 1;
            }
            Token::Sign('{' | '(' | '[') => depth += 1,
            Token::Sign('}' | ')' | ']') => depth -= 1,
            _ if depth == 1 => found.push(token),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Returns functions, constants and fields; with `public`, only those that are `pub`.
fn functions(tokens: Vec<&Token>, public: bool) -> Vec<String> {
    let is_pub = |at: usize| tokens.get(at).is_some_and(|token| **token == Token::Word("pub".to_owned()));
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let starts = if public { is_pub(at) } else { at == 0 || !is_pub(at) };
        if !starts {
            continue;
        }
        let words = tokens[at + usize::from(public)..].iter().map_while(|token| match token {
            Token::Word(word) => Some(word.as_str()),
            _ => None,
        });
        let words: Vec<&str> = words.take(4).collect();
        let item = words.iter().position(|word| ["fn", "const"].contains(word));
        match (item, words.as_slice()) {
            // `pub const fn` is a function, and `pub const NAME` is a constant.
            (Some(item), _) => {
                let name = words[item + 1..].iter().find(|word| **word != "fn");
                if public || item == 0 {
                    found.extend(name.map(|name| (*name).to_owned()));
                }
            }
            (None, [field, ..]) if public => found.push((*field).to_owned()),
            _ => {}
        }
    }
    found
}

fn variants(tokens: Vec<&Token>) -> Vec<String> {
    tokens.into_iter().filter_map(type_name).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_its_modules_export_types() {
        let text = "mod api; pub use api::{Call, error}; pub use bytes::Bytes; pub use homa_proto as proto;
            pub mod reader { pub use crate::api::Part; } pub use api::Host;";
        assert_eq!(exported(&tokens(text)), ["Call", "Bytes", "reader::Part", "Host"]);
        assert_eq!(exported_by(&tokens("pub use a::B; pub enum C { D } enum E {}"), "m::"), ["m::B", "m::C"]);
    }

    #[test]
    fn public_members_are_found_and_no_others() {
        let types = ["Call", "Choice", "Lender"].map(str::to_owned).into();
        let text = "impl Call { pub fn wait(self) { let x = Y { pub_: 1 }; } fn own() {} pub(crate) fn ours() {} pub const MOST: usize = 1; \
            pub const fn new() -> Call { Call } } impl Drop for Call { fn drop(&mut self) {} } impl<T> Other { pub fn no() {} } \
            pub struct Call { pub cookie: u64, own: u8 } pub enum Choice { One, Two { size: u8 }, Three(u32) } \
            pub trait Lender: Send { fn lend(&self) -> u8; }";
        let mut found = members(&tokens(text), &types);
        found.sort();
        let expected = [
            "Call::MOST",
            "Call::cookie",
            "Call::new",
            "Call::wait",
            "Choice::One",
            "Choice::Three",
            "Choice::Two",
            "Lender::lend",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_difference_is_told() {
        let path = std::env::temp_dir().join(format!("homa-api-{}", std::process::id()));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        compare_or_write(&path, &names(&["A", "A::b"]), Mode::Write).expect("written");
        compare_or_write(&path, &names(&["A", "A::b"]), Mode::Check).expect("the same");
        let told = compare_or_write(&path, &names(&["A", "A::c"]), Mode::Check)
            .expect_err("a difference")
            .to_string();
        std::fs::remove_file(&path).expect("removed");
        assert!(told.starts_with("A::b: gone\nA::c: new\n"), "{told}");
    }
}
