//! Checks the bytes that a host retransmits although it has a shorter message to send: they must not exceed
//! the share of the host's oldest message (SHARE-5, SEND-5).

use homa_proto::{Endpoint, PayloadRange};

use crate::store::Store;

/// Counts of the bytes that one host has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Precedence {
    bytes: u64,
    /// Retransmitted bytes that preceded bytes of a shorter message.
    before_shorter: u64,
}

impl Precedence {
    /// Counts the bytes of a packet, which are retransmitted if `again` is set. Fails if too many
    /// retransmitted bytes preceded a shorter message.
    pub(crate) fn sends(
        &mut self,
        endpoint: &Endpoint,
        store: &Store,
        range: PayloadRange,
        again: bool,
    ) -> Result<(), String> {
        let share = u64::from(endpoint.config().pacer_fifo_fraction);
        self.bytes += u64::from(range.len);
        if !again {
            return Ok(());
        }
        let Some(shorter) = shorter_ready(endpoint, store, range) else { return Ok(()) };
        self.before_shorter += u64::from(range.len);
        if self.before_shorter * 1_000 <= self.bytes * share {
            return Ok(());
        }
        Err(format!(
            "SHARE-5: {:?} sends {} bytes again before {shorter} bytes that another message has left; {} of {} so far",
            range.rpc, range.len, self.before_shorter, self.bytes
        ))
    }
}

/// Returns the remaining bytes of a message that may be sent and is shorter than the message of the
/// retransmitted `range` (SEND-4).
fn shorter_ready(endpoint: &Endpoint, store: &Store, range: PayloadRange) -> Option<u32> {
    let own = endpoint.rpc_info(range.rpc)?;
    let least_own = own.out_length - own.out_sent + range.len;
    let is_shorter = |left: u32| left + left / 32 + 1 < least_own;
    // The cheap conditions come first, because hosts may have hundreds of messages.
    let mut others =
        store.iter().filter(|entry| entry.key != range.rpc && entry.promises.may_send(entry.outgoing));
    others.find_map(|entry| {
        if !is_shorter(entry.promises.left(entry.outgoing)) {
            return None;
        }
        let info = endpoint.rpc_info(entry.key)?;
        let left = info.out_length - info.out_sent;
        (info.out_sent < info.out_granted && is_shorter(left)).then_some(left)
    })
}
