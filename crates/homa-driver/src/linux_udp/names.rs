//! Unix sockets through which the processes of one user reach each other.
//!
//! Their names are abstract: they belong to the network namespace, as the UDP port does, and disappear with
//! their process. Anybody can take a name, so a listener takes the first free name of several, and both sides
//! check the user of the other side.

use std::io;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

/// Maximum number of connections that wait to be accepted. Each process opens one to each other process.
const BACKLOG: i32 = 128;

/// Returns name `number` of several names with the same meaning.
fn address(prefix: &str, number: u32) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{prefix}/{number}"))
}

/// Opens a non-blocking socket that preserves message boundaries.
fn socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::SEQPACKET.nonblocking().cloexec(), None)
}

/// Listens at the first free name of `count` names.
pub(super) fn listen(prefix: &str, count: u32) -> io::Result<Socket> {
    let socket = socket()?;
    for number in 0..count {
        match socket.bind(&address(prefix, number)?) {
            Ok(()) => {
                socket.listen(BACKLOG)?;
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Returns connections to the trusted listeners at these `count` names.
pub(super) fn connect_all(prefix: &str, count: u32) -> Vec<Socket> {
    (0..count).filter_map(|number| connect(&address(prefix, number).ok()?)).collect()
}

/// Returns a connection to the first trusted listener at these `count` names.
pub(super) fn connect_first(prefix: &str, count: u32) -> Option<Socket> {
    (0..count).find_map(|number| connect(&address(prefix, number).ok()?))
}

fn connect(address: &SockAddr) -> Option<Socket> {
    let socket = socket().ok()?;
    socket.connect(address).ok()?;
    is_trusted(&socket).then_some(socket)
}

/// Whether the process at the other end runs as this user or as root.
pub(super) fn is_trusted(socket: &Socket) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == geteuid() || peer.uid.is_root())
}
