//! Packet paths for Homa, which receive and send bursts of packets.
//!
//! A [`Driver`] sends and receives whole Homa packets, header and payload. It does not deal with RPCs.
//!
//! | driver | packets are | needs |
//! |---|---|---|
//! | [`udp::UdpDriver`] | the payload of UDP | nothing |
//! | [`raw::RawDriver`] | the payload of IP (protocol 146), as in Linux Homa | CAP_NET_RAW |
//! | [`linux_udp::LinuxUdpDriver`] | UDP payload at port 54321: Linux Homa's UDP encapsulation | nothing |
//! | [`packet::PacketDriver`] | either, through a mapped ring of one network device | CAP_NET_RAW |
//! | [`xdp::XdpDriver`] | either, in the receive queues of one network device (AF_XDP) | CAP_NET_ADMIN and others |
//!
//! Two wrappers accept any driver: [`capture::PcapDriver`] writes each packet to a capture file, and
//! [`fault::FaultDriver`] loses, duplicates, reorders, corrupts and delays packets, at random from a seed.
//! Two modules are not drivers: [`frames::Frames`] sends and receives whole Ethernet frames on several
//! devices, for a switch, and [`netdev`] has the names and the state of network devices.
//!
//! Drivers allocate memory when they are created, not for each packet. They never block: an idle caller polls
//! [`Driver::poll_fd`].
//!
//! # Design
//!
//! A driver never fragments. A packet that cannot be sent is counted and lost like any other lost packet. An
//! error means that the whole path is unusable.
//!
//! UDP and raw IP share one implementation, `socket::PacketSocket`: bursts, error reports, path MTUs and
//! ICMP. Raw IP adds two things, because processes share an address there:
//!
//! - a receive filter in the kernel (`raw/program`) that passes each process the packets for its own ports.
//!   The filter is an optimization: the runtime checks the port of each packet again, so the filter may be
//!   outdated or pass everything. Acknowledgements are piggybacked on packets for any port, so the filter
//!   passes the header of such packets to every process;
//! - ICMP port unreachable for clients that have no other way to learn of a closed port (`raw/icmp_report`).
//!
//! ## A blocked link delays only its own packets
//!
//! The kernel charges unsent bytes of a link to the sending socket, so packets for one link can use up the
//! buffer of the socket that all peers share (`socket/linked`).
//!
//! - All packets go through one socket while it has room.
//! - Each link gets its own sending socket at the same address if the main socket accepts no packet for 5 ms
//!   and routes (rtnetlink, `socket/links`) lead to peers through several devices. There are at most 8 such
//!   sockets; further links share the last one (`socket/link_sockets`).
//! - A link is stuck if its socket then accepts no packet for 5 ms (`socket/stall`). Packets for which there
//!   is no room are dropped and counted (`SendErrors::link_stuck`); RESEND recovers the loss, or the RPC
//!   fails. The link has recovered when its socket is half empty and has refused nothing for 100 ms. The
//!   sockets are closed when no link is stuck.
//! - Over UDP these sockets join the main socket's SO_REUSEPORT group, after the sockets that the steering
//!   program selects (`socket/steer`). A lone main socket gets a program that selects it; packets that arrive
//!   between binding the first link socket and attaching this program are lost. ICMP reports may reach any of
//!   the sockets, so all are read.
//! - poll(2) reports room in the main socket only. While there are link sockets, `Driver::shows_room` is
//!   false, and refused packets are offered again every millisecond.
//! - A host whose peers are all behind one device waits for that device indefinitely. So does a host that
//!   cannot open more sockets because it lacks descriptors or CAP_NET_RAW, or runs in a thread of another
//!   network namespace. A link that accepts a packet at least every 5 ms is not stuck, and delays the others.
//! - The drivers of a network device have only one link. They cannot reach peers behind another device, or
//!   loopback.
//!
//! ## Drivers of a network device
//!
//! `packet` and `xdp` share `l2`: its `Device` contains frame headers, neighbours, the state of the
//! interface, and the port. The kernel remains the machine's network stack: it resolves addresses and selects
//! routes (rtnetlink). A silent kernel socket holds the port. As a result, the kernel neither replies on our
//! behalf nor assigns the port to others, and the socket receives ICMP reports. On the wire these drivers are
//! UDP or raw IP, and peers may use any driver.
//!
//! - **A packet is copied once, from the ring into its message.** A burst refers to packets in the ring
//!   (`burst`, `FrameSource`). The frames return to the ring when the burst is cleared or dropped, before or
//!   after the driver is dropped. If a driver has spare frames, a packet may outlive its burst
//!   (`RxBurst::keep`). A packet ring has none, since the kernel reuses its frames in order.
//! - **The packet ring listens for all EtherTypes.** Sockets for all types receive a frame before the
//!   kernel's IP stack does, other sockets after it; the difference is a quarter of a round trip. The filter
//!   checks the EtherType and VLAN tags.
//! - **Sending uses sendmmsg, not a ring.** A transmit ring needs the same system call, and was slower. Just
//!   as `udp` passes several packets to the kernel as one datagram, `packet` passes them as one frame, which
//!   is segmented late (PACKET_VNET_HDR). The UDP checksum is always left to the kernel. AF_XDP rings have no
//!   such offload.
//! - **The XDP program is assembled at run time** (`homa-bpf`, `xdp/program`), and tests run it in the
//!   kernel. It is attached by a BPF link, which ends with the process. Frames of queues without a socket go
//!   to the kernel.
//! - **All queues of a device share their frames** (`xdp/umem`), so that no queue runs out of frames while
//!   another has plenty. There are as many frames as fill ring entries, plus those that may be held. The
//!   number of held frames is bounded, so the kernel always has frames to receive into, however slowly
//!   messages are read. At the bound, packets are copied.
//! - **`homa` copies; kept frames are for other users.** Keeping and returning a frame costs about 83 ns,
//!   half of it for the owner that `Bytes` allocates. Copying costs 40 ns for 1,400 bytes and 66 ns for
//!   3,000; no frame is longer than 3,840. For the same reason, packets below 512 bytes are copied
//!   immediately.
//! - **The `xdp` driver verifies checksums**, because no other layer has. Between the ends of a veth, the
//!   kernel leaves the checksum to a device that does not exist; such a packet contains the sum over its
//!   pseudo-header, which is accepted.

mod burst;
pub mod capture;
mod carrier;
mod driver;
mod ethtool;
mod exchange;
pub mod fault;
mod filter;
pub mod frames;
mod l2;
pub mod linux_udp;
#[cfg(test)]
mod memory;
pub mod netdev;
mod offload;
pub mod packet;
pub mod raw;
mod socket;
pub mod udp;
pub mod xdp;

pub use burst::{BURST_PACKETS, KeptFrame, PACKET_BUFFER_BYTES, RxBurst, RxBurstIter};
pub use carrier::{Carrier, LINUX_UDP_PORT, PROTOCOL_HOMA};
pub use driver::{
    BufferSizes, Driver, DriverStats, IN_PLACE_HEADER_BYTES, SendErrors, SentPacket, TxPacket,
    UnreachableReport, UnreachableTarget,
};
pub use ethtool::{Coalescing, DeviceSettings, device_settings};
pub use exchange::{Exchange, HandedPacket};
pub use filter::ReceiveFilter;
pub use l2::LinkError;
pub use offload::put_offloads_off;
