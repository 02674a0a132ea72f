//! A cluster whose hosts have cores, for which packets and messages compete.
//!
//! The transport and the calls to it are the same as without cores. The host's [`Machine`] decides when the
//! calls happen: a packet reaches the transport when a core has done the protocol's work for it, and threads
//! send and receive the application's messages.

use homa_proto::Time;
use homa_steer::hash::Flow;
use homa_steer::{Core, HomaPacket, Packet, PacketKind};

use super::config::ClusterConfig;
use super::event::HostEvent;
use super::messages::Message;
use super::run::Cluster;
use crate::cores::{Action, CoreCounts, CoresConfig, Job, JobKind, Machine, Timer};
use crate::fabric::{Event, host_address};
use crate::packet::PacketInfo;
use crate::payload::mix;
use crate::transport::interface::{Ctx, Transport};

/// Homa's IP protocol number. The hashes of the device and of the kernel cover the addresses and this number,
/// but no ports.
const HOMA: u8 = 146;
/// Seed of the device's hash, which makes it independent of the kernel's hash.
const DEVICE: u64 = 0xde71;

/// The cores of all hosts.
pub(super) struct OnCores {
    machines: Vec<Machine>,
    /// Hashes of the device and of the kernel for each pair of receiver and sender.
    hashes: Vec<[u32; 2]>,
    /// Hosts whose machines may have actions to perform.
    touched: Vec<u32>,
    /// Host and core that are processing the current packet.
    at: Option<(u32, Core)>,
    phase: CountPhase,
}

enum CountPhase {
    Before,
    Running,
    Finished(CoreCounts),
}

impl OnCores {
    pub(super) fn new(cores: &CoresConfig, config: &ClusterConfig) -> OnCores {
        let hosts = config.hosts;
        let seed = |purpose: u64, host: usize| mix(mix(config.seed ^ purpose) ^ host as u64);
        let hash = |from: usize, to: usize| {
            let [source, destination] = [from, to].map(|host| host_address(host).ip());
            let flow = Flow { source, destination, protocol: HOMA, ports: [0; 2] };
            [flow.hash(seed(DEVICE, to) as u32), flow.hash(config.seed as u32)]
        };
        OnCores {
            machines: (0..hosts).map(|host| Machine::new(cores, seed(0, host))).collect(),
            hashes: (0..hosts).flat_map(|to| (0..hosts).map(move |from| hash(from, to))).collect(),
            touched: Vec::new(),
            at: None,
            phase: CountPhase::Before,
        }
    }

    fn machine(&mut self, host: u32) -> &mut Machine {
        if self.touched.last() != Some(&host) {
            self.touched.push(host);
        }
        &mut self.machines[host as usize]
    }

    fn hashes(&self, from: u32, to: u32) -> [u32; 2] {
        self.hashes[to as usize * self.machines.len() + from as usize]
    }

    /// Handles the arrival of a packet at a host's device.
    pub(super) fn arrive(
        &mut self,
        now: Time,
        number: u32,
        info: &PacketInfo,
        ports: [u16; 2],
        homa: Option<HomaPacket>,
    ) {
        let [device_hash, flow_hash] = self.hashes(info.from, info.to);
        let machine = self.machine(info.to);
        let packet = Packet {
            arrival: machine.arrival_core(device_hash),
            flow_hash,
            source: host_address(info.from as usize).ip(),
            ports,
            homa,
            bytes: info.wire_len,
            ..Packet::default()
        };
        machine.arrive(now, number, packet);
    }

    pub(super) fn elapsed(&mut self, now: Time, host: u32, timer: Timer) {
        self.machine(host).elapsed(now, timer);
    }

    /// Handles a packet on its way to the card of a host. Data takes time of the thread that sends its
    /// message. Any other packet takes time of the core that processed the packet being answered.
    pub(super) fn sent(&mut self, now: Time, host: u32, homa: Option<HomaPacket>) {
        if homa.is_some_and(|homa| homa.kind == PacketKind::Data) {
            return;
        }
        let core = self.at.filter(|(at, _)| *at == host).map(|(_, core)| core);
        self.machine(host).sent(now, core);
    }

    /// Gives a thread the work for a message.
    pub(super) fn submit(&mut self, now: Time, kind: JobKind, number: u32, message: &Message) {
        let (host, other) = match kind {
            JobKind::Request => (message.to, message.from),
            JobKind::Send | JobKind::Response => (message.from, message.to),
        };
        let [_, flow_hash] = self.hashes(other, host);
        let by = match kind {
            JobKind::Send => None,
            JobKind::Request | JobKind::Response => self.at.map_or(Some(0), |(_, core)| Some(core)),
        };
        let job = Job { kind, message: number, bytes: message.length, flow_hash };
        self.machine(host).submit(now, job, by);
    }

    /// Handles a complete request at its server, or a complete response at its client.
    pub(super) fn delivered(&mut self, now: Time, number: u32, message: &mut Message) {
        let kind = if message.is_at_server { JobKind::Response } else { JobKind::Request };
        message.is_at_server = true;
        self.submit(now, kind, number, message);
    }

    /// Starts counting at the first sample, and stops at the last.
    pub(super) fn sample(&mut self, now: Time, measured_until: Time) {
        match self.phase {
            CountPhase::Before => {
                self.machines.iter_mut().for_each(|machine| machine.count_from(now));
                self.phase = CountPhase::Running;
            }
            CountPhase::Running if now >= measured_until => self.phase = CountPhase::Finished(self.sum(now)),
            CountPhase::Running | CountPhase::Finished(_) => {}
        }
    }

    fn sum(&self, now: Time) -> CoreCounts {
        let mut sum = CoreCounts::default();
        for (hosts, machine) in self.machines.iter().enumerate() {
            sum.add(&machine.counts(now), hosts);
        }
        sum
    }

    pub(super) fn counts(self, now: Time) -> CoreCounts {
        match self.phase {
            CountPhase::Finished(ref counts) => counts.clone(),
            CountPhase::Before | CountPhase::Running => self.sum(now),
        }
    }
}

impl<T: Transport> Cluster<T> {
    /// Performs the actions of the hosts' machines until there are none.
    pub(super) fn perform_core_actions(&mut self) {
        while let Some(host) = self.on_cores.as_mut().and_then(|on_cores| on_cores.touched.pop()) {
            while let Some(action) =
                self.on_cores.as_mut().and_then(|on_cores| on_cores.machine(host).action())
            {
                self.act(host, action);
            }
            if let Some(on_cores) = &mut self.on_cores {
                on_cores.touched.retain(|&other| other != host);
            }
        }
    }

    fn act(&mut self, host: u32, action: Action) {
        match action {
            Action::At(at, timer) => {
                self.fabric.queue.push(at, Event::Host(HostEvent::Cores { host, timer }));
            }
            Action::Processed { packet, core } => {
                self.set_current_core(Some((host, core)));
                self.receive(packet);
                self.set_current_core(None);
            }
            Action::Dropped { packet } => {
                self.fabric.stats.overflowed += 1;
                self.fabric.packets.release(packet);
            }
            // The time of an RPC starts when a thread starts to send its request, as in the benchmark of the
            // kernel module. Requests that an overloaded client has not started only reduce its throughput.
            Action::Begun(Job { message, .. }) => {
                let message = self.fabric.shared.get_mut(message);
                (message.started, message.asked) = (self.fabric.now, self.fabric.now);
            }
            Action::Done(Job { kind: JobKind::Send, message, .. }) => self.send(message),
            Action::Done(Job { kind: JobKind::Request, message, .. }) => {
                self.with_host(host, |transport, ctx: &mut Ctx<'_>| transport.answer(ctx, message));
            }
            Action::Done(Job { kind: JobKind::Response, message, .. }) => self.delivered(message),
        }
    }

    fn set_current_core(&mut self, at: Option<(u32, Core)>) {
        if let Some(on_cores) = &mut self.on_cores {
            on_cores.at = at;
        }
    }
}
