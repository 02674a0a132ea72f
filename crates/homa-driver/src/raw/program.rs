//! The receive filter as a classic BPF program (SO_ATTACH_FILTER).
//!
//! The program sees an IPv4 packet from its IP header on, including options, and an IPv6 packet from its Homa
//! header on. It returns how many of those bytes the socket gets; 0 drops the packet.

use homa_bpf::classic::{
    A_FROM_X, ADD_NUMBER, IF_AT_LEAST, IF_EQUAL, INSTRUCTIONS_MAX, Instruction, JUMP, LOAD_BYTE_X,
    LOAD_HALF_X, LOAD_LENGTH, LOAD_WORD_X, MODULO, RETURN_A, RETURN_NUMBER, SHIFT_RIGHT, SUBTRACT_X,
    X_HEADER, X_NUMBER, plain,
};

use crate::filter::{DESTINATION_PORT_AT, ReceiveFilter};

/// Longer than any packet.
const WHOLE: u32 = 0x4_0000;

/// Length of a common header. A shorter packet is not a Homa packet.
const COMMON_HEADER_BYTES: u32 = 28;
/// Length of a DATA header.
const DATA_HEADER_BYTES: u32 = 56;
/// Offset of the packet type, one byte.
const TYPE_AT: u32 = 11;
/// Offset of the client ID in the ack field of DATA, eight bytes.
const ACK_AT: u32 = 36;
const DATA: u32 = 0x10;
/// CUTOFFS, FREEZE and ACK, which concern the whole host regardless of their port.
const FOR_ALL: [u32; 3] = [0x15, 0x16, 0x18];

/// Offset of the lower half of `sender_id` in a Homa packet, four bytes in network order.
pub(crate) const ID_LOW_AT: u32 = 24;

/// The index of one socket among several sockets of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketIndex {
    /// Less than `of`.
    pub(crate) number: u32,
    pub(crate) of: u32,
}

/// Returns the start of a program for packets with or without an IPv4 header. It sets X to the offset of the
/// Homa packet and drops packets of RPCs that belong to another socket. Packets too short to have an ID
/// belong to the first socket.
fn begin(ipv4: bool, turn: SocketIndex) -> Vec<Instruction> {
    let mut program = vec![if ipv4 { plain(X_HEADER, 0) } else { plain(X_NUMBER, 0) }];
    if turn.of == 1 {
        return program;
    }
    let by_id = [
        // Loading beyond the end of the packet drops the packet.
        plain(LOAD_WORD_X, ID_LOW_AT),
        plain(SHIFT_RIGHT, 1),
        plain(MODULO, turn.of),
        Instruction { code: IF_EQUAL, if_true: 1, if_false: 0, k: turn.number },
        plain(RETURN_NUMBER, 0),
    ];
    if turn.number == 0 {
        program.extend([
            plain(LOAD_LENGTH, 0),
            plain(SUBTRACT_X, 0),
            Instruction {
                code: IF_AT_LEAST,
                if_true: 0,
                if_false: by_id.len() as u8,
                k: COMMON_HEADER_BYTES,
            },
        ]);
    }
    program.extend(by_id);
    program
}

/// Returns the program that passes every packet that belongs to this socket.
pub(crate) fn pass_own(ipv4: bool, turn: SocketIndex) -> Vec<Instruction> {
    let mut program = if turn.of > 1 { begin(ipv4, turn) } else { Vec::new() };
    program.push(plain(RETURN_NUMBER, WHOLE));
    program
}

/// What the program does with a packet, by its destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortAction {
    /// The socket gets all of it.
    Whole,
    /// The port belongs to another process: the socket gets the header if it contains an acknowledgement.
    Others,
}

/// The first port of a range, and the action for the range, which ends before the next one.
type PortRange = (u16, PortAction);

/// Returns the program for a filter. `ipv4` is whether packets begin with an IPv4 header, and `turn` is the
/// socket's index among several. If the ports form so many ranges that the program would be too long (about
/// 680 ports with gaps between them), it passes every packet. The receiver then filters by
/// [`ReceiveFilter::accepts`].
pub(crate) fn build(filter: &ReceiveFilter, ipv4: bool, turn: SocketIndex) -> Vec<Instruction> {
    choose_by_port(begin(ipv4, turn), filter).unwrap_or_else(|| pass_own(ipv4, turn))
}

/// Extends a program that leaves the offset of the Homa packet in X. `None` if the program would be too long.
pub(crate) fn choose_by_port(
    mut program: Vec<Instruction>,
    filter: &ReceiveFilter,
) -> Option<Vec<Instruction>> {
    let no_homa = if filter.others().is_some() { WHOLE } else { 0 };
    program.extend([
        plain(LOAD_LENGTH, 0),
        plain(SUBTRACT_X, 0),
        Instruction { code: IF_AT_LEAST, if_true: 1, if_false: 0, k: COMMON_HEADER_BYTES },
        plain(RETURN_NUMBER, no_homa),
        plain(LOAD_BYTE_X, TYPE_AT),
    ]);
    for packet_type in FOR_ALL {
        program.push(Instruction { code: IF_EQUAL, if_true: 0, if_false: 1, k: packet_type });
        program.push(plain(RETURN_NUMBER, WHOLE));
    }
    program.push(plain(LOAD_HALF_X, DESTINATION_PORT_AT as u32));
    let mut leaves = Vec::new();
    choose(&port_ranges(filter), &mut program, &mut leaves);
    let others = program.len();
    program.extend([
        plain(LOAD_BYTE_X, TYPE_AT),
        Instruction { code: IF_EQUAL, if_true: 1, if_false: 0, k: DATA },
        plain(RETURN_NUMBER, 0),
        plain(LOAD_WORD_X, ACK_AT),
        Instruction { code: IF_EQUAL, if_true: 0, if_false: 2, k: 0 },
        plain(LOAD_WORD_X, ACK_AT + 4),
        Instruction { code: IF_EQUAL, if_true: 3, if_false: 0, k: 0 },
        plain(A_FROM_X, 0),
        plain(ADD_NUMBER, DATA_HEADER_BYTES),
        plain(RETURN_A, 0),
        plain(RETURN_NUMBER, 0),
    ]);
    let whole = program.len();
    program.push(plain(RETURN_NUMBER, WHOLE));
    if program.len() > INSTRUCTIONS_MAX {
        return None;
    }
    for (at, class) in leaves {
        let target = if class == PortAction::Whole { whole } else { others };
        program[at].k = (target - at - 1) as u32;
    }
    Some(program)
}

/// Returns all ports as ascending ranges with one action each, starting at port 0.
fn port_ranges(filter: &ReceiveFilter) -> Vec<PortRange> {
    let (ports, rest, listed) = match filter.others() {
        // Everything except the ports of other processes, but our own ports in any case.
        Some(others) => (others, PortAction::Whole, PortAction::Others),
        None => (filter.ports(), PortAction::Others, PortAction::Whole),
    };
    let own = |port: &u16| filter.others().is_none() || filter.ports().binary_search(port).is_err();
    let mut stretches = vec![(0, rest)];
    for &port in ports.iter().filter(|port| own(port)) {
        match stretches.last_mut() {
            // The previous range ended just before this one.
            Some(last) if last.0 == port => last.1 = listed,
            _ => stretches.push((port, listed)),
        }
        if let Some(behind) = port.checked_add(1) {
            stretches.push((behind, rest));
        }
    }
    stretches.dedup_by_key(|stretch| stretch.1);
    stretches
}

/// Appends a binary search for A among the ranges. Each path ends in a jump for the action. The jumps are
/// recorded in `leaves`; their targets follow the whole search.
fn choose(stretches: &[PortRange], program: &mut Vec<Instruction>, leaves: &mut Vec<(usize, PortAction)>) {
    if let [(_, class)] = stretches {
        leaves.push((program.len(), *class));
        program.push(plain(JUMP, 0));
        return;
    }
    let (low, high) = stretches.split_at(stretches.len() / 2);
    // The distance to the upper half may exceed the range of a conditional jump.
    program.push(Instruction { code: IF_AT_LEAST, if_true: 0, if_false: 1, k: high[0].0.into() });
    let jump = program.len();
    program.push(plain(JUMP, 0));
    choose(low, program, leaves);
    program[jump].k = (program.len() - jump - 1) as u32;
    choose(high, program, leaves);
}

#[cfg(test)]
mod tests;
