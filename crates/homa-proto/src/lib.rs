//! The Homa transport protocol, sans-IO.
//!
//! [`Endpoint`] holds the protocol state of one host. It has no clock, no socket and no thread: time and packets are
//! arguments, and what it wants sent or told is polled from it. The same type runs under a socket, under a mapped ring,
//! under the simulator and under a fuzzer.
//!
//! # Data structures, and why
//!
//! The aim: no packet and no tick costs more because more RPCs are outstanding, and few cache lines are cold.
//! `cargo run --release -p homa-proto --example outstanding` measures both.
//!
//! - **Log-linear buckets for SRPT** (`srpt`), not a heap or a tree. Messages stand in buckets by bytes left:
//!   exact for the smallest, then a fixed number of buckets for each power of two. A bit per bucket and a
//!   word over the bits find the first in two steps. A heap or tree has a cold cache line for each level, and
//!   more levels for more messages. The price is that messages within a small fraction of each other count as
//!   equal (SEND-4, GRANT-6), first come, first served.
//! - **Links beside the table** (`lists`). Lists are doubly linked through arrays indexed by slot. Insertion
//!   and removal are O(1), allocate nothing, and an RPC can be in several lists.
//! - **A lazy timing wheel** (`timer`). A packet does not touch a timer: it notes when something was heard,
//!   and a timer that fires looks whether anything is due and arms itself for the rest. Only RPCs that wait
//!   for their peer have a timer; one whose next step is our own (a packet to send, a grant to give, an
//!   answer to compute) has none. A million throttled messages cost no tick.
//! - **RESENDs queue at their peer** (`resend`, `peer`). An RPC whose silence was too long joins its peer's
//!   queue, and the peer's timer serves the queue at a bounded rate. Otherwise a lost peer would be asked by
//!   all its RPCs at once.
//! - **Silence is a peer's** (`resend`, `reap`). A server frees the RPCs of a client that says nothing at
//!   all, so one timer per peer watches for it, not one per RPC. A client that waits for its own grants has
//!   nothing to say, so it is asked (NEED_ACK) before it counts as silent.
//! - **Finished ids in blocks** (`finished`). At most once needs a memory of ids after their RPCs are gone.
//!   Clients count up, so neighbours finish together: a block has a bit for each of 64 ids and one time. The
//!   table is bounded, with a named policy for when it is full.
//! - **Ends are reaped in portions** (`reap`). When a peer restarts or a port closes, thousands of RPCs may
//!   end. They end a few per call, so that the next packet does not wait. That a peer's RPCs are over is
//!   known at once all the same: each remembers the peer's `life` in which it began. `homa/payload/buffers`
//!   frees large buffers in portions for the same reason.
//! - **Retransmissions are ranges** (`retransmit`), in the order in which they were asked for, less what is
//!   queued already. The message itself does not go back, and its place in the order of fresh bytes stays.
//! - **Grants are chosen at the end of a burst** (`grant`), once for all its packets. Each peer has a queue
//!   of its messages and competes with the shortest of them: the active messages are the first few peers.
//! - **The pacer is one number** (`pacer`): when the link will have sent what it was given. A stale time
//!   cannot make it underflow.
//!
//! # File by file
//!
//! In `crates/homa-proto/src`. `endpoint` holds the state and dispatches. Decisions are made in the file of
//! their concept, most of which add methods to `Endpoint`.
//!
//! | concept | file | what is decided there |
//! |---|---|---|
//! | contract | `contract` | the types that go in and out: keys, events, errors, packets |
//! | | `endpoint` | the one type; making, keying and ending RPCs |
//! | | `config` | every setting with its default and the reason for it |
//! | | `inspect` | how far an RPC has come, for who asks |
//! | | `time` | a moment as a number that never goes back |
//! | | `stats` | every counter; each reason to drop a packet is one |
//! | packets | `wire/mod` | types of the packets, sizes asserted at compile time |
//! | | `wire/raw` | their layout |
//! | | `wire/decode`, `wire/encode` | from bytes to a valid packet, and back |
//! | | `wire/incarnation` | the host's incarnation in fields that the kernel ignores |
//! | | `wire/display` | packets in one line, as tcpdump has them |
//! | | `wire/fields` | the fields by name, for tools; compared with PROTOCOL.md by a test |
//! | the host | `host` | the endpoint's part of what a host has once, where processes share it: ids, grant budget, uplink, cutoffs, ports |
//! | RPCs | `rpc` | the states and the one table of transitions |
//! | | `ports` | which Homa ports are open, and which of them accept requests |
//! | | `port_rpcs` | the RPCs of each port |
//! | peers | `peer` | lives, cutoffs, waiting acknowledgements, RESEND rate |
//! | | `incarnation_change`, `unreachable` | incarnations and ICMP reports, believed once they are proven |
//! | ids | `ids`, `keys` | one count for all peers, moved by a secret for each; secrets from the seed |
//! | sending | `message_out` | what may be sent of a message, and what has been |
//! | | `transmit` | control, then retransmissions, then the shortest message |
//! | | `transmit_batching` | how many of the next packets are of the same message, and differ in the offset alone |
//! | | `pacer` | how much the link still has to send |
//! | | `path` | how long packets to a peer are: when the path is looked at again, and what is done where long packets vanish |
//! | | `rtt` | the round-trip time to a peer, and how many bytes may go unasked to bridge it |
//! | receiving | `receive` | whose a packet is, and what each type does |
//! | | `receive_coalescing` | which packets only bring more bytes of the message that the one before them was of |
//! | | `message_in`, `gaps` | what of a message is there, and what is missing |
//! | | `grant` | who may send how much more |
//! | | `incast` | how much many senders together may send unasked: what a request allows its response, what peers are told |
//! | | `unscheduled_loss` | unscheduled bytes that a full queue dropped: when they count as lost, whose are asked for first |
//! | | `unproven` | which half-received requests go first where there is no room |
//! | | `share` | what one peer may take while others ask |
//! | both | `priority` | cutoffs for unscheduled bytes, ranks for scheduled ones |
//! | | `srpt`, `lists` | the order by bytes left; linked lists by slot |
//! | loss | `timer` | when to look again |
//! | | `patience` | what counts as progress, and when an RPC ends for want of it |
//! | | `resend` | when and what to ask again; how to answer; NEED_ACK; giving up |
//! | | `retransmit` | ranges asked for and not sent again yet |
//! | the end | `ack` | how a client lets its servers forget |
//! | | `finished` | ids that must not run again |
//! | | `reap` | freeing in portions |
//! | | `unreachable` | which RPCs a report of ICMP ends |
//! | several processes | `host` | resources shared with other endpoints at the same address |
//! | proof | `check` | everything kept twice agrees, every number is within its bound |
//! | | `cost` | tests: list operations for a packet do not grow with the number of waiting RPCs |

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod ack;
mod check;
mod config;
mod contract;
#[cfg(test)]
mod cost;
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
mod retransmit;
mod rpc;
mod rtt;
mod share;
mod shrink;
mod srpt;
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
pub use endpoint::Endpoint;
pub use freeze::MAX_FREEZE_PEERS;
pub use host::MAX_ENDPOINTS;
pub use inspect::RpcInfo;
pub use keys::derive_seed;
pub use priority::CUTOFF_BUCKETS;
pub use stats::Stats;
pub use time::{MS, SEC, Time, US};
