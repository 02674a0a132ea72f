//! Measures what a flood of forged packets costs other clients, over real sockets on the loopback device.
//!
//! `cargo run --release -p homa --example hostile -- 3 50000 200` floods a server for 3 seconds with 50,000
//! packets per second from 200 addresses. It compares the round-trip times of honest clients during the flood
//! with those before it.
//!
//! Exits with code 1 if a call failed or a configured bound was exceeded. The ratio of the P99s, which should
//! stay below 3, is printed but not checked, because it depends on the other load of the machine.
//! `tests/hostile.rs` of `homa-sim` checks it in virtual time.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use homa::{Host, ServerAddr};
use homa_proto::wire::{self, Ack, AckList, Body, Common, Data, Grant, Incarnation, Resend, UnknownReason};

const USAGE: &str = "\
usage: hostile [SECONDS [PACKETS_PER_SECOND [ADDRESSES]]]

  SECONDS             of quiet, and then of flood: 1 to 60 (default 3)
  PACKETS_PER_SECOND  of the flood: 0 to 200000 (default 50000)
  ADDRESSES           from which they come, all of 127.0.0.0/8: 1 to 1000 (default 200)

example: hostile 3 50000 200";

/// Number of honest clients. Each has its own host and makes one call at a time.
const CLIENTS: usize = 2;
const MAX_RPCS: u32 = 100_000;
const MAX_PEERS: u32 = 4_096;
const MAX_INCOMING_BYTES: u64 = 256 << 20;
/// The flood is sent in portions, one per millisecond.
const PORTION: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
struct Options {
    time: Duration,
    packets_per_second: u64,
    addresses: u16,
}

fn options() -> Option<Options> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64, least: u64, most: u64| {
        let value = arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
        value.ok().filter(|value| (least..=most).contains(value))
    };
    let options = Options {
        time: Duration::from_secs(number(3, 1, 60)?),
        packets_per_second: number(50_000, 0, 200_000)?,
        addresses: number(200, 1, 1_000)? as u16,
    };
    arguments.next().is_none().then_some(options)
}

/// A pseudorandom number generator (xorshift, Marsaglia 2003), since the flood need not be unpredictable.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Creates one forged packet.
fn forge(numbers: &mut Numbers) -> Vec<u8> {
    let data = |message_length: u32, offset: u32| {
        Body::Data(Data {
            message_length,
            incoming: message_length,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            offset,
            response_limit: None,
        })
    };
    let id = numbers.next() & !1;
    let payload = (numbers.next() % 200 + 1) as usize;
    let mut acks = AckList::new();
    acks.push(Ack { client_id: id ^ 2, server_port: ServerAddr::DEFAULT_PORT });
    let (sender_id, body, payload) = match numbers.next() % 12 {
        0..4 => (id, data(1_000_000, 0), payload),
        4 => (id, data((numbers.next() >> 33) as u32 | 1 << 10, (numbers.next() % 1_000) as u32), payload),
        5 => (id, data(payload as u32, 0), payload),
        6 => (id | 1, data(100, 0), 100),
        7 => (id, Body::Grant(Grant { offset: i32::MAX as u32, priority: 7 }), 0),
        8 => (id, Body::Ack(acks), 0),
        9 => (id, Body::Resend(Resend { offset: 0, length: None, priority: 7 }), 0),
        10 => (id | 1, Body::RpcUnknown(UnknownReason::Unknown), 0),
        _ => return (0..numbers.next() % 100).map(|_| numbers.next() as u8).collect(),
    };
    let dest_port =
        if numbers.next().is_multiple_of(8) { numbers.next() as u16 } else { ServerAddr::DEFAULT_PORT };
    let common = Common {
        source_port: 40_000,
        dest_port,
        sender_id,
        incarnation: Incarnation::NONE,
        bundle_endpoints: 0,
    };
    let mut bytes = wire::encode(&common, &body).as_slice().to_vec();
    bytes.resize(bytes.len() + payload, 0);
    bytes
}

/// Floods `to` until `stop`; returns the number of packets sent.
fn flood(to: SocketAddr, options: Options, stop: &AtomicBool) -> Result<u64, std::io::Error> {
    let address = |n: u16| {
        let [high, low] = n.to_be_bytes();
        SocketAddr::from((Ipv4Addr::new(127, 66, high, low), 0))
    };
    let sockets = (1..=options.addresses).map(|n| UdpSocket::bind(address(n)));
    let sockets: Vec<UdpSocket> = sockets.collect::<Result<_, _>>()?;
    sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (begin, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_micros() as u64).saturating_mul(options.packets_per_second) / 1_000_000;
        while sent < due {
            let socket = &sockets[numbers.next() as usize % sockets.len()];
            // Packets that do not fit in the receiver's buffer are lost, as in any flood.
            let _ = socket.send_to(&forge(&mut numbers), to);
            sent += 1;
        }
        std::thread::sleep(PORTION);
    }
    Ok(sent)
}

/// Makes calls until `time` has passed; returns the round-trip times and the number of failed calls.
fn calls(to: ServerAddr, time: Duration) -> Result<(Vec<Duration>, u64), Box<dyn Error + Send + Sync>> {
    let host = Host::builder().address("127.0.0.1:0".parse()?).bind()?;
    let client = host.client()?;
    let (begin, mut times, mut failed) = (Instant::now(), Vec::new(), 0);
    while begin.elapsed() < time {
        let length = if times.len() % 20 == 19 { 20_000 } else { 100 };
        let start = Instant::now();
        match client.call(to, vec![7; length]).timeout(Duration::from_secs(5)).wait() {
            Ok(answer) if answer.len() == length => times.push(start.elapsed()),
            Ok(answer) => {
                eprintln!("an answer of {} bytes for {length}", answer.len());
                failed += 1;
            }
            Err(error) => {
                eprintln!("a call of {length} bytes failed after {:?}: {error}", start.elapsed());
                failed += 1;
            }
        }
    }
    Ok((times, failed))
}

/// Returns the round-trip times of all clients in ascending order, and the number of failed calls.
fn all_calls(to: ServerAddr, time: Duration) -> Result<(Vec<Duration>, u64), Box<dyn Error + Send + Sync>> {
    let clients: Vec<_> = (0..CLIENTS).map(|_| std::thread::spawn(move || calls(to, time))).collect();
    let (mut times, mut failed) = (Vec::new(), 0);
    for client in clients {
        let (of_one, failed_of_one) = client.join().map_err(|_| "a client's thread panicked")??;
        times.extend(of_one);
        failed += failed_of_one;
    }
    times.sort_unstable();
    Ok((times, failed))
}

/// Returns the resident memory of this process in bytes, or 0 if the system does not report it.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// Observed maxima of the bounded quantities.
#[derive(Default)]
struct Most {
    rpcs: AtomicU64,
    peers: AtomicU64,
    incoming_bytes: AtomicU64,
    resident_bytes: AtomicU64,
}

impl Most {
    fn look(&self, host: &Host) {
        let counts = host.metrics().host;
        self.rpcs.fetch_max(counts.open_rpcs, Ordering::Relaxed);
        self.peers.fetch_max(counts.known_peers, Ordering::Relaxed);
        self.incoming_bytes.fetch_max(counts.incoming_bytes, Ordering::Relaxed);
        self.resident_bytes.fetch_max(resident_bytes(), Ordering::Relaxed);
    }

    fn within_bounds(&self) -> bool {
        let bounds = [
            (&self.rpcs, MAX_RPCS.into()),
            (&self.peers, MAX_PEERS.into()),
            (&self.incoming_bytes, MAX_INCOMING_BYTES),
        ];
        bounds.iter().all(|(seen, most): &(_, u64)| seen.load(Ordering::Relaxed) <= *most)
    }
}

fn percentile(ascending: &[Duration], percent: usize) -> Duration {
    ascending.get(ascending.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

fn run(options: Options) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let host = Host::builder().address("127.0.0.1:0".parse()?).configure(|config| {
        config.protocol.max_rpcs = MAX_RPCS;
        config.protocol.max_peers = MAX_PEERS;
        config.protocol.max_incoming_bytes = MAX_INCOMING_BYTES;
    });
    let host = host.bind()?;
    let server = host.server(ServerAddr::DEFAULT_PORT)?;
    let to = ServerAddr::new(host.local_addr(), server.port());
    let (stop, most) = (AtomicBool::new(false), Most::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(mut rpc) = server.recv().timeout(Duration::from_millis(50)).wait() {
                    let request = rpc.take_payload();
                    let _ = rpc.reply(request); // The client may have ended, or may never have existed.
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                most.look(&host);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let result = (|| {
            let quiet = all_calls(to, options.time)?;
            let flooding = scope.spawn(|| flood(host.local_addr(), options, &stop));
            let flooded = all_calls(to, options.time)?;
            stop.store(true, Ordering::Relaxed);
            let sent = flooding.join().map_err(|_| "the flood's thread panicked")??;
            Ok::<_, Box<dyn Error + Send + Sync>>((quiet, flooded, sent))
        })();
        stop.store(true, Ordering::Relaxed);
        let ((quiet, quiet_failed), (flooded, failed), sent) = result?;
        for (name, times, failed) in [("quiet", &quiet, quiet_failed), ("flood", &flooded, failed)] {
            let (median, p99) = (percentile(times, 50), percentile(times, 99));
            println!("{name}: {} calls, {failed} failed, median {median:?}, P99 {p99:?}", times.len());
        }
        let ratio = percentile(&flooded, 99).as_secs_f64() / percentile(&quiet, 99).as_secs_f64().max(1e-9);
        let stats = host.metrics().endpoint;
        println!("P99 in the flood: {ratio:.2} times that without; {sent} forged packets");
        println!(
            "most at a time: {} of {MAX_RPCS} RPCs, {} of {MAX_PEERS} peers, {} of {MAX_INCOMING_BYTES} incoming bytes; {} \
             bytes resident",
            most.rpcs.load(Ordering::Relaxed),
            most.peers.load(Ordering::Relaxed),
            most.incoming_bytes.load(Ordering::Relaxed),
            most.resident_bytes.load(Ordering::Relaxed),
        );
        println!("requests of unproven peers that were evicted: {}", stats.unproven_evicted);
        Ok(most.within_bounds() && failed + quiet_failed == 0)
    })
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("a call failed, or a bound was passed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
