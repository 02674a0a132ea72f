//! What a thread or task waits for.

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTarget {
    /// The end, or the next bytes, of a call.
    Call(usize),
    /// The next bytes, or the end, of a request that is being read.
    Reading(usize),
    /// A completion in the queue of a client port.
    Completions(usize),
    /// A request in the queue of a server port.
    Requests(usize),
    /// A response or a request of a socket.
    Socket(usize),
    /// The end of the last answered RPC, while the host shuts down.
    Drained,
    /// Nothing in the endpoint: the thread drives until a descriptor is ready.
    #[cfg_attr(not(feature = "kernel-api"), allow(dead_code, reason = "only sockets have descriptors"))]
    Descriptor,
}
