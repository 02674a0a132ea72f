//! The host's other endpoints: packets and reports for them, and from them.

use std::net::SocketAddr;

use homa_proto::{Time, Unreachable};

use super::Engine;

impl Engine {
    /// Processes the received burst if some of it may belong to other endpoints, or to other processes.
    pub(super) fn take_steered_burst(&mut self, now: Time) {
        let Some(kin) = &mut self.tenancy.kin else { return };
        if let Some(stake) = &mut self.tenancy.stake {
            stake.adopt_cutoffs(&mut self.endpoint);
        }
        kin.take_burst(
            now,
            &self.receiving.burst,
            self.tenancy.share.as_ref(),
            (&mut self.endpoint, &mut self.buffers),
        );
    }

    /// Passes a network report about a peer to the other endpoints. Over raw IP the kernel has given it to
    /// each of them.
    pub(super) fn tell_unreachable(&self, peer: SocketAddr, report: Unreachable) {
        if let Some(kin) = self.tenancy.kin.as_ref().filter(|_| self.tenancy.share.is_none()) {
            kin.tell_unreachable(peer, report);
        }
    }

    /// Whether there is urgent mail from other endpoints.
    pub(super) fn has_urgent_mail(&self) -> bool {
        self.tenancy.kin.as_ref().is_some_and(|kin| kin.has_urgent_mail())
    }

    /// Takes the mail from other endpoints; returns whether there was any.
    pub(super) fn take_mail(&mut self, now: Time) -> bool {
        let Some(kin) = &mut self.tenancy.kin else { return false };
        kin.take_mail(now, self.tenancy.share.as_ref(), (&mut self.endpoint, &mut self.buffers))
    }

    /// Synchronises with the other endpoints of this process, if there are any and it is time.
    pub(super) fn stake_tick(&mut self, now: Time) {
        if let Some(stake) = &mut self.tenancy.stake {
            stake.tick(now, &mut self.endpoint);
        }
    }

    /// Publishes the consequences of packets and timers to the host's other endpoints.
    pub(super) fn stake_after(&mut self, now: Time) {
        if let Some(stake) = &mut self.tenancy.stake {
            stake.publish_cutoffs(&mut self.endpoint);
            stake.lease_grants(now, &mut self.endpoint);
        }
    }
}
