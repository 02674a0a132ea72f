//! An RPC: its state, and the transition table.

use crate::contract::CallOptions;
use crate::message_in::MessageIn;
use crate::message_out::MessageOut;
use crate::resend_mark::ResendMark;
use crate::time::Time;
use crate::wait::RpcWait;

/// The state of an RPC. A freed RPC has no state: it is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcState {
    /// Client: the request is being sent, and nothing of the response has arrived.
    Requesting,
    /// Client: the response is arriving.
    ResponseArriving,
    /// Server: the request is arriving.
    RequestArriving,
    /// Server: the application has the request.
    InService,
    /// Server: the response is being sent, or waits for its acknowledgement.
    Responding,
}

/// The inputs that can change an RPC's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcInput {
    /// A part of the response arrived, but the response is not complete.
    ResponseBytes,
    /// The last missing byte of the request arrived.
    RequestComplete,
    /// The application sent the response.
    Respond,
}

impl RpcState {
    #[cfg(test)]
    const ALL: [RpcState; 5] = [
        RpcState::Requesting,
        RpcState::ResponseArriving,
        RpcState::RequestArriving,
        RpcState::InService,
        RpcState::Responding,
    ];

    /// Returns the state after `input`; `None` if the input does not apply and changes nothing.
    pub(crate) fn after(self, input: RpcInput) -> Option<RpcState> {
        match (self, input) {
            (RpcState::Requesting | RpcState::ResponseArriving, RpcInput::ResponseBytes) => {
                Some(RpcState::ResponseArriving)
            }
            (RpcState::RequestArriving, RpcInput::RequestComplete) => Some(RpcState::InService),
            (RpcState::InService, RpcInput::Respond) => Some(RpcState::Responding),
            _ => None,
        }
    }

    pub(crate) fn is_client(self) -> bool {
        matches!(self, RpcState::Requesting | RpcState::ResponseArriving)
    }
}

/// An RPC. Fields used for each packet are first and adjacent.
#[derive(Debug)]
pub(crate) struct Rpc {
    /// The id in our form: even on the client, odd on the server.
    pub id: u64,
    pub peer: u32,
    /// The peer's epoch in which the RPC began.
    pub epoch: u32,
    pub state: RpcState,
    /// Whether the application received a part of the request before the request was complete.
    pub taken_early: bool,
    /// How long the RPC has waited for its peer.
    pub wait: RpcWait,
    /// The RESENDs received for the outgoing message.
    pub requested: ResendMark,
    pub port: u16,
    pub peer_port: u16,
    /// Maximum unscheduled bytes of the response, as set by the client; `u32::MAX`: no limit.
    pub response_limit: u32,
    pub incoming: MessageIn,
    pub outgoing: MessageOut,
    pub options: CallOptions,
}

impl Rpc {
    /// Creates an RPC that begins now. `peer` is the peer and its epoch; `ports` are our port and the peer's
    /// port.
    pub(crate) fn new(now: Time, id: u64, peer: (u32, u32), state: RpcState, ports: (u16, u16)) -> Rpc {
        let ((peer, epoch), (port, peer_port)) = (peer, ports);
        Rpc {
            id,
            peer,
            epoch,
            state,
            taken_early: false,
            // An arriving request is itself a packet from the client.
            wait: RpcWait::new(now, !state.is_client()),
            requested: ResendMark::default(),
            port,
            peer_port,
            response_limit: u32::MAX,
            incoming: MessageIn::default(),
            outgoing: MessageOut::default(),
            options: CallOptions::default(),
        }
    }

    pub(crate) fn ended(&self) -> EndedRpc {
        EndedRpc {
            id: self.id,
            peer: self.peer,
            epoch: self.epoch,
            state: self.state,
            taken_early: self.taken_early,
            is_complete: self.incoming.is_complete(),
            port: self.port,
            peer_port: self.peer_port,
            length: self.incoming.length,
            options: self.options,
        }
    }
}

/// Information about an RPC that has been removed from the table.
#[derive(Debug)]
pub(crate) struct EndedRpc {
    pub id: u64,
    pub peer: u32,
    pub epoch: u32,
    pub state: RpcState,
    pub taken_early: bool,
    /// Whether the whole incoming message has arrived.
    pub is_complete: bool,
    pub port: u16,
    pub peer_port: u16,
    /// Bytes of the incoming message; 0: none has begun.
    pub length: u32,
    pub options: CallOptions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_transitions() {
        let mut table = String::new();
        for state in RpcState::ALL {
            for input in [RpcInput::ResponseBytes, RpcInput::RequestComplete, RpcInput::Respond] {
                let after = state.after(input).map_or("-".into(), |after| format!("{after:?}"));
                table += &format!("{:<17} {:<16} {after}\n", format!("{state:?}"), format!("{input:?}"));
            }
        }
        insta::assert_snapshot!(table, @r"
        Requesting        ResponseBytes    ResponseArriving
        Requesting        RequestComplete  -
        Requesting        Respond          -
        ResponseArriving  ResponseBytes    ResponseArriving
        ResponseArriving  RequestComplete  -
        ResponseArriving  Respond          -
        RequestArriving   ResponseBytes    -
        RequestArriving   RequestComplete  InService
        RequestArriving   Respond          -
        InService         ResponseBytes    -
        InService         RequestComplete  -
        InService         Respond          Responding
        Responding        ResponseBytes    -
        Responding        RequestComplete  -
        Responding        Respond          -
        ");
    }

    #[test]
    fn an_rpc_stays_small() {
        assert!(size_of::<Rpc>() <= 192, "{} bytes", size_of::<Rpc>());
    }
}
