//! Checks of this repository that are too complex for a shell script.
//!
//! - `cargo xtask circles`: the largest import circle of each crate may only shrink (`.ci/circles`).
//! - `cargo xtask api`: the names in the public interface of `homa` must match the list (`.ci/api`), and its
//!   root may contain at most 15 of them.
//! - `cargo xtask options`: the number of files that name an option may only shrink (`.ci/options`).
//!
//! Each check prints its numbers and compares them with the committed list. `--write` writes the list, and
//! `--list` names the files.
#![forbid(unsafe_code)]

mod api;
mod baseline;
mod circles;
mod imports;
mod modules;
mod options;
mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use baseline::Mode;

const USAGE: &str = "use: cargo xtask api|circles|options [--write|--list]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    let (command, mode) = match words {
        [command] => (*command, Mode::Check),
        [command, "--write"] => (*command, Mode::Write),
        [command, "--list"] => (*command, Mode::List),
        _ => bail!(USAGE),
    };
    let root = root()?;
    match command {
        "api" => api::run(&root, mode),
        "circles" => circles::run(&root, mode),
        "options" => options::run(&root, mode),
        _ => bail!(USAGE),
    }
}

/// Returns the root of the repository: the parent of this crate's directory, which cargo provides.
fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask is in no repository")?.to_owned())
}
