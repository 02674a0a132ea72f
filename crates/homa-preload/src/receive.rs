//! recvmsg: receives requests and responses into the program's buffers.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use homa::error::{CallError, RecvError};
use homa::{Request, ServerAddr};
use libc::msghdr;

use crate::abi::{MAX_PAGES, RecvArgs};
use crate::ffi_border::Refusal;
use crate::memory;
use crate::pages::PageRange;
use crate::pending_message::PendingMessage;
use crate::signals;
use crate::socket::{POLL_INTERVAL_MS, Socket};
use crate::socket_name::SocketName;
use crate::turn_outcome::{SleepBetweenTurns, TurnError, TurnOutcome};

/// The location of a message in the program's buffers.
enum MessageLocation {
    /// The message is an error and needs no room.
    NoPayload,
    /// The whole message is already here.
    InPlace(PageRange),
    /// The message is to be copied here.
    CopyTo(PageRange),
    /// The place was unmapped before the message was complete.
    Unmapped(Refusal),
}

/// How often a waiting thread checks whether it was cancelled, in milliseconds. Cancellation does not wake
/// the thread.
const CANCEL_POLL_MS: u64 = 100;

/// A recvmsg call in progress.
pub(crate) struct RecvCall {
    pub(crate) socket: Arc<Socket>,
    /// The thread's blocked signals: set while the call waits, if the program has a handler.
    pub(crate) signals: Option<signals::BlockedSignals>,
    /// The program's arguments, once checked.
    arguments: Option<(msghdr, RecvArgs)>,
    /// Whether an earlier message of the same recvmmsg was received.
    follows: bool,
}

impl RecvCall {
    /// Counts the thread among the socket's receivers until the call is dropped.
    pub(crate) fn begin(socket: Arc<Socket>, follows: bool) -> RecvCall {
        socket.receivers.enter();
        RecvCall { socket, signals: None, arguments: None, follows }
    }

    /// Blocks the thread's signals if the program has a handler. From then on the thread need not be
    /// [recalled](Socket::recall).
    fn block_signals(&mut self) {
        if self.signals.is_none() {
            self.signals = signals::BlockedSignals::if_handled();
            if self.signals.is_some() {
                self.socket.receivers.block_signals();
            }
        }
    }
}

/// Returns the outcome of a turn after which the thread sleeps until `fd` is readable or the timeout expires.
fn nap(fd: c_int, timeout: Option<Duration>) -> TurnError {
    TurnError::SleepBetweenTurns(SleepBetweenTurns::new(fd, timeout))
}

impl Drop for RecvCall {
    fn drop(&mut self) {
        if self.signals.is_some() {
            self.socket.receivers.unblock_signals();
        }
        self.socket.end_receiving();
    }
}

/// The result of recvmsg: the length of a message or an error, and the message's sender.
struct RecvResult {
    result: Result<isize, Refusal>,
    from: SocketName,
}

impl Socket {
    /// Wakes the receiving threads so that they check again whether the program handles signals. Returns
    /// whether some of them may not have checked yet.
    pub(crate) fn recall(&self) -> bool {
        let unaware = self.receivers.any_takes_signals();
        if unaware {
            self.wake_receivers();
        }
        unaware
    }

    /// Wakes the receiving threads so that they look for held messages again, and choose again how to wait.
    fn wake_receivers(&self) {
        self.receivers.recall();
        self.side().recall();
    }

    /// Reads and checks the program's arguments of recvmsg.
    fn read_arguments(message: *mut msghdr) -> Result<(msghdr, RecvArgs), Refusal> {
        let header = memory::read(message)?;
        crate::send::check_header(&header)?;
        if header.msg_control.is_null() {
            return Err(Refusal::new(libc::EINVAL, "recvmsg got no arguments (msg_control)"));
        }
        if header.msg_controllen != size_of::<RecvArgs>() {
            return Err(Refusal::new(
                libc::EINVAL,
                "msg_controllen is not the length of recvmsg's arguments",
            ));
        }
        let control: *mut RecvArgs = header.msg_control.cast();
        let mut args = memory::read(control)?;
        memory::check(control as usize, size_of::<RecvArgs>(), true)?;
        args.completion_cookie = 0;
        Ok((header, args))
    }

    /// Runs a turn of recvmsg: receives a message, or returns how to wait for one. `interrupted`: whether a
    /// signal handler ran during the preceding sleep.
    pub(crate) fn receive(
        receiving: &mut RecvCall,
        message: *mut msghdr,
        flags: c_int,
        interrupted: bool,
    ) -> Result<TurnOutcome, Refusal> {
        let socket = Arc::clone(&receiving.socket);
        let begins = receiving.arguments.is_none();
        let (mut header, mut args) = match receiving.arguments {
            Some(arguments) => arguments,
            None => Socket::read_arguments(message)?,
        };
        let control: *mut RecvArgs = header.msg_control.cast();
        let waits = flags & libc::MSG_DONTWAIT == 0 && !socket.nonblocking.load(Relaxed);
        let begun = if begins { socket.begin_receive(&mut args) } else { Ok(()) };
        let received = match begun {
            Ok(()) if interrupted => {
                args.id = 0;
                Err(Refusal::plain(libc::EINTR).into())
            }
            Ok(()) => socket.receive_for(receiving, &mut args, waits),
            Err(refusal) => Err(refusal.into()),
        };
        let received = match received {
            Err(TurnError::SleepBetweenTurns(nap)) => {
                receiving.arguments = Some((header, args));
                return Ok(TurnOutcome::SleepBetweenTurns(nap));
            }
            Err(TurnError::Refused(refusal)) => Err(refusal),
            Ok(received) => Ok(received),
        };
        memory::write(control, args)?;
        let RecvResult { result, from } = received?;
        let length = result?;
        if !header.msg_name.is_null() {
            let written = from.write(socket.family, header.msg_name.cast(), header.msg_namelen as usize)?;
            header.msg_namelen = written as libc::socklen_t;
        }
        (header.msg_controllen, header.msg_flags) = (0, 0);
        memory::write(message, header)?;
        Ok(TurnOutcome::Over(length))
    }

    /// Checks the arguments, and takes back the pages that they list.
    fn begin_receive(&self, args: &mut RecvArgs) -> Result<(), Refusal> {
        if args.num_bpages as usize > MAX_PAGES {
            return Err(Refusal::new(libc::EINVAL, "more pages are given back than a message has"));
        }
        if args.reserved != 0 {
            return Err(Refusal::new(libc::EINVAL, "reserved fields of recvmsg's arguments are not 0"));
        }
        self.take_back(args)
    }

    fn receive_for(
        &self,
        receiving: &mut RecvCall,
        args: &mut RecvArgs,
        waits: bool,
    ) -> Result<RecvResult, TurnError> {
        let mut message = None;
        let found = match args.id {
            0 => self.next_shared(receiving, waits, &mut message)?,
            id => {
                let found = self.private(receiving, id, waits, &mut message);
                args.id = if matches!(found, Err(TurnError::Refused(_))) { 0 } else { args.id };
                found?
            }
        };
        let Some(message) = &mut message else { return Err(Refusal::plain(libc::EIO).into()) };
        (args.id, args.completion_cookie) = (message.id, message.cookie);
        let from = message.from;
        let result = match &message.message {
            Ok(bytes) => {
                let place = self.bring(bytes, found)?;
                (args.num_bpages, args.bpage_offsets) = (place.count, place.offsets);
                Ok(bytes.len() as isize)
            }
            Err(error) => Err(self.errno_of(message.id, error)),
        };
        if let Some(rpc) = message.rpc.take() {
            let vanished = self.state().in_hand.insert((message.id, from.ip), rpc, Request::is_wanted);
            drop(vanished);
        }
        Ok(RecvResult { result, from })
    }

    /// Takes back the pages that the arguments list.
    fn take_back(&self, args: &mut RecvArgs) -> Result<(), Refusal> {
        let Some(region) = self.region() else {
            return Err(Refusal::new(libc::EINVAL, "the socket has no buffers: set SO_HOMA_RCVBUF first"));
        };
        let count = std::mem::take(&mut args.num_bpages) as usize;
        region.pages().give_back(&args.bpage_offsets[..count])?;
        if count > 0 && self.starves() {
            self.show_held();
        }
        Ok(())
    }

    /// Makes poll report held messages for which there is room now.
    fn show_held(&self) {
        if self.region().is_some_and(|region| self.deliveries.show(|length| region.has_room(length))) {
            // Waiting threads check periodically; this wakes them earlier.
            self.wake_receivers();
        }
    }

    /// Receives into `message` the next non-private message for which there is room. `message` is an
    /// out-parameter since its type has hundreds of bytes, which every function on the way back would copy.
    fn next_shared(
        &self,
        receiving: &mut RecvCall,
        waits: bool,
        message: &mut Option<PendingMessage>,
    ) -> Result<MessageLocation, TurnError> {
        loop {
            let recalls = self.receivers.recalls();
            let wanted = || self.receivers.recalls() == recalls;
            if let Some(found) = self.take_held(message, |held| !held.private) {
                self.signal.message_taken();
                return Ok(found);
            }
            let side = self.side();
            let full = self.deliveries.is_full();
            if waits {
                receiving.block_signals();
            }
            if full {
                return Err(self.wait_for_room(waits));
            }
            let longest = self.starves().then_some(Duration::from_millis(POLL_INTERVAL_MS));
            let taken = match &receiving.signals {
                // A batch is what has arrived with its first message. Driving for more would let the batches
                // grow until both peers wait for each other in turns.
                _ if !waits && receiving.follows => side.recv_while(None, || false),
                _ if !waits => side.recv(Some(Duration::ZERO)),
                None => {
                    let longest = longest.unwrap_or(Duration::from_millis(CANCEL_POLL_MS));
                    side.recv_while(Some(longest), wanted)
                }
                // Most responses arrive within this time, and cost no more than without a handler. This time
                // is also the maximum delay of a signal.
                Some(_) => side.recv(Some(Duration::from_millis(POLL_INTERVAL_MS))),
            };
            self.signal.message_taken();
            match taken {
                Ok(arrival) => {
                    *message = Some(PendingMessage::of(arrival));
                    if let Some(found) = self.place_or_hold(message) {
                        return Ok(found);
                    }
                }
                Err(RecvError::TimedOut) if !waits => return Err(Refusal::plain(libc::EAGAIN).into()),
                Err(RecvError::TimedOut) if receiving.signals.is_some() => {
                    // The thread sleeps on the descriptor, so the progress thread must drive.
                    side.attend();
                    return Err(nap(self.signal.as_fd().as_raw_fd(), longest));
                }
                Err(RecvError::TimedOut) => return Err(nap(-1, Some(Duration::ZERO))),
                Err(_) => self.check_open(&side)?,
            }
        }
    }

    /// Receives the outcome of a private call into `message` once there is room for it.
    fn private(
        &self,
        receiving: &mut RecvCall,
        id: u64,
        waits: bool,
        message: &mut Option<PendingMessage>,
    ) -> Result<MessageLocation, TurnError> {
        loop {
            let recalls = self.receivers.recalls();
            let wanted = || self.receivers.recalls() == recalls;
            if waits {
                receiving.block_signals();
            }
            if let Some(found) = self.take_held(message, |held| held.private && held.id == id) {
                return Ok(found);
            }
            if self.state().holds_private(id) {
                return Err(self.wait_for_room(waits));
            }
            let side = self.side();
            let timeout = Duration::from_millis(match &receiving.signals {
                _ if !waits => 0,
                None => CANCEL_POLL_MS,
                // The descriptor does not become readable for private outcomes.
                Some(_) => POLL_INTERVAL_MS,
            });
            let placing = self.deliveries.placing(id);
            let error = match side.recv_private_while(id, Some(timeout), wanted) {
                Ok(outcome) => {
                    *message = Some(PendingMessage::of_outcome(outcome, true));
                    match self.place_or_hold(message) {
                        Some(found) => return Ok(found),
                        None => continue,
                    }
                }
                Err(error) => error,
            };
            drop(placing);
            match error {
                RecvError::TimedOut if !waits => return Err(Refusal::plain(libc::EAGAIN).into()),
                RecvError::TimedOut => return Err(nap(-1, Some(Duration::ZERO))),
                // Another thread has the outcome, and found no room for it or has not looked for room yet.
                RecvError::NoSuchCall { .. } if self.deliveries.may_hold_private(id) => thread::yield_now(),
                RecvError::NoSuchCall { .. } => {
                    return Err(Refusal::new(
                        libc::EINVAL,
                        "there is no private call with the id that recvmsg got",
                    )
                    .into());
                }
                _ => self.check_open(&side)?,
            }
        }
    }

    /// Returns an error if the socket was shut down. If it was bound while a thread waited, that is not an
    /// error.
    fn check_open(&self, side: &Arc<homa::kernel_api::Socket>) -> Result<(), Refusal> {
        if !self.is_shut() && self.has_moved_from(side) {
            return Ok(());
        }
        Err(Refusal::new(libc::ESHUTDOWN, "the socket was shut down"))
    }

    /// Returns a brief sleep in which another thread may give pages back, or the error if the call must not
    /// wait.
    fn wait_for_room(&self, waits: bool) -> TurnError {
        if self.is_shut() {
            return Refusal::new(libc::ESHUTDOWN, "the socket was shut down").into();
        }
        if !waits {
            return Refusal::plain(libc::EAGAIN).into();
        }
        nap(-1, Some(Duration::from_millis(POLL_INTERVAL_MS)))
    }

    /// Returns whether messages are held because they have no room.
    fn starves(&self) -> bool {
        self.deliveries.holds()
    }

    /// Returns the IDs of calls whose outcomes are held.
    pub(crate) fn held_calls(&self) -> Vec<u64> {
        self.state().held.iter().filter(|held| held.rpc.is_none()).map(PendingMessage::id).collect()
    }

    /// Gives up a call whose outcome is held; returns whether there was such a call. With `tell`, the abort
    /// becomes the call's outcome; otherwise the call has no outcome.
    pub(crate) fn abort_held(&self, id: u64, tell: bool) -> bool {
        let mut state = self.state();
        let Some(at) = state.held.iter().position(|held| held.rpc.is_none() && held.id == id) else {
            return false;
        };
        let mut held = state.held.remove(at);
        let SocketName { ip, port, .. } = held.from;
        let to = ServerAddr::new(SocketAddr::new(ip, 0), port);
        let response = std::mem::replace(&mut held.message, Err(CallError::Aborted { to }));
        if tell {
            // An error has length 0, so it goes to the front of the list, which is sorted by length.
            state.held.insert(0, held);
        }
        drop(state);
        drop(response);
        self.show_held();
        true
    }

    /// Finds room for a message. If there is none, holds the message and returns `None`.
    fn place_or_hold(&self, message: &mut Option<PendingMessage>) -> Option<MessageLocation> {
        if let Some(found) = self.room_for(message.as_ref()?) {
            return Some(found);
        }
        if self.deliveries.hold(message.take()?) {
            // Threads that already wait check only for arrivals. They must now also check for room, since
            // pages that the transport gives back wake no thread.
            self.wake_receivers();
        }
        None
    }

    /// Returns the location of a message, or the place to which it can be copied.
    fn room_for(&self, message: &PendingMessage) -> Option<MessageLocation> {
        let Ok(bytes) = &message.message else { return Some(MessageLocation::NoPayload) };
        let region = self.region()?;
        if let Some(place) = region.hand_over(bytes) {
            return Some(place.map_or_else(MessageLocation::Unmapped, MessageLocation::InPlace));
        }
        let place = region.pages().take(bytes.len())?;
        Some(MessageLocation::CopyTo(place))
    }

    /// Copies the message into the program's buffers if it is not there yet, and returns its pages.
    fn bring(&self, message: &[u8], found: MessageLocation) -> Result<PageRange, Refusal> {
        match (found, self.region()) {
            (MessageLocation::InPlace(place), _) => Ok(place),
            (MessageLocation::CopyTo(place), Some(region)) => region.fill(&place, message).map(|()| place),
            (MessageLocation::Unmapped(refusal), _) => Err(refusal),
            (MessageLocation::NoPayload | MessageLocation::CopyTo(_), _) => Err(Refusal::plain(libc::EIO)),
        }
    }

    /// Moves the shortest `wanted` held message into `message`, if there is room for it now.
    fn take_held(
        &self,
        message: &mut Option<PendingMessage>,
        wanted: impl Fn(&PendingMessage) -> bool,
    ) -> Option<MessageLocation> {
        if !self.deliveries.holds() {
            return None;
        }
        let mut state = self.state();
        let at = state.held.iter().position(wanted)?;
        let found = self.room_for(&state.held[at])?;
        *message = Some(state.held.remove(at));
        drop(state);
        self.show_held();
        Some(found)
    }

    /// Returns the errno that the kernel's Homa would return for a failed call.
    fn errno_of(&self, id: u64, error: &CallError) -> Refusal {
        match error {
            CallError::Aborted { .. } => {
                let errno = self.state().aborted.remove(&id).unwrap_or(libc::ECANCELED);
                Refusal::new(errno, "the call was aborted")
            }
            CallError::Unreachable { .. } => {
                Refusal::new(libc::ENOTCONN, "no Homa host is at the address; the request may have run")
            }
            CallError::NoSuchPort { .. } => {
                Refusal::new(libc::ENOTCONN, "no server has the port; the request has not run")
            }
            CallError::PeerRestarted { .. } => Refusal::new(
                libc::ENOTCONN,
                "the server or its host ended during the call; the request may have run",
            ),
            CallError::ProtocolUnreachable { .. } => Refusal::new(
                libc::EPROTONOSUPPORT,
                "the server's machine speaks no Homa over IP; the request may have run",
            ),
            CallError::NoScope { .. } => {
                Refusal::new(libc::EINVAL, "a link-local address needs the scope of its device")
            }
            CallError::TooLargeForReceiver { .. } | CallError::MessageTooLarge { .. } => {
                Refusal::new(libc::EINVAL, "a message is larger than its receiver accepts")
            }
            CallError::Closed => Refusal::new(libc::ESHUTDOWN, "the socket was shut down"),
            CallError::ResponseLost { .. } => {
                Refusal::new(libc::ETIMEDOUT, "the server gave up its response before it was complete")
            }
            CallError::NoAnswer { .. } => {
                Refusal::new(libc::ETIMEDOUT, "the server did not answer; the request may have run")
            }
            _ => Refusal::new(libc::ETIMEDOUT, "the call failed"),
        }
    }
}
