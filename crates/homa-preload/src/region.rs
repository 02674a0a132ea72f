//! The program's region of message buffers. If the region has contiguous room for a message, the transport
//! assembles the message there, without a copy.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use homa::kernel_api::{Lender, Lent, MessageMemory};

use crate::delivery_queue::DeliveryQueue;
use crate::ffi_border::Refusal;
use crate::pages::{PageRange, Pages};

/// The region of a socket.
pub(crate) struct Region {
    start: usize,
    length: usize,
    pages: Mutex<Pages>,
    /// Whether writing to the region is no longer permitted.
    gone: AtomicBool,
    /// Address ranges that the program has unmapped. A thread that copies into the region holds the read
    /// lock, so that unmapping waits for the copy.
    holes: RwLock<Vec<Range<usize>>>,
    /// Whether there are holes.
    has_holes: AtomicBool,
    /// The queue of messages that wait for room.
    deliveries: Weak<DeliveryQueue>,
}

/// The region, in its role as the transport's message memory.
struct Lending(Arc<Region>);

/// The memory lent for one message.
struct Loan {
    region: Arc<Region>,
    offset: u32,
    length: usize,
}

/// Lower bound of the addresses of all present and past regions; [`HIGHEST`] is the upper bound. Most memory
/// that a program unmaps lies outside these bounds.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// See [`LOWEST`].
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Maximum number of separate holes. Beyond it, all holes are merged into one, from the start of the first to
/// the end of the last.
const MAX_HOLES: usize = 64;

/// Returns whether a memory range may overlap a region.
pub(crate) fn may_have_regions(start: usize, length: usize) -> bool {
    start < HIGHEST.load(Relaxed) && start.saturating_add(length) > LOWEST.load(Relaxed)
}

fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Region {
    pub(crate) fn new(pages: Pages, deliveries: &Arc<DeliveryQueue>) -> Arc<Region> {
        let (start, length) = pages.region();
        let (start, length) = (start as usize, length as usize);
        LOWEST.fetch_min(start, Relaxed);
        HIGHEST.fetch_max(start + length, Relaxed);
        Arc::new(Region {
            start,
            length,
            pages: Mutex::new(pages),
            gone: AtomicBool::new(false),
            holes: RwLock::default(),
            has_holes: AtomicBool::new(false),
            deliveries: Arc::downgrade(deliveries),
        })
    }

    /// Locks the pages. While they are locked, no function of the transport may be called, since the
    /// transport takes this lock while holding its own.
    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is room for a message of this length.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        self.pages().has_room(length)
    }

    /// Returns the interface by which the transport assembles messages here.
    pub(crate) fn lending(self: &Arc<Region>) -> Arc<dyn MessageMemory> {
        Arc::new(Lending(Arc::clone(self)))
    }

    /// Hands a message that was assembled here over to the program. Returns `None` if the message lies
    /// elsewhere.
    ///
    /// # Errors
    /// EFAULT if a part of the message was not written or was unmapped.
    pub(crate) fn hand_over(&self, message: &[u8]) -> Option<Result<PageRange, Refusal>> {
        let offset =
            (message.as_ptr() as usize).checked_sub(self.start).filter(|offset| *offset < self.length)?;
        let spoilt = self.pages().is_spoilt(offset as u32)?;
        if spoilt || !self.has_no_hole(offset as u32, message.len()) {
            // The pages stay lent while the message exists: otherwise dropping the message would free pages
            // that another message uses by then.
            return Some(Err(Refusal::new(
                libc::EFAULT,
                "the buffers of a message were unmapped before it was complete",
            )));
        }
        self.pages().hand_over(offset as u32, message.len()).map(Ok)
    }

    /// Copies a message that was assembled elsewhere into its place in the region.
    ///
    /// # Errors
    /// EFAULT if a part of the place was unmapped or is not writable. The place is then freed.
    pub(crate) fn fill(&self, place: &PageRange, message: &[u8]) -> Result<(), Refusal> {
        let holes = self.holes.read().unwrap_or_else(PoisonError::into_inner);
        let mut chunks = place.chunks(message.len());
        let filled = match chunks.any(|(offset, length)| self.meets(&holes, offset, length)) {
            false => place.fill(message),
            true => Err(Refusal::new(libc::EFAULT, "the buffers of a message were unmapped")),
        };
        drop(holes);
        filled.inspect_err(|_| self.free(place))
    }

    fn free(&self, place: &PageRange) {
        // The pages were just taken, so giving them back succeeds.
        let _ = self.pages().give_back(&place.offsets[..place.count as usize]);
        self.show();
    }

    /// Makes poll report messages that now have room because the transport, not the program, gave pages back.
    fn show(&self) {
        if let Some(deliveries) = self.deliveries.upgrade() {
            deliveries.show(|length| self.has_room(length));
        }
    }

    /// Returns whether this memory overlaps the region.
    pub(crate) fn overlaps(&self, start: usize, length: usize) -> bool {
        meet(&(start..start.saturating_add(length)), &(self.start..self.start + self.length))
    }

    /// Prevents further writes to the region, except those in progress.
    pub(crate) fn abandon(&self) {
        self.gone.store(true, Relaxed);
    }

    /// Prevents further writes to this part of the region, except those of the transport in progress.
    pub(crate) fn take_away(&self, start: usize, length: usize) {
        let mut holes = self.holes.write().unwrap_or_else(PoisonError::into_inner);
        holes.push(start..start.saturating_add(length));
        if holes.len() > MAX_HOLES {
            let first = holes.iter().map(|hole| hole.start).min().unwrap_or(0);
            let end = holes.iter().map(|hole| hole.end).max().unwrap_or(0);
            holes.clear();
            holes.push(first..end);
        }
        self.has_holes.store(true, Relaxed);
    }

    /// Permits writes again to a part that was [taken away](Region::take_away).
    pub(crate) fn put_back(&self, start: usize, length: usize) {
        let hole = start..start.saturating_add(length);
        let mut holes = self.holes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = holes.iter().position(|other| *other == hole) {
            holes.swap_remove(at);
        }
        self.has_holes.store(!holes.is_empty(), Relaxed);
    }

    fn has_no_hole(&self, offset: u32, length: usize) -> bool {
        if !self.has_holes.load(Relaxed) {
            return true;
        }
        !self.meets(&self.holes.read().unwrap_or_else(PoisonError::into_inner), offset, length)
    }

    fn meets(&self, holes: &[Range<usize>], offset: u32, length: usize) -> bool {
        let start = self.start + offset as usize;
        holes.iter().any(|hole| meet(hole, &(start..start + length)))
    }

    fn is_there(&self, offset: u32, length: usize) -> bool {
        !self.gone.load(Relaxed) && self.has_no_hole(offset, length)
    }
}

impl MessageMemory for Lending {
    fn lend(&self, length: usize) -> Option<Lent> {
        let Lending(region) = self;
        if region.gone.load(Relaxed) {
            return None;
        }
        let offset = region.pages().lend(length)?;
        if !region.has_no_hole(offset, length) {
            region.pages().end_loan(offset, length);
            return None;
        }
        let start = NonNull::new((region.start + offset as usize) as *mut u8)?;
        let loan = Loan { region: Arc::clone(region), offset, length };
        // SAFETY: with SO_HOMA_RCVBUF the program has passed the region for writing, and it does not access
        // the lent part until it receives the message. Before a part is unmapped or the socket is closed,
        // further writes are prevented.
        Some(unsafe { Lent::new(start, length, loan) })
    }
}

impl Lender for Loan {
    fn is_there(&self) -> bool {
        let there = self.region.is_there(self.offset, self.length);
        if !there {
            // Data that is not written now stays missing, even if unmapping fails and the memory remains
            // valid.
            self.region.pages().spoil(self.offset);
        }
        there
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let came_back = self.region.pages().end_loan(self.offset, self.length);
        if came_back {
            self.region.show();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use homa::kernel_api::ReadinessFd;

    use super::*;
    use crate::abi::PAGE_BYTES;
    use crate::pending_message::PendingMessage;

    /// Returns a region for a test, and its memory.
    fn region() -> (Arc<Region>, Vec<u8>) {
        region_of(&DeliveryQueue::new(ReadinessFd::from_eventfd().unwrap()))
    }

    fn region_of(deliveries: &Arc<DeliveryQueue>) -> (Arc<Region>, Vec<u8>) {
        let memory = vec![0_u8; (64 << 20) + 4096];
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        (Region::new(Pages::new(start, 64 << 20).unwrap(), deliveries), memory)
    }

    fn is_shown(signal: &ReadinessFd) -> bool {
        let mut entry = libc::pollfd { fd: signal.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `entry` is one valid entry.
        unsafe { libc::poll(&mut entry, 1, 0) == 1 }
    }

    fn bytes(region: &Region, offset: u32, length: usize) -> &[u8] {
        // SAFETY: the region's memory lives until the test ends, and is not written while the slice exists.
        unsafe { std::slice::from_raw_parts((region.start + offset as usize) as *const u8, length) }
    }

    fn loan(region: &Arc<Region>, length: usize) -> Loan {
        let offset = region.pages().lend(length).unwrap();
        Loan { region: Arc::clone(region), offset, length }
    }

    fn errno(result: Option<Result<PageRange, Refusal>>) -> Option<i32> {
        result.unwrap().err().map(|refusal| refusal.errno)
    }

    #[test]
    fn what_is_taken_away_is_not_written_to_and_the_rest_is_as_ever() {
        let (region, _memory) = region();
        let all = region.pages().available();
        let (one, other) = (loan(&region, 100_000), loan(&region, 100_000));
        region.take_away(region.start + one.offset as usize + PAGE_BYTES, 4096);
        assert_eq!((one.is_there(), other.is_there()), (false, true));
        assert_eq!(errno(region.hand_over(bytes(&region, one.offset, 100_000))), Some(libc::EFAULT));
        let place = region.hand_over(bytes(&region, other.offset, 100_000)).unwrap().unwrap();
        region.pages().give_back(&place.offsets[..place.count as usize]).unwrap();
        drop((one, other));
        assert!(region.pages().available() >= all - PAGE_BYTES as u64, "a page is being shared out");
        // The transport no longer assembles messages there; copying to it is an error.
        let lending = Lending(Arc::clone(&region));
        assert!(lending.lend(100_000).is_none());
        let place = region.pages().take(100_000).unwrap();
        assert_eq!(region.fill(&place, &[1; 100_000]).unwrap_err().errno, libc::EFAULT);
    }

    #[test]
    fn what_was_not_written_while_it_seemed_gone_is_missing_for_good() {
        let (region, _memory) = region();
        let (asked, unasked) = (loan(&region, 100_000), loan(&region, 100_000));
        region.take_away(region.start, region.length);
        assert!(!asked.is_there());
        region.put_back(region.start, region.length);
        assert!(asked.is_there() && unasked.is_there());
        assert_eq!(errno(region.hand_over(bytes(&region, asked.offset, 100_000))), Some(libc::EFAULT));
        assert_eq!(errno(region.hand_over(bytes(&region, unasked.offset, 100_000))), None);
    }

    #[test]
    fn what_waits_for_room_is_shown_when_the_transport_or_a_failed_copy_gives_some_back() {
        let signal = ReadinessFd::from_eventfd().unwrap();
        let deliveries = DeliveryQueue::new(Arc::clone(&signal));
        let (region, _memory) = region_of(&deliveries);
        let loans = [loan(&region, 1_000_000), loan(&region, 1_000_000)];
        let rest: Vec<PageRange> = std::iter::from_fn(|| region.pages().take(PAGE_BYTES)).collect();
        deliveries.hold(PendingMessage::response(7, 900_000));
        assert!(!deliveries.show(|length| region.has_room(length)) && !is_shown(&signal));
        // An RPC ends before its message is complete.
        drop(loans);
        assert!(is_shown(&signal));
        let place = region.pages().take(1_000_000).unwrap();
        let other = region.pages().take(1_000_000 / PAGE_BYTES * PAGE_BYTES).unwrap();
        assert!(!deliveries.show(|length| region.has_room(length)) && !is_shown(&signal));
        region.take_away(region.start, region.length);
        assert!(region.fill(&place, &[1; 1_000_000]).is_err());
        assert!(is_shown(&signal), "what finds no memory there is told so, as by the kernel");
        drop((rest, other));
    }

    #[test]
    fn many_holes_are_one() {
        let (region, _memory) = region();
        for at in 0..=2 * MAX_HOLES {
            region.take_away(region.start + 2 * at * PAGE_BYTES, 1);
        }
        assert!(region.holes.read().unwrap().len() <= MAX_HOLES);
        assert!(!region.has_no_hole(PAGE_BYTES as u32, 1), "which lies between two");
        assert!(region.has_no_hole(5 * MAX_HOLES as u32 * PAGE_BYTES as u32, 1));
    }
}
