//! Packets and network reports that one endpoint of a host passes to another.
//!
//! The kernel steers a batch by its first packet, so a run of packets that a sender or a network card merged
//! can contain packets for other endpoints. Acknowledgements also piggyback on packets of other RPCs. Both
//! are handed over in memory that is reused: of two buffers that are swapped, one is being filled while the
//! other is being processed.
//!
//! A thread that sleeps on an endpoint's descriptor also sleeps on the `wake_fd` of the endpoint's mailbox.
//! The thread announces its sleep first and then checks for mail. A poster posts first and then checks for
//! sleepers. All four accesses are sequentially consistent, so at least one of the two threads sees what the
//! other did.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Instant;
use std::{io, mem};

use homa_proto::{RxPacket, Unreachable};

use crate::runtime::task_wake::TaskWake;
use crate::runtime::wake_fd::WakeFd;
use crate::tenancy::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard};

/// Maximum total size in bytes of the packets in a mailbox: a few of the longest bursts. An endpoint that is
/// this far behind loses further packets, as if its receive buffer were full.
const MAX_BYTES: usize = 4 << 20;

/// Maximum number of entries in a mailbox: several of the longest bursts. This bounds entries with few bytes.
const MAX_ITEMS: usize = 1 << 14;

/// The kind of a piece of mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailKind {
    /// A packet for this endpoint.
    Own,
    /// A packet that is not for this endpoint but concerns it, or the header of one.
    Foreign,
    /// The header of another endpoint's packet, which proves to the sending endpoint that its peer restarted.
    Restart,
    /// A network report about a peer; it has no bytes.
    Unreachable(Unreachable),
}

#[derive(Clone, Copy, Debug)]
struct MailItem {
    from: SocketAddr,
    kind: MailKind,
    priority: Option<u8>,
    start: usize,
    end: usize,
}

/// A bounded list of mail, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct MailQueue {
    bytes: Vec<u8>,
    items: Vec<MailItem>,
    counts: MailCounts,
}

/// Counters of a mailbox since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MailCounts {
    /// Number of whole packets posted.
    pub(crate) packets: u64,
    /// Number of pieces of mail dropped because the mailbox was full.
    pub(crate) dropped: u64,
    pub(crate) lock_acquisitions: u64,
    pub(crate) lock_misses: u64,
    pub(crate) lock_wait_ns: u64,
}

impl MailQueue {
    /// Adds a piece of mail, if there is room: the available bytes of the packet, its sender and its
    /// priority.
    pub(crate) fn push(&mut self, kind: MailKind, packet: &RxPacket<'_>) {
        let &RxPacket { from, bytes, priority, .. } = packet;
        if self.items.len() >= MAX_ITEMS || self.bytes.len() + bytes.len() > MAX_BYTES {
            self.counts.dropped += 1;
            return;
        }
        self.counts.packets += u64::from(kind == MailKind::Own);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.items.push(MailItem { from, kind, priority, start, end: self.bytes.len() });
    }

    /// Returns all pieces of mail.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (MailKind, RxPacket<'_>)> + Clone {
        self.items.iter().map(|item| {
            let packet = RxPacket::new(item.from, &self.bytes[item.start..item.end]);
            (item.kind, RxPacket { priority: item.priority, ..packet })
        })
    }

    /// Makes those of this endpoint's own packets foreign for which `is_foreign` returns true.
    pub(crate) fn make_foreign(&mut self, is_foreign: impl Fn(&[u8]) -> bool) {
        for item in self.items.iter_mut().filter(|item| item.kind == MailKind::Own) {
            if is_foreign(&self.bytes[item.start..item.end]) {
                item.kind = MailKind::Foreign;
            }
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }
}

/// The mailbox of one endpoint. See the [module](self).
pub(crate) struct Mailbox {
    mail: Mutex<MailQueue>,
    /// Whether there is mail.
    full: AtomicBool,
    /// Whether there is mail that must not wait for the endpoint's next drive round.
    urgent: AtomicBool,
    /// Number of threads that sleep on `wake_fd`.
    sleepers: AtomicU32,
    /// Whether the async driver task sleeps.
    task_sleeps: AtomicBool,
    /// Whether all mail is urgent because the host is closing and waits for acknowledgements.
    hurry: AtomicBool,
    pub(crate) wake_fd: WakeFd,
    /// Wakes the endpoint's async driver task.
    pub(crate) task_wake: Arc<TaskWake>,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            mail: Mutex::default(),
            full: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            task_sleeps: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            wake_fd: WakeFd::new()?,
            task_wake: Arc::default(),
        })
    }

    /// Takes the lock, and counts the acquisition.
    fn lock(&self) -> MutexGuard<'_, MailQueue> {
        let mut mail = match self.mail.try_lock() {
            Ok(mail) => mail,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let since = Instant::now();
                let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
                mail.counts.lock_misses += 1;
                mail.counts.lock_wait_ns += since.elapsed().as_nanos() as u64;
                mail
            }
        };
        mail.counts.lock_acquisitions += 1;
        mail
    }

    pub(crate) fn counts(&self) -> MailCounts {
        self.lock().counts
    }

    /// Posts the mail that `fill` adds. If it is `urgent`, wakes sleeping threads.
    pub(crate) fn post(&self, urgent: bool, fill: impl FnOnce(&mut MailQueue)) {
        let mut mail = self.lock();
        fill(&mut mail);
        // Set the flag under the lock, so that a thread that took earlier mail cannot clear it.
        self.full.store(true, Release);
        let urgent = urgent || self.hurry.load(Relaxed);
        if urgent {
            self.urgent.store(true, SeqCst);
        }
        drop(mail);
        if urgent && self.sleepers.load(SeqCst) > 0 {
            self.wake_fd.notify();
        }
        if urgent && self.task_sleeps.swap(false, SeqCst) {
            self.task_wake.notify_one();
        }
    }

    /// Takes all mail in exchange for a list that has been processed; returns whether there was any mail.
    pub(crate) fn take(&self, worked_off: &mut MailQueue) -> bool {
        if !self.full.load(Acquire) {
            return false;
        }
        let mut mail = self.lock();
        worked_off.clear();
        mem::swap(&mut mail.bytes, &mut worked_off.bytes);
        mem::swap(&mut mail.items, &mut worked_off.items);
        self.full.store(false, Relaxed);
        self.urgent.store(false, Relaxed);
        true
    }

    /// Returns whether there is mail that must not wait.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(SeqCst)
    }

    /// Makes all mail urgent from now on, so that none waits for the next drive round.
    pub(crate) fn hurry(&self) {
        self.hurry.store(true, Relaxed);
        // This also covers mail that is already waiting.
        self.post(true, |_| ());
    }

    /// Announces that a thread is about to sleep on `wake_fd`. Returns `false` if there is mail; the thread
    /// then must not sleep.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.sleepers.fetch_add(1, SeqCst);
        let sleeps = !self.is_urgent();
        if !sleeps {
            self.end_sleep();
        }
        sleeps
    }

    /// Records that the thread is awake again.
    pub(crate) fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Relaxed);
    }

    /// Announces that the async driver task is about to sleep. Returns `false` if there is mail; the task
    /// then must not sleep.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "there is no such task"))]
    pub(crate) fn begin_task_sleep(&self) -> bool {
        self.task_sleeps.store(true, SeqCst);
        !self.is_urgent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8]) -> RxPacket<'_> {
        RxPacket::new(SocketAddr::from(([10, 0, 0, 1], 7)), bytes)
    }

    #[test]
    fn mail_comes_out_once_and_in_order() {
        let mailbox = Mailbox::new().unwrap();
        let mut mail = MailQueue::default();
        assert!(!mailbox.take(&mut mail));
        mailbox.post(false, |mail| mail.push(MailKind::Foreign, &packet(b"ab")));
        assert!(!mailbox.is_urgent());
        mailbox.post(true, |mail| {
            mail.push(MailKind::Unreachable(Unreachable::Peer { rpc_id: None }), &packet(b""));
            mail.push(MailKind::Own, &RxPacket { priority: Some(5), ..packet(b"cde") });
        });
        assert!(mailbox.is_urgent() && !mailbox.begin_sleep() && !mailbox.begin_task_sleep());
        assert!(mailbox.take(&mut mail));
        let got: Vec<_> =
            mail.iter().map(|(kind, packet)| (kind, packet.bytes.to_vec(), packet.priority)).collect();
        let unreachable = MailKind::Unreachable(Unreachable::Peer { rpc_id: None });
        assert_eq!(
            got,
            [
                (MailKind::Foreign, b"ab".to_vec(), None),
                (unreachable, vec![], None),
                (MailKind::Own, b"cde".to_vec(), Some(5))
            ]
        );
        assert!(!mailbox.take(&mut mail) && !mailbox.is_urgent() && mailbox.begin_sleep());
        assert_eq!((mailbox.counts().packets, mailbox.counts().dropped), (1, 0));
    }

    #[test]
    fn a_full_box_drops_and_counts() {
        let mailbox = Mailbox::new().unwrap();
        let bytes = vec![0; 64 << 10];
        for _ in 0..MAX_BYTES / bytes.len() + 3 {
            mailbox.post(true, |mail| mail.push(MailKind::Own, &packet(&bytes)));
        }
        assert_eq!(mailbox.counts().dropped, 3);
        for _ in 0..MAX_ITEMS {
            mailbox.post(true, |mail| {
                mail.push(MailKind::Unreachable(Unreachable::Peer { rpc_id: None }), &packet(b""))
            });
        }
        assert!(mailbox.counts().dropped > 3);
        let mut mail = MailQueue::default();
        mailbox.take(&mut mail);
        assert_eq!(mail.iter().count(), MAX_ITEMS);
    }

    #[test]
    fn whoever_sleeps_is_woken_for_what_must_not_wait_and_at_the_end_for_all() {
        use crate::runtime::sleep::{Interest, sleep};
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let other = WakeFd::new().unwrap();
        for hurry in [false, true] {
            let poster = Arc::clone(&mailbox);
            let thread = std::thread::spawn(move || {
                while poster.sleepers.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
                if hurry {
                    poster.hurry();
                } else {
                    poster.post(false, |mail| mail.push(MailKind::Foreign, &packet(b"")));
                    poster.post(true, |mail| mail.push(MailKind::Own, &packet(b"")));
                }
            });
            sleep(&other, Interest { mail: Some(&mailbox), ..Interest::default() }, None);
            assert!(mailbox.is_urgent());
            thread.join().unwrap();
            assert!(mailbox.take(&mut MailQueue::default()));
        }
        mailbox.post(false, |_| ());
        assert!(mailbox.is_urgent(), "the host closes");
    }
}
