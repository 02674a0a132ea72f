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
//!
//! # Design
//!
//! Each endpoint has a ring of fixed records (`homa-trace`), which is on by default. `homa-proto` records
//! packets, grants, waits and timers, each with its peer and priority; the runtime adds what lies around the
//! protocol (`homa/observe/stages`): the application's calls, bursts to and from the driver, sleep and
//! waking, threads that could not run.
//!
//! - **One ring for an endpoint, not for a thread.** Whoever has something to record has the endpoint's lock
//!   anyway, so that the ring needs none, and what concerns an RPC stands together. What happens before the
//!   lock is had, as the application's call does, takes a stamp of the trace's clock there and is recorded
//!   late; a dump is sorted.
//! - **Reading the counter is what a record costs**: 10 to 24 ns on virtual machines, against 3 ns for all
//!   else. So it is read once for each stage of the work (`Trace::begin_stage`), and what is recorded in it
//!   shares that time, a few records at most: an application's call with the packet that it leads to; the
//!   driver's taking it; a burst that was read; what it came to. A short RPC reads it four times at each end,
//!   which a test holds (`homa/tests/stages`), and most of these looks the protocol would take anyway, so
//!   that two are the trace's own. Whether a thread was kept from running is judged by the time that the
//!   round reads anyway. On which core it is, is asked once for each time that the lock is taken and
//!   something recorded.
//! - **A freeze is said in one place for all endpoints** (`homa/observe/freeze`), and each looks there as its
//!   lock is taken: nothing is recorded without the lock, so nothing after. Calls are judged where they end.
//!   Peers are asked by FREEZE, never because of a FREEZE.
//! - **A dump is copied in parts** (`Snapshot`) under the lock, into memory that was touched before.
//!   Measuring the counter and sorting come after.
//! - **The counter's rate is measured** against the clock that nobody adjusts, from the creation of the trace
//!   to its dump, and the dump says over which time, and so how well (`Dump::calibration_error_ppb`). A
//!   counter that is not invariant is not used.
//! - **A packet received has the priority that it came with** where the driver sees the IP header: raw IPv4,
//!   packet rings, AF_XDP. Sockets that have it from the kernel (IP_RECVTOS) pay 60 ns a packet, which is
//!   more than the whole trace may cost; they tell it with the times below.
//! - **Times of the kernel** (`trace_device_times`) are of the real-time clock, which is set and slewed: each
//!   burst reads both clocks side by side, so that only the age of a packet, not that of the host, counts.
//!   The kernel's time as it takes a packet from the device is used, and not that of the device's own clock,
//!   which nothing here can compare. Of packets sent it tells on the socket's error queue, and names
//!   datagrams by its own count (`homa-driver/socket/sent_times`), which wakes whoever sleeps on the socket:
//!   no matter where somebody looks for the truth, and a reason not to have it always.
//! - **AF_XDP tells no times.** The driver's own time of reading is that of the burst, which traces have;
//!   given out as the device's it would hide what lay between. What devices tell XDP programs
//!   (`bpf_xdp_metadata_rx_timestamp`) is the device's own clock, and a veth passes on a stamp of hardware
//!   that made none: 0. The program could take the kernel's time itself (`bpf_ktime_get_ns`) and leave it in
//!   front of the packet (`bpf_xdp_adjust_meta`), which is what packet rings have; it is not built.
//! - **Traces of one machine know it** (`Node::machine`): its clock is better than any comparison by packets,
//!   and is trusted. Clocks of several machines are compared by packets (`homa-analysis/align`).
//! - **Simulated switches record what `homa-switch` does** (`homa-sim/switches`), in the same words.
//! - **Answers are functions of a model** (`homa-analysis/answers`): what is found is a struct whose fields
//!   are the names in JSON, and the commands (`homa-cli/trace`) only print it. Traces that lack a stage are
//!   said to lack it, with what records it.
//! - **The links' rate is what the densest sixteen packets show** (`homa-analysis/link`), behind switches
//!   where they have traces. A link adds to each packet what its peers' addresses say: Ethernet and IP, and
//!   UDP where they have ports.
//! - **What went before an event is found again, not kept** (`homa-analysis/replay`): states every 32
//!   records, and the records between them. An entry for each packet sent and received was a third of a
//!   gigabyte of ten million events.
//! - **The best case of a path is a line that no packet is below** (`answers/path`): least squares through
//!   the least delay of each length, in rounds that leave out what lies above. Each extra delay is counted
//!   from there, so that none is negative.
//! - **Of an extra delay the switch has what nobody else accounts for** (`answers/decompose`). The polling
//!   gap has no more than what the receiver's link did not bring meanwhile, and no more than the time since
//!   the queue was last seen empty. Held against the simulator's switches the switch's part is right to 0.1 %
//!   at the median in a rack of 8 hosts. It needs packets that nothing delayed on each path, of which three
//!   that took the same are the sign, if no switch that recorded delayed them: where a queue never was empty,
//!   or rings have forgotten when it was, other paths are left out, and the command says how many. Two racks
//!   of which a part is recorded are still a quarter off, which the command says wherever switches recorded.
//! - **RTTbytes are measured at the sender** (`answers/rtt_bytes`): from sending a packet until the grant
//!   that it caused is there. The receiver's trace says which grant that is; no two clocks are compared.

mod clock;
mod dropped;
mod dump;
mod event;
pub mod files;
mod monotonic;
mod node;
mod os;
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
