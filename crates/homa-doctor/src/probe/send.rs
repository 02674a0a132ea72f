//! A host that sends probes or load.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt;

use super::control::{Control, Hello, Probe, ProbeInstructions, SentCounts, VERSION};
use super::verdict::Results;

/// Time between two probes, in nanoseconds, long enough to put no noticeable load on even a 10 Mbit/s link.
const PROBE_GAP_NS: u64 = 500_000;
/// Payload of a load packet in bytes: a full frame at an MTU of 1,500, with IPv6 as well.
const LOAD_BYTES: usize = 1_400;
/// Maximum time that the listener may wait for other hosts.
const PATIENCE: Duration = Duration::from_secs(3_600);
const CONNECT: Duration = Duration::from_secs(10);

/// Sends probes or load to the listener at `to` as the listener instructs, and returns the listener's
/// results.
///
/// # Errors
/// There is no listener at the address, the listener disconnected, or a socket cannot be opened.
pub fn send(to: SocketAddr, notify: &mut dyn FnMut(&str)) -> Result<Results> {
    let stream = TcpStream::connect_timeout(&to, CONNECT)
        .with_context(|| format!("no listener at {to}: start `homa doctor listen` there"))?;
    let mut listener = Control::new(stream, to.to_string(), PATIENCE)?;
    listener.send_line(&Hello { version: VERSION })?;
    notify(&format!("waiting for {to} to say what to send"));
    let instructions: ProbeInstructions = listener.get()?;
    let what = if instructions.probes { "probes" } else { "load" };
    notify(&format!(
        "sending {what} for {:.1} s",
        (instructions.quiet_ns + instructions.loaded_ns) as f64 / 1e9
    ));
    let start = Instant::now();
    let sent = thread::scope(|scope| -> Result<SentCounts> {
        let load = instructions.load.then(|| scope.spawn(|| send_load(to, &instructions, start)));
        let probes = if instructions.probes {
            send_probes(to, &instructions, start)?
        } else {
            SentCounts::default().probes
        };
        let (load_bytes, load_ns) = match load {
            Some(thread) => thread.join().expect("a thread that sends does not panic")?,
            None => (0, 0),
        };
        Ok(SentCounts { probes, load_bytes, load_ns })
    })?;
    listener.send_line(&sent)?;
    listener.get()
}

/// Opens a socket whose packets have this priority, marked as Homa's packets are.
fn socket(to: SocketAddr, priority: u8) -> Result<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).context("cannot open a UDP socket")?;
    socket.connect(to).with_context(|| format!("cannot send to {to}"))?;
    let dscp = priority << 5;
    match to {
        SocketAddr::V4(_) => sockopt::set_ip_tos(&socket, dscp),
        SocketAddr::V6(_) => sockopt::set_ipv6_tclass(&socket, dscp.into()),
    }
    .with_context(|| format!("cannot set the DSCP of priority {priority}"))?;
    Ok(socket)
}

fn send_probes(to: SocketAddr, instructions: &ProbeInstructions, start: Instant) -> Result<[[u64; 8]; 2]> {
    let to = SocketAddr::new(to.ip(), instructions.probe_port);
    let sockets = (0..8).map(|priority| socket(to, priority)).collect::<Result<Vec<_>>>()?;
    let mut sent = [[0; 8]; 2];
    let end_ns = instructions.quiet_ns.saturating_add(instructions.loaded_ns);
    for priority in (0..8).cycle() {
        // Sleeps a fixed time after each probe: if late probes were sent in a burst, they would queue behind
        // each other.
        thread::sleep(Duration::from_nanos(PROBE_GAP_NS));
        let sent_ns = start.elapsed().as_nanos() as u64;
        if sent_ns >= end_ns {
            break;
        }
        let loaded = sent_ns >= instructions.quiet_ns;
        let probe = Probe { run: instructions.run, priority: priority as u8, loaded, sent_ns };
        // A probe that is dropped because a queue is full counts as sent, and an ICMP error concerns an
        // earlier probe.
        let _ = sockets[priority].send(&probe.to_bytes());
        sent[usize::from(loaded)][priority] += 1;
    }
    Ok(sent)
}

/// Sends the load. Returns the bytes sent and the time taken in nanoseconds.
fn send_load(to: SocketAddr, instructions: &ProbeInstructions, start: Instant) -> Result<(u64, u64)> {
    let to = SocketAddr::new(to.ip(), instructions.load_port);
    let socket = socket(to, instructions.load_priority)?;
    let begin = start + Duration::from_nanos(instructions.quiet_ns);
    thread::sleep(begin.saturating_duration_since(Instant::now()));
    let (bytes, mut sent) = ([0; LOAD_BYTES], 0_u64);
    let length = Duration::from_nanos(instructions.loaded_ns);
    while begin.elapsed() < length {
        if let Some(rate) = instructions.load_rate {
            let due = u128::from(sent) * 8_000_000_000 / u128::from(rate.max(1));
            let due = begin + Duration::from_nanos(u64::try_from(due).unwrap_or(u64::MAX));
            thread::sleep(due.saturating_duration_since(Instant::now()).min(length));
        }
        match socket.send(&bytes) {
            Ok(_) => sent += LOAD_BYTES as u64,
            // A queue is full, or ICMP reported an error for an earlier packet.
            Err(error)
                if error.raw_os_error().is_some_and(is_passing) || error.kind() == ErrorKind::WouldBlock =>
            {
                thread::yield_now();
            }
            Err(error) => return Err(error).with_context(|| format!("cannot send to {to}")),
        }
    }
    Ok((sent, begin.elapsed().as_nanos() as u64))
}

/// Returns whether sending may continue after this error.
fn is_passing(error: i32) -> bool {
    use rustix::io::Errno;
    [Errno::NOBUFS, Errno::CONNREFUSED, Errno::INTR, Errno::HOSTUNREACH, Errno::NETUNREACH]
        .iter()
        .any(|passing| passing.raw_os_error() == error)
}
