//! Calls: starting them, handing over their results, and the client ports that carry them.

use std::collections::VecDeque;

use bytes::Bytes;
use homa_proto::{CallOptions, Time};

use super::{Engine, Phase};
use crate::observe::stages::{Message, TraceKey};
use crate::payload::deferred_copy::Outgoing;
use crate::runtime::calls::{Call, CallOwner, CallTicket, ClientPort, UntakenCompletion};
use crate::runtime::wait_target::WaitTarget;
use crate::types::address::ServerAddr;
use crate::types::error::{CallError, HostError};

impl Engine {
    /// Opens a client port and returns its index. `chosen` is a port that the processes of this host have
    /// agreed on.
    pub(crate) fn open_client(&mut self, now: Time, chosen: Option<u16>) -> Result<usize, HostError> {
        if self.phase != Phase::Open {
            return Err(HostError::Closed);
        }
        let port = match chosen {
            Some(port) => self.open_shared_port(now, port, None).map(|()| port)?,
            None => self.endpoint.open_client_port()?,
        };
        Ok(self.calls.clients.insert(ClientPort {
            port,
            completions: VecDeque::new(),
            open: 0,
            closed: false,
        }))
    }

    /// Starts a call. The caller must flush.
    pub(crate) fn start_call(
        &mut self,
        now: Time,
        client: usize,
        to: ServerAddr,
        request: Bytes,
        owner: CallOwner,
        readable_step: u32,
    ) -> Result<usize, CallError> {
        let Some(entry) = self.calls.clients.get(client) else { return Err(CallError::Closed) };
        let private = matches!(owner, CallOwner::CallTicket(_)); // ID-14: its result goes to one caller.
        if !private && entry.open + entry.completions.len() >= self.calls.completion_limit {
            return Err(CallError::LimitReached { name: "max_completions" });
        }
        let (from, request) = ((entry.port, private), Outgoing::Whole(request));
        let call = self.start_call_from(now, from, to, request, owner, readable_step)?;
        if !private {
            self.calls.clients[client].open += 1;
        }
        Ok(call)
    }

    /// Starts a call from an open port. The caller must flush.
    pub(crate) fn start_call_from(
        &mut self,
        now: Time,
        (port, private): (u16, bool),
        to: ServerAddr,
        request: Outgoing,
        owner: CallOwner,
        readable_step: u32,
    ) -> Result<usize, CallError> {
        if self.phase != Phase::Open {
            return Err(CallError::Closed);
        }
        if to.lacks_scope() {
            return Err(CallError::NoScope { to });
        }
        let mut to = to;
        if let Some(port) = self.sending.peers_port {
            to.host.set_port(port); // ID-12: the peer is only an address.
        }
        if let Some(processes) = &self.tenancy.processes {
            processes.lease_ids(&mut self.endpoint);
        }
        let entry = self.calls.open.vacant_entry();
        let call = entry.key();
        let options = CallOptions { cookie: call as u64, private, readable_step };
        let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
        let rpc = self
            .endpoint
            .send_request(now, port, to.host, to.port, length, options)
            .map_err(|error| CallError::from_send(to, request.len(), error))?;
        let (id, peer) = self.endpoint.traced(rpc).unwrap_or_default();
        entry.insert(Call {
            to,
            rpc,
            traced: TraceKey { id, peer },
            owner,
            started: now,
            request_bytes: length,
        });
        self.note_peer(now, to.host);
        self.buffers.open_call(rpc, call, request);
        Ok(call)
    }

    /// Takes the result of a call, if it is available. This ends the call.
    pub(crate) fn take_result(&mut self, call: usize) -> Option<Result<Bytes, CallError>> {
        match &mut self.calls.open[call].owner {
            CallOwner::CallTicket(ticket) => {
                let result = ticket.result.take()?;
                let traced = self.calls.open.remove(call).traced;
                self.note_response(traced, &result);
                Some(result)
            }
            _ => unreachable!("only the owner of a ticket asks, and while it is one"),
        }
    }

    /// Takes the next completion of a client port, if any: its cookie and result.
    pub(crate) fn take_completion(&mut self, client: usize) -> Option<(u64, Result<Bytes, CallError>)> {
        let UntakenCompletion { cookie, result, traced } =
            self.calls.clients[client].completions.pop_front()?;
        self.note_response(traced, &result);
        Some((cookie, result))
    }

    /// Records that the application takes the result of a call.
    fn note_response(&mut self, traced: TraceKey, result: &Result<Bytes, CallError>) {
        if let Ok(response) = result {
            self.note_app_receive(traced, Message::Response, response.len());
        }
    }

    /// Returns the ticket of a call whose owner has not dropped it.
    pub(crate) fn ticket(&mut self, call: usize) -> &mut CallTicket {
        match &mut self.calls.open[call].owner {
            CallOwner::CallTicket(ticket) => ticket,
            _ => unreachable!("only the owner of a ticket asks, and while it is one"),
        }
    }

    /// Aborts a call whose owner dropped it.
    pub(crate) fn abandon_call(&mut self, now: Time, call: usize) {
        let over = self.ticket(call).result.is_some();
        if over {
            if let CallOwner::CallTicket(CallTicket { result: Some(Ok(response)), .. }) =
                self.calls.open.remove(call).owner
            {
                self.buffers.free_later(response);
            }
            return;
        }
        self.calls.open[call].owner = CallOwner::Nobody;
        self.endpoint.abort(now, self.calls.open[call].rpc);
        self.flush(now);
    }

    /// Hands the result of a call to its owner.
    pub(crate) fn finish_call(&mut self, call: usize, result: Result<Bytes, CallError>) {
        let Some(entry) = self.calls.open.get_mut(call) else {
            return;
        };
        match &mut entry.owner {
            CallOwner::Socket(_) => return self.finish_socket_call(call, result),
            CallOwner::CallTicket(ticket) => {
                // If the host was closed in the meantime, the ticket already contains that result.
                ticket.result.get_or_insert(result);
                self.waiting.note_ready(WaitTarget::Call(call));
                return;
            }
            &mut CallOwner::Queue { client, cookie } => {
                let port = &mut self.calls.clients[client];
                port.open -= 1;
                if port.closed {
                    if let Ok(response) = result {
                        self.buffers.free_later(response);
                    }
                    if port.open == 0 {
                        self.calls.clients.remove(client);
                    }
                } else {
                    port.completions.push_back(UntakenCompletion { cookie, result, traced: entry.traced });
                    self.waiting.note_ready(WaitTarget::Completions(client));
                }
            }
            CallOwner::Nobody => result.into_iter().for_each(|response| self.buffers.free_later(response)),
        }
        self.calls.open.remove(call);
    }

    /// Closes a client port whose last handle was dropped; calls submitted on it are aborted.
    pub(crate) fn close_client(&mut self, now: Time, client: usize) {
        if self.calls.clients.len() == 1 {
            // ACK-13: no later request will carry the acknowledgements.
            self.endpoint.flush_acks(self.calls.clients[client].port);
        }
        let port = &mut self.calls.clients[client];
        port.closed = true;
        let number = port.port;
        let (open, completions) = (port.open, std::mem::take(&mut port.completions));
        for response in completions.into_iter().filter_map(|completion| completion.result.ok()) {
            self.buffers.free_later(response);
        }
        if open == 0 {
            self.calls.clients.remove(client);
        }
        self.close_port(now, number);
        self.flush(now);
    }
}
