//! Copies a trace's records while the trace continues.

use crate::clock::{Anchor, Clock, calibrate};
use crate::dump::Dump;
use crate::node::{Node, this_machine};
use crate::trace::{Record, Trace};

/// The records of a trace, copied in parts. A recording thread waits at most while one part is copied, and
/// never while the rest of a dump is produced.
///
/// ```
/// use homa_trace::{Clock, EventKind, Node, Snapshot, Trace};
///
/// let mut trace = Trace::new(1024, Clock::Virtual);
/// trace.record(EventKind::AppSend, 42, 0, 100);
///
/// let mut snapshot = Snapshot::new(&trace);
/// snapshot.make_room();
/// while !snapshot.copy_part(&trace, 100) {}
/// assert_eq!(snapshot.dump(Node::host("h1")).records.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    clock: Clock,
    start: Anchor,
    /// Position of the next record to copy, counted from the first record ever written.
    next: u64,
    /// Position at which copying ends, exclusive.
    end: u64,
    /// Records that were overwritten before they were copied.
    overwritten: u64,
    records: Vec<Record>,
}

impl Snapshot {
    /// Creates a snapshot of the records that the trace currently contains. None are copied yet.
    #[must_use]
    pub fn new(trace: &Trace) -> Snapshot {
        let next = trace.overwritten();
        Snapshot {
            clock: trace.clock(),
            start: trace.start(),
            next,
            end: next + trace.len() as u64,
            overwritten: next,
            records: Vec::new(),
        }
    }

    /// Allocates and touches the memory for the copy, so that copying causes no page fault.
    pub fn make_room(&mut self) {
        let left = (self.end - self.next) as usize;
        self.records.reserve_exact(left);
        let copied = self.records.len();
        // The kernel may provide zeroed memory without mapping its pages. These values are not zero, so
        // writing them maps the pages.
        self.records.resize(copied + left, Record { kind: u16::MAX, ..Record::default() });
        self.records.truncate(copied);
    }

    /// Copies up to `most` more records. Returns whether all records have been copied. Records that the trace
    /// has overwritten in the meantime count as overwritten.
    pub fn copy_part(&mut self, trace: &Trace, most: usize) -> bool {
        let first = self.next.max(trace.overwritten()).min(self.end);
        self.overwritten += first - self.next;
        let count = most.min((self.end - first) as usize);
        let skip = first.saturating_sub(trace.overwritten()) as usize;
        self.records.extend(trace.iter().skip(skip).take(count));
        self.next = first + count as u64;
        self.next == self.end
    }

    /// Returns the copied records, sorted by time, as a dump of this node.
    ///
    /// With [`Clock::Tsc`], the counter's rate is measured from the creation of the trace until now. If the
    /// trace is younger than 10 ms, this function busy-waits until the trace is 10 ms old.
    #[must_use]
    pub fn dump(mut self, mut node: Node) -> Dump {
        let (frequency_hz, calibration_span_ns) = match self.clock {
            Clock::Tsc => calibrate(self.start),
            Clock::Monotonic | Clock::Virtual => (1_000_000_000, 0),
        };
        if self.start.monotonic_ns != 0 && node.machine == 0 {
            node.machine = this_machine();
        }
        // A record whose time was read earlier may have been written after records with later times.
        self.records.sort_by_key(|record| record.time);
        Dump {
            node,
            clock: self.clock,
            frequency_hz,
            calibration_span_ns,
            start_time: self.start.time,
            start_ns: self.start.monotonic_ns,
            alignment: None,
            overwritten: self.overwritten,
            records: self.records,
        }
    }
}

impl Trace {
    /// Copies all records in one call.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(self);
        snapshot.copy_part(self, usize::MAX);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    #[test]
    fn what_is_overwritten_between_two_parts_is_counted() {
        let mut trace = Trace::new(4, Clock::Virtual);
        let record = |trace: &mut Trace, ids: std::ops::Range<u64>| {
            ids.for_each(|id| trace.record(EventKind::AppSend, id, 0, 0));
        };
        record(&mut trace, 0..5);
        let mut snapshot = Snapshot::new(&trace);
        snapshot.make_room();
        assert!(!snapshot.copy_part(&trace, 2));
        record(&mut trace, 5..8);
        assert!(snapshot.copy_part(&trace, 2));
        let dump = snapshot.dump(Node::default());
        assert_eq!(dump.records.iter().map(|record| record.id).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(dump.overwritten, 2);
    }

    #[test]
    fn a_trace_that_ran_far_ahead_leaves_nothing_to_copy() {
        let mut trace = Trace::new(2, Clock::Virtual);
        trace.record(EventKind::AppSend, 1, 0, 0);
        let mut snapshot = Snapshot::new(&trace);
        (0..9).for_each(|id| trace.record(EventKind::AppSend, id, 0, 0));
        assert!(snapshot.copy_part(&trace, 9));
        let dump = snapshot.dump(Node::default());
        assert_eq!((dump.records.len(), dump.overwritten), (0, 1));
    }
}
