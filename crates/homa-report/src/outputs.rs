//! The outputs of a measurement command: text, JSON and a page.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::output::{Output, json, make_directory, print};

/// Which outputs to write, and where.
pub struct Outputs {
    report: Option<Output>,
    json: Vec<Output>,
    /// Whether the JSON goes to standard output instead of the text.
    json_to_stdout: bool,
}

impl Outputs {
    /// Checks before a long run that all outputs can be written. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// The error names the file or directory.
    pub fn check(out: Option<&Path>, json: Option<&Path>) -> Result<Outputs> {
        let json_to_stdout = json == Some(Path::new("-"));
        let mut outputs = Vec::new();
        if let Some(path) = json.filter(|_| !json_to_stdout) {
            outputs.push(Output::check(path)?);
        }
        let directory = match (out, json) {
            (Some(directory), _) => Some(directory),
            (None, Some(_)) => None,
            (None, None) => Some(Path::new("")),
        };
        let mut report = None;
        if let Some(directory) = directory {
            make_directory(directory)?;
            outputs.push(Output::check(&directory.join("results.json"))?);
            report = Some(Output::check(&directory.join("report.html"))?);
        }
        Ok(Outputs { report, json: outputs, json_to_stdout })
    }

    /// Like [`check`](Outputs::check), for a command without a page.
    ///
    /// # Errors
    /// The error names the file.
    pub fn json_only(json: Option<&Path>) -> Result<Outputs> {
        match json {
            Some(_) => Outputs::check(None, json),
            None => Ok(Outputs { report: None, json: Vec::new(), json_to_stdout: false }),
        }
    }

    /// Prints the text and writes the JSON, for a command without a page.
    ///
    /// # Errors
    /// The error names the file that cannot be written.
    pub fn answer(&self, text: &str, found: &impl Serialize) -> Result<()> {
        self.write(text, found, String::new)
    }

    /// Prints the text, and writes the JSON and the page.
    ///
    /// # Errors
    /// The error names the file that cannot be written.
    pub fn write(&self, text: &str, found: &impl Serialize, page: impl FnOnce() -> String) -> Result<()> {
        let json = json(found)?;
        if self.json_to_stdout {
            eprint!("{text}");
            print(&json)?;
        } else {
            print(text.as_bytes())?;
        }
        for output in &self.json {
            output.write(&json)?;
        }
        if let Some(output) = &self.report {
            output.write(page().as_bytes())?;
        }
        let written = self.report.iter().chain(&self.json).map(|output| output.path().display().to_string());
        let written: Vec<String> = written.collect();
        if !written.is_empty() {
            eprintln!("\nwritten: {}", written.join(", "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::output::{error_line, tests};

    #[test]
    fn a_directory_that_is_not_there_is_made_and_one_that_cannot_be_is_named() {
        let scratch = tests::directory("outputs");
        let directory = scratch.join("of/results");
        let outputs = Outputs::check(Some(&directory), None).expect("a new directory");
        outputs.write("", &7, || "page".to_owned()).expect("results");
        let read = |name| fs::read_to_string(directory.join(name)).expect("written");
        assert_eq!((read("results.json").trim(), read("report.html").as_str()), ("7", "page"));
        let below_a_file = directory.join("report.html/more");
        let error = Outputs::check(Some(&below_a_file), None).err().expect("no directory");
        assert!(
            error_line(&error).contains(&format!("cannot make the directory {}", below_a_file.display()))
        );
        fs::remove_dir_all(&scratch).expect("removed");
    }
}
