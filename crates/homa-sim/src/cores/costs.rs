//! The costs of a host's work.
//!
//! The built-in figures are in `costs/x86.toml` and `costs/mips-router.toml`, each with its source. Programs
//! may load other files.

use serde::{Deserialize, Serialize};

/// The built-in sets of costs, by name, as the text of their files.
pub const BUILT_IN_COSTS: [(&str, &str); 2] = [
    ("x86", include_str!("../../costs/x86.toml")),
    ("mips-router", include_str!("../../costs/mips-router.toml")),
];

/// The costs of a host's work. Times are in nanoseconds. The files state their sources.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Name of the set.
    pub name: String,
    /// Costs of taking packets from the device.
    pub receive: ReceiveCosts,
    /// Costs of passing a packet to the core that processes it.
    pub handoff: HandoffCosts,
    /// Costs of the protocol's work.
    pub protocol: ProtocolCosts,
    /// Costs of application threads.
    pub application: ApplicationCosts,
    /// Costs of cold caches.
    pub cache: CacheCosts,
    /// Costs and limits of the scheduler.
    pub scheduler: SchedulerCosts,
    /// Costs of power saving.
    pub power: PowerCosts,
}

/// Costs of taking packets from the device (NAPI).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveCosts {
    /// Time from the interrupt to the handler.
    pub interrupt_ns: u64,
    /// Fixed time of the handler for each batch.
    pub poll_ns: u64,
    /// Time per packet.
    pub packet_ns: u64,
    /// Time per byte, from 0 to 1,000.
    pub byte_ns: f64,
    /// Maximum length of the device's queue for a core in packets, at least 1. Further packets are dropped.
    pub ring_packets: usize,
}

/// Costs of passing a packet to the core that processes it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HandoffCosts {
    /// Time to start the protocol's work on a core that was not processing packets.
    pub wake_ns: u64,
    /// Additional delay if that core is not the core of arrival.
    pub other_core_ns: u64,
    /// Maximum backlog of a core in packets, at least 1. Further packets are dropped.
    pub backlog_packets: usize,
}

/// Costs of the protocol's work.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolCosts {
    /// Time per group of packets that are passed on together.
    pub burst_ns: u64,
    /// Time per packet.
    pub packet_ns: u64,
    /// Time per byte, from 0 to 1,000.
    pub byte_ns: f64,
    /// Time per sent packet, or per segment of a message.
    pub transmit_ns: u64,
    /// Bytes of a segment, at least 1.
    pub segment_bytes: u32,
}

/// Costs of application threads.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationCosts {
    /// Time until a polling thread sees a message.
    pub poll_wake_ns: u64,
    /// Time until a sleeping thread runs.
    pub sleep_wake_ns: u64,
    /// Time that a wake-up takes on the core that causes it.
    pub waker_ns: u64,
    /// Entry and exit of a system call.
    pub syscall_ns: u64,
    /// Time to pass a message to the protocol, excluding its bytes.
    pub send_ns: u64,
    /// Time to receive a message from the protocol, excluding its bytes.
    pub receive_ns: u64,
    /// Time per byte copied between an application and the kernel, from 0 to 1,000.
    pub copy_byte_ns: f64,
}

/// Costs of cold caches.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CacheCosts {
    /// Factor by which a stage takes longer on a core that is cold for it, from 1 to 100.
    pub cold_factor: f64,
    /// A core is warm for a kind of work if it did such work within this time; 0: it is always warm.
    pub warm_ns: u64,
    /// Number of flows whose state a core's cache holds; 0: all.
    pub flows: usize,
    /// Additional time of a packet whose flow is not in the cache.
    pub flow_ns: u64,
}

/// Costs and limits of the scheduler when packets and applications compete for a core.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerCosts {
    /// Maximum time that a core processes packets before it leaves the rest to a thread.
    pub softirq_ns: u64,
    /// Maximum number of rounds before a core leaves the rest to a thread, at least 1.
    pub softirq_rounds: u32,
    /// Minimum time that application threads then run before packets.
    pub timeslice_min_ns: u64,
    /// Maximum time that application threads then run before packets; at least the minimum.
    pub timeslice_max_ns: u64,
}

/// Costs of power saving.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PowerCosts {
    /// Idle time after which a core saves power.
    pub idle_ns: u64,
    /// Additional time until such a core starts work.
    pub exit_ns: u64,
}

/// Error in a cost file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostsError {
    /// The text is not a valid cost file.
    #[error("{reason}")]
    Syntax {
        /// The error, and its line.
        reason: String,
    },
    /// A value is out of its range.
    #[error("{key} must be {range}")]
    Range {
        /// Section and key.
        key: &'static str,
        /// The valid range.
        range: &'static str,
    },
}

/// Maximum of each time. The sum of several times is still far below the clock's maximum.
const MAX_NS: u64 = 1_000_000_000;

/// Minimum time slice. With shorter slices, threads would do little but take turns.
const LEAST_SLICE_NS: u64 = 1_000;

impl Costs {
    /// Parses the text of a cost file.
    ///
    /// # Errors
    /// Reports what is missing, unknown or out of range.
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

    /// Returns the built-in set with this name.
    ///
    /// # Panics
    /// Never: a test parses all of them.
    pub fn named(name: &str) -> Option<Costs> {
        let (_, text) = BUILT_IN_COSTS.iter().find(|(known, _)| *known == name)?;
        Some(Costs::parse(text).expect("what comes with the library is right"))
    }

    /// Returns the costs of the hosts in the published x86 measurements.
    pub fn x86() -> Costs {
        Costs::named("x86").expect("it is listed")
    }

    /// Returns the costs of the router of the sparse connection patch.
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

    /// Returns the time a thread takes to send a message: the call, the copy, and the packets in segments.
    #[must_use]
    pub fn send_ns(&self, bytes: u32) -> u64 {
        let pieces = u64::from(bytes.div_ceil(self.protocol.segment_bytes).max(1));
        let application = &self.application;
        application.syscall_ns
            + application.send_ns
            + for_bytes(application.copy_byte_ns, bytes)
            + pieces * self.protocol.transmit_ns
    }

    /// Returns the time a thread takes to receive a message, which is longer if the thread is cold.
    #[must_use]
    pub fn take_ns(&self, bytes: u32, is_cold: bool) -> u64 {
        let application = &self.application;
        self.stage_ns(application.receive_ns, is_cold)
            + application.syscall_ns
            + for_bytes(application.copy_byte_ns, bytes)
    }

    /// Returns the time of a stage, which is longer on a cold core.
    #[must_use]
    pub fn stage_ns(&self, ns: u64, is_cold: bool) -> u64 {
        if is_cold { (ns as f64 * self.cache.cold_factor).round() as u64 } else { ns }
    }
}

/// Returns the time for `bytes` bytes.
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

    /// Every figure is preceded by a comment that states its source.
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
                // A comment applies to the figures after it, up to the next section.
                has_source = line.starts_with('#') || has_source && !line.starts_with('[');
            }
        }
    }

    /// A round trip of a short message between warm hosts takes the published 15,100 ns, the total of the
    /// timeline from which the figures are taken. The network takes 2 x 2,805 ns of that.
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
