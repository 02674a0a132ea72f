//! The queue through which one thread hands packets to another, and through which the packets' buffers
//! return.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::variants::Lock;

/// Capacity of a channel in batches and of a queue in packets: larger than the number of packets queued for a
/// bridge when it starts.
const ROOM: usize = 1_024;

/// A packet in its own buffer.
pub type Packet = Vec<u8>;

type Queue = Arc<Mutex<VecDeque<Packet>>>;

/// The sending end of a line.
#[derive(Debug)]
pub enum LineSender {
    /// A channel of batches.
    Channel(SyncSender<Vec<Packet>>),
    /// A queue of packets with a lock.
    Queue(Queue, Lock),
}

/// The receiving end of a line.
#[derive(Debug)]
pub enum LineReceiver {
    Channel(Receiver<Vec<Packet>>),
    Queue(Queue, Lock),
}

/// Creates a line with this granularity of locks.
pub fn line(lock: Lock) -> (LineSender, LineReceiver) {
    match lock {
        Lock::None => {
            let (sender, receiver) = sync_channel(ROOM);
            (LineSender::Channel(sender), LineReceiver::Channel(receiver))
        }
        lock => {
            let queue = Queue::new(Mutex::new(VecDeque::with_capacity(ROOM)));
            (LineSender::Queue(Arc::clone(&queue), lock), LineReceiver::Queue(queue, lock))
        }
    }
}

fn locked(queue: &Queue) -> MutexGuard<'_, VecDeque<Packet>> {
    // A panic in the thread that holds the lock cannot leave the queue inconsistent.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LineSender {
    /// Hands a batch over and leaves an empty vector. Packets that do not fit are dropped, because a fast
    /// sender must not wait for a slow receiver. Returns the number of dropped packets.
    pub fn put(&self, batch: &mut Vec<Packet>) -> usize {
        match self {
            LineSender::Channel(sender) => match sender.try_send(std::mem::take(batch)) {
                Ok(()) => 0,
                Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => batch.len(),
            },
            LineSender::Queue(queue, Lock::Packet) => {
                batch.drain(..).map(|packet| enter(&mut locked(queue), packet)).sum()
            }
            LineSender::Queue(queue, _) => {
                let mut queue = locked(queue);
                batch.drain(..).map(|packet| enter(&mut queue, packet)).sum()
            }
        }
    }
}

/// Appends a packet to a queue if it has room. Returns the number of dropped packets, 0 or 1.
fn enter(queue: &mut VecDeque<Packet>, packet: Packet) -> usize {
    let full = queue.len() == ROOM;
    if !full {
        queue.push_back(packet);
    }
    usize::from(full)
}

impl LineReceiver {
    /// Takes a batch, or nothing if there is none. `most` limits the packets taken from a queue. A channel
    /// returns batches as they were sent.
    pub fn take(&self, most: usize, into: &mut Vec<Packet>) {
        match self {
            LineReceiver::Channel(receiver) => {
                if let Ok(batch) = receiver.try_recv() {
                    *into = batch;
                }
            }
            LineReceiver::Queue(queue, Lock::Packet) => {
                while into.len() < most {
                    let Some(packet) = locked(queue).pop_front() else { break };
                    into.push(packet);
                }
            }
            LineReceiver::Queue(queue, _) => {
                let mut queue = locked(queue);
                let count = queue.len().min(most);
                into.extend(queue.drain(..count));
            }
        }
    }

    /// Takes a batch like [`LineReceiver::take`]. A channel waits up to `longest` for a batch. A queue
    /// returns at once, because it cannot wake its receiver.
    pub fn wait(&self, most: usize, longest: Duration, into: &mut Vec<Packet>) {
        match self {
            LineReceiver::Channel(receiver) => {
                if let Ok(batch) = receiver.recv_timeout(longest) {
                    *into = batch;
                }
            }
            LineReceiver::Queue(..) => self.take(most, into),
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
