//! Choices for the measurements of the switch.

use homa_driver::frames::FramePath;
use homa_driver::xdp::XdpMode;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// The interface between the switch and its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum PortPath {
    /// AF_XDP in the kernel's receive path
    XdpGeneric,
    /// AF_XDP in the device's driver
    XdpNative,
    /// Packet sockets with a mapped ring
    Ring,
}

impl PortPath {
    /// Returns the name in the switch's reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the setting with which devices are opened.
    pub fn path(self) -> FramePath {
        match self {
            PortPath::XdpGeneric => FramePath::Xdp(XdpMode::Generic),
            PortPath::XdpNative => FramePath::Xdp(XdpMode::Native),
            PortPath::Ring => FramePath::Ring,
        }
    }
}

/// A measurement of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Measurement {
    /// Maximum rate of frames without rate limits
    Capacity,
    /// Accuracy of a link's rate
    Rate,
    /// Latency of a high-priority probe through a saturated port
    Probe,
    /// Throughput under overload
    Overload,
}
