//! Shared code of this crate's tests: hosts on loopback, servers in threads, and messages that can be checked
//! byte by byte.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod hand;

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use homa::driver::fault::{FaultConfig, FaultDriver, FaultRates};
use homa::driver::udp::{UdpConfig, UdpDriver};
use homa::error::RecvError;
use homa::kernel_api::{Arrival, Outcome, Socket};
use homa::metrics::Metrics;
use homa::trace::{Dump, EventKind, Record, packet_word_parts};
use homa::{Bytes, Host, HostBuilder, HostConfig, Server, ServerAddr};

/// Timeout that is long enough for any expected event, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Any free UDP port of the loopback device.
pub const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Returns the settings of most tests: a host that is patient with its peers.
pub fn config() -> HostBuilder {
    // The same tests run a second time in the module `two_endpoints`, which includes this file as a module of
    // its own.
    let endpoints = if module_path!().contains("::two_endpoints::") { 2 } else { 1 };
    let config = Host::builder().address(LOOPBACK).endpoints(endpoints);
    config.configure(be_patient)
}

/// Makes a host wait for its peers for as long as it can. On a busy machine a peer may wait longer for a processor
/// than the default numbers of RESENDs and NEED_ACKs take.
pub fn be_patient(config: &mut HostConfig) {
    config.protocol.max_resends = 255;
    config.protocol.max_need_acks = 255;
}

pub fn host() -> Host {
    config().bind().unwrap()
}

/// Creates a host on a faulty network: each kind of fault affects this fraction of the packets that it sends.
pub fn host_with_faults(seed: u64, part: f64, max_packet_bytes: usize) -> Host {
    let rates = FaultRates {
        loss: part,
        duplication: part,
        reordering: part,
        delay: part,
        delay_min_ns: 1_000,
        delay_max_ns: 1_000_000,
        ..FaultRates::default()
    };
    let udp = UdpConfig { bind: LOOPBACK, max_packet_bytes, ..UdpConfig::default() };
    let faults = FaultConfig { seed, send: rates, receive: FaultRates::default() };
    let driver = FaultDriver::new(UdpDriver::bind(&udp).unwrap(), &faults).unwrap();
    // A host with its own driver has one endpoint.
    config().endpoints(1).bind_on(vec![Box::new(driver)]).unwrap()
}

/// Returns a message whose bytes depend on the tag and on their position in the message.
pub fn message(length: usize, tag: u64) -> Bytes {
    let word =
        |i: usize| (i as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(tag).to_le_bytes();
    (0..length).map(|i| word(i)[i % 8]).collect::<Vec<u8>>().into()
}

/// Returns the outcome of the next call of a socket that no client calls.
pub fn outcome(socket: &Socket) -> Outcome {
    match socket.recv(Some(PATIENCE)) {
        Ok(Arrival::Outcome(outcome)) => outcome,
        Ok(_) => panic!("nobody calls this socket"),
        Err(error) => panic!("{error}"),
    }
}

/// A host with an echo server, which answers in one or more threads until dropped.
pub struct Echo {
    pub host: Option<Host>,
    pub to: ServerAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    pub fn new(threads: usize) -> Echo {
        Echo::with(config(), threads)
    }

    pub fn with(config: HostBuilder, threads: usize) -> Echo {
        let host = config.bind().unwrap();
        let server = host.server(99).unwrap();
        let to = ServerAddr::new(host.local_addr(), 99);
        let threads = (0..threads).map(|_| spawn_echo(server.clone())).collect();
        Echo { host: Some(host), to, threads }
    }

    pub fn metrics(&self) -> Metrics {
        self.host.as_ref().unwrap().metrics()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.host.take());
        for thread in self.threads.drain(..) {
            let result = thread.join();
            if !thread::panicking() {
                result.unwrap();
            }
        }
    }
}

fn spawn_echo(server: Server) -> JoinHandle<()> {
    thread::spawn(move || {
        loop {
            match server.recv().wait() {
                Ok(mut rpc) => {
                    let request = rpc.take_payload();
                    // A client may abort at any time.
                    let _ = rpc.reply(request);
                }
                Err(RecvError::Closed) => return,
                Err(error) => panic!("{error}"),
            }
        }
    })
}

/// Calls `holds` until it returns true. Panics if that takes too long.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        thread::yield_now();
    }
}

/// Checks that each DATA packet was handed to the device exactly once, and with its own priority.
pub fn all_data_sent_has_a_time(dump: &Dump) {
    let of = |kind| -> Vec<_> {
        let is_data = |record: &&Record| packet_word_parts(record.a).0 == 0x10;
        let records = dump.records.iter().filter(|record| record.event() == Some(kind)).filter(is_data);
        let mut keys: Vec<_> =
            records.map(|record| (record.id, record.b, record.a, record.place.priority())).collect();
        keys.sort_unstable();
        keys
    };
    let made = of(EventKind::PacketSent);
    assert!(!made.is_empty());
    assert_eq!(of(EventKind::DeviceSent), made);
}

/// Waits until no state of any call is left.
pub fn until_idle(host: &Host) {
    let start = Instant::now();
    loop {
        let now = host.metrics().host;
        if (now.open_rpcs, now.open_calls, now.queued_requests, now.open_readings) == (0, 0, 0, 0)
            && (now.outgoing_bytes, now.incoming_bytes, now.queued_request_bytes) == (0, 0, 0)
        {
            return;
        }
        if start.elapsed() > PATIENCE {
            let entries = host.metrics().entries();
            let counted: Vec<_> =
                entries.iter().filter(|(_, value, _)| *value > 0).map(|(n, v, _)| (n, v)).collect();
            panic!("state is left: {counted:?}");
        }
        thread::yield_now();
    }
}
