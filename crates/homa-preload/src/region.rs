//! The program's region of message buffers, in which the transport puts messages together where they find room in one piece: what is received
//! there needs no copy to be the program's.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homa::{Lender, Lent, MessageMemory};

use crate::pages::{Pages, Place};

/// The region of a socket.
pub(crate) struct Region {
    start: usize,
    length: usize,
    pages: Mutex<Pages>,
    /// Nothing is to be written there any more.
    gone: AtomicBool,
}

/// A region as the transport sees it.
struct Lending(Arc<Region>);

/// The room of one message.
struct Loan {
    region: Arc<Region>,
    offset: u32,
    length: usize,
}

/// From here on, and up to [`HIGHEST`], there are, or were, regions: most memory that a program gives back lies elsewhere.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// See [`LOWEST`].
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether there may be a region in this memory.
pub(crate) fn may_have_regions(start: usize, length: usize) -> bool {
    start < HIGHEST.load(Relaxed) && start.saturating_add(length) > LOWEST.load(Relaxed)
}

impl Region {
    pub(crate) fn new(pages: Pages) -> Arc<Region> {
        let (start, length) = pages.region();
        let (start, length) = (start as usize, length as usize);
        LOWEST.fetch_min(start, Relaxed);
        HIGHEST.fetch_max(start + length, Relaxed);
        Arc::new(Region { start, length, pages: Mutex::new(pages), gone: AtomicBool::new(false) })
    }

    /// Its pages. Nothing of the transport is called with them in hand, which asks for them with its own lock.
    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the transport needs to put messages together here.
    pub(crate) fn lending(self: &Arc<Region>) -> Arc<dyn MessageMemory> {
        Arc::new(Lending(Arc::clone(self)))
    }

    /// Makes a message the program's that was put together here; `None` for one that lies elsewhere.
    pub(crate) fn hand_over(&self, message: &[u8]) -> Option<Place> {
        let offset =
            (message.as_ptr() as usize).checked_sub(self.start).filter(|offset| *offset < self.length)?;
        self.pages().hand_over(offset as u32, message.len())
    }

    /// Whether any of this memory is the region's.
    pub(crate) fn overlaps(&self, start: usize, length: usize) -> bool {
        start < self.start + self.length && start.saturating_add(length) > self.start
    }

    /// Has nothing written here from now on, but what is being written.
    pub(crate) fn abandon(&self) {
        self.gone.store(true, Relaxed);
    }
}

impl MessageMemory for Lending {
    fn lend(&self, length: usize) -> Option<Lent> {
        let Lending(region) = self;
        if region.gone.load(Relaxed) {
            return None;
        }
        let offset = region.pages().lend(length)?;
        let start = NonNull::new((region.start + offset as usize) as *mut u8)?;
        let loan = Loan { region: Arc::clone(region), offset, length };
        // SAFETY: the program has said that the region is there to be written to, and leaves it alone until it is told of a message. Where it
        // takes the region away, or closes the socket, `gone` is set first.
        Some(unsafe { Lent::new(start, length, loan) })
    }
}

impl Lender for Loan {
    fn is_there(&self) -> bool {
        !self.region.gone.load(Relaxed)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.region.pages().end_loan(self.offset, self.length);
    }
}
