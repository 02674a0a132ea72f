//! The messages in flight.

use homa_proto::Time;

/// A message from one host to another. With RPCs, it is either a request, which then represents its RPC, or
/// an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Index of the sending host.
    pub from: u32,
    /// Index of the destination host.
    pub to: u32,
    /// Length in bytes.
    pub length: u32,
    /// Time at which the sender's application passed it to the transport.
    pub started: Time,
    /// Start of the message's exchange; for an answer, the start of its request.
    pub asked: Time,
    /// Whether the message is measured.
    pub is_measured: bool,
    /// Identifier chosen by the sender's transport.
    pub token: u64,
    /// Identifier chosen by the receiver's transport, if any.
    pub receiver_token: Option<u64>,
    /// On hosts with cores: whether the message is complete at the server and either waits for a thread or is
    /// being handled by one.
    pub(crate) is_at_server: bool,
}

impl Message {
    /// Makes a message that starts an exchange now.
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

    /// Makes the answer to this message, of the same length.
    pub(crate) fn answer(&self, now: Time) -> Message {
        Message { asked: self.asked, ..Message::new(self.to, self.from, self.length, now, self.is_measured) }
    }

    /// Returns whether this is an answer, which starts later than its request.
    pub(crate) fn is_answer(&self) -> bool {
        self.asked != self.started
    }
}

/// The messages in flight, indexed by small numbers that are reused.
#[derive(Debug, Default)]
pub struct Messages {
    table: Vec<Option<Message>>,
    free: Vec<u32>,
    delivered: Vec<u32>,
}

impl Messages {
    /// Adds a message and returns its number, which is valid until [`Messages::end`].
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

    /// Returns the message with this number.
    ///
    /// # Panics
    /// If it has arrived.
    pub fn get(&self, number: u32) -> Message {
        self.table[number as usize].expect("the message is under way")
    }

    /// Returns the message with this number, for setting a token.
    ///
    /// # Panics
    /// If it has arrived.
    pub fn get_mut(&mut self, number: u32) -> &mut Message {
        self.table[number as usize].as_mut().expect("the message is under way")
    }

    /// Returns the message with this number that started at `started`; `None`: it has arrived.
    pub fn under_way(&self, number: u32, started: Time) -> Option<Message> {
        // A message takes time to arrive, so no two messages have both the same number and the same start.
        self.table.get(number as usize).copied().flatten().filter(|message| message.started == started)
    }

    /// Reports that a message is complete at its receiver.
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

    /// Returns the number of messages in flight.
    pub fn open(&self) -> usize {
        self.table.len() - self.free.len()
    }
}
