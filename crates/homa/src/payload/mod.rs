//! Memory of messages: reassembly, pools, and sending without a copy.
//!
//! # Where payload is stored
//!
//! The endpoint stores no payload. To the endpoint a message is a length, and a packet a range.
//!
//! - **Outgoing** payload belongs to the caller of the endpoint from `send_*` until the event that ends the
//!   RPC. `homa/payload/buffers` keeps the application's `Bytes`; user space never copies them.
//! - **Incoming** payload is passed to `Reassembly::write`, each byte once. `homa/payload/buffers` copies it
//!   from the driver's packet buffer into the message, which is the one copy in user space, and gives the
//!   whole message to the application as `Bytes`. The message's memory is not zeroed before: packets that
//!   come in order write it. (Parts that are read early, by a `ResponseReader` or by a server with `early`,
//!   are copied once more.) If packets have 16 KB and more, as on loopback, the driver receives the next
//!   packet of a message directly in its place after the last. There is then no copy in user space at all
//!   (`homa/payload/direct_receive`).
//! - **Memory is reused.** The pool (`homa/payload/pool`) keeps an empty handle to each buffer that it hands
//!   out. When the application has dropped the message, the pool's handle is the only one and the memory is
//!   free. So an RPC allocates nothing in the steady state, with plain `Bytes`. Short messages share chunks:
//!   to keep a short message for long, keep a copy.
//! - **Packet buffers** belong to the driver, which allocates them when it is created.
//! - **In the simulator** payload is either real and checked byte by byte, or only a length, and then nothing
//!   is copied.
//!
//! `RpcKey` is a dense slot and a generation: the state of an RPC can be kept in a vector, and a stale key
//! refers to nothing.

pub(crate) mod buffers;
pub(crate) mod deferred_copy;
pub(crate) mod direct_receive;
pub(crate) mod incoming;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod pool;
pub(crate) mod sparse;
