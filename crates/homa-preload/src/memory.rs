//! Checks the program's memory before access: a bad address must fail with EFAULT, and not crash the program.
//!
//! A check is a system call. Programs pass the same structures repeatedly, so each thread remembers valid
//! pages.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::ffi_border::Refusal;

/// The smallest page size of any machine, in bytes.
pub(crate) const PAGE: usize = 4096;

/// Number of pages that a thread remembers.
const REMEMBERED: usize = 64;

/// Incremented whenever the program has unmapped memory, which may invalidate remembered pages.
static TAKEN_AWAY: AtomicUsize = AtomicUsize::new(0);

/// The valid pages that a thread remembers.
struct VerifiedPages {
    /// The value of [`TAKEN_AWAY`] for which the pages are valid.
    since: Cell<usize>,
    /// Numbers of valid pages, shifted left by one; bit 0 is set if the page is writable. 0 is an empty slot.
    pages: [Cell<usize>; REMEMBERED],
}

thread_local! {
    static GOOD: VerifiedPages = const { VerifiedPages { since: Cell::new(0), pages: [const { Cell::new(0) }; REMEMBERED] } };
}

/// Invalidates the remembered pages of all threads, since the program has unmapped memory.
pub(crate) fn forget_good() {
    TAKEN_AWAY.fetch_add(1, Release);
}

/// Checks that `length` bytes at `address` can be read, or written if `write` is set. Checks only the first
/// and the last page, since the pages between them seldom belong to another mapping.
pub(crate) fn check(address: usize, length: usize, write: bool) -> Result<(), Refusal> {
    if length == 0 {
        return Ok(());
    }
    let end = address.checked_add(length - 1).ok_or(Refusal::plain(libc::EFAULT))?;
    check_page(address, write)?;
    if address / PAGE == end / PAGE {
        return Ok(());
    }
    check_page(end, write)
}

/// Returns the slot for a page. The first and last pages of contiguous 64 KiB message pages have different
/// slots.
fn place_of(page: usize) -> usize {
    page.wrapping_add(page >> 4) % REMEMBERED
}

/// Returns whether the thread remembers a page.
#[inline(always)]
fn is_known(page: usize, write: bool) -> bool {
    let known = GOOD.try_with(|VerifiedPages { since, pages }| {
        // Read first: if a signal handler runs in between, its changes show in the values read later.
        let taken_away = TAKEN_AWAY.load(Acquire);
        let known = pages[place_of(page)].get();
        since.get() == taken_away && (known == page << 1 | 1 || !write && known == page << 1)
    });
    page != 0 && known == Ok(true)
}

#[inline(always)]
fn check_page(at: usize, write: bool) -> Result<(), Refusal> {
    check_page_by(at, write, look)
}

/// Checks a page, unless it is remembered. A signal handler may unmap the page at any moment. If this happens
/// before the function returns, the page is not remembered as valid; if it happens later, it is the program's
/// error to unmap memory in use.
#[inline(always)]
fn check_page_by(at: usize, write: bool, look: impl FnOnce(usize, bool) -> bool) -> Result<(), Refusal> {
    match is_known(at / PAGE, write) {
        true => Ok(()),
        false => look_and_remember(at, write, look),
    }
}

/// Checks a page, and remembers it if it is valid.
#[cold]
fn look_and_remember(at: usize, write: bool, look: impl FnOnce(usize, bool) -> bool) -> Result<(), Refusal> {
    let page = at / PAGE;
    let since_look = GOOD.try_with(|VerifiedPages { since, pages }| {
        let taken_away = TAKEN_AWAY.load(Acquire);
        if since.get() != taken_away {
            pages.iter().for_each(|page| page.set(0));
            // Written last, so that the pages remain invalid if a signal handler runs in between.
            since.set(taken_away);
        }
        taken_away
    });
    if page == 0 || !look(at, write) {
        return Err(Refusal::plain(libc::EFAULT));
    }
    let _ = GOOD.try_with(|VerifiedPages { since, pages }| {
        pages[place_of(page)].set(page << 1 | usize::from(write));
        // `since` has changed if a handler has unmapped memory since the check and has then made a call with
        // other memory.
        if since_look != Ok(since.get()) {
            pages[place_of(page)].set(0);
        }
    });
    Ok(())
}

/// Has the kernel read the byte at `at` from this process and, with `write`, write it back to the same
/// address. Returns false if that faults. If the kernel does not permit such access, as in some containers,
/// returns true.
fn look(at: usize, write: bool) -> bool {
    let mut byte = 0_u8;
    let mine = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let theirs = libc::iovec { iov_base: at as *mut c_void, iov_len: 1 };
    // SAFETY: the kernel writes one byte to `byte`, or returns an error for an invalid `at`.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &mine, 1, &theirs, 1, 0) };
    let fault = |copied: isize| copied < 0 && crate::ffi_border::errno() == libc::EFAULT;
    if fault(read) {
        return false;
    }
    // SAFETY: the kernel writes the byte just read to the same address, or returns an error. A program must
    // not change memory while a call may write to it.
    !write || !fault(unsafe { libc::process_vm_writev(libc::getpid(), &mine, 1, &theirs, 1, 0) })
}

/// Reads a structure from the program's memory.
pub(crate) fn read<T: Copy>(from: *const T) -> Result<T, Refusal> {
    check(from as usize, size_of::<T>(), false)?;
    // SAFETY: the memory was checked, and the read permits any alignment. T consists of plain numbers, for
    // which all bytes are valid.
    Ok(unsafe { from.read_unaligned() })
}

/// Writes a structure to the program's memory.
pub(crate) fn write<T: Copy>(to: *mut T, value: T) -> Result<(), Refusal> {
    check(to as usize, size_of::<T>(), true)?;
    // SAFETY: the memory was checked, and the write permits any alignment.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Copies bytes to the program's memory.
pub(crate) fn copy_out(to: *mut u8, bytes: &[u8]) -> Result<(), Refusal> {
    check(to as usize, bytes.len(), true)?;
    // SAFETY: the memory was checked, and the program has passed it for writing.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_memory_is_good_and_other_is_a_fault() {
        let fault = Err(Refusal::plain(libc::EFAULT));
        let mut number = 5_u64;
        assert_eq!(read(&number), Ok(5));
        assert_eq!(write(&mut number, 6), Ok(()));
        assert_eq!(number, 6);
        assert_eq!(read(std::ptr::null::<u64>()), Err(Refusal::plain(libc::EFAULT)));
        assert_eq!(read(64 as *const u64), Err(Refusal::plain(libc::EFAULT)));
        assert_eq!(check(usize::MAX - 3, 8, false), fault);
        assert_eq!(check(8 << 40, 1, true), fault);
        let constant = include_str!("memory.rs").as_ptr() as usize;
        assert_eq!((check(constant, 9, false), check(constant, 9, true)), (Ok(()), fault));
        assert_eq!(check(8, 0, true), Ok(()));
    }

    #[test]
    fn what_a_handler_takes_away_during_a_look_is_not_remembered() {
        let (page, other) = (vec![0_u8; 3 * PAGE], 0_u8);
        let at = page.as_ptr() as usize + PAGE;
        let taken_away = |_: usize, _: bool| {
            forget_good();
            check(&raw const other as usize, 1, false).is_ok()
        };
        check_page_by(at, false, taken_away).unwrap();
        let mut looks = 0;
        let mut counted = |_: usize, _: bool| {
            looks += 1;
            true
        };
        check_page_by(at, false, &mut counted).unwrap();
        check_page_by(at, false, &mut counted).unwrap();
        // At least one check: other tests may unmap memory.
        assert!(looks >= 1);
    }

    #[test]
    fn the_ends_of_a_messages_pages_are_remembered_together() {
        for first in [0, 16, 160, 0x7_f001_2340] {
            let ends = (0..16).flat_map(|page| [first + 16 * page, first + 16 * page + 15]);
            let places: std::collections::HashSet<usize> = ends.map(place_of).collect();
            assert_eq!(places.len(), 32);
        }
    }
}
