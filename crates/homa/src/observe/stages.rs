//! The runtime's events in the time trace: application sends and receives, bursts, sleeps and wake-ups.
//!
//! Each endpoint has one trace, guarded by the endpoint's lock: code that records an event usually holds the
//! lock anyway. Events that happen before the lock is taken are recorded later, with a timestamp from the
//! same clock ([`HostClock::look`](crate::runtime::clock::HostClock::look)).

use homa_proto::Time;
use homa_proto::wire::{self, Body};
use homa_trace::{Ticks, packet_word};

use crate::observe::freeze::Freezer;
use crate::runtime::clock::HostClock;

/// If the gap between two rounds of a thread that did not sleep is at least this long, the thread is recorded
/// as not running. Polling threads start the next round within a few microseconds, or within tens of
/// microseconds if they wait for the lock. If the processor is given to another thread, the gap is a
/// millisecond or more. Interrupts worth recording take a few hundred microseconds.
pub(crate) const NOT_RUNNING_NS: u64 = 100_000;

/// Reason for waking a thread: `a` of [`EventKind::WakeSent`].
pub(crate) const WAKE_FOR_MESSAGE: u32 = 0;
pub(crate) const WAKE_TO_LEAD: u32 = 1;

/// The state that an endpoint needs to record its time trace.
#[derive(Default)]
pub(crate) struct Tracing {
    /// `None` if time is simulated, as in tests.
    pub(crate) clock: Option<HostClock>,
    /// The time when the clock was last read for the trace, unless slow work has been done since.
    pub(crate) just_now: Option<Time>,
    pub(crate) freezer: Freezer,
    /// The trace's clock, if the trace records when the kernel received packets.
    pub(crate) device_clock: Option<Ticks>,
}

/// Identity of an RPC in a trace: its ID, and the number of its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceKey {
    pub(crate) id: u64,
    pub(crate) peer: u16,
}

/// A request or a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Request = 0,
    Response = 1,
}

/// Returns what identifies a packet in a trace, if the packet can be decoded: its `sender_id`, packet word
/// and offset.
fn described(bytes: &[u8], wire_len: usize) -> Option<(u64, u32, u32)> {
    let packet = wire::decode(bytes, wire_len).ok()?;
    let offset = if let Body::Data(data) = &packet.body { data.offset } else { 0 };
    let word = packet_word(packet.body.packet_type() as u8, wire_len as u32);
    Some((packet.common.sender_id, word, offset))
}

/// Returns what identifies each packet of a datagram. If the datagram is not a bundle, only its header needs
/// to be present.
pub(crate) fn described_packets(datagram: &[u8], wire_len: usize) -> impl Iterator<Item = (u64, u32, u32)> {
    let is_bundle = wire::packet_length(datagram).is_some();
    wire::packets(datagram)
        .filter_map(move |bytes| described(bytes, if is_bundle { bytes.len() } else { wire_len }))
}
