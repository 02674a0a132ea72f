//! Memory of messages: reassembly, pools, and bytes that are sent from where they lie.
//!
//! # Where payload lies
//!
//! The endpoint holds no payload. A message is a length to it, and a packet a range.
//!
//! - **Outgoing** payload belongs to the caller of the endpoint from `send_*` until the event that ends the
//!   RPC. `homa/payload/buffers` keeps the application's `Bytes`; user space never copies them.
//! - **Incoming** payload is handed to `Reassembly::write`, each byte once. `homa/payload/buffers` copies it
//!   from the driver's packet buffer into the message, which is the one copy in user space, and gives the
//!   whole message to the application as `Bytes`. The message's memory is not zeroed before: packets that
//!   come in order write it. (Parts read early, by `start_reading` or from an `early_server`, are one copy
//!   more.) Where packets are of 16 KB and more, as on loopback, the driver receives the next one of a
//!   message in its place behind the last, and there is no copy in user space at all
//!   (`homa/payload/direct_receive`).
//! - **It is used again.** The pool (`homa/payload/pool`) keeps an empty handle to each buffer that it hands
//!   out; when the application has dropped the message, the pool's handle is the only one and the memory is
//!   free. So an RPC allocates nothing in the steady state, with plain `Bytes`. Short messages share chunks:
//!   whoever keeps one of them for long should keep a copy.
//! - **Packet buffers** belong to the driver, which allocates when it is made.
//! - **In the simulator** payload is real and checked byte by byte, or only a length, and then nothing is
//!   copied.
//!
//! `RpcKey` is a dense slot and a generation: what belongs to an RPC can be kept in a vector, and a stale key
//! names nothing.

pub(crate) mod buffers;
pub(crate) mod deferred_copy;
pub(crate) mod direct_receive;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod pool;
pub(crate) mod sparse;
