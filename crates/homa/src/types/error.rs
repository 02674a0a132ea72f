//! Error types. Each error states the cause, the side at fault and the remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use homa_driver::LinkError;
use homa_driver::udp::BindError;
use homa_proto::{ConfigError, MAX_ENDPOINTS, PortError, RpcError, SendError};
use homa_steer::PolicyName;

pub use crate::types::address::ParseServerAddrError;
use crate::types::address::ServerAddr;
use crate::types::endpoint_policies::ENDPOINT_POLICIES;
pub use crate::types::segment_error::SegmentError;

/// The reason why a [`Host`](crate::Host) could not be created or could not open a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The UDP socket could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The network device could not be opened.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A setting of [`HostConfig::protocol`](crate::HostConfig::protocol) is invalid in itself or contradicts
    /// another setting.
    #[error("setting {0}")]
    Config(#[from] ConfigError),
    /// The Homa port cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The operating system refused a resource that every host needs.
    #[error("cannot make {what}: {source}")]
    System {
        /// The resource that was refused.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The segment that the processes of this host share could not be opened.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The number of endpoints is out of range.
    #[error(
        "a host cannot have {count} endpoints: choose 1 to {MAX_ENDPOINTS}, about one per core that the network may fill"
    )]
    Endpoints {
        /// The requested number of endpoints.
        count: usize,
    },
    /// The policy depends on information that a host does not have.
    #[error(
        "{policy} cannot place RPCs, since it needs information that a host does not have: choose one of {}",
        ENDPOINT_POLICIES.map(|policy| policy.entry().name).join(", ")
    )]
    Placement {
        /// The policy that was requested.
        policy: PolicyName,
    },
    /// A socket with a chosen client port needs a host with a single endpoint, since each client port belongs
    /// to one endpoint.
    #[error(
        "a socket with a client port of its choice needs a host of one endpoint, and this one has {count}: set `endpoints` to 1, or let any port do"
    )]
    SeveralEndpoints {
        /// Number of endpoints of the host.
        count: usize,
    },
    /// A socket with a client port cannot accept requests here: requests may reach any endpoint, but a client
    /// port belongs to one.
    #[error(
        "a socket with a client port accepts requests where its host has one endpoint, and this one has {count}: set `endpoints` to 1, or open the socket at a server port"
    )]
    ClientPortOfSeveral {
        /// Number of endpoints of the host.
        count: usize,
    },
    /// The host was shut down.
    #[error("the host is shut down: bind a new one")]
    Closed,
}

/// The reason why a call has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The network reported that no host listens at the server's address.
    #[error(
        "{to} is unreachable: no Homa host listens at its address; start one there, or correct the address; if one has just ended, the \
         request may have run"
    )]
    Unreachable {
        /// The server.
        to: ServerAddr,
    },
    /// The network reported that the server's machine does not support Homa (EPROTONOSUPPORT in the kernel's
    /// terms).
    #[error(
        "the machine of {to} does not speak Homa over IP protocol 146: start a host there with the raw driver (or the kernel \
         module), or use the UDP driver on both sides; if a host has just ended there, the request may have run"
    )]
    ProtocolUnreachable {
        /// The server.
        to: ServerAddr,
    },
    /// The peer never responded.
    #[error(
        "{to} did not answer: its host is down, or the network between us loses everything; the request may have run"
    )]
    NoAnswer {
        /// The server.
        to: ServerAddr,
    },
    /// The peer is reachable, but has no such server.
    #[error("{to} has no server on Homa port {}: start it, or correct the port; the request has not run", .to.port)]
    NoSuchPort {
        /// The server.
        to: ServerAddr,
    },
    /// The peer lost its state during the RPC.
    #[error("{to} or its host ended or restarted during the call: the request may have run")]
    PeerRestarted {
        /// The server.
        to: ServerAddr,
    },
    /// The peer executed the request, but discarded the response.
    #[error("{to} ran the request, but gave its response up before it had all arrived")]
    ResponseLost {
        /// The server.
        to: ServerAddr,
    },
    /// The request is larger than the peer accepts, or the response is larger than this host accepts.
    #[error(
        "request or response is larger than its receiver accepts ({to} and this host must both raise max_message, and Linux Homa takes \
         1,000,000 bytes): if it was the response, the request has run"
    )]
    TooLargeForReceiver {
        /// The server.
        to: ServerAddr,
    },
    /// The request is empty, but a request has at least one byte. Nothing was sent.
    #[error("the request is empty: a Homa message has at least one byte")]
    EmptyMessage,
    /// The request is longer than [`max_message`](homa_proto::Config::max_message). Nothing was sent.
    #[error(
        "the request has {length} bytes, but max_message is {limit}: raise it on both hosts, or send less"
    )]
    MessageTooLarge {
        /// Length of the request in bytes.
        length: usize,
        /// Maximum length in bytes.
        limit: u32,
    },
    /// A configured limit is reached. Nothing was sent.
    #[error("the limit {name} is reached: wait for calls to end, or raise it")]
    LimitReached {
        /// The field of [`HostConfig`](crate::HostConfig) or of its `protocol` that sets the limit.
        name: &'static str,
    },
    /// The caller's time limit has passed. The call is then aborted, unless the limit was that of a reader of
    /// its response. Such a reader can continue.
    #[error("{to} did not answer within the caller's deadline of {timeout:?}: the request may have run")]
    TimedOut {
        /// The server.
        to: ServerAddr,
        /// The caller's time limit.
        timeout: Duration,
    },
    /// The call was aborted on this side.
    #[error("the call to {to} was aborted on this side: the request may have run")]
    Aborted {
        /// The server.
        to: ServerAddr,
    },
    /// This host was shut down before the response arrived.
    #[error("this host is shut down: the request may have run, if the call began before")]
    Closed,
    /// The server's address is link-local, but has no scope that names a device. Nothing was sent.
    #[error("{to} is a link-local address without its scope: name the device, as in [fe80::1%2]:14600/99")]
    NoScope {
        /// The server.
        to: ServerAddr,
    },
}

impl CallError {
    /// Returns whether the server may have executed the request, or has executed it. If false, the request
    /// was not executed, and can be sent again without being executed twice. (One case cannot be detected: a
    /// Linux Homa port was closed while it executed a request, and the answer was lost.)
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            CallError::Unreachable { .. }
            | CallError::ProtocolUnreachable { .. }
            | CallError::NoAnswer { .. }
            | CallError::PeerRestarted { .. }
            | CallError::ResponseLost { .. }
            | CallError::TooLargeForReceiver { .. }
            | CallError::TimedOut { .. }
            | CallError::Aborted { .. }
            | CallError::Closed => true,
            CallError::NoSuchPort { .. }
            | CallError::EmptyMessage
            | CallError::MessageTooLarge { .. }
            | CallError::LimitReached { .. }
            | CallError::NoScope { .. } => false,
        }
    }

    pub(crate) fn from_rpc(to: ServerAddr, error: RpcError) -> CallError {
        match error {
            RpcError::Timeout => CallError::NoAnswer { to },
            RpcError::Unreachable => CallError::Unreachable { to },
            RpcError::ProtocolUnreachable => CallError::ProtocolUnreachable { to },
            RpcError::NoSuchPort => CallError::NoSuchPort { to },
            RpcError::PeerRestarted => CallError::PeerRestarted { to },
            RpcError::ResponseLost => CallError::ResponseLost { to },
            RpcError::MessageTooLarge => CallError::TooLargeForReceiver { to },
            RpcError::Aborted => CallError::Aborted { to },
        }
    }

    pub(crate) fn from_send(to: ServerAddr, length: usize, error: SendError) -> CallError {
        match error {
            SendError::EmptyMessage => CallError::EmptyMessage,
            SendError::MessageTooLarge { limit, .. } => CallError::MessageTooLarge { length, limit },
            SendError::LimitReached { name } => CallError::LimitReached { name },
            SendError::UnknownRpc => CallError::Aborted { to },
            SendError::PortNotOpen(_) => CallError::Closed,
            SendError::NoIds => CallError::LimitReached { name: "ids" },
        }
    }
}

/// The reason why no request could be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// Nothing arrived within the time limit.
    #[error("nothing came in the time given")]
    TimedOut,
    /// The host or the socket was shut down: there will be no more messages.
    #[error("this host is shut down: there are no more requests")]
    Closed,
    /// The socket has no private call with this ID.
    #[error("no private call of this socket has the id {id}: its outcome was taken, or it was aborted")]
    NoSuchCall {
        /// The requested ID.
        id: u64,
    },
}

/// The reason why no more bytes of an early-delivered request can be read. After any error except
/// [`TimedOut`](ReadError::TimedOut), the request has ended and is not delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No more bytes of the request arrived in time.
    #[error("no more of the request came in the time given")]
    TimedOut,
    /// The client aborted the call.
    #[error("the client at {peer} gave the call up before its request was whole")]
    ClientGaveUp {
        /// The client's host.
        peer: SocketAddr,
    },
    /// The client was silent for too long, or it was unverified and was evicted to make room for other peers.
    #[error("the client at {peer} fell silent before its request was whole: its host or the network is down")]
    ClientSilent {
        /// The client's host.
        peer: SocketAddr,
    },
    /// The client's host restarted and no longer knows the call.
    #[error("the client's host at {peer} restarted before its request was whole")]
    ClientRestarted {
        /// The client's host.
        peer: SocketAddr,
    },
    /// This host was shut down.
    #[error("this host is shut down")]
    Closed,
}

/// The reason why a reply was refused. The RPC has ended. If its client still waits, the client gets an
/// error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The reply is empty, but a reply has at least one byte.
    #[error("the reply is empty: a Homa message has at least one byte")]
    EmptyMessage,
    /// The reply is longer than [`max_message`](homa_proto::Config::max_message).
    #[error("the reply has {length} bytes, but max_message is {limit}: raise it on both hosts, or send less")]
    MessageTooLarge {
        /// Length of the reply in bytes.
        length: usize,
        /// Maximum length in bytes.
        limit: u32,
    },
    /// A configured limit is reached.
    #[error("the limit {name} is reached: wait for RPCs to end, or raise it")]
    LimitReached {
        /// The field of [`HostConfig`](crate::HostConfig) or of its `protocol` that sets the limit.
        name: &'static str,
    },
    /// The request has not arrived completely. Its client would stop sending it at the first byte of the
    /// reply, so the request is given up.
    #[error(
        "the request from {peer} is still arriving: read it to its end by its reader, then reply to the whole request"
    )]
    StillArriving {
        /// The client's host.
        peer: SocketAddr,
    },
    /// The client no longer waits for the reply.
    #[error("the client at {peer} gave the call up, restarted or fell silent: nobody waits for the reply")]
    ClientGone {
        /// The client's host.
        peer: SocketAddr,
    },
    /// This host was shut down.
    #[error("this host is shut down")]
    Closed,
}

impl ReplyError {
    pub(crate) fn from_send(peer: SocketAddr, length: usize, error: SendError) -> ReplyError {
        match error {
            SendError::EmptyMessage => ReplyError::EmptyMessage,
            SendError::MessageTooLarge { limit, .. } => ReplyError::MessageTooLarge { length, limit },
            SendError::LimitReached { name } => ReplyError::LimitReached { name },
            SendError::UnknownRpc => ReplyError::ClientGone { peer },
            SendError::PortNotOpen(_) => ReplyError::Closed,
            SendError::NoIds => ReplyError::LimitReached { name: "ids" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMO-9: the application has no information except the error.
    #[test]
    fn every_error_of_a_call_says_whether_the_request_may_have_run() {
        let to = ServerAddr::new(SocketAddr::from(([10, 0, 0, 7], 14_600)), 99);
        let ends = [
            RpcError::Timeout,
            RpcError::Unreachable,
            RpcError::ProtocolUnreachable,
            RpcError::NoSuchPort,
            RpcError::PeerRestarted,
            RpcError::ResponseLost,
            RpcError::MessageTooLarge,
            RpcError::Aborted,
        ];
        let deadline = CallError::TimedOut { to, timeout: Duration::from_secs(1) };
        let all =
            ends.map(|end| CallError::from_rpc(to, end)).into_iter().chain([deadline, CallError::Closed]);
        for error in all {
            let text = error.to_string();
            let says = text.contains("may have run")
                || text.contains("has run")
                || text.contains(" ran the request");
            assert_eq!(says, error.may_have_run(), "{text}");
            assert!(says || text.contains("has not run"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }
}
