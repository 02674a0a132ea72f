//! Message buffers in a region of the program's memory, in pages of 64 KiB. A message occupies whole pages;
//! its last bytes occupy part of a page that several messages share. The program gives the pages back by
//! their offsets.

use std::collections::HashMap;

use crate::abi::{MAX_MESSAGE_BYTES, MAX_PAGES, PAGE_BYTES};
use crate::ffi_border::Refusal;
use crate::free_pages::FreePages;
use crate::memory;

/// Maximum size of a region in bytes: offsets have 32 bits.
const MAX_REGION_BYTES: u64 = 1 << 32;

/// The pages of a region, and how many messages use each.
pub(crate) struct Pages {
    start: usize,
    /// Number of messages that use each page. The number is one higher for the shared page that is being
    /// filled.
    users: Vec<u32>,
    /// Pages without users.
    free: FreePages,
    /// The shared page that is being filled, and how many of its bytes are in use.
    shared: Option<(u32, usize)>,
    /// The lent messages, by their first offsets: they are incomplete, or complete but not yet handed over.
    /// The value is whether received data is missing (spoilt).
    lent: HashMap<u32, bool>,
}

/// The place of a message in the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageRange {
    /// Start of the region.
    start: usize,
    pub(crate) offsets: [u32; MAX_PAGES],
    pub(crate) count: u32,
}

impl Pages {
    pub(crate) fn new(start: u64, length: u64) -> Result<Pages, Refusal> {
        let refuse = |text| Err(Refusal::new(libc::EINVAL, text));
        if !start.is_multiple_of(4096) {
            return refuse("the region of SO_HOMA_RCVBUF does not begin at a page");
        }
        // The kernel's minimum: a page for each processor, and two messages. SAFETY: sysconf takes and
        // returns plain numbers.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as u64;
        if length < processors * PAGE_BYTES as u64 + 2 * MAX_MESSAGE_BYTES as u64 {
            return refuse(
                "the region of SO_HOMA_RCVBUF is too small: use at least two messages and 64 KiB per processor",
            );
        }
        if length > MAX_REGION_BYTES {
            return refuse("the region of SO_HOMA_RCVBUF is above 4 GiB");
        }
        let count = (length / PAGE_BYTES as u64) as u32;
        Ok(Pages {
            start: start as usize,
            users: vec![0; count as usize],
            free: FreePages::new(count),
            shared: None,
            lent: HashMap::new(),
        })
    }

    /// Returns the start and length of the program's region, rounded down to whole pages.
    pub(crate) fn region(&self) -> (u64, u64) {
        (self.start as u64, (self.users.len() * PAGE_BYTES) as u64)
    }

    /// Returns the number of bytes available for new messages.
    pub(crate) fn available(&self) -> u64 {
        let shared = self.shared.map_or(0, |(page, used)| match self.users[page as usize] {
            1 => PAGE_BYTES,
            _ => PAGE_BYTES - used,
        });
        (self.free.count() * PAGE_BYTES + shared) as u64
    }

    /// Returns whether there is room for a message of this length.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        let (whole, part) = (length / PAGE_BYTES, length % PAGE_BYTES);
        let fits = part == 0
            || self
                .shared
                .is_some_and(|(page, used)| used + part <= PAGE_BYTES || self.users[page as usize] == 1);
        self.free.count() >= whole + usize::from(!fits)
    }

    /// Takes room for a message of this length, if there is any.
    pub(crate) fn take(&mut self, length: usize) -> Option<PageRange> {
        if !self.has_room(length) {
            return None;
        }
        let (whole, part) = (length / PAGE_BYTES, length % PAGE_BYTES);
        let mut place = PageRange { start: self.start, ..PageRange::default() };
        for offset in &mut place.offsets[..whole] {
            let page = self.free.take_run(1)?;
            self.users[page as usize] = 1;
            *offset = page * PAGE_BYTES as u32;
        }
        place.count = whole as u32;
        if part > 0 {
            place.offsets[whole] = self.take_part(part)?;
            place.count += 1;
        }
        Some(place)
    }

    /// Takes contiguous room for a message of this length, if there is any, and returns its offset. The room
    /// does not belong to the program until it is [handed over](Pages::hand_over). Half of the pages are
    /// reserved for complete messages, since a peer may announce messages and never send them.
    pub(crate) fn lend(&mut self, length: usize) -> Option<u32> {
        if 2 * self.free.count() < self.users.len() + 2 * length.div_ceil(PAGE_BYTES) {
            return None;
        }
        let offset = match length {
            0 => return None,
            1..PAGE_BYTES => self.take_part(length)?,
            _ => self.take_in_a_row(length)?,
        };
        self.lent.insert(offset, false);
        Some(offset)
    }

    /// Takes contiguous pages for a message of at least one page. The rest of the last page becomes the
    /// shared page.
    fn take_in_a_row(&mut self, length: usize) -> Option<u32> {
        let count = length.div_ceil(PAGE_BYTES);
        let first = self.free.take_run(u32::try_from(count).ok()?)?;
        self.users[first as usize..][..count].fill(1);
        if !length.is_multiple_of(PAGE_BYTES) {
            let last = first + count as u32 - 1;
            self.users[last as usize] += 1;
            if let Some((before, _)) = self.shared.replace((last, length % PAGE_BYTES)) {
                self.drop_user(before);
            }
        }
        Some(first * PAGE_BYTES as u32)
    }

    /// Hands the loan at `offset` of `length` bytes over to the program; `None` if nothing was lent there.
    pub(crate) fn hand_over(&mut self, offset: u32, length: usize) -> Option<PageRange> {
        self.lent.remove(&offset)?;
        Some(self.place_at(offset, length))
    }

    /// Returns whether the loan at `offset` is [spoilt](Pages::spoil); `None` if nothing was lent there.
    pub(crate) fn is_spoilt(&self, offset: u32) -> Option<bool> {
        self.lent.get(&offset).copied()
    }

    /// Records that received data is missing from the loan at `offset`.
    pub(crate) fn spoil(&mut self, offset: u32) {
        if let Some(spoilt) = self.lent.get_mut(&offset) {
            *spoilt = true;
        }
    }

    /// Ends a loan and frees its pages. Returns `false` if the program already has the message.
    pub(crate) fn end_loan(&mut self, offset: u32, length: usize) -> bool {
        let place = self.hand_over(offset, length);
        if let Some(place) = &place {
            // The pages were taken, so giving them back succeeds.
            let _ = self.give_back(&place.offsets[..place.count as usize]);
        }
        place.is_some()
    }

    fn place_at(&self, offset: u32, length: usize) -> PageRange {
        let mut place = PageRange { start: self.start, ..PageRange::default() };
        place.count = length.div_ceil(PAGE_BYTES) as u32;
        for (at, page_offset) in place.offsets.iter_mut().take(place.count as usize).enumerate() {
            *page_offset = offset + (at * PAGE_BYTES) as u32;
        }
        place
    }

    fn take_part(&mut self, bytes: usize) -> Option<u32> {
        let (page, used) = match self.shared {
            Some((page, used)) if used + bytes <= PAGE_BYTES => (page, used),
            Some((page, _)) if self.users[page as usize] == 1 => (page, 0),
            other => {
                // If there is no free page, the current shared page remains.
                let next = self.free.take_run(1)?;
                if let Some((page, _)) = other {
                    self.drop_user(page);
                }
                self.users[next as usize] = 1;
                (next, 0)
            }
        };
        self.users[page as usize] += 1;
        self.shared = Some((page, used + bytes));
        Some(page * PAGE_BYTES as u32 + used as u32)
    }

    fn drop_user(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        *users -= 1;
        if *users == 0 {
            self.free.put(page);
        }
    }

    /// Takes pages back from the program. Stops with an error at the first offset that the program does not
    /// own.
    pub(crate) fn give_back(&mut self, offsets: &[u32]) -> Result<(), Refusal> {
        for offset in offsets {
            let page = offset / PAGE_BYTES as u32;
            let own = u32::from(self.shared.is_some_and(|(shared, _)| shared == page));
            match self.users.get(page as usize) {
                Some(&users) if users > own => self.drop_user(page),
                _ => {
                    return Err(Refusal::new(
                        libc::EINVAL,
                        "a page number to give back is invalid, or the page is free",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl PageRange {
    /// Returns the offset and length in the region of each part of a message of this length.
    pub(crate) fn chunks(&self, length: usize) -> impl Iterator<Item = (u32, usize)> {
        let left = (0..length).step_by(PAGE_BYTES).map(move |start| (length - start).min(PAGE_BYTES));
        self.offsets.into_iter().zip(left)
    }

    /// Copies a message to its place.
    pub(crate) fn fill(&self, message: &[u8]) -> Result<(), Refusal> {
        for (chunk, offset) in message.chunks(PAGE_BYTES).zip(self.offsets) {
            memory::copy_out((self.start + offset as usize) as *mut u8, chunk)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Pages {
        Pages::new(1 << 20, 1 << 30).unwrap()
    }

    #[test]
    fn regions_that_no_message_would_fit_are_refused() {
        let refused = |start, length| Pages::new(start, length).err().map(|refusal| refusal.errno);
        assert_eq!(refused(4096, 1 << 32), None);
        assert_eq!(refused(4097, 1 << 30), Some(libc::EINVAL));
        assert_eq!(refused(4096, 2_000_000), Some(libc::EINVAL));
        assert_eq!(refused(4096, (1 << 32) + 1), Some(libc::EINVAL));
    }

    #[test]
    fn short_messages_share_a_page_and_long_ones_have_their_own() {
        let mut pages = pages();
        let all = pages.available();
        let short = pages.take(100).unwrap();
        let next = pages.take(100).unwrap();
        assert_eq!((short.count, next.count), (1, 1));
        assert_eq!(next.offsets[0], short.offsets[0] + 100);
        let long = pages.take(1_000_000).unwrap();
        assert_eq!(long.count, 16);
        assert!(long.offsets[..15].iter().all(|offset| offset % PAGE_BYTES as u32 == 0));
        assert_eq!(long.offsets[15], short.offsets[0] + 200, "its last part shares, too");
        for place in [short, next, long] {
            pages.give_back(&place.offsets[..place.count as usize]).unwrap();
        }
        assert_eq!(pages.available(), all);
    }

    #[test]
    fn what_may_never_come_leaves_half_of_the_pages() {
        let mut pages = Pages::new(1 << 20, 64 << 20).unwrap();
        let all = pages.available();
        let lent: Vec<u32> = std::iter::from_fn(|| pages.lend(1_000_000)).collect();
        assert!(lent.len() > 20 && pages.available() >= all / 2, "{}", lent.len());
        assert_eq!(pages.lend(10_000), None);
        assert!(lent.iter().all(|offset| pages.end_loan(*offset, 1_000_000)));
        assert!(pages.available() >= all - PAGE_BYTES as u64, "the page that is shared stays begun");
    }

    #[test]
    fn a_part_that_finds_no_page_leaves_the_shared_one_as_it_was() {
        let mut pages = Pages::new(1 << 20, 64 << 20).unwrap();
        let long = pages.take(60_000).unwrap();
        let _whole: Vec<PageRange> = std::iter::from_fn(|| pages.take(PAGE_BYTES)).collect();
        for _ in 0..3 {
            assert!(pages.take_part(10_000).is_none());
        }
        pages.give_back(&long.offsets[..1]).expect("it is still the program's");
    }

    #[test]
    fn what_is_lent_lies_in_one_piece_and_becomes_the_programs_or_free_again() {
        let mut pages = pages();
        let all = pages.available();
        let scattered = pages.take(3 * PAGE_BYTES).unwrap();
        pages.give_back(&scattered.offsets[1..2]).unwrap();
        let offset = pages.lend(1_000_000).unwrap();
        assert_eq!(offset, 3 * PAGE_BYTES as u32, "where sixteen pages in a row are free");
        let short = pages.lend(10_000).unwrap();
        assert_eq!(short, offset + 1_000_000, "in what was left of the last page");
        assert_eq!(pages.lend(PAGE_BYTES), Some(PAGE_BYTES as u32), "in the page between");
        pages.end_loan(PAGE_BYTES as u32, PAGE_BYTES);
        let place = pages.hand_over(offset, 1_000_000).unwrap();
        assert_eq!((place.count, place.offsets[15]), (16, offset + 15 * PAGE_BYTES as u32));
        assert_eq!(pages.hand_over(offset, 1_000_000), None);
        pages.end_loan(offset, 1_000_000);
        pages.end_loan(short, 10_000);
        pages.give_back(&place.offsets).unwrap();
        pages.give_back(&[scattered.offsets[0], scattered.offsets[2]]).unwrap();
        assert_eq!(pages.available(), all);
    }

    #[test]
    fn what_was_not_taken_cannot_be_given_back() {
        let mut pages = pages();
        let place = pages.take(200_000).unwrap();
        let offsets = &place.offsets[..place.count as usize];
        pages.give_back(offsets).unwrap();
        for offset in offsets {
            assert_eq!(pages.give_back(&[*offset]).unwrap_err().errno, libc::EINVAL);
        }
        assert_eq!(pages.give_back(&[u32::MAX]).unwrap_err().errno, libc::EINVAL);
    }

    #[test]
    fn a_full_region_has_room_again_when_something_is_given_back() {
        let mut pages = Pages::new(4096, 8 << 20).unwrap();
        let mut taken = Vec::new();
        while let Some(place) = pages.take(65_536) {
            taken.push(place);
        }
        assert_eq!((taken.len(), pages.available(), pages.has_room(1)), (128, 0, false));
        pages.give_back(&taken[5].offsets[..1]).unwrap();
        assert!(pages.has_room(1) && pages.has_room(65_536) && !pages.has_room(65_537));
        assert_eq!(pages.take(65_536), Some(taken[5]));
    }
}
