//! The targets that threads and tasks wait for.

/// The target that a thread or task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTarget {
    /// The result of a call, or its next bytes.
    Call(usize),
    /// The next bytes of a request that is being read, or its end.
    Reading(usize),
    /// A completion in the queue of a client port.
    Completions(usize),
    /// A request in the queue of a server port.
    Requests(usize),
    /// A response or a request of a socket.
    Socket(usize),
    /// The end of the last answered RPC during a shutdown of the host.
    Drained,
    /// Nothing in the endpoint: the thread drives until a descriptor is ready.
    #[cfg_attr(not(feature = "kernel-api"), allow(dead_code, reason = "only sockets have descriptors"))]
    Descriptor,
}
