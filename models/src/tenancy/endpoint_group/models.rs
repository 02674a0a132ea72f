//! Models of the mailbox. A thread that would sleep ends instead, and the wake-up descriptor then shows
//! whether the thread was notified.

use std::net::SocketAddr;
use std::pin::pin;

use homa_proto::RxPacket;
use loom::sync::Arc;
use loom::thread;

use super::mailbox::{MailKind, MailQueue, Mailbox};

fn mailbox() -> Arc<Mailbox> {
    Arc::new(Mailbox::new().expect("nothing is asked of the system"))
}

fn post(mailbox: &Mailbox, urgent: bool, bytes: &[u8]) {
    let packet = RxPacket::new(SocketAddr::from(([10, 0, 0, 1], 7)), bytes);
    mailbox.post(urgent, |mail| mail.push(MailKind::Own, &packet));
}

/// Appends the current mail to `all`.
fn take(mailbox: &Mailbox, all: &mut Vec<u8>) {
    let mut mail = MailQueue::default();
    if mailbox.take(&mut mail) {
        mail.iter().for_each(|(_, packet)| all.extend_from_slice(packet.bytes));
    }
}

/// Returns whether the task was notified and has not consumed the notification.
fn task_is_woken(mailbox: &Mailbox) -> bool {
    pin!(mailbox.task_wake.notified()).enable()
}

/// Runs `poster` in parallel with a thread that goes to sleep if the mailbox allows it, and takes the mail if
/// not.
fn race_with_sleep(poster: fn(&Mailbox)) {
    let mailbox = mailbox();
    let posting = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || poster(&mailbox))
    };
    let mut taken = Vec::new();
    let slept = mailbox.begin_sleep();
    if !slept {
        take(&mailbox, &mut taken);
    }
    posting.join().expect("a thread of the model ends");
    assert!(!slept || mailbox.wake_fd.is_notified(), "the thread sleeps beside its mail");
    take(&mailbox, &mut taken);
    assert_eq!(taken, b"a", "mail comes out once");
}

/// A thread that goes to sleep while urgent mail is posted finds the mail or is notified.
pub fn urgent_mail_ends_a_sleep() {
    race_with_sleep(|mailbox| post(mailbox, true, b"a"));
}

/// A closing host makes mail urgent that was posted before or is being posted.
pub fn hurry_ends_a_sleep_beside_mail_that_is_not_urgent() {
    race_with_sleep(|mailbox| {
        post(mailbox, false, b"a");
        mailbox.hurry();
    });
}

/// The same with one thread that posts and one that closes.
pub fn mail_posted_while_the_host_closes_is_urgent() {
    let mailbox = mailbox();
    let threads =
        [|mailbox: &Mailbox| post(mailbox, false, b"a"), |mailbox: &Mailbox| mailbox.hurry()].map(|run| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || run(&mailbox))
        });
    let slept = mailbox.begin_sleep();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread of the model ends"));
    assert!(mailbox.is_urgent());
    assert!(!slept || mailbox.wake_fd.is_notified(), "the thread sleeps beside its mail");
}

/// Two threads that sleep on one descriptor: each is notified or finds the mail.
pub fn two_threads_that_go_to_sleep_are_both_told() {
    let mailbox = mailbox();
    let sleeper = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || mailbox.begin_sleep())
    };
    let poster = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || post(&mailbox, true, b"a"))
    };
    let slept = mailbox.begin_sleep();
    let others = [sleeper.join().expect("a thread of the model ends")];
    poster.join().expect("a thread of the model ends");
    assert!(!(slept || others[0]) || mailbox.wake_fd.is_notified());
}

/// A thread that wakes up does not hide another that goes to sleep.
pub fn a_sleep_that_ends_hides_no_other() {
    let mailbox = mailbox();
    let waking = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || {
            if mailbox.begin_sleep() {
                mailbox.end_sleep();
            }
        })
    };
    let poster = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || post(&mailbox, true, b"a"))
    };
    let slept = mailbox.begin_sleep();
    waking.join().expect("a thread of the model ends");
    poster.join().expect("a thread of the model ends");
    assert!(!slept || mailbox.wake_fd.is_notified());
}

/// The async driver task that goes to sleep while urgent mail is posted finds the mail or is notified.
pub fn urgent_mail_ends_the_sleep_of_the_task() {
    let mailbox = mailbox();
    let poster = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || post(&mailbox, true, b"a"))
    };
    let slept = mailbox.begin_task_sleep();
    poster.join().expect("a thread of the model ends");
    assert!(!slept || task_is_woken(&mailbox), "the task sleeps beside its mail");
}

/// Mail from two posters is delivered once, and the mail of each in its order, regardless of when it is
/// taken.
pub fn mail_comes_out_once_and_in_order() {
    let mailbox = mailbox();
    let posters: [fn(&Mailbox); 2] = [
        |mailbox| {
            post(mailbox, true, b"a");
            post(mailbox, true, b"b");
        },
        |mailbox| post(mailbox, false, b"c"),
    ];
    let threads = posters.map(|poster| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || poster(&mailbox))
    });
    let mut taken = Vec::new();
    take(&mailbox, &mut taken);
    take(&mailbox, &mut taken);
    threads.into_iter().for_each(|thread| thread.join().expect("a thread of the model ends"));
    take(&mailbox, &mut taken);
    let of_the_first: Vec<u8> = taken.iter().copied().filter(|byte| *byte != b'c').collect();
    assert_eq!((of_the_first.as_slice(), taken.len()), (&b"ab"[..], 3));
    assert!(!mailbox.is_urgent());
}
