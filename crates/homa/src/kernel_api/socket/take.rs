//! Takes what has arrived at a socket.

use homa_proto::RpcInfo;

use super::arrival::Arrival;
use crate::api::server::Server;
use crate::runtime::engine::{Engine, Phase};
use crate::runtime::sockets::Deliverable;
use crate::types::error::RecvError;

/// Takes the next arrival. If there are both requests and outcomes, they alternate.
pub(super) fn take_arrival(
    engine: &mut Engine,
    socket: usize,
    server: Option<&Server>,
    endpoint: usize,
) -> Option<Result<Arrival, RecvError>> {
    let state = &mut engine.sockets.open[socket];
    if state.closed || engine.phase != Phase::Open {
        return Some(Err(RecvError::Closed));
    }
    if state.over.is_empty() && server.is_none() {
        return None;
    }
    state.requests_first = !state.requests_first;
    let requests_first = state.requests_first;
    if requests_first && let Some(request) = take_request(engine, server, endpoint) {
        return Some(Ok(request));
    }
    match engine.sockets.open[socket].over.pop_front() {
        Some(Deliverable::Call(call)) => {
            engine.take_outcome(call).map(|outcome| Ok(Arrival::Outcome(outcome)))
        }
        Some(Deliverable::ReturnedReply(returned)) => Some(Ok(Arrival::ReturnedReply(returned))),
        None => take_request(engine, server.filter(|_| !requests_first), endpoint).map(Ok),
    }
}

fn take_request(engine: &mut Engine, server: Option<&Server>, endpoint: usize) -> Option<Arrival> {
    loop {
        let rpc = server?.take(engine, endpoint)?;
        if let Some(RpcInfo { id, peer_port: client_port, .. }) = engine.endpoint.rpc_info(rpc.key()) {
            return Some(Arrival::Request { rpc, id, client_port });
        }
        // The client has aborted the request. The endpoint knows this, but the event has not been polled yet.
        rpc.forget_rpc(&mut engine.buffers);
    }
}
