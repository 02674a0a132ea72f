//! Configuration of a steering program.

use homa_bpf::attach::XdpMode;
use homa_steer::batch::Batching;
use homa_steer::{Cores, PolicyName, Settings};

/// Policies that need only the information available to a program on a device.
pub const IN_KERNEL: [PolicyName; 4] =
    [PolicyName::RssHash, PolicyName::Sparse, PolicyName::HomaHash, PolicyName::Gen2];

/// The packets that are steered. Other packets continue as if there were no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Homa: IP protocol 146, and UDP from or to [`SteerConfig::homa_port`].
    pub homa: bool,
    /// TCP.
    pub tcp: bool,
    /// UDP.
    pub udp: bool,
    /// Every IPv4 or IPv6 packet.
    pub all: bool,
}

impl Filter {
    /// No packets.
    pub const NONE: Filter = Filter { homa: false, tcp: false, udp: false, all: false };
    /// All of IP.
    pub const ALL: Filter = Filter { all: true, ..Filter::NONE };

    /// The names of the filter's parts on command lines, in order.
    pub const NAMES: [&'static str; 4] = ["homa", "tcp", "udp", "all"];

    fn parts(self) -> [bool; 4] {
        [self.homa, self.tcp, self.udp, self.all]
    }

    pub(crate) fn bits(self) -> u32 {
        (0..).zip(self.parts()).map(|(bit, part)| u32::from(part) << bit).sum()
    }

    pub(crate) fn of_bits(bits: u32) -> Filter {
        let has = |bit: u32| bits >> bit & 1 == 1;
        Filter { homa: has(0), tcp: has(1), udp: has(2), all: has(3) }
    }

    /// Returns the names of the filter's parts.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Filter::NAMES.into_iter().zip(self.parts()).filter_map(|(name, part)| part.then_some(name))
    }
}

/// Configuration of a steering program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteerConfig {
    /// One of [`IN_KERNEL`].
    pub policy: PolicyName,
    /// The cores to select from.
    pub cores: Cores,
    /// Settings of the policy. The seed also applies to the hashes of flows.
    pub settings: Settings,
    /// Which packets belong to one batch (`gen2`).
    pub batching: Batching,
    /// The packets that are steered; all of IP by default.
    pub filter: Filter,
    /// The UDP port of Homa servers, for Homa over UDP. `None`, the default: only Homa directly over IP is
    /// recognized.
    pub homa_port: Option<u16>,
    /// Where the program runs. Generic by default: frames are handed over with all of the kernel's metadata.
    /// In native mode they are handed over earlier, without metadata. Checksums that a virtual device left
    /// out are then never filled in.
    pub mode: XdpMode,
    /// Maximum number of frames queued for a core, up to 16,384. 2,048 by default: with 1,500-byte frames,
    /// this many arrive at 10 Gbit/s while a core is busy for 2 ms.
    pub queue_packets: u32,
}

impl Default for SteerConfig {
    fn default() -> SteerConfig {
        SteerConfig {
            policy: PolicyName::RssHash,
            cores: Cores::first(1).expect("one core is neither none nor too many"),
            settings: Settings::default(),
            batching: Batching::default(),
            filter: Filter::ALL,
            homa_port: None,
            mode: XdpMode::Generic,
            queue_packets: 2_048,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_the_bits_that_they_were_made_of() {
        for bits in 0..16 {
            assert_eq!(Filter::of_bits(bits).bits(), bits);
        }
        let filter = Filter { homa: true, udp: true, ..Filter::NONE };
        assert!(filter.names().eq(["homa", "udp"]) && Filter::ALL.names().eq(["all"]));
    }
}
