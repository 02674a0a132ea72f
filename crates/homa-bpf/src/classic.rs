//! Classic BPF programs, which can be attached to sockets without any privilege. Such a program filters what
//! a socket receives, or selects one of several sockets. The kernel documents the instruction set in
//! `Documentation/networking/filter.rst`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A single instruction. The virtual machine has two registers, A and X. The operand of a jump is the number
/// of instructions to skip; for conditional jumps it has 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation: one of the constants in this module.
    pub code: u16,
    /// Number of instructions to skip if the condition holds.
    pub if_true: u8,
    /// Number of instructions to skip if the condition does not hold.
    pub if_false: u8,
    /// Operand.
    pub k: u32,
}

const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());

/// Creates an instruction that is not a conditional jump.
#[must_use]
pub const fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, k }
}

/// Maximum number of instructions in a program (BPF_MAXINSNS).
pub const INSTRUCTIONS_MAX: usize = 4_096;

/// Loads a byte of the packet into A, from offset k.
pub const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
/// Loads two bytes in network order into A, from offset k.
pub const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
/// Loads four bytes in network order into A, from offset k.
pub const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
/// Like [`LOAD_BYTE`], from offset X + k.
pub const LOAD_BYTE_X: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_IND) as u16;
/// Like [`LOAD_HALF`], from offset X + k.
pub const LOAD_HALF_X: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_IND) as u16;
/// Like [`LOAD_WORD`], from offset X + k.
pub const LOAD_WORD_X: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_IND) as u16;
/// Loads the packet's length into A.
pub const LOAD_LENGTH: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
/// Loads the length of the IPv4 header at offset k into X.
pub const X_HEADER: u16 = (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH) as u16;
/// Loads k into X.
pub const X_NUMBER: u16 = (libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM) as u16;
/// `X = A`.
pub const X_FROM_A: u16 = (libc::BPF_MISC | libc::BPF_TAX) as u16;
/// `A = X`.
pub const A_FROM_X: u16 = (libc::BPF_MISC | libc::BPF_TXA) as u16;
/// `A >>= k`.
pub const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
/// `A %= k`.
pub const MODULO: u16 = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
/// `A -= X`.
pub const SUBTRACT_X: u16 = (libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X) as u16;
/// `A += k`.
pub const ADD_NUMBER: u16 = (libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K) as u16;
/// Skips k instructions.
pub const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
/// Condition: A equals k.
pub const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
/// Condition: A is at least k.
pub const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
/// Condition: A and k have a bit in common.
pub const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
/// Ends the program with the result k.
pub const RETURN_NUMBER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Ends the program with the result A.
pub const RETURN_A: u16 = (libc::BPF_RET | libc::BPF_A) as u16;

/// The filter that drops every packet.
pub const DROP_ALL: [Instruction; 1] = [plain(RETURN_NUMBER, 0)];

/// What a socket uses a program for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The result is the number of bytes of a packet that the socket receives; 0 means that the socket does
    /// not receive the packet (SO_ATTACH_FILTER).
    Filter,
    /// The result is the index of the socket that receives a packet, among the sockets at one address
    /// (SO_ATTACH_REUSEPORT_CBPF).
    ReusePort,
    /// The result is the index of the packet socket in a group that receives a frame (PACKET_FANOUT_DATA).
    Fanout,
}

impl Purpose {
    /// Returns the level and name of the socket option.
    fn option(self) -> (libc::c_int, libc::c_int) {
        match self {
            Purpose::Filter => (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            Purpose::ReusePort => (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF),
            Purpose::Fanout => (libc::SOL_PACKET, libc::PACKET_FANOUT_DATA),
        }
    }
}

const PADDING_BYTES: usize = size_of::<*const Instruction>() - size_of::<libc::c_ushort>();

/// The kernel's `sock_fprog`. Its padding is an explicit field, because the kernel also copies the padding,
/// and valgrind reports uninitialized bytes as an error.
#[repr(C)]
struct Program {
    length: libc::c_ushort,
    padding: [u8; PADDING_BYTES],
    instructions: *const Instruction,
}

const _: () = assert!(size_of::<Program>() == size_of::<libc::sock_fprog>());

/// Attaches a program to a socket, replacing any earlier program for this purpose.
///
/// # Errors
/// The error of the kernel: EINVAL if it refuses the program, ENOMEM if the program is longer than
/// `net.core.optmem_max` allows.
pub fn attach(socket: impl AsFd, purpose: Purpose, program: &[Instruction]) -> io::Result<()> {
    let Ok(length) = libc::c_ushort::try_from(program.len()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let value = Program { length, padding: [0; PADDING_BYTES], instructions: program.as_ptr() };
    let (level, name) = purpose.option();
    let bytes = size_of::<Program>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed. The kernel reads `bytes` bytes of `value`, which
    // is that long, and through `value` it reads `length` instructions of `program`, which outlives the call.
    // The kernel keeps a copy and writes to neither.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), bytes)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_filter_chooses_what_a_socket_receives() {
        let [from, to] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        to.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The filter of a UDP socket sees packets from their UDP header on.
        let wanted = [
            plain(LOAD_BYTE, 8),
            Instruction { code: IF_EQUAL, if_true: 0, if_false: 1, k: u32::from(b'y') },
            plain(RETURN_NUMBER, u32::MAX),
            plain(RETURN_NUMBER, 0),
        ];
        attach(&to, Purpose::Filter, &wanted).unwrap();
        for bytes in [b"no1", b"yes", b"no2"] {
            from.send_to(bytes, to.local_addr().unwrap()).unwrap();
        }
        let mut bytes = [0; 8];
        assert_eq!(to.recv(&mut bytes).unwrap(), 3);
        assert_eq!(&bytes[..3], b"yes");
        to.set_nonblocking(true).unwrap();
        assert_eq!(to.recv(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_program_without_an_end_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for program in [&[][..], &[plain(LOAD_BYTE, 0)], &vec![plain(JUMP, 0); 1 << 17]] {
            let error = attach(&socket, Purpose::Filter, program).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
