//! The line by which one thread hands packets to another, and gets their memory back.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::variants::Lock;

/// Batches that a channel has room for, and packets that a queue has: more than wait for a bridge when it begins.
const ROOM: usize = 1_024;

/// A packet in memory of its own.
pub type Packet = Vec<u8>;

type Queue = Arc<Mutex<VecDeque<Packet>>>;

/// Where packets are put.
#[derive(Debug)]
pub enum Put {
    /// Batch by batch.
    Channel(SyncSender<Vec<Packet>>),
    /// Into a queue with a lock.
    Queue(Queue, Lock),
}

/// Where they are taken.
#[derive(Debug)]
pub enum Take {
    Channel(Receiver<Vec<Packet>>),
    Queue(Queue, Lock),
}

/// A line whose lock is taken so often.
pub fn line(lock: Lock) -> (Put, Take) {
    match lock {
        Lock::None => {
            let (sender, receiver) = sync_channel(ROOM);
            (Put::Channel(sender), Take::Channel(receiver))
        }
        lock => {
            let queue = Queue::new(Mutex::new(VecDeque::with_capacity(ROOM)));
            (Put::Queue(Arc::clone(&queue), lock), Take::Queue(queue, lock))
        }
    }
}

fn locked(queue: &Queue) -> MutexGuard<'_, VecDeque<Packet>> {
    // A queue of packets is in order whatever became of who had it.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Put {
    /// Hands a batch over; an empty vector stays. How many packets found no room and are gone: who sends faster than the other one takes
    /// must not wait for it.
    pub fn put(&self, batch: &mut Vec<Packet>) -> usize {
        match self {
            Put::Channel(sender) => match sender.try_send(std::mem::take(batch)) {
                Ok(()) => 0,
                Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => batch.len(),
            },
            Put::Queue(queue, Lock::Packet) => {
                batch.drain(..).map(|packet| enter(&mut locked(queue), packet)).sum()
            }
            Put::Queue(queue, _) => {
                let mut queue = locked(queue);
                batch.drain(..).map(|packet| enter(&mut queue, packet)).sum()
            }
        }
    }
}

/// Puts a packet into a queue if it has room; how many had none.
fn enter(queue: &mut VecDeque<Packet>, packet: Packet) -> usize {
    let full = queue.len() == ROOM;
    if !full {
        queue.push_back(packet);
    }
    usize::from(full)
}

impl Take {
    /// Takes a batch of at most so many, as far as the line knows of a most; empty where there is none.
    pub fn take(&self, most: usize, into: &mut Vec<Packet>) {
        match self {
            Take::Channel(receiver) => {
                if let Ok(batch) = receiver.try_recv() {
                    *into = batch;
                }
            }
            Take::Queue(queue, Lock::Packet) => {
                while into.len() < most {
                    let Some(packet) = locked(queue).pop_front() else { break };
                    into.push(packet);
                }
            }
            Take::Queue(queue, _) => {
                let mut queue = locked(queue);
                let count = queue.len().min(most);
                into.extend(queue.drain(..count));
            }
        }
    }

    /// The same, and sleeps until there is one, but no longer than this. A queue with a lock wakes nobody: it returns at once.
    pub fn wait(&self, most: usize, longest: Duration, into: &mut Vec<Packet>) {
        match self {
            Take::Channel(receiver) => {
                if let Ok(batch) = receiver.recv_timeout(longest) {
                    *into = batch;
                }
            }
            Take::Queue(..) => self.take(most, into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_in_order_by_every_line() {
        for lock in [Lock::None, Lock::Burst, Lock::Packet] {
            let (put, take) = line(lock);
            let mut batch = Vec::new();
            take.take(4, &mut batch);
            take.wait(4, Duration::ZERO, &mut batch);
            assert!(batch.is_empty());
            for first in [0, 4] {
                let mut batch: Vec<Packet> = (first..first + 4).map(|number| vec![number]).collect();
                assert_eq!(put.put(&mut batch), 0);
                assert!(batch.is_empty());
            }
            let mut all = Vec::new();
            for _ in 0..2 {
                let mut batch = Vec::new();
                take.take(4, &mut batch);
                assert_eq!(batch.len(), 4, "{lock:?}");
                all.extend(batch.into_iter().flatten());
            }
            assert!(all.into_iter().eq(0..8), "{lock:?}");
        }
    }

    #[test]
    fn a_full_line_refuses_and_does_not_wait() {
        for lock in [Lock::None, Lock::Burst, Lock::Packet] {
            let (put, take) = line(lock);
            let refused: usize = (0..ROOM + 5).map(|_| put.put(&mut vec![vec![1]])).sum();
            assert_eq!(refused, 5, "{lock:?}");
            take.take(1, &mut Vec::new());
            assert_eq!(put.put(&mut vec![vec![1]]), 0);
        }
    }
}
