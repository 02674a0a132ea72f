//! The progress of an outgoing message, as shown by the RESENDs for it (PROTOCOL.md PEER-3).

use std::cmp::Ordering;

/// How a RESEND compares with earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// It begins at a higher offset than all earlier ones, or is the first. The length of the message bounds
    /// how many times this can occur.
    Beyond,
    /// It starts a round that begins at a higher offset than the previous round: the first missing bytes have
    /// arrived.
    Ahead,
    /// It starts a round that begins at the same offset as the previous round: the retransmitted bytes have
    /// not arrived.
    Repeated,
    /// It requests another range of the current round.
    Between,
}

/// Offsets at which the RESENDs for an outgoing message began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResendMark {
    any: bool,
    /// Number of consecutive rounds that began at the same offset as the previous round.
    pub repeats: u8,
    /// Offsets of the first RESEND of the current round, of the last RESEND, and of the RESEND with the
    /// highest offset.
    first: u32,
    last: u32,
    most: u32,
}

impl ResendMark {
    /// Returns whether any RESEND was recorded.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Records a RESEND that begins at `offset`. Within a round, offsets increase.
    pub(crate) fn note(&mut self, offset: u32) -> Request {
        let last = std::mem::replace(&mut self.last, offset);
        if !self.any {
            (self.any, self.first, self.most) = (true, offset, offset);
            return Request::Beyond;
        }
        if offset > self.most {
            (self.most, self.repeats) = (offset, 0);
            return Request::Beyond;
        }
        if offset > last {
            return Request::Between;
        }
        let first = std::mem::replace(&mut self.first, offset);
        match offset.cmp(&first) {
            Ordering::Less => Request::Between,
            Ordering::Equal => {
                self.repeats = self.repeats.saturating_add(1);
                Request::Repeated
            }
            Ordering::Greater => {
                self.repeats = 0;
                Request::Ahead
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(offsets: &[u32]) -> Vec<Request> {
        let mut requested = ResendMark::default();
        offsets.iter().map(|&offset| requested.note(offset)).collect()
    }

    #[test]
    fn rounds_that_begin_further_on_show_progress_and_those_from_the_same_place_none() {
        use Request::{Ahead, Between, Beyond, Repeated};
        assert_eq!(requests(&[100, 100, 100]), [Beyond, Repeated, Repeated]);
        assert_eq!(requests(&[100, 200, 300, 100, 200]), [Beyond, Beyond, Beyond, Repeated, Between]);
        assert_eq!(requests(&[100, 200, 300, 200, 300]), [Beyond, Beyond, Beyond, Ahead, Between]);
        assert_eq!(requests(&[100, 200, 300, 400]), [Beyond; 4]);
        assert_eq!(requests(&[300, 100, 100]), [Beyond, Between, Repeated]);
    }
}
