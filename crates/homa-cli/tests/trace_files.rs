//! Runs all commands of `homa trace` with all kinds of unusable files. Each command must print one error line
//! that names the file, and exit with code 2.

use std::fs;

use super::common::{Scratch, assert_output_refused, run, stderr};
use homa_trace::{Clock, DUMP_HEADER_BYTES, DUMP_VERSION, Dump, EventKind, Node, Trace, packet_word};

/// All commands that read traces, with their arguments. `FILE` is replaced by the traces.
const COMMANDS: [&str; 23] = [
    "merge FILE",
    "export FILE --out -",
    "clocks --seconds 0.01 FILE",
    "summary FILE",
    "rpcs FILE",
    "rpc 2 FILE",
    "tail FILE",
    "timeline FILE",
    "diff WHOLE FILE",
    "copy FILE",
    "cores FILE",
    "decompose FILE",
    "delays FILE",
    "first-grant FILE",
    "grants FILE",
    "incoming FILE",
    "lost FILE",
    "pacer FILE",
    "polls FILE",
    "priorities FILE",
    "rtt-bytes FILE",
    "throughput FILE",
    "report FILE --out PAGE",
];

/// Commands that read traces separately, without merging their events.
const ONE_BY_ONE: [&str; 2] = ["merge", "clocks"];

/// Compares the list with the commands in `homa trace --help`, so that every new command is tested here, too.
#[test]
fn every_command_there_is_is_tried() {
    let help = run(["trace", "--help"]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    let list = text.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let is_name = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let names = list.lines().filter(is_name).filter_map(|line| line.split_whitespace().next());
    let mut there: Vec<&str> = names.filter(|name| *name != "help").collect();
    let mut tried: Vec<&str> = COMMANDS.iter().filter_map(|words| words.split(' ').next()).collect();
    there.sort_unstable();
    tried.sort_unstable();
    assert_eq!(there, tried);
}

/// Builds a host's trace of an RPC.
fn dump(name: &str) -> Dump {
    let mut trace = Trace::new(64, Clock::Virtual);
    let word = packet_word(0x10, 160);
    for (ns, kind, a, b) in [
        (100, EventKind::AppSend, 0, 100),
        (110, EventKind::RpcStart, 0, 100),
        (120, EventKind::PacketSent, word, 0),
        (900, EventKind::PacketReceived, word, 0),
        (910, EventKind::RpcEnd, 0, 0),
        (950, EventKind::AppReceive, 1, 100),
    ] {
        trace.set_virtual_now(ns);
        trace.record_with(kind, 2, a, b, 1, 7);
    }
    let mut node = Node::host(name);
    node.others.insert(1, "peer".to_owned());
    trace.dump(node)
}

/// Returns files that no command accepts: their names, contents and errors.
fn damaged() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let whole = dump("h1").to_bytes();
    let changed = |at: usize, bytes: &[u8]| {
        let mut all = whole.clone();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all
    };
    let version = |version: u16| changed(8, &version.to_le_bytes());
    let mut flipped = whole.clone();
    flipped[DUMP_HEADER_BYTES + 60] ^= 4;
    let joined = |other: &[u8]| [&whole, other].concat();
    vec![
        ("nothing", Vec::new(), "cut short"),
        ("a-byte", whole[..1].to_vec(), "cut short"),
        ("half-a-header", whole[..DUMP_HEADER_BYTES / 2].to_vec(), "cut short"),
        ("header", whole[..DUMP_HEADER_BYTES].to_vec(), "cut short"),
        ("half", whole[..whole.len() / 2].to_vec(), "cut short"),
        ("less-a-byte", whole[..whole.len() - 1].to_vec(), "cut short"),
        ("flipped", flipped, "damaged: its checksum"),
        ("older", version(DUMP_VERSION - 1), "format version 1"),
        ("newer", version(DUMP_VERSION + 1), "format version 3"),
        ("clock", changed(10, &[9, 0]), "damaged: its clock"),
        ("record-size", changed(12, &64_u32.to_le_bytes()), "damaged: its record size"),
        ("rate", changed(16, &[0; 8]), "damaged: its clock rate"),
        ("many-records", changed(48, &(1_u64 << 40).to_le_bytes()), "cut short"),
        ("too-many-records", changed(48, &[0xff; 8]), "damaged: its number of records"),
        ("alignment", changed(88, &[7, 0, 0, 0]), "damaged: its alignment"),
        ("long-node", changed(92, &[0xff; 4]), "cut short"),
        (
            "text",
            b"#!/bin/sh\necho a file that is longer than a header of a trace would be\n".repeat(4),
            "not a Homa",
        ),
        ("text-behind", joined(b"and so on\n"), "not a Homa"),
        ("older-behind", joined(&version(1)), "format version 1"),
        ("half-behind", joined(&whole[..whole.len() / 2]), "cut short"),
    ]
}

/// Checks that each command refuses this file.
fn refused(scratch: &Scratch, commands: &[&str], file: &str, part: &str) {
    let (whole, page) = (scratch.path("whole.trace"), scratch.path("page.html"));
    for command in commands {
        let word = |word| match word {
            "FILE" => file.to_owned(),
            "WHOLE" => whole.clone(),
            "PAGE" => page.clone(),
            word => word.to_owned(),
        };
        let words: Vec<String> = ["trace"].into_iter().chain(command.split(' ')).map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run(words.iter().copied());
        assert_output_refused(&words, &output, part);
        assert!(stderr(&output).contains(file), "{words:?} does not name it: {}", stderr(&output));
        assert!(!fs::exists(&page).expect("readable"), "{words:?} wrote a page");
    }
}

#[test]
fn every_command_refuses_every_damaged_file_in_one_line() {
    let scratch = Scratch::new("trace-damaged");
    fs::write(scratch.path("whole.trace"), dump("h1").to_bytes()).expect("writable");
    for (name, bytes, part) in damaged() {
        let path = scratch.path(&format!("{name}.trace"));
        fs::write(&path, bytes).expect("writable");
        refused(&scratch, &COMMANDS, &path, part);
    }
    refused(&scratch, &COMMANDS, &scratch.path("nowhere.trace"), "cannot read");
}

#[test]
fn every_command_refuses_traces_that_do_not_go_together() {
    let scratch = Scratch::new("trace-unlike");
    fs::write(scratch.path("whole.trace"), dump("h1").to_bytes()).expect("writable");
    let directory = |name: &str, dumps: &[Dump]| {
        let path = scratch.path(name);
        fs::create_dir(&path).expect("a directory");
        for (number, dump) in dumps.iter().enumerate() {
            fs::write(format!("{path}/{number}.trace"), dump.to_bytes()).expect("writable");
        }
        path
    };
    let is_apart = |command: &&&str| !ONE_BY_ONE.iter().any(|one| command.starts_with(one));
    let together: Vec<&str> = COMMANDS.iter().filter(is_apart).copied().collect();
    let with_merge: Vec<&str> = [&["merge FILE"], &together[..]].concat();
    let live = Dump { start_ns: 1_000_000, ..dump("h2") };
    refused(&scratch, &with_merge, &directory("kinds", &[dump("h1"), live]), "nothing in common");
    refused(&scratch, &with_merge, &directory("twice", &[dump("h1"), dump("h1")]), "so is");
    refused(&scratch, &with_merge, &directory("none", &[]), "there is no *.trace");
    let empty = Dump { records: Vec::new(), ..dump("h1") };
    refused(&scratch, &together, &directory("without-events", &[empty]), "the traces hold no events");
}

/// Tests characters that a terminal would interpret, or that end a line.
#[test]
fn names_in_a_trace_are_shown_and_not_obeyed() {
    let scratch = Scratch::new("trace-names");
    let mut dump = dump("h\x1b[2J1\n");
    dump.node.others.insert(1, "p\x07\rq".to_owned());
    let path = scratch.path("names.trace");
    fs::write(&path, dump.to_bytes()).expect("writable");
    for words in [
        ["trace", "summary", &path, "--json", "/dev/null"],
        ["trace", "export", &path, "--format=text", "--out=-"],
    ] {
        let output = run(words);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        assert!(text.contains("[2J1"), "{text:?}");
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
