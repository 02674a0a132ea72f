//! The egress side of a port: queues, the link, and frames in flight.

use std::collections::VecDeque;

use homa_egress::{Forwarding, PRIORITIES};
use homa_trace::{EventKind, Place, Trace};

use crate::buffer::Pool;
use crate::config::SwitchConfig;
use crate::depth::Depth;
use crate::packet::Packets;
use crate::queues::{QueuedFrame, Queues};

/// Picoseconds per nanosecond. At 10 Gbit/s a byte takes 800 ps.
pub(crate) const PS: u64 = 1_000;

/// Frames sent and dropped by a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped_frames: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) marked_frames: u64,
}

/// The frame on the link.
#[derive(Debug)]
struct FrameOnLink<F> {
    frame: F,
    packets: Packets,
    queue: u8,
    done_ps: u64,
}

/// A frame that has left the link but not arrived yet.
#[derive(Debug)]
struct FrameInFlight<F> {
    frame: F,
    done_ps: u64,
}

/// The egress side of a port.
#[derive(Debug)]
pub(crate) struct Port<F> {
    /// The port's number.
    number: u16,
    queues: Queues<F>,
    /// When the link becomes idle.
    free_ps: u64,
    on_link: Option<FrameOnLink<F>>,
    /// Frames in flight, with arrival times. The delay is the same for all frames, so they arrive in order.
    in_flight: VecDeque<FrameInFlight<F>>,
    /// Total time that the link has been busy.
    pub(crate) busy_ps: u64,
    pub(crate) counts: [Count; PRIORITIES],
    pub(crate) depths: [Depth; PRIORITIES],
    pub(crate) depth: Depth,
}

impl<F> Port<F> {
    pub(crate) fn new(now_ns: u64, number: u16) -> Port<F> {
        Port {
            number,
            queues: Queues::new(),
            free_ps: 0,
            on_link: None,
            in_flight: VecDeque::new(),
            busy_ps: 0,
            counts: [Count::default(); PRIORITIES],
            depths: std::array::from_fn(|_| Depth::new(now_ns)),
            depth: Depth::new(now_ns),
        }
    }

    /// Adds a frame to a queue.
    pub(crate) fn push(&mut self, now_ns: u64, queue: usize, queued: QueuedFrame<F>) {
        self.depths[queue].grow(now_ns, queued.bytes.into());
        self.depth.grow(now_ns, queued.bytes.into());
        self.queues.push(queue, queued);
    }

    /// Returns the next frame that has arrived by now, if any.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        config: &SwitchConfig,
        pool: &mut Pool,
        trace: &mut Trace,
    ) -> Option<F> {
        let now_ps = now_ns * PS;
        loop {
            if config.delay_ns > 0 && self.in_flight.front().is_some_and(|frame| frame.done_ps <= now_ps) {
                return self.in_flight.pop_front().map(|in_flight| in_flight.frame);
            }
            if self.on_link.as_ref().is_some_and(|on_link| on_link.done_ps <= now_ps)
                && let Some(FrameOnLink { frame, packets, queue, done_ps }) = self.on_link.take()
            {
                if trace.is_recording() {
                    // The exact departure time, even if the caller polls late.
                    let place = Place::in_switch(self.number, queue.into(), 0);
                    record(trace, done_ps / PS, EventKind::SwitchLeft, &packets, place);
                }
                if config.delay_ns == 0 {
                    return Some(frame);
                }
                self.in_flight.push_back(FrameInFlight { frame, done_ps: done_ps + config.delay_ns * PS });
                continue;
            }
            if self.on_link.is_some() || self.free_ps > now_ps {
                return None;
            }
            self.start(now_ns, config, pool)?;
        }
    }

    /// Starts sending the next frame on the idle link; `None` if the queues are empty.
    fn start(&mut self, now_ns: u64, config: &SwitchConfig, pool: &mut Pool) -> Option<()> {
        let (queue, QueuedFrame { frame, bytes, packets, came_ps }) = self.queues.pop()?;
        self.depths[queue].shrink(now_ns, bytes.into());
        self.depth.shrink(now_ns, bytes.into());
        pool.give_back(bytes.into());
        let count = &mut self.counts[queue];
        count.frames += 1;
        count.bytes += u64::from(bytes);
        let start_ps = self.free_ps.max(came_ps);
        let takes_ps = config.rate_bps.map_or(0, |bps| time_on_link(bytes + config.overhead_bytes, bps));
        self.free_ps = start_ps + takes_ps;
        self.busy_ps += takes_ps;
        let done_ps = match config.forwarding {
            Forwarding::StoreAndForward => self.free_ps,
            Forwarding::CutThrough => start_ps,
        };
        self.on_link = Some(FrameOnLink { frame, packets, queue: queue as u8, done_ps });
        Some(())
    }

    /// Returns the time in picoseconds when [`poll`](Port::poll) next has work, unless a frame is queued
    /// earlier.
    pub(crate) fn due_ps(&self) -> Option<u64> {
        let on_link = self.on_link.as_ref().map(|on_link| on_link.done_ps);
        let next = self.queues.next_came_ps().map(|came| came.max(self.free_ps));
        let in_flight = self.in_flight.front().map(|in_flight| in_flight.done_ps);
        [on_link.or(next), in_flight].into_iter().flatten().min()
    }
}

/// Records an event once for each packet of the frame, with the time on the link's clock at which the event
/// happened.
pub(crate) fn record(trace: &mut Trace, time_ns: u64, kind: EventKind, packets: &Packets, place: Place) {
    trace.set_virtual_now(time_ns);
    for packet in packets.iter() {
        trace.record_at(kind, packet.id, packet.word, packet.offset, place);
    }
}

/// Returns the serialization delay of this many bytes, in picoseconds.
fn time_on_link(bytes: u32, bps: u64) -> u64 {
    // The number of bits in 2^32 bytes, multiplied by 10^12, needs 75 bits.
    (u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(bps)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_egress::Buffer;

    struct Link {
        port: Port<u32>,
        config: SwitchConfig,
        pool: Pool,
        trace: Trace,
    }

    impl Link {
        fn new(change: impl FnOnce(&mut SwitchConfig)) -> Link {
            let mut config = SwitchConfig { rate_bps: Some(1_000_000_000), ..SwitchConfig::default() };
            change(&mut config);
            Link {
                port: Port::new(0, 3),
                config,
                trace: Trace::off(),
                pool: Pool::new(Buffer::PerPort { bytes: 1 << 30 }),
            }
        }

        /// Pushes a frame that takes one microsecond per 125 bytes.
        fn push(&mut self, now_ns: u64, queue: usize, wire_bytes: u32, name: u32) {
            self.push_late(now_ns, now_ns, queue, wire_bytes, name);
        }

        /// Pushes a frame that arrived before the current poll.
        fn push_late(&mut self, now_ns: u64, came_ns: u64, queue: usize, wire_bytes: u32, name: u32) {
            let bytes = wire_bytes - self.config.overhead_bytes;
            self.pool.take(bytes.into());
            let came_ps = came_ns * PS;
            self.port.push(
                now_ns,
                queue,
                QueuedFrame { frame: name, bytes, packets: Packets::default(), came_ps },
            );
        }

        /// Returns the departure times of the frames, polling every 100 ns from 0 on.
        fn leave(&mut self, until_ns: u64) -> Vec<(u64, u32)> {
            let mut left = Vec::new();
            for now_ns in (0..=until_ns).step_by(100) {
                left.extend(
                    std::iter::from_fn(|| {
                        self.port.poll(now_ns, &self.config, &mut self.pool, &mut self.trace)
                    })
                    .map(|f| (now_ns, f)),
                );
            }
            left
        }
    }

    #[test]
    fn frames_leave_as_the_link_lets_them_and_the_highest_first() {
        let mut link = Link::new(|_| ());
        for (queue, name) in [(0, 1), (0, 2), (7, 3), (3, 4)] {
            link.push(0, queue, 1_250, name);
        }
        assert_eq!(link.port.due_ps(), Some(0));
        assert_eq!(link.leave(50_000), [(10_000, 3), (20_000, 4), (30_000, 1), (40_000, 2)]);
        assert_eq!((link.port.due_ps(), link.pool.used(), link.port.depth.bytes()), (None, 0, 0));
        assert_eq!(link.port.busy_ps, 40_000 * PS);
    }

    #[test]
    fn a_frame_on_the_link_is_not_interrupted() {
        let mut link = Link::new(|_| ());
        link.push(0, 0, 1_250, 1);
        link.push(0, 0, 1_250, 2);
        assert_eq!(link.leave(4_000), []);
        link.push(4_000, 7, 125, 3);
        assert_eq!(link.leave(30_000), [(10_000, 1), (11_000, 3), (21_000, 2)]);
    }

    #[test]
    fn by_cut_through_they_leave_as_they_begin_and_the_rate_is_the_same() {
        let mut link = Link::new(|config| config.forwarding = Forwarding::CutThrough);
        for name in 1..=3 {
            link.push(0, 0, 1_250, name);
        }
        assert_eq!(link.leave(50_000), [(0, 1), (10_000, 2), (20_000, 3)]);
    }

    #[test]
    fn who_looks_late_finds_all_that_has_left_and_the_rate_is_kept() {
        let mut link = Link::new(|_| ());
        for name in 0..10 {
            link.push(0, 0, 1_250, name);
        }
        let mut late = |now_ns| {
            std::iter::from_fn(|| link.port.poll(now_ns, &link.config, &mut link.pool, &mut link.trace))
                .count()
        };
        assert_eq!((late(55_000), late(59_999), late(60_000), late(99_999), late(100_000)), (5, 0, 1, 3, 1));
    }

    #[test]
    fn a_link_is_busy_since_a_frame_came_and_not_since_it_was_found() {
        let mut link = Link::new(|_| ());
        link.push_late(6_000, 1_000, 0, 1_250, 1);
        link.push_late(6_000, 5_000, 0, 1_250, 2);
        assert_eq!(link.leave(50_000), [(11_000, 1), (21_000, 2)]);
        link.push_late(60_000, 55_000, 0, 125, 3);
        assert_eq!(link.port.poll(60_000, &link.config, &mut link.pool, &mut link.trace), Some(3));
    }

    #[test]
    fn a_delay_comes_on_top() {
        let mut link = Link::new(|config| config.delay_ns = 5_000);
        link.push(0, 0, 1_250, 1);
        link.push(0, 0, 1_250, 2);
        assert_eq!(link.leave(50_000), [(15_000, 1), (25_000, 2)]);
    }

    #[test]
    fn no_rate_is_no_wait() {
        let mut link = Link::new(|config| config.rate_bps = None);
        link.push(0, 0, 1_250, 1);
        link.push(0, 5, 1_250, 2);
        assert_eq!(link.leave(0), [(0, 2), (0, 1)]);
    }

    #[test]
    fn rates_are_exact_to_the_byte() {
        for (bytes, bps, ps) in
            [(1, 10_000_000_000, 800), (1_538, 5_000_000_000, 2_460_800), (1_538, 10_000_000, 1_230_400_000)]
        {
            assert_eq!(time_on_link(bytes, bps), ps);
        }
    }
}
