//! The wrappers around the UDP path, over real sockets on loopback.

use std::collections::BTreeSet;

use super::common::{hosts, message, packets, receive_packets};
use homa_driver::capture::PcapDriver;
use homa_driver::fault::{FaultConfig, FaultDriver, FaultRates};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::{Driver, RxBurst};

fn bind(address: &str) -> UdpDriver {
    UdpDriver::bind(&UdpConfig { bind: address.parse().unwrap(), ..UdpConfig::default() }).unwrap()
}

#[test]
fn a_capture_of_real_traffic_has_every_packet_of_both_ends() {
    for (i, host) in hosts().into_iter().enumerate() {
        let path = std::env::temp_dir().join(format!("homa-driver-wrapped-{}-{i}.pcap", std::process::id()));
        let mut a = PcapDriver::create(bind(host), &path).unwrap();
        let mut b = bind(host);
        let bytes: Vec<Vec<u8>> = (0..40).map(|i| message(1_000 + i % 3, i as u8)).collect();
        assert_eq!(a.send(&packets(b.local_addr(), 5, &bytes)).unwrap(), 40);
        assert_eq!(receive_packets(&mut b, 40).len(), 40);
        assert_eq!(b.send(&packets(a.local_addr(), 1, &bytes[..2])).unwrap(), 2);
        assert_eq!(receive_packets(&mut a, 2).len(), 2);
        a.flush();
        let report = a.report();
        assert_eq!((report.packets, report.missed, report.stopped), (42, 0, None));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), report.bytes);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_capture_that_cannot_begin_names_its_file() {
    let device = "/dev/full";
    if !std::path::Path::new(device).exists() {
        homa_testkit::skip(format_args!("no {device} on this machine"));
        return;
    }
    // The header is written immediately: if the disk is already full, the caller gets an error instead of a
    // capture that stops.
    let error = PcapDriver::create(bind("127.0.0.1:0"), device).unwrap_err();
    assert!(error.to_string().contains(device), "{error}");
}

#[test]
fn a_faulty_wire_loses_and_doubles_what_it_counts() {
    let rates = FaultRates { loss: 0.1, duplication: 0.1, reordering: 0.1, ..FaultRates::default() };
    let config = FaultConfig { seed: 5, send: rates, receive: FaultRates::default() };
    let mut a = FaultDriver::new(bind("127.0.0.1:0"), &config).unwrap();
    let mut b = bind("127.0.0.1:0");
    let bytes: Vec<Vec<u8>> = (0..200).map(|i| message(400, i as u8)).collect();
    let mut taken = 0;
    let all = packets(b.local_addr(), 5, &bytes);
    while taken < all.len() {
        taken += a.send(&all[taken..]).unwrap();
    }
    // A packet held for reordering is released after at most a millisecond of calls.
    while a.poll_timeout().is_some() {
        a.receive(&mut RxBurst::new()).unwrap();
    }
    let counts = a.sent_counts();
    let arrive = counts.packets - counts.lost + counts.duplicated;
    let got = receive_packets(&mut b, arrive as usize);
    let distinct: BTreeSet<_> = got.iter().map(|(_, packet)| packet).collect();
    assert_eq!(distinct.len() as u64, 200 - counts.lost);
    assert!(counts.lost > 0 && counts.duplicated > 0 && counts.reordered > 0, "{counts:?}");
}
