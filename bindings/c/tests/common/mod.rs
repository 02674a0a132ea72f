//! Shared by the tests of this crate: the library as installed by its Makefile, C and C++ programs built
//! against it, and valgrind.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The command prefix that runs a program under valgrind, where leaks and invalid accesses are errors.
pub const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect,possible",
    "--show-leak-kinds=definite,indirect,possible",
    "--error-exitcode=9",
];

/// Returns whether all of these tools are installed. Reports a missing one.
pub fn are_there(tools: &[&str]) -> bool {
    tools.iter().all(|tool| {
        let there = Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !there {
            homa_testkit::skip(format_args!("{tool} is not installed"));
        }
        there
    })
}

/// Returns a path for files of this test program.
pub fn directory(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap().file_stem().unwrap().to_string_lossy().into_owned();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"))
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command, which must succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{errors}", output.status);
    out.into_owned()
}

/// Runs `make` for one target and returns its output.
pub fn make(target: &str, variables: &[(&str, &OsStr)]) -> String {
    let mut make = Command::new("make");
    make.arg("--no-print-directory").arg("-C").arg(root()).arg(target);
    for (name, value) in variables {
        let mut assignment = std::ffi::OsString::from(format!("{name}="));
        assignment.push(value);
        make.arg(assignment);
    }
    // Settings of an outer `make` or cargo must not reach this one.
    run(make.env_remove("MAKEFLAGS").env_remove("CARGO_BUILD_TARGET"))
}

/// Returns the directory where cargo has built the libraries for this test program, which is that of the
/// program itself.
pub fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Returns the prefix under which the libraries of this build are installed, once per test program.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let (prefix, built) = (directory("prefix"), built());
        make("install", &[("BUILT", built.as_os_str()), ("PREFIX", prefix.as_os_str())]);
        prefix
    })
}

#[derive(Clone, Copy, Debug)]
pub enum Link {
    Shared,
    Static,
}

/// Compiles a program of `tests/c`, in C or C++, for one test.
pub fn program(test: &str, file: &str, link: Link) -> PathBuf {
    let path = directory(&format!("{test}-{file}"));
    let (compiler, standard) = match file.ends_with(".cpp") {
        true => ("c++", "-std=c++17"),
        false => ("cc", "-std=gnu11"),
    };
    let mut compile = Command::new(compiler);
    compile.args([standard, "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I"]);
    compile.arg(prefix().join("include")).arg("-o").arg(&path).arg(root().join("tests/c").join(file));
    match link {
        Link::Shared => compile.arg("-L").arg(prefix().join("lib")).arg("-lhoma"),
        Link::Static => compile.arg(prefix().join("lib/libhoma.a")).args(["-ldl", "-lm"]),
    };
    run(&mut compile);
    path
}

/// Returns a command that runs `program` with the prefix `before`, and finds the library.
pub fn command(before: &[&str], program: &Path) -> Command {
    let words: Vec<&OsStr> =
        before.iter().map(|word| (*word).as_ref()).chain([program.as_os_str()]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

/// A server that prints its address first. It is killed if the test fails.
pub struct Server {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    pub address: String,
}

impl Server {
    pub fn start(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim_end().trim_start_matches("serving ").to_owned();
        Server { child, lines, address }
    }

    /// Sends the process a signal.
    pub fn signal(&self, name: &str) {
        run(Command::new("kill").args(["-s", name]).arg(self.child.id().to_string()));
    }

    /// Waits for the process, which must succeed; returns the rest of its output.
    pub fn end(mut self) -> String {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the server: {status}\n{rest}");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
