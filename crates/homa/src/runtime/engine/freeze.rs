//! Freezes the time trace: see [`freeze`](crate::observe::freeze).

use homa_proto::Time;

use super::Engine;
use crate::observe::freeze::Cause;

impl Engine {
    /// Applies the host's freeze state to this endpoint's trace.
    #[inline]
    pub(crate) fn apply_freeze(&mut self) {
        self.tracing.freezer.apply(&mut self.endpoint);
    }

    /// Freezes the host's trace, unless it is disabled or already frozen. Returns whether it did so.
    pub(crate) fn freeze_trace(&mut self, id: u64, cause: Cause) -> bool {
        let frozen = self.tracing.freezer.freeze(&mut self.endpoint, id, cause);
        self.counts.host.trace_freezes += u64::from(frozen);
        frozen
    }

    pub(crate) fn unfreeze_trace(&mut self) {
        self.tracing.freezer.unfreeze(&mut self.endpoint);
    }

    /// Freezes the trace if a call was too slow, before newer events overwrite the call's history. Called at
    /// the end of each call.
    pub(crate) fn check_call_time(&mut self, now: Time, call: usize) {
        if self.tracing.freezer.slower_than_ns == u64::MAX {
            return;
        }
        let Some(call) = self.calls.open.get(call) else { return };
        let id = call.traced.id;
        if now.since(call.started) >= self.tracing.freezer.slower_than_ns
            && self.freeze_trace(id, Cause::Own)
            && self.tracing.freezer.tells_peers
        {
            // This round has already transmitted, so send the FREEZE packets now: until then the peers'
            // traces keep recording.
            self.transmit_round(now);
        }
    }

    /// Accepts a peer's request for a freeze. The request is neither answered nor forwarded (FREEZE-2).
    pub(crate) fn accept_freeze(&mut self) {
        if self.tracing.freezer.obeys {
            self.freeze_trace(0, Cause::Peer);
        }
    }
}
