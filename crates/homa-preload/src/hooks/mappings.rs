//! Memory that the program gives back while a Homa socket has its buffers there.

use std::ffi::{c_int, c_void};

use libc::size_t;

use crate::real;
use crate::region::may_have_regions;
use crate::table::World;

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(start: *mut c_void, length: size_t) -> c_int {
    if may_have_regions(start as usize, length) {
        crate::border::answer(|| {
            for socket in World::existing().iter().flat_map(|world| world.all()) {
                if socket.region().is_some_and(|region| region.overlaps(start as usize, length)) {
                    socket.abandon_region();
                }
            }
            Ok(0)
        });
    }
    // SAFETY: the caller's.
    unsafe { real::munmap(start, length) }
}
