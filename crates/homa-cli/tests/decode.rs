//! Tests `homa decode` from the user's point of view, with small captures created by the tests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use homa_driver::capture::PcapDriver;
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::{Driver, TxPacket};
use homa_proto::wire::{
    self, Ack, AckList, Body, Common, Cutoffs, Data, Grant, Incarnation, Resend, Start, UnknownReason,
};
use serde_json::Value;

/// Time of the first packet: 2026-07-20T18:34:51 UTC.
const START_S: u32 = 1_784_572_491;
const CLIENT: u16 = 40_000;
const SERVER: u16 = 99;
/// An ID that does not fit in 53 bits.
const ID: u64 = 0x7fff_ffff_ffff_fff0;

fn homa(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.arg("decode").args(words).stdin(Stdio::null());
    command
}

/// A capture file that is removed at the end of the test.
struct Capture(PathBuf);

impl Capture {
    fn new(name: &str, bytes: &[u8]) -> Capture {
        let path = std::env::temp_dir().join(format!("homa-decode-{name}-{}.pcap", std::process::id()));
        fs::write(&path, bytes).expect("a temporary file");
        Capture(path)
    }

    fn run(&self, words: &[&str]) -> Output {
        homa(words).arg(&self.0).output().expect("the binary runs")
    }

    /// Returns the printed lines.
    fn lines(&self, words: &[&str]) -> Vec<String> {
        let output = self.run(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lines(&output.stdout)
    }

    fn objects(&self, words: &[&str]) -> Vec<Value> {
        let words = [words, &["--json"]].concat();
        self.lines(&words).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8(bytes.to_vec()).expect("text").lines().map(str::to_owned).collect()
}

/// Builds a classic pcap file of raw IP packets, one millisecond apart.
pub fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (number, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        for word in [START_S, 1_000 * number as u32, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

pub fn ipv4(protocol: u8, tos: u8, from: u8, to: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, tos];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    packet.extend(payload);
    packet
}

pub fn udp(from_port: u16, to_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for word in [from_port, to_port, 8 + payload.len() as u16, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(payload);
    ipv4(17, 0xe0, 1, 2, &datagram)
}

/// Builds a Homa packet with its payload.
fn homa_packet(sender_id: u64, incarnation: u64, body: Body, payload: usize) -> Vec<u8> {
    let (source_port, dest_port) = if sender_id & 1 == 0 { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let incarnation = if incarnation == 0 { Incarnation::NONE } else { Incarnation::new(incarnation) };
    let common = Common { source_port, dest_port, sender_id, incarnation, bundle_endpoints: 0 };
    let mut packet = wire::encode(&common, &body).to_vec();
    packet.resize(packet.len() + payload, 0x5a);
    packet
}

fn data(ack: Option<Ack>) -> Body {
    Body::Data(Data {
        message_length: 5_000,
        incoming: 3_000,
        ack,
        cutoff_version: 2,
        retransmit: true,
        offset: 1_424,
        response_limit: None,
    })
}

/// Builds a datagram with a request, an acknowledgement and the first packet of a response. The datagram
/// announces that bundles are accepted.
pub fn bundle() -> Vec<u8> {
    let mut acks = AckList::new();
    assert!(acks.push(Ack { client_id: 240, server_port: SERVER }));
    let mut datagram = Vec::new();
    for (sender_id, body, payload) in
        [(ID, data(None), 100), (244, Body::Ack(acks), 0), (ID | 1, data(None), 20)]
    {
        let mut packet = homa_packet(sender_id, 0xab_0102_0304, body, payload);
        if payload > 0 {
            packet[10] = 2;
        }
        wire::append_packet(&mut datagram, &packet, &[]);
    }
    datagram
}

/// Builds a raw IP packet from the client to the server or back.
fn raw(sender_id: u64, body: Body, payload: usize) -> Vec<u8> {
    let packet = homa_packet(sender_id, 0, body, payload);
    let (from, to) = if sender_id & 1 == 0 { (1, 2) } else { (2, 1) };
    ipv4(146, 0xc0, from, to, &packet)
}

/// Builds one packet of each type, an ICMP error, and a packet of another protocol.
fn everything() -> Vec<Vec<u8>> {
    let mut acks = AckList::new();
    assert!(acks.push(Ack { client_id: 240, server_port: 98 }));
    let cutoffs =
        Cutoffs { cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200], version: 3, unsched_limit: None };
    let resend = raw(ID, Body::Resend(Resend { offset: 0, length: None, priority: 7 }), 0);
    vec![
        raw(ID, data(Some(Ack { client_id: 242, server_port: SERVER })), 1_424),
        raw(ID | 1, Body::Grant(Grant { offset: 4_000, priority: 2 }), 0),
        resend.clone(),
        raw(ID | 1, Body::RpcUnknown(UnknownReason::Unknown), 0),
        raw(ID | 1, Body::Busy, 0),
        raw(ID | 1, Body::Cutoffs(cutoffs), 0),
        raw(244, Body::Freeze, 0),
        raw(245, Body::NeedAck, 0),
        raw(244, Body::Ack(acks), 0),
        ipv4(1, 0, 2, 1, &[&[3, 3, 0, 0, 0, 0, 0, 0], &resend[..]].concat()),
        ipv4(6, 0, 1, 2, &[0; 40]),
    ]
}

#[test]
fn each_type_has_its_line() {
    let capture = Capture::new("types", &pcap(&everything()));
    let (up, down) = ("10.0.0.1/40000 > 10.0.0.2/99 prio 6", "10.0.0.2/99 > 10.0.0.1/40000 prio 6");
    let (id, answer) = (ID, ID | 1);
    assert_eq!(
        capture.lines(&[]),
        [
            format!(
                "0.000000 {up} DATA id {id} [1424, 2848) of 5000 incoming 3000 cv 2 ack 242@99 retransmit"
            ),
            format!("0.001000 {down} GRANT id {answer} to 4000 priority 2"),
            format!("0.002000 {up} RESEND id {id} [0, sent) priority 7"),
            format!("0.003000 {down} RPC_UNKNOWN id {answer}"),
            format!("0.004000 {down} BUSY id {answer}"),
            format!("0.005000 {down} CUTOFFS id {answer} cv 3: 0 0 0 0 1000000 15000 2800 200"),
            format!("0.006000 {up} FREEZE id 244"),
            format!("0.007000 {down} NEED_ACK id 245"),
            format!("0.008000 {up} ACK id 244 240@98"),
            format!(
                "0.009000 10.0.0.2 > 10.0.0.1 ICMP port unreachable: {up} RESEND id {id} [0, sent) priority 7"
            ),
        ]
    );
    let output = capture.run(&[]);
    let summary = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        summary.trim(),
        "homa: 10 shown: 1 DATA, 1 GRANT, 1 RESEND, 1 RPC_UNKNOWN, 1 BUSY, 1 CUTOFFS, 1 FREEZE, 1 NEED_ACK, 1 ACK, \
         1 ICMP; 1 other frames"
    );
}

#[test]
fn start_msg_and_a_resend_without_a_priority_are_shown() {
    // Linux Homa's build for net-next sends RESEND in this form.
    let resend = Body::Resend(Resend { offset: 0, length: None, priority: 7 });
    let mut short = homa_packet(ID, 0, resend, 0);
    short.truncate(36);
    let start = raw(ID, Body::Start(Start { message_length: 100_000 }), 0);
    let capture = Capture::new("dialects", &pcap(&[start, ipv4(146, 0xc0, 1, 2, &short)]));
    let up = "10.0.0.1/40000 > 10.0.0.2/99 prio 6";
    assert_eq!(
        capture.lines(&[]),
        [
            format!("0.000000 {up} START_MSG id {ID} of 100000"),
            format!("0.001000 {up} RESEND id {ID} [0, sent) priority 7"),
        ]
    );
    assert_eq!(capture.lines(&["--type", "start-msg"]).len(), 1);
    let objects = capture.objects(&[]);
    assert_eq!(objects[0]["header"]["message_length"], 100_000);
    assert_eq!(
        (&objects[1]["header"]["length"], objects[1]["header"].get("priority")),
        (&u32::MAX.into(), None)
    );
}

#[test]
fn an_rpc_is_found_by_either_id_and_where_it_is_acknowledged() {
    let capture = Capture::new("rpc", &pcap(&everything()));
    let times = |id: u64| -> Vec<String> {
        let lines = capture.lines(&["--rpc", &id.to_string()]);
        lines.iter().map(|line| line.split(' ').next().expect("a time").to_owned()).collect()
    };
    let of_id = ["0.000000", "0.001000", "0.002000", "0.003000", "0.004000", "0.005000", "0.009000"];
    assert_eq!(times(ID), of_id);
    assert_eq!(times(ID | 1), of_id);
    assert_eq!(times(242), ["0.000000"]);
    assert_eq!(times(240), ["0.008000"]);
    assert_eq!(times(246), Vec::<String>::new());
}

#[test]
fn types_are_chosen_by_name() {
    let capture = Capture::new("kinds", &pcap(&everything()));
    assert_eq!(capture.lines(&["--type", "rpc_unknown,NEED-ACK"]).len(), 2);
    assert_eq!(capture.lines(&["--type", "icmp", "--type", "data"]).len(), 2);
    assert_eq!(capture.lines(&["--type", "resend", "--rpc", &ID.to_string()]).len(), 1);
    let output = capture.run(&["--type", "nack"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(lines(&output.stderr).len(), 1, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn times_of_day_are_utc() {
    let capture = Capture::new("absolute", &pcap(&everything()));
    assert!(capture.lines(&["--absolute"])[1].starts_with("2026-07-20T18:34:51.001000Z 10.0.0.2/99 > "));
}

#[test]
fn json_has_every_field_by_its_name_on_the_wire() {
    let capture = Capture::new("json", &pcap(&everything()));
    let objects = capture.objects(&[]);
    assert_eq!(objects.len(), 10);
    let data = &objects[0];
    assert_eq!(data["time"], "2026-07-20T18:34:51.000000Z");
    assert_eq!((&data["source"], &data["destination"]), (&"10.0.0.1".into(), &"10.0.0.2".into()));
    assert_eq!((&data["type"], &data["rpc"]), (&"DATA".into(), &ID.to_string().into()));
    assert_eq!((&data["payload_offset"], &data["payload_length"]), (&1_424.into(), &1_424.into()));
    let header = &data["header"];
    for (path, value) in [
        ("/source_port", 40_000),
        ("/dest_port", 99),
        ("/sequence", 1_424),
        ("/type", 0x10),
        ("/doff", 0xe0),
        ("/flags", 0),
        ("/message_length", 5_000),
        ("/incoming", 3_000),
        ("/ack/server_port", 99),
        ("/cutoff_version", 2),
        ("/retransmit", 1),
        ("/pad", 0),
        ("/seg/offset", 1_424),
    ] {
        assert_eq!(header.pointer(path), Some(&value.into()), "{path}");
    }
    assert_eq!(header.pointer("/ack/client_id"), Some(&"242".into()));
    assert_eq!(objects[1]["header"]["priority"], 2);
    assert_eq!(objects[2]["header"]["length"], u32::MAX);
    assert_eq!(objects[5]["header"]["cutoffs"][5], 15_000);
    assert_eq!(objects[8]["header"]["acks"][0]["client_id"], "240");
    assert_eq!(objects[8]["header"]["acks"].as_array().map(Vec::len), Some(5));
    assert_eq!((&objects[9]["icmp"]["code"], &objects[9]["about"]["type"]), (&3.into(), &"RESEND".into()));
}

#[test]
fn our_peers_incarnation_and_reasons_are_shown() {
    let unknown = homa_packet(245, 0xab_0102_0304, Body::RpcUnknown(UnknownReason::NoSuchPort), 0);
    let capture = Capture::new("ours", &pcap(&[udp(14_600, 14_600, &unknown)]));
    let line = "0.000000 10.0.0.1:14600/99 > 10.0.0.2:14600/40000 prio 7 RPC_UNKNOWN id 245 (no such port) \
                incarnation ab01020304";
    assert_eq!(capture.lines(&[]), [line]);
    let object = &capture.objects(&[])[0];
    assert_eq!(
        (&object["incarnation"], &object["unknown_reason"]),
        (&"ab01020304".into(), &"no such port".into())
    );
    assert_eq!(object["udp_dest_port"], 14_600);
}

#[test]
fn over_udp_packets_are_found_by_port_or_by_their_form() {
    let busy = homa_packet(245, 0, Body::Busy, 0);
    let mut kernels = busy.clone();
    kernels[13] = 6;
    let packets = [
        udp(5_001, 5_002, &busy),
        udp(5_001, 5_002, &kernels),
        udp(5_001, 5_002, b"a name to be resolved, or whatever else"),
        udp(5_001, 14_600, b"not Homa"),
    ];
    let capture = Capture::new("udp", &pcap(&packets));
    let found = capture.lines(&[]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].ends_with("BUSY id 245") && found[1].contains("bad packet of 8 bytes"), "{found:?}");
    // If ports are given, all packets of these ports are selected, and no others.
    let found = capture.lines(&["--udp-port", "7", "--udp-port", "5002"]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[2].contains("is not the type of a Homa packet"), "{found:?}");
    assert!(capture.lines(&["--udp-port", "7"]).is_empty());
}

/// WIRE-21: checks that each packet of a bundle is shown.
#[test]
fn each_packet_of_a_bundle_is_shown() {
    let padded = [bundle(), vec![0; 12]].concat();
    let capture = Capture::new("bundle", &pcap(&[udp(5_001, 5_002, &padded)]));
    let ours = "retransmit incarnation ab01020304";
    let (up, down) = ("10.0.0.1:5001/40000 > 10.0.0.2:5002/99", "10.0.0.1:5001/99 > 10.0.0.2:5002/40000");
    let (id, answer) = (ID, ID | 1);
    let lines = [
        format!(
            "0.000000 {up} prio 7 DATA id {id} [1424, 1524) of 5000 incoming 3000 cv 2 {ours} (packet 1 of a bundle)"
        ),
        format!("0.000000 {up} prio 7 ACK id 244 240@99 incarnation ab01020304 (packet 2 of a bundle)"),
        format!(
            "0.000000 {down} prio 7 DATA id {answer} [1424, 1444) of 5000 incoming 3000 cv 2 {ours} \
             (packet 3 of a bundle, then 12 bytes of padding)"
        ),
    ];
    assert_eq!(capture.lines(&[]), lines);
    assert_eq!(capture.lines(&["--type", "ack"]), lines[1..2]);
    assert_eq!(capture.lines(&["--rpc", "240"]), lines[1..2]);
    let output = capture.run(&[]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).trim(),
        "homa: 3 shown: 2 DATA, 1 ACK; 0 other frames"
    );

    let objects = capture.objects(&[]);
    let of =
        |pointer: &str| objects.iter().map(|object| object.pointer(pointer).cloned()).collect::<Vec<_>>();
    let numbers = |values: [Option<u64>; 3]| values.map(|value| value.map(Value::from)).to_vec();
    assert_eq!(of("/number"), numbers([Some(1); 3]), "one record of the capture");
    assert_eq!(of("/bundle/packet"), numbers([Some(1), Some(2), Some(3)]));
    assert_eq!(of("/bundle/offset"), numbers([Some(0), Some(156), Some(236)]));
    assert_eq!(of("/bundle/padding"), numbers([None, None, Some(12)]));
    assert_eq!(of("/bundle/padding_is_zero")[2], Some(true.into()));
    assert_eq!(of("/length"), numbers([Some(156), Some(80), Some(76)]));
    assert_eq!(of("/header/packet_length"), of("/length"));
    assert_eq!(of("/header/bundle_endpoints"), numbers([Some(2), Some(0), Some(2)]));
}

#[test]
fn a_packet_alone_that_says_its_host_takes_bundles_is_known_by_its_form() {
    let mut request = homa_packet(ID, 0xab_0102_0304, data(None), 100);
    request[10] = 4;
    let mut kernels = homa_packet(ID, 0, data(None), 100);
    kernels[10] = 4;
    let capture = Capture::new("alone", &pcap(&[udp(5_001, 5_002, &request), udp(5_001, 5_002, &kernels)]));
    let objects = capture.objects(&[]);
    assert_eq!(objects.len(), 1, "without our mark the byte must be zero: {objects:?}");
    assert_eq!(
        (&objects[0]["header"]["bundle_endpoints"], objects[0].get("bundle")),
        (&4.into(), None),
        "a datagram of one packet"
    );
}

/// WIRE-22: checks that an invalid packet length does not affect the packets before it.
#[test]
fn a_packet_length_that_does_not_fit_spoils_no_packet_before_it() {
    let mut broken = bundle();
    broken[156 + 8..][..2].copy_from_slice(&[0, 27]);
    let mut cut = pcap(&[udp(14_600, 14_600, &bundle())]);
    // The capture contains only 20 bytes of the second packet.
    let there = 28 + 156 + 20;
    cut[24 + 8..][..4].copy_from_slice(&(there as u32).to_le_bytes());
    cut.truncate(24 + 16 + there);
    let mut dirty = [bundle(), vec![0; 12]].concat();
    *dirty.last_mut().expect("a byte") = 1;
    let quoted = ipv4(1, 0, 2, 1, &[&[3, 3, 0, 0, 0, 0, 0, 0], &udp(14_600, 14_600, &bundle())[..]].concat());
    for (packets, ends) in [
        (
            pcap(&[udp(14_600, 14_600, &broken)]),
            &[
                "(packet 1 of a bundle)",
                " bad packet of 156 bytes: packet_length 27 does not fit the datagram (packet 2 of a bundle)",
            ][..],
        ),
        (cut, &["(packet 1 of a bundle)", " cut: 20 of 156 bytes are there (packet 2 of a bundle)"]),
        (
            pcap(&[udp(14_600, 14_600, &dirty)]),
            &["1 of a bundle)", "2 of a bundle)", "then 12 bytes of padding, not all of it zero)"],
        ),
        // An ICMP error applies to all packets of the bundle.
        (pcap(&[quoted]), &["(packet 1 of a bundle)", "(packet 2 of a bundle)", "(packet 3 of a bundle)"]),
    ] {
        let capture = Capture::new("spoilt", &packets);
        let lines = capture.lines(&[]);
        assert_eq!(lines.len(), ends.len(), "{lines:#?}");
        for (line, end) in lines.iter().zip(ends) {
            assert!(line.ends_with(end), "{line} and {end}");
        }
    }
    let capture = Capture::new("broken", &pcap(&[udp(14_600, 14_600, &broken)]));
    assert_eq!(capture.objects(&["--type", "bad"])[0]["error_reason"], "packet_length");
}

#[test]
fn a_capture_that_the_wrapper_wrote_of_real_sockets() {
    let bind = |address: &str| {
        let bind: SocketAddr = address.parse().expect("an address");
        UdpDriver::bind(&UdpConfig { bind, ..UdpConfig::default() }).expect("a loopback socket")
    };
    let receiver = bind("127.0.0.1:0");
    let capture = Capture::new("wrapper", b"");
    let mut sender = PcapDriver::create(bind("127.0.0.1:0"), &capture.0).expect("a capture");
    let (from, to) = (sender.local_addr(), receiver.local_addr());
    let packet = homa_packet(ID, 0xab_0102_0304, data(None), 100);
    let (header, payload) = packet.split_at(56);
    let sent = sender.send(&[TxPacket { to, priority: 5, header, payload }]).expect("sent");
    assert_eq!(sent, 1);
    drop(sender);
    let expected = format!(
        " {from}/40000 > {to}/99 prio 5 DATA id {ID} [1424, 1524) of 5000 incoming 3000 cv 2 retransmit \
         incarnation ab01020304"
    );
    let lines = capture.lines(&[]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    // Captures by the driver's wrapper have nanosecond times.
    assert_eq!(lines[0], format!("0.000000000{expected}"));
}

#[test]
fn bad_packets_are_shown_with_the_reason() {
    let mut zero_length = homa_packet(ID, 0, data(None), 1_424);
    zero_length[28..32].fill(0);
    let mut cut_record = pcap(&[ipv4(146, 0, 1, 2, &homa_packet(ID, 0, data(None), 1_424))]);
    // The capture contains only 30 bytes of the Homa packet.
    cut_record[24 + 8..24 + 12].copy_from_slice(&50_u32.to_le_bytes());
    cut_record.truncate(24 + 16 + 50);
    let mut fragment = raw(ID, Body::Busy, 0);
    fragment[6] = 0x20;
    let capture = Capture::new(
        "bad",
        &pcap(&[ipv4(146, 0, 1, 2, &zero_length), ipv4(146, 0, 1, 2, &[1; 12]), fragment]),
    );
    assert_eq!(
        capture.lines(&["--type", "bad"]),
        [
            "0.000000 10.0.0.1/40000 > 10.0.0.2/99 prio 0 bad packet of 1480 bytes: the message has length 0",
            "0.001000 10.0.0.1/257 > 10.0.0.2/257 prio 0 bad packet of 12 bytes: packet of 12 bytes is too short: its \
             header takes 28",
            "0.002000 10.0.0.1 > 10.0.0.2 bad packet: an IP fragment, and Homa packets are never fragmented",
        ]
    );
    let objects = capture.objects(&[]);
    assert_eq!(
        (&objects[0]["error_reason"], &objects[0]["header"]["message_length"]),
        (&"zero_length".into(), &0.into())
    );
    let capture = Capture::new("snap", &cut_record);
    let line =
        format!("0.000000 10.0.0.1/40000 > 10.0.0.2/99 prio 0 DATA id {ID} cut: 30 of 1480 bytes are there");
    assert_eq!(capture.lines(&["--rpc", &ID.to_string(), "--type", "data"]), [line]);
}

#[test]
fn a_truncated_capture_gives_what_is_whole_and_an_error() {
    let file = pcap(&everything());
    let capture = Capture::new("truncated", &file[..file.len() - 70]);
    for words in [&[][..], &["--json"]] {
        let output = capture.run(words);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(lines(&output.stdout).len(), 10);
        let error = lines(&output.stderr);
        assert_eq!(error.len(), 1, "{error:?}");
        assert!(
            error[0].starts_with("homa: ") && error[0].contains("ends in the middle of record 11"),
            "{error:?}"
        );
    }
}

#[test]
fn what_is_no_capture_is_named() {
    let text = Capture::new("text", b"hello, this is text");
    let path = text.0.display().to_string();
    let directory = std::env::temp_dir().display().to_string();
    let missing = format!("{directory}/no-such-capture.pcap");
    for (file, part) in [(&path, "not a capture"), (&missing, "cannot read"), (&directory, "directory")] {
        let output = homa(&[file]).output().expect("the binary runs");
        let error = lines(&output.stderr);
        assert_eq!((output.status.code(), error.len()), (Some(2), 1), "{error:?}");
        assert!(error[0].contains(part) && error[0].contains(file.as_str()), "{error:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn standard_input_is_decoded_as_it_comes() {
    let mut process = homa(&["-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = process.stdin.take().expect("piped");
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    let file = pcap(&everything());
    let first = 24 + 16 + everything()[0].len();
    input.write_all(&file[..first]).expect("written");
    let mut line = String::new();
    output.read_line(&mut line).expect("a line, though the capture goes on");
    assert!(line.starts_with("0.000000 "), "{line}");
    input.write_all(&file[first..]).expect("written");
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest.lines().count(), 9);
    assert!(process.wait().expect("it ends").success());
}

#[test]
fn nobody_reading_any_more_is_no_error() {
    // More output than a pipe can hold.
    let packets = vec![raw(ID, Body::Busy, 0); 20_000];
    let capture = Capture::new("pipe", &pcap(&packets));
    let mut process =
        homa(&[]).arg(&capture.0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    output.read_line(&mut String::new()).expect("one line");
    drop(output);
    let mut errors = String::new();
    process.stderr.take().expect("piped").read_to_string(&mut errors).expect("read");
    assert!(process.wait().expect("it ends").success());
    assert_eq!(errors, "");
}
