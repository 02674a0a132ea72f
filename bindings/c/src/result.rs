//! Results of functions, and how the errors of the Rust API map to them.

use homa::driver::udp::BindError;
use homa::error::{CallError, HostError, RecvError, ReplyError};
use homa::proto::PortError;

use crate::border::Failure;

/// The result of a function. Numbers never change their meaning. A later version may add some: treat an
/// unknown number as a failure. homa_last_error() has the details.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum homa_result {
    /// Success. For returned bytes (HOMA_RETURNED): the client has acknowledged the response, which it also
    /// does after giving up the call.
    HOMA_OK = 0,
    /// An argument is wrong: NULL, out of range, or used up. Nothing was done.
    HOMA_ARGUMENT = 1,
    /// The system refuses a resource, such as a descriptor, or a port without privilege.
    HOMA_SYSTEM = 2,
    /// The port is in use by another socket or another process.
    HOMA_IN_USE = 3,
    /// The caller's timeout has expired. A call with this result was given up; its request may have run.
    HOMA_TIMED_OUT = 4,
    /// The socket was shut down.
    HOMA_CLOSED = 5,
    /// A limit is reached: wait for RPCs to end.
    HOMA_LIMIT = 6,
    /// The message is empty, or exceeds the maximum of this host or of the peer.
    HOMA_SIZE = 7,
    /// The network reports that the host does not exist, or that its machine does not run Homa. If a Homa
    /// host has just ended there, the request may have run.
    HOMA_UNREACHABLE = 8,
    /// The peer was silent for too long. The request may have run.
    HOMA_SILENT = 9,
    /// The peer has no server on the Homa port. The request has not run.
    HOMA_NO_PORT = 10,
    /// The peer ended, restarted, gave the RPC up, or has forgotten it. A request may have run, and a
    /// response may have arrived.
    HOMA_PEER_GONE = 11,
    /// The call was cancelled on this side. The request may have run.
    HOMA_CANCELLED = 12,
    /// There is no such call: its outcome was received, or it never existed.
    HOMA_NO_CALL = 13,
    /// A bug of this library. The process can continue.
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

/// The Rust API reports this for a host. Here it is reported for a socket, since a host lives as long as its
/// sockets.
const SHUT_DOWN: &str = "the socket is shut down";

/// Returns the text for a failed call.
pub(crate) fn call_text(error: &CallError) -> String {
    match error {
        CallError::Closed => SHUT_DOWN.to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the text for a refused response.
pub(crate) fn reply_text(error: &ReplyError) -> String {
    match error {
        ReplyError::Closed => SHUT_DOWN.to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the result for a failed call.
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
            // A static text, since programs that poll get this result often.
            RecvError::TimedOut => Failure::new(HOMA_TIMED_OUT, "nothing arrived before the timeout"),
            RecvError::NoSuchCall { .. } => Failure::new(HOMA_NO_CALL, error.to_string()),
            RecvError::Closed => Failure::new(HOMA_CLOSED, SHUT_DOWN),
            _ => Failure::new(HOMA_INTERNAL, error.to_string()),
        }
    }
}

/// Returns the result for a refused response.
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
