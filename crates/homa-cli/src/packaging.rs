//! `homa packaging`: generates man pages and shell completions for a package from the definition of the
//! command line.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use homa_report::output::{Output, make_directory};

use crate::args::Cli;

/// The name of the program used in completions.
const PROGRAM: &str = "homa";

/// Shells for which the package has completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa packaging target/files     target/files/man/homa.1 and the others, target/files/completions/homa.bash and the others")]
pub struct PackagingArgs {
    /// Directory for the subdirectories man and completions
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(args: &PackagingArgs) -> Result<()> {
    let (man, completions) = (args.directory.join("man"), args.directory.join("completions"));
    make_directory(&man)?;
    make_directory(&completions)?;
    // Without this, each page would list `help` as a command, although `--help` is among the options.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &man)?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut shown(&command), PROGRAM, &completions)
            .with_context(|| format!("cannot write the completions into {}", completions.display()))?;
    }
    Ok(())
}

/// Writes the man pages of a command and of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, directory)?;
    }
    // clap writes an empty date without quotes, and the next field would then be taken for the date.
    let man = Man::new(command.clone())
        .date(" ")
        .source(concat!("homa ", env!("CARGO_PKG_VERSION")))
        .manual("Homa in user space");
    let file = Output::check(&directory.join(man.get_filename()))?;
    file.write(&page(&man, command).context("cannot render a man page")?)
}

/// Returns the page that clap generates, with the line breaks of the examples preserved.
fn page(man: &Man, command: &Command) -> Result<Vec<u8>> {
    let text = String::from_utf8(sections(man, command)?).context("the page is not UTF-8")?;
    // Each section begins with macros, which are defined in the first line of a page; drop the repetitions.
    let macros = text.split(".TH").next().unwrap_or_default();
    Ok(format!("{macros}{}", text.replace(macros, "")).into_bytes())
}

fn sections(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|subcommand| !subcommand.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_help() {
        examples(&text.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

/// Formats the text that follows the options in `--help`. Indented lines are examples, other lines are
/// sentences.
fn examples(text: &str) -> Roff {
    let heading = if text.contains("Example") { "EXAMPLES" } else { "NOTES" };
    let text =
        ["Example:\n", "Examples:\n"].iter().find_map(|title| text.strip_prefix(title)).unwrap_or(text);
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    let mut is_example = false;
    for line in text.lines() {
        if line.starts_with(' ') != is_example {
            is_example = !is_example;
            roff.control(if is_example { "nf" } else { "fi" }, []);
        }
        match (line.is_empty(), is_example) {
            (true, _) => roff.control("PP", []),
            (false, true) => roff.text([roman(line)]),
            // A sentence that starts a line in `--help` also starts a line in the man page.
            (false, false) => roff.text([roman(line)]).control("br", []),
        };
    }
    if is_example {
        roff.control("fi", []);
    }
    roff
}

/// Returns the command without its hidden parts, which completions would otherwise offer.
fn shown(command: &Command) -> Command {
    let mut copy = Command::new(command.get_name().to_owned())
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned());
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_owned());
    }
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    copy.subcommands(subcommands.map(shown))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the name and content of each file written to a directory of this test.
    fn written(test: &str) -> Vec<(String, String)> {
        let directory = std::env::temp_dir().join(format!("homa-packaging-{test}-{}", std::process::id()));
        run(&PackagingArgs { directory: directory.clone() }).expect("writes the files");
        let mut files = Vec::new();
        for part in ["man", "completions"] {
            for entry in fs::read_dir(directory.join(part)).expect("readable") {
                let entry = entry.expect("an entry");
                let content = fs::read_to_string(entry.path()).expect("text");
                files.push((entry.file_name().to_string_lossy().into_owned(), content));
            }
        }
        let _ = fs::remove_dir_all(&directory);
        files
    }

    #[test]
    fn each_command_of_the_help_has_a_page_with_its_examples() {
        let files = written("pages");
        let page = |name: &str| {
            let file = files.iter().find(|(file, _)| *file == name);
            &file.unwrap_or_else(|| panic!("{name} is missing")).1
        };
        assert!(page("homa.1").contains("homa\\-bench(1)"), "{}", page("homa.1"));
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = page(&format!("homa-{}.1", command.get_name()));
            assert!(page.contains(".SH OPTIONS") && page.contains(".SH EXAMPLES\n"), "{page}");
        }
        assert!(page("homa-rack-run.1").contains(".TH homa-rack-run 1 \" \" \"homa "));
        assert!(page("homa-run.1").contains(".SH EXAMPLES\n.nf\n  homa run"), "{}", page("homa-run.1"));
    }

    #[test]
    fn what_the_help_hides_is_in_no_file() {
        for (name, content) in written("hidden") {
            for hidden in ["packaging", "keeper", "until-stdin-ends", "bench-server"] {
                assert!(!name.contains(hidden) && !content.contains(hidden), "{hidden} is in {name}");
            }
        }
    }

    #[test]
    fn every_shell_completes_options_and_subcommands() {
        let files = written("shells");
        for name in ["homa.bash", "_homa", "homa.fish"] {
            let file = files.iter().find(|(file, _)| file == name);
            let (_, content) = file.unwrap_or_else(|| panic!("{name} is missing"));
            for word in ["bench", "link-mbps", "attach"] {
                assert!(content.contains(word), "{word} is not in {name}");
            }
        }
    }
}
