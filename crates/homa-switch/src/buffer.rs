//! The thresholds at which a queue of the switch counts as full.

use homa_egress::{Buffer, QUEUE_ALPHA, Room};

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
        let room = match self.buffer {
            Buffer::PerPort { bytes: limit } => {
                Room { free: limit.saturating_sub(port_used), alpha: Some(QUEUE_ALPHA) }
            }
            Buffer::Shared { bytes: limit, alpha } => {
                Room { free: limit.saturating_sub(self.used), alpha: Some(alpha) }
            }
        };
        room.admits(queue_used, bytes)
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
    use homa_egress::Alpha;

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
        let mut pool = Pool::new(Buffer::Shared { bytes: 1_000_000, alpha: Alpha::whole(1) });
        let mut ports = [0; 4];
        let got = ports.each_mut().map(|used| fill(&mut pool, used));
        assert_eq!(got, [500, 250, 125, 63], "each half of what the ones before have left");
        assert!(pool.used() < 1_000_000);
    }

    #[test]
    fn an_empty_queue_always_gets_one_frame_while_there_is_room() {
        let mut pool = Pool::new(Buffer::Shared { bytes: 10_000, alpha: Alpha::from_percent(1) });
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
        let queues = fill_queues(Buffer::Shared { bytes: 18_000, alpha: Alpha::whole(1) });
        assert_eq!(queues, [9_000, 4_500, 2_250], "a full queue takes nothing else from its port's others");
    }
}
