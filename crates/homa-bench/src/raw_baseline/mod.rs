//! Requests and responses over a packet driver without a protocol: the raw baseline for all protocols over
//! the same path.
//!
//! A message that fits one packet is sent as one packet, without an acknowledgement. A longer message is sent
//! as several packets; its receiver acknowledges its bytes, and a window limits the bytes in flight. Lost
//! packets are not retransmitted, and messages are not ordered. An RPC that loses a packet ends in an error
//! after half a second.

pub mod client;
mod frame;
mod path;
pub mod server;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use homa_driver::Driver as PacketPath;
use homa_driver::linux_udp::{LinuxUdpConfig, LinuxUdpDriver};
use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{XdpConfig, XdpDriver};

use crate::driver::Driver;

/// Time without progress after which an RPC or a message is given up. On the measured paths, no packet that
/// arrives takes this long, and a closed loop resumes soon after a loss.
const PATIENCE: Duration = Duration::from_millis(500);

/// Opens a packet path at this address, with the socket options that Homa uses by default.
///
/// With `offload`, the kernel segments and merges runs of packets of equal length, if the driver supports it.
fn open(driver: Driver, bind: SocketAddr, offload: bool) -> Result<Box<dyn PacketPath>> {
    let failed = || format!("cannot open a bare packet path at {bind}");
    Ok(match driver {
        Driver::Udp => {
            let config = UdpConfig { bind, segmentation: offload, ..UdpConfig::default() };
            Box::new(UdpDriver::bind(&config).with_context(failed)?)
        }
        Driver::Raw => {
            let config = RawConfig { bind, ..RawConfig::default() };
            Box::new(RawDriver::bind(&config).with_context(failed)?)
        }
        Driver::LinuxUdp => {
            let config = LinuxUdpConfig { bind, segmentation: offload, ..LinuxUdpConfig::default() };
            Box::new(LinuxUdpDriver::bind(&config).with_context(failed)?)
        }
        Driver::Packet => {
            let config = PacketConfig { bind, segmentation: offload, ..PacketConfig::default() };
            Box::new(PacketDriver::open(&config).with_context(failed)?)
        }
        Driver::Xdp => {
            let config = XdpConfig { bind, ..XdpConfig::default() };
            Box::new(XdpDriver::open(&config).with_context(failed)?)
        }
    })
}
