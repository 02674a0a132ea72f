//! All counters of a host.

use homa_driver::DriverStats;
use homa_proto::Stats;

use crate::observe::metrics_text::MetricKind;
use crate::observe::times::TimesBySize;

/// Defines [`HostCounts`], with one documented `u64` for each counter, and the list of the counters' names,
/// values and meanings.
macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:ident,)+) => {
        /// Counters of the runtime, the layer between the application and the protocol.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct HostCounts {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl HostCounts {
            /// Returns the name, value and meaning of every counter, in declaration order.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, concat!($($doc),+)),)+]
            }

            /// The kinds of the counters, in declaration order.
            const KINDS: &'static [MetricKind] = &[$(MetricKind::$kind,)+];

            /// Adds the counts of another endpoint. The caller corrects values that apply to the host as a
            /// whole.
            fn add(&mut self, other: &HostCounts) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }
    };
}

counts! {
    /// Endpoints of this host.
    Gauge endpoints,
    /// RPCs currently open, as client or server.
    Gauge open_rpcs,
    /// Calls whose result has not arrived or has not been taken.
    Gauge open_calls,
    /// Requests that the application took before they were whole and has not read to the end.
    Gauge open_readings,
    /// Requests currently waiting for `recv`.
    Gauge queued_requests,
    /// Bytes of the requests currently waiting for `recv`.
    Gauge queued_request_bytes,
    /// Bytes of outgoing messages currently held.
    Gauge outgoing_bytes,
    /// Bytes of incoming messages currently held, each counted whole from its first packet on.
    Gauge incoming_bytes,
    /// Buffers allocated for incoming messages because none was free; constant in the steady state.
    Counter buffers_allocated,
    /// Requests given up because `max_queued_request_bytes` was reached.
    Counter requests_refused,
    /// Bytes granted to senders or sendable unscheduled, but not yet received.
    Gauge granted_bytes,
    /// Events currently in the time trace.
    Gauge trace_records,
    /// Events of the time trace that newer events have overwritten.
    Counter trace_records_overwritten,
    /// Peers currently known. A peer counts once for each endpoint that knows it, but `Host::peers` lists it
    /// once.
    Gauge known_peers,
    /// Speed of this host's link in Mbit/s, from the settings or the device. 0 means unknown: then the pacer
    /// is off and unscheduled bytes do not adapt to round-trip times.
    Gauge link_mbps,
    /// Maximum unscheduled bytes of a message that this host announces to its peers after incast; 0 means no
    /// limit.
    Gauge unsched_limit_bytes,
    /// Number of times that a thread took the host's lock. A polling thread takes it once in each round;
    /// starting a call or replying takes it once.
    Counter lock_acquisitions,
    /// Lock acquisitions that found the lock taken.
    Counter lock_misses,
    /// Nanoseconds that threads waited for the host's lock, over all misses.
    Counter lock_wait_ns,
    /// Drive rounds.
    Counter drive_rounds,
    /// Datagrams sent that carried more than one packet.
    Counter bundles_sent,
    /// Packets sent in datagrams that carried more than one packet.
    Counter bundled_packets_sent,
    /// Times that the time trace was frozen: by the application, by a slow RPC, or by a FREEZE packet.
    Counter trace_freezes,
    /// Times that the leading thread slept in the kernel.
    Counter leader_sleeps,
    /// Times that another thread ended the leading thread's sleep.
    Counter leader_rings,
    /// Times that a leading thread handed leadership to another thread.
    Counter handovers,
    /// Times that the progress thread took over driving.
    Counter progress_takeovers,
    /// 1 while this host keeps the processors out of deep sleep, otherwise 0.
    Gauge low_latency_held,
    /// Times that the packet path failed.
    Counter driver_failures,
    /// Packets that arrived at an endpoint that does not own their RPC, and were handed to the owner.
    Counter misdirected_packets,
    /// Times that a request found no available thread at its own endpoint, so that a thread at another
    /// endpoint was woken.
    Counter help_calls,
    /// Requests taken by a thread or task that was waiting at another endpoint.
    Counter taken_elsewhere,
    /// Messages between endpoints that were dropped because the receiving endpoint was too far behind.
    Counter mail_dropped,
    /// Times that an endpoint's mailbox was locked, to post or to take mail.
    Counter mail_lock_acquisitions,
    /// Mailbox lock acquisitions that found the lock taken.
    Counter mail_lock_misses,
    /// Nanoseconds that threads waited for a mailbox lock, over all misses.
    Counter mail_lock_wait_ns,
    /// Endpoints of all hosts that share this host's address, including its own; 0 if sharing is impossible,
    /// as over UDP.
    Gauge shared_processes,
    /// This host's slot in the shared segment; the first slot if the host has several endpoints.
    Gauge shared_slot,
    /// 1 if this host is the leader of the hosts that share its address: the leader answers for ports that no
    /// process has.
    Gauge shared_leads,
    /// Processes of this host found dead since its first process started.
    Counter shared_found_dead,
    /// Maximum bytes that all processes and endpoints of this host together may have granted but not yet
    /// received; 0 for a host with a single endpoint that shares its address with no process.
    Gauge shared_grant_budget_bytes,
    /// Bytes of the shared grant budget that this process, or this endpoint, has leased.
    Gauge shared_grant_lease_bytes,
    /// Bytes of the shared grant budget that all processes and endpoints have leased.
    Gauge shared_grant_leased_bytes,
}

/// A snapshot of all counters of a host. Their number does not depend on the load, so they can be read as
/// often as needed. [`Host::peers`](crate::Host::peers) returns what the host knows about each peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Counters of the protocol: packets by type, and drops by reason.
    pub endpoint: Stats,
    /// Counters of the packet path.
    pub driver: DriverStats,
    /// Counters of the runtime.
    pub host: HostCounts,
    /// How long calls took, from their start until the response had arrived completely. Excludes calls that
    /// failed or were aborted. Not part of the [entries](Metrics::entries).
    pub call_times: TimesBySize,
    /// How long answers took, from the arrival of the whole request until the application handed over its
    /// answer. This is the time that the request waited for a thread and was being handled, without network
    /// time. Excludes requests that were not answered. Not part of the entries.
    pub answer_times: TimesBySize,
}

/// Counters and durations that the engine itself keeps.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) host: HostCounts,
    pub(crate) call_times: Box<TimesBySize>,
    pub(crate) answer_times: Box<TimesBySize>,
}

impl Metrics {
    /// Sums the counts of a host's endpoints (at least one).
    pub(crate) fn sum(endpoints: &[Metrics]) -> Metrics {
        let mut sum = endpoints[0].clone();
        for other in &endpoints[1..] {
            sum.endpoint.add(&other.endpoint);
            sum.driver = sum.driver.plus(other.driver);
            sum.host.add(&other.host);
            sum.call_times.add(&other.call_times);
            sum.answer_times.add(&other.answer_times);
        }
        let (host, first) = (&mut sum.host, &endpoints[0].host);
        host.link_mbps = first.link_mbps;
        host.low_latency_held = host.low_latency_held.min(1);
        host.unsched_limit_bytes = first.unsched_limit_bytes;
        host.shared_processes = first.shared_processes;
        host.shared_slot = first.shared_slot;
        host.shared_found_dead = first.shared_found_dead;
        host.shared_grant_budget_bytes = first.shared_grant_budget_bytes;
        host.shared_grant_leased_bytes = first.shared_grant_leased_bytes;
        sum
    }

    /// Returns the name, value and meaning of every counter. Names are unique: those of the packet path begin
    /// with `driver_`, and those of the runtime with `host_`.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, u64, &'static str)> {
        let endpoint =
            self.endpoint.entries().into_iter().map(|(name, value, help)| (name.to_owned(), value, help));
        let host =
            self.host.entries().into_iter().map(|(name, value, help)| (format!("host_{name}"), value, help));
        let driver = driver_entries(&self.driver);
        let driver = driver.into_iter().map(|(name, value, help)| (format!("driver_{name}"), value, help));
        endpoint.chain(driver).chain(host).map(|(name, value, help)| (name, value, help.trim())).collect()
    }

    /// Returns the kind of each [entry](Metrics::entries), in the same order.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = MetricKind> {
        let endpoint = self.endpoint.entries().into_iter();
        let endpoint = endpoint
            .map(|(name, ..)| if name == "pacer_off" { MetricKind::Gauge } else { MetricKind::Counter });
        let driver = driver_entries(&self.driver).map(|_| MetricKind::Counter);
        endpoint.chain(driver).chain(HostCounts::KINDS.iter().copied())
    }
}

fn driver_entries(stats: &DriverStats) -> [(&'static str, u64, &'static str); 22] {
    let errors = &stats.send_errors;
    [
        ("packets_out", stats.packets_out, "Packets sent."),
        ("bytes_out", stats.bytes_out, "Bytes sent, Homa headers included."),
        ("packets_in", stats.packets_in, "Packets received."),
        ("bytes_in", stats.bytes_in, "Bytes received, Homa headers included."),
        ("send_calls", stats.send_calls, "System calls that sent."),
        ("receive_calls", stats.receive_calls, "System calls that received, or found nothing."),
        ("would_block", stats.would_block, "Times that there was no room for a packet to send."),
        ("truncated", stats.truncated, "Packets dropped because they were longer than a buffer."),
        ("undivided", stats.undivided, "Merged packets dropped because they could not be divided."),
        ("damaged", stats.damaged, "Frames dropped because their checksum or lengths were wrong."),
        (
            "queue_drops",
            stats.queue_drops,
            "Packets dropped by the kernel because the receive buffer was full.",
        ),
        (
            "backlog_drops",
            stats.backlog_drops,
            "Packets dropped because too many packets of their sender waited to be processed.",
        ),
        ("handed_over", stats.handed_over, "Packets for other processes, handed over to them."),
        (
            "hand_over_drops",
            stats.hand_over_drops,
            "Packets for other processes dropped because the process took none.",
        ),
        ("taken_over", stats.taken_over, "Packets that other processes received and handed over."),
        ("network_errors", stats.network_errors, "Reports from the network that packets did not arrive."),
        ("send_too_big", errors.too_big, "Packets not sent because they were longer than the path takes."),
        ("send_refused", errors.refused, "Packets not sent because nobody listens at the peer."),
        ("send_unreachable", errors.unreachable, "Packets not sent because there is no route."),
        ("send_denied", errors.denied, "Packets not sent because the system forbids it."),
        (
            "send_link_stuck",
            errors.link_stuck,
            "Packets not sent because their link takes none, while others do.",
        ),
        ("send_other", errors.other, "Packets not sent for any other reason."),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_number_has_a_name_of_its_own_and_a_meaning() {
        let mut metrics = Metrics::default();
        metrics.driver.truncated = 7;
        metrics.host.handovers = 8;
        let entries = metrics.entries();
        let names: HashSet<_> = entries.iter().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), entries.len());
        assert_eq!(metrics.kinds().count(), entries.len());
        assert!(entries.iter().all(|(_, _, help)| help.ends_with('.')));
        let value = |name: &str| entries.iter().find(|(n, ..)| n == name).map(|(_, value, _)| *value);
        assert_eq!((value("driver_truncated"), value("host_handovers")), (Some(7), Some(8)));
        assert_eq!(value("packets_received"), Some(0));
    }
}
