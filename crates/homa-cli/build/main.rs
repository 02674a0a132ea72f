//! Sets the text of `homa --version`: the version and the commit. Needs no other crate.

mod commit;

use std::path::PathBuf;
use std::{env, process};

use commit::{of_git, of_package, of_variable};

/// The text used if the commit is unknown: for a tarball, or a package without `HOMA_COMMIT`.
const UNKNOWN: &str = "unknown commit";

fn main() {
    // By default, Cargo reruns a build script after any change to the crate, so name its dependencies.
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-env-changed=HOMA_COMMIT");
    let directory = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commit = match env::var("HOMA_COMMIT") {
        Ok(text) => of_variable(&text).unwrap_or_else(|error| {
            eprintln!("{error}");
            process::exit(2)
        }),
        Err(_) => of_package(&directory).or_else(|| {
            let git = of_git(&directory)?;
            for file in git.watched {
                println!("cargo::rerun-if-changed={}", file.display());
            }
            Some(git.commit)
        }),
    };
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=HOMA_VERSION={version} ({})", commit.as_deref().unwrap_or(UNKNOWN));
}
