//! Measures how one server scales over several endpoints: 8 threads answer 3 clients with 20 threads each,
//! all in this process and over loopback. For each number of endpoints (the same on both sides), prints RPCs
//! per second, times, and the cost of the server's locks per RPC. The rounds for different numbers of
//! endpoints are interleaved. The values are medians, each with its range.
//!
//! ```text
//! cargo run --release -p homa --example scale -- [SECONDS [ROUNDS [POLL_US]]]
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::metrics::Metrics;
use homa::{Bytes, Host, Server, ServerAddr};

const SERVER_THREADS: usize = 8;
const CLIENTS: usize = 3;
const CLIENT_THREADS: usize = 20;
const ENDPOINTS: [usize; 3] = [1, 2, 4];

/// Lengths of echoed messages, each with its percentage of the calls.
type Mix = &'static [(u32, usize)];
const SHORT: Mix = &[(100, 100)];
const MIXED: Mix = &[(90, 100), (9, 10_000), (1, 300_000)];

/// The results of one round.
struct Round {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    /// Lock acquisitions of the server per RPC.
    acquisitions: f64,
    misses: f64,
    wait_ns: f64,
    mail_acquisitions: f64,
    mail_misses: f64,
    mail_wait_ns: f64,
    misdirected: f64,
    help_calls: f64,
    taken_elsewhere: f64,
}

fn host(endpoints: usize, poll: Duration) -> Result<Host, Box<dyn Error>> {
    let bind = SocketAddr::from(([127, 0, 0, 1], 0));
    Ok(Host::builder().address(bind).endpoints(endpoints).poll(poll).bind()?)
}

fn answer(server: &Server) {
    while let Ok(mut rpc) = server.recv().wait() {
        let request = rpc.take_payload();
        // A client may abort at any time.
        let _ = rpc.reply(request);
    }
}

/// Makes calls until `over` is set; returns the time that each call took, in nanoseconds.
fn call(host: &Host, to: ServerAddr, mix: Mix, seed: u64, over: &AtomicBool) -> Vec<u64> {
    let Ok(client) = host.client() else { return Vec::new() };
    let requests: Vec<(u32, Bytes)> = mix.iter().map(|&(part, len)| (part, vec![7; len].into())).collect();
    let mut times = Vec::new();
    let mut state = seed;
    while !over.load(Ordering::Relaxed) {
        // Knuth's linear congruential generator, whose high bits are random enough for this choice.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut draw = (state >> 33) as u32 % 100;
        let chosen = requests.iter().find(|(part, _)| {
            let here = draw < *part;
            draw = draw.saturating_sub(*part);
            here
        });
        let Some((_, request)) = chosen else { continue };
        let start = Instant::now();
        if client.call(to, request.clone()).wait().is_ok() {
            times.push(start.elapsed().as_nanos() as u64);
        }
    }
    times
}

fn run(endpoints: usize, mix: Mix, length: Duration, poll: Duration) -> Result<Round, Box<dyn Error>> {
    let server_host = host(endpoints, poll)?;
    let server = server_host.server(99)?;
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let hosts: Vec<Host> = (0..CLIENTS).map(|_| host(endpoints, poll)).collect::<Result<_, _>>()?;
    let over = AtomicBool::new(false);
    let (mut times, elapsed) = thread::scope(|scope| {
        let servers: Vec<_> = (0..SERVER_THREADS).map(|_| scope.spawn(|| answer(&server))).collect();
        let start = Instant::now();
        let (hosts, over) = (&hosts, &over);
        let callers: Vec<_> = (0..CLIENTS * CLIENT_THREADS)
            .map(|n| scope.spawn(move || call(&hosts[n % CLIENTS], to, mix, n as u64, over)))
            .collect();
        thread::sleep(length);
        over.store(true, Ordering::Relaxed);
        let times: Vec<u64> =
            callers.into_iter().flat_map(|caller| caller.join().unwrap_or_default()).collect();
        let elapsed = start.elapsed();
        let metrics = server_host.metrics();
        server_host.shutdown(Duration::from_secs(1));
        for server in servers {
            let _ = server.join();
        }
        ((times, metrics), elapsed)
    });
    times.0.sort_unstable();
    let (times, metrics) = times;
    Ok(summary(&times, &metrics, elapsed))
}

fn summary(times: &[u64], metrics: &Metrics, elapsed: Duration) -> Round {
    let count = times.len().max(1) as f64;
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).map_or(0.0, |ns| *ns as f64 / 1e3);
    let host = &metrics.host;
    let per_rpc = |number: u64| number as f64 / count;
    Round {
        rate: count / elapsed.as_secs_f64(),
        p50_us: at(0.5),
        p99_us: at(0.99),
        acquisitions: per_rpc(host.lock_acquisitions),
        misses: per_rpc(host.lock_misses),
        wait_ns: per_rpc(host.lock_wait_ns),
        mail_acquisitions: per_rpc(host.mail_lock_acquisitions),
        mail_misses: per_rpc(host.mail_lock_misses),
        mail_wait_ns: per_rpc(host.mail_lock_wait_ns),
        misdirected: per_rpc(host.misdirected_packets),
        help_calls: per_rpc(host.help_calls),
        taken_elsewhere: per_rpc(host.taken_elsewhere),
    }
}

/// Formats the median of a value over all rounds, with its range.
fn show(rounds: &[Round], of: impl Fn(&Round) -> f64) -> String {
    let mut numbers: Vec<f64> = rounds.iter().map(of).collect();
    numbers.sort_by(f64::total_cmp);
    let digits = if numbers[numbers.len() / 2] >= 100.0 { 0 } else { 3 };
    let number = |at: usize| format!("{:.*}", digits, numbers[at]);
    format!("{} ({}-{})", number(numbers.len() / 2), number(0), number(numbers.len() - 1))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: f64| args.next().map_or(Ok(default), |text| text.parse());
    let (seconds, rounds, poll_us) = (next(1.0)?, next(3.0)? as usize, next(50.0)? as u64);
    let (length, poll) = (Duration::from_secs_f64(seconds), Duration::from_micros(poll_us));
    for (name, mix) in [("100 B", SHORT), ("90 % 100 B, 9 % 10 kB, 1 % 300 kB", MIXED)] {
        let mut results: [Vec<Round>; ENDPOINTS.len()] = Default::default();
        for _ in 0..rounds.max(1) {
            for (results, endpoints) in results.iter_mut().zip(ENDPOINTS) {
                results.push(run(endpoints, mix, length, poll)?);
            }
        }
        println!(
            "echo of {name}: {SERVER_THREADS} server threads, {CLIENTS} x {CLIENT_THREADS} client threads"
        );
        for (rounds, endpoints) in results.iter().zip(ENDPOINTS) {
            println!("  endpoints                    {endpoints}");
            println!("    RPCs/s                     {}", show(rounds, |round| round.rate));
            println!("    P50 us                     {}", show(rounds, |round| round.p50_us));
            println!("    P99 us                     {}", show(rounds, |round| round.p99_us));
            println!("    lock acquisitions per RPC  {}", show(rounds, |round| round.acquisitions));
            println!("    lock misses per RPC        {}", show(rounds, |round| round.misses));
            println!("    lock wait ns per RPC       {}", show(rounds, |round| round.wait_ns));
            println!("    mail lock acquisitions     {}", show(rounds, |round| round.mail_acquisitions));
            println!("    mail lock misses           {}", show(rounds, |round| round.mail_misses));
            println!("    mail lock wait ns          {}", show(rounds, |round| round.mail_wait_ns));
            println!("    misdirected per RPC        {}", show(rounds, |round| round.misdirected));
            println!("    calls for help per RPC     {}", show(rounds, |round| round.help_calls));
            println!("    taken elsewhere per RPC    {}", show(rounds, |round| round.taken_elsewhere));
        }
    }
    Ok(())
}
