//! Programs in C (`tests/c`), compiled here against the header and linked with the library as cargo builds it, the shared one and the static one.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect,possible",
    "--show-leak-kinds=definite,indirect,possible",
    "--error-exitcode=9",
];

/// Where the libraries are. Cargo builds none for the tests of a package that nothing in Rust can link, so it is asked to.
fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "homa-c", "--target-dir"]).arg(target);
        let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(status.success(), "the library does not build");
        target.join("debug")
    })
}

fn is_there(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        eprintln!("skipped: {tool} is not installed");
    }
    there
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Shared,
    Static,
}

/// Compiles a program of `tests/c` for the test that asks.
fn program(test: &str, name: &str, link: Link) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I"]);
    cc.arg(root.join("include")).arg("-o").arg(&path).arg(root.join(format!("tests/c/{name}.c")));
    match link {
        Link::Shared => cc.arg("-L").arg(libraries()).arg("-lhoma"),
        Link::Static => cc.arg(libraries().join("libhoma.a")).args(["-ldl", "-lm"]),
    };
    assert!(cc.status().unwrap().success(), "{name}.c does not compile");
    path
}

fn command(before: &[&str], program: &Path) -> Command {
    let words: Vec<&std::ffi::OsStr> =
        before.iter().map(|word| (*word).as_ref()).chain([program.as_os_str()]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("LD_LIBRARY_PATH", libraries());
    command
}

/// Ends the server of a test that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs server and client, each `before` the words that start it, to good ends.
fn echo(test: &str, before: &[&str]) {
    let (server, client) = (program(test, "server", Link::Shared), program(test, "client", Link::Static));
    let mut server = Running(command(before, &server).stdout(Stdio::piped()).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let status = command(before, &client).arg(address.trim_end()).status().unwrap();
    assert!(status.success(), "the client: {status}");
    let status = server.0.wait().unwrap();
    assert!(status.success(), "the server: {status}");
}

#[test]
fn a_client_and_a_server_in_c_echo() {
    if is_there("cc") {
        echo("echo", &[]);
    }
}

#[test]
fn a_client_and_a_server_leak_nothing_and_touch_nothing_else() {
    if is_there("cc") && is_there(VALGRIND[0]) {
        echo("valgrind", &VALGRIND);
    }
}

#[test]
fn wrong_arguments_are_errors_that_name_them() {
    if !is_there("cc") {
        return;
    }
    for link in [Link::Shared, Link::Static] {
        let arguments = program("arguments", "arguments", link);
        let before: &[&str] = if is_there(VALGRIND[0]) { &VALGRIND } else { &[] };
        let status = command(before, &arguments).status().unwrap();
        assert!(status.success(), "{link:?}: {status}");
    }
}

#[test]
fn the_header_is_good_for_cpp() {
    if !is_there("c++") {
        return;
    }
    let mut cpp = Command::new("c++");
    cpp.args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c++"]);
    let status = cpp.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/homa.h")).status().unwrap();
    assert!(status.success());
}
