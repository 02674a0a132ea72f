//! Sends a message from the caller's memory, and copies it only in idle time: see
//! [`deferred_copy`](crate::payload::deferred_copy).

use crate::payload::deferred_copy::{GatherList, Outgoing};
use crate::runtime::engine::Engine;
use crate::runtime::shared_engine::SharedEngine;

/// Minimum length of a message that is copied while it is being sent. Copying a shorter message takes no
/// longer than one poll for packets.
const MIN_BYTES: usize = 16 << 10;

/// Maximum length of such a message: the host's lock is held during the whole copy.
const MAX_BYTES: usize = 4 << 20;

/// Ends the copying on drop, even after a panic.
struct CopyGuard<'a>(&'a mut Engine);

impl Drop for CopyGuard<'_> {
    fn drop(&mut self) {
        self.0.buffers.finish_copying();
    }
}

/// Returns whether to copy these pieces while they are being sent instead of before.
pub(crate) fn pays_off(shared: &SharedEngine, pieces: &[&[u8]]) -> bool {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    (MIN_BYTES..=MAX_BYTES).contains(&length) && !shared.is_wanted() && shared.lock().waiting.is_idle()
}

/// Passes pieces to `begin`, which begins to send them, and drives the network while packets may refer to the
/// pieces. The pieces are no longer used when this returns.
pub(crate) fn copy_and_send<T>(
    shared: &SharedEngine,
    engine: &mut Engine,
    pieces: &[&[u8]],
    begin: impl FnOnce(&mut Engine, Outgoing) -> T,
) -> T {
    let finish = CopyGuard(engine);
    // SAFETY: `finish` ends the use of the pieces before they go out of scope.
    let begun = begin(finish.0, Outgoing::GatherList(unsafe { GatherList::new(pieces) }));
    let mut sent = 0;
    while let Some(before) = finish.0.sent_of_copying() {
        // After a round that has sent packets, more packets may follow. The copy continues only if none do.
        let goes_on = std::mem::replace(&mut sent, before) < before;
        if shared.is_wanted() || !goes_on && !finish.0.buffers.copy_more() {
            break;
        }
        finish.0.drive(shared.now());
    }
    begun
}
