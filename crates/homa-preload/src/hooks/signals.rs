//! Installation of signal handlers: records that the program has a handler, and calls libc's function.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use libc::sighandler_t;

use crate::descriptor_table::ProcessState;
use crate::{memory, real, signals};

/// Whether threads that were already waiting were notified of the first handler.
static RECALLED: AtomicBool = AtomicBool::new(false);

/// How many times threads are notified that there is a handler, and how long they have to react each time.
const RECALLS: u32 = 100;
const BETWEEN_RECALLS: Duration = Duration::from_micros(100);

/// Records an action that the program is about to set for a signal. If the action is the first handler,
/// notifies threads that already wait. `nests`: whether the handler runs with its own signal unblocked.
fn note_action(signal: c_int, action: sighandler_t, nests: bool) {
    let noted = signals::note_action(signal, action, nests);
    if noted.is_first {
        end_unblocked_turns();
    }
    if !noted.must_be_deferred || RECALLED.load(SeqCst) {
        return;
    }
    let state = ProcessState::existing();
    // A vfork child shares this memory for a while, but has its own handlers. After it sets one, the parent's
    // threads block their signals unnecessarily, and must still be notified when the parent sets a handler. A
    // fork child has its own memory and no process state.
    if state.is_some_and(|state| !state.is_mine()) || RECALLED.swap(true, SeqCst) {
        return;
    }
    crate::ffi_border::answer(|| {
        state.inspect(|state| recall(state));
        Ok(0)
    });
}

/// Ends the turns of threads that drive in poll with signals unblocked: such threads check for handlers in each
/// round and when they are woken. Then makes the descriptors show what was deferred: the handler may look at
/// them. Gives up after some attempts, since a thread may not be scheduled.
fn end_unblocked_turns() {
    let Some(state) = ProcessState::existing().filter(|state| state.is_mine()) else { return };
    crate::ffi_border::answer(|| {
        let sockets = state.all();
        for _ in 0..RECALLS {
            if signals::unblocked_turns() == 0 {
                break;
            }
            sockets.iter().for_each(|socket| socket.side().recall());
            std::thread::sleep(BETWEEN_RECALLS);
        }
        sockets.iter().for_each(|socket| socket.signal.settle());
        Ok(0)
    });
}

/// Notifies all receiving threads so that they block their signals. Gives up after some attempts, since a
/// thread may be about to wait or may never wait.
fn recall(state: &ProcessState) {
    for _ in 0..RECALLS {
        let unaware = state.all().iter().filter(|socket| socket.recall()).count();
        if unaware == 0 {
            return;
        }
        std::thread::sleep(BETWEEN_RECALLS);
    }
}

/// # Safety
/// Same as for the libc function of this name.
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
        note_action(signal, action.sa_sigaction, action.sa_flags & libc::SA_NODEFER != 0);
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::sigaction(signal, action, before) }
}

/// Defines the functions of libc that take only the address of a handler.
macro_rules! by_address {
    ($($name:ident($nests:literal))*) => {
        $(
            /// # Safety
            /// Same as for the libc function of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(signal: c_int, action: sighandler_t) -> sighandler_t {
                note_action(signal, action, $nests);
                // SAFETY: the caller meets the requirements of the libc function.
                unsafe { real::$name(signal, action) }
            }
        )*
    };
}

by_address! {
    signal(false)
    bsd_signal(false)
    sysv_signal(true)
    __sysv_signal(true)
    sigset(false)
    ssignal(false)
}
