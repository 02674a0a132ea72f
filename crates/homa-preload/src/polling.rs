//! Lets a thread in poll or epoll drive the network itself before it sleeps, as a thread in recvmsg does.
//!
//! If only the progress thread drove, each burst of packets would wake the progress thread first and then the
//! program's thread. The program's thread drives while packets arrive, and then for as long as recvmsg would
//! poll; in between, it checks the program's other descriptors. Then it sleeps in the kernel, and the
//! progress thread drives.
//!
//! Driving takes locks and allocates memory, which a signal handler must not do: the handler may have
//! interrupted the allocator. A handler runs with its own signal blocked, so a thread drives only if it
//! blocks no signal that has a handler. While it drives, the thread blocks the signals that have handlers,
//! since it could not detect that a handler ran. Signals are delivered only during the program's sleep, which
//! uses the mask of the program's call, so that they end the call with EINTR.
//!
//! A thread that polls one Homa socket for messages only waits as in recvmsg, and sleeps where a packet wakes
//! it. The library answers the poll, so that the descriptor need not become readable and unreadable again,
//! which are two system calls for each message. The descriptor then does not show the message
//! ([`ReadinessFd::defer`]). Threads that are about to look at it settle that first (`hooks/polls`), and a
//! thread that already sleeps is woken ([`SLEEPERS`]). A signal handler may look, too, but must not wait for
//! the lock that settling takes: none of this is done in programs that have ever had a handler, nor for
//! sockets in epoll sets.

use std::ffi::{c_int, c_short};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use homa::kernel_api;
#[cfg(doc)]
use homa::kernel_api::ReadinessFd;
use libc::{nfds_t, pollfd, sigset_t};

use crate::descriptor_table::{ProcessState, is_homa};
use crate::ffi_border::{answer, pthread_testcancel};
use crate::memory;
use crate::signals::{self, HeldSignals};
use crate::socket::{POLL_INTERVAL_MS, Socket};

/// Number of rounds of driving between two checks of the program's other descriptors. A round that finds
/// nothing takes about a microsecond, and so does such a check.
const ROUNDS_BETWEEN_LOOKS: u32 = 16;

/// The events that a message causes.
const MESSAGE_EVENTS: c_short = libc::POLLIN | libc::POLLRDNORM;

/// Number of threads that look at descriptors of Homa sockets in the kernel, in poll or select. A thread that
/// ended in such a call is counted for ever, and nothing is deferred from then on.
static SLEEPERS: AtomicUsize = AtomicUsize::new(0);

/// Calls `look`, which looks at `fds` in the kernel. If there are Homa sockets among them, makes their
/// descriptors show what was deferred, and counts the thread during the call. In a signal handler, waits for
/// no lock.
pub(crate) fn with_settled(fds: impl Iterator<Item = c_int>, look: impl FnOnce() -> c_int) -> c_int {
    let mut counted = false;
    answer(|| {
        for fd in fds.filter(|fd| is_homa(*fd)) {
            if !std::mem::replace(&mut counted, true) {
                SLEEPERS.fetch_add(1, SeqCst);
            }
            settle(fd);
        }
        Ok(0)
    });
    let result = look();
    SLEEPERS.fetch_sub(usize::from(counted), SeqCst);
    result
}

/// Makes a descriptor show what was deferred.
pub(crate) fn settle(fd: c_int) {
    // With a handler, nothing was deferred, and this may be the handler.
    if !signals::ever_handled()
        && let Some(state) = ProcessState::existing().filter(|state| state.is_mine())
        && let Ok(socket) = state.socket(fd)
    {
        socket.signal.settle();
    }
}

/// The descriptors that a thread waits for.
#[derive(Clone, Copy)]
pub(crate) enum Polled {
    /// The entries passed to poll.
    Entries(*mut pollfd, nfds_t),
    /// An epoll set.
    Epoll(c_int),
}

/// The host that a thread drives in a turn.
struct Driven {
    /// A socket of the single host to which all polled sockets belong.
    socket: Arc<kernel_api::Socket>,
    /// Whether descriptors other than Homa sockets are polled, too.
    others: bool,
}

impl Polled {
    /// Returns the socket to drive, or `None` if there is none, or if the sockets belong to several hosts.
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
                    // If an entry is unreadable, the kernel reports the error.
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

    /// Returns the only polled descriptor and its socket, if it is a Homa socket, the poll waits for messages
    /// only, and changes to the descriptor may be deferred.
    fn sole(self) -> Option<(Arc<Socket>, pollfd)> {
        let Polled::Entries(entry, 1) = self else { return None };
        let entry = memory::read(entry).ok().filter(|entry| is_homa(entry.fd))?;
        // A vfork child shares the parent's memory.
        let state = ProcessState::existing().filter(|state| state.is_mine())?;
        let socket = state.socket(entry.fd).ok()?;
        let messages_only = entry.events & !MESSAGE_EVENTS == 0 && entry.events != 0;
        (messages_only && socket.may_defer()).then_some((socket, entry))
    }

    /// Returns the result of a poll that does not wait, if this library knows it.
    #[inline(never)]
    fn result(self) -> Option<c_int> {
        let mut known = false;
        let ready = answer(|| {
            let Some((socket, mut entry)) = self.sole() else { return Ok(0) };
            let ready = socket.signal.is_ready();
            if let Polled::Entries(at, _) = self {
                entry.revents = if ready { entry.events } else { 0 };
                memory::write(at, entry)?;
            }
            known = true;
            Ok(isize::from(ready))
        });
        known.then_some(ready as c_int)
    }

    /// Returns whether a descriptor is ready. Does not consume its event. Uses the raw system call, since
    /// libc's function is a cancellation point.
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
        // SAFETY: the kernel checks the entries and writes only their result fields, which the program has
        // passed for that; the time outlives the call, and a null mask leaves the mask unchanged.
        let ready =
            unsafe { libc::syscall(libc::SYS_ppoll, entries, count, &raw const none, no_mask, 0_usize) };
        ready != 0
    }
}

/// Maximum wait of a thread that polls one socket before it sleeps on the descriptor, in milliseconds.
/// Cancellation does not end the wait.
const SOLE_TURN_MS: u64 = 100;

/// Drives the network for a while. Returns whether the caller should check its descriptors and, if none is
/// ready, call this function again.
#[inline(never)]
fn turn(polled: Polled, longest: Option<Duration>, signals: &HeldSignals) -> bool {
    let mut again = false;
    answer(|| {
        // A vfork child shares the parent's memory, but must not drive the parent's host.
        let Some(state) = ProcessState::existing().filter(|state| state.is_mine()) else { return Ok(0) };
        let this_turn = signals.begin_turn();
        let at_most = |ms| {
            let turn = Duration::from_millis(ms);
            longest.map_or(turn, |longest| longest.min(turn))
        };
        if let Some((socket, _)) = polled.sole().filter(|_| !this_turn.is_over()) {
            again = await_message(&socket, at_most(SOLE_TURN_MS), || !this_turn.is_over());
            return Ok(0);
        }
        let Some(driven) = polled.driven(state) else { return Ok(0) };
        let mut rounds = 0_u32;
        let stop = || {
            rounds += 1;
            this_turn.is_over()
                || driven.others && rounds.is_multiple_of(ROUNDS_BETWEEN_LOOKS) && polled.is_ready()
        };
        again = driven.socket.drive_awhile(at_most(POLL_INTERVAL_MS), stop) && !this_turn.is_over();
        Ok(0)
    });
    again
}

/// Waits for a message as recvmsg does. Returns whether one may have come while `wanted` returned true.
fn await_message(socket: &Socket, longest: Duration, wanted: impl Fn() -> bool) -> bool {
    let deferral = socket.signal.defer();
    let come = socket.side().await_arrival(longest, &wanted) && wanted();
    drop(deferral);
    if SLEEPERS.load(SeqCst) > 0 || !socket.may_defer() {
        socket.signal.settle();
    }
    come
}

/// Runs a call of the program that waits for descriptors. `wait` calls the underlying libc function with a
/// timeout and a signal mask. `attend` makes the progress thread drive while the program's thread sleeps. No
/// frame here may have a destructor: `wait` is a cancellation point, and a handler that runs in it may end
/// the thread.
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
    // If the mask is unreadable, the kernel reports the error.
    let admitted = if mask.is_null() { None } else { memory::read(mask).ok() };
    let since = Instant::now();
    let left = || timeout.map(|timeout| timeout.saturating_sub(since.elapsed()));
    let look = || {
        // SAFETY: no frame on the stack has a destructor, up to the program's frames.
        unsafe { pthread_testcancel() };
        polled.result().unwrap_or_else(|| wait(Some(Duration::ZERO), mask))
    };
    let mut result = look();
    while result == 0 && left() != Some(Duration::ZERO) {
        if turn(polled, left(), &signals) && !signals.has_pending(admitted.as_ref()) {
            result = look();
            continue;
        }
        attend();
        result = wait(left(), mask);
        break;
    }
    signals.release();
    result
}
