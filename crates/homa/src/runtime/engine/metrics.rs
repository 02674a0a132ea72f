//! The counters of an endpoint.

use super::Engine;
use crate::observe::metrics::Metrics;

impl Engine {
    /// Every counter of this endpoint.
    pub(crate) fn metrics(&mut self) -> Metrics {
        let mut host = self.counts.clone();
        host.endpoints = 1;
        host.granted_bytes = self.endpoint.granted_bytes();
        let trace = self.endpoint.trace();
        host.trace_records = trace.len() as u64;
        host.trace_records_overwritten = trace.overwritten();
        host.open_rpcs = self.endpoint.open_rpcs() as u64;
        host.open_calls = self.calls.len() as u64;
        host.open_readings = self.readings.len() as u64;
        host.queued_requests = self.servers.iter().map(|(_, port)| port.queue_len() as u64).sum();
        host.queued_request_bytes = self.queued_bytes;
        host.outgoing_bytes = self.buffers.outgoing_bytes();
        host.incoming_bytes = self.buffers.incoming_bytes();
        host.buffers_allocated = self.buffers.allocations();
        host.known_peers = self.endpoint.known_peers() as u64;
        host.link_mbps = self.endpoint.config().link_mbps.unwrap_or(0).into();
        host.unsched_limit_bytes = self.endpoint.unsched_limit().unwrap_or(0).into();
        host.leader_sleeps = self.waiting.leader_sleeps;
        host.leader_rings = self.waiting.leader_rings;
        host.handovers = self.waiting.handovers;
        host.progress_takeovers = self.progress.takeovers;
        host.low_latency_held = self.progress.low_latency_held.into();
        if let Some(kin) = &self.kin {
            let mail = kin.mail_counts();
            (host.misdirected_packets, host.mail_dropped) = (mail.packets, mail.dropped);
            host.mail_lock_acquisitions = mail.lock_acquisitions;
            host.mail_lock_misses = mail.lock_misses;
            host.mail_lock_wait_ns = mail.lock_wait_ns;
        }
        if let Some(share) = &self.share {
            share.count(&mut host);
        }
        if let Some(stake) = &self.stake {
            let (budget, lease, leased) = stake.grant_bytes();
            host.shared_grant_budget_bytes = budget;
            (host.shared_grant_lease_bytes, host.shared_grant_leased_bytes) = (lease, leased);
        }
        Metrics {
            endpoint: self.endpoint.stats().clone(),
            driver: self.driver.stats(),
            host,
            call_times: self.call_times.as_ref().clone(),
            answer_times: self.answer_times.as_ref().clone(),
        }
    }
}
