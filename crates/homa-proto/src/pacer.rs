//! The pacer: estimates and limits the backlog of the NIC, that is, the bytes that it still has to send.

use crate::config::Config;
use crate::time::Time;

/// Packets below `defer_min_bytes` overtake waiting full packets, until the NIC's backlog exceeds the bound
/// for full packets by the time of this many full packets. One of them may just have been sent, and one is
/// for the short packets themselves.
const SHORT_PASS_PACKETS: u64 = 2;

/// The pacer's state. It estimates when the uplink will have sent all packets given to it, if the link rate
/// is known.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Nanoseconds per byte, in units of 1/2^16; 0: the rate is unknown, and nothing is paced (SEND-9).
    ns_per_byte_q16: u64,
    max_backlog_ns: u64,
    /// The current bound: `max_backlog_ns`, or 0 while other endpoints have precedence.
    bound_ns: u64,
    /// The bound for packets below `defer_min_bytes`.
    short_bound_ns: u64,
    defer_min_bytes: u32,
    overhead: u32,
    idle_at: Time,
    /// Total serialization delay of all packets of this endpoint so far.
    sent_ns: u64,
}

impl Pacer {
    pub(crate) fn new(config: &Config) -> Pacer {
        let ns_per_byte_q16 = config.link_mbps.map_or(0, |mbps| {
            // SEND-8: the margin assumes a slower link than the real one, so that the real queue stays below
            // the estimate.
            let usable_kbps = u64::from(mbps) * u64::from(1000 - config.link_margin);
            ((8_000_000 << 16) / usable_kbps.max(1)).max(1)
        });
        let full_ns = (u64::from(config.max_packet + config.link_overhead) * ns_per_byte_q16) >> 16;
        let max_backlog_ns = config.max_nic_backlog_ns;
        Pacer {
            ns_per_byte_q16,
            max_backlog_ns,
            bound_ns: max_backlog_ns,
            short_bound_ns: max_backlog_ns.saturating_add(max_backlog_ns.max(SHORT_PASS_PACKETS * full_ns)),
            defer_min_bytes: config.defer_min_bytes,
            overhead: config.link_overhead,
            idle_at: Time::ZERO,
            sent_ns: 0,
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.ns_per_byte_q16 == 0
    }

    /// Returns the estimated time that the NIC needs to send its queue. With a stale `now` the result is too
    /// large, but never underflows.
    pub(crate) fn backlog_ns(&self, now: Time) -> u64 {
        self.idle_at.since(now)
    }

    /// Returns whether a packet may be sent now (SEND-6).
    pub(crate) fn may_send(&self, now: Time) -> bool {
        self.backlog_ns(now) <= self.bound_ns
    }

    /// Returns whether a packet of `bytes` (Homa header and payload) may be sent now. A short packet
    /// overtakes waiting packets, but only within a bound: on a path with a small MTU, every packet is short
    /// (SEND-7).
    pub(crate) fn admits(&self, now: Time, bytes: u32) -> bool {
        self.may_send(now) || bytes < self.defer_min_bytes && self.backlog_ns(now) <= self.short_bound_ns
    }

    /// Returns the time at which `may_send` becomes true.
    pub(crate) fn free_at(&self) -> Time {
        Time::from_ns(self.idle_at.as_ns().saturating_sub(self.bound_ns))
    }

    /// Counts a packet of `bytes` (Homa header and payload) given to the NIC.
    pub(crate) fn sent(&mut self, now: Time, bytes: u32) {
        if self.is_off() {
            return;
        }
        let ns = (u64::from(bytes + self.overhead) * self.ns_per_byte_q16) >> 16;
        self.idle_at = self.idle_at.max(now) + ns;
        self.sent_ns += ns;
    }

    pub(crate) fn sent_ns(&self) -> u64 {
        self.sent_ns
    }

    /// Raises the backlog to at least `backlog_ns`, since other endpoints gave packets to the NIC too.
    /// Returns the increase in nanoseconds.
    pub(crate) fn raise_backlog(&mut self, now: Time, backlog_ns: u64) -> u64 {
        if self.is_off() {
            return 0;
        }
        let before = self.idle_at;
        self.idle_at = self.idle_at.max(now + backlog_ns);
        self.idle_at.since(before)
    }

    /// Sets whether other endpoints have precedence. If so, this endpoint sends only when the NIC's backlog
    /// has drained. By then the others have used the link if they can, and if they are idle, no link time is
    /// lost.
    pub(crate) fn give_way(&mut self, gives_way: bool) {
        self.bound_ns = if gives_way { 0 } else { self.max_backlog_ns };
    }

    /// Returns the number of bytes that the link sends in `ns`, at most `limit`.
    pub(crate) fn bytes_in(&self, ns: u64, limit: u32) -> u32 {
        let bytes = (ns.min(u64::MAX >> 16) << 16).checked_div(self.ns_per_byte_q16).unwrap_or(0);
        bytes.min(limit.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(link_mbps: Option<u32>) -> Pacer {
        Pacer::new(&Config { link_mbps, link_margin: 0, link_overhead: 0, ..Config::default() })
    }

    #[test]
    fn backlog_grows_with_bytes_and_falls_with_time() {
        let mut pacer = pacer(Some(8_000));
        pacer.sent(Time::from_ns(1_000), 5_000);
        assert_eq!(pacer.backlog_ns(Time::from_ns(1_000)), 5_000, "1 ns a byte at 8 Gbit/s");
        assert!(pacer.may_send(Time::from_ns(1_000)));
        pacer.sent(Time::from_ns(1_000), 1_000);
        assert!(!pacer.may_send(Time::from_ns(1_000)));
        assert_eq!(pacer.free_at(), Time::from_ns(2_000));
        assert!(pacer.may_send(Time::from_ns(2_000)));
        assert_eq!(pacer.backlog_ns(Time::from_ns(9_000)), 0);
    }

    /// SEND-8.
    #[test]
    fn a_stale_time_never_makes_the_backlog_vanish() {
        let mut pacer = pacer(Some(8_000));
        pacer.sent(Time::from_ns(10_000), 6_000);
        assert_eq!(pacer.backlog_ns(Time::from_ns(9_000)), 7_000);
        pacer.sent(Time::from_ns(9_000), 1_000);
        assert_eq!(pacer.backlog_ns(Time::from_ns(10_000)), 7_000);
    }

    #[test]
    fn what_others_sent_holds_packets_back_and_is_not_counted_as_ours() {
        let mut pacer = pacer(Some(8_000));
        pacer.sent(Time::from_ns(1_000), 700);
        pacer.raise_backlog(Time::from_ns(1_000), 6_000); // HOST-6
        assert!(!pacer.may_send(Time::from_ns(1_000)) && pacer.may_send(Time::from_ns(2_000)));
        pacer.raise_backlog(Time::from_ns(1_000), 10);
        assert_eq!((pacer.backlog_ns(Time::from_ns(1_000)), pacer.sent_ns()), (6_000, 700));
    }

    #[test]
    fn who_gives_way_lets_the_backlog_run_out() {
        let mut pacer = pacer(Some(8_000));
        pacer.sent(Time::ZERO, 4_000);
        pacer.give_way(true); // HOST-6
        assert!(!pacer.may_send(Time::from_ns(3_999)) && pacer.may_send(Time::from_ns(4_000)));
        assert_eq!(pacer.free_at(), Time::from_ns(4_000));
        assert_eq!(pacer.raise_backlog(Time::from_ns(3_000), 3_000), 2_000);
        assert_eq!((pacer.bytes_in(2_000, 10_000), pacer.bytes_in(u64::MAX, 10_000)), (2_000, 10_000));
        pacer.give_way(false);
        assert!(pacer.may_send(Time::from_ns(1_000)));
    }

    #[test]
    fn an_unknown_rate_is_not_paced() {
        let mut pacer = pacer(None);
        pacer.sent(Time::ZERO, u32::MAX / 2);
        assert!(pacer.is_off() && pacer.may_send(Time::ZERO));
    }

    #[test]
    fn the_margin_slows_the_estimate() {
        let config =
            Config { link_mbps: Some(8_000), link_margin: 500, link_overhead: 0, ..Config::default() };
        let mut pacer = Pacer::new(&config);
        pacer.sent(Time::ZERO, 1_000);
        assert_eq!(pacer.backlog_ns(Time::ZERO), 2_000);
    }
}
