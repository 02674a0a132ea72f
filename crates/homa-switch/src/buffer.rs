//! The thresholds at which a queue of the switch counts as full.

use crate::config::Buffer;

/// Threshold of a queue in a port's own buffer, as a multiple of the free bytes of that buffer. A single busy
/// queue gets eight ninths of the buffer. Without a threshold, the lowest priority would fill the port, and
/// the switch would drop control packets of the highest.
pub const QUEUE_ALPHA: u32 = 8;

/// The bytes queued at all ports, and their limit.
#[derive(Debug)]
pub(crate) struct Pool {
    buffer: Buffer,
    used: u64,
}

impl Pool {
    pub(crate) fn new(buffer: Buffer) -> Pool {
        Pool { buffer, used: 0 }
    }

    /// Returns whether a queue of `queue_used` bytes, at a port of `port_used` bytes, has room for `bytes`
    /// more.
    pub(crate) fn has_room(&self, port_used: u64, queue_used: u64, bytes: u64) -> bool {
        match self.buffer {
            Buffer::PerPort { bytes: limit } => {
                let free = limit.saturating_sub(port_used);
                let threshold = u64::from(QUEUE_ALPHA) * free;
                bytes <= free && (queue_used == 0 || queue_used + bytes <= threshold)
            }
            Buffer::Shared { bytes: limit, alpha } => {
                let free = limit.saturating_sub(self.used);
                let threshold = ((alpha * free as f64) as u64).max(Buffer::LEAST_BYTES);
                bytes <= free && queue_used + bytes <= threshold
            }
        }
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

    /// Fills the only busy queue of a port with 1,000-byte frames, and returns how many fit.
    fn fill(pool: &mut Pool, port_used: &mut u64) -> u64 {
        let before = *port_used;
        while pool.has_room(*port_used, *port_used, 1_000) {
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
    fn an_empty_queue_always_gets_one_frame_while_there_is_room() {
        let mut pool = Pool::new(Buffer::Shared { bytes: 10_000, alpha: 0.01 });
        assert!(pool.has_room(0, 0, 1_522) && !pool.has_room(1_000, 1_000, 1_000));
        pool.take(9_000);
        assert!(!pool.has_room(0, 0, 1_522));
    }

    /// Fills three queues of one port, one after the other, with 10-byte frames. Returns the bytes in each
    /// queue.
    fn fill_queues(buffer: Buffer) -> [u64; 3] {
        let mut pool = Pool::new(buffer);
        let mut queues = [0_u64; 3];
        [0, 1, 2].map(|queue| {
            while pool.has_room(queues.iter().sum(), queues[queue], 10) {
                pool.take(10);
                queues[queue] += 10;
            }
            queues[queue]
        })
    }

    #[test]
    fn a_queue_leaves_room_for_the_others_of_its_port() {
        let [first, second, third] = fill_queues(Buffer::PerPort { bytes: 9_000 });
        assert!((7_900..=8_100).contains(&first) && second >= 400 && third >= 20, "{first} {second} {third}");
    }

    #[test]
    fn the_threshold_of_a_shared_buffer_holds_for_each_queue_alone() {
        let queues = fill_queues(Buffer::Shared { bytes: 18_000, alpha: 1.0 });
        assert_eq!(queues, [9_000, 4_500, 2_250], "a full queue takes nothing else from its port's others");
    }
}
