//! Determines the commit from which the command is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of digits of a commit's hash. Git adds more if these are ambiguous.
const DIGITS: usize = 7;

/// The state of a crate's directory in git.
#[derive(Debug)]
pub struct GitState {
    /// The short hash, followed by `-dirty` if tracked files differ from the commit.
    pub commit: String,
    /// Files of git. Whenever the checked-out commit changes, at least one of them changes. Uncommitted edits
    /// change none of them, so an edit does not rerun the build script, and `-dirty` reflects the state when
    /// the script last ran.
    pub watched: Vec<PathBuf>,
}

/// Returns the commit in the variable `HOMA_COMMIT`, or `None` if the variable is empty.
///
/// # Errors
/// The text is not a single printable word, so it would garble the output of `homa --version`.
pub fn of_variable(text: &str) -> Result<Option<String>, String> {
    match text.trim() {
        "" => Ok(None),
        word if word.chars().all(|letter| letter.is_ascii_graphic()) => Ok(Some(word.to_owned())),
        other => Err(format!("HOMA_COMMIT is {other:?}: set it to a commit hash, or unset it")),
    }
}

/// Returns the commit of a crate from a registry. `cargo package` writes it to `.cargo_vcs_info.json`.
pub fn of_package(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(".cargo_vcs_info.json")).ok()?;
    let compact: String = text.split_whitespace().collect();
    let hash = compact.split_once("\"sha1\":\"")?.1;
    let short: String = hash.chars().take_while(char::is_ascii_hexdigit).take(DIGITS).collect();
    let dirty = if compact.contains("\"dirty\":true") { "-dirty" } else { "" };
    (!short.is_empty()).then(|| short + dirty)
}

/// Returns the checked-out commit of the git repository that tracks the crate. Returns `None` outside a
/// repository, if git is missing, or if git refuses to read another user's repository.
pub fn of_git(directory: &Path) -> Option<GitState> {
    // A tarball may have been unpacked inside an unrelated repository, whose commit would be meaningless for
    // this source.
    git(directory, &["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let abbreviation = format!("--abbrev={DIGITS}");
    // No tag matches, so only the hash is printed.
    let commit = git(directory, &["describe", "--always", "--dirty", "--exclude=*", &abbreviation])?;
    // The log of HEAD grows each time HEAD changes. If logs are disabled, either the branch's file or the
    // packed references change.
    let mut names = vec!["HEAD".to_owned(), "logs/HEAD".to_owned(), "packed-refs".to_owned()];
    names.extend(git(directory, &["symbolic-ref", "-q", "HEAD"]));
    let paths = names.iter().filter_map(|name| git(directory, &["rev-parse", "--git-path", name]));
    // If a file were missing, Cargo would rerun the script in each build.
    let watched = paths.map(|path| directory.join(path)).filter(|path| path.is_file()).collect();
    Some(GitState { commit, watched })
}

/// Returns the output of a git command without the final newline, or `None` if the command fails.
fn git(directory: &Path, words: &[&str]) -> Option<String> {
    // A build must not write git's index, because another command may have locked it.
    let mut command = Command::new("git");
    command.current_dir(directory).env("GIT_OPTIONAL_LOCKS", "0").args(words);
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
