//! The runtime's events in the time trace: application sends and receives, bursts, sleeps and wake-ups.
//!
//! Each endpoint has one trace, behind the endpoint's lock: code with an event to record mostly holds the
//! lock anyway. Events that happen before the lock is taken are recorded later, with a time of the same clock
//! ([`HostClock::look`](crate::runtime::clock::HostClock::look)).

use homa_proto::Time;
use homa_proto::wire::{self, Body};
use homa_trace::{Ticks, packet_word};

use crate::observe::freeze::Freezer;
use crate::runtime::clock::HostClock;

/// Minimum gap between two rounds of a thread that did not sleep from which the thread is recorded as not
/// running. Polling threads come back within a few microseconds, and within some tens of them if they wait
/// for the lock. A processor that is given to another thread is away for a millisecond and more; interrupts
/// worth recording take some hundred microseconds.
pub(crate) const NOT_RUNNING_NS: u64 = 100_000;

/// Why a thread is woken: `a` of [`EventKind::WakeSent`].
pub(crate) const WAKE_FOR_MESSAGE: u32 = 0;
pub(crate) const WAKE_TO_LEAD: u32 = 1;

/// What an endpoint needs in order to record its time trace.
#[derive(Default)]
pub(crate) struct Tracing {
    /// `None` if time is simulated, as in tests.
    pub(crate) clock: Option<HostClock>,
    /// When the clock was last read for the trace, unless slow work was done since.
    pub(crate) just_now: Option<Time>,
    pub(crate) freezer: Freezer,
    /// The trace's clock, if the trace records the times at which the kernel received packets.
    pub(crate) device_clock: Option<Ticks>,
}

/// The name of an RPC in a trace: its id, and the number of its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceKey {
    pub(crate) id: u64,
    pub(crate) peer: u16,
}

/// A request, or a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Request = 0,
    Response = 1,
}

/// The name of a packet in a trace, if the packet can be decoded: its `sender_id`, packet word and offset.
fn described(bytes: &[u8], wire_len: usize) -> Option<(u64, u32, u32)> {
    let packet = wire::decode(bytes, wire_len).ok()?;
    let offset = if let Body::Data(data) = &packet.body { data.offset } else { 0 };
    let word = packet_word(packet.body.packet_type() as u8, wire_len as u32);
    Some((packet.common.sender_id, word, offset))
}

/// The names of all packets of a datagram. If the datagram is no bundle, only its header need be there.
pub(crate) fn described_packets(datagram: &[u8], wire_len: usize) -> impl Iterator<Item = (u64, u32, u32)> {
    let is_bundle = wire::packet_length(datagram).is_some();
    wire::packets(datagram)
        .filter_map(move |bytes| described(bytes, if is_bundle { bytes.len() } else { wire_len }))
}
