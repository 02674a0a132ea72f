//! The Homa transport protocol, sans-IO.
//!
//! [`Endpoint`] holds the protocol state of one host. It has no clock, no socket and no thread. The caller
//! passes time and packets as arguments, and polls for packets to send and for events. The same type runs on
//! a socket, on a mapped ring, in the simulator and in a fuzzer.
//!
//! # Data structures, and why
//!
//! The cost of a packet or a timer tick must not grow with the number of outstanding RPCs, and must touch few
//! cold cache lines. `cargo run --release -p homa-proto --example outstanding` measures both.
//!
//! - **Log-linear buckets for SRPT** (`srpt`), not a heap or a tree. Messages are sorted into buckets by
//!   bytes left. Buckets are exact for the smallest values; each larger power of two has a fixed number of
//!   buckets. One bit per bucket and one word over these bits locate the first bucket in two steps. A heap or
//!   tree touches one cold cache line per level, and has more levels for more messages. The price: messages
//!   whose sizes differ by a small fraction count as equal, and are served first come, first served (SEND-4,
//!   GRANT-6).
//! - **Links stored outside the table** (`lists`). Lists are doubly linked through arrays indexed by slot.
//!   Insertion and removal are O(1) and allocate nothing, and an RPC can be in several lists.
//! - **A lazy timing wheel** (`timer`). A packet does not touch a timer: it only records its arrival time. A
//!   timer that fires checks whether anything is due, and rearms itself for the remaining time. Only RPCs
//!   that wait for their peer have a timer. An RPC whose next step is local (a packet to send, a grant to
//!   give, a response to compute) has none. A million throttled messages therefore cost no tick.
//! - **RESENDs queue at their peer** (`resend`, `peer`). An RPC that was silent for too long joins its peer's
//!   queue, and the peer's timer serves the queue at a bounded rate. Without the queue, all RPCs of a lost
//!   peer would send RESENDs at once.
//! - **Silence is tracked per peer** (`resend`, `reap`). A server frees the RPCs of a client that sends no
//!   packet at all. One timer per peer detects this, not one per RPC. A client that waits for grants from
//!   this host has nothing to send, so it is probed with NEED_ACK before it counts as silent.
//! - **Finished ids in blocks** (`finished`). At-most-once execution requires remembering ids after their
//!   RPCs are gone. Clients count their ids up, so adjacent ids finish together: a block has one bit for each
//!   of 64 ids, and one time. The table is bounded, and a named policy applies when it is full.
//! - **Ended RPCs are reaped in portions** (`reap`). When a peer restarts or a port closes, thousands of RPCs
//!   may end. They are freed a few per call, so that the next packet does not wait. The end of a peer's RPCs
//!   takes effect at once all the same: each RPC stores the peer's `life` in which it began.
//!   `homa/payload/buffers` frees large buffers in portions for the same reason.
//! - **Retransmissions are ranges** (`retransmit`), in the order of the requests, minus the bytes that are
//!   already queued. The message's own offset does not move back, and its place in the order of fresh bytes
//!   stays.
//! - **Grants are chosen at the end of a burst** (`grant`), once for all its packets. Each peer has a queue
//!   of its messages and competes with the shortest of them. The active messages are those of the first few
//!   peers.
//! - **The pacer is one number** (`pacer`): the time at which the link will have sent all bytes given to it.
//!   A stale time cannot make it underflow.
//!
//! # File by file
//!
//! All files are in `crates/homa-proto/src`. `endpoint` holds the state and dispatches. Each decision is made
//! in the file of its concept; most of these files add methods to `Endpoint`.
//!
//! | concept | file | what is decided there |
//! |---|---|---|
//! | contract | `contract` | the types that go in and out: keys, events, errors, packets |
//! | | `endpoint` | the one type; making, keying and ending RPCs |
//! | | `config` | every setting with its default and the reason for it |
//! | | `inspect` | progress of one RPC, for callers that inspect it |
//! | | `time` | a monotonic time as a number |
//! | | `stats` | every counter; each reason to drop a packet has its own |
//! | packets | `wire/packet` | types of the packets, and the range of each field |
//! | | `wire/raw` | their layout, sizes asserted at compile time |
//! | | `wire/decode`, `wire/encode` | from bytes to a valid packet, and back |
//! | | `wire/incarnation` | the host's incarnation in fields that the kernel ignores |
//! | | `wire/display` | packets in one line, as tcpdump prints them |
//! | | `wire/fields` | the fields by name, for tools; compared with PROTOCOL.md by a test |
//! | the host | `host` | this endpoint's part of host-wide ids, grant budget, uplink, cutoffs and ports |
//! | RPCs | `rpc` | the states and the one table of transitions |
//! | | `rpc_table` | the RPCs by slot, and keys that go stale |
//! | | `ports` | which Homa ports are open, and which of them accept requests |
//! | | `port_rpcs` | the RPCs of each port |
//! | peers | `peer` | lives, cutoffs, waiting acknowledgements, RESEND rate |
//! | | `incarnation_change`, `unreachable` | incarnations and ICMP reports, accepted once proven |
//! | ids | `ids`, `keys` | one id counter, shifted by a secret for each peer; secrets from the seed |
//! | sending | `message_out` | which bytes of a message may be sent, and which have been |
//! | | `transmit` | control, then retransmissions, then the shortest message |
//! | | `transmit_batching` | which next packets of a message differ only in the offset |
//! | | `pacer` | how much the link still has to send |
//! | | `path` | packet size for each peer; when the path is checked again; loss of long packets |
//! | | `rtt` | the round-trip time to a peer, and how many unscheduled bytes bridge it |
//! | receiving | `receive` | which RPC a packet belongs to, and what each packet type does |
//! | | `receive_coalescing` | which packets only add bytes to the message of the packet before them |
//! | | `message_in`, `gaps` | which bytes of a message have arrived, and which are missing |
//! | | `grant` | which messages are granted how many bytes |
//! | | `incast` | limits on unscheduled bytes of many senders: of a response, and of each peer's messages |
//! | | `unscheduled_loss` | when unscheduled bytes count as lost, and which are requested first |
//! | | `unproven` | which half-received requests are evicted first when there is no room |
//! | | `share` | how much one peer may take while others compete |
//! | both | `priority` | cutoffs for unscheduled bytes, ranks for scheduled ones |
//! | | `srpt`, `lists` | the order by bytes left; linked lists by slot |
//! | loss | `timer` | when to check again |
//! | | `patience` | what counts as progress, and when an RPC ends for lack of it |
//! | | `resend_mark` | whether a peer's RESENDs show that bytes have arrived |
//! | | `resend` | when to send RESEND and for which bytes; how to answer one; NEED_ACK; giving up |
//! | | `retransmit` | ranges requested again and not yet sent again |
//! | the end | `ack` | how a client lets its servers free finished RPCs |
//! | | `finished` | ids of requests that must not run again |
//! | | `reap` | freeing in portions |
//! | | `unreachable` | which RPCs an ICMP report ends |
//! | several processes | `host` | resources shared with other endpoints at the same address |
//! | proof | `check` | all redundant state agrees, and every number is within its bound |
//! | | `cost` | tests: list operations for a packet do not grow with the number of waiting RPCs |

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod ack;
mod check;
mod config;
mod contract;
#[cfg(test)]
mod cost;
mod dialect;
mod endpoint;
mod finished;
mod freeze;
mod gaps;
mod grant;
mod host;
mod ids;
mod incarnation_change;
mod incast;
mod inspect;
mod keys;
mod lists;
mod message_in;
mod message_out;
mod pacer;
mod path;
mod patience;
mod peer;
mod port_rpcs;
mod ports;
mod priority;
mod reap;
mod receive;
mod receive_coalescing;
mod resend;
mod resend_mark;
mod retransmit;
mod rpc;
mod rpc_table;
mod rtt;
mod share;
mod shrink;
mod srpt;
mod start_msg;
mod stats;
mod time;
mod timer;
mod transmit;
mod transmit_batching;
mod unproven;
mod unreachable;
mod unscheduled_loss;
pub mod wire;

pub use config::{Config, ConfigError, FinishedPolicy};
pub use contract::{
    ArrivingRequest, Bundle, CallOptions, DoneReason, Event, PayloadRange, PeerInfo, PortError, Reassembly,
    RpcError, RpcKey, RxPacket, SendError, Transmit, TransmitRun, Unreachable,
};
pub use dialect::Dialect;
pub use endpoint::Endpoint;
pub use freeze::MAX_FREEZE_PEERS;
pub use host::MAX_ENDPOINTS;
pub use inspect::RpcInfo;
pub use keys::derive_seed;
pub use priority::CUTOFF_BUCKETS;
pub use stats::Stats;
pub use time::{MS, SEC, Time, US};
