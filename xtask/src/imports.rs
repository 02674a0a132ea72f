//! Finds the modules that a file uses, from the paths in its code.

use std::collections::BTreeSet;

use crate::modules::{ModulePath, Modules, child};
use crate::source::{Token, tokens};

/// Returns the modules of the same crate that own items named in the code of `module`.
pub fn imports(text: &str, module: &[String], modules: &Modules) -> BTreeSet<ModulePath> {
    let mut found = BTreeSet::new();
    let tokens = tokens(text);
    let mut here = module.to_vec();
    // The current depth of braces, and the depth at the start of each inline module in `here`.
    let (mut depth, mut inline) = (0, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at..] {
            [Token::Word(word), Token::Word(name), Token::Sign('{'), ..] if word == "mod" => {
                inline.push(depth);
                here.push(name.clone());
                (depth, at) = (depth + 1, at + 3);
            }
            [Token::Word(word), ..] if word == "mod" => at += 2,
            [Token::Sign('{'), ..] => (depth, at) = (depth + 1, at + 1),
            [Token::Sign('}'), ..] => {
                (depth, at) = (depth - 1, at + 1);
                if inline.last() == Some(&depth) {
                    inline.pop();
                    here.pop();
                }
            }
            _ if starts_path(&tokens, at) => {
                let mut paths = Vec::new();
                at = read_tree(&tokens, at, &[], &mut paths);
                found.extend(paths.iter().filter_map(|path| resolve(path, &here, modules)));
            }
            _ => at += 1,
        }
    }
    found.remove(module);
    found
}

/// Returns whether a path begins here, that is, at a word that does not follow `::`.
fn starts_path(tokens: &[Token], at: usize) -> bool {
    let follows = at > 0 && tokens[at - 1] == Token::PathSeparator;
    matches!(tokens[at], Token::Word(_)) && !follows
}

/// Reads the path that begins at `at`, including all paths of a group in braces. Returns the index of the
/// path's end.
fn read_tree(tokens: &[Token], mut at: usize, prefix: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at) {
            Some(Token::Word(word)) => path.push(word.clone()),
            Some(Token::Sign('{')) if !path.is_empty() => return read_group(tokens, at, &path, paths),
            _ => break,
        }
        at += 1;
        if tokens.get(at) != Some(&Token::PathSeparator) {
            break;
        }
        at += 1;
    }
    paths.push(path);
    at
}

fn read_group(tokens: &[Token], at: usize, prefix: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut at = at + 1;
    while at < tokens.len() && tokens[at] != Token::Sign('}') {
        let before = at;
        at = read_tree(tokens, at, prefix, paths);
        at += usize::from(at == before);
    }
    at + 1
}

/// Returns the module with its own file that contains the item of a path.
fn resolve(path: &[String], module: &[String], modules: &Modules) -> Option<ModulePath> {
    let mut names = path.iter().peekable();
    let mut at = match names.peek()?.as_str() {
        "crate" => {
            names.next();
            ModulePath::new()
        }
        "self" => {
            names.next();
            module.to_vec()
        }
        "super" => module.to_vec(),
        name => {
            // A single word is more often a variable than a module.
            return (path.len() > 1 && modules.contains(&child(module, name)))
                .then(|| descend(module.to_vec(), path.iter(), modules));
        }
    };
    while names.peek().is_some_and(|name| *name == "super") {
        at.pop()?;
        names.next();
    }
    (path.len() > 1).then(|| descend(at, names, modules))
}

fn descend<'a>(mut at: ModulePath, names: impl Iterator<Item = &'a String>, modules: &Modules) -> ModulePath {
    for name in names {
        let next = child(&at, name);
        if !modules.contains(&next) {
            break;
        }
        at = next;
    }
    // An inline module belongs to the file of its parent.
    while !modules.contains(&at) && at.pop().is_some() {}
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, module: &str) -> Vec<String> {
        let mut modules = Modules::default();
        for file in ["", "a", "a::b", "a::c", "d"] {
            let path = file.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            modules.files.insert(path, "x.rs".into());
        }
        let module: Vec<String> =
            module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        imports(text, &module, &modules).into_iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_lead_to_the_innermost_module_with_a_file() {
        assert_eq!(of("use crate::a::b::Thing;", "d"), ["a::b"]);
        assert_eq!(of("use crate::a::{b::Thing, Other, c};", "d"), ["a", "a::b", "a::c"]);
        assert_eq!(of("fn f() { super::b::f(); super::super::d::g() }", "a::c"), ["a::b", "d"]);
        assert_eq!(of("use crate::Root;", "d"), [""]);
    }

    #[test]
    fn children_are_used_by_name_and_declared_without() {
        assert_eq!(of("mod b; mod c; use b::Thing; fn f() { c::g(d) }", "a"), ["a::b", "a::c"]);
        assert!(of("mod b; pub mod c; let b = 1;", "a").is_empty());
    }

    #[test]
    fn a_module_without_a_file_belongs_to_its_file() {
        assert!(of("mod inner { use super::Thing; fn f() { if x { g() } } }", "a::b").is_empty());
        assert_eq!(of("mod inner { use super::super::c::T; } use super::Other;", "a::b"), ["a", "a::c"]);
    }

    #[test]
    fn what_comes_from_elsewhere_is_no_module_of_the_crate() {
        assert!(of("use std::fmt; use other::a::b; x.a::<u8>()", "d").is_empty());
    }
}
