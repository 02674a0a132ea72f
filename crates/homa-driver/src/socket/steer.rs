//! Several sockets at one address (SO_REUSEPORT), and the program by which the kernel chooses one of them for a packet.
//!
//! The program goes by the RPC id, so that all packets of an RPC come to the same socket, in both directions and from any peer.
//! It is classic BPF, which takes no privilege and no compiler. The kernel numbers the sockets in the order in which they were
//! bound, and a program that reads beyond a short packet returns 0, which is a socket as good as any for what is no packet.

use std::io;
use std::os::fd::BorrowedFd;

use homa_bpf::classic::{self, Instruction, LOAD_WORD, MODULO, Purpose, RETURN_A, SHIFT_RIGHT, plain};

/// Offset of the lower half of `sender_id` in a Homa packet, four bytes in network order.
const ID_LOW_AT: u32 = 24;

/// The number of the socket for the RPC: half of the lower 32 bits of its id, modulo the number of sockets. Bit 0 of an id is
/// the direction.
fn program(sockets: u32) -> [Instruction; 4] {
    [plain(LOAD_WORD, ID_LOW_AT), plain(SHIFT_RIGHT, 1), plain(MODULO, sockets), plain(RETURN_A, 0)]
}

/// Has the kernel choose among the `sockets` sockets at this one's address. They are bound, and it is one of them.
pub(super) fn attach(fd: BorrowedFd<'_>, sockets: u32) -> io::Result<()> {
    classic::attach(fd, Purpose::ReusePort, &program(sockets))
}
