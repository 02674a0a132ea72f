//! The planted causes, and the causes to which `homa trace tail` must attribute them.

use homa_analysis::Cause;
use serde::Serialize;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

use crate::experiment::agent_protocol::Setup;
use crate::experiment::settings::Change;

/// Number of the disturbed host.
pub(super) const VICTIM: u16 = 1;

/// Share of lost packets, for the cause `loss`.
const LOSS: f64 = 0.01;

/// Message sizes: one packet, and many packets.
const SHORT_BYTES: u32 = 1_000;
const LONG_BYTES: u32 = 100_000;

/// Size of windows that are too small: one packet.
const SMALL_WINDOW: &str = "1460";

/// A cause of slow RPCs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray, Serialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PlantedCause {
    /// No cause, for comparison
    None,
    /// No cause, with long messages
    NoneLong,
    /// All processes of one host share a processor with a computing process
    Hog,
    /// The process of one host is stopped for 5 ms, ten times per second
    Stop,
    /// Another host sends bursts of the highest priority to one host's port, at half of the link's rate
    Queue,
    /// The hosts assume half of their links' rate
    Pacer,
    /// A message may send one packet without a grant, and has at most one packet granted
    Windows,
    /// The switch loses one packet in a hundred
    Loss,
}

impl PlantedCause {
    /// Returns the name used in the options.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the message size in bytes.
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

    /// Returns the percentile of slowdown at which the evaluated tail begins. For short messages it is the
    /// worst 1 %: there are enough of them, and occasional disturbances do not affect more of them than that.
    pub(super) fn percentile(self) -> f64 {
        if self.message_bytes() < LONG_BYTES { 99.0 } else { 90.0 }
    }

    /// Returns the correct causes, empty if nothing was planted.
    pub(super) fn expected_causes(self) -> &'static [Cause] {
        match self {
            PlantedCause::None | PlantedCause::NoneLong => &[],
            // If a thread does not run, packets also wait to be read by it.
            PlantedCause::Hog | PlantedCause::Stop => {
                &[Cause::NotRunning, Cause::ReadGap, Cause::Wakeup, Cause::SenderLate]
            }
            PlantedCause::Queue => &[Cause::SwitchQueue],
            PlantedCause::Pacer => &[Cause::Pacer],
            PlantedCause::Windows => &[Cause::GrantWindow],
            PlantedCause::Loss => &[Cause::LossWait],
        }
    }

    /// Returns whether a host takes part in the load. A flooding host does not, so that its flood does not
    /// share its uplink with RPCs. With `hog`, additional hosts would share the one processor left to the
    /// undisturbed hosts, and would be as late as the disturbed host.
    pub(super) fn takes_part(self, number: u16, hosts: u16) -> bool {
        match self {
            PlantedCause::Hog => number <= 2,
            PlantedCause::Queue => number < hosts,
            _ => true,
        }
    }

    /// Returns the disturbed node, which must have the largest share of the cause, or `None` if no node was
    /// disturbed.
    pub(super) fn node(self) -> Option<String> {
        matches!(self, PlantedCause::Hog | PlantedCause::Stop).then(|| format!("h{VICTIM}"))
    }

    /// Returns the disturbed port of the switch, counted from 0, which must have the largest share of the
    /// cause, or `None` if no port was disturbed.
    pub(super) fn port(self) -> Option<u16> {
        (self == PlantedCause::Queue).then_some(VICTIM - 1)
    }

    /// Returns additional options of the switch.
    pub(super) fn switch_options(self) -> Vec<String> {
        match self {
            PlantedCause::Loss => vec![format!("--loss={LOSS}")],
            // A polling switch would occupy a processor that the undisturbed hosts need.
            PlantedCause::Hog => vec!["--poll=0ms".to_owned()],
            _ => Vec::new(),
        }
    }

    /// Changes the setup of the hosts' agents.
    pub(super) fn change(self, setup: &mut Setup) {
        match self {
            PlantedCause::Pacer => setup.host.link_mbps = setup.host.link_mbps.map(|mbps| (mbps / 2).max(1)),
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
            assert_eq!(planted.expected_causes().is_empty(), planted.name().starts_with("none"));
        }
    }
}
