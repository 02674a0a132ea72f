//! Packet paths for Homa: how bursts of packets leave a host and come in.
//!
//! A [`Driver`] takes and gives whole Homa packets, header and payload, and knows nothing of RPCs.
//!
//! - [`udp::UdpDriver`]: Homa packets as UDP payload, on any Linux, without privileges.
//! - [`raw::RawDriver`]: Homa packets in IP itself (protocol 146), as Linux Homa has them; needs CAP_NET_RAW.
//! - [`packet::PacketDriver`]: Homa packets, in UDP or in IP itself, straight from and to a network device, through a ring in
//!   mapped memory; needs CAP_NET_RAW.
//! - [`xdp::XdpDriver`]: frames straight from a network device's receive queues (AF_XDP); needs CAP_NET_ADMIN and others.
//! - [`frames::Frames`]: no driver, but whole Ethernet frames of any kind from and to several devices, for a switch.
//! - [`steer`]: no driver either, but a program that chooses the core on which the kernel processes a received packet.
//! - [`pcap::PcapDriver`]: a wrapper that writes every packet to a capture that Wireshark opens.
//! - [`fault::FaultDriver`]: a wrapper that loses, doubles, reorders, corrupts and delays, by a seed.
//!
//! Drivers allocate when they are made and not per packet. They never wait: a caller that has nothing to do polls
//! [`Driver::poll_fd`].

mod bpf;
mod burst;
mod driver;
mod ethtool;
pub mod fault;
mod filter;
pub mod frames;
mod ip;
mod l2;
#[cfg(test)]
mod memory;
mod offload;
pub mod packet;
pub mod pcap;
pub mod raw;
mod socket;
pub mod steer;
pub mod udp;
pub mod xdp;

/// IP protocol number of Homa.
pub const PROTOCOL_HOMA: u8 = 146;

pub use burst::{BURST_PACKETS, KeptFrame, PACKET_BUFFER_BYTES, RxBurst, RxBurstIter};
pub use driver::{
    BufferSizes, Driver, DriverStats, IN_PLACE_HEADER_BYTES, Refusal, SendErrors, SentPacket, TxPacket,
    Unreachable,
};
pub use ethtool::{Coalescing, DeviceSettings, device_settings};
pub use filter::ReceiveFilter;
pub use l2::LinkError;
pub use offload::put_offloads_off;
pub use socket::Carrier;
