//! The Homa transport protocol, sans-IO.
//!
//! [`Endpoint`] holds the protocol state of one host. It has no clock, no socket and no thread. The caller
//! passes the time and received packets as arguments, and polls for events and for packets to send. The same
//! type runs on a socket, on a mapped ring, in the simulator and in a fuzzer.
//!
//! # Data structures, and why
//!
//! The cost of a packet or a timer tick must not grow with the number of outstanding RPCs, and must touch few
//! cold cache lines. `cargo run --release -p homa-proto --example outstanding` measures both.
//!
//! - **Log-linear buckets for SRPT** (`srpt`), not a heap or a tree. Messages are sorted into buckets by
//!   remaining bytes. The smallest values have a bucket each; every larger power of two has a fixed number of
//!   buckets. A bitmap with one bit per bucket, and a summary word over the bitmap, locate the first
//!   non-empty bucket in two steps. A heap or tree touches one cold cache line per level, and gains levels as
//!   the number of messages grows. The price is that messages whose sizes differ by a small fraction count as
//!   equal, and are served first come, first served (SEND-4, GRANT-6).
//! - **Links stored outside the table** (`lists`). Lists are doubly linked through arrays indexed by slot.
//!   Insertion and removal are O(1) and allocate nothing, and an RPC can be in several lists.
//! - **A lazy timing wheel** (`timer`). A packet does not touch a timer: only its arrival time is recorded.
//!   When a timer fires, the endpoint checks whether anything is due, and rearms the timer for the remaining
//!   time. Only RPCs that wait for their peer have a timer. An RPC whose next step is local (a packet to
//!   send, a grant to give, a response to compute) has none. A million throttled messages therefore add no
//!   work to a timer tick.
//! - **RESENDs queue at their peer** (`resend`, `peer`). An RPC that has received nothing for too long joins
//!   its peer's queue, and the peer's timer serves the queue at a bounded rate. Without the queue, all RPCs
//!   of a lost peer would send RESENDs at the same time.
//! - **Silence is tracked per peer** (`silence`, `reap`). A server frees the RPCs of a client that sends no
//!   packet at all. This silence is detected by one timer per peer, not one per RPC. A client that waits for
//!   grants from this host has nothing to send, so it is probed with NEED_ACK before it counts as silent.
//! - **Finished ids in blocks** (`finished`). At-most-once execution requires remembering ids after their
//!   RPCs are gone. Clients assign increasing ids, so RPCs with adjacent ids finish at about the same time. A
//!   block therefore has one bit for each of 64 ids, and one timestamp. The table is bounded;
//!   [`FinishedPolicy`] applies when it is full.
//! - **Ended RPCs are reaped in portions** (`reap`). When a peer restarts or a port closes, thousands of RPCs
//!   may end. They are freed a few per call, so that the next packet does not wait. For the protocol, a
//!   peer's RPCs still end immediately, because each RPC stores the peer's `epoch` in which it began.
//!   `homa/payload/buffers` frees large buffers in portions for the same reason.
//! - **Retransmissions are ranges** (`retransmit`), in the order in which they were requested, minus the
//!   bytes that are already queued. The message's own offset does not move back, and the message keeps its
//!   place in the order of messages with new bytes to send.
//! - **Grants are chosen at the end of a burst** (`grant`), once for all packets of the burst. Each peer has
//!   a queue of its messages and is ranked by the shortest of them. The active messages are those of the
//!   first few peers.
//! - **The pacer is one number** (`pacer`): the time at which the link will have sent all bytes given to it.
//!   A stale time cannot make it underflow.
//!
//! # File by file
//!
//! All files are in `crates/homa-proto/src`. The folder `endpoint` contains a single type, [`Endpoint`]:
//! `state` has its fields, in groups (tables, ids, sending, receiving, waits, lifetimes), and each other file
//! adds the methods of one concept. The endpoint's parts are outside the folder and do not depend on it:
//! tables, queues, estimators, and pure decision functions. A method reads several parts, calls their
//! decision functions, and queues packets and events.
//!
//! | concept | parts | methods in `endpoint` |
//! |---|---|---|
//! | contract | `contract`: keys, events, errors, packets; `time` | `drive`: packets and times in, events out; `calls`: send, answer, abort |
//! | settings, counters | `config`: each setting with the reason for its default; `stats`: a counter for each reason to drop a packet | |
//! | inspection | `inspect`: progress of one RPC | `inspect` |
//! | packets | `wire/packet`: types and ranges; `wire/raw`: layout; `wire/decode`, `wire/encode` | |
//! | | `wire/bundle`: several packets in one datagram; `wire/route`: the endpoint that a packet is for | |
//! | | `wire/evidence`: signs of a dialect; `wire/fields`, `wire/display`: for tools | |
//! | dialects | `dialect`: the presumed dialect of a peer | `start_msg`: messages that START_MSG opens |
//! | RPCs | `rpc`: states and the transition table; `rpc_table`: slots and their keys | `rpcs`: beginning and end of RPCs |
//! | | `rpc_ids`, `port_rpcs`: RPCs by id and by port | |
//! | ports | `ports`: which are open, and which accept requests | `ports` |
//! | peers | `peer`: state of one peer: incarnation, cutoffs, RESENDs, allowance, RPCs; `peers`: table of all peers | |
//! | | `silence`: when a silent peer is probed, and when its RPCs end | |
//! | incarnations | `wire/incarnation`; `challenge`: how a peer proves its incarnation; `incarnation_end` | `incarnation_change` |
//! | ids | `ids`: one counter, shifted for each peer; `keys`: secrets from the seed | `ids` |
//! | several processes | | `host`: resources shared with other endpoints at the same address |
//! | sending | `message_out`: which bytes may be sent; `ready`: which message is next | `transmit`, `transmit_batching`: runs of packets |
//! | | `pacer`: how much the link still has to send; `path`: packet size | `control`: control packets; `path` |
//! | unscheduled bytes | `rtt`: how many cover the round trip; `incast`: limits for many senders | `calls` |
//! | receiving | `message_in`, `gaps`: which bytes have arrived | `receive`: effect of each packet type |
//! | | `receive_coalescing`: which packets only add bytes | `receive_coalescing` |
//! | grants | `grant`: which messages receive grants, and for how many bytes | `grant` |
//! | | `grant/peer_queues`, `grant/places`: the order of messages and of peers; `grant/oldest`: the share of the oldest message | |
//! | | `grant/granted_bytes`: shares of peers and prefixes; `grant/decision`: how far one grant reaches | |
//! | priorities | `priority`: cutoffs for unscheduled bytes, ranks for scheduled ones | `control`: CUTOFFS |
//! | order | `srpt`: by bytes left; `lists`: by slot | |
//! | loss | `wait`: how long an RPC has waited for its peer; `retransmit`: ranges to retransmit | `resend`: when to send RESEND, and how to answer one |
//! | | `resend_mark`: whether a peer's RESENDs show progress | |
//! | | `backoff`, `rate_limit`, `answer_time`: when the next RESEND may be sent | `patience`: what counts as progress |
//! | queue overflow | `unscheduled_loss`: when unscheduled bytes count as lost | `unscheduled_loss`: which of them are requested first |
//! | shares | `share`: how much one peer may take while others compete | `admission`: refuses requests that would take the shares of other peers |
//! | | `unproven`: which half-received requests are evicted first | `unproven` |
//! | | `prefix`: resource use by the unproven peers of one prefix; `turns`: which of them receives grants | |
//! | timers | `timer`: when to check again | `resend`: what an expired timer does |
//! | the end | `ack`: waiting acknowledgements; `finished`: ids that must not run again | `ack`; `reap`: freeing in portions |
//! | | `reap`: what must be freed; `unreachable`: ICMP reports | `shrink`: freeing the memory of a peak; `unreachable` |
//! | traces | | `freeze` |
//! | self-checks | `cost`: tests that a packet's work does not grow with the number of RPCs | `check`: all redundant state agrees |

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod ack;
mod answer_time;
mod backoff;
mod challenge;
mod config;
mod contract;
#[cfg(test)]
mod cost;
mod dialect;
mod endpoint;
mod finished;
mod gaps;
mod grant;
mod ids;
mod incarnation_end;
mod incast;
mod inspect;
mod keys;
mod lists;
mod message_in;
mod message_out;
mod pacer;
mod path;
mod peer;
mod peers;
#[cfg(homa_canary)]
pub mod planted_faults;
mod port_rpcs;
mod ports;
mod prefix;
mod priority;
mod rate_limit;
mod ready;
mod reap;
mod receive_coalescing;
mod resend_mark;
mod retransmit;
mod rpc;
mod rpc_ids;
mod rpc_table;
mod rtt;
mod share;
mod silence;
mod srpt;
mod stats;
mod time;
mod timer;
mod turns;
mod unproven;
mod unreachable;
mod unscheduled_loss;
mod wait;
pub mod wire;

pub use config::{Config, ConfigError, FinishedPolicy, MAX_ENDPOINTS};
pub use contract::{
    ArrivingRequest, Bundle, CallOptions, DoneReason, Event, PayloadRange, PeerInfo, PortError, Reassembly,
    RpcError, RpcKey, RxPacket, SendError, Transmit, TransmitRun, Unreachable,
};
pub use dialect::Dialect;
pub use endpoint::{Endpoint, MAX_FREEZE_PEERS};
pub use inspect::RpcInfo;
pub use keys::derive_seed;
pub use priority::CUTOFF_BUCKETS;
pub use stats::Stats;
pub use time::{MS, SEC, Time, US};
