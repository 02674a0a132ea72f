//! Bare request and response over a packet driver, with no protocol: the floor under everything that runs over the same path.
//!
//! A message is one packet where it fits one, and then nothing else is sent. A longer one goes as several, with so many bytes
//! on the way at most, and its receiver says how many it has taken. Nothing is repaired and nothing is ordered: an RPC of which
//! a packet was lost ends in an error after half a second.

pub mod client;
mod frame;
mod path;
pub mod server;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use homa_driver::Driver as PacketPath;
use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{XdpConfig, XdpDriver};

use crate::driver::Driver;

/// How long nothing may be heard of an RPC or a message. No packet that arrives at all takes so long on the paths that this
/// measures, and a closed loop does not stand still for long.
const PATIENCE: Duration = Duration::from_millis(500);

/// A packet path at this address. What its sockets ask of the kernel is what Homa's ask by default.
///
/// With `offload`, runs of equal packets pass the kernel as one where the driver has that.
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
