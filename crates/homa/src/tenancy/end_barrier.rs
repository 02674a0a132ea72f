//! HOST-10: determines when all packets being received arrived after the last end of a process that had
//! server ports.

use std::net::SocketAddr;

use homa_driver::{BufferSizes, Driver, RxBurst};

/// Number of queues from which a driver may receive: one for each IP version.
const QUEUES: usize = 2;

/// Minimum overhead in bytes that the kernel charges for a packet, in addition to the packet's length.
const BOOKED_BYTES: u64 = 256;

/// Tracks whether all packets have been read that arrived before a process ended and waited in the driver's
/// queues. They have been read once a poll has found no packets, or once as many bytes as each queue can hold
/// have been read from it. Under load a poll always finds packets, so the second condition is needed.
pub(crate) struct EndBarrier {
    /// Capacity of each queue in bytes, of which each packet also takes [`BOOKED_BYTES`]; `None` if unknown.
    queue_bytes: Option<u64>,
    /// The registry's count of ended processes. The fields below refer to the last end that it counts.
    seen: u64,
    /// For each queue, the number of its bytes that may have arrived before that end.
    old_bytes: [u64; QUEUES],
    /// The queue of the last burst that was received since that end.
    last: Option<usize>,
    /// Whether the packets being received arrived after that end.
    passed: bool,
}

impl EndBarrier {
    pub(crate) fn new(driver: &dyn Driver) -> EndBarrier {
        // The kernel doubled the size for its own bookkeeping, but packets may use all of it.
        let held = |BufferSizes { receive_bytes, .. }| 2 * receive_bytes as u64;
        let queue_bytes = driver.buffer_sizes().map(held);
        EndBarrier { queue_bytes, seen: 0, old_bytes: [u64::MAX; QUEUES], last: None, passed: false }
    }

    /// Begins a poll for packets, at a time when the registry has counted `orphanings` ended processes.
    pub(crate) fn begin(&mut self, orphanings: u64) {
        if orphanings != self.seen {
            (self.seen, self.last) = (orphanings, None);
            self.old_bytes = [self.queue_bytes.unwrap_or(u64::MAX); QUEUES];
        }
        self.passed = self.old_bytes == [0; QUEUES];
    }

    /// Records the result of the poll.
    pub(crate) fn note(&mut self, burst: &RxBurst) {
        if burst.is_empty() && !burst.may_have_more() {
            self.old_bytes = [0; QUEUES];
            return;
        }
        let mut from = [false; QUEUES];
        for (peer, bytes) in burst {
            let queue = queue_of(peer);
            from[queue] = true;
            let booked = bytes.len() as u64 + BOOKED_BYTES;
            if self.queue_bytes.is_some() {
                self.old_bytes[queue] = self.old_bytes[queue].saturating_sub(booked);
            }
        }
        let only = if from == [true; QUEUES] { None } else { from.iter().position(|some| *some) };
        if let Some(queue) = only.filter(|_| only == self.last && !burst.may_have_more()) {
            // Queues are polled in turn, so the other queue was empty.
            self.old_bytes[1 - queue] = 0;
        }
        self.last = only;
    }

    /// Returns whether the packets being received arrived after the last end of a process, if the registry
    /// has now counted `orphanings` ends.
    pub(crate) fn has_passed(&self, orphanings: u64) -> bool {
        self.passed && self.seen == orphanings
    }
}

fn queue_of(peer: SocketAddr) -> usize {
    usize::from(peer.ip().to_canonical().is_ipv6())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const QUEUE_BYTES: u64 = 10_000;

    fn barrier(queue_bytes: Option<u64>) -> EndBarrier {
        EndBarrier { queue_bytes, seen: 0, old_bytes: [u64::MAX; QUEUES], last: None, passed: false }
    }

    /// Simulates a poll that finds this many packets of 1,000 bytes.
    fn poll(barrier: &mut EndBarrier, orphanings: u64, v6: bool, packets: usize) -> bool {
        barrier.begin(orphanings);
        let mut burst = RxBurst::new();
        for _ in 0..packets {
            let ip = Ipv4Addr::new(10, 0, 0, 2);
            let from = if v6 { (ip.to_ipv6_compatible(), 0).into() } else { (ip, 0).into() };
            assert!(burst.push(from, &[0; 1_000]));
        }
        barrier.note(&burst);
        barrier.has_passed(orphanings)
    }

    #[test]
    fn a_look_that_finds_nothing_has_seen_all_that_was_there() {
        let mut barrier = barrier(None);
        for end in 1..3 {
            assert!(!poll(&mut barrier, end, false, 5));
            assert!(!poll(&mut barrier, end, false, 0));
            assert!(poll(&mut barrier, end, false, 5));
            assert!(!barrier.has_passed(end + 1), "a port that was orphaned meanwhile");
        }
    }

    #[test]
    fn under_load_as_much_is_read_as_the_queues_hold() {
        let mut barrier = barrier(Some(QUEUE_BYTES));
        let looks = (0..100).take_while(|_| !poll(&mut barrier, 1, false, 1)).count() as u64;
        assert_eq!(looks, QUEUE_BYTES.div_ceil(1_000 + BOOKED_BYTES));
        // With both queues in turn, each must be read up to its capacity.
        let both = (0..100).take_while(|at| !poll(&mut barrier, 2, at % 2 == 1, 1)).count() as u64;
        assert_eq!(both, 2 * looks);
    }

    #[test]
    fn a_queue_that_was_passed_over_was_empty() {
        let mut barrier = barrier(Some(QUEUE_BYTES));
        assert!(!poll(&mut barrier, 1, false, 10));
        // The other queue had its turn, and this is the rest of the first queue.
        assert!(!poll(&mut barrier, 1, true, 1));
        assert!(!poll(&mut barrier, 1, false, 10));
        assert!(!poll(&mut barrier, 1, false, 1));
        assert!(poll(&mut barrier, 1, false, 1));
    }

    #[test]
    fn a_queue_that_gave_nothing_and_may_have_more_was_not_empty() {
        let mut barrier = barrier(Some(QUEUE_BYTES));
        let mut burst = RxBurst::new();
        burst.note_more();
        for _ in 0..3 {
            barrier.begin(1);
            barrier.note(&burst);
            assert!(!barrier.has_passed(1));
        }
        // A burst with packets from one queue does not show that the other queue was empty, either, if that
        // one may have more.
        assert!(burst.push((Ipv4Addr::new(10, 0, 0, 2), 0).into(), &[0; 1_000]));
        for _ in 0..100 {
            barrier.begin(1);
            barrier.note(&burst);
        }
        barrier.begin(1);
        assert!(!barrier.has_passed(1));
        burst.clear();
        barrier.note(&burst);
        barrier.begin(1);
        assert!(barrier.has_passed(1), "they were empty");
    }

    #[test]
    fn where_nobody_knows_what_a_queue_holds_it_must_be_found_empty() {
        let mut barrier = barrier(None);
        assert!((0..100).all(|at| !poll(&mut barrier, 1, at % 2 == 1, 30)));
    }
}
