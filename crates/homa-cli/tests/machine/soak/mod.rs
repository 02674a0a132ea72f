//! Makes calls while servers and clients are killed, links are cut, MTUs change, and attacks run, in random
//! combinations.
//!
//! No call may be lost, executed twice, answered wrongly, or hung. A call may fail only while its stream is
//! disturbed. Each response must have the right bytes, a server must execute a request at most once, and each
//! call must end. The server's memory must not grow. The long test is run by
//!
//! ```text
//! cargo test --release -p homa-cli --test machine soak -- --ignored --nocapture
//! ```
//!
//! It takes `SOAK_SECONDS` (1800 by default). Its disturbances are derived from `SOAK_SEED`, which is
//! printed.

mod audit;
mod child;
mod disturb;
mod ledger;
mod message;
mod process;
mod report;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use homa_testkit::Scratch;
use homa_testkit::namespace::{Namespace, pair};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::attack::{ATTACKER, Form, PEERS};
use audit::{Audit, AuditedStream, Window};
use child::Process;
use disturb::Disturbance;
use ledger::{ANSWERED, Ledger};
use process::{Carrier, DEADLINE, Role, Site, Stream, Target};
use report::Status;

/// The UDP port of the client that is never killed. Forgers know this port.
const CLIENT_UDP_PORT: u16 = 15_000;

/// Time limit for each stream to get responses again after the last disturbance.
const RECOVERY: Duration = Duration::from_secs(60);

/// Bytes of memory that the server may use beyond twice its memory after the warm-up.
const MEMORY: u64 = 16 << 20;

pub struct Soak {
    namespaces: [Namespace; 2],
    site: Site,
    ledger: Ledger,
    status: Arc<Status>,
    seed: u64,
    steady: Process,
    killed: Option<Process>,
    life: u8,
    client: Process,
    victim: Option<Process>,
    streams: Vec<AuditedStream>,
    windows: Vec<Window>,
    /// The directory is removed after all processes have ended.
    _scratch: Scratch,
}

impl Soak {
    /// Starts the processes. Returns `None`, and prints the reason, if a required privilege or tool is
    /// missing.
    fn start(seed: u64) -> Option<Soak> {
        let namespaces = pair(1_500)?;
        namespaces[0].ip(&format!("addr add {ATTACKER}/24 dev v0")).expect("a second address");
        let scratch = Scratch::new("soak");
        let mut carriers = vec![Carrier::Udp, Carrier::LinuxUdp];
        carriers.extend(raw_ip(&namespaces[0]).then_some(Carrier::Raw));
        let site = Site { directory: scratch.0.clone(), carriers };
        let ledger = Ledger::open(&site.directory);
        let server = |target, life| Process::start(&namespaces[1], &site, &Role::Server { target, life });
        let (steady, killed) = (server(Target::Steady, 0), server(Target::Killed, 0));
        let streams = streams(&site, 0, 2);
        let role = Role::Client { udp_port: CLIENT_UDP_PORT, streams: streams.clone(), seed };
        let client = Process::start(&namespaces[0], &site, &role);
        let status = Arc::new(Status::new(streams.len() as u32, steady.id()));
        let streams = streams.into_iter().map(|stream| AuditedStream { stream, killed: false }).collect();
        let mut soak = Soak {
            namespaces,
            site,
            ledger,
            status,
            seed,
            steady,
            killed: Some(killed),
            life: 0,
            client,
            victim: None,
            streams,
            windows: Vec::new(),
            _scratch: scratch,
        };
        soak.start_victim();
        Some(soak)
    }

    fn start_server(&mut self) {
        self.life = self.life.wrapping_add(1);
        let role = Role::Server { target: Target::Killed, life: self.life };
        self.killed = Some(Process::start(&self.namespaces[1], &self.site, &role));
    }

    fn start_victim(&mut self) {
        let streams = streams(&self.site, self.streams.len() as u32, 1);
        self.streams.extend(streams.iter().map(|&stream| AuditedStream { stream, killed: false }));
        let role = Role::Client { udp_port: 0, streams, seed: self.seed };
        self.victim = Some(Process::start(&self.namespaces[0], &self.site, &role));
        self.status.streams.store(self.streams.len() as u32, Ordering::Relaxed);
    }

    /// Kills the client that may be killed, and starts a new one.
    fn replace_victim(&mut self) {
        drop(self.victim.take());
        let number = self.streams.len() - self.site.carriers.len() * TARGETS.len();
        self.streams[number..].iter_mut().for_each(|streamed| streamed.killed = true);
        self.start_victim();
    }

    /// Waits until each stream has received this many more responses. Panics if a stream receives none for a
    /// long time.
    fn await_answers(&self, count: usize) {
        let end = Instant::now() + RECOVERY;
        for AuditedStream { stream, .. } in self.streams.iter().filter(|streamed| !streamed.killed) {
            let mut from = 0;
            // Only responses after this point count.
            loop {
                let outcomes = self.ledger.outcomes(stream.number, from);
                if outcomes.is_empty() {
                    break;
                }
                from += outcomes.len() as u32;
            }
            let answered = || {
                let outcomes = self.ledger.outcomes(stream.number, from);
                outcomes.iter().filter(|outcome| outcome.code() == ANSWERED).count()
            };
            while answered() < count {
                assert!(
                    Instant::now() < end,
                    "calls do not work again: {stream:?} had no {count} answers in {RECOVERY:?}"
                );
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Ends all calls and processes. Returns the audit of the ledger, the server's memory at the end, and its
    /// final output.
    fn end(mut self, idle: Duration, warm: u64) -> (Audit, u64, Vec<String>) {
        self.await_answers(2);
        let client_end = DEADLINE * 3;
        self.client.finish(client_end);
        self.victim.take().expect("it runs").finish(client_end);
        let end = Instant::now() + idle;
        let mut resident = self.steady.resident_bytes();
        while Instant::now() < end && (idle > Duration::from_secs(10) || resident >= 2 * warm + MEMORY) {
            std::thread::sleep(Duration::from_millis(100));
            resident = self.steady.resident_bytes();
        }
        let said = self.steady.finish(RECOVERY);
        self.killed.take().expect("it runs").finish(RECOVERY);
        let failures = ledger::failures(&self.site.directory);
        (Audit::of(&self.ledger, &self.streams, &failures, &self.windows), resident, said)
    }
}

const TARGETS: [Target; 2] = [Target::Steady, Target::Killed];

/// Creates this many streams for each carrier and server.
fn streams(site: &Site, first: u32, each: usize) -> Vec<Stream> {
    let ways = site.carriers.iter().flat_map(|&carrier| TARGETS.map(|target| (carrier, target)));
    let ways = ways.flat_map(|way| std::iter::repeat_n(way, each));
    (first..).zip(ways).map(|(number, (carrier, target))| Stream { number, carrier, target }).collect()
}

/// Returns whether raw IP is available. If it is not, prints which part is skipped.
fn raw_ip(namespace: &Namespace) -> bool {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    match namespace.run(|| socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).map(drop)) {
        Ok(()) => true,
        Err(error) => {
            homa_testkit::skip(format_args!("calls over raw IP and forged packets: {error}"));
            false
        }
    }
}

#[test]
fn calls_survive_a_kill_a_cut_an_mtu_change_and_an_attack() {
    let Some(mut soak) = Soak::start(1) else { return };
    soak.await_answers(5);
    let warm = soak.steady.resident_bytes();
    for disturbance in [
        Disturbance::KillServer { down: Duration::from_millis(50) },
        Disturbance::KillClient,
        Disturbance::Cut { end: 0, lasting: Duration::from_millis(800) },
        Disturbance::Mtu([9_000, 9_000]),
        Disturbance::MtuMismatch { mtus: [1_500, 1_280], lasting: Duration::from_millis(300) },
    ] {
        soak.disturb(disturbance);
        soak.await_answers(1);
    }
    // Attacks with forged packets need raw IP.
    for form in Form::ALL {
        soak.beside_attack(PEERS[0], form, Duration::from_millis(400), |_| {});
    }
    let (audit, resident, _) = soak.end(Duration::from_secs(10), warm);
    println!("{audit}");
    audit.assert_clean();
    assert!(resident < 2 * warm + MEMORY, "{resident} bytes of memory stay, {warm} before");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number: use digits")))
}

#[test]
#[ignore = "takes half an hour: SOAK_SECONDS, and SOAK_SEED for another course"]
fn a_long_soak_loses_doubles_and_hangs_nothing() {
    let lasting = Duration::from_secs(number("SOAK_SECONDS").unwrap_or(1_800));
    let seed = number("SOAK_SEED").unwrap_or_else(ledger::now_ns);
    println!("soak of {lasting:?}: replay its disturbances with SOAK_SEED={seed}");
    let Some(mut soak) = Soak::start(seed) else { return };
    let reporter = report::start(&soak.status, &soak.site.directory);
    let begin = Instant::now();
    let mut random = Pcg64::seed_from_u64(seed);
    soak.await_answers(50);
    let fresh = soak.steady.resident_bytes();
    let warm = soak.warm_up();
    while begin.elapsed() < lasting {
        soak.round(&mut random);
    }
    let (status, ran) = (Arc::clone(&soak.status), begin.elapsed());
    let (audit, resident, said) = soak.end(Duration::from_secs(15), warm);
    let most = reporter.end();
    println!("\nsoak of {:.0} s with SOAK_SEED={seed}", ran.as_secs_f64());
    print!("{audit}{status}");
    let memory = [fresh, warm, most, resident].map(|bytes| bytes as f64 / f64::from(1 << 20));
    let [fresh_mb, warm_mb, most_mb, end_mb] = memory;
    println!(
        "{:<36} {fresh_mb:.1} MB at first, {warm_mb:.1} MB after each attack once, {most_mb:.1} MB at most, \
         {end_mb:.1} MB at the end",
        "RSS of the server"
    );
    said.iter().filter(|line| line.starts_with("reply refused")).for_each(|line| println!("{line}"));
    audit.assert_clean();
    assert!(resident < 2 * warm + MEMORY, "{resident} bytes of memory stay, {warm} after warm-up");
}
