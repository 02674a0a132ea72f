//! The library's own descriptors, which underlie the program's Homa sockets. A program that closes all
//! descriptors that it finds, as daemons do, would also close these. A host without its descriptors could
//! never shut down.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::process::{MAX_DESCRIPTORS, StateOwner, state_owner};

/// A bit for each descriptor of the library.
static OWN: [AtomicU64; MAX_DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; MAX_DESCRIPTORS / 64];

/// Number of words of [`OWN`] up to the last one that has ever had a bit set.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether descriptors that the thread opens belong to the library.
    static MAKES: Cell<bool> = const { Cell::new(false) };
    /// Nesting depth of the thread's calls into the library. Within such a call, the thread may close the
    /// library's descriptors.
    static WORKS: Cell<u32> = const { Cell::new(0) };
}

/// Name of the transport's threads.
const THREAD: &CStr = c"homa-progress";

/// A guard: while it exists, descriptors that the thread opens belong to the library. The caller must block
/// signals for that time, since a handler may open descriptors for the program.
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

/// A guard: while it exists, the thread is in a call into the library.
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
    let at = usize::try_from(fd).ok().filter(|at| *at < MAX_DESCRIPTORS)?;
    Some((&OWN[at / 64], 1 << (at % 64)))
}

fn is_marked(fd: c_int) -> bool {
    word(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Records the owner of a new descriptor: the library or the program.
pub(crate) fn opened(fd: c_int) {
    if MAKES.try_with(Cell::get).unwrap_or(false) {
        keep(fd);
    } else if is_marked(fd) && state_owner() != StateOwner::Parent {
        // The descriptor now belongs to the program. The owner is checked since a vfork child shares this
        // memory but has its own descriptors.
        forget(fd);
    }
}

/// Marks a descriptor as belonging to the library.
pub(crate) fn keep(fd: c_int) {
    if let Some((word, bit)) = word(fd) {
        USED.fetch_max(fd as usize / 64 + 1, Relaxed);
        word.fetch_or(bit, Relaxed);
    }
}

/// Returns the words of [`OWN`] that may have a bit set.
fn used() -> &'static [AtomicU64] {
    &OWN[..USED.load(Relaxed)]
}

/// Checks a descriptor before it is closed or replaced. Returns `false` if the descriptor belongs to the
/// library and the caller must not close it.
pub(crate) fn may_close(fd: c_int) -> bool {
    if !is_marked(fd) {
        return true;
    }
    let may = match state_owner() {
        // A vfork child may close its own copies, but the marks are the parent's.
        StateOwner::Parent => return true,
        // A fork child has its own memory, in which the marks are cleared.
        StateOwner::Nobody => true,
        StateOwner::ThisProcess => WORKS.try_with(Cell::get).unwrap_or(1) > 0 || is_thread_of_transport(),
    };
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

/// Clears all marks in a new child, since they describe the parent's descriptors.
pub(crate) fn forget_all() {
    used().iter().for_each(|word| word.store(0, Relaxed));
}

/// Returns the library's descriptors from `first` to `last`, in ascending order.
pub(crate) fn marked(first: u32, last: u32) -> impl Iterator<Item = u32> {
    let some = used().iter().zip((0..).step_by(64)).filter(|(word, _)| word.load(Relaxed) != 0);
    let each = some.flat_map(|(_, start)| start..start + 64).filter(|fd| is_marked(*fd as c_int));
    each.filter(move |fd| (first..=last).contains(fd))
}

fn is_thread_of_transport() -> bool {
    let mut name: [c_char; 16] = [0; 16];
    // SAFETY: the kernel writes at most sixteen bytes, the last of which is 0.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        CStr::from_ptr(name.as_ptr()) == THREAD
    }
}
