//! munmap: a Homa socket may have its buffers in the memory that the program unmaps.

use std::ffi::{c_int, c_void};

use libc::size_t;

use crate::descriptor_table::ProcessState;
use crate::memory::{self, PAGE};
use crate::real;
use crate::region::may_have_regions;

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn munmap(start: *mut c_void, length: size_t) -> c_int {
    // The kernel unmaps whole pages. It refuses an empty range, and a start that is not page-aligned.
    let (from, bytes) = (start as usize, length.checked_next_multiple_of(PAGE).unwrap_or(length));
    if length == 0 || !from.is_multiple_of(PAGE) || !may_have_regions(from, bytes) {
        // SAFETY: the caller meets the requirements of the libc function.
        let result = unsafe { real::munmap(start, length) };
        memory::forget_good();
        return result;
    }
    let mut regions = Vec::new();
    crate::ffi_border::answer(|| {
        let sockets = ProcessState::existing().map_or_else(Vec::new, ProcessState::all);
        regions = sockets.iter().filter_map(|socket| socket.take_away(from, bytes)).collect();
        Ok(0)
    });
    // SAFETY: the caller meets the requirements of the libc function.
    let result = unsafe { real::munmap(start, length) };
    memory::forget_good();
    if result != 0 {
        regions.iter().for_each(|region| region.put_back(from, bytes));
    }
    // Dropping a region must not change the program's errno.
    crate::ffi_border::answer(|| {
        drop(regions);
        Ok(0)
    });
    result
}
