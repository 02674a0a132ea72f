//! Deals with the other processes at the host's address: their packets, and the ports that all processes
//! agree on.

use homa_proto::Time;

use super::Engine;
use crate::tenancy::process_group::PortClaim;
use crate::types::error::HostError;

impl Engine {
    /// Synchronises with the other processes of the host, if there can be any, when the next tick is due.
    pub(super) fn tick_processes(&mut self, now: Time) {
        if let Some(processes) = &mut self.tenancy.processes {
            processes.tick(now, &mut self.endpoint, &mut *self.driver, self.tenancy.lease.as_mut());
        }
    }

    /// Processes the received burst if part of it may belong to other processes.
    pub(super) fn take_shared_burst(&mut self, now: Time) {
        let Some(processes) = &mut self.tenancy.processes else { return };
        if let Some(lease) = &mut self.tenancy.lease {
            lease.adopt_cutoffs(&mut self.endpoint);
        }
        processes.take_burst(now, &self.receiving.burst, (&mut self.endpoint, &mut self.buffers));
    }

    /// Closes a port of the endpoint, and releases the port for all processes once its last RPC has been
    /// freed.
    pub(crate) fn close_port(&mut self, now: Time, port: u16) {
        self.endpoint.close_port(now, port);
        if let Some(processes) = &mut self.tenancy.processes {
            processes.port_closed(now, port);
        }
    }

    /// Opens `port` of the endpoint, which the segment has assigned to this process. If that fails, the port
    /// is released.
    pub(crate) fn open_shared_port(
        &mut self,
        now: Time,
        port: u16,
        bound: Option<PortClaim>,
    ) -> Result<(), HostError> {
        let Some(processes) = &mut self.tenancy.processes else { return Err(HostError::Closed) };
        if let Err(error) = self.endpoint.open_port(port) {
            if !self.endpoint.is_port_open(port) {
                processes.port_closed(now, port);
            }
            return Err(error.into());
        }
        processes.port_opened(port);
        processes.choose_receiver(now);
        // HOST-10: this lasts for as long as a client of the previous owner may still send a RESEND.
        let inherited = bound.is_some_and(|bound| bound.inherited);
        let until = if inherited { now + self.endpoint.config().max_packet_lifetime_ns } else { Time::ZERO };
        self.endpoint.note_lost_owner(port, until);
        if let Err(source) = processes.refilter(&mut *self.driver) {
            self.close_port(now, port);
            return Err(HostError::System { what: "a receive filter", source });
        }
        Ok(())
    }
}
