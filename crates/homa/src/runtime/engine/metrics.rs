//! The counters of an endpoint.

use super::Engine;
use crate::observe::metrics::Metrics;

impl Engine {
    /// Returns every counter of this endpoint.
    pub(crate) fn metrics(&mut self) -> Metrics {
        let mut host = self.counts.host.clone();
        host.endpoints = 1;
        host.granted_bytes = self.endpoint.granted_bytes();
        let trace = self.endpoint.trace();
        host.trace_records = trace.len() as u64;
        host.trace_records_overwritten = trace.overwritten();
        host.open_rpcs = self.endpoint.open_rpcs() as u64;
        host.open_calls = self.calls.open.len() as u64;
        host.open_readings = self.requests.readings.len() as u64;
        host.queued_requests = self.requests.ports.iter().map(|(_, port)| port.queue_len() as u64).sum();
        host.queued_request_bytes = self.requests.queued_bytes;
        host.outgoing_bytes = self.buffers.outgoing_bytes();
        host.incoming_bytes = self.buffers.incoming_bytes();
        host.buffers_allocated = self.buffers.allocations();
        host.known_peers = self.endpoint.known_peers() as u64;
        host.link_mbps = self.endpoint.config().link_mbps.unwrap_or(0).into();
        host.unsched_limit_bytes = self.endpoint.unsched_limit().unwrap_or(0).into();
        host.leader_sleeps = self.waiting.counts.leader_sleeps;
        host.leader_rings = self.waiting.counts.leader_notifications;
        host.handovers = self.waiting.counts.handovers;
        host.progress_takeovers = self.driving.progress.takeovers;
        host.low_latency_held = self.driving.progress.low_latency_held.into();
        if let Some(member) = &self.tenancy.group {
            let mail = member.mail_counts();
            (host.misdirected_packets, host.mail_dropped) = (mail.packets, mail.dropped);
            host.mail_lock_acquisitions = mail.lock_acquisitions;
            host.mail_lock_misses = mail.lock_misses;
            host.mail_lock_wait_ns = mail.lock_wait_ns;
        }
        if let Some(processes) = &self.tenancy.processes {
            processes.count(&mut host);
        }
        if let Some(lease) = &self.tenancy.lease {
            let (budget, own, all) = lease.grant_bytes();
            host.shared_grant_budget_bytes = budget;
            (host.shared_grant_lease_bytes, host.shared_grant_leased_bytes) = (own, all);
        }
        Metrics {
            endpoint: self.endpoint.stats().clone(),
            driver: self.driver.stats(),
            host,
            call_times: self.counts.call_times.as_ref().clone(),
            answer_times: self.counts.answer_times.as_ref().clone(),
        }
    }
}
