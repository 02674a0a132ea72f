//! The program that a device runs on every frame. It redirects this driver's frames to the socket of their
//! receive queue; all other frames continue into the kernel as if there were no program. If several sockets
//! share a queue, a frame goes to the socket that owns its RPC.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use homa_bpf::assembler::Register::{R0, R1, R2, R3, R6, R7, R8};
use homa_bpf::assembler::{Assembler, Instruction, Label, Width};
use homa_bpf::frame::{
    ETHER_BYTES, ETHER_TYPE, IPV4_BYTES, IPV4_FRAGMENT, IPV4_PLAIN, IPV6_BYTES, UDP_BYTES, loaded_u16, need,
};
use homa_bpf::program::{self, AttachPoint};
use homa_bpf::xdp::{REDIRECT_MAP, XDP_PASS, context};
use homa_bpf::{Name, map};

use crate::carrier::Carrier;
use crate::carrier::PROTOCOL_HOMA;
use crate::l2::device::Device;

/// Name of the program and of its map.
const NAME: Name = Name::new("homa_to_sockets");

/// Offset of the lower half of `sender_id` in a Homa packet, four bytes in network order.
const ID_LOW: i16 = 24;
/// Offset of the destination port in a UDP header.
const UDP_TO: i16 = 2;

/// The addresses and the port whose packets this driver receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalAddresses {
    /// The UDP port, or `None` for packets directly over IP.
    pub(super) udp_port: Option<u16>,
    /// The addresses of this driver.
    pub(super) ips: Vec<IpAddr>,
    /// Number of sockets per queue that share the packets.
    pub(super) sockets: u32,
}

impl LocalAddresses {
    /// Returns the addresses and port of `sockets` drivers on a device.
    pub(super) fn of(device: &Device, sockets: u32) -> LocalAddresses {
        let local = device.local();
        let udp_port = (device.carrier() == Carrier::Udp).then_some(local.port());
        LocalAddresses { udp_port, ips: vec![local.ip()], sockets }
    }

    fn protocol(&self) -> u32 {
        match self.udp_port {
            Some(_) => libc::IPPROTO_UDP as u32,
            None => u32::from(PROTOCOL_HOMA),
        }
    }

    /// Returns the number of bytes after the IP header that the program must read.
    fn behind_ip(&self) -> i16 {
        if self.udp_port.is_some() { UDP_BYTES } else { 0 }
    }
}

/// Returns the map index of the socket with this number in a queue.
pub(super) fn place_of(queue: u32, socket: u32, sockets: u32) -> u32 {
    queue * sockets + socket
}

/// Creates a map from indices below `places` to AF_XDP sockets.
pub(super) fn sockets(places: u32) -> io::Result<OwnedFd> {
    map::create(map::MapKind::Sockets, NAME, size_of::<libc::c_int>(), places)
}

/// Loads the program into the kernel.
pub(super) fn load(code: &[Instruction]) -> io::Result<OwnedFd> {
    program::load(NAME, code, AttachPoint::Device)
}

/// Builds the program for a map of sockets indexed by [`place_of`]. A frame without a matching socket goes to
/// the kernel.
pub(super) fn build(ours: &LocalAddresses, map: i32) -> Vec<Instruction> {
    assemble(ours, |program| {
        choose(program, ours.sockets);
        program.load_map(R1, map);
        // The helper returns the low bits of the flags if there is no socket.
        program.set(R3, XDP_PASS);
        program.call(REDIRECT_MAP);
    })
}

/// Computes the map index of the frame's socket into R2. The socket's number in its queue is (lower 32 bits
/// of the RPC ID / 2) modulo the number of sockets; R3 contains the lower 32 bits.
fn choose(program: &mut Assembler, sockets: u32) {
    program.load(Width::Four, R2, R6, context::QUEUE);
    if sockets > 1 {
        program.read_network_order(R3);
        program.shift_right(R3, 1);
        program.modulo(R3, sockets);
        program.multiply(R2, sockets);
        program.add_register(R2, R3);
    }
}

/// Builds the program that redirects every frame to the socket of its receive queue.
pub(super) fn redirect_all(map: i32) -> Vec<Instruction> {
    let mut program = Assembler::default();
    program.load(Width::Four, R2, R1, context::QUEUE);
    program.load_map(R1, map);
    program.set(R3, XDP_PASS);
    program.call(REDIRECT_MAP);
    program.exit();
    program.finish()
}

/// Builds a program that runs the code of `take`, which sets R0, for this driver's frames, and returns
/// [`XDP_PASS`] for others. R6 contains the context. If there are several sockets, R3 contains the lower half
/// of the RPC ID in network order, or 0 if the packet is too short.
fn assemble(ours: &LocalAddresses, take: impl FnOnce(&mut Assembler)) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let [is_v4, is_v6, is_ours, pass] = std::array::from_fn(|_| program.label());
    program.copy(R6, R1);
    program.load(Width::Four, R7, R6, context::DATA);
    program.load(Width::Four, R8, R6, context::DATA_END);
    need(&mut program, ETHER_BYTES, pass);
    program.load(Width::Two, R1, R7, ETHER_TYPE);
    program.jump_if(R1, loaded_u16(libc::ETH_P_IP as u16), is_v4);
    program.jump_if(R1, loaded_u16(libc::ETH_P_IPV6 as u16), is_v6);
    program.jump(pass);
    program.place(is_v4);
    classify_v4(&mut program, ours, is_ours, pass);
    program.place(is_v6);
    classify_v6(&mut program, ours, is_ours, pass);
    program.place(is_ours);
    take(&mut program);
    program.exit();
    program.place(pass);
    program.set(R0, XDP_PASS);
    program.exit();
    program.finish()
}

fn classify_v4(program: &mut Assembler, ours: &LocalAddresses, is_ours: Label, pass: Label) {
    let behind = ETHER_BYTES + IPV4_BYTES;
    need(program, behind + ours.behind_ip(), pass);
    program.load(Width::One, R1, R7, ETHER_BYTES);
    program.jump_unless(R1, IPV4_PLAIN, pass);
    program.load(Width::Two, R1, R7, ETHER_BYTES + 6);
    program.and(R1, loaded_u16(IPV4_FRAGMENT));
    program.jump_unless(R1, 0, pass);
    program.load(Width::One, R1, R7, ETHER_BYTES + 9);
    program.jump_unless(R1, ours.protocol(), pass);
    check_port(program, ours, behind, pass);
    load_id(program, ours, behind + ours.behind_ip());
    program.load(Width::Four, R1, R7, ETHER_BYTES + 16);
    for ip in &ours.ips {
        if let IpAddr::V4(ip) = ip {
            program.jump_if(R1, u32::from_ne_bytes(ip.octets()), is_ours);
        }
    }
    program.jump(pass);
}

fn classify_v6(program: &mut Assembler, ours: &LocalAddresses, is_ours: Label, pass: Label) {
    let behind = ETHER_BYTES + IPV6_BYTES;
    need(program, behind + ours.behind_ip(), pass);
    program.load(Width::One, R1, R7, ETHER_BYTES + 6);
    program.jump_unless(R1, ours.protocol(), pass);
    check_port(program, ours, behind, pass);
    load_id(program, ours, behind + ours.behind_ip());
    for ip in &ours.ips {
        let IpAddr::V6(ip) = ip else { continue };
        let other = program.label();
        let octets = ip.octets();
        let (words, _) = octets.as_chunks::<4>();
        for (i, word) in words.iter().enumerate() {
            program.load(Width::Four, R1, R7, ETHER_BYTES + 24 + 4 * i as i16);
            program.jump_unless(R1, u32::from_ne_bytes(*word), other);
        }
        program.jump(is_ours);
        program.place(other);
    }
    program.jump(pass);
}

/// If there are several sockets, loads the lower half of the RPC ID of the Homa packet at this offset into
/// R3.
fn load_id(program: &mut Assembler, ours: &LocalAddresses, homa: i16) {
    if ours.sockets > 1 {
        let short = program.label();
        program.set(R3, 0);
        need(program, homa + ID_LOW + 4, short);
        program.load(Width::Four, R3, R7, homa + ID_LOW);
        program.place(short);
    }
}

/// Jumps to `pass` unless the UDP header at this offset has this driver's destination port.
fn check_port(program: &mut Assembler, ours: &LocalAddresses, behind_ip: i16, pass: Label) {
    if let Some(port) = ours.udp_port {
        program.load(Width::Two, R1, R7, behind_ip + UDP_TO);
        program.jump_unless(R1, loaded_u16(port), pass);
    }
}

#[cfg(test)]
mod tests;
