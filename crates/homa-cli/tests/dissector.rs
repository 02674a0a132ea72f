//! Compares the Wireshark dissector, run by tshark, with `homa decode`. Both must find the same packets, with
//! the same values in the same fields.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::common::{Scratch, run, stderr};
use super::decode::{bundle, ipv4, pcap, udp};
use serde_json::Value;

const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/homa.lua");
const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference/kernel-captures");

/// Lengths of the headers in the captures: Ethernet, IPv4 without options, UDP.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const PCAP_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// Runs tshark with the dissector.
fn tshark(capture: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("tshark");
    command.args(["-X", &format!("lua_script:{DISSECTOR}"), "-n", "-r"]).arg(capture).args(words);
    command.output().expect("tshark runs")
}

/// Returns whether tshark is missing, and if so prints a message.
fn no_tshark() -> bool {
    let missing = Command::new("tshark").arg("--version").output().is_err();
    if missing {
        homa_testkit::skip("there is no tshark");
    }
    missing
}

/// Returns the captures of Linux Homa. If they or tshark are missing, returns none and prints the reason.
fn captures() -> Vec<PathBuf> {
    if no_tshark() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(CAPTURES) else {
        homa_testkit::skip(format_args!("there are no captures of Linux Homa at {CAPTURES}"));
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap"));
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Returns the output of `homa decode` for each complete packet: the number of the packet's frame, and the
/// fields of its header.
fn decoded(capture: &Path, also: &[&str]) -> Vec<(u64, Value)> {
    let path = capture.to_string_lossy();
    let output = run(["decode", "--json"].into_iter().chain(also.iter().copied()).chain([&*path]));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let packets = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let whole = packets.filter(|packet| packet["header"]["sender_id"].is_string());
    whole.map(|packet| (packet["number"].as_u64().expect("a number"), packet["header"].clone())).collect()
}

/// Returns the output of tshark for each packet: the number of the packet's frame, and the values of these
/// fields.
fn dissected(capture: &Path, fields: &[&str]) -> BTreeMap<u64, Vec<String>> {
    let mut words =
        vec!["-Y", "homa && !icmp && !icmpv6", "-T", "fields", "-E", "occurrence=f", "-e", "frame.number"];
    for field in fields {
        words.extend(["-e", field]);
    }
    let output = tshark(capture, &words);
    let said = stderr(&output);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let rows = text.lines().map(|line| {
        let mut cells = line.split('\t').map(str::to_owned);
        (cells.next().and_then(|number| number.parse().ok()).expect("a number"), cells.collect())
    });
    rows.collect()
}

/// Fields that occur in packets of all types, by their names in PROTOCOL.md.
const FIELDS: [&str; 21] = [
    "source_port",
    "dest_port",
    "sequence",
    "packet_length",
    "bundle_endpoints",
    "type",
    "doff",
    "flags",
    "window",
    "checksum",
    "urgent",
    "sender_id",
    "message_length",
    "incoming",
    "cutoff_version",
    "retransmit",
    "pad",
    "offset",
    "length",
    "priority",
    "num_acks",
];

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Compares all packets of a capture, and returns their number.
fn assert_same(capture: &Path, decode: &[&str]) -> usize {
    let names: Vec<String> = FIELDS.iter().map(|name| format!("homa.{name}")).collect();
    let seen = dissected(capture, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let packets = decoded(capture, decode);
    for (frame, header) in &packets {
        let cells =
            seen.get(frame).unwrap_or_else(|| panic!("{}: frame {frame} is missing", capture.display()));
        for (name, cell) in FIELDS.iter().zip(cells) {
            let want = match &header[name] {
                Value::String(text) => number(text),
                value => value.as_u64(),
            };
            // For DATA, the dissector shows the effective offset, wherever the header stores it.
            if want.is_some() {
                assert_eq!(number(cell), want, "{}: {name} of frame {frame}", capture.display());
            }
        }
    }
    assert_eq!(seen.len(), packets.len(), "{}", capture.display());
    packets.len()
}

#[test]
fn every_field_of_what_the_kernel_sent_is_what_decode_says() {
    let mut packets = 0;
    for capture in captures() {
        packets += assert_same(&capture, &[]);
    }
    println!("{packets} packets");
}

/// Returns a capture with its frames changed by `change`, and without frames that are not Homa over IPv4.
fn rewritten(capture: &[u8], change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut out = capture[..PCAP_HEADER].to_vec();
    let mut rest = &capture[PCAP_HEADER..];
    while rest.len() >= RECORD_HEADER {
        let (header, length) = (&rest[..8], word(&rest[8..]) as usize);
        let frame = &rest[RECORD_HEADER..][..length];
        rest = &rest[RECORD_HEADER + length..];
        if frame[12..14] != [8, 0] || frame[ETHERNET + 9] != 146 {
            continue;
        }
        let frame = change(frame);
        out.extend(header);
        out.extend((frame.len() as u32).to_le_bytes().repeat(2));
        out.extend(frame);
    }
    out
}

/// Returns two captures: one of an exchange without losses, and one with losses.
fn examples() -> Vec<Vec<u8>> {
    let wanted = ["rpc-500KB-ipv4", "loss-2pct-50KB"];
    let captures = captures().into_iter();
    let chosen =
        captures.filter(|file| wanted.iter().any(|name| file.file_stem().is_some_and(|stem| stem == *name)));
    chosen.map(|file| fs::read(file).expect("readable")).collect()
}

#[test]
fn over_udp_homa_is_known_by_its_form() {
    let scratch = Scratch::new("dissector-udp");
    for (number, capture) in examples().into_iter().enumerate() {
        let file = scratch.0.join(format!("{number}.pcap"));
        let over_udp = rewritten(&capture, |frame| {
            let (headers, homa) = frame.split_at(ETHERNET + IPV4);
            let length = (UDP + homa.len()) as u16;
            let mut frame = headers.to_vec();
            frame[ETHERNET + 2..][..2].copy_from_slice(&(IPV4 as u16 + length).to_be_bytes());
            frame[ETHERNET + 9] = 17;
            // A port other than Homa's well-known ports.
            frame.extend([40_000_u16, 50_000, length, 0].map(u16::to_be_bytes).concat());
            frame.extend(homa);
            frame
        });
        fs::write(&file, over_udp).expect("a temporary file");
        assert!(assert_same(&file, &["--udp-port", "50000"]) > 100);
    }
}

/// Packets of each dialect of Linux Homa, each with the endpoint's interpretation of it.
const GOLDEN: &str = include_str!("../../homa-proto/tests/golden/dialects.txt");

/// Returns the golden packets that a receiver accepts, each in a frame.
fn golden() -> Vec<Vec<u8>> {
    let lines = GOLDEN.lines().filter(|line| line.starts_with('G'));
    lines
        .map(|line| {
            let parts: Vec<&str> = line.split(' ').collect();
            let digits: Vec<u32> = parts[2].chars().filter_map(|digit| digit.to_digit(16)).collect();
            let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
            ipv4(if parts[1] == "udp" { 17 } else { 146 }, 0xe0, 1, 2, &bytes)
        })
        .collect()
}

#[test]
fn packets_of_each_dialect_are_dissected_whole() {
    if no_tshark() {
        return;
    }
    let scratch = Scratch::new("dissector-dialects");
    let file = scratch.0.join("golden.pcap");
    let frames = golden();
    fs::write(&file, pcap(&frames)).expect("a temporary file");
    assert_eq!(assert_same(&file, &["--udp-port", "54321"]), frames.len());
    assert_eq!(all_of(&file, "homa.short || _ws.malformed", &["frame.number"]), Vec::<Vec<String>>::new());
}

#[test]
fn hijacked_tcp_is_homa_and_the_rest_of_tcp_is_not() {
    let scratch = Scratch::new("dissector-tcp");
    for (number, capture) in examples().into_iter().enumerate() {
        let file = scratch.0.join(format!("{number}.pcap"));
        let mut frames = 0;
        let as_tcp = |flags: Option<u8>| {
            rewritten(&capture, |frame| {
                let mut frame = frame.to_vec();
                frame[ETHERNET + 9] = 6;
                if let Some(flags) = flags {
                    frame[ETHERNET + IPV4 + 13] = flags;
                }
                frame
            })
        };
        // The kernel sets TCP flags and the urgent pointer in each packet, as required for TCP hijacking.
        fs::write(&file, as_tcp(None)).expect("a temporary file");
        let seen = dissected(&file, &["homa.sender_id"]);
        frames += seen.len();
        assert!(frames > 100, "{frames}");
        fs::write(&file, as_tcp(Some(0x18))).expect("a temporary file");
        assert!(dissected(&file, &["homa.sender_id"]).is_empty(), "TCP's own segments");
        let output = tshark(&file, &["-Y", "tcp.srcport"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), frames);
    }
}

#[test]
fn requests_and_responses_are_linked_and_what_was_lost_is_said() {
    let Some(capture) = captures().into_iter().find(|file| file.ends_with("loss-2pct-50KB.pcap")) else {
        return;
    };
    let of = |filter: &str, fields: &[&str]| {
        let mut words = vec!["-Y", filter, "-T", "fields"];
        fields.iter().for_each(|field| words.extend(["-e", field]));
        let output = tshark(&capture, &words);
        String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let ends = of("homa.response_time", &["homa.rpc_id", "homa.request_in", "homa.response_time"]);
    assert!(!ends.is_empty());
    for end in &ends {
        let cells: Vec<&str> = end.split('\t').collect();
        let request =
            of(&format!("frame.number == {}", cells[1]), &["homa.rpc_id", "homa.offset", "homa.type"]);
        assert_eq!(request.len(), 1);
        assert!(request[0].starts_with(cells[0]), "{request:?} and {end}");
        assert!(cells[2].parse::<f64>().expect("seconds") > 0.0, "{end}");
    }
    let resends = of("homa.type == 0x12", &["frame.number"]);
    assert_eq!(of("homa.resend", &["frame.number"]), resends, "each RESEND is a note");
    let again = of("homa.retransmit == 1", &["frame.number"]);
    assert_eq!(of("homa.retransmitted", &["frame.number"]), again, "each retransmission is a note");
    assert!(!resends.is_empty() && !again.is_empty());
    assert!(!of("homa.gap", &["frame.number"]).is_empty());
}

/// Returns each field of each packet in the frames that match the filter. The values of a frame's packets are
/// separated by commas.
fn all_of(capture: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut words = vec!["-Y", filter, "-T", "fields", "-E", "occurrence=a"];
    fields.iter().for_each(|field| words.extend(["-e", field]));
    let output = tshark(capture, &words);
    let said = stderr(&output);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// WIRE-21: checks that each packet of a bundle has its own tree.
#[test]
fn each_packet_of_a_bundle_has_a_tree_of_its_own() {
    if no_tshark() {
        return;
    }
    let scratch = Scratch::new("dissector-bundle");
    let file = scratch.0.join("bundle.pcap");
    let padded = [bundle(), vec![0; 12]].concat();
    // One bundle is sent to Homa's port, and the other is recognized by its format.
    fs::write(&file, pcap(&[udp(14_600, 14_600, &padded), udp(5_001, 5_002, &bundle())])).expect("a file");
    let packets = decoded(&file, &[]);
    assert_eq!(packets.len(), 6);
    for name in [
        "source_port",
        "dest_port",
        "packet_length",
        "bundle_endpoints",
        "type",
        "doff",
        "urgent",
        "sender_id",
    ] {
        let want: Vec<_> = packets
            .iter()
            .map(|(_, header)| header[name].as_u64().or_else(|| number(header[name].as_str()?)))
            .collect();
        let rows = all_of(&file, "homa", &[&format!("homa.{name}")]);
        let seen: Vec<_> = rows.iter().flat_map(|row| row[0].split(',').map(number)).collect();
        assert_eq!(seen, want, "{name}");
    }
    assert_eq!(
        all_of(&file, "homa.padding", &["frame.number", "homa.padding"]),
        [["1".to_owned(), "00".repeat(12)]]
    );
    let info = all_of(&file, "frame.number == 2", &["_ws.col.Info"]).concat().concat();
    assert_eq!(info.matches(" | ").count(), 2, "{info}");
    assert!(info.contains("DATA RPC") && info.contains("ACK RPC 244"), "{info}");
    assert!(all_of(&file, "homa.bad_packet_length || homa.bad_padding", &["frame.number"]).is_empty());
}

/// WIRE-22, and undefined bytes from Linux Homa: checks that a bundle is dissected up to the invalid part.
#[test]
fn a_bundle_that_is_wrong_is_dissected_up_to_there() {
    if no_tshark() {
        return;
    }
    let scratch = Scratch::new("dissector-broken");
    let file = scratch.0.join("broken.pcap");
    let mut short = bundle();
    short[156 + 8..][..2].copy_from_slice(&[0, 27]);
    let mut long = bundle();
    long[8..10].copy_from_slice(&[0xff, 0xff]);
    let mut dirty = [bundle(), vec![0; 12]].concat();
    *dirty.last_mut().expect("a byte") = 1;
    let mut foreign = bundle();
    foreign[18..20].fill(0);
    let frames = [short, long, dirty, foreign].map(|datagram| udp(14_600, 14_600, &datagram));
    let mut capture = pcap(&frames);
    // Add the last frame again, with only 20 bytes of the second packet captured.
    let there = 28 + 156 + 20;
    let whole = udp(14_600, 14_600, &bundle());
    for word in [0, 0, there as u32, whole.len() as u32] {
        capture.extend(word.to_le_bytes());
    }
    capture.extend(&whole[..there]);
    fs::write(&file, capture).expect("a file");
    let counts: Vec<usize> =
        all_of(&file, "homa", &["homa.sender_id"]).iter().map(|row| row[0].split(',').count()).collect();
    assert_eq!(counts, [2, 1, 3, 1, 1]);
    let of = |filter: &str| all_of(&file, filter, &["frame.number"]).concat();
    assert_eq!(of("homa.bad_packet_length"), ["1", "2"]);
    assert_eq!((of("homa.padding"), of("homa.bad_padding")), (vec!["3".to_owned()], vec!["3".to_owned()]));
}
