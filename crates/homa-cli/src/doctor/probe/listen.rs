//! The end that probes come to.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use homa_report::outputs::Outputs;

use super::control::{Control, Hello, Orders, Probe, Sent, VERSION};
use super::verdict::{Arrival, Results};
use super::{ListenArgs, PORT};
use crate::addr::resolve;

/// Probes without load, which say what the shortest delay is, in nanoseconds.
const QUIET_NS: u64 = 300_000_000;
/// A probing host that says nothing for so long beyond the time of the run is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most probes that are kept: those of an hour.
const ARRIVALS_MAX: usize = 4_000_000;
/// Probes still on their way when the last host has ended.
const LATE: Duration = Duration::from_millis(200);

/// Waits for the hosts, lets them probe, and prints what was found.
///
/// # Errors
/// The address is taken, a host is gone, or a file cannot be written.
pub fn listen(args: &ListenArgs) -> Result<()> {
    let outputs = Outputs::json_only(args.json.as_deref())?;
    let bind = resolve(&args.bind, PORT)?;
    let listener = TcpListener::bind(bind)
        .with_context(|| format!("cannot listen on {bind}: choose another --bind IP:PORT"))?;
    let at = listener.local_addr().context("a listener without an address")?;
    let udp = |what: &str| {
        UdpSocket::bind(SocketAddr::new(at.ip(), 0))
            .with_context(|| format!("cannot open a UDP port for {what}"))
    };
    let (probes, load) = (udp("probes")?, udp("load")?);
    let mut orders = Orders {
        version: VERSION,
        run: std::process::id(),
        probes: true,
        load: args.senders == 1,
        quiet_ns: QUIET_NS,
        loaded_ns: args.seconds,
        load_priority: args.load_priority,
        load_rate: args.load_rate,
        probe_port: probes.local_addr().context("a socket without an address")?.port(),
        load_port: load.local_addr().context("a socket without an address")?.port(),
    };
    let patience = PATIENCE + Duration::from_nanos(args.seconds);
    eprintln!("listening on {at} for {} of `homa doctor probe`", args.senders);
    let mut hosts = Vec::new();
    while hosts.len() < usize::from(args.senders) {
        let (stream, from) = listener.accept().context("cannot take a connection")?;
        match welcome(Control::new(stream, from.to_string(), patience)?) {
            Ok(host) => {
                eprintln!("{from} is there");
                hosts.push(host);
            }
            // Whoever else looks at this port does not end the wait.
            Err(error) => eprintln!("warning: {error:#}"),
        }
    }
    let (ended, arrivals) = receive(probes, orders.run);
    for host in &mut hosts {
        host.put(&orders)?;
        // The first probes; where there are others, they load.
        (orders.probes, orders.load) = (false, true);
    }
    let mut sent = Sent::default();
    for host in &mut hosts {
        let of: Sent = host.get()?;
        if of.probes != Sent::default().probes {
            sent.probes = of.probes;
        }
        sent.load_bytes = sent.load_bytes.saturating_add(of.load_bytes);
        sent.load_ns = sent.load_ns.max(of.load_ns);
    }
    thread::sleep(LATE);
    ended.store(true, Ordering::Relaxed);
    let arrivals = arrivals.join().expect("a thread that reads a socket does not panic")?;
    let results = Results::of(&arrivals, &sent, args.load_priority);
    for host in &mut hosts {
        // Who does not hear of it any more has left early.
        let _ = host.put(&results);
    }
    outputs.answer(&results.text(), &results)
}

fn welcome(mut host: Control) -> Result<Control> {
    let hello: Hello = host.get()?;
    ensure!(hello.version == VERSION, "version {} of the probes: use the same release", hello.version);
    Ok(host)
}

/// A thread that takes the time of each probe of this run, until it is told to end.
fn receive(socket: UdpSocket, run: u32) -> (Arc<AtomicBool>, thread::JoinHandle<Result<Vec<Arrival>>>) {
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    let thread = thread::spawn(move || {
        let look_up = Some(Duration::from_millis(50));
        socket.set_read_timeout(look_up).context("cannot set a time-out")?;
        let (start, mut arrivals, mut bytes) = (Instant::now(), Vec::new(), [0; Probe::BYTES + 1]);
        while !end.load(Ordering::Relaxed) {
            // A time-out, or an error that ICMP brought: the next packet may come.
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
