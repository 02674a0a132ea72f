//! Returns memory pages to the system when their content is no longer needed.

use std::mem::MaybeUninit;

/// Minimum size of memory whose pages are returned: for less memory, the system call would cost more than the
/// pages are worth. From this size on, glibc initially maps each allocation separately, and unmaps it when it
/// is freed.
const MIN_BYTES: usize = 128 << 10;

/// Returns the pages that lie within this memory. Its content is undefined afterwards.
pub(crate) fn release(memory: &mut [MaybeUninit<u8>]) {
    // Miri has no madvise.
    if memory.len() < MIN_BYTES || cfg!(miri) {
        return;
    }
    let page = page_bytes();
    let begin = memory.as_ptr().align_offset(page);
    let bytes = (memory.len() - begin) & !(page - 1);
    // SAFETY: the pages lie within `memory`, which is borrowed mutably and need not be initialised, so its
    // content may change. If the system refuses, the memory is unchanged.
    unsafe { libc::madvise(memory.as_mut_ptr().add(begin).cast(), bytes, libc::MADV_DONTNEED) };
}

/// Returns free pages of the heap to the system. glibc itself does so only at the end of the heap. After a
/// peak of short messages, a few live messages would keep all pages below them in memory. Other allocators
/// have their own rules.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number, and returns only pages that no allocation overlaps.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn page_bytes() -> usize {
    // SAFETY: the call takes a constant and returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every Linux has pages")
}

/// Counts the resident pages within this memory.
#[cfg(test)]
pub(crate) fn resident(memory: &[MaybeUninit<u8>]) -> usize {
    let page = page_bytes();
    let begin = memory.as_ptr().align_offset(page);
    let count = (memory.len() - begin) / page;
    let mut pages = vec![0_u8; count];
    // SAFETY: the pages are part of `memory` and therefore mapped, and `pages` has one byte for each page.
    let result = unsafe {
        libc::mincore(memory.as_ptr().add(begin).cast_mut().cast(), count * page, pages.as_mut_ptr())
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    pages.iter().filter(|page| **page & 1 != 0).count()
}
