//! What calls come to.

use homa::driver::udp::BindError;
use homa::error::{CallError, HostError, RecvError, ReplyError};
use homa::proto::PortError;

use crate::border::Failure;

/// What a call came to. Numbers never change their meaning; a later version may add some, so treat one that you do not know as a
/// failure. homa_last_error() tells more.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum homa_result {
    /// It was done. Of bytes that came back (HOMA_RETURNED): the client has acknowledged the answer, as it does as well where it had given
    /// the call up.
    HOMA_OK = 0,
    /// An argument is wrong: NULL where something is needed, out of its range, or used up. Nothing was done.
    HOMA_ARGUMENT = 1,
    /// The system refuses something, such as a descriptor or a port without privilege.
    HOMA_SYSTEM = 2,
    /// The port is taken, by another socket or another process.
    HOMA_IN_USE = 3,
    /// The time that the caller gave has passed. A call that ends so was given up; its request may have run.
    HOMA_TIMED_OUT = 4,
    /// The socket was shut down.
    HOMA_CLOSED = 5,
    /// A limit is reached: wait for RPCs to end.
    HOMA_LIMIT = 6,
    /// The message is empty, or longer than this host or the peer takes.
    HOMA_SIZE = 7,
    /// The network says that no host is there, or that its machine knows no Homa. If one has just ended there, the request may have run.
    HOMA_UNREACHABLE = 8,
    /// The peer was silent for too long. The request may have run.
    HOMA_SILENT = 9,
    /// The peer has no server on the Homa port. The request has not run.
    HOMA_NO_PORT = 10,
    /// The peer ended, restarted, gave the RPC up, or knows nothing of it any more. A request may have run, and an answer have arrived.
    HOMA_PEER_GONE = 11,
    /// The call was cancelled on this side. The request may have run.
    HOMA_CANCELLED = 12,
    /// There is no such call: its outcome was taken, or it never was.
    HOMA_NO_CALL = 13,
    /// A mistake in this library. The process can go on.
    HOMA_INTERNAL = 14,
}

use homa_result::*;

impl From<HostError> for Failure {
    fn from(error: HostError) -> Failure {
        let result = match &error {
            HostError::Bind(BindError::InUse(_)) | HostError::Port(PortError::InUse(_)) => HOMA_IN_USE,
            HostError::Port(PortError::OutOfRange(_))
            | HostError::Config(_)
            | HostError::SeveralEndpoints { .. }
            | HostError::ClientPortOfSeveral { .. } => HOMA_ARGUMENT,
            HostError::Port(PortError::NoneFree) => HOMA_LIMIT,
            HostError::Closed => HOMA_CLOSED,
            _ => HOMA_SYSTEM,
        };
        Failure::new(result, error.to_string())
    }
}

/// What the Rust API says of a host that was shut down is so here of a socket: a host lasts as long as its sockets.
const SHUT_DOWN: &str = "the socket is shut down";

/// What is said of why a call failed.
pub(crate) fn call_text(error: &CallError) -> String {
    match error {
        CallError::Closed => SHUT_DOWN.to_owned(),
        _ => error.to_string(),
    }
}

/// What is said of why an answer was not taken.
pub(crate) fn reply_text(error: &ReplyError) -> String {
    match error {
        ReplyError::Closed => SHUT_DOWN.to_owned(),
        _ => error.to_string(),
    }
}

/// The number of what a call came to.
pub(crate) fn of_call(error: &CallError) -> homa_result {
    match error {
        CallError::Unreachable { .. } | CallError::ProtocolUnreachable { .. } => HOMA_UNREACHABLE,
        CallError::NoAnswer { .. } => HOMA_SILENT,
        CallError::NoSuchPort { .. } => HOMA_NO_PORT,
        CallError::PeerRestarted { .. } | CallError::ResponseLost { .. } => HOMA_PEER_GONE,
        CallError::TooLargeForReceiver { .. }
        | CallError::EmptyMessage
        | CallError::MessageTooLarge { .. } => HOMA_SIZE,
        CallError::NoScope { .. } => HOMA_ARGUMENT,
        CallError::LimitReached { .. } => HOMA_LIMIT,
        CallError::TimedOut { .. } => HOMA_TIMED_OUT,
        CallError::Aborted { .. } => HOMA_CANCELLED,
        CallError::Closed => HOMA_CLOSED,
        _ => HOMA_INTERNAL,
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::new(of_call(&error), call_text(&error))
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Failure {
        match error {
            // Whoever polls meets it often.
            RecvError::TimedOut => Failure::new(HOMA_TIMED_OUT, "nothing came in the time given"),
            RecvError::NoSuchCall { .. } => Failure::new(HOMA_NO_CALL, error.to_string()),
            RecvError::Closed => Failure::new(HOMA_CLOSED, SHUT_DOWN),
            _ => Failure::new(HOMA_INTERNAL, error.to_string()),
        }
    }
}

/// The number of what an answer came to.
pub(crate) fn of_reply(error: &ReplyError) -> homa_result {
    match error {
        ReplyError::EmptyMessage | ReplyError::MessageTooLarge { .. } => HOMA_SIZE,
        ReplyError::LimitReached { .. } => HOMA_LIMIT,
        ReplyError::ClientGone { .. } => HOMA_PEER_GONE,
        ReplyError::Closed => HOMA_CLOSED,
        _ => HOMA_INTERNAL,
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Failure {
        Failure::new(of_reply(&error), reply_text(&error))
    }
}
