//! The kinds of events, and what their two arguments mean.

use std::fmt;

/// Largest length that [`packet_word`] keeps, in bytes, inclusive: 24 bits.
pub const PACKET_LENGTH_MAX: u32 = (1 << 24) - 1;

/// Argument `a` of the packet events: the packet's type in the high 8 bits, its length in bytes in the low 24.
///
/// Longer lengths are stored as [`PACKET_LENGTH_MAX`]; no datagram comes near it.
#[inline]
#[must_use]
pub const fn packet_word(packet_type: u8, length_bytes: u32) -> u32 {
    let length = if length_bytes > PACKET_LENGTH_MAX { PACKET_LENGTH_MAX } else { length_bytes };
    (packet_type as u32) << 24 | length
}

/// The packet type and the length in bytes that [`packet_word`] joined.
#[inline]
#[must_use]
pub const fn packet_word_parts(word: u32) -> (u8, u32) {
    ((word >> 24) as u8, word & PACKET_LENGTH_MAX)
}

macro_rules! event_kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal, $label:literal;)+) => {
        /// What happened. The documentation of each kind says what the arguments `a` and `b` of its record hold.
        ///
        /// Counts and times that exceed 32 bits are stored as `u32::MAX`. "Packet word" is [`packet_word`]. The numbers are
        /// part of the dump format: a kind keeps its number, a new kind takes a new one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[doc = $doc])+ $name = $value,)+
        }

        impl EventKind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name),+];

            /// The kind with this number, or `None` for a number that this version does not know.
            #[inline]
            #[must_use]
            pub const fn from_u16(value: u16) -> Option<EventKind> {
                match value {
                    $($value => Some(EventKind::$name),)+
                    _ => None,
                }
            }

            /// A short name in lower case with underscores, for listings and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(EventKind::$name => $label,)+
                }
            }
        }
    };
}

event_kinds! {
    /// A packet was handed to the driver. `a`: packet word. `b`: offset of its first payload byte in the message; 0 for
    /// packets without payload.
    PacketSent = 1, "packet_sent";
    /// A packet came from the driver and was understood. `a`: packet word. `b`: as in [`EventKind::PacketSent`].
    PacketReceived = 2, "packet_received";
    /// A packet came and was dropped. `a`: packet word, type 0 and the record's id 0 where the packet was not readable. `b`: why,
    /// as [`drop_reason_name`](crate::drop_reason_name) says.
    PacketDropped = 3, "packet_dropped";
    /// The receiver of a message granted bytes. `a`: the new granted offset in the message, exclusive. `b`: the priority.
    GrantSent = 4, "grant_sent";
    /// The sender of a message was granted bytes. `a`: the new granted offset in the message, exclusive. `b`: the priority.
    GrantReceived = 5, "grant_received";
    /// An outgoing message has sent all that it was granted and waits for more. `a`: the granted offset, exclusive. `b`: the
    /// length of the message in bytes.
    WaitGrant = 6, "wait_grant";
    /// An outgoing message waits because the pacer holds the uplink's backlog down. `a`: the backlog in nanoseconds. `b`: the
    /// bytes of the message that are granted and not sent.
    WaitPacer = 7, "wait_pacer";
    /// A message waits for buffer space: it has to come again, since its receiver has no room for it, or the driver takes no packets
    /// now. `a`: bytes wanted. `b`: bytes free.
    WaitBuffer = 8, "wait_buffer";
    /// An RPC came into being on this endpoint. `a`: 0 as its client, 1 as its server. `b`: the length of the request in
    /// bytes.
    RpcStart = 9, "rpc_start";
    /// Every byte of an incoming message is there. `a`: 0 for a request, 1 for a response. `b`: its length in bytes.
    MessageComplete = 10, "message_complete";
    /// An RPC's state was freed. `a`: 0 for success, else the error as the recorder numbers its errors. `b`: 0 as its client,
    /// 1 as its server.
    RpcEnd = 11, "rpc_end";
    /// A RESEND was sent. `a`: length of the range asked for in bytes. `b`: its offset.
    ResendSent = 12, "resend_sent";
    /// A RESEND was received. `a`: length of the range asked for in bytes. `b`: its offset.
    ResendReceived = 13, "resend_received";
    /// A BUSY was sent. `a` and `b`: 0.
    BusySent = 14, "busy_sent";
    /// A BUSY was received. `a` and `b`: 0.
    BusyReceived = 15, "busy_received";
    /// A timer fired and something follows from it. `a`: how late in nanoseconds. `b`: 1 missing bytes are asked for again, 2 a client
    /// is asked for its acknowledgement, 3 the RPC is given up, 4 a silent client is asked for a sign of life.
    TimerFired = 16, "timer_fired";
    /// A peer was given up. `a`: milliseconds since its last packet. `b`: number of RPCs that ended with it.
    PeerTimeout = 17, "peer_timeout";
    /// The trace was frozen: this is its last event. `a`: 0 for a decision of this host, 1 for a FREEZE packet. `b`: 0.
    Freeze = 18, "freeze";
    /// The application handed over a message. `a`: 0 for a request, 1 for a response. `b`: its length in bytes.
    AppSend = 19, "app_send";
    /// The application took a message. `a`: 0 for a request, 1 for a response. `b`: its length in bytes.
    AppReceive = 20, "app_receive";
    /// A frame was put into a queue of a switch's port. The record's id is that of the RPC as the packet's sender has it, and its
    /// [`place`](crate::Record::place) says where. `a`: packet word, its type 0 and its id 0 where the frame holds no Homa packet; of a
    /// Homa packet the length without other headers, as hosts record it. `b`: as in [`EventKind::PacketSent`].
    SwitchEntered = 21, "switch_entered";
    /// The frame has left the link of that port, before any delay that the switch adds. Everything as in
    /// [`EventKind::SwitchEntered`].
    SwitchLeft = 22, "switch_left";
    /// A switch dropped a frame that was for a port. As in [`EventKind::SwitchEntered`]; the place says why.
    SwitchDropped = 23, "switch_dropped";
    /// A burst of packets is about to be handed to the driver. Id 0. `a`: packets. `b`: bytes.
    BurstOut = 24, "burst_out";
    /// The driver has taken what it took of the burst before. Id 0. `a`: packets taken. `b`: 0.
    BurstTaken = 25, "burst_taken";
    /// A burst of at least one packet was read from the driver. Id 0. `a`: datagrams, a bundle counting as one. `b`: how
    /// often the driver was asked in vain since the burst before.
    BurstIn = 26, "burst_in";
    /// The packets of that burst are processed. Id 0. `a`: packets. `b`: 0.
    BurstProcessed = 27, "burst_processed";
    /// The device or the kernel beneath the driver sent a packet, by the time stamp that it gave. `a`: packet word. `b`: as in
    /// [`EventKind::PacketSent`].
    DeviceSent = 28, "device_sent";
    /// The device or the kernel beneath the driver received a packet, by its time stamp. As in [`EventKind::DeviceSent`].
    DeviceReceived = 29, "device_received";
    /// A thread that sleeps is woken because something is there for it. `a`: 0 for a message of this id, 1 to take the lead.
    /// `b`: 0.
    WakeSent = 30, "wake_sent";
    /// A thread that was asleep runs again. `a`: 0 after [`EventKind::WakeSent`], 1 because of packets or a timer. `b`:
    /// microseconds that it was asleep.
    Woken = 31, "woken";
    /// A thread goes to sleep in the kernel until packets, a timer or another thread wake it. `a` and `b`: 0.
    Asleep = 32, "asleep";
    /// Another trace was asked to freeze: a FREEZE packet goes to the peer. `a` and `b`: 0.
    FreezeSent = 33, "freeze_sent";
    /// The thread that drives noticed that it had not run although it was not asleep: it was preempted, or stopped. Id 0. `a`:
    /// nanoseconds that it did not run, up to now. `b`: 0.
    NotRunning = 34, "not_running";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_from_its_number_and_has_its_own_name() {
        let mut names = std::collections::BTreeSet::new();
        for &kind in EventKind::ALL {
            assert_eq!(EventKind::from_u16(kind as u16), Some(kind));
            assert!(names.insert(kind.name()), "{kind} twice");
        }
        assert_eq!(EventKind::from_u16(0), None);
        assert_eq!(EventKind::from_u16(EventKind::ALL.len() as u16 + 1), None);
    }

    #[test]
    fn a_packet_word_keeps_type_and_length_and_saturates() {
        assert_eq!(packet_word(0x10, 1500), 0x1000_05dc);
        assert_eq!(packet_word_parts(packet_word(0x1a, 65_507)), (0x1a, 65_507));
        assert_eq!(packet_word_parts(packet_word(0x11, u32::MAX)), (0x11, PACKET_LENGTH_MAX));
    }
}
