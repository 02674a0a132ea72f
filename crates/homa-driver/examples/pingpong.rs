//! Measures round trips of packets over each packet path, between two network namespaces joined by a veth,
//! with two pinned, polling threads.
//!
//! `cargo run --release -p homa-driver --example pingpong -- --driver bare,udp,packet,xdp --rounds 5`
//!
//! `bare` is a plain UDP socket, the baseline of the comparison. Drivers take turns within each round, so
//! that other load on the machine affects all of them. With `--window` above 1, that many packets are
//! outstanding, and the result is their rate. Needs root.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{XdpConfig, XdpDriver, XdpMode};
use homa_driver::{BufferSizes, Carrier, Driver, DriverStats, RxBurst, TxPacket, UnreachableReport};

use homa_testkit::namespace::{Namespace, V4};

type AnyError = Box<dyn std::error::Error>;

/// A plain UDP socket. Its only peer is the sender of the first packet.
struct PlainUdp(UdpSocket);

impl Driver for PlainUdp {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket")
    }
    fn max_packet(&self, _: SocketAddr) -> usize {
        1_472
    }
    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        for packet in packets {
            // Sent from a single buffer, so the socket gets its data in one piece.
            self.0.send_to(packet.payload, packet.to)?;
        }
        Ok(packets.len())
    }
    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        burst.clear();
        let mut bytes = [0; 2_048];
        match self.0.recv_from(&mut bytes) {
            Ok((length, from)) => {
                assert!(burst.push(from, &bytes[..length]));
                Ok(1)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        None
    }
    fn link_mbps(&self) -> Option<u32> {
        None
    }
    fn buffer_sizes(&self) -> Option<BufferSizes> {
        None
    }
    fn stats(&self) -> DriverStats {
        DriverStats::default()
    }
}

/// Opens the driver with this name at an address.
fn open(name: &str, ip: &str) -> Result<Box<dyn Driver>, String> {
    let (base, carrier) = match name.strip_suffix("-ip") {
        Some(base) => (base, Carrier::Ip),
        None => (name, Carrier::Udp),
    };
    let ip = ip.parse().map_err(|error| format!("{ip}: {error}"))?;
    let bind = SocketAddr::new(ip, if carrier == Carrier::Udp && base != "raw" { 4_000 } else { 0 });
    let fail = |error: &dyn std::error::Error| format!("{name}: {error}");
    let packet = |bypass_qdisc| {
        let config = PacketConfig { bind, carrier, bypass_qdisc, ..PacketConfig::default() };
        PacketDriver::open(&config).map_err(|error| fail(&error))
    };
    let xdp = |mode| {
        let config = XdpConfig { bind, carrier, mode, ..XdpConfig::default() };
        XdpDriver::open(&config).map_err(|error| fail(&error))
    };
    Ok(match base {
        "bare" => {
            let socket = UdpSocket::bind(bind).map_err(|error| fail(&error))?;
            socket.set_nonblocking(true).map_err(|error| fail(&error))?;
            Box::new(PlainUdp(socket))
        }
        "udp" => {
            let config = UdpConfig { bind, ..UdpConfig::default() };
            Box::new(UdpDriver::bind(&config).map_err(|error| fail(&error))?)
        }
        "raw" => {
            let config = RawConfig { bind, ..RawConfig::default() };
            Box::new(RawDriver::bind(&config).map_err(|error| fail(&error))?)
        }
        "packet" => Box::new(packet(false)?),
        "packet-bypass" => Box::new(packet(true)?),
        "xdp" => Box::new(xdp(XdpMode::Auto)?),
        "xdp-generic" => Box::new(xdp(XdpMode::Generic)?),
        _ => {
            return Err(format!(
                "no driver {name}: choose of bare, udp, raw, packet, packet-bypass, xdp, xdp-generic, and the last four with \
                 -ip for IP protocol 146"
            ));
        }
    })
}

fn pin(core: usize) {
    // SAFETY: the set consists of bits, so all-zero bytes are a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is less than the number of bits of the set, whose length is passed.
    unsafe {
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn packet(to: SocketAddr, bytes: &[u8]) -> TxPacket<'_> {
    TxPacket { to, priority: 0, header: &[], payload: bytes }
}

/// Echoes packets until it is stopped.
fn echo(mut driver: Box<dyn Driver>, stop: &AtomicBool) -> io::Result<()> {
    pin(1);
    let mut burst = RxBurst::new();
    while !stop.load(Ordering::Relaxed) {
        if driver.receive(&mut burst)? == 0 {
            continue;
        }
        let packets: Vec<TxPacket<'_>> = burst.iter().map(|(from, bytes)| packet(from, bytes)).collect();
        let mut sent = 0;
        while sent < packets.len() {
            sent += driver.send(&packets[sent..])?;
        }
    }
    Ok(())
}

/// The results of a run.
struct Run {
    round_trips_ns: Vec<u32>,
    per_second: f64,
}

impl Run {
    fn quantile_us(&self, share: f64) -> f64 {
        let at = (self.round_trips_ns.len().saturating_sub(1) as f64 * share) as usize;
        self.round_trips_ns.get(at).map_or(f64::NAN, |&ns| f64::from(ns) / 1e3)
    }
}

/// Exchanges packets for the configured time, `window` at a time.
fn ping(mut driver: Box<dyn Driver>, to: SocketAddr, options: &Options) -> io::Result<Run> {
    pin(0);
    let bytes = vec![0x5a; options.size];
    let packets = vec![packet(to, &bytes); options.window];
    let (mut burst, mut round_trips_ns, mut done) = (RxBurst::new(), Vec::with_capacity(1 << 22), 0_u64);
    // The first packets make the kernel resolve the neighbour and touch the memory.
    let warm = Instant::now() + Duration::from_millis(100);
    let (mut begin, mut warming) = (Instant::now(), true);
    let mut in_flight = 0;
    let mut sent_at = Instant::now();
    loop {
        if in_flight < options.window {
            sent_at = Instant::now();
            if warming && sent_at >= warm {
                (warming, begin, done) = (false, sent_at, 0);
                round_trips_ns.clear();
            }
            if !warming && sent_at - begin >= options.time {
                break;
            }
            in_flight += driver.send(&packets[in_flight..])?;
        }
        let got = driver.receive(&mut burst)?;
        if got > 0 {
            in_flight = in_flight.saturating_sub(got);
            done += got as u64;
            if options.window == 1 {
                round_trips_ns.push(sent_at.elapsed().as_nanos() as u32);
            }
        } else if sent_at.elapsed() > Duration::from_millis(50) {
            // The packet was lost.
            in_flight = 0;
        }
    }
    let per_second = done as f64 / begin.elapsed().as_secs_f64();
    round_trips_ns.sort_unstable();
    Ok(Run { round_trips_ns, per_second })
}

struct Options {
    drivers: Vec<String>,
    size: usize,
    window: usize,
    rounds: usize,
    time: Duration,
}

fn options() -> Result<Options, AnyError> {
    let mut options = Options {
        drivers: vec!["bare".into(), "udp".into(), "packet".into(), "xdp".into()],
        size: 100,
        window: 1,
        rounds: 5,
        time: Duration::from_millis(500),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--driver" => options.drivers = value.split(',').map(str::to_owned).collect(),
            "--size" => options.size = value.parse()?,
            "--window" => options.window = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--ms" => options.time = Duration::from_millis(value.parse()?),
            _ => return Err(format!("{word}: choose of --driver --size --window --rounds --ms").into()),
        }
    }
    Ok(options)
}

fn run_one(namespaces: &[Namespace; 2], name: &str, options: &Options) -> Result<Run, AnyError> {
    let open_in = |i: usize| {
        let name = name.to_owned();
        namespaces[i].run(move || open(&name, V4[i]))
    };
    let (here, there) = (open_in(0)?, open_in(1)?);
    let to = there.local_addr();
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let echoing = scope.spawn(|| echo(there, &stop));
        let run = scope.spawn(|| ping(here, to, options)).join();
        stop.store(true, Ordering::Relaxed);
        echoing.join().map_err(|_| "the echo panicked")??;
        Ok(run.map_err(|_| "the ping panicked")??)
    })
}

/// Returns the median, minimum and maximum.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

fn main() -> Result<(), AnyError> {
    let options = options()?;
    let Some(namespaces) = homa_testkit::namespace::pair(1_500) else { return Ok(()) };
    let mut runs: Vec<Vec<Run>> = options.drivers.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (name, runs) in options.drivers.iter().zip(&mut runs) {
            runs.push(run_one(&namespaces, name, &options)?);
        }
    }
    println!(
        "{} bytes, window {}, {} rounds of {} ms: median [least, most]; ratio to {} of the medians",
        options.size,
        options.window,
        options.rounds,
        options.time.as_millis(),
        options.drivers[0]
    );
    let of = |runs: &[Run], what: &dyn Fn(&Run) -> f64| spread(runs.iter().map(what).collect());
    for (name, each) in options.drivers.iter().zip(&runs) {
        let rate = |run: &Run| run.per_second / 1e6;
        let [median, least, most] = of(each, &rate);
        let ratio = median / of(&runs[0], &rate)[0];
        print!("{name:14} {median:6.3} M/s [{least:.3}, {most:.3}] {ratio:5.2}x");
        if options.window == 1 {
            let p50 = |run: &Run| run.quantile_us(0.5);
            let [median, least, most] = of(each, &p50);
            let ratio = median / of(&runs[0], &p50)[0];
            let [p99, ..] = of(each, &|run| run.quantile_us(0.99));
            print!("   P50 {median:6.2} us [{least:.2}, {most:.2}] {ratio:5.2}x   P99 {p99:6.2} us");
        }
        println!();
    }
    Ok(())
}
