//! Promiscuous mode of a device, in which it also accepts frames for other hosts.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Socket, Type};

use super::FramesError;
use crate::l2::interface::NamedInterface;

/// Keeps a device in promiscuous mode until dropped. The kernel counts the requests for this mode.
#[derive(Debug)]
pub(super) struct Promiscuous(
    #[expect(dead_code, reason = "it is asked for as long as the socket is open")] Socket,
);

impl Promiscuous {
    pub(super) fn enable(device: &NamedInterface) -> Result<Promiscuous, FramesError> {
        join(device.index).map(Promiscuous).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                FramesError::NoPrivilege { name: device.name.clone(), what: "the capability CAP_NET_RAW" }
            }
            _ => FramesError::System { name: device.name.clone(), step: "asking for all frames", source },
        })
    }
}

fn join(device: u32) -> io::Result<Socket> {
    // A socket without a protocol receives nothing.
    let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec(), None)?;
    let request = libc::packet_mreq {
        mr_ifindex: device as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let length = size_of::<libc::packet_mreq>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads `length` bytes of the structure, which is its
    // size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            length,
        )
    };
    if result == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
