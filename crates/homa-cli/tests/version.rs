//! Tests `homa --version`, which prints the version and the commit, with and without git.

#[path = "../build/commit.rs"]
mod commit;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use commit::{of_git, of_package, of_variable};
use homa_testkit::Scratch;

use super::common;

#[test]
fn version_and_commit_are_one_line() {
    let output = common::run(["--version"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (version, commit) = text.trim_end().split_once(" (").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(version, concat!("homa ", env!("CARGO_PKG_VERSION")));
    let commit = commit.strip_suffix(')').unwrap_or_else(|| panic!("{text}"));
    assert!(!commit.is_empty() && text.lines().count() == 1, "{text}");
    assert_eq!(common::run(["-V"]).stdout, text.as_bytes());
}

#[test]
fn the_variable_names_the_commit_or_says_that_there_is_none() {
    assert_eq!(of_variable("4e9132b-dirty\n"), Ok(Some("4e9132b-dirty".to_owned())));
    assert_eq!(of_variable(""), Ok(None));
    let error = of_variable("4e9132b\nhoma 9.9").unwrap_err();
    assert!(error.contains("HOMA_COMMIT") && !error.contains('\n'), "{error}");
}

#[test]
fn a_crate_of_a_registry_has_the_commit_in_a_file() {
    let scratch = Scratch::new("version-package");
    let file = |text: &str| fs::write(scratch.path(".cargo_vcs_info.json"), text).unwrap();
    assert_eq!(of_package(&scratch.0), None);
    file(
        "{\n  \"git\": {\n    \"sha1\": \"34d856b449a66719360d\"\n  },\n  \"path_in_vcs\": \"crates/homa-cli\"\n}",
    );
    assert_eq!(of_package(&scratch.0).as_deref(), Some("34d856b"));
    file("{\"git\": {\"sha1\": \"34d856b449a66719360d\", \"dirty\": true}}");
    assert_eq!(of_package(&scratch.0).as_deref(), Some("34d856b-dirty"));
    file("{}");
    assert_eq!(of_package(&scratch.0), None);
}

/// Runs git in a repository of the test. If git is missing, returns `None` and prints the reason on standard
/// error.
fn git(directory: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.current_dir(directory).args(["-c", "user.name=Homa", "-c", "user.email=homa@localhost"]);
    match command.args(words).output() {
        Ok(output) => {
            assert!(output.status.success(), "git {words:?}: {}", common::stderr(&output));
            Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
        }
        Err(error) => {
            homa_testkit::skip(format_args!("there is no git: {error}"));
            None
        }
    }
}

/// Creates a repository in which the directory `crate` is committed.
fn repository(scratch: &Scratch) -> Option<PathBuf> {
    let directory = scratch.0.join("crate");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("Cargo.toml"), "[package]\n").unwrap();
    git(&scratch.0, &["init", "-q", "-b", "main"])?;
    git(&scratch.0, &["add", "."])?;
    git(&scratch.0, &["commit", "-q", "-m", "first"])?;
    Some(directory)
}

#[test]
fn edits_make_a_commit_dirty_and_tags_do_not_rename_it() {
    let scratch = Scratch::new("version-dirty");
    let Some(directory) = repository(&scratch) else { return };
    git(&scratch.0, &["tag", "-a", "-m", "a tag", "v9"]);
    let hash = git(&scratch.0, &["rev-parse", "HEAD"]).unwrap();
    let clean = of_git(&directory).unwrap().commit;
    assert!(clean.len() >= 7 && hash.starts_with(&clean), "{clean} of {hash}");
    fs::write(directory.join("Cargo.toml"), "[package]\nname = \"x\"\n").unwrap();
    assert_eq!(of_git(&directory).unwrap().commit, format!("{clean}-dirty"));
}

#[test]
fn a_commit_changes_a_watched_file_and_an_edit_does_not() {
    let scratch = Scratch::new("version-watched");
    let Some(directory) = repository(&scratch) else { return };
    let content = || -> Vec<Vec<u8>> {
        of_git(&directory).unwrap().watched.iter().map(|file| fs::read(file).unwrap()).collect()
    };
    // In the first round the branch has its own file; in the second it is in the packed references.
    for round in ["second", "third"] {
        let before = content();
        assert!(!before.is_empty());
        fs::write(directory.join("Cargo.toml"), format!("[package]\nname = {round:?}\n")).unwrap();
        assert_eq!(content(), before, "an edit before the {round} commit");
        let watched = of_git(&directory).unwrap().watched;
        git(&scratch.0, &["commit", "-q", "-a", "-m", round]);
        let after: Vec<Vec<u8>> = watched.iter().map(|file| fs::read(file).unwrap()).collect();
        assert_ne!(after, before, "the {round} commit");
        git(&scratch.0, &["pack-refs", "--all"]);
    }
}

#[test]
fn a_tarball_inside_another_repository_has_no_commit() {
    let scratch = Scratch::new("version-tarball");
    let Some(_) = repository(&scratch) else { return };
    let tarball = scratch.0.join("tarball");
    fs::create_dir_all(&tarball).unwrap();
    fs::write(tarball.join("Cargo.toml"), "[package]\n").unwrap();
    assert!(of_git(&tarball).is_none());
}

#[test]
fn outside_git_there_is_no_commit() {
    let scratch = Scratch::new("version-outside");
    fs::write(scratch.path("Cargo.toml"), "[package]\n").unwrap();
    assert!(of_git(&scratch.0).is_none());
}
