//! What epoll sets were asked of Homa sockets in words that an eventfd does not know, so that they are answered in the same.
//!
//! An event says nothing of its descriptor but the datum that the program gave. So what was asked is kept with the datum, and an event is put in the
//! program's words where no other descriptor of the set had the same datum at that time, by the kernel's list of the set, or got it since. That is
//! safe with data of any kind: to register a datum of the library's own in their place would be seen by who waits by other means.
//!
//! Programs that ask in no such words never come here.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_short, epoll_event};

use crate::memory;
use crate::signals::Held;
use crate::table::is_homa;

/// What an eventfd has no word for, and what it says instead.
const NAMES: [(c_short, c_short); 2] = [(libc::POLLRDNORM, libc::POLLIN), (libc::POLLWRNORM, libc::POLLOUT)];

/// What a Homa socket says to who asked for `asked`, where its eventfd says `told`.
pub(crate) fn in_words_of(asked: c_short, told: c_short) -> c_short {
    NAMES.iter().fold(told, |told, (name, said)| {
        let named = if told & said != 0 { asked & name } else { 0 };
        (told | named) & (asked | !said)
    })
}

/// What an eventfd is asked for where a Homa socket is asked for `asked`.
pub(crate) fn as_an_eventfd_knows(asked: c_short) -> c_short {
    NAMES.iter().fold(asked, |all, (name, said)| all | if asked & name != 0 { *said } else { 0 })
}

/// Whether it is asked for in words that an eventfd does not know.
pub(crate) fn has_names(asked: c_short) -> bool {
    NAMES.iter().any(|(name, _)| asked & name != 0)
}

/// Some set was asked in such words.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether some set was.
pub(crate) fn any() -> bool {
    ANY.load(Relaxed)
}

/// A Homa socket in a set.
struct Registration {
    epoll: c_int,
    fd: c_int,
    datum: u64,
    asked: c_short,
    /// No other descriptor of the set has the datum.
    is_alone: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Asked(Mutex<Vec<Registration>>);

impl Asked {
    /// Changes a set by `change`, and notes what it is asked now; `event` is what the program gives.
    pub(crate) fn change(
        &self,
        (epoll, fd): (c_int, c_int),
        event: Option<epoll_event>,
        change: impl FnOnce() -> c_int,
    ) -> c_int {
        let is_named = event.is_some_and(|event| is_homa(fd) && has_names(event.events as c_short));
        ANY.fetch_or(is_named, Relaxed);
        // A handler of this thread's that waits at a set needs the lock.
        let _signals = Held::all();
        let mut all = self.lock();
        let result = change();
        if result != 0 {
            return result;
        }
        all.retain(|known| (known.epoll, known.fd) != (epoll, fd) && is_homa(known.fd));
        let Some(event) = event else { return result };
        let has_datum = |known: &Registration| (known.epoll, known.datum) == (epoll, event.u64);
        all.iter_mut().filter(|known| has_datum(known)).for_each(|known| known.is_alone = false);
        if is_named {
            let (datum, asked) = (event.u64, event.events as c_short);
            let is_alone = is_alone(datum, epoll, fd);
            all.push(Registration { epoll, fd, datum, asked, is_alone });
        }
        result
    }

    /// Puts events that have come from a set in the program's words. Takes no memory: a signal handler may wait at a set.
    pub(crate) fn tell(&self, epoll: c_int, events: *mut epoll_event, count: usize) {
        let _signals = Held::all();
        let all = self.lock();
        for at in (0..count).map(|at| events.wrapping_add(at)) {
            let Ok(mut event) = memory::read(at) else { return };
            let datum = event.u64;
            let is_it = |known: &&Registration| (known.epoll, known.datum) == (epoll, datum);
            if let Some(known) = all.iter().find(is_it)
                && known.is_alone
                && is_homa(known.fd)
            {
                let said = in_words_of(known.asked, event.events as c_short);
                // None is left where the set was asked something else since the event came.
                if said != 0 {
                    event.events = event.events & !0xffff | u32::from(said as u16);
                    let _ = memory::write(at, event);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Registration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `fd` alone of a set has this datum, as far as the system tells.
fn is_alone(datum: u64, epoll: c_int, fd: c_int) -> bool {
    let list = std::fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).unwrap_or_default();
    let mut with_it =
        list.lines().filter_map(entry).filter(|(_, its)| *its == datum).map(|(other, _)| other).peekable();
    // What does not tell of the one that is known to be there tells of nothing.
    with_it.peek().is_some() && with_it.all(|other| other == fd)
}

/// The descriptor and the datum in a line such as "tfd:        5 events:       19 data:                3  pos:0 ino:9 sdev:f".
fn entry(line: &str) -> Option<(c_int, u64)> {
    let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
    let fd = words.next()?.parse().ok()?;
    let datum = words.find(|word| *word == "data:").and_then(|_| words.next())?;
    Some((fd, u64::from_str_radix(datum, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use libc::{POLLERR, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};

    use super::*;

    #[test]
    fn a_socket_answers_in_the_words_in_which_it_is_asked() {
        for (asked, told, said) in [
            (POLLIN, POLLIN, POLLIN),
            (POLLRDNORM, POLLIN, POLLRDNORM),
            (POLLIN | POLLRDNORM, POLLIN, POLLIN | POLLRDNORM),
            (POLLRDNORM | POLLOUT, POLLIN | POLLOUT | POLLERR, POLLRDNORM | POLLOUT | POLLERR),
            (POLLRDNORM | POLLWRNORM, POLLOUT, POLLWRNORM),
            (POLLWRNORM | POLLIN, POLLIN, POLLIN),
            (POLLRDNORM, POLLERR, POLLERR),
        ] {
            assert_eq!(as_an_eventfd_knows(asked) & told & !POLLERR, told & !POLLERR);
            assert_eq!(in_words_of(asked, told), said, "{asked:#x} {told:#x}");
            assert_eq!(has_names(asked), asked & (POLLRDNORM | POLLWRNORM) != 0);
        }
    }

    #[test]
    fn the_kernels_list_of_a_set_is_read() {
        let line = "tfd:        5 events:       19 data: ffffffff0000002a  pos:0 ino:9 sdev:f";
        assert_eq!(entry(line), Some((5, 0xffff_ffff_0000_002a)));
        assert_eq!(entry("pos:\t0"), None);
    }
}
