//! A Homa socket of the program: its binding, its buffers, and its open requests.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};

use homa::error::HostError;
use homa::kernel_api::ReadinessFd;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::abi::FIRST_CLIENT_PORT;
use crate::delivery_queue::{DeliveryQueue, EngineGuard};
use crate::descriptor_table::ProcessState;
use crate::ffi_border::Refusal;
use crate::hosts::{self, TransportSocket};
use crate::memory;
use crate::region::Region;
use crate::send_room::Room;
use crate::signal;

/// Maximum time in milliseconds between two checks of a thread that waits for an event without a wake-up.
pub(crate) const LOOK_AGAIN_MS: u64 = 1;

/// The socket of the [module](self).
pub(crate) struct Socket {
    pub(crate) family: c_int,
    pub(crate) signal: Arc<ReadinessFd>,
    pub(crate) nonblocking: AtomicBool,
    /// Whether the program has it in an epoll set.
    pub(crate) in_epoll: AtomicBool,
    /// Whether requests are accepted.
    pub(crate) serves: AtomicBool,
    /// Whether the program has closed its last descriptor.
    closed: AtomicBool,
    /// Number of receiving threads.
    pub(crate) receivers: AtomicUsize,
    /// Number of times the receiving threads were woken to check again.
    pub(crate) recalls: AtomicUsize,
    /// Number of receiving threads that block their signals.
    pub(crate) holding: AtomicUsize,
    side: RwLock<TransportSocket>,
    /// The bound on memory of sent messages.
    room: RwLock<Arc<Room>>,
    /// Distinguishes the program's descriptor from any other.
    pub(crate) identity: u64,
    region: OnceLock<Arc<Region>>,
    /// Values of generic socket options that were set, by their numbers.
    pub(crate) options: Mutex<HashMap<c_int, Vec<u8>>>,
    pub(crate) deliveries: Arc<DeliveryQueue>,
    error_text: Mutex<&'static str>,
}

/// An address as passed by a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) ip: IpAddr,
    pub(crate) scope: u32,
    pub(crate) port: u16,
}

impl Socket {
    /// Opens a client's socket; every socket begins as one. Returns it and the program's descriptor.
    pub(crate) fn open(family: c_int, kind_flags: c_int) -> Result<(Arc<Socket>, RawFd), Refusal> {
        let side = ProcessState::get().hosts.open(None, family == libc::AF_INET6)?;
        let nonblocking = kind_flags & libc::SOCK_NONBLOCK != 0;
        let opened = signal::open(nonblocking, kind_flags & libc::SOCK_CLOEXEC != 0);
        let (signal, fd) =
            opened.map_err(|error| Refusal::plain(error.raw_os_error().unwrap_or(libc::ENFILE)))?;
        signal.follow(&side.socket);
        let room = Room::new(&side.socket, &signal, ProcessState::get().hosts.send_memory());
        let deliveries = DeliveryQueue::new(Arc::clone(&signal));
        let socket = Socket {
            family,
            signal,
            nonblocking: AtomicBool::new(nonblocking),
            in_epoll: AtomicBool::new(false),
            serves: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            receivers: AtomicUsize::new(0),
            recalls: AtomicUsize::new(0),
            holding: AtomicUsize::new(0),
            side: RwLock::new(side),
            room: RwLock::new(room),
            identity: signal::identity(fd),
            region: OnceLock::new(),
            options: Mutex::default(),
            deliveries,
            error_text: Mutex::new(""),
        };
        Ok((Arc::new(socket), fd))
    }

    /// The socket of the transport.
    pub(crate) fn side(&self) -> Arc<homa::kernel_api::Socket> {
        Arc::clone(&self.side.read().unwrap_or_else(PoisonError::into_inner).socket)
    }

    /// The bound on memory of sent messages.
    pub(crate) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drives the network while the program sleeps on the descriptor, unless the socket is being bound now.
    /// It never waits for a lock, since signal handlers call it.
    pub(crate) fn attend(&self) {
        match self.side.try_read() {
            Ok(side) => side.socket.attend(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.get_ref().socket.attend(),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Stops the recording of the time trace.
    pub(crate) fn freeze(&self) {
        self.side.read().unwrap_or_else(PoisonError::into_inner).host.freeze_trace();
    }

    pub(crate) fn state(&self) -> EngineGuard<'_> {
        self.deliveries.state()
    }

    /// The program's buffers, if it has set them.
    pub(crate) fn region(&self) -> Option<&Arc<Region>> {
        self.region.get()
    }

    /// Sets the program's buffers; `false` if they are already set.
    pub(crate) fn set_region(&self, region: Arc<Region>) -> bool {
        let side = self.side.read().unwrap_or_else(PoisonError::into_inner);
        let new = self.region.set(Arc::clone(&region)).is_ok();
        if new {
            side.socket.set_memory(Some(region.lending()));
        }
        new
    }

    /// Prevents further writes to the program's buffers.
    fn abandon_region(&self) {
        if let Some(region) = self.region() {
            region.abandon();
            self.await_writers();
        }
    }

    /// Prevents further writes to the program's buffers in this memory. Returns the region if it overlaps.
    pub(crate) fn take_away(&self, start: usize, length: usize) -> Option<Arc<Region>> {
        let region = self.region().filter(|region| region.overlaps(start, length))?;
        region.take_away(start, length);
        self.await_writers();
        Some(Arc::clone(region))
    }

    /// Waits until the transport has finished writes to the denied part of the buffers.
    fn await_writers(&self) {
        self.side().await_writers();
    }

    /// Called when the program has closed its last descriptor. It may unmap its buffers as soon as close
    /// returns, unless a thread still receives: that thread gets its message, as in the kernel.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        if self.receivers.load(SeqCst) == 0 {
            self.abandon_region();
        }
    }

    /// Ends the receiving of a thread.
    pub(crate) fn end_receiving(&self) {
        if self.receivers.fetch_sub(1, SeqCst) == 1 && self.closed.load(SeqCst) {
            self.abandon_region();
        }
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.deliveries.is_shut()
    }

    /// Keeps the error text of a result for HOMAIOCINFO.
    pub(crate) fn noting<T>(&self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(Refusal { text, .. }) = &result
            && !text.is_empty()
        {
            *self.error_text.lock().unwrap_or_else(PoisonError::into_inner) = text;
        }
        result
    }

    pub(crate) fn error_text(&self) -> &'static str {
        *self.error_text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the socket to a server's port.
    pub(crate) fn bind(&self, address: *const sockaddr, length: socklen_t) -> Result<(), Refusal> {
        let Name { port, .. } = Name::read(self.family, address, length)?;
        if port == 0 || port >= FIRST_CLIENT_PORT {
            let text = "port number invalid: in the automatically assigned range";
            return Err(Refusal::new(libc::EINVAL, text));
        }
        let mut side = self.side.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_shut() {
            return Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down"));
        }
        if side.socket.port() == port {
            return Ok(());
        }
        let new = ProcessState::get().hosts.open(Some(port), self.family == libc::AF_INET6)?;
        self.serves.store(true, Relaxed);
        new.socket.set_memory(self.region().map(Region::lending));
        self.signal.follow(&new.socket);
        let room = Room::new(&new.socket, &self.signal, ProcessState::get().hosts.send_memory());
        room.show();
        *self.room.write().unwrap_or_else(PoisonError::into_inner) = room;
        let old = std::mem::replace(&mut *side, new);
        drop(side);
        // Threads that wait at the old port continue at the new one.
        old.socket.set_waker(None);
        old.socket.close();
        Ok(())
    }

    /// Turns requests on or off at the current port. bind turns them on again.
    pub(crate) fn accept_requests(&self, accept: bool) -> Result<(), Refusal> {
        // The lock prevents a concurrent bind.
        let side = self.side.read().unwrap_or_else(PoisonError::into_inner);
        match side.socket.accept_requests(accept) {
            // On a socket that was shut down, the option is stored without effect.
            Ok(()) | Err(HostError::Closed) => self.serves.store(accept, Relaxed),
            Err(error) => return Err(hosts::refusal(&error)),
        }
        Ok(())
    }

    /// Whether the socket is no longer bound to `side`.
    pub(crate) fn has_moved_from(&self, side: &Arc<homa::kernel_api::Socket>) -> bool {
        !Arc::ptr_eq(&self.side.read().unwrap_or_else(PoisonError::into_inner).socket, side)
    }

    /// Shuts the socket down.
    pub(crate) fn shut_down(&self) {
        if !self.deliveries.shut() {
            return;
        }
        let side = self.side();
        side.close();
        self.deliveries.clear();
        self.signal.set_override(true, true);
    }

    /// The name of this socket, for getsockname.
    pub(crate) fn name(&self) -> Name {
        let ip = match self.family {
            libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        Name { ip, scope: 0, port: self.side().port() }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The program may unmap its buffers as soon as it has closed the socket.
        self.abandon_region();
        let side = self.side();
        side.set_waker(None);
        side.close();
        self.deliveries.clear();
    }
}

impl Name {
    /// Reads an address for a socket of this family.
    pub(crate) fn read(family: c_int, address: *const sockaddr, length: socklen_t) -> Result<Name, Refusal> {
        let short = Err(Refusal::new(libc::EINVAL, "the address is too short for its family"));
        if (length as usize) < size_of::<libc::sa_family_t>() {
            return short;
        }
        if c_int::from(memory::read(address.cast::<libc::sa_family_t>())?) != family {
            return Err(Refusal::new(libc::EAFNOSUPPORT, "the address is not of the socket's family"));
        }
        if family == libc::AF_INET6 {
            if (length as usize) < size_of::<sockaddr_in6>() {
                return short;
            }
            let name = memory::read(address.cast::<sockaddr_in6>())?;
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr).to_canonical();
            return Ok(Name { ip, scope: name.sin6_scope_id, port: u16::from_be(name.sin6_port) });
        }
        if (length as usize) < size_of::<sockaddr_in>() {
            return short;
        }
        let name = memory::read(address.cast::<sockaddr_in>())?;
        let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)).into();
        Ok(Name { ip, scope: 0, port: u16::from_be(name.sin_port) })
    }

    /// The address in the format of a socket of this family, and its length.
    pub(crate) fn stored(&self, family: c_int) -> (libc::sockaddr_storage, usize) {
        // SAFETY: the structure consists of numbers, for which zero bytes are valid.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let place = &raw mut storage;
        if family == libc::AF_INET6 {
            let ip = match self.ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let name = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: self.port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: self.scope,
            };
            // SAFETY: the storage is large enough and aligned for any address.
            unsafe { ptr::write(place.cast(), name) };
            return (storage, size_of::<sockaddr_in6>());
        }
        let ip = match self.ip.to_canonical() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let name = sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: self.port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
            sin_zero: [0; 8],
        };
        // SAFETY: the storage is large enough and aligned for any address.
        unsafe { ptr::write(place.cast(), name) };
        (storage, size_of::<sockaddr_in>())
    }

    /// Writes the address to the program's memory, cut to `room` bytes; returns its full length.
    pub(crate) fn write(&self, family: c_int, to: *mut sockaddr, room: usize) -> Result<usize, Refusal> {
        let (storage, length) = self.stored(family);
        // SAFETY: the storage is at least as long as any address in it.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const storage).cast::<u8>(), length.min(room)) };
        memory::copy_out(to.cast(), bytes)?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_written() {
        for (family, ip, shown) in [
            (libc::AF_INET, "10.0.0.7", "10.0.0.7"),
            (libc::AF_INET6, "fe80::1", "fe80::1"),
            (libc::AF_INET6, "10.0.0.7", "10.0.0.7"),
        ] {
            let name = Name { ip: ip.parse().unwrap(), scope: 0, port: 99 };
            let (storage, length) = name.stored(family);
            let address = (&raw const storage).cast();
            let read = Name::read(family, address, length as socklen_t).unwrap();
            assert_eq!(read, Name { ip: shown.parse().unwrap(), ..name });
            let refused = |family, length| Name::read(family, address, length).unwrap_err().errno;
            assert_eq!(refused(family, length as socklen_t - 1), libc::EINVAL);
            assert_eq!(refused(family, 1), libc::EINVAL);
            assert_eq!(refused(libc::AF_UNIX, length as socklen_t), libc::EAFNOSUPPORT);
        }
    }
}
