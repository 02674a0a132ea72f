//! Signal handlers: calls libc's functions, and records that the program has a handler.

use std::ffi::c_int;

use libc::sighandler_t;

use crate::{memory, real, signals};

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // Recorded before a signal can arrive.
    if !action.is_null()
        && let Ok(action) = memory::read(action)
    {
        signals::note(signal, action.sa_sigaction);
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::sigaction(signal, action, before) }
}

/// Defines the functions of libc that set a handler by its address alone.
macro_rules! by_address {
    ($($name:ident)*) => {
        $(
            /// # Safety
            /// The requirements of the libc function of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(signal: c_int, action: sighandler_t) -> sighandler_t {
                signals::note(signal, action);
                // SAFETY: the caller meets the requirements of the libc function.
                unsafe { real::$name(signal, action) }
            }
        )*
    };
}

by_address! { signal bsd_signal sysv_signal __sysv_signal sigset ssignal }
