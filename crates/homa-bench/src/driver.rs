//! Packet drivers by name.

use homa_steer::batch::BatchCap;
use serde::{Deserialize, Serialize};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// The driver that carries Homa's packets. Both sides need the same one.
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
    /// IP itself (protocol 146), as Linux Homa has it; needs CAP_NET_RAW: root, or `setcap cap_net_raw+ep` on this program
    Raw,
    /// UDP on the wire, straight from and to a network device: two thirds of the round trip; needs CAP_NET_RAW
    Packet,
    /// UDP on the wire, straight from the receive queues of a network device (AF_XDP); needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF
    Xdp,
}

/// A receive batch that drivers can take, from text.
///
/// # Errors
/// The range, in words.
pub fn batch_cap(text: &str) -> Result<BatchCap, String> {
    let max = homa_driver::BURST_PACKETS as u32;
    let cap = text.parse().ok().filter(|cap: &BatchCap| cap.packets() <= max);
    cap.ok_or_else(|| format!("use 1 to {max} packets"))
}

impl Driver {
    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl From<Driver> for homa::DriverChoice {
    fn from(driver: Driver) -> homa::DriverChoice {
        match driver {
            Driver::Udp => homa::DriverChoice::Udp,
            Driver::Raw => homa::DriverChoice::Raw,
            Driver::Packet => homa::DriverChoice::Packet,
            Driver::Xdp => homa::DriverChoice::Xdp,
        }
    }
}

/// The place of the AF_XDP program in the kernel.
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
    /// Native where the device takes it, else generic
    #[default]
    Auto,
    /// In the device's driver: shortest on a network card; some devices and MTUs refuse it
    Native,
    /// In the kernel's receive path, on any device. Faster on a veth, but from peers across it only with --driver raw or xdp: what
    /// others leave to the device to cut is not cut there, and lost
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
