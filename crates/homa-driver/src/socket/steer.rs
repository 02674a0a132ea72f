//! Several sockets at one address (SO_REUSEPORT), and the program with which the kernel selects a socket for
//! a packet.
//!
//! The program selects by the RPC ID, so that all packets of an RPC go to the same socket, in both directions
//! and from any peer. It is classic BPF, which needs no privilege and no compiler. The kernel numbers the
//! sockets in the order in which they were bound. A program that reads beyond the end of a short packet
//! returns 0; this is acceptable, because a packet too short to be valid may go to any socket.

use std::io;
use std::os::fd::BorrowedFd;

use homa_bpf::classic::{self, Instruction, LOAD_WORD, MODULO, Purpose, RETURN_A, SHIFT_RIGHT, plain};

/// Offset of the lower half of `sender_id` in a Homa packet, four bytes in network order.
const ID_LOW_AT: u32 = 24;

/// Builds a program that returns the index of the socket for an RPC: (lower 32 bits of its ID / 2) modulo the
/// number of sockets. Bit 0 of an ID is the direction.
fn program(sockets: u32) -> [Instruction; 4] {
    [plain(LOAD_WORD, ID_LOW_AT), plain(SHIFT_RIGHT, 1), plain(MODULO, sockets), plain(RETURN_A, 0)]
}

/// Makes the kernel select among the `sockets` sockets at the address of `fd`. All of them are bound; `fd` is
/// one of them.
pub(super) fn attach(fd: BorrowedFd<'_>, sockets: u32) -> io::Result<()> {
    classic::attach(fd, Purpose::ReusePort, &program(sockets))
}
