//! Descriptors that are the library's own: what lies underneath the program's Homa sockets. The program knows nothing of them and yet closes
//! them where it closes all that it finds, as daemons do; a host without its descriptors would never end.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::descriptor_table::{MOST, ProcessState};

/// A bit for each descriptor that is.
static OWN: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// So many words of it, from the first on, have ever had one.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What the thread opens is the library's own.
    static MAKES: Cell<bool> = const { Cell::new(false) };
    /// Calls of the library's, one within the other, that the thread is in: what it closes is the library's to close.
    static WORKS: Cell<u32> = const { Cell::new(0) };
}

/// Of the transport's threads.
const THREAD: &CStr = c"homa-progress";

/// While this lives, what the thread opens is the library's own. Signals are held back meanwhile, whose handlers may open what is theirs.
pub(crate) struct OwnDescriptors(bool);

impl OwnDescriptors {
    pub(crate) fn begin() -> OwnDescriptors {
        OwnDescriptors(MAKES.try_with(|makes| makes.replace(true)).unwrap_or(true))
    }
}

impl Drop for OwnDescriptors {
    fn drop(&mut self) {
        let _ = MAKES.try_with(|makes| makes.set(self.0));
    }
}

/// While this lives, the thread is in a call of the library's.
pub(crate) struct LibraryCall(());

impl LibraryCall {
    pub(crate) fn begin() -> LibraryCall {
        let _ = WORKS.try_with(|works| works.set(works.get() + 1));
        LibraryCall(())
    }
}

impl Drop for LibraryCall {
    fn drop(&mut self) {
        let _ = WORKS.try_with(|works| works.set(works.get() - 1));
    }
}

fn word(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok().filter(|at| *at < MOST)?;
    Some((&OWN[at / 64], 1 << (at % 64)))
}

fn is_marked(fd: c_int) -> bool {
    word(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// A descriptor was opened: it is the library's own, or the program's.
pub(crate) fn opened(fd: c_int) {
    if MAKES.try_with(Cell::get).unwrap_or(false) {
        keep(fd);
    } else if is_marked(fd) && ProcessState::existing().is_none_or(ProcessState::is_mine) {
        // A number of the program's by now. What a child opens that has this memory, and descriptors of its own (vfork), is nothing here.
        forget(fd);
    }
}

/// A descriptor is the library's own.
pub(crate) fn keep(fd: c_int) {
    if let Some((word, bit)) = word(fd) {
        USED.fetch_max(fd as usize / 64 + 1, Relaxed);
        word.fetch_or(bit, Relaxed);
    }
}

/// The words that may have one.
fn used() -> &'static [AtomicU64] {
    &OWN[..USED.load(Relaxed)]
}

/// A descriptor is about to be closed, or another is about to get its number; `false` where it is the library's own and the program has no business
/// with it.
pub(crate) fn may_close(fd: c_int) -> bool {
    if !is_marked(fd) {
        return true;
    }
    let world = ProcessState::existing();
    // A child has its own copies: with memory of its own (fork) they are forgotten here, and otherwise (vfork) the parent's are not its own.
    if let Some(world) = world
        && !world.is_mine()
    {
        return true;
    }
    let may = world.is_none() || WORKS.try_with(Cell::get).unwrap_or(1) > 0 || is_thread_of_transport();
    if may {
        forget(fd);
    }
    may
}

fn forget(fd: c_int) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_and(!bit, Relaxed);
    }
}

/// Forgets all: they are the parent's. For a child that was just made.
pub(crate) fn forget_all() {
    used().iter().for_each(|word| word.store(0, Relaxed));
}

/// The library's own descriptors from `first` to `last`, in their order.
pub(crate) fn marked(first: u32, last: u32) -> impl Iterator<Item = u32> {
    let some = used().iter().zip((0..).step_by(64)).filter(|(word, _)| word.load(Relaxed) != 0);
    let each = some.flat_map(|(_, start)| start..start + 64).filter(|fd| is_marked(*fd as c_int));
    each.filter(move |fd| (first..=last).contains(fd))
}

fn is_thread_of_transport() -> bool {
    let mut name: [c_char; 16] = [0; 16];
    // SAFETY: the kernel writes sixteen bytes, the last of which is 0.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        CStr::from_ptr(name.as_ptr()) == THREAD
    }
}
