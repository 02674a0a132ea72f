//! The control connection between the listener and a probing host, which carries lines of JSON over TCP, and
//! the layout of a probe.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of these lines and of the probes.
pub const VERSION: u32 = 1;

/// Maximum length of a line, in bytes.
const LINE_MAX: u64 = 64 * 1024;

/// The first line sent by a probing host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
}

/// Instructions for a probing host. Times count from the arrival of this line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeInstructions {
    pub version: u32,
    /// A number contained in each probe, so that probes of earlier runs can be ignored.
    pub run: u32,
    /// Whether the host sends probes: for `quiet_ns` without load, and then for `loaded_ns` during the load.
    pub probes: bool,
    /// Whether the host sends load, starting after `quiet_ns`, for `loaded_ns`.
    pub load: bool,
    pub quiet_ns: u64,
    pub loaded_ns: u64,
    pub load_priority: u8,
    /// Rate of the load in bits of payload per second; `None`: unlimited.
    pub load_rate: Option<u64>,
    /// UDP port for probes.
    pub probe_port: u16,
    /// UDP port for load, from which nothing reads.
    pub load_port: u16,
}

/// Numbers of packets that a probing host sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentCounts {
    /// Number of probes of each priority, first those sent without load, then those sent during the load.
    pub probes: [[u64; 8]; 2],
    pub load_bytes: u64,
    pub load_ns: u64,
}

/// One end of a control connection.
pub struct Control {
    lines: BufReader<TcpStream>,
    /// The address of the peer, for error messages.
    peer: String,
}

impl Control {
    /// Creates a connection on which each line must arrive within `patience`.
    ///
    /// # Errors
    /// The socket's timeout cannot be set.
    pub fn new(stream: TcpStream, peer: String, patience: Duration) -> Result<Control> {
        stream.set_read_timeout(Some(patience)).context("cannot set a time-out")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        Ok(Control { lines: BufReader::new(stream), peer })
    }

    /// Sends one line.
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub fn send_line(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line).with_context(|| format!("{} is gone", self.peer))
    }

    /// Reads one line.
    ///
    /// # Errors
    /// The peer has closed the connection, is silent, or sends something unexpected.
    pub fn get<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = Vec::new();
        let read = self.lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        read.with_context(|| format!("{} said nothing", self.peer))?;
        ensure!(line.last() == Some(&b'\n'), "{} ended the connection: start it again there", self.peer);
        serde_json::from_slice(&line).with_context(|| {
            format!("{} is no `homa doctor` of this version: use the same release", self.peer)
        })
    }
}

/// A probe on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub run: u32,
    pub priority: u8,
    /// Whether the probe was sent during the load.
    pub loaded: bool,
    /// Send time on the sender's clock.
    pub sent_ns: u64,
}

impl Probe {
    /// Length of a probe in bytes, the same as that of a packet with a short message.
    pub const BYTES: usize = 100;
    const MAGIC: [u8; 4] = *b"hmdp";

    pub fn to_bytes(self) -> [u8; Probe::BYTES] {
        let mut bytes = [0; Probe::BYTES];
        bytes[..4].copy_from_slice(&Probe::MAGIC);
        bytes[4..8].copy_from_slice(&self.run.to_le_bytes());
        bytes[8] = self.priority;
        bytes[9] = self.loaded.into();
        bytes[16..24].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// Parses a probe. Returns `None` if the bytes are not a probe.
    pub fn of(bytes: &[u8]) -> Option<Probe> {
        let bytes: &[u8; Probe::BYTES] = bytes.try_into().ok()?;
        let whole = bytes[..4] == Probe::MAGIC && bytes[8] < 8 && bytes[9] < 2;
        whole.then(|| Probe {
            run: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            priority: bytes[8],
            loaded: bytes[9] == 1,
            sent_ns: u64::from_le_bytes(std::array::from_fn(|i| bytes[16 + i])),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_probe_comes_back_from_its_bytes_and_nothing_else_is_one() {
        let probe = Probe { run: 77, priority: 5, loaded: true, sent_ns: 1 << 40 };
        let bytes = probe.to_bytes();
        assert_eq!(Probe::of(&bytes), Some(probe));
        assert_eq!(Probe::of(&bytes[1..]), None);
        for (at, byte) in [(0, b'x'), (8, 8), (9, 2)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(Probe::of(&other), None, "byte {at}");
        }
    }

    #[test]
    fn strangers_and_broken_connections_are_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut stranger = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let stream = listener.accept().expect("a connection").0;
        let mut control =
            Control::new(stream, "10.0.0.9".into(), Duration::from_secs(10)).expect("a connection");
        stranger.write_all(b"GET / HTTP/1.1\r\n").expect("sent");
        let error = control.get::<Hello>().expect_err("no hello").to_string();
        assert!(error.contains("10.0.0.9 is no `homa doctor`"), "{error}");
        stranger.write_all(br#"{"version":1}"#).expect("sent");
        drop(stranger);
        let error = control.get::<Hello>().expect_err("half a line").to_string();
        assert!(error.contains("10.0.0.9 ended the connection"), "{error}");
    }
}
