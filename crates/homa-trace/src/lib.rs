//! Time traces of a Homa endpoint: a ring of fixed 32-byte [`Record`]s with its own clock.
//!
//! Each endpoint owns one [`Trace`] and records what it does as it does it: packets, grants, waits, the start and the end of
//! each RPC. A slow RPC is then explained from the trace and not guessed at. Recording takes no lock, allocates nothing and
//! overwrites the oldest event once the ring is full; a trace that is [off](Trace::off) has no memory and costs a branch.
//!
//! Events carry the time at which they were recorded, not the time at which their burst was handled: a burst has one `now`, which
//! its packets don't share. Since to read the clock is most of what a record costs, a few events that follow each other at once in one
//! [stage](Trace::begin_stage) of the work share a time. What happened where the trace was not at hand, because another thread had it, has a time of
//! [the same clock](Trace::ticks) that was taken there.
//!
//! ```
//! use homa_trace::{Clock, EventKind, Node, Trace, packet_word, read_dump};
//!
//! let mut trace = Trace::new(1024, Clock::Virtual);
//! trace.set_virtual_now(5_000);
//! trace.record(EventKind::PacketSent, 42, packet_word(0x10, 1460), 0);
//!
//! let mut bytes = Vec::new();
//! trace.write_dump(Node::host("h1"), &mut bytes).unwrap();
//! let dump = read_dump(&bytes).unwrap();
//! assert_eq!(dump.records[0].event(), Some(EventKind::PacketSent));
//! assert_eq!(dump.time_ns(&dump.records[0]), 5_000);
//! ```

mod clock;
mod dropped;
mod dump;
mod event;
mod monotonic;
mod node;
mod place;
mod read;
mod snapshot;
mod sources;
mod ticks;
mod trace;

pub use clock::Clock;
pub use dropped::{DROP_REASONS, drop_reason, drop_reason_name};
pub use dump::{Alignment, DUMP_HEADER_BYTES, DUMP_MAGIC, DUMP_VERSION, Dump};
pub use event::{EventKind, PACKET_LENGTH_MAX, packet_word, packet_word_parts};
pub use monotonic::{Moment, MonotonicClock};
pub use node::{NAME_MAX_BYTES, Node, NodeKind};
pub use place::Place;
pub use read::{DumpError, ReadError, read_dump, read_dumps};
pub use snapshot::Snapshot;
pub use sources::Source;
pub use ticks::{RealTime, TickRate, Ticks};
pub use trace::{MAX_RECORDS, Record, Trace};
