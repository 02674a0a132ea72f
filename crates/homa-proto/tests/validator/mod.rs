//! Checks every packet that an endpoint sends against Linux Homa's requirements.
//!
//! The checks read the bytes at the offsets in PROTOCOL.md instead of using our decoder, so that an error
//! made in both encoder and decoder is detected. They are stricter than the kernel: fields that the kernel
//! ignores must have the documented content.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use homa_proto::Config;

/// Maximum message length of Linux Homa.
const KERNEL_MAX_MESSAGE: u32 = 1_000_000;
/// In Linux Homa, lengths and offsets are signed 32-bit numbers.
const MAX_LENGTH: u32 = i32::MAX as u32;
/// The value of `urgent` in our packets, which have an incarnation.
const OURS: u16 = 0x484d;

const DATA: u8 = 0x10;
const GRANT: u8 = 0x11;
const RESEND: u8 = 0x12;
const RPC_UNKNOWN: u8 = 0x13;
const BUSY: u8 = 0x14;
const CUTOFFS: u8 = 0x15;
const NEED_ACK: u8 = 0x17;
const ACK: u8 = 0x18;
const START_MSG: u8 = 0x19;

/// A message in one direction of an RPC, according to its packets.
#[derive(Clone, Copy, Default)]
struct Message {
    /// Length of the message; 0 before its first packet.
    length: u32,
    /// Exclusive end of the bytes that have been sent.
    next: u32,
    /// Exclusive end of the bytes that its receiver has granted, by GRANT or RESEND.
    granted: u32,
    /// Exclusive end of the last GRANT that was sent for the message.
    last_grant: u32,
    /// Whether START_MSG has opened the message.
    started: bool,
}

/// Checks the packets of one endpoint. All of them must be passed to the validator, in the order in which
/// they are sent and received.
pub struct Validator {
    /// Minimum and maximum unscheduled bytes of a message (RTT-3).
    unsched_bytes: RangeInclusive<u32>,
    /// Number of bytes that are requested of a message if nothing of it has arrived (INCAST-8).
    first_bytes: u32,
    num_priorities: u8,
    max_packet: u32,
    has_incarnation: bool,
    /// Peers whose packets carried our mark.
    ours: HashMap<SocketAddr, bool>,
    /// Outgoing messages by peer and `sender_id` of their DATA.
    outgoing: HashMap<(SocketAddr, u64), Message>,
    incoming: HashMap<(SocketAddr, u64), Message>,
    /// Packets checked, by type.
    pub checked: [u64; 10],
}

/// Returns from the function with an error and a reason unless the condition holds.
macro_rules! require {
    ($holds:expr, $($reason:tt)+) => {
        if !$holds {
            return Err(format!($($reason)+));
        }
    };
}

/// Big-endian numbers of a header.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.0[at..at + 2].try_into().unwrap())
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    fn zero(&self, from: usize, to: usize) -> bool {
        self.0[from..to].iter().all(|&byte| byte == 0)
    }
}

impl Validator {
    /// Creates a validator for an endpoint with this configuration.
    pub fn new(config: &Config) -> Validator {
        Validator {
            unsched_bytes: if config.unsched_from_rtt && config.link_mbps.is_some() {
                config.unsched_bytes.min(config.min_unsched_bytes)
                    ..=config.unsched_bytes.max(config.max_unsched_bytes)
            } else {
                config.unsched_bytes..=config.unsched_bytes
            },
            first_bytes: config.min_unsched_bytes,
            num_priorities: config.num_priorities,
            max_packet: config.max_packet,
            has_incarnation: config.incarnation != 0,
            ours: HashMap::new(),
            outgoing: HashMap::new(),
            incoming: HashMap::new(),
            checked: [0; 10],
        }
    }

    /// Checks a packet that is being sent, given its header and the number of payload bytes. The error
    /// describes the violation.
    pub fn sent(&mut self, to: SocketAddr, priority: u8, header: &[u8], payload: u32) -> Result<(), String> {
        require!(header.len() >= 28, "{} bytes are no header", header.len());
        let bytes = Bytes(header);
        let kind = bytes.u8(11);
        self.common(&bytes, kind)?;
        // WIRE-23: only packets to our peers announce whether bundles are accepted.
        let may_say = kind == DATA && self.ours.get(&to).is_some_and(|&ours| ours);
        require!(may_say || bytes.u8(10) == 0, "bundle_endpoints {}", bytes.u8(10));
        require!(priority < self.num_priorities, "priority {priority} on the wire");
        require!(
            kind == DATA || payload == 0 && priority == self.num_priorities - 1,
            "PRIO-2: a control packet with {payload} bytes of payload at priority {priority}"
        );
        match kind {
            DATA => self.data(to, &bytes, payload),
            GRANT => self.grant(to, &bytes),
            RESEND => self.resend(to, &bytes),
            RPC_UNKNOWN => self.unknown(&bytes),
            BUSY => no_more_than_the_header(&bytes),
            CUTOFFS => self.cutoffs(to, &bytes),
            NEED_ACK => {
                require!(bytes.u64(20) & 1 == 1, "a client asks for an acknowledgement");
                no_more_than_the_header(&bytes)
            }
            ACK => acks(&bytes),
            START_MSG => self.start(to, &bytes),
            // No endpoint here sends FREEZE (FREEZE-2).
            _ => Err(format!("type {kind:#x} is sent")),
        }?;
        self.checked[usize::from(kind - DATA)] += 1;
        Ok(())
    }

    fn common(&self, bytes: &Bytes<'_>, kind: u8) -> Result<(), String> {
        let (source, dest, id) = (bytes.u16(0), bytes.u16(2), bytes.u64(20));
        let (client, server) = if id & 1 == 0 { (source, dest) } else { (dest, source) };
        require!(id > 1, "ID-1: id {id}");
        require!(client >= 32_768, "the client's port is {client}");
        require!((1..=32_767).contains(&server), "the server's port is {server}");
        require!(bytes.zero(8, 10), "packet_length {}", bytes.u16(8));
        let doff = if kind == DATA { 0xe0 } else { 0x50 };
        require!(bytes.u8(12) == doff, "doff {:#x}", bytes.u8(12));
        require!(
            kind == DATA || kind == RPC_UNKNOWN || bytes.u32(4) == 0,
            "a control packet with sequence {}",
            bytes.u32(4)
        );
        if self.has_incarnation {
            require!(bytes.u16(18) == OURS && !bytes.zero(13, 18), "ID-9: no mark");
        } else {
            require!(bytes.zero(13, 20), "ID-9: flags to urgent without an incarnation");
        }
        Ok(())
    }

    fn data(&mut self, to: SocketAddr, bytes: &Bytes<'_>, payload: u32) -> Result<(), String> {
        require!(bytes.0.len() == 56, "a DATA header of {} bytes", bytes.0.len());
        let (length, incoming, offset) = (bytes.u32(28), bytes.u32(32), bytes.u32(52));
        let (retransmit, id) = (bytes.u8(48), bytes.u64(20));
        let is_ours = self.ours.get(&to).copied();
        require!(payload >= 1, "WIRE-9: no payload");
        require!(56 + payload <= self.max_packet, "WIRE-9: {payload} bytes of payload");
        require!((1..=MAX_LENGTH).contains(&length), "WIRE-7: message length {length}");
        require!(
            is_ours != Some(false) || length <= KERNEL_MAX_MESSAGE,
            "SEND-13: {length} bytes to a kernel"
        );
        require!(bytes.u32(4) == offset, "WIRE-5: sequence {} and offset {offset}", bytes.u32(4));
        let end = offset.checked_add(payload).filter(|&end| end <= length);
        let Some(end) = end else { return Err(format!("{offset} + {payload} is beyond {length}")) };
        let started = self.outgoing.get(&(to, id)).is_some_and(|message| message.started);
        require!(
            (length.min(*self.unsched_bytes.start())..=length).contains(&incoming)
                || self.limits_unscheduled(to)
                || started,
            "WIRE-10: incoming {incoming} of {length}"
        );
        require!(
            incoming <= length && end <= incoming,
            "WIRE-10: {end} is sent, incoming {incoming} of {length}"
        );
        require!(retransmit <= 1, "retransmit {retransmit}");
        require!(
            bytes.zero(49, 52) || self.has_incarnation && is_ours != Some(false),
            "padding for a kernel"
        );
        ack_slot(bytes, 36).map_err(|reason| format!("ack of DATA: {reason}"))?;
        let unsched_bytes = *self.unsched_bytes.end();
        let message = self.outgoing.entry((to, id)).or_default();
        require!(
            message.length == 0 || message.length == length,
            "WIRE-8: {length} bytes, before {}",
            message.length
        );
        message.length = length;
        require!(
            end <= unsched_bytes.max(message.granted),
            "SEND-1: {end} is sent, {} granted",
            message.granted
        );
        if retransmit == 0 {
            require!(offset == message.next, "WIRE-11: {offset} sent, not {}", message.next);
            message.next = end;
        } else {
            require!(end <= message.next, "WIRE-11: {end} is sent again, of {}", message.next);
        }
        Ok(())
    }

    fn start(&mut self, to: SocketAddr, bytes: &Bytes<'_>) -> Result<(), String> {
        require!(bytes.0.len() == 32, "a START_MSG of {} bytes", bytes.0.len());
        let length = bytes.u32(28);
        require!(
            (self.unsched_bytes.start() + 1..=MAX_LENGTH).contains(&length),
            "DIALECT-4: START_MSG of {length} bytes"
        );
        require!(!self.limits_unscheduled(to), "DIALECT-4: START_MSG to one of ours");
        let message = self.outgoing.entry((to, bytes.u64(20))).or_default();
        require!(
            message.length == 0 || message.length == length,
            "WIRE-8: {length} bytes, before {}",
            message.length
        );
        (message.length, message.started) = (length, true);
        Ok(())
    }

    /// Returns whether this peer may have announced a lower limit on unscheduled bytes, as our peers do.
    fn limits_unscheduled(&self, peer: SocketAddr) -> bool {
        self.ours.get(&peer) == Some(&true)
    }

    fn grant(&mut self, to: SocketAddr, bytes: &Bytes<'_>) -> Result<(), String> {
        require!(bytes.0.len() == 33, "a GRANT of {} bytes", bytes.0.len());
        let (offset, priority) = (bytes.u32(28), bytes.u8(32));
        require!(priority < self.num_priorities, "GRANT with priority {priority}");
        let message = self.incoming.entry((to, bytes.u64(20) ^ 1)).or_default();
        require!(message.length != 0, "a GRANT for a message of which nothing came");
        require!(offset <= message.length, "GRANT-4: to {offset} of {}", message.length);
        // DIALECT-8: the last grant of a message that START_MSG opened is repeated.
        let least = if message.started { message.last_grant } else { message.last_grant + 1 };
        require!(offset >= least, "GRANT-7: to {offset} after {}", message.last_grant);
        message.last_grant = offset;
        Ok(())
    }

    fn resend(&mut self, to: SocketAddr, bytes: &Bytes<'_>) -> Result<(), String> {
        require!(bytes.0.len() == 37, "a RESEND of {} bytes", bytes.0.len());
        let (offset, length, priority) = (bytes.u32(28), bytes.u32(32), bytes.u8(36));
        require!(priority < self.num_priorities, "RESEND with priority {priority}");
        let message = self.incoming.get(&(to, bytes.u64(20) ^ 1)).copied().unwrap_or_default();
        if length == u32::MAX {
            require!(offset == 0, "RESEND-4: everything from {offset} on");
            return Ok(());
        }
        if message.length == 0 {
            // INCAST-8: the first bytes of a response, if nothing of it has arrived.
            require!(
                offset == 0 && length == self.first_bytes,
                "RESEND-4: {length} bytes from {offset} on of nothing"
            );
            return Ok(());
        }
        let end = offset.checked_add(length);
        require!(
            length >= 1 && end.is_some_and(|end| end <= message.length),
            "RESEND-4: {length} bytes from {offset} on of {}",
            message.length
        );
        Ok(())
    }

    fn unknown(&self, bytes: &Bytes<'_>) -> Result<(), String> {
        let reason = bytes.u32(4);
        require!(
            reason == 0 || self.has_incarnation && reason <= 3,
            "RESEND-16: reason {reason} in RPC_UNKNOWN"
        );
        no_more_than_the_header(bytes)
    }

    fn cutoffs(&self, to: SocketAddr, bytes: &Bytes<'_>) -> Result<(), String> {
        // The additional four bytes are for our peers; the kernel only checks the minimum length.
        let length = bytes.0.len();
        let is_ours = self.has_incarnation && self.ours.get(&to) == Some(&true);
        require!(length == 62 || length == 66 && is_ours, "CUTOFFS of {length} bytes");
        for level in 0..8 {
            let cutoff = bytes.u32(28 + 4 * level);
            require!(cutoff <= MAX_LENGTH, "cutoff {cutoff} is negative to the kernel");
        }
        require!(bytes.u16(60) != 0, "PRIO-9: version 0");
        Ok(())
    }

    /// Records a received packet, before the endpoint processes it.
    pub fn received(&mut self, from: SocketAddr, packet: &[u8]) {
        if packet.len() < 28 {
            return;
        }
        let bytes = Bytes(packet);
        let ours = self.ours.entry(from).or_default();
        *ours |= bytes.u16(18) == OURS;
        let id = bytes.u64(20);
        let grant = match bytes.u8(11) {
            DATA if packet.len() >= 56 => {
                self.incoming.entry((from, id)).or_default().length = bytes.u32(28);
                return;
            }
            START_MSG if packet.len() >= 32 => {
                let message = self.incoming.entry((from, id)).or_default();
                (message.length, message.started) = (bytes.u32(28), true);
                return;
            }
            GRANT if packet.len() >= 33 => bytes.u32(28),
            RESEND if packet.len() >= 37 && bytes.u32(32) != u32::MAX => {
                bytes.u32(28).saturating_add(bytes.u32(32))
            }
            _ => return,
        };
        let message = self.outgoing.entry((from, id ^ 1)).or_default();
        message.granted = message.granted.max(grant);
    }

    /// Records that the peer has restarted: ids in packets of the earlier incarnation do not refer to RPCs of
    /// the new one.
    pub fn forget(&mut self, peer: SocketAddr) {
        self.ours.remove(&peer);
        self.outgoing.retain(|(to, _), _| *to != peer);
        self.incoming.retain(|(from, _), _| *from != peer);
    }
}

fn no_more_than_the_header(bytes: &Bytes<'_>) -> Result<(), String> {
    require!(bytes.0.len() == 28, "{} bytes of a packet that is all header", bytes.0.len());
    Ok(())
}

fn acks(bytes: &Bytes<'_>) -> Result<(), String> {
    require!(bytes.0.len() == 80, "WIRE-6: an ACK of {} bytes", bytes.0.len());
    require!(bytes.u64(20) & 1 == 0, "a server acknowledges");
    let used = usize::from(bytes.u16(28));
    require!(used <= 5, "WIRE-6: {used} slots in use");
    for slot in 0..5 {
        let at = 30 + 10 * slot;
        require!((bytes.u64(at) != 0) == (slot < used), "WIRE-6: slot {slot} of {used}");
        ack_slot(bytes, at).map_err(|reason| format!("slot {slot}: {reason}"))?;
    }
    Ok(())
}

/// Checks that a slot holds a client's id and a server's port, or nothing at all.
fn ack_slot(bytes: &Bytes<'_>, at: usize) -> Result<(), String> {
    let (id, port) = (bytes.u64(at), bytes.u16(at + 8));
    if id == 0 {
        require!(port == 0, "port {port} without an id");
        return Ok(());
    }
    require!(id & 1 == 0, "id {id} is odd");
    require!((1..=32_767).contains(&port), "port {port} of a server");
    Ok(())
}
