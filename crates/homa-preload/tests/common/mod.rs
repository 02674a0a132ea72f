//! Shared by the tests of this crate: C programs that are compiled here, and processes with the library
//! preloaded.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Returns the library that cargo has built for this test. It is next to the test program, or where `cargo
/// build` puts it.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    deps.ancestors().map(|dir| dir.join("libhoma_preload.so")).find(|path| path.exists()).unwrap()
}

/// Compiles `c/<name>.c` once. Without a C compiler, returns `None` and prints the reason on standard error.
pub fn program(name: &str) -> Option<PathBuf> {
    static COMPILED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    // Each test program compiles its own copy, since test programs may run at the same time.
    let test = std::env::current_exe().unwrap().file_stem().unwrap().to_string_lossy().into_owned();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"));
    if compiled.iter().any(|known| known == name) {
        return Some(path);
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-nonnull", "-pthread", "-o"]);
    match cc.arg(&path).arg(&source).status() {
        Ok(status) => assert!(status.success(), "{} does not compile", source.display()),
        Err(error) => {
            homa_testkit::skip(format_args!("there is no C compiler (cc): {error}"));
            return None;
        }
    }
    compiled.push(name.to_owned());
    Some(path)
}

/// Reserves this number of consecutive Homa ports and returns the first. They are unique in this process, and
/// most likely on the machine.
pub fn ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 250 * 100) as u16;
    1_000 + first + NEXT.fetch_add(count, Relaxed)
}

/// Returns a command with the library preloaded. Peers have half a minute to answer: on a machine that also
/// runs builds and benchmarks, a process may not be scheduled for as long as the default timeout of an RPC.
pub fn preloaded(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("LD_PRELOAD", library());
    command.env("HOMA_TIMEOUT_RESENDS", "255").env("HOMA_RESEND_INTERVAL", "120");
    command
}

/// Runs a program, which must succeed, and returns its output.
pub fn run(mut command: Command) -> String {
    let output = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}: {out}{errors}", output.status);
    out.into_owned()
}

/// A process that is killed at the end of the test.
pub struct Running {
    pub child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// Starts a server, and waits until it prints that it is ready.
    pub fn server(command: Command) -> Running {
        let mut server = Running::start(command);
        assert_eq!(server.line(), "ready");
        server
    }

    /// Returns the next line that the process prints, or an empty string at the end of the output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
