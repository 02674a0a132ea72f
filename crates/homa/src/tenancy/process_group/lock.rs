//! Locks that the kernel releases when their owner dies.
//!
//! They are locks of the open file (F_OFD_SETLK), not of the process. Therefore two hosts of one process
//! exclude each other, closing another descriptor of the file releases nothing, and the locks work across pid
//! namespaces. A forked child that has not called exec shares its parent's open file, and therefore keeps the
//! parent's locks.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Offset of the first locked byte. It is far beyond the contents, so that it does not move when the layout
/// changes.
const LOCKS_AT: libc::off_t = 1 << 30;

/// A range of bytes that represents a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    start: libc::off_t,
    len: libc::off_t,
}

/// The lock held by a process that changes the registry.
pub(super) const REGISTRY: Range = Range { start: LOCKS_AT, len: 1 };

/// Returns the lock held by the living process that owns this slot.
pub(super) fn slot(slot: usize) -> Range {
    Range { start: LOCKS_AT + 1 + slot as libc::off_t, len: 1 }
}

/// The lock bytes of all slots that any version of the layout can have.
pub(super) const ANY_SLOT: Range = Range { start: LOCKS_AT + 1, len: 1 << 16 };

fn lock(kind: libc::c_int, range: Range) -> libc::flock {
    // SAFETY: the structure consists of numbers, for which zero is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = range.start;
    lock.l_len = range.len;
    lock
}

fn control(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open, and `lock` outlives the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes the lock if it is free; returns whether it did so.
pub(super) fn try_lock(file: &File, range: Range) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, &mut lock(libc::F_WRLCK, range)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the lock.
pub(super) fn unlock(file: &File, range: Range) {
    // The kernel refuses this only if a table of locks is full. In that case the lock is released when the
    // host ends.
    let _ = control(file, libc::F_OFD_SETLK, &mut lock(libc::F_UNLCK, range));
}

/// Returns whether another owner holds a lock in the range. Returns true if in doubt, since a living process
/// must not be taken for dead.
pub(super) fn is_held(file: &File, range: Range) -> bool {
    let mut lock = lock(libc::F_WRLCK, range);
    match control(file, libc::F_OFD_GETLK, &mut lock) {
        Ok(()) => lock.l_type != libc::F_UNLCK as libc::c_short,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenancy::process_group::tests::Dir;

    #[test]
    fn a_lock_excludes_other_open_files_of_the_same_process() {
        let dir = Dir::new();
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).open(dir.path().join("f")).unwrap()
        };
        let (one, other) = (open(), open());
        assert!(try_lock(&one, slot(3)).unwrap());
        assert!(!try_lock(&other, slot(3)).unwrap() && try_lock(&other, slot(4)).unwrap());
        assert!(is_held(&other, ANY_SLOT) && is_held(&other, slot(3)));
        assert!(!is_held(&one, slot(3)), "one's own lock stands in nobody's way");
        unlock(&other, slot(4));
        drop(open()); // Closing another descriptor of the file releases no lock.
        assert!(is_held(&other, slot(3)) && !is_held(&one, ANY_SLOT));
        drop(one);
        assert!(!is_held(&other, ANY_SLOT) && try_lock(&other, slot(3)).unwrap());
    }
}
