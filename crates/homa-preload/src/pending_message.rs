//! A message on its way from the transport to the program, and the call that it ends.

use std::net::SocketAddr;

use bytes::Bytes;
use homa::Request;
#[cfg(test)]
use homa::ServerAddr;
use homa::error::CallError;
use homa::kernel_api::{Arrival, CallInfo, Outcome};

use crate::socket_name::SocketName;

/// A message that the program has not received yet.
pub(crate) struct PendingMessage {
    pub(crate) id: u64,
    pub(crate) cookie: u64,
    /// Whether the message is the outcome of a private call.
    pub(crate) private: bool,
    pub(crate) from: SocketName,
    pub(crate) message: Result<Bytes, CallError>,
    /// The request to answer, if the message is a request.
    pub(crate) rpc: Option<Request>,
    /// Whether the message was found to have room, so that poll reports it.
    pub(crate) shown: bool,
}

/// A call that is over for the transport.
pub(crate) struct FinishedCall {
    pub(crate) id: u64,
    pub(crate) cookie: u64,
    pub(crate) private: bool,
    pub(crate) from: SocketName,
    /// Length of the request in bytes; `None` if it is no longer known.
    pub(crate) request_bytes: Option<u32>,
    pub(crate) response_bytes: u32,
}

impl From<&CallInfo> for FinishedCall {
    fn from(call: &CallInfo) -> FinishedCall {
        let CallInfo { id, cookie, to, private, request_bytes, over } = *call;
        let from = SocketName { ip: to.host.ip().to_canonical(), scope: scope(&to.host), port: to.port };
        let response_bytes = over.unwrap_or(0) as u32;
        FinishedCall { id, cookie, private, from, request_bytes: Some(request_bytes), response_bytes }
    }
}

impl PendingMessage {
    pub(crate) fn of(arrival: Arrival) -> PendingMessage {
        match arrival {
            Arrival::Request { mut rpc, id, client_port } => {
                let from = SocketName {
                    ip: rpc.peer().ip().to_canonical(),
                    scope: scope(&rpc.peer()),
                    port: client_port,
                };
                let message = Ok(rpc.take_payload());
                PendingMessage { id, cookie: 0, private: false, from, message, rpc: Some(rpc), shown: false }
            }
            Arrival::Outcome(outcome) => PendingMessage::of_outcome(outcome, false),
            Arrival::ReturnedReply(_) => unreachable!("no reply is lent here"),
        }
    }

    pub(crate) fn of_outcome(outcome: Outcome, private: bool) -> PendingMessage {
        let Outcome { id, cookie, to, result } = outcome;
        let from = SocketName { ip: to.host.ip().to_canonical(), scope: scope(&to.host), port: to.port };
        PendingMessage { id, cookie, private, from, message: result, rpc: None, shown: false }
    }

    /// Returns the response of a call that is not private.
    #[cfg(test)]
    pub(crate) fn response(id: u64, length: usize) -> PendingMessage {
        let to = ServerAddr::new(SocketAddr::from(([127, 0, 0, 1], 0)), 99);
        PendingMessage::of_outcome(Outcome { id, cookie: 0, to, result: Ok(vec![0; length].into()) }, false)
    }

    /// Returns the ID of the message's RPC.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the call that the message ends; `None` for a request.
    pub(crate) fn call(&self) -> Option<FinishedCall> {
        let PendingMessage { id, cookie, private, from, .. } = *self;
        let response_bytes = self.length() as u32;
        let call = FinishedCall { id, cookie, private, from, request_bytes: None, response_bytes };
        self.rpc.is_none().then_some(call)
    }

    /// Returns whether only a recvmsg that specifies the call's ID receives the message.
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    pub(crate) fn length(&self) -> usize {
        self.message.as_ref().map_or(0, Bytes::len)
    }
}

fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}
