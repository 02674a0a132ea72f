//! Exchanges packets and reports with the host's other endpoints.

use std::net::SocketAddr;

use homa_proto::{Time, Unreachable};

use super::Engine;

impl Engine {
    /// Processes the received burst if part of it may belong to other endpoints or processes.
    pub(super) fn take_steered_burst(&mut self, now: Time) {
        let Some(member) = &mut self.tenancy.group else { return };
        if let Some(lease) = &mut self.tenancy.lease {
            lease.adopt_cutoffs(&mut self.endpoint);
        }
        member.take_burst(
            now,
            &self.receiving.burst,
            self.tenancy.processes.as_ref(),
            (&mut self.endpoint, &mut self.buffers),
        );
    }

    /// Passes a network report about a peer to the other endpoints. Over raw IP the kernel has already given
    /// the report to each of them.
    pub(super) fn share_unreachable(&self, peer: SocketAddr, report: Unreachable) {
        let one_has_it = self.tenancy.processes.as_ref().is_none_or(|processes| processes.socket.is_some());
        if let Some(member) = self.tenancy.group.as_ref().filter(|_| one_has_it) {
            member.share_unreachable(peer, report);
        }
    }

    /// Returns whether there is urgent mail from other endpoints.
    pub(super) fn has_urgent_mail(&self) -> bool {
        self.tenancy.group.as_ref().is_some_and(|member| member.has_urgent_mail())
    }

    /// Takes the mail from other endpoints; returns whether there was any.
    pub(super) fn take_mail(&mut self, now: Time) -> bool {
        let Some(member) = &mut self.tenancy.group else { return false };
        member.take_mail(now, self.tenancy.processes.as_ref(), (&mut self.endpoint, &mut self.buffers))
    }

    /// Synchronises with the other endpoints of this process, if there are any, when the next tick is due.
    pub(super) fn tick_lease(&mut self, now: Time) {
        if let Some(lease) = &mut self.tenancy.lease {
            lease.tick(now, &mut self.endpoint);
        }
    }

    /// Publishes the effects of packets and timers to the host's other endpoints.
    pub(super) fn publish_lease(&mut self, now: Time) {
        if let Some(lease) = &mut self.tenancy.lease {
            lease.publish_cutoffs(&mut self.endpoint);
            lease.lease_grants(now, &mut self.endpoint);
        }
    }
}
