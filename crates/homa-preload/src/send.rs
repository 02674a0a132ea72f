//! sendmsg: sends requests and responses.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use homa::error::{CallError, ReplyError};
use libc::{iovec, msghdr};

use crate::abi::{MAX_MESSAGE_BYTES, SEND_PRIVATE, SendArgs};
use crate::ffi_border::Refusal;
use crate::memory;
use crate::signals;
use crate::socket::{POLL_INTERVAL_MS, Socket};
use crate::socket_name::SocketName;
use crate::turn_outcome::{SleepBetweenTurns, TurnError, TurnOutcome};

/// Maximum number of pieces of a message.
const MAX_PIECES: usize = 1024;

/// The pieces of a message in the program's memory.
struct GatherList {
    first: iovec,
    more: Vec<iovec>,
    length: usize,
}

/// Makes the checks that the kernel makes before it calls Homa: of the name's length, which is signed, and of
/// the number of pieces.
pub(crate) fn check_header(header: &msghdr) -> Result<(), Refusal> {
    if !header.msg_name.is_null() && i32::try_from(header.msg_namelen).is_err() {
        return Err(Refusal::plain(libc::EINVAL));
    }
    if header.msg_iovlen > MAX_PIECES {
        return Err(Refusal::plain(libc::EMSGSIZE));
    }
    Ok(())
}

impl GatherList {
    fn read(header: &msghdr) -> Result<GatherList, Refusal> {
        let count = header.msg_iovlen;
        let mut pieces = GatherList {
            first: iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            more: Vec::new(),
            length: 0,
        };
        for at in 0..count {
            let piece = memory::read(header.msg_iov.wrapping_add(at))?;
            let length = pieces.length.checked_add(piece.iov_len);
            pieces.length = length
                .filter(|length| isize::try_from(*length).is_ok())
                .ok_or(Refusal::plain(libc::EINVAL))?;
            match at {
                0 => pieces.first = piece,
                _ => pieces.more.push(piece),
            }
        }
        if pieces.length == 0 {
            return Err(Refusal::new(libc::EINVAL, "a message has at least one byte"));
        }
        if pieces.length > MAX_MESSAGE_BYTES {
            return Err(Refusal::new(libc::EINVAL, "a message has at most 1,000,000 bytes"));
        }
        Ok(pieces)
    }

    /// Calls `copy` with the pieces. Pieces that are adjacent in memory are merged, so a received message in
    /// contiguous 64 KiB pages becomes one piece.
    fn with<T>(&self, copy: impl FnOnce(&[&[u8]]) -> T) -> Result<T, Refusal> {
        let check = |piece: &iovec| memory::check(piece.iov_base as usize, piece.iov_len, false);
        // SAFETY: the memory was checked, and the program does not change memory that it is sending.
        let slice =
            |piece: &iovec| unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) };
        let mut last = self.first;
        check(&last)?;
        let mut all: Vec<&[u8]> = Vec::new();
        for piece in self.more.iter().filter(|piece| piece.iov_len > 0) {
            check(piece)?;
            if last.iov_base.wrapping_byte_add(last.iov_len) == piece.iov_base {
                last.iov_len += piece.iov_len;
            } else {
                if last.iov_len > 0 {
                    all.push(slice(&last));
                }
                last = *piece;
            }
        }
        // There is a last piece: a message has at least one byte.
        let last = slice(&last);
        if all.is_empty() {
            return Ok(copy(&[last]));
        }
        all.push(last);
        Ok(copy(&all))
    }
}

/// A sendmsg call in progress.
pub(crate) struct Sending {
    pub(crate) socket: Arc<Socket>,
    /// The thread's blocked signals: set while the call waits, if the program has a handler.
    pub(crate) signals: Option<signals::BlockedSignals>,
    /// Start and maximum duration of the wait, once the call waits.
    waits: Option<(Instant, Option<Duration>)>,
    place: PlaceInBatch,
}

/// The position of a message among the messages of one sendmmsg, which are sent together.
#[derive(Clone, Copy, Default)]
pub(crate) struct PlaceInBatch {
    /// Whether earlier messages of the batch may be waiting to be sent together with this one.
    pub(crate) follows: bool,
    /// Whether another message of the batch follows.
    pub(crate) more: bool,
}

impl Sending {
    pub(crate) fn begin(socket: Arc<Socket>, place: PlaceInBatch) -> Sending {
        Sending { socket, signals: None, waits: None, place }
    }

    /// Returns a brief sleep, during which messages in flight may end and free their memory, or the error if
    /// the time limit has passed.
    fn wait(&mut self) -> TurnError {
        let socket = &self.socket;
        let (since, longest) = *self.waits.get_or_insert_with(|| (Instant::now(), socket.send_timeout()));
        if longest.is_some_and(|longest| since.elapsed() >= longest) {
            return Refusal::plain(libc::EAGAIN).into();
        }
        if self.signals.is_none() {
            self.signals = signals::BlockedSignals::if_handled();
        }
        if std::mem::take(&mut self.place.follows) {
            socket.side().flush();
        }
        TurnError::SleepBetweenTurns(SleepBetweenTurns::new(
            -1,
            Some(Duration::from_millis(POLL_INTERVAL_MS)),
        ))
    }
}

impl Socket {
    /// Runs a turn of sendmsg: sends a request or a response, or returns how to wait for memory.
    /// `interrupted`: whether a signal handler ran during the preceding sleep.
    pub(crate) fn send(
        sending: &mut Sending,
        message: *const msghdr,
        flags: c_int,
        interrupted: bool,
    ) -> Result<TurnOutcome, Refusal> {
        if interrupted {
            return Err(Refusal::plain(libc::EINTR));
        }
        let socket = Arc::clone(&sending.socket);
        match socket.send_for(sending, message, flags) {
            Ok(value) => Ok(TurnOutcome::Over(value)),
            Err(TurnError::SleepBetweenTurns(nap)) => Ok(TurnOutcome::SleepBetweenTurns(nap)),
            Err(TurnError::Refused(refusal)) => Err(refusal),
        }
    }

    fn send_for(
        &self,
        sending: &mut Sending,
        message: *const msghdr,
        flags: c_int,
    ) -> Result<isize, TurnError> {
        let header = memory::read(message)?;
        check_header(&header)?;
        if header.msg_name.is_null() {
            return Err(Refusal::new(libc::EINVAL, "sendmsg got no address (msg_name)").into());
        }
        if header.msg_controllen != 0 {
            return Err(Refusal::new(libc::EINVAL, "msg_controllen is not 0 in sendmsg").into());
        }
        let control: *mut SendArgs = header.msg_control.cast();
        let bad_control =
            |_| Refusal::new(libc::EFAULT, "msg_control of sendmsg is no address of its arguments");
        let args = memory::read(control).map_err(bad_control)?;
        if args.flags & !SEND_PRIVATE != 0 || args.reserved != 0 {
            let text = "reserved fields of sendmsg's arguments are not 0";
            return Err(Refusal::new(libc::EINVAL, text).into());
        }
        let to = SocketName::read(self.family, header.msg_name.cast(), header.msg_namelen)?;
        if args.id != 0 {
            self.await_memory(sending, flags)?;
            self.send_answer(&header, &args, to, sending.place.more)?;
            self.room().note_sent();
            return Ok(0);
        }
        if self.is_shut() {
            return Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down").into());
        }
        let pieces = GatherList::read(&header)?;
        memory::check(control as usize, size_of::<SendArgs>(), true).map_err(bad_control)?;
        self.await_memory(sending, flags)?;
        let waits = self.waits_in_send(flags);
        let id = self.send_request(sending, &pieces, (&args, to), waits)?;
        self.room().note_sent();
        memory::write(control, SendArgs { id, ..args })?;
        Ok(0)
    }

    fn waits_in_send(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.nonblocking.load(Relaxed)
    }

    /// Returns `Ok` if the socket may send now; otherwise, how to wait for memory, or EAGAIN.
    fn await_memory(&self, sending: &mut Sending, flags: c_int) -> Result<(), TurnError> {
        match self.room().is_full() {
            false => Ok(()),
            true if self.waits_in_send(flags) => Err(sending.wait()),
            true => Err(Refusal::plain(libc::EAGAIN).into()),
        }
    }

    fn send_request(
        &self,
        sending: &mut Sending,
        pieces: &GatherList,
        (args, to): (&SendArgs, SocketName),
        waits: bool,
    ) -> Result<u64, TurnError> {
        let private = args.flags & SEND_PRIVATE != 0;
        let to = self.hosts().address(to.ip, to.scope, to.port);
        loop {
            let side = self.side();
            let cookie = args.completion_cookie;
            let more = sending.place.more;
            let text = match pieces.with(|pieces| side.start_pieces(to, pieces, cookie, private, more))? {
                Ok(id) => return Ok(id),
                Err(CallError::LimitReached { .. }) if waits => return Err(sending.wait()),
                Err(CallError::LimitReached { .. }) => return Err(Refusal::plain(libc::EAGAIN).into()),
                Err(CallError::Closed) if !self.is_shut() && self.has_moved_from(&side) => continue,
                Err(CallError::Closed) => {
                    return Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down").into());
                }
                Err(_) => "the transport does not take the request",
            };
            return Err(Refusal::new(libc::EINVAL, text).into());
        }
    }

    fn send_answer(
        &self,
        header: &msghdr,
        args: &SendArgs,
        to: SocketName,
        more: bool,
    ) -> Result<(), Refusal> {
        if args.completion_cookie != 0 {
            return Err(Refusal::new(libc::EINVAL, "an answer has no completion cookie"));
        }
        let Some(rpc) = self.state().in_hand.remove((args.id, to.ip)) else {
            // The client may have given up the request.
            return Ok(());
        };
        // An error below ends the request, as in the kernel.
        let pieces = GatherList::read(header)?;
        let side = self.side();
        match pieces.with(|pieces| side.reply_pieces(rpc, pieces, more))? {
            Ok(()) | Err(ReplyError::ClientGone { .. } | ReplyError::Closed) => Ok(()),
            Err(ReplyError::LimitReached { .. }) => {
                Err(Refusal::new(libc::ENOBUFS, "there is no memory for more answers"))
            }
            Err(_) => Err(Refusal::new(libc::EINVAL, "the transport does not take the answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of the pieces after merging.
    fn lengths(pieces: &[&[u8]]) -> Vec<usize> {
        let mut list: Vec<iovec> = pieces
            .iter()
            .map(|piece| iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() })
            .collect();
        // SAFETY: the structure has only numbers and pointers, for which zero bytes are valid.
        let mut header: msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (list.as_mut_ptr(), list.len());
        let passed = GatherList::read(&header).unwrap().with(|passed| {
            assert_eq!(passed.concat(), pieces.concat());
            passed.iter().map(|piece| piece.len()).collect()
        });
        passed.unwrap()
    }

    #[test]
    fn pieces_that_lie_in_a_row_are_one() {
        let memory: Vec<u8> = (0..100).collect();
        assert_eq!(lengths(&[&memory]), [100]);
        assert_eq!(lengths(&[&memory[..10], &memory[10..30], &memory[30..]]), [100]);
        assert_eq!(lengths(&[&[], &memory[..10], &memory[10..10], &memory[10..30], &[]]), [30]);
        assert_eq!(lengths(&[&memory[20..30], &memory[10..20], &memory[20..30]]), [10, 20]);
        assert_eq!(lengths(&[&memory[..10], &memory[11..12], &memory[..0]]), [10, 1]);
    }

    #[test]
    fn each_piece_is_looked_at_also_between_others() {
        let memory = [1_u8; 4];
        let good = iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: 4 };
        let bad = iovec { iov_base: std::ptr::without_provenance_mut(64), iov_len: 1 };
        let fault = |first, more: [iovec; 2]| {
            let pieces = GatherList { first, more: more.to_vec(), length: 9 };
            pieces.with(|_| ()).err().map(|refusal| refusal.errno)
        };
        assert_eq!(fault(good, [bad, good]), Some(libc::EFAULT));
        assert_eq!(fault(bad, [good, good]), Some(libc::EFAULT));
        assert_eq!(fault(good, [good, bad]), Some(libc::EFAULT));
        assert_eq!(fault(good, [good, good]), None);
    }
}
