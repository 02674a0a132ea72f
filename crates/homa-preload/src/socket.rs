//! A Homa socket of the program: its binding, its buffers, and its open requests.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};

use homa::error::HostError;
use homa::kernel_api::ReadinessFd;
use libc::{sockaddr, socklen_t};

use crate::abi::FIRST_CLIENT_PORT;
use crate::delivery_queue::{DeliveryQueue, QueueGuard};
use crate::ffi_border::Refusal;
use crate::hosts::{self, Hosts, TransportSocket};
use crate::receivers::Receivers;
use crate::region::Region;
use crate::send_room::Room;
use crate::signal;
use crate::signals;
use crate::socket_name::SocketName;

/// How often a thread checks for an event that does not wake it, in milliseconds.
pub(crate) const POLL_INTERVAL_MS: u64 = 1;

/// The socket of the [module](self).
pub(crate) struct Socket {
    pub(crate) family: c_int,
    pub(crate) signal: Arc<ReadinessFd>,
    pub(crate) nonblocking: AtomicBool,
    /// Whether the program has added the socket to an epoll set.
    pub(crate) in_epoll: AtomicBool,
    /// Whether requests are accepted.
    pub(crate) serves: AtomicBool,
    pub(crate) receivers: Receivers,
    /// The hosts of the process, for opening sockets of the transport.
    hosts: &'static Hosts,
    side: RwLock<TransportSocket>,
    /// The bound on memory of sent messages.
    room: RwLock<Arc<Room>>,
    /// Identifies the file behind the program's descriptor; see [`signal::identity`].
    pub(crate) identity: u64,
    region: OnceLock<Arc<Region>>,
    /// Values of the generic socket options that the program has set, by option number.
    pub(crate) options: Mutex<HashMap<c_int, Vec<u8>>>,
    pub(crate) deliveries: Arc<DeliveryQueue>,
    error_text: Mutex<&'static str>,
}

impl Socket {
    /// Opens a client socket, which every socket is until it is bound. Returns the socket and the program's
    /// descriptor.
    pub(crate) fn open(
        hosts: &'static Hosts,
        family: c_int,
        kind_flags: c_int,
    ) -> Result<(Arc<Socket>, RawFd), Refusal> {
        let side = hosts.open(None, family == libc::AF_INET6)?;
        let nonblocking = kind_flags & libc::SOCK_NONBLOCK != 0;
        let opened = signal::open(nonblocking, kind_flags & libc::SOCK_CLOEXEC != 0);
        let (signal, fd) =
            opened.map_err(|error| Refusal::plain(error.raw_os_error().unwrap_or(libc::ENFILE)))?;
        signal.follow(&side.socket);
        let room = Room::new(&side.socket, &signal, hosts.send_memory());
        let deliveries = DeliveryQueue::new(Arc::clone(&signal));
        let socket = Socket {
            family,
            signal,
            nonblocking: AtomicBool::new(nonblocking),
            in_epoll: AtomicBool::new(false),
            serves: AtomicBool::new(false),
            receivers: Receivers::default(),
            hosts,
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

    /// Has the progress thread drive the network while the program sleeps on the descriptor, unless the
    /// socket is being bound at this moment. Never waits for a lock, since signal handlers call it.
    pub(crate) fn attend(&self) {
        match self.side.try_read() {
            Ok(side) => side.socket.attend(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.get_ref().socket.attend(),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Returns whether changes to the program's descriptor may be [deferred](ReadinessFd::defer): it is in no
    /// epoll set, where the kernel looks at it, and no signal handler can look at it.
    pub(crate) fn may_defer(&self) -> bool {
        !signals::ever_handled() && !self.in_epoll.load(SeqCst)
    }

    /// Stops recording the time trace.
    pub(crate) fn freeze(&self) {
        self.side.read().unwrap_or_else(PoisonError::into_inner).host.freeze_trace();
    }

    /// The hosts of the process, for opening sockets of the transport.
    pub(crate) fn hosts(&self) -> &'static Hosts {
        self.hosts
    }

    pub(crate) fn state(&self) -> QueueGuard<'_> {
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

    /// Prevents further writes to the part of the program's buffers within this memory. Returns the region if
    /// it overlaps the memory.
    pub(crate) fn take_away(&self, start: usize, length: usize) -> Option<Arc<Region>> {
        let region = self.region().filter(|region| region.overlaps(start, length))?;
        region.take_away(start, length);
        self.await_writers();
        Some(Arc::clone(region))
    }

    /// Waits until the transport has finished its writes to the part of the buffers that it may no longer
    /// write to.
    fn await_writers(&self) {
        self.side().await_writers();
    }

    /// Called when the program has closed its last descriptor of the socket. The program may then unmap its
    /// buffers as soon as close returns, unless a thread is still receiving: that thread gets its message, as
    /// in the kernel.
    pub(crate) fn close(&self) {
        if self.receivers.close() {
            self.abandon_region();
        }
    }

    /// Called when a receive call of a thread ends.
    pub(crate) fn end_receiving(&self) {
        if self.receivers.leave() {
            self.abandon_region();
        }
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.deliveries.is_shut()
    }

    /// Stores the error text of a result, for HOMAIOCINFO.
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
        let SocketName { port, .. } = SocketName::read(self.family, address, length)?;
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
        let new = self.hosts.open(Some(port), self.family == libc::AF_INET6)?;
        self.serves.store(true, Relaxed);
        new.socket.set_memory(self.region().map(Region::lending));
        self.signal.follow(&new.socket);
        let room = Room::new(&new.socket, &self.signal, self.hosts.send_memory());
        room.show();
        *self.room.write().unwrap_or_else(PoisonError::into_inner) = room;
        let old = std::mem::replace(&mut *side, new);
        drop(side);
        // Threads that wait at the old port continue at the new one.
        old.socket.set_waker(None);
        old.socket.close();
        Ok(())
    }

    /// Turns the acceptance of requests on or off at the current port. bind turns it on again.
    pub(crate) fn accept_requests(&self, accept: bool) -> Result<(), Refusal> {
        // The lock prevents a concurrent bind.
        let side = self.side.read().unwrap_or_else(PoisonError::into_inner);
        match side.socket.accept_requests(accept) {
            // On a socket that was shut down, the option is stored but has no effect.
            Ok(()) | Err(HostError::Closed) => self.serves.store(accept, Relaxed),
            Err(error) => return Err(hosts::refusal(&error)),
        }
        Ok(())
    }

    /// Whether bind has replaced `side` by another socket of the transport.
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
    pub(crate) fn name(&self) -> SocketName {
        let ip = match self.family {
            libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        SocketName { ip, scope: 0, port: self.side().port() }
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
