//! Messages on a TCP connection: a header of 16 bytes with length, flags and ID, followed by the message.
//!
//! The header does not count as payload: Homa's own header also carries length and ID.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::{Buf, Bytes};

/// Header bytes before each message.
pub const HEADER_LEN: usize = 16;

/// Flag: the response must be [`ONE_WAY_BYTES`] bytes long instead of as long as the request.
pub const ONE_WAY: u32 = 1;

/// The length of a response to a one-way request.
pub const ONE_WAY_BYTES: usize = 100;

/// Number of bytes to read from the kernel at a time while messages are small.
const CHUNK: usize = 64 * 1024;

/// Maximum number of frames per system call: the kernel accepts 1024 pieces, and a frame consists of two.
const FRAMES_PER_WRITE: usize = 32;

/// Number of message bytes read so far from all connections of this process.
static READ_BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of message bytes that this process has read from all its connections, including those
/// of incomplete messages.
pub fn read_bytes() -> u64 {
    READ_BYTES.load(Relaxed)
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the message in bytes.
    pub length: u32,
    /// [`ONE_WAY`] or 0.
    pub flags: u32,
    /// The RPC's ID, chosen by the client and copied by the server into its response.
    pub id: u64,
}

impl Header {
    /// Encodes the header: little-endian, fields in declaration order.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// Decodes a header from [`Header::encode`].
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Header {
        let cursor = &mut bytes.as_slice();
        Header { length: cursor.get_u32_le(), flags: cursor.get_u32_le(), id: cursor.get_u64_le() }
    }
}

/// A message with its header.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The header.
    pub header: Header,
    /// The message; its length is `header.length`.
    pub payload: Bytes,
}

/// Why reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No more data is available for now.
    Drained,
    /// The budget is used up. More data may be available.
    More,
    /// The peer closed the connection.
    Closed,
}

/// Splits the bytes of a connection into frames.
#[derive(Debug)]
pub struct FrameReader {
    max_message: u32,
    chunk: Box<[u8]>,
    /// Range of unconsumed bytes in `chunk`: `start..end`.
    start: usize,
    end: usize,
    partial: Option<PartialMessage>,
}

/// An incomplete message.
#[derive(Debug)]
struct PartialMessage {
    header: Header,
    payload: Vec<u8>,
    filled: usize,
}

impl FrameReader {
    /// Creates a reader that rejects messages longer than `max_message` bytes.
    pub fn new(max_message: u32) -> FrameReader {
        FrameReader { max_message, chunk: vec![0; CHUNK].into(), start: 0, end: 0, partial: None }
    }

    /// Reads about `budget` bytes and passes each complete frame to `take`.
    ///
    /// # Errors
    /// Errors of `from` other than `WouldBlock`; `InvalidData` for a message above the limit; `UnexpectedEof`
    /// if the connection ends within a message.
    pub fn read(
        &mut self,
        from: &mut impl Read,
        budget: usize,
        mut take: impl FnMut(Frame),
    ) -> io::Result<Progress> {
        let mut used = 0;
        while used < budget {
            let count = match self.fill(from) {
                Ok(0) if self.partial.is_some() || self.start < self.end => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "closed within a message"));
                }
                Ok(0) => return Ok(Progress::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Drained),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            used += count;
            while let Some(frame) = self.next_frame()? {
                take(frame);
            }
        }
        Ok(Progress::More)
    }

    /// Reads once, directly into the buffer of a long message or else into the chunk. The chunk must not hold
    /// a complete frame.
    fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        let long = |partial: &&mut PartialMessage| partial.payload.len() - partial.filled >= CHUNK;
        if let Some(partial) = self.partial.as_mut().filter(long) {
            let count = from.read(&mut partial.payload[partial.filled..])?;
            partial.filled += count;
            READ_BYTES.fetch_add(count as u64, Relaxed);
            return Ok(count);
        }
        self.chunk.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let count = from.read(&mut self.chunk[self.end..])?;
        self.end += count;
        Ok(count)
    }

    fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        if self.partial.is_none() {
            let Some(bytes) = self.chunk[self.start..self.end].first_chunk::<HEADER_LEN>() else {
                return Ok(None);
            };
            let header = Header::decode(bytes);
            if header.length > self.max_message {
                let text = format!("a message of {} bytes; the limit is {}", header.length, self.max_message);
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            self.start += HEADER_LEN;
            self.partial =
                Some(PartialMessage { header, payload: vec![0; header.length as usize], filled: 0 });
        }
        let Some(partial) = &mut self.partial else { return Ok(None) };
        let count = (partial.payload.len() - partial.filled).min(self.end - self.start);
        partial.payload[partial.filled..][..count]
            .copy_from_slice(&self.chunk[self.start..self.start + count]);
        partial.filled += count;
        self.start += count;
        READ_BYTES.fetch_add(count as u64, Relaxed);
        if partial.filled < partial.payload.len() {
            return Ok(None);
        }
        let whole = self.partial.take();
        Ok(whole.map(|partial| Frame { header: partial.header, payload: partial.payload.into() }))
    }
}

/// The queue of frames to be sent on a connection. Bytes that the kernel does not accept at once wait here,
/// in order.
#[derive(Debug, Default)]
pub struct FrameWriter {
    queue: VecDeque<QueuedFrame>,
    bytes: usize,
}

#[derive(Debug)]
struct QueuedFrame {
    header: [u8; HEADER_LEN],
    payload: Bytes,
    /// Number of bytes sent, including the header.
    sent: usize,
}

impl QueuedFrame {
    fn len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }
}

impl FrameWriter {
    /// Queues a frame; [`FrameWriter::write`] sends it.
    pub fn push(&mut self, frame: Frame) {
        let waiting = QueuedFrame { header: frame.header.encode(), payload: frame.payload, sent: 0 };
        self.bytes += waiting.len();
        self.queue.push_back(waiting);
    }

    /// Returns the number of queued bytes, including headers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sends as much as `to` accepts without blocking.
    ///
    /// # Errors
    /// Errors of `to` other than `WouldBlock`.
    pub fn write(&mut self, to: &mut impl Write) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut pieces = Vec::with_capacity(2 * FRAMES_PER_WRITE.min(self.queue.len()));
            for waiting in self.queue.iter().take(FRAMES_PER_WRITE) {
                if waiting.sent < HEADER_LEN {
                    pieces.push(IoSlice::new(&waiting.header[waiting.sent..]));
                }
                pieces.push(IoSlice::new(&waiting.payload[waiting.sent.saturating_sub(HEADER_LEN)..]));
            }
            match to.write_vectored(&pieces) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(front) = self.queue.front_mut() {
            let step = count.min(front.len() - front.sent);
            front.sent += step;
            count -= step;
            if front.sent < front.len() {
                return;
            }
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe that transfers a few bytes at a time, and blocks between transfers.
    #[derive(Default)]
    struct Pipe {
        bytes: VecDeque<u8>,
        step: usize,
        write_blocked: bool,
        read_blocked: bool,
        closed: bool,
    }

    /// Blocks on every second call.
    fn turn(blocked: &mut bool) -> io::Result<()> {
        *blocked = !*blocked;
        if *blocked { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            turn(&mut self.write_blocked)?;
            let count = bytes.len().min(self.step);
            self.bytes.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Pipe {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.bytes.is_empty() && self.closed {
                return Ok(0);
            }
            turn(&mut self.read_blocked)?;
            let count = into.len().min(self.step).min(self.bytes.len());
            for (slot, byte) in into.iter_mut().zip(self.bytes.drain(..count)) {
                *slot = byte;
            }
            if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }
    }

    fn frame(id: u64, length: usize) -> Frame {
        let payload: Bytes = (0..length).map(|at| (at as u64 * 31 + id) as u8).collect();
        Frame { header: Header { length: length as u32, flags: ONE_WAY, id }, payload }
    }

    #[test]
    fn header_survives_the_wire() {
        let header = Header { length: 0x0102_0304, flags: ONE_WAY, id: 0x1122_3344_5566_7788 };
        assert_eq!(Header::decode(&header.encode()), header);
    }

    #[test]
    fn frames_survive_pieces_of_any_size() {
        for step in [1, 7, HEADER_LEN, 1000, CHUNK, 10 * CHUNK] {
            let sizes = [1, 3, 100, 15, 3 * CHUNK, 16, CHUNK, 1];
            let mut pipe = Pipe { step, ..Pipe::default() };
            let mut writer = FrameWriter::default();
            sizes.iter().enumerate().for_each(|(id, &size)| writer.push(frame(id as u64, size)));
            let mut reader = FrameReader::new(10 * CHUNK as u32);
            let mut got = Vec::new();
            while got.len() < sizes.len() {
                writer.write(&mut pipe).expect("the pipe takes bytes");
                let progress = reader.read(&mut pipe, CHUNK, |frame| got.push(frame)).expect("valid frames");
                assert_ne!(progress, Progress::Closed);
            }
            assert_eq!(writer.bytes(), 0);
            for (id, (got, &size)) in got.iter().zip(&sizes).enumerate() {
                let want = frame(id as u64, size);
                assert_eq!((got.header, &got.payload), (want.header, &want.payload), "step {step}");
            }
        }
    }

    #[test]
    fn a_message_above_the_limit_is_refused() {
        let mut bytes = Header { length: 1001, flags: 0, id: 0 }.encode().to_vec();
        bytes.resize(2000, 0);
        let error = FrameReader::new(1000).read(&mut &bytes[..], CHUNK, drop).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn an_end_within_a_message_is_an_error_and_between_messages_is_not() {
        let mut pipe = Pipe { step: 5, closed: true, ..Pipe::default() };
        assert_eq!(
            FrameReader::new(1000).read(&mut pipe, CHUNK, drop).expect("no message"),
            Progress::Closed
        );
        pipe.bytes.extend(&Header { length: 10, flags: 0, id: 0 }.encode());
        let mut reader = FrameReader::new(1000);
        let result = loop {
            match reader.read(&mut pipe, CHUNK, drop) {
                Ok(Progress::Drained) => {}
                other => break other,
            }
        };
        assert_eq!(result.expect_err("message unfinished").kind(), ErrorKind::UnexpectedEof);
    }

    /// Other tests in this process also read messages.
    #[test]
    fn bytes_of_a_message_count_before_it_is_whole() {
        let header = Header { length: 3 * CHUNK as u32, flags: 0, id: 1 };
        let mut bytes = header.encode().to_vec();
        bytes.resize(HEADER_LEN + 2 * CHUNK, 7);
        let before = read_bytes();
        let error = FrameReader::new(header.length).read(&mut &bytes[..], 10 * CHUNK, |_| ());
        assert!(error.is_err(), "closed within a message");
        assert!(read_bytes() - before >= 2 * CHUNK as u64);
    }
}
