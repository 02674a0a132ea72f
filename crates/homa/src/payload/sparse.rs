//! A buffer that can be filled at any offset. Only the memory of the bytes written to it is touched.
//!
//! A sender chooses which part of a message comes first. If the bytes before that part were zeroed, a packet
//! of 57 bytes would make the receiver write a megabyte while holding its host's lock, and the system would
//! have to provide the pages.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;

use bytes::BytesMut;

/// The bytes before the first gap, and the parts after that gap: see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct SparseBuffer {
    /// The bytes before the first gap, initialised up to the buffer's length.
    bytes: BytesMut,
    /// The initialized parts of the spare capacity, in ascending order. They are adjacent neither to each
    /// other nor to `bytes`. Offsets count from the start of the buffer.
    parts: Vec<Range<usize>>,
}

impl SparseBuffer {
    /// Creates a sparse buffer from `buffer`, which must be empty. Data beyond its capacity is not stored.
    pub(crate) fn new(buffer: BytesMut) -> SparseBuffer {
        debug_assert!(buffer.is_empty());
        SparseBuffer { bytes: buffer, parts: Vec::new() }
    }

    /// Returns the number of bytes before the first gap.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns whether there are bytes after the first gap.
    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns the bytes of this range, if all of them lie before the first gap.
    pub(crate) fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        self.bytes.get(range)
    }

    /// Copies `data` to offset `start`, which may be after a gap. Does nothing if the data does not fit or
    /// overlaps bytes that were written before.
    pub(crate) fn place(&mut self, start: usize, data: &[u8]) {
        let end = start + data.len();
        let fits = start >= self.bytes.len() && end <= self.bytes.capacity();
        debug_assert!(fits, "{start}..{end} in {} of {}", self.bytes.len(), self.bytes.capacity());
        if data.is_empty() || !fits {
            return;
        }
        if start == self.bytes.len() && self.parts.first().is_none_or(|part| end <= part.start) {
            self.bytes.extend_from_slice(data);
            self.absorb();
        } else if self.add_part(start..end) {
            let offset = start - self.bytes.len();
            let spare = &mut self.bytes.spare_capacity_mut()[offset..offset + data.len()];
            // SAFETY: `spare` is as long as `data`, and exclusively borrowed.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), spare.as_mut_ptr().cast(), data.len()) };
        }
    }

    /// Records a part that is about to be written. Returns false if it overlaps another part.
    fn add_part(&mut self, part: Range<usize>) -> bool {
        let at = self.parts.partition_point(|other| other.end < part.start);
        let joins_before = self.parts.get(at).is_some_and(|before| before.end == part.start);
        let next = at + usize::from(joins_before);
        if self.parts.get(next).is_some_and(|next| next.start < part.end) {
            return false;
        }
        let joins_next = self.parts.get(next).is_some_and(|next| next.start == part.end);
        match (joins_before, joins_next) {
            (true, true) => {
                self.parts[at].end = self.parts[next].end;
                self.parts.remove(next);
            }
            (true, false) => self.parts[at].end = part.end,
            (false, true) => self.parts[next].start = part.start,
            (false, false) => self.parts.insert(at, part),
        }
        true
    }

    /// Moves the first part to the bytes before the gap, if the gap is filled.
    fn absorb(&mut self) {
        if self.parts.first().is_some_and(|part| part.start == self.bytes.len()) {
            let end = self.parts.remove(0).end;
            // SAFETY: all bytes up to the length are initialised, and so is the part after them, which ends
            // within the capacity.
            unsafe { self.bytes.set_len(end) };
        }
    }

    /// Returns the unwritten memory after the last byte. Empty if there are parts.
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.has_parts() { &mut [] } else { self.bytes.spare_capacity_mut() }
    }

    /// Returns the address where [`SparseBuffer::spare`] begins.
    pub(crate) fn end_ptr(&mut self) -> *const u8 {
        // Do not use `as_ptr`: its pointer is valid only for the initialised bytes.
        self.bytes.spare_capacity_mut().as_ptr().cast()
    }

    /// Records that the first `bytes` bytes of the spare memory are initialised.
    ///
    /// # Safety
    /// These bytes must be initialised, and the spare memory must have at least `bytes` bytes.
    pub(crate) unsafe fn advance(&mut self, bytes: usize) {
        // SAFETY: the caller initialised these bytes, and the bytes before them were already initialised.
        unsafe { self.bytes.set_len(self.bytes.len() + bytes) };
    }

    /// Returns the first `length` bytes, with zeros in the remaining gaps.
    pub(crate) fn into_whole(mut self, length: usize) -> BytesMut {
        while let Some(next) = self.parts.first() {
            let start = next.start;
            self.bytes.resize(start, 0);
            self.absorb();
        }
        self.bytes.resize(length, 0);
        self.bytes
    }

    /// Returns the buffer of a message whose content is not needed.
    pub(crate) fn into_buffer(self) -> BytesMut {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(at: usize) -> u8 {
        (at / 7) as u8 ^ at as u8
    }

    #[test]
    fn parts_in_any_order_make_the_whole() {
        const LENGTH: usize = 1_000;
        let whole: Vec<u8> = (0..LENGTH).map(byte).collect();
        for (step, multiplier) in [(10, 37), (10, 99), (10, 1), (50, 7), (250, 3), (1, 333)] {
            let count = LENGTH / step;
            let mut sparse = SparseBuffer::new(BytesMut::with_capacity(LENGTH));
            for turn in 0..count {
                let start = turn * multiplier % count * step;
                sparse.place(start, &whole[start..start + step]);
            }
            assert_eq!((sparse.len(), sparse.has_parts()), (LENGTH, false), "{step} {multiplier}");
            assert!(sparse.into_whole(LENGTH) == whole);
        }
    }

    #[test]
    fn only_what_is_there_without_a_gap_can_be_had() {
        let mut sparse = SparseBuffer::new(BytesMut::with_capacity(10));
        sparse.place(4, b"ef");
        assert_eq!((sparse.spare().len(), sparse.len(), sparse.get(4..6)), (0, 0, None));
        sparse.place(0, b"abcd");
        assert_eq!((sparse.spare().len(), sparse.get(0..6)), (4, Some(&b"abcdef"[..])));
        sparse.place(8, b"i");
        assert_eq!(&sparse.into_whole(10)[..], b"abcdef\0\0i\0", "gaps are zero");
    }
}
