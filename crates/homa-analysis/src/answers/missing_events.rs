//! Events that are missing in traces, and the options that record them.

use std::fmt;

use serde::{Serialize, Serializer};

/// A kind of event that an answer needs but that is missing from the traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingEvents {
    /// No burst was handed to a driver or read from one.
    Bursts,
    /// No device timestamped a packet.
    DeviceTimes,
    /// No switch recorded anything.
    Switch,
    /// No application submitted or received a message.
    Application,
    /// No thread slept or woke.
    Sleeps,
    /// No record names its core.
    Cores,
    /// No packet was recorded by both its sender and its receiver.
    BothEnds,
    /// No grant was sent or received.
    Grants,
}

impl fmt::Display for MissingEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MissingEvents::Bursts => {
                "no bursts are in these traces: live hosts record them with --trace, the simulator has none"
            }
            MissingEvents::DeviceTimes => {
                "no time stamps of the kernel or of devices are in these traces: hosts with --trace-device-times record them, over every driver but xdp"
            }
            MissingEvents::Switch => {
                "there is no trace of a switch: record one with `homa switch run --trace`, `homa rack run --trace` or `homa sim run --trace`"
            }
            MissingEvents::Application => {
                "no times of applications are in these traces: live hosts record them, the simulator has none"
            }
            MissingEvents::Sleeps => "no thread slept in these traces, or none of them is of a live host",
            MissingEvents::Cores => "no record has a core: live hosts record it, the simulator has none",
            MissingEvents::BothEnds => {
                "no packet is in the traces of both its sender and its receiver: pass the traces of both, of the same time, with more --trace-records"
            }
            MissingEvents::Grants => {
                "no grant is in these traces: only messages longer than their unscheduled bytes have them"
            }
        })
    }
}

impl Serialize for MissingEvents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
