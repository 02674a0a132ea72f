//! Packet drivers by name.

use serde::{Deserialize, Serialize};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// The driver of Homa's packets. Both sides must use the same one.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    EnumMessage,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Driver {
    /// UDP, without privileges
    #[default]
    Udp,
    /// Directly over IP (protocol 146), as Linux Homa; needs CAP_NET_RAW: root, or `setcap cap_net_raw+ep` on
    /// this program
    Raw,
    /// UDP port 54321 at both ends, as Linux Homa's UDP form (net.homa.hijack_udp), without privileges
    #[serde(rename = "linux-udp")]
    #[strum(serialize = "linux-udp")]
    LinuxUdp,
    /// UDP packets directly through a network device: two thirds of the round trip; needs CAP_NET_RAW
    Packet,
    /// UDP packets directly from the device's receive queues (AF_XDP); needs CAP_NET_RAW, CAP_NET_ADMIN and
    /// CAP_BPF
    Xdp,
}

impl Driver {
    /// Returns the name on the command line and in results.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether a host consists of an address without a port. All processes of a network namespace
    /// then share it.
    pub fn shares_address(self) -> bool {
        self.peers_port().is_some()
    }

    /// Returns the port in the addresses of all peers if a host is identified by its address alone: 0 over
    /// raw IP.
    pub fn peers_port(self) -> Option<u16> {
        match self {
            Driver::Raw => Some(0),
            Driver::LinuxUdp => Some(homa_driver::LINUX_UDP_PORT),
            Driver::Udp | Driver::Packet | Driver::Xdp => None,
        }
    }
}

impl From<Driver> for homa::DriverChoice {
    fn from(driver: Driver) -> homa::DriverChoice {
        match driver {
            Driver::Udp => homa::DriverChoice::Udp,
            Driver::Raw => homa::DriverChoice::Raw,
            Driver::LinuxUdp => homa::DriverChoice::LinuxUdp,
            Driver::Packet => homa::DriverChoice::Packet,
            Driver::Xdp => homa::DriverChoice::Xdp,
        }
    }
}

/// Where the kernel runs the AF_XDP program.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    EnumMessage,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum XdpMode {
    /// Native if the device supports it, else generic
    #[default]
    Auto,
    /// In the device's driver: fastest on a network card; some devices and MTUs refuse it
    Native,
    /// In the kernel's receive path, on any device. Faster on a veth, but peers across the veth then need
    /// --driver raw or xdp: other drivers leave segmentation to the device, where generic mode loses the
    /// packets
    Generic,
}

impl From<XdpMode> for homa_driver::xdp::XdpMode {
    fn from(mode: XdpMode) -> homa_driver::xdp::XdpMode {
        match mode {
            XdpMode::Auto => homa_driver::xdp::XdpMode::Auto,
            XdpMode::Native => homa_driver::xdp::XdpMode::Native,
            XdpMode::Generic => homa_driver::xdp::XdpMode::Generic,
        }
    }
}
