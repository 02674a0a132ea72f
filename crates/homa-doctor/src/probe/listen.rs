//! The host that receives the probes.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::ListenOptions;
use super::control::{Control, Hello, Probe, ProbeInstructions, SentCounts, VERSION};
use super::verdict::{Arrival, Results};

/// Time for which probes are sent without load, to determine the shortest delay, in nanoseconds.
const QUIET_NS: u64 = 300_000_000;
/// A probing host counts as gone if it stays silent for this long after the planned end of the run.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of probes to keep: those of one hour.
const ARRIVALS_MAX: usize = 4_000_000;
/// Time to wait for probes that are still in flight when the last host has ended.
const LATE: Duration = Duration::from_millis(200);

/// Waits for the probing hosts, lets them send probes, and returns the delays.
///
/// # Errors
/// The address is in use, or a host disconnected.
pub fn listen(options: &ListenOptions, notify: &mut dyn FnMut(&str)) -> Result<Results> {
    let ListenOptions { bind, senders, loaded, .. } = *options;
    let listener = TcpListener::bind(bind)
        .with_context(|| format!("cannot listen on {bind}: choose another --bind IP:PORT"))?;
    let at = listener.local_addr().context("a listener without an address")?;
    let udp = |what: &str| {
        UdpSocket::bind(SocketAddr::new(at.ip(), 0))
            .with_context(|| format!("cannot open a UDP port for {what}"))
    };
    let (probes, load) = (udp("probes")?, udp("load")?);
    let mut instructions = ProbeInstructions {
        version: VERSION,
        run: std::process::id(),
        probes: true,
        load: senders == 1,
        quiet_ns: QUIET_NS,
        loaded_ns: u64::try_from(loaded.as_nanos()).unwrap_or(u64::MAX),
        load_priority: options.load_priority,
        load_rate: options.load_rate_bps,
        probe_port: probes.local_addr().context("a socket without an address")?.port(),
        load_port: load.local_addr().context("a socket without an address")?.port(),
    };
    let patience = PATIENCE.saturating_add(loaded);
    notify(&format!("listening on {at} for {senders} of `homa doctor probe`"));
    let mut hosts = Vec::new();
    while hosts.len() < usize::from(senders) {
        let (stream, from) = listener.accept().context("cannot take a connection")?;
        match accept_peer(Control::new(stream, from.to_string(), patience)?) {
            Ok(host) => {
                notify(&format!("{from} is there"));
                hosts.push(host);
            }
            // A connection from another program does not end the wait.
            Err(error) => notify(&format!("warning: {error:#}")),
        }
    }
    let (ended, arrivals) = receive(probes, instructions.run);
    for host in &mut hosts {
        host.send_line(&instructions)?;
        // The first host sends probes; the others send load.
        (instructions.probes, instructions.load) = (false, true);
    }
    let mut sent = SentCounts::default();
    for host in &mut hosts {
        let of: SentCounts = host.get()?;
        if of.probes != SentCounts::default().probes {
            sent.probes = of.probes;
        }
        sent.load_bytes = sent.load_bytes.saturating_add(of.load_bytes);
        sent.load_ns = sent.load_ns.max(of.load_ns);
    }
    thread::sleep(LATE);
    ended.store(true, Ordering::Relaxed);
    let arrivals = arrivals.join().expect("a thread that reads a socket does not panic")?;
    let results = Results::of(&arrivals, &sent, options.load_priority);
    for host in &mut hosts {
        // A host that disconnected early does not get the results.
        let _ = host.send_line(&results);
    }
    Ok(results)
}

fn accept_peer(mut host: Control) -> Result<Control> {
    let hello: Hello = host.get()?;
    ensure!(hello.version == VERSION, "version {} of the probes: use the same release", hello.version);
    Ok(host)
}

/// Starts a thread that records the arrival of each probe of this run until the flag is set.
fn receive(socket: UdpSocket, run: u32) -> (Arc<AtomicBool>, thread::JoinHandle<Result<Vec<Arrival>>>) {
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    let thread = thread::spawn(move || {
        let look_up = Some(Duration::from_millis(50));
        socket.set_read_timeout(look_up).context("cannot set a time-out")?;
        let (start, mut arrivals, mut bytes) = (Instant::now(), Vec::new(), [0; Probe::BYTES + 1]);
        while !end.load(Ordering::Relaxed) {
            // After a timeout, or an error reported by ICMP, the next packet may still arrive.
            let Ok(length) = socket.recv(&mut bytes) else { continue };
            let came_ns = start.elapsed().as_nanos() as i64;
            let Some(probe) = Probe::of(&bytes[..length]).filter(|probe| probe.run == run) else { continue };
            if arrivals.len() < ARRIVALS_MAX {
                let delay_ns = came_ns.wrapping_sub(probe.sent_ns as i64);
                arrivals.push(Arrival { priority: probe.priority, loaded: probe.loaded, delay_ns });
            }
        }
        Ok(arrivals)
    });
    (ended, thread)
}
