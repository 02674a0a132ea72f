//! A thread in poll or epoll drives the network itself before it sleeps, as a thread in recvmsg does.
//!
//! Otherwise the progress thread would drive, and each burst of packets would wake that thread first and
//! then the program's. The thread drives while packets come, and for as long after the last ones as recvmsg
//! polls; then it sleeps in the kernel, and the progress thread drives. In between it looks at the
//! program's other descriptors.
//!
//! Driving takes locks and allocates, which a signal handler must not do: it may have interrupted the
//! allocator. A handler runs with its own signal blocked, so a thread drives only if no signal with a
//! handler is blocked in it. The thread blocks all signals while it drives, since a handler that runs
//! meanwhile would leave no trace. Only the program's sleep admits them, with the mask that the program's
//! call has, so that they end it with EINTR.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homa::kernel_api;
use libc::{nfds_t, pollfd, sigset_t};

use crate::descriptor_table::{ProcessState, is_homa};
use crate::ffi_border::answer;
use crate::memory;
use crate::signals::HeldSignals;
use crate::socket::POLL_INTERVAL_MS;

/// Rounds of driving between two looks at the program's other descriptors. A round that finds nothing takes
/// about a microsecond, as such a look does.
const ROUNDS_BETWEEN_LOOKS: u32 = 16;

/// The descriptors that a thread waits for.
#[derive(Clone, Copy)]
pub(crate) enum Polled {
    /// The entries of poll.
    Entries(*mut pollfd, nfds_t),
    /// An epoll set.
    Epoll(c_int),
}

/// What a thread drives in a turn.
struct Driven {
    /// A socket of the only host among those of the polled sockets.
    socket: Arc<kernel_api::Socket>,
    /// Whether other descriptors are polled.
    others: bool,
}

impl Polled {
    /// The socket to drive; `None` if there is none, or if the sockets belong to several hosts.
    fn driven(self, state: &ProcessState) -> Option<Driven> {
        let mut found: Option<Arc<kernel_api::Socket>> = None;
        let mut others = false;
        let mut add = |socket: Arc<kernel_api::Socket>| match &found {
            Some(first) => first.shares_host(&socket),
            None => {
                found = Some(socket);
                true
            }
        };
        match self {
            Polled::Entries(entries, count) => {
                for at in 0..count as usize {
                    // The kernel reports an error for unreadable entries.
                    let fd = memory::read(entries.wrapping_add(at)).ok()?.fd;
                    if is_homa(fd) {
                        add(state.socket(fd).ok()?.side()).then_some(())?;
                    } else {
                        others |= fd >= 0;
                    }
                }
            }
            Polled::Epoll(_) => {
                others = true;
                state.all_in_epoll().into_iter().all(|socket| add(socket.side())).then_some(())?;
            }
        }
        found.map(|socket| Driven { socket, others })
    }

    /// Whether a descriptor is ready, without taking its event. The raw system call is used, since libc's
    /// function is a cancellation point.
    fn is_ready(self) -> bool {
        let mut set = pollfd { fd: -1, events: libc::POLLIN, revents: 0 };
        let (entries, count) = match self {
            Polled::Entries(entries, count) => (entries, count),
            Polled::Epoll(epoll) => {
                set.fd = epoll;
                (&raw mut set, 1)
            }
        };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let no_mask = ptr::null::<sigset_t>();
        // SAFETY: the kernel checks the entries and writes only their results, which the program's call is to
        // have; the time lives through the call, and a null mask leaves the mask alone.
        let ready =
            unsafe { libc::syscall(libc::SYS_ppoll, entries, count, &raw const none, no_mask, 0_usize) };
        ready != 0
    }
}

/// Drives the network for at most a millisecond. Returns whether the caller should look again whether its
/// descriptors are ready, and call this again if they are not.
#[inline(never)]
fn turn(polled: Polled, longest: Option<Duration>, signals: &HeldSignals) -> bool {
    let mut again = false;
    answer(|| {
        // A child of vfork has the parent's memory, and its host is not the child's to drive.
        let Some(state) = ProcessState::existing().filter(|state| state.is_mine()) else { return Ok(0) };
        let Some(driven) = polled.driven(state) else { return Ok(0) };
        let this_turn = signals.begin_turn();
        let mut rounds = 0_u32;
        let stop = || {
            rounds += 1;
            this_turn.is_over()
                || driven.others && rounds.is_multiple_of(ROUNDS_BETWEEN_LOOKS) && polled.is_ready()
        };
        let turn = Duration::from_millis(POLL_INTERVAL_MS);
        let longest = longest.map_or(turn, |longest| longest.min(turn));
        again = driven.socket.drive_awhile(longest, stop) && !this_turn.is_over();
        Ok(0)
    });
    again
}

/// Runs a program's call that waits for descriptors. `wait` is the libc function behind it, called with a
/// timeout and a signal mask, and `attend` makes the progress thread drive while it sleeps. No frame here
/// has a destructor: `wait` is a cancellation point, and a handler that runs in it may end the thread.
pub(crate) fn wait_in_turns(
    polled: Polled,
    timeout: Option<Duration>,
    mask: *const sigset_t,
    attend: impl Fn(),
    wait: impl Fn(Option<Duration>, *const sigset_t) -> c_int,
) -> c_int {
    let signals = if timeout == Some(Duration::ZERO) { None } else { HeldSignals::hold() };
    let Some(signals) = signals else {
        attend();
        return wait(timeout, mask);
    };
    let mask = if mask.is_null() { signals.mask() } else { mask };
    // The kernel reports an unreadable mask.
    let admitted = if mask.is_null() { None } else { memory::read(mask).ok() };
    let since = Instant::now();
    let left = || timeout.map(|timeout| timeout.saturating_sub(since.elapsed()));
    let mut result = wait(Some(Duration::ZERO), mask);
    while result == 0 && left() != Some(Duration::ZERO) {
        if turn(polled, left(), &signals) && !signals.has_pending(admitted.as_ref()) {
            result = wait(Some(Duration::ZERO), mask);
            continue;
        }
        attend();
        result = wait(left(), mask);
        break;
    }
    signals.release();
    result
}
