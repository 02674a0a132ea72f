//! Runs programs in C and C++ (`tests/c`), which are compiled here against the header and linked with the
//! shared or the static library.

mod common;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Link, Server, VALGRIND, are_there, command, prefix, program, run};

/// The tools that every test here needs.
const TOOLS: [&str; 2] = ["make", "cc"];

/// Returns the command prefix that runs a program under valgrind. It is empty if valgrind is not installed.
fn watched() -> &'static [&'static str] {
    if are_there(&VALGRIND[..1]) { &VALGRIND } else { &[] }
}

/// Until the guard is dropped, no other test runs a program under valgrind. Such a program needs seconds of
/// processor time, and a host that is not scheduled for half a second lets its peers' calls time out.
fn valgrind_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment variable with the number of endpoints of a program's hosts.
const ENDPOINTS: &str = "HOMA_TEST_ENDPOINTS";

/// Runs a server and a client with the command prefix `before`, each with hosts of this number of endpoints.
/// Both must succeed.
fn echo(test: &str, before: &[&str], endpoints: &str) {
    let (server, client) = (program(test, "server.c", Link::Shared), program(test, "client.c", Link::Static));
    let server = Server::start(command(before, &server).env(ENDPOINTS, endpoints));
    run(command(before, &client).arg(&server.address).env(ENDPOINTS, endpoints));
    server.end();
}

#[test]
fn a_client_and_a_server_in_c_echo() {
    if are_there(&TOOLS) {
        echo("echo", &[], "1");
        echo("echo", &[], "3");
    }
}

#[test]
fn a_client_and_a_server_leak_nothing_and_touch_nothing_else() {
    let _turn = valgrind_turn();
    if are_there(&TOOLS) && are_there(&VALGRIND[..1]) {
        echo("valgrind", &VALGRIND, "1");
    }
}

#[test]
fn wrong_arguments_are_errors_that_name_them() {
    let _turn = valgrind_turn();
    if !are_there(&TOOLS) {
        return;
    }
    for link in [Link::Shared, Link::Static] {
        run(&mut command(watched(), &program("arguments", "arguments.c", link)));
    }
}

#[test]
fn handles_are_safe_whatever_a_program_does_with_them() {
    let _turn = valgrind_turn();
    if are_there(&TOOLS) {
        let handles = program("handles", "handles.c", Link::Shared);
        run(&mut command(watched(), &handles));
        run(command(&[], &handles).env(ENDPOINTS, "2"));
    }
}

#[test]
fn bytes_that_are_lent_are_not_read_once_they_are_back() {
    let _turn = valgrind_turn();
    if are_there(&TOOLS) {
        let lent = program("lent", "lent.c", Link::Shared);
        run(&mut command(watched(), &lent));
        run(command(watched(), &lent).env(ENDPOINTS, "2"));
    }
}

#[test]
fn a_forked_child_begins_anew() {
    if are_there(&TOOLS) {
        run(&mut command(&[], &program("forks", "forks.c", Link::Shared)));
    }
}

#[test]
fn a_lack_of_descriptors_or_stack_is_no_end() {
    if are_there(&TOOLS) {
        run(&mut command(&[], &program("limits", "limits.c", Link::Shared)));
    }
}

#[test]
fn traces_and_metrics_are_written() {
    let _turn = valgrind_turn();
    if are_there(&TOOLS) {
        let trace = common::directory("seen.trace");
        run(command(watched(), &program("seen", "seen.c", Link::Shared)).arg(&trace));
        assert!(std::fs::read(&trace).unwrap().starts_with(b"HOMATRC"), "{}", trace.display());
    }
}

#[test]
fn cpp_has_handles_that_free_themselves() {
    let _turn = valgrind_turn();
    if are_there(&["make", "c++"]) {
        run(&mut command(watched(), &program("cpp", "handles.cpp", Link::Shared)));
    }
}

#[test]
fn the_header_is_good_by_itself_for_c_and_cpp() {
    if !are_there(&["make", "cc", "c++"]) {
        return;
    }
    for (compiler, standard, language) in [
        ("cc", "-std=c99", "c"),
        ("cc", "-std=c11", "c"),
        ("cc", "-std=gnu2x", "c"),
        ("c++", "-std=c++11", "c++"),
        ("c++", "-std=c++17", "c++"),
        ("c++", "-std=c++20", "c++"),
    ] {
        let mut compile = Command::new(compiler);
        compile.args([
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "-x",
            language,
        ]);
        run(compile.arg(prefix().join("include/homa.h")));
    }
}
