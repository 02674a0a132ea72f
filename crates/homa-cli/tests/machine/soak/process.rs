//! The processes of a soak test: this test program, started again as a server or as a client.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homa::driver::LINUX_UDP_PORT;
use homa::error::ReplyError;
use homa::{Client, DriverChoice, Host, Request, Server, ServerAddr};
use homa_testkit::namespace::V4;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::super::attack::at;
use super::ledger::{Failure, Ledger, Outcome, now_ns};
use super::message::{self, CallId, HEADER};

/// The environment variable with the role of a process.
const ROLE: &str = "SOAK_ROLE";

/// The glibc variable that sets the minimum size of mapped allocations, which are returned to the system when
/// they are freed.
///
/// Without it, glibc raises that size to the largest buffer freed so far. Freed buffers would then stay
/// resident in its arenas, in an amount that depends on their order, and would obscure how much memory the
/// host itself uses.
const MMAP_THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";

/// A call without an outcome after this time counts as hung, because a call to a silent peer ends after a
/// second.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Delay with which a thread may be woken on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

const SERVER_THREADS: usize = 2;

/// Number of RESENDs after which a silent server counts as dead, which takes about two seconds instead of
/// half a second. If processes share a socket, a call passes through four of them, each of which may wait for
/// a processor.
const MAX_RESENDS: u32 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrier {
    Udp,
    Raw,
    LinuxUdp,
}

impl Carrier {
    /// Returns whether all processes at an address are a single host to their peers (HOST-1).
    pub fn shares_host(self) -> bool {
        self != Carrier::Udp
    }
}

/// The two server processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A server that runs as long as the soak test.
    Steady,
    /// A server that is killed and restarted.
    Killed,
}

impl Target {
    /// HOST-1: over raw IP and with Linux Homa's UDP encapsulation, the Homa ports belong to one host.
    pub fn homa_port(self, carrier: Carrier) -> u16 {
        match (carrier, self) {
            (Carrier::Udp | Carrier::LinuxUdp, Target::Steady) => 99,
            (Carrier::Udp | Carrier::LinuxUdp, Target::Killed) => 98,
            (Carrier::Raw, Target::Steady) => 97,
            (Carrier::Raw, Target::Killed) => 96,
        }
    }

    pub fn address(self, carrier: Carrier) -> SocketAddr {
        match (carrier, self) {
            (Carrier::Raw, _) => at(V4[1], 0),
            (Carrier::LinuxUdp, _) => at(V4[1], LINUX_UDP_PORT),
            (Carrier::Udp, Target::Steady) => at(V4[1], 14_600),
            (Carrier::Udp, Target::Killed) => at(V4[1], 14_601),
        }
    }
}

/// A sequence of calls through its own client port.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stream {
    pub number: u32,
    pub carrier: Carrier,
    pub target: Target,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    Server { target: Target, life: u8 },
    Client { udp_port: u16, streams: Vec<Stream>, seed: u64 },
}

/// The configuration of all processes of a soak test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Site {
    pub directory: PathBuf,
    pub carriers: Vec<Carrier>,
}

impl Site {
    /// Returns the command that runs a process.
    pub fn command(&self, role: &Role) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command
            .args(["soak::process::a_process_of_a_soak", "--exact", "--ignored", "--nocapture"])
            .env(ROLE, serde_json::to_string(&(self, role)).expect("JSON"))
            .stdin(Stdio::piped());
        if std::env::var_os(MMAP_THRESHOLD).is_none() {
            command.env(MMAP_THRESHOLD, "131072");
        }
        command
    }

    pub fn host(&self, carrier: Carrier, bind: SocketAddr) -> Host {
        let driver = match carrier {
            Carrier::Udp => DriverChoice::Udp,
            Carrier::Raw => DriverChoice::Raw,
            Carrier::LinuxUdp => DriverChoice::LinuxUdp,
        };
        let segment_dir = self.directory.join("segments");
        Host::builder()
            .driver(driver)
            .address(bind)
            .segment_dir(segment_dir)
            .configure(|config| config.protocol.max_resends = MAX_RESENDS)
            .bind()
            .expect("a host")
    }
}

#[test]
#[ignore = "a process that the soak starts"]
fn a_process_of_a_soak() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (site, role): (Site, Role) = serde_json::from_str(&role).expect("a role");
    match role {
        Role::Server { target, life } => serve(&site, target, life),
        Role::Client { udp_port, streams, seed } => call(&site, udp_port, &streams, seed),
    }
}

/// Prints that the process is ready, and waits until its parent closes standard input or exits.
fn await_end() {
    println!("\nready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn serve(site: &Site, target: Target, life: u8) {
    let ledger = Arc::new(Ledger::open(&site.directory));
    let refused = Arc::new(Mutex::new(BTreeMap::new()));
    let hosts: Vec<(Carrier, Host)> =
        site.carriers.iter().map(|&carrier| (carrier, site.host(carrier, target.address(carrier)))).collect();
    for (carrier, host) in &hosts {
        let server = host.server(target.homa_port(*carrier)).expect("a server port");
        for _ in 0..SERVER_THREADS {
            let (server, ledger, refused) = (server.clone(), Arc::clone(&ledger), Arc::clone(&refused));
            std::thread::spawn(move || answer_all(&server, &ledger, life, &refused));
        }
    }
    await_end();
    for (kind, count) in &*refused.lock().expect("no thread panicked") {
        println!("reply refused: {kind} {count}");
    }
    // The server threads end together with the process.
    std::process::exit(0);
}

fn answer_all(server: &Server, ledger: &Ledger, life: u8, refused: &Mutex<BTreeMap<&'static str, u64>>) {
    while let Ok(rpc) = server.recv().wait() {
        if let Err(error) = answer(rpc, ledger, life) {
            *refused.lock().expect("no thread panicked").entry(name(&error)).or_default() += 1;
        }
    }
}

fn answer(mut rpc: Request, ledger: &Ledger, life: u8) -> Result<(), ReplyError> {
    let request = rpc.take_payload();
    let Some(parsed) = message::parse(&request) else { return rpc.reply(request) };
    ledger.note_execution(parsed.id, life, parsed.right);
    rpc.reply(message::response(parsed.id, &request, parsed.response_length))
}

fn name(error: &ReplyError) -> &'static str {
    match error {
        ReplyError::ClientGone { .. } => "client gone",
        ReplyError::LimitReached { .. } => "limit reached",
        ReplyError::EmptyMessage | ReplyError::MessageTooLarge { .. } => "bad length",
        ReplyError::Closed => "closed",
        _ => "other",
    }
}

fn call(site: &Site, udp_port: u16, streams: &[Stream], seed: u64) {
    let ledger = Ledger::open(&site.directory);
    let hosts: Vec<(Carrier, Host)> = site
        .carriers
        .iter()
        .map(|&carrier| {
            let port = if carrier == Carrier::Udp { udp_port } else { 0 };
            (carrier, site.host(carrier, at(V4[0], port)))
        })
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for stream in streams {
            let (_, host) = hosts.iter().find(|(carrier, _)| *carrier == stream.carrier).expect("a host");
            let client = host.client().expect("a client port");
            let (ledger, stop) = (&ledger, &stop);
            scope.spawn(move || call_until(stop, *stream, &client, ledger, seed));
        }
        await_end();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Returns a random length of a request or response, from 1 to [`message::LARGEST`] bytes inclusive. Half of
/// the lengths are short.
fn length(random: &mut Pcg64) -> usize {
    match random.random_range(0..20) {
        0 => 1,
        1..=10 => random.random_range(1..300),
        11..=14 => random.random_range(300..3_000),
        15..=17 => random.random_range(3_000..30_000),
        18 => random.random_range(30_000..200_000),
        _ => random.random_range(200_000..=message::LARGEST),
    }
}

fn call_until(stop: &AtomicBool, stream: Stream, client: &Client, ledger: &Ledger, seed: u64) {
    let mut random = Pcg64::seed_from_u64(seed ^ u64::from(stream.number));
    let to = ServerAddr::new(stream.target.address(stream.carrier), stream.target.homa_port(stream.carrier));
    let ids = (0..).map(|number| CallId { stream: stream.number, number });
    for id in ids.take_while(|_| !stop.load(Ordering::Relaxed)) {
        let (request_bytes, response_bytes) = (length(&mut random), length(&mut random));
        let request = message::request(id, request_bytes, response_bytes);
        let right = message::response(id, &request, response_bytes);
        let mut outcome = Outcome::begun(request_bytes >= HEADER);
        ledger.note(id, outcome);
        let begin_ns = now_ns();
        let result = client.call(to, request).timeout(DEADLINE).wait();
        let end_ns = now_ns();
        outcome = match &result {
            Ok(response) => outcome.answered(*response == right),
            Err(error) => outcome.failed(error),
        };
        if u128::from(end_ns - begin_ns) > (DEADLINE + SLACK).as_nanos() {
            outcome = outcome.late();
        }
        if result.is_err() {
            ledger.note_failure(&Failure { id, outcome, begin_ns, end_ns, request_bytes, response_bytes });
        }
        ledger.note(id, outcome);
        // The pauses leave processor time for attackers and for other tests.
        std::thread::sleep(Duration::from_micros(random.random_range(500..4_000)));
    }
}
