//! What can go wrong, who is to blame, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use homa_driver::LinkError;
use homa_driver::udp::BindError;
use homa_proto::{ConfigError, MAX_ENDPOINTS, PortError, RpcError, SendError};
use homa_steer::PolicyName;

use crate::api::address::ServerAddr;
use crate::tenancy::placement::ENDPOINT_POLICIES;
use crate::tenancy::process_group::SegmentError;

/// Why a [`Host`](crate::Host) could not be made, or could not open a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The UDP socket could not be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The network device cannot be had.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A setting of [`HostConfig::protocol`](crate::HostConfig::protocol) contradicts itself or another.
    #[error("setting {0}")]
    Config(#[from] ConfigError),
    /// The Homa port cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The system refuses something that every host needs.
    #[error("cannot make {what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// What the processes of this host share cannot be had.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// So many endpoints cannot be.
    #[error(
        "a host cannot have {count} endpoints: choose 1 to {MAX_ENDPOINTS}, about one per core that the network may fill"
    )]
    Endpoints {
        /// What was asked for.
        count: usize,
    },
    /// The policy needs to know what a host does not.
    #[error(
        "{policy} cannot place RPCs, since a host does not know what it asks for: choose one of {}",
        ENDPOINT_POLICIES.map(|policy| policy.entry().name).join(", ")
    )]
    Placement {
        /// The policy.
        policy: PolicyName,
    },
    /// Each client port belongs to one endpoint.
    #[error(
        "a socket with a client port of its choice needs a host of one endpoint, and this one has {count}: set `endpoints` to 1, or let any port do"
    )]
    SeveralEndpoints {
        /// How many it has.
        count: usize,
    },
    /// Requests come to any endpoint, and a client port is in one.
    #[error(
        "a socket with a client port accepts requests where its host has one endpoint, and this one has {count}: set `endpoints` to 1, or open the socket at a server port"
    )]
    ClientPortOfSeveral {
        /// How many it has.
        count: usize,
    },
    /// The host was shut down.
    #[error("the host is shut down: bind a new one")]
    Closed,
}

/// Why a call has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The network says that nobody listens there.
    #[error(
        "{to} is unreachable: no Homa host listens at its address; start one there, or correct the address; if one has just ended, the \
         request may have run"
    )]
    Unreachable {
        /// The server.
        to: ServerAddr,
    },
    /// The server's machine knows no Homa, as the network says. (EPROTONOSUPPORT in the kernel's words.)
    #[error(
        "the machine of {to} does not speak Homa over IP protocol 146: start a host there with the raw driver (or the kernel \
         module), or use the UDP driver on both sides; if a host has just ended there, the request may have run"
    )]
    ProtocolUnreachable {
        /// The server.
        to: ServerAddr,
    },
    /// The peer never answered.
    #[error(
        "{to} did not answer: its host is down, or the network between us loses everything; the request may have run"
    )]
    TimedOut {
        /// The server.
        to: ServerAddr,
    },
    /// The peer is there, without such a server.
    #[error("{to} has no server on Homa port {}: start it, or correct the port; the request has not run", .to.port)]
    NoSuchPort {
        /// The server.
        to: ServerAddr,
    },
    /// The peer's state was lost while it had the RPC.
    #[error("{to} or its host ended or restarted during the call: the request may have run")]
    PeerRestarted {
        /// The server.
        to: ServerAddr,
    },
    /// The peer ran the request and gave the response up.
    #[error("{to} ran the request, but gave its response up before it had all arrived")]
    ResponseLost {
        /// The server.
        to: ServerAddr,
    },
    /// The request is larger than the peer takes, or the response larger than this host takes.
    #[error(
        "request or response is larger than its receiver accepts ({to} and this host must both raise max_message, and Linux Homa takes \
         1,000,000 bytes): if it was the response, the request has run"
    )]
    TooLargeForReceiver {
        /// The server.
        to: ServerAddr,
    },
    /// A request has at least one byte. Nothing was sent.
    #[error("the request is empty: a Homa message has at least one byte")]
    EmptyMessage,
    /// The request is longer than [`max_message`](homa_proto::Config::max_message). Nothing was sent.
    #[error(
        "the request has {length} bytes, but max_message is {limit}: raise it on both hosts, or send less"
    )]
    MessageTooLarge {
        /// Bytes of the request.
        length: usize,
        /// Bytes allowed.
        limit: u32,
    },
    /// A configured limit is reached. Nothing was sent.
    #[error("the limit {name} is reached: wait for calls to end, or raise it")]
    LimitReached {
        /// The field of [`HostConfig`](crate::HostConfig) or of its `protocol`.
        name: &'static str,
    },
    /// The caller's deadline passed; the RPC was aborted.
    #[error("{to} did not answer within the caller's deadline of {deadline:?}: the request may have run")]
    DeadlineExceeded {
        /// The server.
        to: ServerAddr,
        /// The time that the caller gave.
        deadline: Duration,
    },
    /// The call was given up on this side.
    #[error("the call to {to} was aborted on this side: the request may have run")]
    Aborted {
        /// The server.
        to: ServerAddr,
    },
    /// This host was shut down before the response came.
    #[error("this host is shut down: the request may have run, if the call began before")]
    Closed,
    /// The server's address says no device. Nothing was sent.
    #[error("{to} is a link-local address without its scope: name the device, as in [fe80::1%2]:14600/99")]
    NoScope {
        /// The server.
        to: ServerAddr,
    },
}

impl CallError {
    /// Whether the request may have run at the server, or has. False: it has not, and can be sent again without running twice. (A port of
    /// Linux Homa that was closed in the moment in which it ran a request, and whose answer was lost, is the one that cannot be told.)
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            CallError::Unreachable { .. }
            | CallError::ProtocolUnreachable { .. }
            | CallError::TimedOut { .. }
            | CallError::PeerRestarted { .. }
            | CallError::ResponseLost { .. }
            | CallError::TooLargeForReceiver { .. }
            | CallError::DeadlineExceeded { .. }
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
            RpcError::Timeout => CallError::TimedOut { to },
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

/// Why there is no request to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// No request came in the time given.
    #[error("no request came in the time given")]
    TimedOut,
    /// The host or the socket was shut down: there will be no more messages.
    #[error("this host is shut down: there are no more requests")]
    Closed,
    /// A socket has no private call with this id.
    #[error("no private call of this socket has the id {id}: its outcome was taken, or it was aborted")]
    NoSuchCall {
        /// What was asked for.
        id: u64,
    },
}

/// Why there is no more of a request that was given out while it arrived. But for [`TimedOut`](ReadError::TimedOut) the request is
/// over, and will not be given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No more of it came in the time given.
    #[error("no more of the request came in the time given")]
    TimedOut,
    /// Its client does not want it answered any more.
    #[error("the client at {peer} gave the call up before its request was whole")]
    ClientGaveUp {
        /// The client's host.
        peer: SocketAddr,
    },
    /// Nothing was heard of its client for too long; or that was not known to exist, and others took its room.
    #[error("the client at {peer} fell silent before its request was whole: its host or the network is down")]
    ClientSilent {
        /// The client's host.
        peer: SocketAddr,
    },
    /// Its client's host has no memory of it.
    #[error("the client's host at {peer} restarted before its request was whole")]
    ClientRestarted {
        /// The client's host.
        peer: SocketAddr,
    },
    /// This host was shut down.
    #[error("this host is shut down")]
    Closed,
}

/// Why a reply was not taken. The RPC is over, and where its client still waits it gets an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// A reply has at least one byte.
    #[error("the reply is empty: a Homa message has at least one byte")]
    EmptyMessage,
    /// The reply is longer than [`max_message`](homa_proto::Config::max_message).
    #[error("the reply has {length} bytes, but max_message is {limit}: raise it on both hosts, or send less")]
    MessageTooLarge {
        /// Bytes of the reply.
        length: usize,
        /// Bytes allowed.
        limit: u32,
    },
    /// A configured limit is reached.
    #[error("the limit {name} is reached: wait for RPCs to end, or raise it")]
    LimitReached {
        /// The field of [`HostConfig`](crate::HostConfig) or of its `protocol`.
        name: &'static str,
    },
    /// Nobody waits for the reply any more.
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

    /// AMO-9: what the error says of that is all that is known.
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
        let deadline = CallError::DeadlineExceeded { to, deadline: Duration::from_secs(1) };
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
