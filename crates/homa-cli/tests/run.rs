//! Tests `homa run`: how it runs a program, and which programs it refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::common::{Scratch, assert_output_refused, stderr};
use serde_json::Value;

/// Runs `homa run` with an empty file as the library. The loader reports the invalid file on standard error,
/// and continues.
fn run(scratch: &Scratch, words: &[&str]) -> Output {
    let library = library(scratch);
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.arg("run").args(words).env("HOMA_PRELOAD", library).env_remove("LD_PRELOAD");
    command.output().unwrap()
}

fn library(scratch: &Scratch) -> PathBuf {
    let library = PathBuf::from(scratch.path("libhoma_preload.so"));
    fs::write(&library, "").unwrap();
    library.canonicalize().unwrap()
}

fn executable(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_program_gets_the_library_and_the_driver_and_keeps_its_exit_code() {
    let scratch = Scratch::new("run-a");
    let script = "echo $HOMA_DRIVER $LD_PRELOAD; exit 7";
    let output = run(&scratch, &["--driver", "raw", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7));
    let expected = format!("raw {}\n", library(&scratch).display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn a_dry_run_says_how_it_would_be() {
    let scratch = Scratch::new("run-dry");
    let output = run(&scratch, &["--driver", "udp", "--dry-run", "--json", "sh", "-c", "exit 7"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&plan["homa"], plan["library"].as_str()), (&"udp".into(), library(&scratch).to_str()));
    assert!(plan["program"].as_str().unwrap().ends_with("/sh"));
    let text = run(&scratch, &["--driver", "udp", "--dry-run", "sh"]).stdout;
    assert!(String::from_utf8_lossy(&text).contains("over udp by"));
}

#[test]
fn the_library_is_found_where_packages_install_it() {
    let scratch = Scratch::new("run-installed");
    let (bin, lib) = (scratch.0.join("bin"), scratch.0.join("lib/homa"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    // Use a hard link, because a symbolic link would be resolved.
    let program = bin.join("homa");
    fs::hard_link(env!("CARGO_BIN_EXE_homa"), &program)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_homa"), &program).map(drop))
        .unwrap();
    let library = lib.join("libhoma_preload.so");
    fs::write(&library, "").unwrap();
    let words = ["run", "--driver", "udp", "--dry-run", "--json", "sh"];
    let output = Command::new(&program).args(words).env_remove("HOMA_PRELOAD").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["library"].as_str(), library.canonicalize().unwrap().to_str());
}

#[test]
fn programs_that_preload_nothing_are_refused() {
    let scratch = Scratch::new("run-refused");
    let refused = |program: &Path, part: &str| {
        let words = ["--driver", "udp", program.to_str().unwrap()];
        assert_output_refused(&words, &run(&scratch, &words), part);
    };
    // A header without a program header table, which only the kernel would try to load.
    let mut header = [0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let program = PathBuf::from(scratch.path("static"));
    executable(&program, &header);
    refused(&program, "linked statically");
    // The same program serves as the interpreter of a script.
    let script = PathBuf::from(scratch.path("script"));
    executable(&script, format!("#!{} -x\n", program.display()).as_bytes());
    refused(&script, "linked statically");

    header[4] = 1;
    executable(&program, &header);
    refused(&program, "64-bit");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    refused(&program, "set-user-ID");

    // One program header, followed by a note of Go's linker.
    let mut go = vec![0; 64 + 56];
    go[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (go[32], go[56], go[64]) = (64, 1, 4);
    (go[64 + 8], go[64 + 32]) = (120, 20);
    go.extend([4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0]);
    go.extend(b"Go\0\0id\0\0");
    let program = PathBuf::from(scratch.path("go"));
    executable(&program, &go);
    refused(&program, "Go");
}

/// Compiles a C program. If there is no compiler, returns `None` and prints the reason on standard error.
fn compiled(scratch: &Scratch, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    let (text, program) = (scratch.path(&format!("{name}.c")), PathBuf::from(scratch.path(name)));
    fs::write(&text, source).unwrap();
    let output = Command::new("cc").args(options).arg("-o").arg(&program).arg(&text).output();
    match output {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            homa_testkit::skip(format_args!("cc {options:?} fails here: {}", stderr(&output)));
            None
        }
        Err(error) => {
            homa_testkit::skip(format_args!("there is no C compiler (cc): {error}"));
            None
        }
    }
}

#[test]
fn what_a_linker_makes_is_told_apart() {
    let scratch = Scratch::new("run-linked");
    let main = "int main(void) { return 9; }";
    // A program without libc. It would end immediately if it were run.
    let bare = "void _start(void) { __builtin_trap(); }";
    let all: [(&str, &str, &[&str]); 3] = [
        ("static", main, &["-static"]),
        ("static-pie", main, &["-static-pie"]),
        ("bare", bare, &["-static", "-nostdlib", "-ffreestanding"]),
    ];
    for (name, source, options) in all {
        let Some(program) = compiled(&scratch, name, source, options) else { continue };
        let words = ["--driver", "udp", program.to_str().unwrap()];
        assert_output_refused(&words, &run(&scratch, &words), "linked statically");
    }
    let Some(program) = compiled(&scratch, "dynamic", main, &[]) else { return };
    let output = run(&scratch, &["--driver", "udp", program.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
}

/// Builds a Go program that opens a Homa socket. If Go is missing, returns `None` and prints the reason on
/// standard error.
fn go_program(scratch: &Scratch) -> Option<PathBuf> {
    let (source, program) = (scratch.path("opens.go"), PathBuf::from(scratch.path("opens")));
    let text = "package main\n\nimport \"syscall\"\n\nfunc main() {\n\
        \tif _, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 146); err != nil {\n\
        \t\tsyscall.Exit(3)\n\t}\n}\n";
    fs::write(&source, text).unwrap();
    let mut go = Command::new("go");
    // The build may not download anything, and has no module.
    go.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
    match go.arg("build").arg("-o").arg(&program).arg(&source).output() {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            homa_testkit::skip(format_args!("go build fails here: {}", stderr(&output)));
            None
        }
        Err(error) => {
            homa_testkit::skip(format_args!("there is no Go (go): {error}"));
            None
        }
    }
}

#[test]
fn a_program_in_go_is_told_that_it_cannot_be_preloaded() {
    let scratch = Scratch::new("run-go");
    let Some(program) = go_program(&scratch) else { return };
    let words = ["--driver", "udp", program.to_str().unwrap()];
    assert_output_refused(&words, &run(&scratch, &words), "is written in Go");
    // Baseline: run without `homa run`'s check, the program is unaffected by the preload library.
    let alone = Command::new(&program).status().unwrap();
    let kernel = run(&scratch, &["--dry-run", program.to_str().unwrap()]).status.success();
    assert_eq!(alone.code(), Some(if kernel { 0 } else { 3 }));
}

#[test]
fn what_is_missing_is_named() {
    let scratch = Scratch::new("run-missing");
    let words = ["--driver", "udp", "no-such-program-of-homa"];
    assert_output_refused(&words, &run(&scratch, &words), "no program `no-such-program-of-homa`");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(["run", "--driver", "udp", "sh"]).env("HOMA_PRELOAD", scratch.path("none"));
    assert_output_refused(&words, &command.output().unwrap(), "HOMA_PRELOAD");
}
