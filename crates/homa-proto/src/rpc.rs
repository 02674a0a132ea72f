//! One RPC: its state, and the one table of transitions.

use crate::contract::CallOptions;
use crate::message_in::MessageIn;
use crate::message_out::MessageOut;
use crate::patience::ResendMark;
use crate::time::Time;

/// Where an RPC stands. A freed RPC has no state: it is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcState {
    /// Client: the request goes out, nothing of the response has come.
    Requesting,
    /// Client: the response arrives.
    ResponseArriving,
    /// Server: the request arrives.
    RequestArriving,
    /// Server: the application has the request.
    InService,
    /// Server: the response goes out, or waits for its acknowledgement.
    Responding,
}

/// What can happen to an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcInput {
    /// A part, not the last missing, of the response came.
    ResponseBytes,
    /// The last missing byte of the request came.
    RequestComplete,
    /// The application gave the response.
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

    /// The state after `input`; `None` where it does not apply and changes nothing.
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

/// An RPC. Fields that a packet touches stand first and together.
#[derive(Debug)]
pub(crate) struct Rpc {
    /// Our side's id: even for a client, odd for a server.
    pub id: u64,
    pub peer: u32,
    /// The peer's life in which the RPC began.
    pub life: u32,
    pub state: RpcState,
    /// RESENDs or NEED_ACKs since anything was heard.
    pub tries: u8,
    /// How many times the interval to the next one has doubled.
    pub backoff: u8,
    /// The peer did not know it when the response had begun to come.
    pub told_unknown: bool,
    /// The response was asked for in part: the rest of its unscheduled bytes is asked for in turn (INCAST-5).
    pub asked_in_part: bool,
    /// The peer has said something about it.
    pub answered: bool,
    /// A RESEND went since the peer last said that it does not know it.
    pub asked: bool,
    /// The application has had a part of the request before it was whole.
    pub taken_early: bool,
    /// When something was last heard, or asked.
    pub quiet_since: Time,
    /// When the RPC last got further; its start before that.
    pub progress_at: Time,
    /// What its receiver asked for again of the outgoing message.
    pub requested: ResendMark,
    pub port: u16,
    pub peer_port: u16,
    /// Most bytes of the response that may be sent unasked, as its client says; `u32::MAX`: it sets no limit.
    pub response_limit: u32,
    pub incoming: MessageIn,
    pub outgoing: MessageOut,
    pub options: CallOptions,
}

impl Rpc {
    /// An RPC that begins now, between our `port` and `peer_port` of the peer.
    pub(crate) fn new(now: Time, id: u64, peer: (u32, u32), state: RpcState, ports: (u16, u16)) -> Rpc {
        let ((peer, life), (port, peer_port)) = (peer, ports);
        Rpc {
            id,
            peer,
            life,
            state,
            tries: 0,
            backoff: 0,
            told_unknown: false,
            asked_in_part: false,
            // A request that arrives is the client's word about it.
            answered: !state.is_client(),
            asked: false,
            taken_early: false,
            quiet_since: now,
            progress_at: now,
            requested: ResendMark::default(),
            port,
            peer_port,
            response_limit: u32::MAX,
            incoming: MessageIn::default(),
            outgoing: MessageOut::default(),
            options: CallOptions::default(),
        }
    }

    /// The peer has shown that it waits for us: it is asked again only after the whole interval.
    pub(crate) fn heard(&mut self, now: Time) {
        self.answered = true;
        self.tries = 0;
        self.backoff = 0;
        self.quiet_since = now;
    }
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
