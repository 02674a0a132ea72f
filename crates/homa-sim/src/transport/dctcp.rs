//! DCTCP (RFC 8257): switches mark packets that have to be queued, and a window shrinks in proportion to the
//! fraction of marked packets.

use homa_proto::Time;

use super::stream::{Acked, Congestion, Stream};

/// A host's end of DCTCP.
pub type Dctcp = Stream<MarkedShare>;

/// Weight of the latest window in the fraction of marked packets.
const GAIN: f64 = 1.0 / 16.0;
/// Minimum window, in packets.
const LEAST: f64 = 2.0;

/// A window that follows the fraction of marked packets.
#[derive(Clone, Copy, Debug)]
pub struct MarkedShare {
    window: f64,
    doubles_below: f64,
    /// Estimated fraction of marked packets.
    share: f64,
    /// Packets acknowledged since the last update of the estimate, and how many of them were marked.
    packets: f64,
    marked: f64,
    /// The estimate is next updated when all packets before this one are acknowledged.
    window_ends: u64,
    /// After a reduction, the window is not reduced again until all packets before this one are acknowledged.
    shrunk_until: u64,
}

impl Congestion for MarkedShare {
    const NAME: &'static str = "dctcp";

    fn new(window: f64) -> MarkedShare {
        MarkedShare {
            window,
            doubles_below: f64::INFINITY,
            share: 1.0,
            packets: 0.0,
            marked: 0.0,
            window_ends: 0,
            shrunk_until: 0,
        }
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn is_doubling(&self) -> bool {
        self.window < self.doubles_below
    }

    fn acknowledged(&mut self, acked: &Acked) {
        let packets = f64::from(acked.packets);
        self.packets += packets;
        self.marked += if acked.is_marked { packets } else { 0.0 };
        if acked.first > self.window_ends && self.packets > 0.0 {
            self.share += GAIN * (self.marked / self.packets - self.share);
            (self.packets, self.marked, self.window_ends) = (0.0, 0.0, acked.next);
        }
        if acked.is_marked && acked.first >= self.shrunk_until {
            self.window = (self.window * (1.0 - self.share / 2.0)).max(LEAST);
            self.doubles_below = self.window;
            self.shrunk_until = acked.next.max(acked.first + 1);
        } else if acked.may_grow && acked.first >= self.shrunk_until {
            let step = if self.is_doubling() { packets } else { packets / self.window };
            self.window += step;
        }
    }

    fn lost(&mut self, _now: Time) {
        self.window = (self.window / 2.0).max(LEAST);
        self.doubles_below = self.window;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.doubles_below = (self.window / 2.0).max(LEAST);
        self.window = 1.0;
    }

    fn on_idle_timeout(&mut self, window: f64) {
        self.doubles_below = self.doubles_below.max(0.75 * self.window);
        self.window = self.window.min(window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges windows of ten packets, `marked` of which are marked.
    fn after(windows: u64, marked: u64) -> MarkedShare {
        let mut share = MarkedShare::new(10.0);
        for first in 1..=10 * windows {
            share.acknowledged(&Acked {
                now: Time::ZERO,
                packets: 1,
                is_marked: first % 10 < marked,
                may_grow: true,
                first,
                next: first + 10,
                round_ns: 1,
            });
        }
        share
    }

    #[test]
    fn the_estimate_follows_the_share_of_marks() {
        assert!(after(200, 0).share < 0.01);
        assert!((after(200, 3).share - 0.3).abs() < 0.05, "{}", after(200, 3).share);
        assert!(after(200, 10).share > 0.99);
    }

    #[test]
    fn the_window_shrinks_by_half_the_share_once_in_a_window() {
        let mut share = MarkedShare { share: 0.5, ..MarkedShare::new(100.0) };
        let mark = |first| Acked {
            now: Time::ZERO,
            packets: 1,
            is_marked: true,
            may_grow: true,
            first,
            next: 101,
            round_ns: 1,
        };
        share.acknowledged(&mark(0));
        let shrunk = share.window();
        assert!((shrunk - 75.0).abs() < 2.5, "{shrunk}");
        for first in 1..100 {
            share.acknowledged(&mark(first));
        }
        assert_eq!(share.window(), shrunk);
        share.acknowledged(&mark(101));
        assert!(share.window() < shrunk);
    }
}
