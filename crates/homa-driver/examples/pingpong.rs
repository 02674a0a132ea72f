//! Round trips of one packet between two network namespaces joined by a veth, both sides polling, driver by driver in turns:
//! what the paths cost by themselves.
//!
//! ```text
//! cargo run --release -p homa-driver --example pingpong -- [DRIVER...]
//! ```
//!
//! Drivers: udp, raw, xdp-native, xdp-generic; all of them by default. The environment has `BYTES` (100), `ROUNDS` (5) and
//! `MILLISECONDS` of each round (300). It takes root.
#![allow(clippy::print_stdout, reason = "the result")]

#[path = "../tests/common/namespace.rs"]
mod namespace;

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{XdpConfig, XdpDriver, XdpMode};
use homa_driver::{Driver, RxBurst, TxPacket};
use namespace::{Namespace, V4};

const DRIVERS: [&str; 4] = ["udp", "raw", "xdp-native", "xdp-generic"];

/// A driver by its name here.
fn open(name: &str, ip: &str) -> Box<dyn Driver> {
    let bind = SocketAddr::new(ip.parse().expect("an address"), 0);
    let xdp = |mode| {
        let config = XdpConfig { bind, mode, ..XdpConfig::default() };
        Box::new(XdpDriver::open(&config).expect("an AF_XDP driver"))
    };
    match name {
        "udp" => {
            Box::new(UdpDriver::bind(&UdpConfig { bind, ..UdpConfig::default() }).expect("a UDP driver"))
        }
        "raw" => {
            Box::new(RawDriver::bind(&RawConfig { bind, ..RawConfig::default() }).expect("a raw IP driver"))
        }
        "xdp-native" => xdp(XdpMode::Native),
        "xdp-generic" => xdp(XdpMode::Generic),
        _ => panic!("no driver {name}: choose of {}", DRIVERS.join(", ")),
    }
}

/// Keeps this thread on one core.
fn pin(core: usize) {
    // SAFETY: all-zero bytes are an empty set, the macro sets a bit within it, and the kernel reads the set only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Sends back what comes until it is told to stop.
fn answer(mut driver: Box<dyn Driver>, stop: &AtomicBool) {
    let mut burst = RxBurst::new();
    while !stop.load(Ordering::Relaxed) {
        if driver.receive(&mut burst).expect("a path that works") == 0 {
            continue;
        }
        for (from, bytes) in &burst {
            let packet = TxPacket { to: from, priority: 0, header: bytes, payload: &[] };
            while driver.send(&[packet]).expect("a path that works") == 0 {}
        }
    }
}

/// Round-trip times in nanoseconds, ascending.
fn ask(driver: &mut dyn Driver, to: SocketAddr, bytes: usize, time: Duration) -> Vec<u64> {
    let message = vec![0x5a; bytes];
    let packet = TxPacket { to, priority: 0, header: &message, payload: &[] };
    let mut burst = RxBurst::new();
    let mut times = Vec::with_capacity(1 << 20);
    let begin = Instant::now();
    while begin.elapsed() < time {
        let sent = Instant::now();
        driver.send(&[packet]).expect("a path that works");
        let lost = sent + Duration::from_millis(100);
        while driver.receive(&mut burst).expect("a path that works") == 0 {
            if Instant::now() > lost {
                break;
            }
        }
        if !burst.is_empty() {
            times.push(sent.elapsed().as_nanos() as u64);
        }
    }
    times.sort_unstable();
    times
}

/// One round with one driver on both sides.
fn round(namespaces: &[Namespace; 2], name: &str, bytes: usize, time: Duration) -> Vec<u64> {
    let stop = Arc::new(AtomicBool::new(false));
    let (other, stopped) = (name.to_owned(), Arc::clone(&stop));
    let (there, server) = namespaces[1].run(move || {
        let driver = open(&other, V4[1]);
        let there = driver.local_addr();
        let server = std::thread::spawn(move || {
            pin(1);
            answer(driver, &stopped);
        });
        (there, server)
    });
    let own = name.to_owned();
    let times = namespaces[0].run(move || {
        pin(0);
        let mut driver = open(&own, V4[0]);
        // The first ones find neighbours and warm caches.
        ask(&mut *driver, there, bytes, time / 10);
        ask(&mut *driver, there, bytes, time)
    });
    stop.store(true, Ordering::Relaxed);
    server.join().expect("the side that answers");
    times
}

fn number(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn main() {
    let named: Vec<String> = env::args().skip(1).collect();
    let names = if named.is_empty() { DRIVERS.map(str::to_owned).to_vec() } else { named };
    let (bytes, rounds) = (number("BYTES", 100), number("ROUNDS", 5));
    let time = Duration::from_millis(number("MILLISECONDS", 300) as u64);
    let Some(namespaces) = namespace::pair(1_500) else { return };
    let mut results: Vec<Vec<(u64, u64)>> = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        for (name, results) in names.iter().zip(&mut results) {
            let times = round(&namespaces, name, bytes, time);
            let of = |per_cent: usize| times.get(times.len() * per_cent / 100).copied().unwrap_or(0);
            results.push((of(50), of(99)));
        }
    }
    let median = |numbers: &mut Vec<u64>| {
        numbers.sort_unstable();
        numbers[numbers.len() / 2]
    };
    let mut first = None;
    for (name, results) in names.iter().zip(&results) {
        let mut middle: Vec<u64> = results.iter().map(|result| result.0).collect();
        let mut tail: Vec<u64> = results.iter().map(|result| result.1).collect();
        let (p50, p99) = (median(&mut middle), median(&mut tail));
        let ratio = p50 as f64 / *first.get_or_insert(p50) as f64;
        println!(
            "{name:12} P50 {p50:6} ns ({} - {})  P99 {p99:6} ns  {ratio:.2} x the first",
            middle[0],
            middle[middle.len() - 1]
        );
    }
}
