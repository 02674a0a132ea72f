//! Message buffers in a region of the program's own memory, shared out in pages of 64 KiB. A message has whole pages, and for its last bytes a part of
//! a page that several messages share; the program says by their offsets which it has done with.

use crate::abi::{MAX_MESSAGE_BYTES, MAX_PAGES, PAGE_BYTES};
use crate::border::Refusal;
use crate::memory;

/// Largest region: offsets in it have 32 bits.
const MAX_REGION_BYTES: u64 = 1 << 32;

/// The region of a socket.
pub(crate) struct Pages {
    start: usize,
    /// Messages that have a part of each page; one more for the page that is being shared out.
    users: Vec<u32>,
    /// Pages without users.
    free: Vec<u32>,
    /// The page that is being shared out, and how much of it has been.
    shared: Option<(u32, usize)>,
}

/// Where a message lies in the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where the region begins.
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
        // As the kernel has it: a page for each processor, and two messages.
        // SAFETY: sysconf takes a number and gives one.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as u64;
        if length < processors * PAGE_BYTES as u64 + 2 * MAX_MESSAGE_BYTES as u64 {
            return refuse(
                "the region of SO_HOMA_RCVBUF is too small: two messages and 64 KiB for each processor is the least",
            );
        }
        if length > MAX_REGION_BYTES {
            return refuse("the region of SO_HOMA_RCVBUF is above 4 GiB");
        }
        let count = (length / PAGE_BYTES as u64) as u32;
        Ok(Pages {
            start: start as usize,
            users: vec![0; count as usize],
            free: (0..count).rev().collect(),
            shared: None,
        })
    }

    /// The region as it was given, in whole pages.
    pub(crate) fn region(&self) -> (u64, u64) {
        (self.start as u64, (self.users.len() * PAGE_BYTES) as u64)
    }

    /// Bytes that new messages may have.
    pub(crate) fn available(&self) -> u64 {
        let shared = self.shared.map_or(0, |(page, used)| match self.users[page as usize] {
            1 => PAGE_BYTES,
            _ => PAGE_BYTES - used,
        });
        (self.free.len() * PAGE_BYTES + shared) as u64
    }

    /// Whether a message of so many bytes has room.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        let (whole, part) = (length / PAGE_BYTES, length % PAGE_BYTES);
        let fits = part == 0
            || self
                .shared
                .is_some_and(|(page, used)| used + part <= PAGE_BYTES || self.users[page as usize] == 1);
        self.free.len() >= whole + usize::from(!fits)
    }

    /// Room for a message of so many bytes, if there is any.
    pub(crate) fn take(&mut self, length: usize) -> Option<Place> {
        if !self.has_room(length) {
            return None;
        }
        let (whole, part) = (length / PAGE_BYTES, length % PAGE_BYTES);
        let mut place = Place { start: self.start, ..Place::default() };
        for offset in &mut place.offsets[..whole] {
            let page = self.free.pop()?;
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

    fn take_part(&mut self, bytes: usize) -> Option<u32> {
        let (page, used) = match self.shared {
            Some((page, used)) if used + bytes <= PAGE_BYTES => (page, used),
            Some((page, _)) if self.users[page as usize] == 1 => (page, 0),
            other => {
                if let Some((page, _)) = other {
                    self.drop_user(page);
                }
                let page = self.free.pop()?;
                self.users[page as usize] = 1;
                (page, 0)
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
            self.free.push(page);
        }
    }

    /// Takes back what the program has done with. At the first offset that is not the program's to give back it stops, with an error.
    pub(crate) fn give_back(&mut self, offsets: &[u32]) -> Result<(), Refusal> {
        for offset in offsets {
            let page = offset / PAGE_BYTES as u32;
            let own = u32::from(self.shared.is_some_and(|(shared, _)| shared == page));
            match self.users.get(page as usize) {
                Some(&users) if users > own => self.drop_user(page),
                _ => {
                    return Err(Refusal::new(
                        libc::EINVAL,
                        "a page that was given back is none, or was free",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Place {
    /// Copies a message there.
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
