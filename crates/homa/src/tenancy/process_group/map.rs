//! The segment's file and its memory mapping.

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{CutoffBank, Layout, MAGIC, SIZE, Slot, VERSION};
use crate::types::segment_error::SegmentError;

// Other processes map the same file, so the layout must not change by mistake.
const _: () = assert!(mem::offset_of!(Layout, header.holder) == 16 && SIZE.is_multiple_of(64));
const _: () = assert!(mem::offset_of!(Layout, registry) == 24 && mem::offset_of!(Layout, next_id) == 128);
const _: () = assert!(size_of::<Slot>() == 64 && size_of::<CutoffBank>() == 64);
const _: () = assert!(cfg!(target_has_atomic = "64"));

/// Opens the file, creating it empty if it does not exist, and checks that no other user can have written to
/// it.
pub(super) fn open(path: &Path) -> Result<File, SegmentError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).map_err(|source| match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => SegmentError::Denied { path: path.to_owned() },
        Some(libc::ELOOP | libc::EISDIR) => SegmentError::Untrusted { path: path.to_owned() },
        _ => SegmentError::System { what: "open", path: path.to_owned(), source },
    })?;
    let meta = file.metadata().map_err(|source| system("look at", path, source))?;
    // SAFETY: the call only returns a number.
    let me = unsafe { libc::geteuid() };
    if !meta.is_file() || meta.mode() & 0o077 != 0 {
        return Err(SegmentError::Untrusted { path: path.to_owned() });
    }
    // Root could open any user's file, but must trust only its own.
    if meta.uid() != me {
        return Err(SegmentError::Denied { path: path.to_owned() });
    }
    Ok(file)
}

/// The contents of the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The file is empty.
    Empty,
    /// The file has the layout of this version.
    Ours,
    /// The file has a different layout, with this stated version and size.
    Other { version: u32, size: u32 },
}

/// Reads the head of the file.
pub(super) fn head(file: &File, path: &Path) -> Result<Head, SegmentError> {
    let len = file.metadata().map_err(|source| system("look at", path, source))?.len();
    let mut head = [0_u8; 16];
    if len < head.len() as u64 {
        return Ok(Head::Empty);
    }
    file.read_exact_at(&mut head, 0).map_err(|source| system("read", path, source))?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (version, size) = (word(8), word(12));
    let magic = head[..8] == MAGIC.to_ne_bytes();
    Ok(if head == [0; 16] {
        Head::Empty
    } else if magic && version == VERSION && size as usize == SIZE && len == SIZE as u64 {
        Head::Ours
    } else {
        Head::Other { version, size }
    })
}

/// Returns the process that holds, or last held, the registry's lock. The offset of this field is the same in
/// every version.
pub(super) fn holder(file: &File) -> u32 {
    let mut pid = [0; 4];
    match file.read_exact_at(&mut pid, 16) {
        Ok(()) => u32::from_ne_bytes(pid),
        Err(_) => 0,
    }
}

/// Fills the file with zeros. This allocates the memory now: if memory were lacking later, the system would
/// send a signal instead of returning an error.
pub(super) fn make(file: &File, path: &Path) -> Result<(), SegmentError> {
    let zeros = || {
        file.set_len(0)?;
        file.write_all_at(&vec![0; SIZE], 0)
    };
    zeros().map_err(|source| system("make", path, source))
}

fn system(what: &'static str, path: &Path, source: io::Error) -> SegmentError {
    SegmentError::System { what, path: path.to_owned(), source }
}

/// The memory-mapped file, until dropped.
#[derive(Debug)]
pub(super) struct SegmentMap(NonNull<Layout>);

// SAFETY: the layout consists only of atomics, which any thread may use, and the mapping is not tied to any
// thread.
unsafe impl Send for SegmentMap {}
// SAFETY: sharing is sound for the same reason: the layout consists only of atomics.
unsafe impl Sync for SegmentMap {}

impl SegmentMap {
    /// Maps a file of `SIZE` bytes.
    pub(super) fn new(file: &File, path: &Path) -> Result<SegmentMap, SegmentError> {
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses, affects no memory that is in use.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), SIZE, access, shared, file.as_raw_fd(), 0) };
        match NonNull::new(at.cast::<Layout>()) {
            Some(layout) if at != libc::MAP_FAILED => Ok(SegmentMap(layout)),
            _ => Err(system("map", path, io::Error::last_os_error())),
        }
    }

    /// Writes the head, which identifies this file.
    pub(super) fn write_head(&self) {
        self.header.version.store(VERSION, Relaxed);
        self.header.size.store(SIZE as u32, Relaxed);
        self.header.magic.store(MAGIC, Relaxed);
    }
}

impl Deref for SegmentMap {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // SAFETY: the mapping is as long as the layout, aligned to a page, and lives as long as `self`. Any
        // bytes are a valid layout, since it consists of integers. Other processes may change the bytes while
        // the reference exists; therefore all of them are atomics.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SegmentMap {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}
