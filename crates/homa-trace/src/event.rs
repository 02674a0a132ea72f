//! The kinds of events and the meaning of their two arguments.

use std::fmt;

/// Maximum length in bytes that [`packet_word`] can store: 24 bits.
pub const PACKET_LENGTH_MAX: u32 = (1 << 24) - 1;

/// Encodes argument `a` of the packet events: the packet's type in the high 8 bits, its length in bytes in
/// the low 24.
///
/// Longer lengths are stored as [`PACKET_LENGTH_MAX`]; no datagram is nearly that long.
#[inline]
#[must_use]
pub const fn packet_word(packet_type: u8, length_bytes: u32) -> u32 {
    let length = if length_bytes > PACKET_LENGTH_MAX { PACKET_LENGTH_MAX } else { length_bytes };
    (packet_type as u32) << 24 | length
}

/// Returns the packet type and the length in bytes stored in a [`packet_word`].
#[inline]
#[must_use]
pub const fn packet_word_parts(word: u32) -> (u8, u32) {
    ((word >> 24) as u8, word & PACKET_LENGTH_MAX)
}

macro_rules! event_kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal, $label:literal;)+) => {
        /// A kind of event. The documentation of each kind describes the arguments `a` and `b` of its record.
        ///
        /// Counts and times that exceed 32 bits are stored as `u32::MAX`. "Packet word" is [`packet_word`].
        /// The numbers are part of the dump format: a kind keeps its number, and a new kind gets a new one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[doc = $doc])+ $name = $value,)+
        }

        impl EventKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name),+];

            /// Returns the kind with this number, or `None` if this version does not know the number.
            #[inline]
            #[must_use]
            pub const fn from_u16(value: u16) -> Option<EventKind> {
                match value {
                    $($value => Some(EventKind::$name),)+
                    _ => None,
                }
            }

            /// Returns a short name in lower case with underscores, for listings and metrics.
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
    /// A packet was handed to the driver. `a`: packet word. `b`: offset of its first payload byte in the
    /// message; 0 for packets without payload.
    PacketSent = 1, "packet_sent";
    /// A packet from the driver was decoded. `a`: packet word. `b`: as in [`EventKind::PacketSent`].
    PacketReceived = 2, "packet_received";
    /// A received packet was dropped. `a`: packet word; its type and the record's ID are 0 if the packet was
    /// unreadable. `b`: the reason, see [`drop_reason_name`](crate::drop_reason_name).
    PacketDropped = 3, "packet_dropped";
    /// The receiver of a message sent a grant. `a`: the new granted offset in the message, exclusive. `b`:
    /// the priority.
    GrantSent = 4, "grant_sent";
    /// The sender of a message received a grant. `a`: the new granted offset in the message, exclusive. `b`:
    /// the priority.
    GrantReceived = 5, "grant_received";
    /// An outgoing message has sent all granted bytes and waits for more. `a`: the granted offset, exclusive.
    /// `b`: the length of the message in bytes.
    WaitGrant = 6, "wait_grant";
    /// An outgoing message waits because the pacer limits the uplink's backlog. `a`: the backlog in
    /// nanoseconds. `b`: number of the message's granted bytes that have not been sent yet.
    WaitPacer = 7, "wait_pacer";
    /// A message waits for buffer space: either its receiver has no room for the message, so that it must be
    /// sent again, or the driver currently accepts no packets. `a`: bytes needed. `b`: bytes free.
    WaitBuffer = 8, "wait_buffer";
    /// An RPC was created on this endpoint. `a`: 0 at the client, 1 at the server. `b`: the length of the
    /// request in bytes.
    RpcStart = 9, "rpc_start";
    /// An incoming message is complete. `a`: 0 for a request, 1 for a response. `b`: its length in bytes.
    MessageComplete = 10, "message_complete";
    /// An RPC's state was freed. `a`: 0 for success, or else the recorder's number for the error. `b`: 0 at
    /// the client, 1 at the server.
    RpcEnd = 11, "rpc_end";
    /// A RESEND was sent. `a`: length of the requested range in bytes. `b`: its offset.
    ResendSent = 12, "resend_sent";
    /// A RESEND was received. `a`: length of the requested range in bytes. `b`: its offset.
    ResendReceived = 13, "resend_received";
    /// A BUSY was sent. `a` and `b`: 0.
    BusySent = 14, "busy_sent";
    /// A BUSY was received. `a` and `b`: 0.
    BusyReceived = 15, "busy_received";
    /// A timer fired and caused an action. `a`: its delay in nanoseconds. `b`: the action: 1 RESEND for
    /// missing bytes, 2 request for a client's acknowledgement, 3 abort of the RPC, 4 probe of a silent
    /// client.
    TimerFired = 16, "timer_fired";
    /// A peer timed out. `a`: milliseconds since the peer's last packet. `b`: number of RPCs that were
    /// aborted as a result.
    PeerTimeout = 17, "peer_timeout";
    /// The trace was frozen; this is its last event. `a`: 0 if this host decided to freeze, 1 after a FREEZE
    /// packet. `b`: 0.
    Freeze = 18, "freeze";
    /// The application submitted a message. `a`: 0 for a request, 1 for a response. `b`: its length in bytes.
    AppSend = 19, "app_send";
    /// The application received a message. `a`: 0 for a request, 1 for a response. `b`: its length in bytes.
    AppReceive = 20, "app_receive";
    /// A frame entered a queue of a switch's port. The record's ID is the RPC's ID at the packet's sender,
    /// and the record's [`place`](crate::Record::place) holds the port and the queue. `a`: packet word. The
    /// packet word's type and the record's ID are 0 if the frame contains no Homa packet. For a Homa packet,
    /// the length excludes other headers, as it does in records of hosts. `b`: as in
    /// [`EventKind::PacketSent`].
    SwitchEntered = 21, "switch_entered";
    /// The transmission of the frame on the port's link has ended; any delay that the switch adds comes
    /// later. ID and arguments as in [`EventKind::SwitchEntered`].
    SwitchLeft = 22, "switch_left";
    /// A switch dropped a frame for a port. ID and arguments as in [`EventKind::SwitchEntered`]; the place
    /// contains the reason.
    SwitchDropped = 23, "switch_dropped";
    /// A burst of packets is about to be handed to the driver. ID 0. `a`: packets. `b`: bytes.
    BurstOut = 24, "burst_out";
    /// The driver has accepted packets of the previous burst. ID 0. `a`: packets accepted. `b`: 0.
    BurstTaken = 25, "burst_taken";
    /// A burst of at least one packet was read from the driver. ID 0. `a`: datagrams, where a bundle counts
    /// as one. `b`: empty polls of the driver since the previous burst.
    BurstIn = 26, "burst_in";
    /// The packets of the last burst that was read have been processed. ID 0. `a`: packets. `b`: 0.
    BurstProcessed = 27, "burst_processed";
    /// The device or the kernel below the driver sent a packet, according to its timestamp. `a`: packet word.
    /// `b`: as in [`EventKind::PacketSent`].
    DeviceSent = 28, "device_sent";
    /// The device or the kernel below the driver received a packet, according to its timestamp. Arguments as
    /// in [`EventKind::DeviceSent`].
    DeviceReceived = 29, "device_received";
    /// A sleeping thread is notified. `a`: 0 for a message with this ID, 1 to become the leader. `b`: 0.
    WakeSent = 30, "wake_sent";
    /// A sleeping thread runs again. `a`: 0 after [`EventKind::WakeSent`], 1 because of packets or a timer.
    /// `b`: sleep time in microseconds.
    Woken = 31, "woken";
    /// A thread goes to sleep in the kernel until packets, a timer or another thread wake it. `a` and `b`: 0.
    Asleep = 32, "asleep";
    /// A FREEZE packet is sent to the peer, to freeze its trace. `a` and `b`: 0.
    FreezeSent = 33, "freeze_sent";
    /// The driving thread noticed that it had been preempted or stopped: it did not run although it was not
    /// asleep. ID 0. `a`: nanoseconds until now for which it did not run. `b`: 0.
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
