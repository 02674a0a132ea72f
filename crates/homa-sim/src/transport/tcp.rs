//! TCP with CUBIC (RFC 9438), as in an unmodified Linux host.
//!
//! HyStart, which ends the doubling when round trips grow, is left out. It measures bursts that datacentre
//! hardware creates, and this network creates none.

use homa_proto::Time;

use super::stream::{Acked, Congestion, Stream};

/// A host's end of TCP.
pub type Tcp = Stream<Cubic>;

/// Factor by which a loss reduces the window.
const BETA: f64 = 0.7;
/// Growth of the window, in packets per cubic second.
const C: f64 = 0.4;
/// Growth in packets per round trip that gives the mean throughput of a window that is halved at every loss.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Minimum window, in packets.
const LEAST: f64 = 2.0;

/// A window that is a cubic function of the time since the last loss.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    window: f64,
    doubles_below: f64,
    /// Window at the last loss.
    before_loss: f64,
    /// The current growth: its start, its initial window, and the time until it reaches the window of the
    /// last loss.
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    from: Time,
    plateau_secs: f64,
    plateau: f64,
    /// Window of a connection that grows by a constant every round trip.
    steady: f64,
}

impl Cubic {
    fn shrink(&mut self) {
        // A window that did not reach its previous size leaves more room to other connections.
        let falls = self.window < self.before_loss;
        self.before_loss = if falls { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.doubles_below = (self.window * BETA).max(LEAST);
        self.epoch = None;
    }

    fn epoch(&mut self, now: Time) -> &mut Epoch {
        let window = self.window;
        let plateau = self.before_loss.max(window);
        self.epoch.get_or_insert_with(|| Epoch {
            from: now,
            plateau_secs: ((plateau - window) / C).cbrt(),
            plateau,
            steady: window,
        })
    }
}

impl Congestion for Cubic {
    const NAME: &'static str = "tcp";

    fn new(window: f64) -> Cubic {
        Cubic { window, doubles_below: f64::INFINITY, before_loss: 0.0, epoch: None }
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn is_doubling(&self) -> bool {
        self.window < self.doubles_below
    }

    fn acknowledged(&mut self, acked: &Acked) {
        let packets = f64::from(acked.packets);
        if !acked.may_grow || acked.packets == 0 {
            return;
        }
        if self.is_doubling() {
            self.window = (self.window + packets).min(self.doubles_below.max(self.window));
            return;
        }
        let (window, before_loss) = (self.window, self.before_loss);
        let epoch = self.epoch(acked.now);
        let in_secs = (acked.now.since(epoch.from) + acked.round_ns) as f64 / 1e9 - epoch.plateau_secs;
        let target = (epoch.plateau + C * in_secs.powi(3)).clamp(window, 1.5 * window);
        let alpha = if epoch.steady < before_loss { ALPHA } else { 1.0 };
        epoch.steady += alpha * packets / window;
        let steady = epoch.steady;
        self.window = (window + (target - window) * packets / window).max(steady);
    }

    fn lost(&mut self, _now: Time) {
        self.shrink();
        self.window = self.doubles_below;
    }

    fn on_timeout(&mut self, _now: Time) {
        self.shrink();
        self.window = 1.0;
    }

    fn on_idle_timeout(&mut self, window: f64) {
        self.doubles_below = self.doubles_below.max(0.75 * self.window);
        self.window = self.window.min(window);
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::MS;

    use super::*;

    fn acked(now: Time, packets: u32) -> Acked {
        Acked { now, packets, is_marked: false, may_grow: true, first: 0, next: 0, round_ns: MS }
    }

    #[test]
    fn the_window_doubles_until_a_loss_and_is_back_after_the_cube_root_of_what_it_lost() {
        let mut cubic = Cubic::new(10.0);
        cubic.acknowledged(&acked(Time::ZERO, 990));
        assert!(cubic.window() == 1_000.0 && cubic.is_doubling());
        cubic.lost(Time::ZERO);
        assert!((cubic.window() - 700.0).abs() < 1e-9 && !cubic.is_doubling());
        // (300 / 0.4) to the power of 1/3 is 9.09 s.
        let mut back = None;
        for ms in 0..20_000 {
            let now = Time::from_ns(ms * MS);
            for _ in 0..10 {
                cubic.acknowledged(&acked(now, (cubic.window() / 10.0) as u32));
            }
            if cubic.window() >= 999.0 && back.is_none() {
                back = Some(ms);
            }
        }
        let back = back.unwrap();
        assert!((500..9_200).contains(&back), "{back}");
        assert!(cubic.window() > 1_300.0, "{}", cubic.window());
    }

    #[test]
    fn a_window_that_does_not_keep_the_sender_from_sending_does_not_grow() {
        let mut cubic = Cubic::new(10.0);
        cubic.acknowledged(&Acked { may_grow: false, ..acked(Time::ZERO, 10) });
        assert_eq!(cubic.window(), 10.0);
    }

    #[test]
    fn a_timeout_and_a_rest_start_again() {
        let mut cubic = Cubic::new(100.0);
        cubic.on_idle_timeout(10.0);
        assert_eq!(cubic.window(), 10.0);
        cubic.on_timeout(Time::ZERO);
        assert_eq!((cubic.window(), cubic.doubles_below), (1.0, 7.0));
    }
}
