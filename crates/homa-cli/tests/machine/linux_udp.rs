//! Tests the binary with Linux Homa's UDP encapsulation, between two network namespaces.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homa::driver::put_offloads_off;
use homa_testkit::namespace::{Namespace, V4, V6, pair};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket};

use super::common::{Scratch, stderr};
use super::serve::{Serve, assert_clean, bench_alone, bench_to, homa, host, run};

const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/homa.lua");

#[test]
fn a_bench_between_two_machines_ends_without_an_error() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let host = host(ips[1]);
        let (_server, said) =
            Serve::start(&namespaces[1], &format!("serve --linux-udp --protocol homa --bind {host}"));
        assert_eq!(said, format!("serving homa {host}:54321/99"));
        bench_to(&namespaces[0], "linux-udp", &host);
    }
}

#[test]
fn a_bench_alone_has_its_clients_at_other_addresses_than_its_servers() {
    bench_alone("linux-udp");
}

#[test]
fn a_call_reaches_its_server_and_says_where_there_is_none() {
    let Some(namespaces) = pair(1_500) else { return };
    let (_server, _) = Serve::start(&namespaces[1], "serve --linux-udp --protocol homa");
    let call =
        |from: usize, to: &str| run(&namespaces[from], &format!("call --driver linux-udp {to} --text hello"));
    // Make calls with both IP versions, from another machine and from the server's own machine, where client
    // and server share the port.
    for (from, to) in [(0, V4[1]), (0, V6[1]), (1, "127.0.0.1"), (1, V4[1])] {
        let output = call(from, &format!("{}:9/99", host(to)));
        assert_clean(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
    }
    let output = call(0, &format!("{}/98", V4[1]));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("10.146.0.2:54321/98 has no server on Homa port 98"),
        "{}",
        stderr(&output)
    );
    // A host of this project that uses UDP gets the response at its own port.
    let output = run(&namespaces[0], &format!("call {}:54321/99 --text hello", V4[1]));
    assert_clean(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
}

/// Captures the frames of all devices in a namespace to a capture file.
struct Capture {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u8>>,
}

impl Capture {
    fn start(namespace: &Namespace) -> Capture {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = namespace.run(move || {
            // ETH_P_ALL
            let all = std::num::NonZeroU32::new(u32::from(3_u16.to_be())).map(Protocol::from_raw);
            let wire = socket(AddressFamily::PACKET, SocketType::RAW, all).expect("a packet socket");
            set_socket_timeout(&wire, Timeout::Recv, Some(Duration::from_millis(20))).expect("a timeout");
            thread::spawn(move || {
                // The header of the file, which announces microseconds and Ethernet.
                let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                file.extend([65_535_u32, 1].iter().flat_map(|word| word.to_le_bytes()));
                let mut frame = vec![0; 65_536];
                loop {
                    match recv(&wire, &mut frame[..], RecvFlags::empty()) {
                        Ok((_, length)) => {
                            let words = [0, 0, length as u32, length as u32];
                            file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                            file.extend(&frame[..length]);
                        }
                        Err(_) if ended.load(SeqCst) => return file,
                        Err(_) => {}
                    }
                }
            })
        });
        Capture { over, thread }
    }

    fn end(self) -> Vec<u8> {
        self.over.store(true, SeqCst);
        self.thread.join().expect("the capture")
    }
}

fn captured(scratch: &Scratch) -> Option<PathBuf> {
    let namespaces = pair(1_500)?;
    // With segmentation offload, datagrams that a network card would split cross a veth unsplit.
    for (device, namespace) in ["v0", "v1"].into_iter().zip(&namespaces) {
        namespace.run(move || put_offloads_off(device).expect("the veth takes it"));
    }
    let capture = Capture::start(&namespaces[1]);
    let (_server, _) = Serve::start(&namespaces[1], "serve --linux-udp --protocol homa");
    for ip in [V4[1], V6[1]] {
        for size in [1, 1_416, 1_417, 40_001, 200_000] {
            let call = format!("call --driver linux-udp {}/99 --size {size}", host(ip));
            assert_clean(&run(&namespaces[0], &call));
        }
    }
    let file = scratch.0.join("linux-udp.pcap");
    std::fs::write(&file, capture.end()).expect("a temporary file");
    Some(file)
}

/// WIRE-27: both ends use port 54321, and both `homa decode` and Wireshark find all packets complete.
#[test]
fn a_capture_has_only_whole_packets_from_port_to_port() {
    let scratch = Scratch::new("linux-udp-capture");
    let Some(file) = captured(&scratch) else { return };
    let decoded = homa(&["decode", "--json", &file.to_string_lossy()]).output().expect("the binary runs");
    assert_clean(&decoded);
    let mut kinds = std::collections::BTreeMap::new();
    for line in String::from_utf8_lossy(&decoded.stdout).lines() {
        let packet: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&packet["udp_source_port"], &packet["udp_dest_port"]), (&54_321.into(), &54_321.into()));
        assert!(packet.get("error").is_none(), "{packet}");
        *kinds.entry(packet["type"].as_str().expect("a type").to_owned()).or_insert(0) += 1;
    }
    assert!(kinds["DATA"] >= 600, "{kinds:?}");
    dissected_whole(&file, kinds.values().sum());
}

/// Checks that tshark finds this number of packets in the file, none of them malformed, and all with correct
/// checksums.
fn dissected_whole(file: &Path, packets: usize) {
    let tshark = |filter: &str| {
        let mut command = Command::new("tshark");
        command.args(["-X", &format!("lua_script:{DISSECTOR}"), "-n", "-o", "udp.check_checksum:TRUE"]);
        command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields", "-e", "frame.number"]).output()
    };
    let Ok(found) = tshark("homa && udp.port == 54321") else {
        return homa_testkit::skip("there is no tshark");
    };
    assert!(found.status.success(), "{}", stderr(&found));
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), packets);
    let bad = tshark("homa && (homa.short || _ws.malformed)").expect("tshark runs");
    assert_eq!(String::from_utf8_lossy(&bad.stdout), "");
}
