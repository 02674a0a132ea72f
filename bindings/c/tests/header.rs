//! Checks that `include/homa.h` equals the header that cbindgen generates from the source. To update it after
//! a change of the interface: `HOMA_WRITE_HEADER=1 cargo test -p homa-c --test header`.

use std::path::Path;
use std::{env, fs};

use cbindgen::{Builder, Config, DocumentationStyle, Language, RenameRule, Style};

const BEGINNING: &str = "/*
 * libhoma: Homa for programs in C and C++. Remote procedure calls whose tail latency stays flat under load.
 *
 * A host (homa_host) is an address of this machine. A socket (homa_socket) is a port of a host that calls and
 * answers. A received message (homa_message) is freed by the application. Functions return HOMA_OK or the
 * kind of failure; homa_last_error() gives the reason in words. Times are in nanoseconds, lengths in bytes.
 *
 * Handles (homa_options, homa_host, homa_socket, homa_message) have the form of pointers but are never
 * dereferenced. A handle that was freed, is of another kind, belongs to a parent process or never existed is
 * an error, even while other threads use it. Other pointers must point at valid objects of their type; where
 * they must not be NULL, the library checks it.
 *
 * Any thread may call any function, and needs at most 128 KiB of stack for it. Signal handlers must not call
 * any, and no function may be left by longjmp(). homa_call() and homa_receive() are the only cancellation
 * points: a thread that pthread_cancel() cancels while it waits in one of them ends within 100 ms. The value
 * of errno after a call has no meaning. After fork() a child has none of its parent's handles, and opens its
 * own.
 *
 * This file is generated from the source of the library.
 */";

fn generated() -> String {
    let config = Config {
        language: Language::C,
        style: Style::Both,
        cpp_compat: true,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 110,
        ..Config::default()
    };
    assert!(matches!(config.enumeration.rename_variants, RenameRule::None), "the names are C's already");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut builder = Builder::new().with_config(config).with_include_guard("HOMA_H").with_header(BEGINNING);
    for file in [
        "result",
        "address",
        "options",
        "host",
        "message",
        "socket",
        "statistics",
        "trace",
        "handle",
        "border",
    ] {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_what_the_source_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/homa.h");
    let generated = generated();
    if env::var_os("HOMA_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let header = fs::read_to_string(&path).unwrap();
    let differs = header.lines().zip(generated.lines()).position(|(have, want)| have != want);
    assert!(
        header == generated,
        "include/homa.h is not what the source says (line {:?}): HOMA_WRITE_HEADER=1 cargo test -p homa-c --test header",
        differs.map(|line| line + 1)
    );
}

/// An exported function, with its documentation, its name, the names of its parameters, and its return type.
struct Exported {
    words: String,
    name: String,
    parameters: Vec<String>,
    returns: String,
}

fn exported() -> Vec<Exported> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in fs::read_dir(source).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let parts: Vec<&str> = text.split("#[unsafe(no_mangle)]").collect();
        for (before, after) in parts.iter().zip(&parts[1..]) {
            let words = before.lines().rev().take_while(|line| line.starts_with("///"));
            let mut words: Vec<&str> = words.map(|line| line.trim_start_matches('/').trim_start()).collect();
            words.reverse();
            let (name, rest) = after.split_once("fn ").unwrap().1.split_once('(').unwrap();
            let (parameters, rest) = rest.split_once(") -> ").unwrap();
            let parameters =
                parameters.split(',').filter_map(|parameter| Some(parameter.split_once(':')?.0.trim()));
            found.push(Exported {
                words: words.join(" "),
                name: name.to_owned(),
                parameters: parameters.map(str::to_owned).collect(),
                returns: rest.split_whitespace().next().unwrap().to_owned(),
            });
        }
    }
    found
}

#[test]
fn the_words_of_a_function_name_its_parameters_and_errors() {
    let header = generated();
    for Exported { words, name, parameters, returns } in exported() {
        for parameter in parameters {
            let named =
                [format!("`{parameter}`"), format!("`*{parameter}`")].iter().any(|it| words.contains(it));
            assert!(named, "{name} says nothing of {parameter}: {words}");
        }
        if returns == "homa_result" {
            assert!(words.contains("HOMA_ARGUMENT: "), "{name} does not say what argument is wrong");
        }
        for result in words.split(|letter: char| !letter.is_ascii_uppercase() && letter != '_') {
            let known = !result.starts_with("HOMA_") || header.contains(result);
            assert!(known, "{name} speaks of {result}, which there is not");
        }
    }
}

#[test]
fn everything_that_is_exported_is_declared_with_words() {
    let header = generated();
    let functions = exported();
    for Exported { name, .. } in &functions {
        let line =
            header.lines().position(|line| line.contains(&format!("{name}(")) && !line.starts_with(' '));
        let line = line.unwrap_or_else(|| panic!("{name} is not declared"));
        assert_eq!(header.lines().nth(line - 1), Some(" */"), "{name} has no words");
    }
    assert!(functions.len() > 10, "{} functions were found in the source", functions.len());
}
