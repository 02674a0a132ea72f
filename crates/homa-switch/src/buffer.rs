//! Who may have how much of the switch's memory.

use crate::config::Buffer;

/// How much a queue may have, as a multiple of what its port has free: one queue alone gets eight ninths of its port's part, and the rest is
/// left for others. Without that the lowest priority, where it fills a port, has the highest ones dropped, control packets among
/// them; switches divide a port in the same way.
pub const QUEUE_ALPHA: u32 = 8;

/// The bytes that wait in all ports, and what bounds them.
#[derive(Debug)]
pub(crate) struct Pool {
    buffer: Buffer,
    used: u64,
}

impl Pool {
    pub(crate) fn new(buffer: Buffer) -> Pool {
        Pool { buffer, used: 0 }
    }

    /// Whether a queue where `queue_used` bytes wait, at a port where `port_used` do, may have as many more.
    pub(crate) fn has_room(&self, port_used: u64, queue_used: u64, bytes: u64) -> bool {
        let most = match self.buffer {
            Buffer::PerPort { bytes: most } => most,
            Buffer::Shared { bytes: all, alpha } => {
                let free = all.saturating_sub(self.used);
                if bytes > free {
                    return false;
                }
                (alpha * free as f64).max(Buffer::LEAST_BYTES as f64) as u64
            }
        };
        let free = most.saturating_sub(port_used);
        bytes <= free && (queue_used + bytes <= u64::from(QUEUE_ALPHA) * free || queue_used == 0)
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.used += bytes;
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a port with frames of 1,000 bytes until it gets no more, and returns how many it got.
    fn fill(pool: &mut Pool, port_used: &mut u64) -> u64 {
        let before = *port_used;
        while pool.has_room(*port_used, 0, 1_000) {
            pool.take(1_000);
            *port_used += 1_000;
        }
        (*port_used - before) / 1_000
    }

    #[test]
    fn a_port_of_its_own_has_what_it_has() {
        let mut pool = Pool::new(Buffer::PerPort { bytes: 10_500 });
        let (mut one, mut two) = (0, 0);
        assert_eq!((fill(&mut pool, &mut one), fill(&mut pool, &mut two), pool.used()), (10, 10, 20_000));
        pool.give_back(1_000);
        one -= 1_000;
        assert_eq!((fill(&mut pool, &mut one), fill(&mut pool, &mut two)), (1, 0));
    }

    #[test]
    fn ports_that_share_leave_some_for_the_next() {
        let mut pool = Pool::new(Buffer::Shared { bytes: 1_000_000, alpha: 1.0 });
        let mut ports = [0; 4];
        let got = ports.each_mut().map(|used| fill(&mut pool, used));
        assert_eq!(got, [500, 250, 125, 63], "each half of what the ones before have left");
        assert!(pool.used() < 1_000_000);
    }

    #[test]
    fn a_port_always_gets_one_frame_while_there_is_room() {
        let mut pool = Pool::new(Buffer::Shared { bytes: 10_000, alpha: 0.01 });
        assert!(pool.has_room(0, 0, 1_522) && !pool.has_room(1_000, 0, 1_000));
        pool.take(9_000);
        assert!(!pool.has_room(0, 0, 1_522));
    }

    #[test]
    fn a_queue_leaves_room_for_the_others_of_its_port() {
        for buffer in [Buffer::PerPort { bytes: 9_000 }, Buffer::Shared { bytes: 18_000, alpha: 1.0 }] {
            let mut pool = Pool::new(buffer);
            let mut queues = [0_u64; 3];
            let got = [0, 1, 2].map(|queue| {
                while pool.has_room(queues.iter().sum(), queues[queue], 10) {
                    pool.take(10);
                    queues[queue] += 10;
                }
                queues[queue]
            });
            assert!((7_900..=8_500).contains(&got[0]), "{buffer:?}: {got:?}");
            assert!(got[1] >= 400 && got[2] >= 20, "{buffer:?}: {got:?}");
        }
    }
}
