//! Time traces of a Homa endpoint: a ring of fixed 32-byte [`Record`]s with its own clock.
//!
//! Each endpoint owns one [`Trace`] and records its work as it happens: packets, grants, waits, and the start
//! and end of each RPC. A slow RPC can then be explained from the trace rather than by guessing. Recording
//! takes no lock, allocates nothing, and overwrites the oldest event once the ring is full. A trace that is
//! [off](Trace::off) uses no memory and costs one branch per event.
//!
//! Events carry the time at which they were recorded, not the time at which their burst was handled. (A burst
//! has one `now` for all its packets.) Reading the clock is most of the cost of a record, so a few
//! consecutive events in one [stage](Trace::begin_stage) of the work share a time. If another thread owns the
//! trace, an event is timestamped from [the same clock](Trace::ticks) when it happens, and is recorded later.
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
//! - **One ring per endpoint, not per thread.** A recording thread holds the endpoint's lock anyway, so the
//!   ring needs no lock of its own, and all events of an RPC are in one place. An event that happens before
//!   the lock is taken, such as a call by the application, is timestamped with the trace's clock and recorded
//!   later. A dump is sorted.
//! - **Reading the counter dominates the cost of a record**: 10 to 24 ns on virtual machines, compared with 3
//!   ns for the rest. The counter is therefore read once per stage of the work (`Trace::begin_stage`), and up
//!   to a few records of the stage share that time. Examples of stages are a call by the application together
//!   with the packet that it causes, a call of the driver, reading a burst, and processing the burst. A short
//!   RPC reads the counter four times at each end, which a test checks (`homa/tests/stages`). The protocol
//!   needs two of these reads anyway, so the trace adds two. Preempted threads are detected from the time
//!   that each round reads anyway. The core is read once each time the lock is taken, and only if something
//!   is recorded.
//! - **A freeze is announced in one place for all endpoints** (`homa/observe/freeze`). Each endpoint checks
//!   this place when its lock is taken. Nothing is recorded without the lock, so nothing is recorded after a
//!   freeze. The duration of a call is compared with the freeze threshold when the call ends. A host sends
//!   FREEZE to its peers, but never because it received a FREEZE.
//! - **A dump is copied in parts** (`Snapshot`) under the lock, into memory whose pages are already mapped.
//!   The counter is measured and the records are sorted afterwards.
//! - **The counter's rate is measured** against the unadjusted clock, from the creation of the trace to its
//!   dump. The dump contains the span of that measurement, which determines its accuracy
//!   (`Dump::calibration_error_ppb`). A counter that is not invariant is not used.
//! - **A received packet is recorded with its priority on arrival** if the driver sees the IP header, as with
//!   raw IPv4, packet rings and AF_XDP. UDP sockets get the priority from the kernel (IP_RECVTOS) at a cost
//!   of 60 ns per packet, more than the budget of the whole trace. They therefore report it only together
//!   with kernel timestamps.
//! - **Kernel timestamps** (`trace_device_times`) come from the real-time clock, which is set and slewed.
//!   Each burst reads both clocks together, so that the error depends only on the age of a packet, not on how
//!   long the host has run. A received packet is timestamped when the kernel takes it from the device,
//!   because the device's own clock cannot be compared with any other clock. For sent packets, the kernel
//!   reports timestamps on the socket's error queue, and identifies datagrams by its own count
//!   (`homa-driver/socket/sent_times`). Each report wakes a thread that sleeps on the socket, which is
//!   acceptable for diagnosis but not by default.
//! - **AF_XDP reports no timestamps.** The time at which the driver reads a packet is the time of the burst,
//!   which traces already contain. Reporting it as the device's time would hide the delay in between.
//!   Timestamps that devices report to XDP programs (`bpf_xdp_metadata_rx_timestamp`) come from the device's
//!   own clock, and a veth reports 0. The program could read the kernel's time itself (`bpf_ktime_get_ns`)
//!   and store it before the packet (`bpf_xdp_adjust_meta`), as packet rings do. This is not implemented.
//! - **Traces from the same machine are recognized** (`Node::machine`). Their shared clock is more accurate
//!   than any comparison by packets, and is used as it is. Clocks of different machines are compared by means
//!   of packets (`homa-analysis/align`).
//! - **Simulated switches record the same events as `homa-switch`** (`homa-sim/switches`).
//! - **Answers are functions of a model** (`homa-analysis/answers`): a result is a struct whose field names
//!   are the names in JSON, and the commands (`homa-cli/trace`) only print it. If the traces lack a stage,
//!   the answer says so and names the option that records the stage.
//! - **A link's rate is that of the densest sixteen packets** (`homa-analysis/link`), measured after switches
//!   if the switches have traces. The header overhead of a link follows from the peers' addresses: Ethernet
//!   and IP, and also UDP if the addresses have ports.
//! - **The state before an event is replayed, not stored** (`homa-analysis/replay`): the state is stored
//!   every 32 records, and the records in between are replayed. Storing an entry for each sent and received
//!   packet took a third of a gigabyte for ten million events.
//! - **The best case of a path is a line below all packets** (`answers/path`): a least-squares fit to the
//!   minimum delay for each length. The fit is repeated, and each round removes the points above the line.
//!   Extra delays are relative to this line, so none is negative.
//! - **Extra delay that nothing else explains is attributed to the switch** (`answers/decompose`). The
//!   polling gap excludes the time of arrivals on the receiver's link, and is at most the time since the
//!   queue was last seen empty. Compared with the simulator's switches, the switch's part is accurate to 0.1
//!   % at the median in a rack of 8 hosts. Each path needs undelayed packets: three with the same delay,
//!   unless a recording switch delayed them. A path is left out if one of its queues was never empty, or if
//!   rings have overwritten that time; the command prints how many paths were left out. If only a part of two
//!   racks is recorded, the result is off by a quarter. The command reports this error wherever switches
//!   recorded.
//! - **RTTbytes are measured at the sender** (`answers/rtt_bytes`): from the time a packet is sent until the
//!   arrival of the grant that it caused. The receiver's trace identifies that grant. The clocks of the two
//!   hosts are not compared.

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
