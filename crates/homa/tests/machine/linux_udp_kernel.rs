//! Tests with Linux Homa of dialect 2 with UDP encapsulation, whose packets the tests send and receive
//! themselves: how this project's host treats Linux Homa's packets, and what the host sends. The layouts are
//! those of Linux Homa, written here independently.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::common::{Echo, PATIENCE, eventually};
use super::linux_udp::{config, driver, server};
use homa::driver::linux_udp::LinuxUdpDriver;
use homa::driver::{Driver, LINUX_UDP_PORT, RxBurst, TxPacket};
use homa::error::CallError;
use homa::{DriverChoice, Host};
use homa_testkit::namespace::{V4, V6, pair};

const DATA: u8 = 0x10;
const GRANT: u8 = 0x11;
const RESEND: u8 = 0x12;
const ACK: u8 = 0x18;
const START_MSG: u8 = 0x19;

const KIND_AT: usize = 11;
const DATA_HEADER: usize = 56;
const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 99;
const ID: u64 = 1_234;
/// Message length: more than the unscheduled bytes of Linux Homa.
const LENGTH: u32 = 100_000;

/// Time without packets after which the kernel's side requests missing ones.
const SILENCE: Duration = Duration::from_secs(1);

/// A client of Linux Homa with one RPC of [`LENGTH`] bytes in each direction.
struct Kernel {
    driver: LinuxUdpDriver,
    to: SocketAddr,
    /// Number of message bytes in a full packet.
    segment: u32,
    /// End of the request bytes that may be sent, and end of the bytes that have been sent.
    granted: u32,
    sent: u32,
    /// Offsets of the response's segments that have arrived.
    arrived: BTreeSet<u32>,
    /// Number of bytes of the response that are allowed to arrive.
    allowed: u32,
    /// Types of the packets that arrived, in order, without repetitions.
    kinds: Vec<u8>,
}

impl Kernel {
    fn new(driver: LinuxUdpDriver, to: SocketAddr) -> Kernel {
        // The MTU minus the headers of IP, UDP and the DATA packet.
        let segment = if to.is_ipv4() { 1_500 - 20 - 8 - 56 } else { 1_500 - 40 - 8 - 56 };
        Kernel {
            driver,
            to,
            segment,
            granted: 0,
            sent: 0,
            arrived: BTreeSet::new(),
            allowed: 0,
            kinds: Vec::new(),
        }
    }

    /// Sends a packet. As usual with UDP encapsulation, neither flags nor the urgent pointer mark the packet.
    fn send(&mut self, kind: u8, fields: &[u8], payload: &[u8]) {
        let mut header = vec![0; 28];
        header[..2].copy_from_slice(&CLIENT_PORT.to_be_bytes());
        header[2..4].copy_from_slice(&SERVER_PORT.to_be_bytes());
        (header[KIND_AT], header[12]) = (kind, if kind == DATA { 0xd0 } else { 0x50 });
        header[20..28].copy_from_slice(&ID.to_be_bytes());
        header.extend(fields);
        let packet = [TxPacket { to: self.to, priority: 6, header: &header, payload }];
        let begin = Instant::now();
        while self.driver.send(&packet).unwrap() == 0 {
            assert!(begin.elapsed() < PATIENCE, "no room in the socket");
            std::thread::yield_now();
        }
    }

    fn send_data(&mut self, offset: u32, again: bool) {
        let mut fields = [0; DATA_HEADER - 28];
        fields[..4].copy_from_slice(&LENGTH.to_be_bytes());
        // Bytes 32 to 35, dialect 1's `incoming`, stay 0.
        fields[20] = u8::from(again);
        fields[24..].copy_from_slice(&offset.to_be_bytes());
        let length = self.segment.min(LENGTH - offset);
        self.send(DATA, &fields, &vec![7; length as usize]);
    }

    /// Sends whole segments up to the granted end.
    fn send_granted(&mut self) {
        while self.sent < self.granted {
            self.send_data(self.sent, false);
            self.sent = (self.sent + self.segment).min(LENGTH);
        }
    }

    fn grant_all(&mut self) {
        self.allowed = LENGTH;
        let fields = [&LENGTH.to_be_bytes()[..], &[2]].concat();
        self.send(GRANT, &fields, &[]);
    }

    fn resend(&mut self, offset: u32, length: u32) {
        let fields = [&offset.to_be_bytes()[..], &length.to_be_bytes(), &[7]].concat();
        self.send(RESEND, &fields, &[]);
    }

    fn receive(&mut self, packet: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        let kind = packet[KIND_AT];
        if self.kinds.last() != Some(&kind) {
            self.kinds.push(kind);
        }
        match kind {
            GRANT => {
                self.granted = self.granted.max(number(28).min(LENGTH));
                self.send_granted();
            }
            RESEND => {
                let (from, to) = (number(28), number(28).saturating_add(number(32)).min(self.sent));
                let first = from / self.segment * self.segment;
                (first..to).step_by(self.segment as usize).for_each(|offset| self.send_data(offset, true));
            }
            START_MSG => {
                assert_eq!((packet.len(), number(28)), (32, LENGTH));
                self.grant_all();
            }
            DATA => {
                let (offset, payload) = (number(52), packet.len() - DATA_HEADER);
                assert!(offset < self.allowed, "DIALECT-4: byte {offset} before a grant, {:x?}", self.kinds);
                assert_eq!(payload, self.segment.min(LENGTH - offset) as usize, "a full packet");
                assert!(packet[DATA_HEADER..].iter().all(|&byte| byte == 7));
                self.arrived.insert(offset);
            }
            _ => {}
        }
    }

    fn first_missing(&self) -> Option<u32> {
        (0..LENGTH).step_by(self.segment as usize).find(|offset| !self.arrived.contains(offset))
    }

    /// Makes the call.
    fn call(&mut self) {
        self.send(START_MSG, &LENGTH.to_be_bytes(), &[]);
        let (mut burst, begin, mut last) = (RxBurst::new(), Instant::now(), Instant::now());
        while let Some(missing) = self.first_missing() {
            assert!(begin.elapsed() < PATIENCE, "no response: {:x?}", self.kinds);
            if self.driver.receive(&mut burst).unwrap() > 0 {
                last = Instant::now();
                for (from, packet) in burst.iter() {
                    assert_eq!(from.port(), LINUX_UDP_PORT, "WIRE-27");
                    self.receive(packet);
                }
            } else if last.elapsed() > SILENCE {
                last = Instant::now();
                match (self.granted, self.allowed) {
                    (0, _) => self.send(START_MSG, &LENGTH.to_be_bytes(), &[]),
                    (_, 0) => self.resend(0, u32::MAX),
                    _ => self.resend(missing, LENGTH - missing),
                }
            }
            std::thread::yield_now();
        }
        // Leave the slots for further acknowledgements empty.
        self.send(ACK, &[0; 52], &[]);
    }
}

/// DIALECT-2, DIALECT-4, DIALECT-7: with UDP encapsulation, packets do not have the marks of a kernel.
#[test]
fn a_long_call_of_a_kernel_begins_with_start_msg_in_both_directions() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let echo = namespaces[1].run(move || Echo::with(config(ips[1]), 1));
        namespaces[0].run(move || {
            let mut kernel = Kernel::new(driver(ips[0]), echo.to.host);
            kernel.call();
            assert_eq!(kernel.kinds[0], GRANT, "{:x?}", kernel.kinds);
            assert!(kernel.kinds.contains(&START_MSG), "{:x?}", kernel.kinds);
            eventually("the acknowledgement frees the RPC", || {
                kernel.send(ACK, &[0; 52], &[]);
                echo.metrics().host.open_rpcs == 0
            });
            assert_eq!(echo.metrics().endpoint.drop_invalid, 0);
            drop(echo);
        });
    }
}

/// WIRE-29: a Homa port has one encapsulation. Packets with the other encapsulation reach no process.
#[test]
fn a_call_in_the_other_form_reaches_no_server() {
    let Some(namespaces) = pair(1_500) else { return };
    let raw = |ip: &str| {
        let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
        let bind = SocketAddr::new(ip.parse().unwrap(), 0);
        Host::builder().driver(DriverChoice::Raw).address(bind).segment_dir(segment_dir)
    };
    for ips in [V4, V6] {
        // Both hosts are at the same address, and share its table of Homa ports.
        let (echo, other, other_server) = namespaces[1].run(move || {
            let echo = Echo::with(config(ips[1]), 1);
            let other = raw(ips[1]).bind().unwrap();
            let other_server = other.server(98).unwrap();
            (echo, other, other_server)
        });
        namespaces[0].run(move || {
            let udp = config(ips[0]).bind().unwrap();
            let ip = raw(ips[0]).bind().unwrap();
            let calls = [(&udp, server(ips[1], 98)), (&ip, homa::ServerAddr::new(other.local_addr(), 99))];
            for (host, to) in calls {
                let error = host.client().unwrap().call(to, "x").timeout(PATIENCE).wait().unwrap_err();
                let ended = matches!(error, CallError::NoSuchPort { .. } | CallError::NoAnswer { .. });
                assert!(ended, "{error}");
            }
            assert_eq!(other.metrics().endpoint.requests_delivered, 0);
            assert_eq!(echo.metrics().endpoint.requests_delivered, 0);
            drop((echo, other_server));
        });
    }
}
