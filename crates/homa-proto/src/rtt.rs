//! Round-trip time to a peer, and the number of bytes that cover it (PROTOCOL.md RTT).
//!
//! Unscheduled bytes must cover not only twice the propagation delay, but also the serialization delay of a
//! full packet, the receiver's turnaround time, and the transmission of the grant (RAMCloud's notes). The
//! round-trip time is therefore measured from a long message's first packet to its first grant. A grant can
//! be late, because other messages receive grants first, but never early. The minimum of the samples in a
//! window is used, so that load does not affect the result.

use crate::config::Config;
use crate::message_out::whole_packets;
use crate::time::Time;
use crate::wire::DATA_HEADER_LEN;

/// A probe that has been unanswered for this long is replaced by the next.
const PROBE_LIFETIME_NS: u64 = 100_000_000;

/// One peer's round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// The id of the message whose first grant is awaited, and the time at which its first packet was sent.
    /// Id 0: none.
    probe: u64,
    sent_at: Time,
    /// Smallest samples of the current window and of the last earlier window with samples; `u64::MAX`: none.
    current_ns: u64,
    before_ns: u64,
    rotate_at: Time,
}

impl Rtt {
    pub(crate) const UNKNOWN: Rtt = Rtt {
        probe: 0,
        sent_at: Time::ZERO,
        current_ns: u64::MAX,
        before_ns: u64::MAX,
        rotate_at: Time::ZERO,
    };

    /// Records that the first packet of message `id`, which needs a grant, is sent. Only one message at a
    /// time is measured (RTT-1).
    pub(crate) fn sent(&mut self, now: Time, id: u64) {
        if self.probe == 0 || now.since(self.sent_at) > PROBE_LIFETIME_NS {
            (self.probe, self.sent_at) = (id, now);
        }
    }

    /// Records that a grant arrived for message `id`. Returns whether it gave a sample.
    pub(crate) fn record_grant(&mut self, now: Time, id: u64, window_ns: u64) -> bool {
        if self.probe != id {
            return false;
        }
        self.probe = 0;
        // If a window had no samples, the last measurement is still the best one (RTT-2).
        if now >= self.rotate_at {
            (self.before_ns, self.current_ns) = (self.current_ns, u64::MAX);
            self.rotate_at = now + window_ns;
        }
        self.current_ns = self.current_ns.min(now.since(self.sent_at));
        true
    }

    /// Drops the probe if packets of message `id` are retransmitted: its grant could answer either copy
    /// (RTT-1).
    pub(crate) fn discard_probe(&mut self, id: u64) {
        if self.probe == id {
            self.probe = 0;
        }
    }

    /// Returns the smallest sample of the current and the last window, in nanoseconds.
    pub(crate) fn min_ns(&self) -> Option<u64> {
        let min = self.current_ns.min(self.before_ns);
        (min != u64::MAX).then_some(min)
    }
}

/// Returns the number of unscheduled bytes of a message to a peer with this round-trip time (RTT-3).
pub(crate) fn unsched_bytes(config: &Config, rtt_ns: Option<u64>) -> u32 {
    let measured = rtt_ns.filter(|_| config.unsched_from_rtt).zip(config.link_mbps);
    let Some((rtt_ns, link_mbps)) = measured else { return config.unsched_bytes };
    let bridge = rtt_ns.saturating_mul(link_mbps.into()) / 8_000;
    // Grants are usually late. With this many additional packets, one late grant leaves no gap on the link.
    let packet = config.max_packet - DATA_HEADER_LEN as u32;
    let wanted = bridge + u64::from(packet) * u64::from(config.rtt_slack_packets);
    let wanted = wanted.min(config.max_unsched_bytes.into()) as u32;
    whole_packets(wanted, packet).max(config.min_unsched_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NS: u64 = 1_000;

    fn sample(rtt: &mut Rtt, at: u64, ns: u64) {
        rtt.sent(Time::from_ns(at), 2);
        assert!(rtt.record_grant(Time::from_ns(at + ns), 2, WINDOW_NS));
    }

    // RTT-2
    #[test]
    fn the_smallest_of_two_windows_counts() {
        let mut rtt = Rtt::UNKNOWN;
        assert_eq!(rtt.min_ns(), None);
        for (at, ns, min) in [(0, 50, 50), (100, 20, 20), (200, 90, 20), (1_100, 70, 20), (2_200, 80, 70)] {
            sample(&mut rtt, at, ns);
            assert_eq!(rtt.min_ns(), Some(min), "after the sample at {at}");
        }
        sample(&mut rtt, 9_000_000, 60);
        assert_eq!(rtt.min_ns(), Some(60), "a pause forgets nothing, the next window does");
    }

    // RTT-1
    #[test]
    fn one_message_at_a_time_is_watched_and_none_that_is_sent_again() {
        let mut rtt = Rtt::UNKNOWN;
        rtt.sent(Time::from_ns(0), 2);
        rtt.sent(Time::from_ns(5), 4);
        assert!(!rtt.record_grant(Time::from_ns(6), 4, WINDOW_NS));
        rtt.discard_probe(4);
        rtt.discard_probe(2);
        assert!(!rtt.record_grant(Time::from_ns(7), 2, WINDOW_NS));
        rtt.sent(Time::from_ns(10), 6);
        rtt.sent(Time::from_ns(11 + PROBE_LIFETIME_NS), 8);
        assert!(
            rtt.record_grant(Time::from_ns(20 + PROBE_LIFETIME_NS), 8, WINDOW_NS),
            "the first one got no answer"
        );
        assert_eq!(rtt.min_ns(), Some(9));
    }

    // RTT-3
    #[test]
    fn unscheduled_bytes_bridge_the_round_trip() {
        let config = Config { link_mbps: Some(10_000), rtt_slack_packets: 2, ..Config::default() };
        assert_eq!(unsched_bytes(&config, None), config.unsched_bytes);
        assert_eq!(
            unsched_bytes(&config, Some(8_000)),
            (10_000 + 2 * 1_424) / 1_424 * 1_424,
            "whole packets"
        );
        assert_eq!(unsched_bytes(&config, Some(u64::MAX)), config.max_unsched_bytes / 1_424 * 1_424);
        let config = Config { rtt_slack_packets: 0, ..config };
        assert_eq!(unsched_bytes(&config, Some(1)), config.min_unsched_bytes);
        let unknown = Config { link_mbps: None, ..config.clone() };
        assert_eq!(unsched_bytes(&unknown, Some(8_000)), unknown.unsched_bytes);
        let fixed = Config { unsched_from_rtt: false, ..config };
        assert_eq!(unsched_bytes(&fixed, Some(8_000)), fixed.unsched_bytes);
    }
}
