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
//! - [`netdev`]: no driver either, but names and state of network devices, and the XDP programs that they run.
//! - [`capture::PcapDriver`]: a wrapper that writes every packet to a capture that Wireshark opens.
//! - [`fault::FaultDriver`]: a wrapper that loses, doubles, reorders, corrupts and delays, by a seed.
//!
//! Drivers allocate when they are made and not per packet. They never wait: a caller that has nothing to do polls
//! [`Driver::poll_fd`].
//!
//! # Design
//!
//! A driver (`homa_driver::Driver`) takes and gives whole packets and knows nothing of RPCs. It never waits
//! and never fragments. What befalls one packet or one peer is counted and is a loss like any other; an error
//! means that the path itself is of no more use.
//!
//! Over UDP and over raw IP a driver is the same thing, a `socket::PacketSocket`: bursts, the blame for
//! errors, path MTUs and the reports of ICMP are written once. Raw IP adds what follows from sharing an
//! address: a receive filter (`raw/program`) that runs in the kernel and leaves each process its own ports,
//! and ICMP port unreachable for clients that know no other way to be told (`raw/icmp_report`). The filter is
//! a help and not a promise: what it lets through is told apart again above, so that it may lag behind the
//! ports, or be too long for the kernel and let everything through. Acknowledgements arrive with packets for
//! any port, so it gives every process the header of such packets and no more.
//!
//! **A link that takes nothing holds up its own packets only** (`socket/linked`). The kernel counts the bytes
//! that a link has not sent yet against the socket that they came by, so that one link can fill the socket of
//! all peers.
//!
//! - While there is room, all packets go by one socket, and nobody asks which link they take.
//! - Where that socket takes not one packet for 5 ms, and routes (rtnetlink, `socket/links`) lead to peers by
//!   several devices, each link gets a socket of its own at the same address, for sending only: at most 8,
//!   the last of which further links share (`socket/link_sockets`).
//! - A link whose socket then takes not one packet for 5 ms is stuck (`socket/stall`). Its packets that find
//!   no room are dropped and counted (`SendErrors::link_stuck`), as at any full queue: RESEND repairs that,
//!   or the RPC ends. It is free again when its socket is half empty and has refused nothing for 100 ms; when
//!   all are, the sockets are closed.
//! - Over UDP they join the main socket by SO_REUSEPORT, which it has for as long as they exist, and behind
//!   all that the program chooses from (`socket/steer`). A lone socket gets a program that chooses it; what
//!   comes between its first companion's bind and that is lost. A report of ICMP may reach any of them, so
//!   all are read.
//! - poll(2) shows room of the main socket only. While there are others, `Driver::shows_room` says so, and
//!   packets without room are offered again each millisecond.
//! - A host with peers behind one device waits for it, however long that takes. So does one that cannot open
//!   further sockets, for want of descriptors or of CAP_NET_RAW, or in a thread of another network namespace.
//!   A link that takes a packet at least every 5 ms is not stuck, and the others wait for it.
//! - The drivers of a network device have one link: they reach no peer behind another device, nor loopback.
//!
//! The drivers of a network device (`packet`, `xdp`) share `homa-driver/l2`: a `Device` has the frames'
//! headers, the neighbours, the state of the interface, and the port. The kernel stays the machine's network
//! stack: it resolves addresses and chooses routes, and is asked (rtnetlink); a silent socket of it holds the
//! port, so that it neither answers for us nor gives the port away, and gets what ICMP reports. The wire is
//! that of UDP or of raw IP, and a peer may use any driver of it.
//!
//! - **A packet in a ring is copied once, into its message.** A burst has packets where the ring has them
//!   (`burst`, `FrameSource`), and the frames go back when it is cleared or dropped, whoever is dropped
//!   first. Where a driver has frames to spare a packet may be taken out of its burst for longer
//!   (`RxBurst::keep`); a packet ring has none, since the kernel uses its frames in their order.
//! - **The packet ring listens for all EtherTypes.** Such sockets get a frame before the kernel's own stack
//!   does and others after it, which is a quarter of a round trip. The filter looks at what the EtherType
//!   would have sorted out, and at VLAN tags.
//! - **Sending by sendmmsg, not by a ring.** A transmit ring takes the same system call, and was slower.
//!   Packets that `udp` would give the kernel as one datagram to be cut late, the packet ring's driver gives
//!   it as one frame to be cut late (PACKET_VNET_HDR), and the checksum of UDP is always left to the kernel.
//!   A ring of frames has no such thing, so that `xdp` has none.
//! - **The XDP program is assembled at run time** (`homa-bpf`, `xdp/program`), and its tests run it in the
//!   kernel. A link attaches it, which goes with the process. Frames of a queue without a socket stay with
//!   the kernel.
//! - **All queues of a device share their frames** (`xdp/umem`): one pool has no queue that runs dry beside
//!   another that has plenty. There are as many frames as the fill rings have places, and beside them those
//!   that may be held; what is held is bounded by that, so that the kernel always has frames to receive into,
//!   however slowly messages are read. At the bound packets are copied.
//! - **Kept frames are for users of the driver; `homa` copies.** To keep a frame and give it back costs some
//!   83 ns, of which half is the owner that a `Bytes` allocates; copying costs 40 ns for 1,400 bytes and 66
//!   ns for 3,000, and no frame is longer than 3,840. For the same reason packets under 512 bytes are copied
//!   out of their frames at once.
//! - **Checksums of what comes by XDP** are looked at here, since nobody else has. Between the ends of a veth
//!   the kernel leaves them to a device that is not there; such a packet has the sum over its pseudo-header,
//!   and that passes too.

mod burst;
pub mod capture;
mod driver;
mod ethtool;
pub mod fault;
mod filter;
pub mod frames;
mod l2;
#[cfg(test)]
mod memory;
pub mod netdev;
mod offload;
pub mod packet;
pub mod raw;
mod socket;
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
