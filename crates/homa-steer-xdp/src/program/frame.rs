//! Classification of a frame: whether it is steered, and its hash, which equals that of `homa_steer::hash`.

use homa_bpf::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use homa_bpf::assembler::{Assembler, Label, Register, Width};
use homa_bpf::frame::{
    ETHER_BYTES, ETHER_TYPE, IPV4_BYTES, IPV4_FRAGMENT, IPV4_PLAIN, IPV6_BYTES, UDP_BYTES, VLAN_BYTES,
    VLAN_TYPES, loaded_u16, need,
};
use homa_bpf::xdp::context;
use homa_driver::PROTOCOL_HOMA;
use homa_steer::hash::{LAST_FACTORS, LAST_SHIFTS, WORD_FACTOR, WORD_SHIFT};
use homa_steer::{PolicyName, Reason};

use crate::config::SteerConfig;

/// Maximum number of VLAN tags that are skipped: the network's own tag, and the provider's tag in front of
/// it.
const MOST_TAGS: usize = 2;
/// Offset of the RPC ID in a Homa packet, eight bytes in network order.
const RPC_ID: i16 = 20;
/// Mask of the ID's lower half without bit 0, if its first byte is the lowest.
const NOT_BIT_0: u32 = 0xfeff_ffff;

/// Begins the program. At `steered`, R6 is the context, R7 the hash, and R9 the kind of hash, as a
/// [`Reason`].
pub(super) fn classify(program: &mut Assembler, config: &SteerConfig, steered: Label, pass: Label) {
    let (v4, v6) = (program.label(), program.label());
    program.copy(R6, R1);
    program.load(Width::Four, R7, R6, context::DATA);
    program.load(Width::Four, R8, R6, context::DATA_END);
    for tags in 0..=MOST_TAGS {
        let tagged = program.label();
        need(program, ETHER_BYTES, pass);
        program.load(Width::Two, R1, R7, ETHER_TYPE);
        program.jump_if(R1, loaded_u16(libc::ETH_P_IP as u16), v4);
        program.jump_if(R1, loaded_u16(libc::ETH_P_IPV6 as u16), v6);
        if tags == MOST_TAGS {
            program.jump(pass);
            break;
        }
        VLAN_TYPES.into_iter().for_each(|tag| program.jump_if(R1, loaded_u16(tag), tagged));
        program.jump(pass);
        program.place(tagged);
        // The rest of the frame is then at the same offsets as without the tag.
        program.add(R7, VLAN_BYTES as u32);
    }
    program.place(v4);
    ipv4(program, config, steered, pass);
    program.place(v6);
    ipv6(program, config, steered, pass);
}

fn ipv4(program: &mut Assembler, config: &SteerConfig, steered: Label, pass: Label) {
    let behind = ETHER_BYTES + IPV4_BYTES;
    need(program, behind, pass);
    program.load(Width::One, R1, R7, ETHER_BYTES);
    program.and(R1, 0xf0);
    program.jump_unless(R1, 0x40, pass);
    program.load(Width::One, R4, R7, ETHER_BYTES + 9);
    program.set_32(R3, config.settings.hash_seed);
    for address in [12, 16] {
        mix_word(program, ETHER_BYTES + address);
    }
    let part = Transport { config, at: behind, steered, pass, flow: program.label() };
    program.set(R5, 0);
    program.set(R0, 0);
    // With options, and in fragments, the offset of the ports is unknown. Such a packet has no ports, and is
    // not a Homa packet.
    program.load(Width::One, R1, R7, ETHER_BYTES);
    program.jump_unless(R1, IPV4_PLAIN, part.flow);
    program.load(Width::Two, R1, R7, ETHER_BYTES + 6);
    program.and(R1, loaded_u16(IPV4_FRAGMENT));
    program.jump_unless(R1, 0, part.flow);
    part.look(program);
}

fn ipv6(program: &mut Assembler, config: &SteerConfig, steered: Label, pass: Label) {
    let behind = ETHER_BYTES + IPV6_BYTES;
    need(program, behind, pass);
    program.load(Width::One, R4, R7, ETHER_BYTES + 6);
    program.set_32(R3, config.settings.hash_seed);
    for word in 0..8 {
        mix_word(program, ETHER_BYTES + 8 + 4 * word);
    }
    let part = Transport { config, at: behind, steered, pass, flow: program.label() };
    program.set(R5, 0);
    program.set(R0, 0);
    part.look(program);
}

/// The part after the IP header. R3 is the hash so far, R4 the protocol, R5 the ports, and R0 whether the
/// packet is Homa over UDP.
struct Transport<'a> {
    config: &'a SteerConfig,
    /// Offset of this part in the frame.
    at: i16,
    steered: Label,
    pass: Label,
    /// Target for packets that are steered by flow.
    flow: Label,
}

impl Transport<'_> {
    fn look(&self, program: &mut Assembler) {
        let by_rpc = self.config.policy == PolicyName::HomaHash;
        let (ports, homa, over_udp) = (program.label(), program.label(), program.label());
        for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
            program.jump_if(R4, protocol as u32, ports);
        }
        if by_rpc {
            program.jump_if(R4, PROTOCOL_HOMA.into(), homa);
        }
        program.jump(self.flow);
        program.place(ports);
        need(program, self.at + 4, self.flow);
        program.load(Width::Four, R5, R7, self.at);
        if let Some(port) = self.config.homa_port {
            program.jump_unless(R4, libc::IPPROTO_UDP as u32, self.flow);
            for end in [0, 2] {
                program.load(Width::Two, R1, R7, self.at + end);
                program.jump_if(R1, loaded_u16(port), over_udp);
            }
            program.jump(self.flow);
            program.place(over_udp);
            program.set(R0, 1);
            if by_rpc {
                self.hash_rpc(program, self.at + UDP_BYTES);
            }
        }
        // The verifier rejects unreachable code. If all Homa packets over UDP are hashed, they have jumped
        // away by now.
        if !by_rpc || self.config.homa_port.is_none() {
            program.jump(self.flow);
        }
        program.place(homa);
        if by_rpc {
            self.hash_rpc(program, self.at);
        }
        program.place(self.flow);
        self.admit(program);
        mix(program, R5);
        mix(program, R4);
        self.finish(program, Reason::FlowHash);
    }

    /// Steers by the Homa packet at this offset, unless the packet is too short or the filter excludes it.
    fn hash_rpc(&self, program: &mut Assembler, at: i16) {
        need(program, at + RPC_ID + 8, self.flow);
        self.admit(program);
        program.set_32(R3, self.config.settings.hash_seed);
        mix_word(program, at);
        mix_word(program, at + RPC_ID);
        load_word(program, at + RPC_ID + 4);
        program.and(R1, NOT_BIT_0);
        mix(program, R1);
        self.finish(program, Reason::RpcHash);
    }

    /// Jumps to `pass` for packets that the filter excludes.
    fn admit(&self, program: &mut Assembler) {
        let filter = self.config.filter;
        if filter.all {
            return;
        }
        let admitted = program.label();
        if filter.homa {
            program.jump_if(R4, PROTOCOL_HOMA.into(), admitted);
            program.jump_if(R0, 1, admitted);
        }
        if filter.tcp {
            program.jump_if(R4, libc::IPPROTO_TCP as u32, admitted);
        }
        if filter.udp {
            program.jump_if(R4, libc::IPPROTO_UDP as u32, admitted);
        }
        program.jump(self.pass);
        program.place(admitted);
    }

    /// Completes the hash in R3.
    fn finish(&self, program: &mut Assembler, reason: Reason) {
        for (i, shift) in LAST_SHIFTS.into_iter().enumerate() {
            fold(program, shift);
            if let Some(&factor) = LAST_FACTORS.get(i) {
                program.multiply_32(R3, factor);
            }
        }
        program.copy(R7, R3);
        program.set(R9, reason as u32);
        program.jump(self.steered);
    }
}

/// Loads the word of the frame at this offset into R1.
fn load_word(program: &mut Assembler, at: i16) {
    program.load(Width::Four, R1, R7, at);
    program.read_lowest_first(R1);
}

/// Adds the word of the frame at this offset to the hash in R3.
fn mix_word(program: &mut Assembler, at: i16) {
    load_word(program, at);
    mix(program, R1);
}

/// Adds a word to the hash in R3. Overwrites R2.
fn mix(program: &mut Assembler, word: Register) {
    program.xor_register_32(R3, word);
    program.multiply_32(R3, WORD_FACTOR);
    fold(program, WORD_SHIFT);
}

/// Appends `R3 ^= R3 >> bits`, which overwrites R2.
fn fold(program: &mut Assembler, bits: u32) {
    program.copy(R2, R3);
    program.shift_right(R2, bits);
    program.xor_register_32(R3, R2);
}
