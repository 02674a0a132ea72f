//! Several sockets at one address (SO_REUSEPORT), and the program by which the kernel chooses one of them for a packet.
//!
//! The program goes by the RPC id, so that all packets of an RPC come to the same socket, in both directions and from any peer.
//! It is classic BPF, which takes no privilege and no compiler. The kernel numbers the sockets in the order in which they were
//! bound, and a program that reads beyond a short packet returns 0, which is a socket as good as any for what is no packet.

use std::io;
use std::os::fd::BorrowedFd;

use socket2::SockFilter;

use super::option;

/// Offset of the lower half of `sender_id` in a Homa packet, four bytes in network order.
const ID_LOW_AT: u32 = 24;

/// The number of the socket for the RPC: half of the lower 32 bits of its id, modulo the number of sockets. Bit 0 of an id is
/// the direction.
fn program(sockets: u32) -> [SockFilter; 4] {
    let plain = |code: u32, k: u32| SockFilter::new(code as u16, 0, 0, k);
    [
        plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, ID_LOW_AT),
        plain(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 1),
        plain(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, sockets),
        plain(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

/// Has the kernel choose among the `sockets` sockets at this one's address. They are bound, and it is one of them.
pub(super) fn attach(fd: BorrowedFd<'_>, sockets: u32) -> io::Result<()> {
    option::set_program(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program(sockets))
}
