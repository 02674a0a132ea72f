//! Handlers of signals: libc's own calls, and a note that there is one.

use std::ffi::c_int;

use libc::sighandler_t;

use crate::{memory, real, signals};

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // Before a signal can come.
    if !action.is_null()
        && let Ok(action) = memory::read(action)
    {
        signals::note(signal, action.sa_sigaction);
    }
    // SAFETY: the caller's.
    unsafe { real::sigaction(signal, action, before) }
}

/// Defines the functions of libc that set a handler by its address alone.
macro_rules! by_address {
    ($($name:ident)*) => {
        $(
            /// # Safety
            /// As in libc.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(signal: c_int, action: sighandler_t) -> sighandler_t {
                signals::note(signal, action);
                // SAFETY: the caller's.
                unsafe { real::$name(signal, action) }
            }
        )*
    };
}

by_address! { signal bsd_signal sysv_signal __sysv_signal sigset ssignal }
