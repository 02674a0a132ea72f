//! TCP flows from one host to the other, at the maximum rate.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use homa_bench::cpu::cores_busy;

use super::net::run_in_namespace;

/// Size of each read and write in bytes.
const CHUNK: usize = 64 << 10;

/// Maximum time to connect.
const PATIENCE: Duration = Duration::from_secs(5);

/// Throughput of several flows in one direction.
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    /// Received payload of all flows in Mbit/s.
    pub mbps: f64,
    /// Share of time that each processor was busy.
    pub cores_busy: Vec<f64>,
}

/// The sending and the receiving end of each flow.
struct Flows {
    ends: Vec<(TcpStream, TcpStream)>,
}

impl Flows {
    /// Connects `count` flows.
    fn connect(from: &OwnedFd, to: &OwnedFd, address: Ipv4Addr, count: u16) -> Result<Flows> {
        let listener =
            run_in_namespace(to, || TcpListener::bind((address, 0)))?.context("cannot listen in a host")?;
        let at: SocketAddr = listener.local_addr().context("a listener has no address")?;
        let connect = || (0..count).map(|_| flow(&listener, at)).collect::<Result<_>>();
        Ok(Flows { ends: run_in_namespace(from, connect)?? })
    }

    /// Shuts the flows down, which ends senders and receivers.
    fn end(&self) {
        for (sending, receiving) in &self.ends {
            // Shutting down a flow that has ended fails.
            let _ = sending.shutdown(Shutdown::Both);
            let _ = receiving.shutdown(Shutdown::Both);
        }
    }
}

fn flow(listener: &TcpListener, at: SocketAddr) -> Result<(TcpStream, TcpStream)> {
    let sending = TcpStream::connect_timeout(&at, PATIENCE)
        .context("a host cannot reach the other through the router")?;
    let (receiving, _) = listener.accept().context("cannot accept a connection")?;
    Ok((sending, receiving))
}

/// Lets `count` flows send from one namespace to another, in which the receiver has this address. Calls
/// `wait` with the warm-up time, and then with the measurement time. An error of `wait` ends the run early.
///
/// # Errors
/// There is no path between the hosts, or `wait` failed.
pub fn carry(
    (from, to): (&OwnedFd, &OwnedFd),
    address: Ipv4Addr,
    count: u16,
    (warmup, measured): (Duration, Duration),
    mut wait: impl FnMut(Duration) -> Result<()>,
) -> Result<Throughput> {
    let flows = Flows::connect(from, to, address, count)?;
    let received: Vec<AtomicU64> = flows.ends.iter().map(|_| AtomicU64::new(0)).collect();
    let sum = || received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum::<u64>();
    thread::scope(|scope| {
        for ((sending, receiving), bytes) in flows.ends.iter().zip(&received) {
            scope.spawn(move || send(sending));
            scope.spawn(move || receive(receiving, bytes));
        }
        let result = wait(warmup).and_then(|()| {
            let (bytes, busy, begin) = (sum(), cores_busy(), Instant::now());
            wait(measured)?;
            let (bytes, seconds) = (sum() - bytes, begin.elapsed().as_secs_f64());
            let share =
                |(after, before): (Duration, Duration)| after.saturating_sub(before).as_secs_f64() / seconds;
            let cores_busy = cores_busy().into_iter().zip(busy).map(share).collect();
            Ok(Throughput { mbps: bytes as f64 * 8.0 / 1e6 / seconds, cores_busy })
        });
        flows.end();
        result
    })
}

/// Sends until the flow ends.
fn send(mut stream: &TcpStream) {
    let chunk = vec![0_u8; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

/// Receives until the flow ends.
fn receive(mut stream: &TcpStream, bytes: &AtomicU64) {
    let mut chunk = vec![0_u8; CHUNK];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}
