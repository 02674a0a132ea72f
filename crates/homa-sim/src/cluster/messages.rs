//! The messages that have started and not arrived.

use homa_proto::Time;

/// A message from one host to another; where RPCs are run, a request (which then stands for its RPC) or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Index of the host that sends it.
    pub from: u32,
    /// Index of the host that it is for.
    pub to: u32,
    /// Bytes.
    pub length: u32,
    /// When its sender's application handed it over.
    pub started: Time,
    /// When the exchange that it is part of began: for an answer the moment of its request, else its own.
    pub asked: Time,
    /// Whether it counts.
    pub is_measured: bool,
    /// Whatever its sender's transport wants to know it by.
    pub token: u64,
    /// Whatever its receiver's transport wants to know it by, if it has said so.
    pub receiver_token: Option<u64>,
    /// Whether all of it is there and waits for a thread of the server, or was taken by one, where hosts have cores.
    pub(crate) is_at_server: bool,
}

impl Message {
    /// One that starts an exchange now.
    pub(crate) fn new(from: u32, to: u32, length: u32, now: Time, is_measured: bool) -> Message {
        Message {
            from,
            to,
            length,
            started: now,
            asked: now,
            is_measured,
            token: 0,
            receiver_token: None,
            is_at_server: false,
        }
    }

    /// The answer to it: as long, the other way.
    pub(crate) fn answer(&self, now: Time) -> Message {
        Message { asked: self.asked, ..Message::new(self.to, self.from, self.length, now, self.is_measured) }
    }

    /// Whether it is an answer. No request arrives at the moment of its start.
    pub(crate) fn is_answer(&self) -> bool {
        self.asked != self.started
    }
}

/// The messages under way, by a small number that is used again.
#[derive(Debug, Default)]
pub struct Messages {
    table: Vec<Option<Message>>,
    free: Vec<u32>,
    delivered: Vec<u32>,
}

impl Messages {
    /// A message with this number is under way until [`Messages::end`].
    pub(crate) fn start(&mut self, message: Message) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.table[number as usize] = Some(message);
                number
            }
            None => {
                self.table.push(Some(message));
                self.table.len() as u32 - 1
            }
        }
    }

    /// The message with this number.
    ///
    /// # Panics
    /// If it has arrived.
    pub fn get(&self, number: u32) -> Message {
        self.table[number as usize].expect("the message is under way")
    }

    /// The same, to be given a token.
    ///
    /// # Panics
    /// If it has arrived.
    pub fn get_mut(&mut self, number: u32) -> &mut Message {
        self.table[number as usize].as_mut().expect("the message is under way")
    }

    /// The message with this number that started then; `None`: it has arrived.
    pub fn under_way(&self, number: u32, started: Time) -> Option<Message> {
        // A number is used again after its message has arrived, which takes time: never twice for one moment.
        self.table.get(number as usize).copied().flatten().filter(|message| message.started == started)
    }

    /// Says that all of a message is at its receiver.
    pub fn deliver(&mut self, number: u32) {
        debug_assert!(self.table[number as usize].is_some(), "message {number} arrives twice");
        self.delivered.push(number);
    }

    pub(crate) fn take_delivered(&mut self) -> Option<u32> {
        self.delivered.pop()
    }

    pub(crate) fn end(&mut self, number: u32) {
        self.table[number as usize] = None;
        self.free.push(number);
    }

    /// Messages under way.
    pub fn open(&self) -> usize {
        self.table.len() - self.free.len()
    }
}
