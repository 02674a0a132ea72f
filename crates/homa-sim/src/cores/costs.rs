//! What each piece of a host's work costs.
//!
//! The figures stand in files of their own, `costs/x86.toml` and `costs/mips-router.toml`, each with its source; a program's user may
//! give others.

use serde::{Deserialize, Serialize};

/// The sets that come with the library, by name, as they stand in their files.
pub const BUILT_IN_COSTS: [(&str, &str); 2] = [
    ("x86", include_str!("../../costs/x86.toml")),
    ("mips-router", include_str!("../../costs/mips-router.toml")),
];

/// What a host's work costs. Times are in nanoseconds; the files say where each comes from.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// What the set is called.
    pub name: String,
    /// A core takes packets from the device.
    pub receive: ReceiveCosts,
    /// A packet goes on to the core that processes it.
    pub handoff: HandoffCosts,
    /// The protocol's work.
    pub protocol: ProtocolCosts,
    /// Threads of applications.
    pub application: ApplicationCosts,
    /// Caches.
    pub cache: CacheCosts,
    /// The scheduler.
    pub scheduler: SchedulerCosts,
    /// Power saving.
    pub power: PowerCosts,
}

/// A core takes packets from the device (NAPI).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveCosts {
    /// From the interrupt to the handler.
    pub interrupt_ns: u64,
    /// The handler's own part for each batch.
    pub poll_ns: u64,
    /// For each packet.
    pub packet_ns: u64,
    /// For each byte, from 0 to 1,000.
    pub byte_ns: f64,
    /// Packets that the device keeps for a core, at least 1; more are dropped.
    pub ring_packets: usize,
}

/// A packet goes on to the core that processes it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HandoffCosts {
    /// The beginning of the protocol's work on a core that did none.
    pub wake_ns: u64,
    /// How much later it begins on another core than the one of arrival.
    pub other_core_ns: u64,
    /// Packets that may wait for a core, at least 1; more are dropped.
    pub backlog_packets: usize,
}

/// The protocol's work.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolCosts {
    /// For packets that are handed over together.
    pub burst_ns: u64,
    /// For each packet.
    pub packet_ns: u64,
    /// For each byte, from 0 to 1,000.
    pub byte_ns: f64,
    /// For each packet, or piece of a message, that is sent.
    pub transmit_ns: u64,
    /// Bytes of such a piece, at least 1.
    pub segment_bytes: u32,
}

/// Threads of applications.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationCosts {
    /// Until a thread that polls has seen a message.
    pub poll_wake_ns: u64,
    /// Until a thread that slept runs.
    pub sleep_wake_ns: u64,
    /// What the core that wakes a sleeper is busy with it.
    pub waker_ns: u64,
    /// A system call's way in and out.
    pub syscall_ns: u64,
    /// To hand a message to the protocol, without its bytes.
    pub send_ns: u64,
    /// To take a message from the protocol, without its bytes.
    pub receive_ns: u64,
    /// For each byte between an application and the kernel, from 0 to 1,000.
    pub copy_byte_ns: f64,
}

/// Caches.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CacheCosts {
    /// Times that a stage takes as long on a core that is cold for it, from 1 to 100.
    pub cold_factor: f64,
    /// A core is warm for a kind of work that it did less than so long ago; 0: it always is.
    pub warm_ns: u64,
    /// Flows whose state a core keeps; 0: all.
    pub flows: usize,
    /// What a packet of another flow costs more.
    pub flow_ns: u64,
}

/// The scheduler, where packets and applications want the same core.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerCosts {
    /// Packets are left to a thread when a core was at them for so long,
    pub softirq_ns: u64,
    /// or for so many rounds, at least 1.
    pub softirq_rounds: u32,
    /// The thread, or one of an application, then waits for those of applications for so long at least,
    pub timeslice_min_ns: u64,
    /// and at most; not less than the least.
    pub timeslice_max_ns: u64,
}

/// Power saving.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PowerCosts {
    /// A core that was idle for so long
    pub idle_ns: u64,
    /// takes so much longer to begin.
    pub exit_ns: u64,
}

/// Why a set of costs is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostsError {
    /// It is no such file.
    #[error("{reason}")]
    Syntax {
        /// What is wrong, and in which line.
        reason: String,
    },
    /// A figure is out of its range.
    #[error("{key} must be {range}")]
    Range {
        /// Section and key.
        key: &'static str,
        /// What it may be.
        range: &'static str,
    },
}

/// No piece of work takes longer: a sum of some stays far from the end of the clock.
const MAX_NS: u64 = 1_000_000_000;

/// Threads that took turns faster would do nothing else.
const LEAST_SLICE_NS: u64 = 1_000;

impl Costs {
    /// Reads a file of costs.
    ///
    /// # Errors
    /// Says what is missing, unknown or out of its range.
    pub fn parse(text: &str) -> Result<Costs, CostsError> {
        let costs: Costs = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
            let place = line.map_or(String::new(), |line| {
                format!("line {line} (`{}`): ", text.lines().nth(line - 1).unwrap_or_default().trim())
            });
            CostsError::Syntax { reason: place + &error.message().replace('\n', " ") }
        })?;
        costs.check()?;
        Ok(costs)
    }

    /// The set that comes with the library under this name.
    ///
    /// # Panics
    /// Never: a test reads them all.
    pub fn named(name: &str) -> Option<Costs> {
        let (_, text) = BUILT_IN_COSTS.iter().find(|(known, _)| *known == name)?;
        Some(Costs::parse(text).expect("what comes with the library is right"))
    }

    /// Of the hosts that the findings on x86 were measured on.
    pub fn x86() -> Costs {
        Costs::named("x86").expect("it is listed")
    }

    /// Of the router of the sparse connection patch.
    pub fn mips_router() -> Costs {
        Costs::named("mips-router").expect("it is listed")
    }

    pub(super) fn check(&self) -> Result<(), CostsError> {
        let (receive, handoff, protocol) = (&self.receive, &self.handoff, &self.protocol);
        let (application, cache, scheduler) = (&self.application, &self.cache, &self.scheduler);
        const TIME: &str = "a second at most";
        const BYTE: &str = "from 0 to 1000 ns";
        let times = [
            ("receive.interrupt_ns", receive.interrupt_ns),
            ("receive.poll_ns", receive.poll_ns),
            ("receive.packet_ns", receive.packet_ns),
            ("handoff.wake_ns", handoff.wake_ns),
            ("handoff.other_core_ns", handoff.other_core_ns),
            ("protocol.burst_ns", protocol.burst_ns),
            ("protocol.packet_ns", protocol.packet_ns),
            ("protocol.transmit_ns", protocol.transmit_ns),
            ("application.poll_wake_ns", application.poll_wake_ns),
            ("application.sleep_wake_ns", application.sleep_wake_ns),
            ("application.waker_ns", application.waker_ns),
            ("application.syscall_ns", application.syscall_ns),
            ("application.send_ns", application.send_ns),
            ("application.receive_ns", application.receive_ns),
            ("cache.warm_ns", cache.warm_ns),
            ("cache.flow_ns", cache.flow_ns),
            ("scheduler.softirq_ns", scheduler.softirq_ns),
            ("scheduler.timeslice_max_ns", scheduler.timeslice_max_ns),
            ("power.idle_ns", self.power.idle_ns),
            ("power.exit_ns", self.power.exit_ns),
        ];
        let times = times.map(|(key, ns)| (ns <= MAX_NS, key, TIME));
        let is_byte = |ns: f64| (0.0..=1_000.0).contains(&ns);
        let others = [
            (is_byte(receive.byte_ns), "receive.byte_ns", BYTE),
            (is_byte(protocol.byte_ns), "protocol.byte_ns", BYTE),
            (is_byte(application.copy_byte_ns), "application.copy_byte_ns", BYTE),
            ((1.0..=100.0).contains(&cache.cold_factor), "cache.cold_factor", "from 1 to 100"),
            ((1..=1 << 20).contains(&receive.ring_packets), "receive.ring_packets", "from 1 to 1048576"),
            (
                (1..=1 << 20).contains(&handoff.backlog_packets),
                "handoff.backlog_packets",
                "from 1 to 1048576",
            ),
            (protocol.segment_bytes >= 1, "protocol.segment_bytes", "1 or more"),
            (cache.flows <= 1 << 16, "cache.flows", "65536 at most"),
            (scheduler.softirq_rounds >= 1, "scheduler.softirq_rounds", "1 or more"),
            (scheduler.timeslice_min_ns >= LEAST_SLICE_NS, "scheduler.timeslice_min_ns", "1000 or more"),
            (
                scheduler.timeslice_min_ns <= scheduler.timeslice_max_ns,
                "scheduler.timeslice_min_ns",
                "timeslice_max_ns at most",
            ),
        ];
        match times.into_iter().chain(others).find(|(holds, _, _)| !holds) {
            Some((_, key, range)) => Err(CostsError::Range { key, range }),
            None => Ok(()),
        }
    }

    /// What sending a message takes its thread: the call, the copy, and its packets in pieces.
    #[must_use]
    pub fn send_ns(&self, bytes: u32) -> u64 {
        let pieces = u64::from(bytes.div_ceil(self.protocol.segment_bytes).max(1));
        let application = &self.application;
        application.syscall_ns
            + application.send_ns
            + for_bytes(application.copy_byte_ns, bytes)
            + pieces * self.protocol.transmit_ns
    }

    /// What taking a message takes its thread; a thread that is cold longer.
    #[must_use]
    pub fn take_ns(&self, bytes: u32, is_cold: bool) -> u64 {
        let application = &self.application;
        self.stage_ns(application.receive_ns, is_cold)
            + application.syscall_ns
            + for_bytes(application.copy_byte_ns, bytes)
    }

    /// What a stage takes that is made for a warm core.
    #[must_use]
    pub fn stage_ns(&self, ns: u64, is_cold: bool) -> u64 {
        if is_cold { (ns as f64 * self.cache.cold_factor).round() as u64 } else { ns }
    }
}

/// What so many bytes take.
pub(crate) fn for_bytes(byte_ns: f64, bytes: u32) -> u64 {
    (byte_ns * f64::from(bytes)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_the_library_is_right_and_has_its_name() {
        for (name, text) in BUILT_IN_COSTS {
            let costs = Costs::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(costs.name, name);
        }
        assert_eq!(Costs::named("arm"), None);
    }

    /// Whatever a figure is, a comment before it says where it comes from.
    #[test]
    fn every_figure_has_a_source() {
        for (name, text) in BUILT_IN_COSTS {
            let mut has_source = false;
            for line in text.lines().skip_while(|line| !line.starts_with('[')) {
                let is_figure = line.contains('=') && !line.starts_with('#');
                assert!(
                    !is_figure || has_source || line.ends_with("= 0") || line.ends_with("= 0.0"),
                    "{name}: {line}"
                );
                // A comment serves the figures that follow it up to the next section.
                has_source = line.starts_with('#') || has_source && !line.starts_with('[');
            }
        }
    }

    /// A warm host, one short message there and back: 15,100 ns in the timeline that the figures are from, of which the network has 2 x
    /// 2,805.
    #[test]
    fn a_short_round_trip_is_the_published_one() {
        let costs = Costs::x86();
        let packet = costs.receive.interrupt_ns
            + costs.receive.poll_ns
            + costs.receive.packet_ns
            + costs.handoff.wake_ns
            + costs.protocol.burst_ns
            + costs.protocol.packet_ns;
        let receive = packet + costs.application.poll_wake_ns + costs.take_ns(0, false);
        let round_trip = 2 * (costs.send_ns(0) + 2_805 + receive);
        assert!((14_900..15_300).contains(&round_trip), "{round_trip}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let (_, text) = BUILT_IN_COSTS[0];
        for (from, to, word) in [
            ("poll_ns = 267", "", "poll_ns"),
            ("poll_ns = 267", "poll_ns = -1", "line 21 (`poll_ns = -1`): "),
            ("poll_ns = 267", "poll_ns = 267\npolls = 1", "line 22 (`polls = 1`): "),
            ("timeslice_min_ns = 5000000", "timeslice_min_ns = 0", "timeslice_min_ns must be 1000 or more"),
            ("cold_factor = 2.06", "cold_factor = 0.5", "cache.cold_factor must be from 1"),
            ("copy_byte_ns = 0.178", "copy_byte_ns = nan", "application.copy_byte_ns"),
            ("ring_packets = 1024", "ring_packets = 0", "receive.ring_packets"),
            ("waker_ns = 900", "waker_ns = 2000000000", "application.waker_ns must be a second"),
            (
                "timeslice_min_ns = 5000000",
                "timeslice_min_ns = 8000000",
                "timeslice_min_ns must be timeslice_max_ns",
            ),
        ] {
            assert!(text.contains(from), "{from}");
            let said = Costs::parse(&text.replace(from, to)).unwrap_err().to_string();
            assert!(said.contains(word) && !said.contains('\n'), "{said}");
        }
    }
}
