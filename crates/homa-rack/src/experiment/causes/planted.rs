//! What is planted, and what `homa trace tail` is to find.

use homa_analysis::Cause;
use serde::Serialize;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

use crate::experiment::agent_protocol::Setup;
use crate::experiment::settings::Change;

/// The host that is disturbed.
pub(super) const VICTIM: u16 = 1;

/// Share of packets that are lost where that is planted.
const LOSS: f64 = 0.01;

/// Bytes of messages of one packet, and of many.
const SHORT_BYTES: u32 = 1_000;
const LONG_BYTES: u32 = 100_000;

/// What windows that are too small are set to: a packet.
const SMALL_WINDOW: &str = "1460";

/// A cause of slow RPCs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray, Serialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PlantedCause {
    /// Nothing, to compare with
    None,
    /// The same with long messages
    NoneLong,
    /// A host whose processes have one processor, on which another one computes
    Hog,
    /// The process of a host is stopped for 5 ms ten times a second
    Stop,
    /// Bursts of packets of the highest priority, half of the rate, stand in front of one host's port: from a host that does nothing else
    Queue,
    /// The hosts take their links for half as fast as they are
    Pacer,
    /// A message may send a packet without a grant, and have one granted
    Windows,
    /// The switch loses a packet in a hundred
    Loss,
}

impl PlantedCause {
    /// Its name among the options.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Bytes of the messages.
    pub(super) fn message_bytes(self) -> u32 {
        match self {
            PlantedCause::None | PlantedCause::Hog | PlantedCause::Stop => SHORT_BYTES,
            PlantedCause::NoneLong
            | PlantedCause::Queue
            | PlantedCause::Pacer
            | PlantedCause::Windows
            | PlantedCause::Loss => LONG_BYTES,
        }
    }

    /// The percentile of slowdown from which on RPCs are looked at: of short ones there are enough for the worst hundredth, and what disturbs
    /// now and then disturbs no more of them.
    pub(super) fn percentile(self) -> f64 {
        if self.message_bytes() < LONG_BYTES { 99.0 } else { 90.0 }
    }

    /// The causes that are right; none where nothing was planted.
    pub(super) fn right(self) -> &'static [Cause] {
        match self {
            PlantedCause::None | PlantedCause::NoneLong => &[],
            // Who does not run while it sleeps is one whose packets wait for it.
            PlantedCause::Hog | PlantedCause::Stop => {
                &[Cause::NotRunning, Cause::ReadGap, Cause::Wakeup, Cause::SenderLate]
            }
            PlantedCause::Queue => &[Cause::SwitchQueue],
            PlantedCause::Pacer => &[Cause::Pacer],
            PlantedCause::Windows => &[Cause::GrantWindow],
            PlantedCause::Loss => &[Cause::LossWait],
        }
    }

    /// Whether a host takes part in the load. What floods a port is not to stand in its own link's queue together with RPCs; and who shares
    /// the one processor that a hogged host leaves to the others would be as late as that one.
    pub(super) fn takes_part(self, number: u16, hosts: u16) -> bool {
        match self {
            PlantedCause::Hog => number <= 2,
            PlantedCause::Queue => number < hosts,
            _ => true,
        }
    }

    /// The node whose share of the cause has to be the largest, where one was disturbed.
    pub(super) fn node(self) -> Option<String> {
        matches!(self, PlantedCause::Hog | PlantedCause::Stop).then(|| format!("h{VICTIM}"))
    }

    /// The port of the switch, as it counts them, of which the same is true.
    pub(super) fn port(self) -> Option<u16> {
        (self == PlantedCause::Queue).then_some(VICTIM - 1)
    }

    /// Options of the switch.
    pub(super) fn switch_options(self) -> Vec<String> {
        match self {
            PlantedCause::Loss => vec![format!("--loss={LOSS}")],
            // One that polls would have a processor that the hosts need which are not disturbed.
            PlantedCause::Hog => vec!["--poll=0ms".to_owned()],
            _ => Vec::new(),
        }
    }

    /// What the hosts' processes are to be.
    pub(super) fn change(self, setup: &mut Setup) {
        match self {
            PlantedCause::Pacer => setup.link_mbps = (setup.link_mbps / 2).max(1),
            PlantedCause::Windows => {
                for name in ["unsched_bytes", "max_unsched_bytes", "window"] {
                    let change = Change::read(name, SMALL_WINDOW).expect("a setting and a number of bytes");
                    change.apply(setup);
                }
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_name_and_something_to_be_found() {
        for planted in PlantedCause::VARIANTS {
            assert_eq!(serde_json::to_value(planted).expect("JSON"), planted.name());
            assert_eq!(planted.right().is_empty(), planted.name().starts_with("none"));
        }
    }
}
