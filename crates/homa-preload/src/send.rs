//! sendmsg: requests and answers.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use homa::{CallError, ReplyError};
use libc::{iovec, msghdr};

use crate::abi::{MAX_MESSAGE_BYTES, SEND_PRIVATE, SendArgs};
use crate::border::Refusal;
use crate::memory;
use crate::signals;
use crate::socket::{LOOK_AGAIN_MS, Name, Socket};
use crate::table::World;

/// Most pieces that a message may be passed in.
const MAX_PIECES: usize = 1024;

/// The pieces of a message in the program's memory.
struct Pieces {
    first: iovec,
    more: Vec<iovec>,
    length: usize,
}

/// What the kernel looks at before Homa does: the length of the name, which has a sign, and how many pieces there are.
pub(crate) fn check_header(header: &msghdr) -> Result<(), Refusal> {
    if !header.msg_name.is_null() && i32::try_from(header.msg_namelen).is_err() {
        return Err(Refusal::plain(libc::EINVAL));
    }
    if header.msg_iovlen > MAX_PIECES {
        return Err(Refusal::plain(libc::EMSGSIZE));
    }
    Ok(())
}

impl Pieces {
    fn read(header: &msghdr) -> Result<Pieces, Refusal> {
        let count = header.msg_iovlen;
        let mut pieces = Pieces {
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

    /// Hands them to `copy`.
    fn with<T>(&self, copy: impl FnOnce(&[&[u8]]) -> T) -> Result<T, Refusal> {
        let slice = |piece: &iovec| -> Result<&[u8], Refusal> {
            if piece.iov_len == 0 {
                return Ok(&[]);
            }
            memory::check(piece.iov_base as usize, piece.iov_len, false)?;
            // SAFETY: it was looked at, and the program leaves alone what it has the kernel, or this library, send.
            Ok(unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) })
        };
        let first = slice(&self.first)?;
        if self.more.is_empty() {
            return Ok(copy(&[first]));
        }
        let mut all = vec![first];
        for piece in &self.more {
            all.push(slice(piece)?);
        }
        Ok(copy(&all))
    }
}

impl Socket {
    /// Sends a request, or the answer to one.
    pub(crate) fn send(&self, message: *const msghdr, flags: c_int) -> Result<isize, Refusal> {
        let header = memory::read(message)?;
        check_header(&header)?;
        if header.msg_name.is_null() {
            return Err(Refusal::new(libc::EINVAL, "sendmsg got no address (msg_name)"));
        }
        if header.msg_controllen != 0 {
            return Err(Refusal::new(libc::EINVAL, "msg_controllen is not 0 in sendmsg"));
        }
        let control: *mut SendArgs = header.msg_control.cast();
        let bad_control =
            |_| Refusal::new(libc::EFAULT, "msg_control of sendmsg is no address of its arguments");
        let args = memory::read(control).map_err(bad_control)?;
        if args.flags & !SEND_PRIVATE != 0 || args.reserved != 0 {
            return Err(Refusal::new(libc::EINVAL, "reserved fields of sendmsg's arguments are not 0"));
        }
        let to = Name::read(self.family, header.msg_name.cast(), header.msg_namelen)?;
        if args.id != 0 {
            return self.send_answer(&header, &args, to).map(|()| 0);
        }
        if self.is_shut() {
            return Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down"));
        }
        let pieces = Pieces::read(&header)?;
        memory::check(control as usize, size_of::<SendArgs>(), true).map_err(bad_control)?;
        let waits = flags & libc::MSG_DONTWAIT == 0 && !self.nonblocking.load(Relaxed);
        let id = self.send_request(&pieces, &args, to, waits)?;
        memory::write(control, SendArgs { id, ..args })?;
        Ok(0)
    }

    fn send_request(&self, pieces: &Pieces, args: &SendArgs, to: Name, waits: bool) -> Result<u64, Refusal> {
        let private = args.flags & SEND_PRIVATE != 0;
        let to = World::get().hosts.address(to.ip, to.scope, to.port);
        let longest = self.send_timeout();
        let (mut signals, mut since) = (None, None);
        loop {
            let side = self.side();
            let cookie = args.completion_cookie;
            let text = match pieces.with(|pieces| side.start_pieces(to, pieces, cookie, private))? {
                Ok(id) => return Ok(id),
                // Its memory is that of messages under way, and comes back with their ends.
                Err(CallError::LimitReached { .. }) if waits => {
                    let since = *since.get_or_insert_with(Instant::now);
                    if longest.is_some_and(|longest| since.elapsed() >= longest) {
                        return Err(Refusal::plain(libc::EAGAIN));
                    }
                    if signals.is_none() {
                        signals = signals::Held::if_handled();
                    }
                    signals::pause(signals.as_ref(), Duration::from_millis(LOOK_AGAIN_MS))?;
                    continue;
                }
                Err(CallError::LimitReached { .. }) => return Err(Refusal::plain(libc::EAGAIN)),
                Err(CallError::Closed) if !self.is_shut() && self.has_moved_from(&side) => continue,
                Err(CallError::Closed) => {
                    return Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down"));
                }
                Err(_) => "the transport does not take the request",
            };
            return Err(Refusal::new(libc::EINVAL, text));
        }
    }

    fn send_answer(&self, header: &msghdr, args: &SendArgs, to: Name) -> Result<(), Refusal> {
        if args.completion_cookie != 0 {
            return Err(Refusal::new(libc::EINVAL, "an answer has no completion cookie"));
        }
        let Some(rpc) = self.state().in_hand.remove((args.id, to.ip)) else {
            // Its client may have given it up.
            return Ok(());
        };
        // With an error the request is over, as in the kernel.
        let pieces = Pieces::read(header)?;
        let side = self.side();
        match pieces.with(|pieces| side.reply_pieces(rpc, pieces))? {
            Ok(()) | Err(ReplyError::ClientGone { .. } | ReplyError::Closed) => Ok(()),
            Err(ReplyError::LimitReached { .. }) => {
                Err(Refusal::new(libc::ENOBUFS, "there is no memory for more answers"))
            }
            Err(_) => Err(Refusal::new(libc::EINVAL, "the transport does not take the answer")),
        }
    }
}
