//! What can be chosen of the switch's measurements.

use homa_driver::frames::FramePath;
use homa_driver::xdp::XdpMode;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// How frames come to the switch and leave it.
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
    /// As the switch reports it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// As devices are opened.
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
    /// Frames a second without limits
    Capacity,
    /// How exactly a link's rate is kept
    Rate,
    /// What a high-priority probe meets at a saturated port
    Probe,
    /// What is left of the throughput when more is offered than can be handled
    Overload,
}
