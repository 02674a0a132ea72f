//! Time traces of a Homa endpoint: a ring of fixed 32-byte [`Record`]s with its own clock.
//!
//! Each endpoint owns one [`Trace`] and records its work as it happens: packets, grants, waits, the start and
//! the end of each RPC. A slow RPC can then be explained from the trace instead of guessed at. Recording
//! takes no lock, allocates nothing and overwrites the oldest event once the ring is full. A trace that is
//! [off](Trace::off) has no memory and costs a branch.
//!
//! Events carry the time at which they were recorded, not the time at which their burst was handled: a burst
//! has one `now` for all its packets. Reading the clock is most of the cost of a record, so a few consecutive
//! events of one [stage](Trace::begin_stage) of the work share a time. If another thread owns the trace, an
//! event gets a time of [the same clock](Trace::ticks) when it happens, and is recorded later.
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
//! packets, grants, waits and timers, each with its peer and priority. The runtime adds the events around the
//! protocol (`homa/observe/stages`): the application's calls, bursts to and from the driver, sleeps and
//! wake-ups, and threads that could not run.
//!
//! - **One ring per endpoint, not per thread.** A recording thread holds the endpoint's lock anyway, so
//!   that the ring needs none, and the events of an RPC are in one place. An event before the lock is taken,
//!   such as the application's call, is stamped with the trace's clock and recorded later; a dump is sorted.
//! - **Reading the counter dominates the cost of a record**: 10 to 24 ns on virtual machines, against 3 ns
//!   for the rest. It is therefore read once per stage of the work (`Trace::begin_stage`), and up to a few
//!   records of the stage share that time. Examples are an application's call with the packet that it causes,
//!   a call of the driver, a burst that was read, and its processing. A short RPC reads the counter four
//!   times at each end, which a test checks (`homa/tests/stages`); the protocol needs most of these reads
//!   anyway, so that two are the trace's own. Threads that were kept from running are detected by the time
//!   that each round reads anyway. The core is read once per turn with the lock, if something is recorded.
//! - **A freeze is announced in one place for all endpoints** (`homa/observe/freeze`), which each endpoint
//!   checks when its lock is taken. Nothing is recorded without the lock, so nothing is recorded after a
//!   freeze. Calls are checked against the freeze threshold when they end. A host sends FREEZE to its peers,
//!   but never because of a received FREEZE.
//! - **A dump is copied in parts** (`Snapshot`) under the lock, into memory that was touched before.
//!   Measuring the counter and sorting come after.
//! - **The counter's rate is measured** against the clock without adjustments, from the creation of the
//!   trace to its dump. The dump contains the time of that measurement and therefore its accuracy
//!   (`Dump::calibration_error_ppb`). A counter that is not invariant is not used.
//! - **A received packet has its priority on arrival** if the driver sees the IP header: raw IPv4, packet
//!   rings, AF_XDP. On sockets that get it from the kernel (IP_RECVTOS) it costs 60 ns per packet, which is
//!   more than the budget of the whole trace. They report it together with the times of the kernel.
//! - **Times of the kernel** (`trace_device_times`) are from the real-time clock, which is set and slewed.
//!   Each burst reads both clocks together, so that only the age of a packet matters, not that of the host.
//!   The time is the kernel's, when it takes a packet from the device, because the device's own clock cannot
//!   be compared with anything. For sent packets, the kernel reports times on the socket's error queue, and
//!   names datagrams by its own count (`homa-driver/socket/sent_times`). Each report wakes a thread that
//!   sleeps on the socket, which is acceptable for diagnosis but not by default.
//! - **AF_XDP reports no times.** The driver's own time of reading is that of the burst, which traces have;
//!   reporting it as the device's time would hide the delay in between. Times that devices report to XDP
//!   programs (`bpf_xdp_metadata_rx_timestamp`) are from the device's own clock, and a veth reports 0. The
//!   program could read the kernel's time itself (`bpf_ktime_get_ns`) and store it in front of the packet
//!   (`bpf_xdp_adjust_meta`), as packet rings do; this is not built.
//! - **Traces of one machine are recognised** (`Node::machine`): its clock is better than any comparison by
//!   packets, and is used as it is. Clocks of several machines are compared by packets
//!   (`homa-analysis/align`).
//! - **Simulated switches record the same events as `homa-switch`** (`homa-sim/switches`).
//! - **Answers are functions of a model** (`homa-analysis/answers`): a result is a struct whose fields are
//!   the names in JSON, and the commands (`homa-cli/trace`) only print it. If traces lack a stage, the answer
//!   says so and names the option that records it.
//! - **The links' rate is that of the densest sixteen packets** (`homa-analysis/link`), after switches if
//!   they have traces. The overhead of a link follows from the peers' addresses: Ethernet and IP, and UDP if
//!   they have ports.
//! - **The state before an event is replayed, not stored** (`homa-analysis/replay`): there is a state every
//!   32 records, and the records in between are replayed. An entry for each sent and received packet took a
//!   third of a gigabyte for ten million events.
//! - **The best case of a path is a line below all packets** (`answers/path`): least squares through the
//!   minimum delay of each length, in rounds that remove the points above the line. Extra delays are relative
//!   to this line, so that none is negative.
//! - **The switch gets the extra delay that nothing else explains** (`answers/decompose`). The polling gap
//!   excludes the time of arrivals on the receiver's link, and is at most the time since the queue was last
//!   seen empty. Compared with the simulator's switches, the switch's part is right to 0.1 % at the median in
//!   a rack of 8 hosts. Each path needs undelayed packets: three with the same delay, unless a recording
//!   switch delayed them. Paths are left out if a queue was never empty, or if rings overwrote the time when
//!   it was; the command prints how many. For two racks of which only a part is recorded, the result is a
//!   quarter off, which the command reports wherever switches recorded.
//! - **RTTbytes are measured at the sender** (`answers/rtt_bytes`): from sending a packet until the arrival
//!   of the grant that it caused. The receiver's trace identifies that grant; no two clocks are compared.

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
