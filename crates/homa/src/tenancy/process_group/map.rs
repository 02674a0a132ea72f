//! The file, and its bytes in memory.

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use super::error::SegmentError;
use super::layout::{CutoffBank, Layout, MAGIC, SIZE, Slot, VERSION};

// The file is mapped as it is; a mistake here would be one between processes.
const _: () = assert!(mem::offset_of!(Layout, holder) == 16 && SIZE.is_multiple_of(64));
const _: () = assert!(size_of::<Slot>() == 64 && size_of::<CutoffBank>() == 64);
const _: () = assert!(cfg!(target_has_atomic = "64"));

/// Opens the file, made empty where there is none, and sees that nobody else could have written to it.
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
    // Root may open anybody's file, and must not trust it for that.
    if meta.uid() != me {
        return Err(SegmentError::Denied { path: path.to_owned() });
    }
    Ok(file)
}

/// What the head of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Nothing is there.
    Empty,
    /// This version's layout.
    Ours,
    /// Something else, with what it calls its version and size.
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

/// Who has, or last had, the registry's lock. The place is the same in every version.
pub(super) fn holder(file: &File) -> u32 {
    let mut pid = [0; 4];
    match file.read_exact_at(&mut pid, 16) {
        Ok(()) => u32::from_ne_bytes(pid),
        Err(_) => 0,
    }
}

/// Makes the file new, all zero. Memory is taken now, since a page that the system cannot give later is a signal, not an error.
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

/// The file in memory, until dropped.
#[derive(Debug)]
pub(super) struct SegmentMap(NonNull<Layout>);

// SAFETY: the layout is atomics only, which any thread may use, and the mapping belongs to no thread.
unsafe impl Send for SegmentMap {}
// SAFETY: see above.
unsafe impl Sync for SegmentMap {}

impl SegmentMap {
    /// Maps a file of `SIZE` bytes.
    pub(super) fn new(file: &File, path: &Path) -> Result<SegmentMap, SegmentError> {
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), SIZE, access, shared, file.as_raw_fd(), 0) };
        match NonNull::new(at.cast::<Layout>()) {
            Some(layout) if at != libc::MAP_FAILED => Ok(SegmentMap(layout)),
            _ => Err(system("map", path, io::Error::last_os_error())),
        }
    }

    /// Says in the head what this file is.
    pub(super) fn write_head(&self) {
        self.version.store(VERSION, Relaxed);
        self.size.store(SIZE as u32, Relaxed);
        self.magic.store(MAGIC, Relaxed);
    }
}

impl Deref for SegmentMap {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // SAFETY: the mapping is as long as the layout, aligned to a page, lives as long as `self`, and any bytes are a
        // layout, since it consists of integers. They change under the reference, and are atomics for that reason.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SegmentMap {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}
