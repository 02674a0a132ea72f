//! Memory of messages: reassembly, pools, and zero-copy sending.
//!
//! # Where payload is stored
//!
//! The endpoint stores no payload. It treats a message as a length, and a packet as a range.
//!
//! - **Outgoing** payload belongs to the caller of the endpoint from the call of `send_*` until the event
//!   that ends the RPC. `homa/payload/buffers` keeps the application's `Bytes`, which are never copied in
//!   user space.
//! - **Incoming** payload is passed to `Reassembly::write`, each byte once. `homa/payload/buffers` copies it
//!   from the driver's packet buffer into the message, which is the only copy in user space. The application
//!   gets the whole message as `Bytes`. The message's memory is not zeroed first, since packets that arrive
//!   in order overwrite it. (Parts that are read early, by a `ResponseReader` or by a server with `early`,
//!   are copied once more.) If packets have at least 16 KB, as on loopback, the driver receives the next
//!   packet of a message directly to its position after the previous packet. User space then makes no copy at
//!   all (`homa/payload/direct_receive`).
//! - **Memory is reused.** The pool (`homa/payload/pool`) keeps an empty handle to each buffer that it hands
//!   out. When the application has dropped the message, only the pool's handle is left and the memory is
//!   free. In the steady state an RPC therefore allocates nothing, even with plain `Bytes`. Short messages
//!   share chunks, so an application that keeps a short message for a long time should copy it.
//! - **Packet buffers** belong to the driver, which allocates them when it is created.
//! - **In the simulator** payload is either real and checked byte by byte, or only a length, in which case
//!   nothing is copied.
//!
//! `RpcKey` consists of a dense slot and a generation, so the state of RPCs can be kept in a vector, and a
//! stale key refers to nothing.

pub(crate) mod buffers;
pub(crate) mod deferred_copy;
pub(crate) mod direct_receive;
pub(crate) mod incoming;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod pool;
pub(crate) mod sparse;
