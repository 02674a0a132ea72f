//! Disturbances of the hosts and the link in a soak test.

use std::sync::atomic::Ordering;
use std::time::Duration;

use homa_testkit::namespace::{V4, await_path};
use rand::Rng;
use rand_pcg::Pcg64;

use super::super::attack::{self, FORGERS, Form, NamedAttack, PEERS, Place, at};
use super::audit::{Cause, Window};
use super::ledger::now_ns;
use super::process::{Carrier, Target};
use super::{CLIENT_UDP_PORT, Soak};

/// Duration of each attack before the memory baseline is measured.
const WARM_UP: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub enum Disturbance {
    /// Kills a server process with SIGKILL, and restarts it after this time.
    KillServer { down: Duration },
    /// Kills a client process with SIGKILL, and starts another one.
    KillClient,
    /// Takes down the device at this end of the link for this time.
    Cut { end: usize, lasting: Duration },
    /// Changes the MTU at both ends, one after the other.
    Mtu([u32; 2]),
    /// Sets different MTUs at the two ends for this time, and then the larger one at both ends.
    MtuMismatch { mtus: [u32; 2], lasting: Duration },
}

impl Disturbance {
    /// Returns a random disturbance. All kinds are about equally likely.
    fn at_random(random: &mut Pcg64) -> Disturbance {
        let mut time = |from, to| Duration::from_millis(random.random_range(from..to));
        let (short, long) = (time(0, 1_500), time(1_000, 3_000));
        let mtu = [1_500, 9_000, 1_280][random.random_range(0..3)];
        let other = [1_500, 9_000, 1_280][random.random_range(0..3)];
        match random.random_range(0..10) {
            0..=2 => Disturbance::KillServer { down: short },
            3..=4 => Disturbance::KillClient,
            5 => Disturbance::Cut { end: random.random_range(0..2), lasting: long },
            6..=7 if mtu != other => Disturbance::MtuMismatch { mtus: [mtu, other], lasting: long },
            _ => Disturbance::Mtu([mtu; 2]),
        }
    }
}

impl Soak {
    fn attacks(&self) -> Vec<NamedAttack> {
        let forgers = if self.site.carriers.contains(&Carrier::Raw) { &FORGERS[..] } else { &[] };
        [&PEERS[..], forgers].concat()
    }

    /// Runs each attack once over each form of UDP, so that the server has allocated all buffers that it
    /// retains. Returns the server's memory.
    pub fn warm_up(&mut self) -> u64 {
        for attack in self.attacks() {
            for form in Form::ALL {
                self.beside_attack(attack, form, WARM_UP, |_| {});
                self.await_answers(1);
            }
        }
        std::thread::sleep(WARM_UP);
        self.steady.resident_bytes()
    }

    /// Runs an attack for half of the time, and a few disturbances. Checks that all calls work again
    /// afterwards.
    pub fn round(&mut self, random: &mut Pcg64) {
        let disturbances: Vec<(Duration, Disturbance)> = (0..random.random_range(1..4))
            .map(|_| (Duration::from_millis(random.random_range(100..3_000)), Disturbance::at_random(random)))
            .collect();
        let run = move |soak: &mut Soak| {
            for (pause, disturbance) in disturbances {
                std::thread::sleep(pause);
                soak.disturb(disturbance);
            }
        };
        let attacks = self.attacks();
        let attack = attacks[random.random_range(0..attacks.len())];
        let form = Form::ALL[random.random_range(0..Form::ALL.len())];
        let lasting = Duration::from_millis(random.random_range(1_000..6_000));
        if random.random_range(0..2) == 0 {
            self.beside_attack(attack, form, lasting, run);
        } else {
            run(self);
        }
        self.await_answers(1);
    }

    /// Runs an action during an attack on the steady server.
    pub fn beside_attack(
        &mut self,
        (name, make): NamedAttack,
        form: Form,
        lasting: Duration,
        run: impl FnOnce(&mut Soak),
    ) {
        let carrier = match form {
            Form::Udp => Carrier::Udp,
            Form::LinuxUdp => Carrier::LinuxUdp,
        };
        let client = at(V4[0], form.port(CLIENT_UDP_PORT));
        let place = Place { form, attacked: Target::Steady.address(carrier), client };
        let mut attack = self.namespaces[0].run(move || make(&place));
        let status = std::sync::Arc::clone(&self.status);
        status.attack_begins(name);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                attack::run(&mut *attack, lasting);
                status.attack_ends();
            });
            run(self);
        });
    }

    pub fn disturb(&mut self, disturbance: Disturbance) {
        let begin_ns = now_ns();
        let status = std::sync::Arc::clone(&self.status);
        let cause = match disturbance {
            Disturbance::KillServer { down } => {
                drop(self.killed.take());
                std::thread::sleep(down);
                self.start_server();
                status.server_kills.fetch_add(1, Ordering::Relaxed);
                Some(Cause::Kill)
            }
            Disturbance::KillClient => {
                self.replace_victim();
                status.client_kills.fetch_add(1, Ordering::Relaxed);
                None
            }
            Disturbance::Cut { end, lasting } => {
                self.cut(end, lasting);
                status.cuts.fetch_add(1, Ordering::Relaxed);
                Some(Cause::Cut)
            }
            Disturbance::Mtu(mtus) => {
                self.set_mtus(mtus);
                status.mtus.fetch_add(1, Ordering::Relaxed);
                None
            }
            Disturbance::MtuMismatch { mtus, lasting } => {
                self.set_mtus(mtus);
                std::thread::sleep(lasting);
                let larger = mtus[0].max(mtus[1]);
                self.set_mtus([larger; 2]);
                status.mismatches.fetch_add(1, Ordering::Relaxed);
                Some(Cause::MtuMismatch)
            }
        };
        self.windows.extend(cause.map(|cause| Window { cause, begin_ns, end_ns: now_ns() }));
    }

    fn set_mtus(&self, mtus: [u32; 2]) {
        for (end, mtu) in mtus.into_iter().enumerate() {
            self.namespaces[end].ip(&format!("link set v{end} mtu {mtu}")).expect("an MTU");
        }
    }

    /// Cuts the link, and returns when packets get through in both directions again.
    fn cut(&self, end: usize, lasting: Duration) {
        self.namespaces[end].ip(&format!("link set v{end} down")).expect("a device");
        std::thread::sleep(lasting);
        self.namespaces[end].ip(&format!("link set v{end} up")).expect("a device");
        let [near, far] = &self.namespaces;
        for (from, to, ips) in [(near, far, V4), (far, near, [V4[1], V4[0]])] {
            await_path(from, to, ips).expect("the link is up");
        }
    }
}
