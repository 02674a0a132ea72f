//! The progress thread, which drives the network if no other thread does.
//!
//! It never competes with a waiting thread. While the host is busy, it checks once per tick ([`tick_ns`])
//! whether another thread drives. If none has for that long, it takes over leadership and sleeps on the
//! driver's descriptor. A thread that begins to wait takes leadership from the progress thread, and notifies
//! the progress thread only when it has nothing better to do. If threads of the application have led for
//! [`Progress::WATCH_NS`] without any activity, the progress thread sleeps without a timer, and costs
//! nothing.
//!
//! Each tick costs the thread that was running on the same core about 20 us. (Measured: at 1000 ticks per
//! second, the P99 of a polling host's RPCs rose from 22 to 50 us on a busy machine.) Longer ticks after a
//! quiet second were tried and rejected: that threads had stopped driving was then noticed only after 4 ms,
//! and a peer must not wait longer than 1 ms. On a slow link the tick is the serialization delay of several
//! packets. With that length, the ticks of eight hosts that share two processors take 2 % of the processors
//! instead of 12 %.
//!
//! A bound server's requests are therefore received within about a tick even if no thread is in `recv` and no
//! RPC is open. The same holds for NEED_ACK packets to a client that has gone quiet.

use homa_proto::{Config, MS, Time};

/// The shortest tick, also used if the link's rate is unknown.
pub(crate) const MIN_TICK_NS: u64 = MS;

/// The longest tick, for the slowest useful link.
const MAX_TICK_NS: u64 = 10 * MS;

/// Minimum number of full packets that a link carries in a tick: a third of the number after which peers send
/// RESEND ([`Config::on_link`]). At and above 100 Mbit/s, the tick has its minimum length for packets of
/// 1,480 bytes; for packets of 9,000 bytes, at and above 580 Mbit/s.
const PACKETS_A_TICK: u64 = 8;

/// Returns the time without a driving thread after which the progress thread drives.
pub(crate) fn tick_ns(config: &Config) -> u64 {
    let Some(mbps) = config.link_mbps else { return MIN_TICK_NS };
    let bits = u64::from(config.max_packet + config.link_overhead) * 8;
    (PACKETS_A_TICK * bits * 1_000 / u64::from(mbps)).clamp(MIN_TICK_NS, MAX_TICK_NS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressState {
    /// Not started, or exited.
    Absent,
    /// Sleeps until notified that it may be needed.
    Parked,
    /// Checks once per tick whether it is needed.
    Watching,
    /// Leads, and sleeps on the driver's descriptor until `until` at the latest.
    Driving { until: Time },
}

/// The state of the progress thread, as far as other threads need it.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(super) state: ProgressState,
    /// The tick length: see [`tick_ns`].
    pub(crate) tick_ns: u64,
    pub(super) notified: bool,
    /// When the progress thread last did a drive round.
    pub(super) drove_at: Time,
    /// Number of times that the progress thread took over.
    pub(crate) takeovers: u64,
    /// Whether the progress thread keeps the processors out of deep sleep.
    pub(crate) low_latency_held: bool,
}

impl Progress {
    pub(crate) fn new(config: &Config) -> Progress {
        Progress {
            state: ProgressState::Absent,
            tick_ns: tick_ns(config),
            notified: false,
            drove_at: Time::ZERO,
            takeovers: 0,
            low_latency_held: false,
        }
    }

    /// How long the progress thread keeps watching after the last packet. Waking the progress thread costs
    /// the waker about 13 us, which is acceptable ten times per second. While the progress thread watches,
    /// its ticks cost about one percent of a core.
    pub(super) const WATCH_NS: u64 = 100 * MS;

    /// Maximum number of consecutive drive rounds while other threads wait for the lock.
    pub(super) const ROUNDS: u32 = 8;

    /// Returns whether the progress thread leads and will sleep beyond `due`.
    pub(crate) fn sleeps_beyond(&self, due: Time) -> bool {
        matches!(self.state, ProgressState::Driving { until } if until > due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_a_millisecond_but_for_slow_links() {
        let of = |link_mbps| tick_ns(&Config { link_mbps, ..Config::default() });
        assert_eq!([None, Some(25_000), Some(100)].map(of), [MS; 3]);
        // 1,480 bytes plus 66 bytes of overhead on the wire.
        assert_eq!([Some(20), Some(10), Some(1)].map(of), [4_947_200, 9_894_400, MAX_TICK_NS]);
    }
}
