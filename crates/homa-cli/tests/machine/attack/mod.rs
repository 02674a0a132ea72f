//! Runs hostile peers and forged packets alongside an honest client, against a server in a separate process.
//! The guarantees are stated in SECURITY.md.
//!
//! Each attack sends [`RATE`] packets per second, over each [`Form`] of UDP. All honest calls must be
//! answered. The server's memory must stay within a bound and return to its previous level. Durations of
//! honest calls are printed but not checked here: `cargo test -p homa-cli --test machine attack -- --ignored
//! --nocapture` takes longer and prints the table.

mod forged;
mod honest;
mod peer;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use homa::DriverChoice;
use homa::driver::LINUX_UDP_PORT;
use homa_testkit::namespace::{V4, pair};

use super::serve::Serve;
use honest::HonestCalls;

/// Attack packets per second.
const RATE: u32 = 10_000;

/// Address of an attacker that does not conceal its address.
pub const ATTACKER: &str = "10.146.0.3";

/// The forms of Homa over UDP that an attacker can send without privileges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Homa over UDP, with each host's own UDP port.
    Udp,
    /// Linux Homa's UDP encapsulation, with port 54321 at both ends.
    LinuxUdp,
}

impl Form {
    pub const ALL: [Form; 2] = [Form::Udp, Form::LinuxUdp];

    /// Returns the UDP port of a host that would use `port` in the first form.
    pub fn port(self, port: u16) -> u16 {
        match self {
            Form::Udp => port,
            Form::LinuxUdp => LINUX_UDP_PORT,
        }
    }

    pub fn driver(self) -> DriverChoice {
        match self {
            Form::Udp => DriverChoice::Udp,
            Form::LinuxUdp => DriverChoice::LinuxUdp,
        }
    }

    /// Returns the driver's name on the command line.
    fn name(self) -> &'static str {
        match self {
            Form::Udp => "udp",
            Form::LinuxUdp => "linux-udp",
        }
    }
}

/// Additional bytes that the server may hold: the maximum share of one peer, plus retained buffers.
const MEMORY: u64 = 192 << 20;

pub fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port)
}

/// The packets of an attack, sent one at a time. Each attack chooses the addresses of its packets.
pub trait Attack: Send {
    /// Runs before packets are counted, to make an honest exchange if the attack needs one.
    fn begin(&mut self) {}

    /// Sends packet number `n`.
    fn send(&mut self, n: u32);

    /// Returns the number of bytes that the attacked host has sent to the attacker, and the number that it
    /// has received from the attacker.
    fn bytes(&mut self) -> (u64, u64) {
        (0, 0)
    }
}

/// Sends [`RATE`] packets per second for this long.
pub fn run(attack: &mut dyn Attack, lasting: Duration) {
    attack.begin();
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < lasting {
        let due = (begin.elapsed().as_secs_f64() * f64::from(RATE)) as u32;
        while sent < due {
            attack.send(sent);
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// The effects of an attack.
struct Outcome {
    name: &'static str,
    form: Form,
    /// Honest calls while the attack packets were sent elsewhere, and while they were sent to the server.
    control: HonestCalls,
    attacked: HonestCalls,
    /// Resident bytes of the server: before the attack, the maximum during it, and after it.
    memory: [u64; 3],
    /// Bytes that the server sent per byte received from the attacker.
    amplification: f64,
}

impl Outcome {
    fn assert_harmless(&self) {
        let Outcome { attacked, memory: [before, most, after], amplification, .. } = self;
        let name = format!("{} over {}", self.name, self.form.name());
        assert_eq!(
            attacked.failed,
            Vec::<String>::new(),
            "{name}: honest calls that failed, of {}",
            attacked.answered()
        );
        assert!(attacked.answered() > 0, "{name}: nothing was called");
        assert!(*most < before + MEMORY, "{name}: {most} bytes of memory, {before} before");
        assert!(*after < 2 * before + (16 << 20), "{name}: {after} bytes of memory stay, {before} before");
        assert!(*amplification < 4.0, "{name}: {amplification:.1} bytes for each of the attacker's");
    }
}

/// Runs an attack for this long. For comparison, also sends the same packets to a socket that nobody reads.
fn play((name, make): NamedAttack, form: Form, lasting: Duration) -> Option<Outcome> {
    let namespaces = pair(1_500)?;
    namespaces[0].ip(&format!("addr add {ATTACKER}/24 dev v0")).expect("a second address");
    let server_address = at(V4[1], form.port(14_600));
    let words = format!("serve --protocol homa --driver {} --bind {server_address}", form.name());
    let (server, _) = Serve::start(&namespaces[1], &words);
    let sink = namespaces[1].run(|| UdpSocket::bind(at(V4[1], 0)).expect("a socket"));
    let elsewhere = sink.local_addr().expect("bound");

    let client = honest::Client::new(&namespaces[0], form, server_address);
    let beside = |to: SocketAddr| {
        let place = Place { form, attacked: to, client: client.address() };
        let mut attack = namespaces[0].run(move || make(&place));
        std::thread::scope(|scope| {
            let attacker = scope.spawn(|| {
                run(&mut *attack, lasting);
                attack.bytes()
            });
            let honest = client.call_for(lasting);
            (honest, attacker.join().expect("the attacker attacks"))
        })
    };
    // Buffers and threads must exist before the memory baseline is measured.
    client.call_for(lasting / 4);
    let (control, _) = beside(elsewhere);
    let before = server.resident_bytes();
    let (attacked, (to_attacker, from_attacker)) = beside(server_address);
    let most = server.resident_bytes();
    let end = Instant::now() + Duration::from_secs(10);
    let mut after = most;
    while after >= 2 * before + (16 << 20) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        after = server.resident_bytes();
    }
    let amplification = to_attacker as f64 / from_attacker.max(1) as f64;
    Some(Outcome { name, form, control, attacked, memory: [before, most, after], amplification })
}

/// The addresses involved in an attack.
pub struct Place {
    pub form: Form,
    pub attacked: SocketAddr,
    /// The honest client's host.
    pub client: SocketAddr,
}

/// An attack with its name.
pub type NamedAttack = (&'static str, fn(&Place) -> Box<dyn Attack>);

pub const PEERS: [NamedAttack; 8] = [
    ("far-first-packets", |place| peer::attack(place, peer::far_first_packets)),
    ("crawling-messages", |place| peer::proven_attack(place, peer::crawling_messages)),
    ("own-acknowledgements", |place| peer::attack(place, peer::own_acknowledgements)),
    ("resends", |place| peer::proven_attack(place, peer::resends)),
    ("half-open-short", |place| peer::attack(place, peer::half_open_short)),
    ("many-large-at-once", |place| peer::attack(place, peer::many_large_at_once)),
    ("scattered-ids", |place| peer::attack(place, peer::scattered_ids)),
    ("strangers-need-ack", |place| peer::attack(place, peer::need_acks)),
];

pub const FORGERS: [NamedAttack; 4] = [
    ("forged-restart-of-client", |place| forged::attack(place, forged::restart_of_client)),
    ("forged-restart-of-server", |place| forged::attack(place, forged::restart_of_server)),
    ("forged-narrow-path", |place| forged::attack(place, forged::narrow_path)),
    ("forged-unreachable", |place| forged::attack(place, forged::unreachable)),
];

fn assert_all_harmless(attacks: &[NamedAttack], form: Form) {
    let play = |&attack: &NamedAttack| play(attack, form, Duration::from_millis(400));
    let outcomes: Vec<Outcome> = attacks.iter().map_while(play).collect();
    outcomes.iter().for_each(Outcome::assert_harmless);
}

#[test]
fn a_hostile_peer_harms_no_other() {
    assert_all_harmless(&PEERS, Form::Udp);
}

#[test]
fn a_hostile_peer_harms_no_other_in_linux_homas_udp_form() {
    assert_all_harmless(&PEERS, Form::LinuxUdp);
}

#[test]
fn forged_packets_cost_no_more_than_lost_ones() {
    assert_all_harmless(&FORGERS, Form::Udp);
}

#[test]
fn forged_packets_cost_no_more_than_lost_ones_in_linux_homas_udp_form() {
    assert_all_harmless(&FORGERS, Form::LinuxUdp);
}

#[test]
#[ignore = "takes four minutes and prints figures"]
fn attack_figures() {
    let attacks = [&PEERS[..], &FORGERS].concat();
    let mut outcomes = Vec::new();
    println!(
        "{:36} {:>7} {:>7} {:>9} {:>9} {:>6} {:>8} {:>8} {:>8} {:>6}",
        "attack", "calls", "failed", "P99 us", "attacked", "ratio", "before", "most", "after", "ampl."
    );
    for (form, attack) in Form::ALL.into_iter().flat_map(|form| attacks.iter().map(move |&a| (form, a))) {
        let Some(outcome) = play(attack, form, Duration::from_secs(4)) else { return };
        let name = format!("{}, {}", attack.0, form.name());
        let [control, attacked] = [&outcome.control, &outcome.attacked].map(HonestCalls::short_p99_us);
        let [before, most, after] = outcome.memory.map(|bytes| bytes >> 20);
        println!(
            "{name:36} {:>7} {:>7} {control:>9.0} {attacked:>9.0} {:>6.2} {before:>5} MB {most:>5} MB {after:>5} MB {:>6.2}",
            outcome.attacked.answered(),
            outcome.attacked.failed.len(),
            attacked / control,
            outcome.amplification
        );
        outcomes.push(outcome);
    }
    outcomes.iter().for_each(Outcome::assert_harmless);
}
