//! An AF_XDP socket, which sends, and receives all or some of the packets of one receive queue.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use super::ring::{ConsumerRing, ProducerRing};
use super::umem::Umem;
use crate::socket::option;

/// Number of attempts to bind to a queue that another socket still occupies, and milliseconds between them:
/// ten seconds in total. The kernel frees the queue of a closed socket in the background, usually about 40 ms
/// later. This takes seconds if the processors are busy, or if many devices are removed at the same time.
const BIND_TRIES: u32 = 2_500;
const BIND_PAUSE_MS: u64 = 4;

/// Numbers of entries in a socket's rings; all are powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSizes {
    /// Entries in the fill ring and in the receive ring.
    pub(super) receive: u32,
    /// Entries in the transmit ring.
    pub(super) send: u32,
    /// Entries in the completion ring.
    pub(super) completion: u32,
}

/// The resources that a socket shares with another socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role<'a> {
    /// Nothing: the socket is the first to use its frames.
    First,
    /// The frames of this socket; the new socket is bound to another queue.
    SharesFrames(&'a XdpSocket),
    /// The frames and the queue of this socket.
    SharesQueue(&'a XdpSocket),
}

/// The rings that all sockets of a queue share: the fill ring with frames for the kernel to receive into, and
/// the completion ring with frames that it has sent.
#[derive(Debug)]
pub(super) struct QueueRings {
    pub(super) fill: ProducerRing<u64>,
    pub(super) completion: ConsumerRing<u64>,
}

/// Bind options for the first socket that uses a set of frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct BindOptions {
    /// `XDP_ZEROCOPY`, `XDP_COPY`, or 0 for the best available mode.
    pub(super) copy_flag: u16,
    /// Whether a packet may span several frames.
    pub(super) several_frames: bool,
}

/// A failed step of opening a socket, with its error.
#[derive(Debug)]
pub(super) struct SetupError {
    pub(super) step: SetupStep,
    pub(super) error: io::Error,
}

/// A step of opening a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetupStep {
    Open,
    Register,
    Rings,
    Bind,
}

/// The socket and its own rings.
#[derive(Debug)]
pub(super) struct XdpSocket {
    fd: OwnedFd,
    pub(super) receive: ConsumerRing<libc::xdp_desc>,
    pub(super) send: ProducerRing<libc::xdp_desc>,
}

/// Opens a socket that has no rings yet.
fn open() -> Result<OwnedFd, SetupError> {
    // SAFETY: the call takes only numbers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(SetupError { step: SetupStep::Open, error: io::Error::last_os_error() });
    }
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers the frames with the kernel.
fn register(fd: BorrowedFd<'_>, umem: &Umem) -> io::Result<()> {
    let area = umem.area();
    let registration = libc::xdp_umem_reg {
        addr: area.start().as_ptr() as usize as u64,
        len: area.len() as u64,
        chunk_size: umem.frame_bytes() as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    let bytes = size_of::<libc::xdp_umem_reg>() as libc::socklen_t;
    let (level, name) = (libc::SOL_XDP, libc::XDP_UMEM_REG);
    // SAFETY: the kernel reads `bytes` bytes of the registration. Later it writes to the area where the fill
    // ring allows it, and the caller keeps the area alive longer than the socket.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const registration).cast(), bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option that is a structure of integers.
fn read_option<T>(fd: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    // SAFETY: only called for structures of integers, for which all-zero bytes are valid.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to the value, which is `bytes` bytes long, and any
    // bytes are valid for its type.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, (&raw mut value).cast(), &raw mut bytes)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

impl XdpSocket {
    /// Opens a socket for a queue of a device, with the queue's rings if it is the queue's first socket. The
    /// caller must keep the frames alive longer than the socket.
    pub(super) fn open(
        (device, queue): (u32, u32),
        umem: &Umem,
        role: Role<'_>,
        wishes: BindOptions,
        sizes: RingSizes,
    ) -> Result<(XdpSocket, Option<QueueRings>), SetupError> {
        let fail = |step| move |error| SetupError { step, error };
        let fd = open()?;
        let mut flags = libc::XDP_USE_NEED_WAKEUP | wishes.copy_flag;
        if wishes.several_frames {
            flags |= libc::XDP_USE_SG;
        }
        let shared = match role {
            Role::First => {
                register(fd.as_fd(), umem).map_err(fail(SetupStep::Register))?;
                None
            }
            Role::SharesFrames(other) | Role::SharesQueue(other) => {
                // The flags of the first socket apply to all sockets.
                flags = libc::XDP_SHARED_UMEM;
                Some(other)
            }
        };
        let has_queue = !matches!(role, Role::SharesQueue(_));
        let (socket, rings) = XdpSocket::with_rings(fd, sizes, has_queue).map_err(fail(SetupStep::Rings))?;
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: device,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared.map_or(0, |other| other.fd.as_raw_fd() as u32),
        };
        socket.bind(&address).map_err(fail(SetupStep::Bind))?;
        Ok((socket, rings))
    }

    fn with_rings(
        fd: OwnedFd,
        sizes: RingSizes,
        has_queue: bool,
    ) -> io::Result<(XdpSocket, Option<QueueRings>)> {
        let borrowed = fd.as_fd();
        let set = |name, size: u32| option::set(borrowed, libc::SOL_XDP, name, size as libc::c_int);
        if has_queue {
            set(libc::XDP_UMEM_FILL_RING, sizes.receive)?;
            set(libc::XDP_UMEM_COMPLETION_RING, sizes.completion)?;
        }
        set(libc::XDP_RX_RING, sizes.receive)?;
        set(libc::XDP_TX_RING, sizes.send)?;
        let offsets: libc::xdp_mmap_offsets = read_option(borrowed, libc::XDP_MMAP_OFFSETS)?;
        let rings = if has_queue {
            let (fill_at, completion_at) =
                (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
            let fill = ProducerRing::map(borrowed, fill_at, &offsets.fr, sizes.receive)?;
            let completion = ConsumerRing::map(borrowed, completion_at, &offsets.cr, sizes.completion)?;
            Some(QueueRings { fill, completion })
        } else {
            None
        };
        let receive =
            ConsumerRing::map(borrowed, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, sizes.receive)?;
        let send = ProducerRing::map(borrowed, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, sizes.send)?;
        Ok((XdpSocket { fd, receive, send }, rings))
    }

    /// Binds the socket. If another socket is about to release the queue, waits for a bounded time.
    fn bind(&self, address: &libc::sockaddr_xdp) -> io::Result<()> {
        let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        let mut tries = 0;
        loop {
            // SAFETY: the kernel reads `bytes` bytes of the address, which is `bytes` bytes long.
            let result = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const *address).cast(), bytes) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            tries += 1;
            if error.raw_os_error() != Some(libc::EBUSY) || tries == BIND_TRIES {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(BIND_PAUSE_MS));
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the device itself reads and writes frames.
    pub(super) fn is_zero_copy(&self) -> bool {
        read_option::<libc::xdp_options>(self.fd(), libc::XDP_OPTIONS)
            .is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Returns the number of packets for this queue that the kernel has dropped since the socket was created.
    pub(super) fn drops(&self) -> u64 {
        read_option::<libc::xdp_statistics>(self.fd(), libc::XDP_STATISTICS)
            .map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full)
    }

    /// Makes the kernel process the transmit ring.
    pub(super) fn kick_send(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let result = unsafe {
            libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes the kernel process the fill ring.
    pub(super) fn kick_receive(&self) -> io::Result<()> {
        let (none, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no memory is passed.
        let result = unsafe {
            libc::recvfrom(self.fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT, none, no_length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
