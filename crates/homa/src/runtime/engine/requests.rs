//! Server ports and their requests, from the arrival of each request until its answer is acknowledged.

use std::net::SocketAddr;

use bytes::Bytes;
use homa_proto::{DoneReason, RpcKey, Time};

use super::{Engine, Phase};
use crate::observe::stages::Message;
use crate::payload::buffers::Role;
use crate::payload::deferred_copy::Outgoing;
use crate::runtime::requests::{PartialRequest, QueuedRequest, ServerPort};
use crate::runtime::wait_target::WaitTarget;
use crate::tenancy::process_group::PortClaim;
use crate::types::error::{HostError, ReplyError};

impl Engine {
    /// Binds a server port and returns its index. `bound` is the claim that the processes of this host have
    /// agreed on. Returns `None` if old requests of the port are still being cleaned up. Each call cleans up
    /// some of them, so release the lock and call again.
    pub(crate) fn open_server(
        &mut self,
        now: Time,
        port: u16,
        bound: Option<PortClaim>,
    ) -> Result<Option<usize>, HostError> {
        if self.phase != Phase::Open {
            return Err(HostError::Closed);
        }
        if let Some(&server) = self.requests.port_index.get(&port) {
            // The port's last handle was dropped, and the port is only waiting for acknowledgements.
            if self.requests.ports[server].closed {
                self.requests.ports[server].closed = false;
                self.requests.ports[server].abandoned = false;
                self.endpoint.accept_requests(port, true);
                return Ok(Some(server));
            }
        }
        // The port no longer has an owner, so do not return the error that the port is taken.
        if self.endpoint.is_port_closing(port) {
            self.drive(now);
            if self.endpoint.is_port_closing(port) {
                return Ok(None);
            }
        }
        match bound {
            Some(_) => self.open_shared_port(now, port, bound)?,
            None => self.endpoint.bind(port)?,
        }
        let server = self.requests.ports.insert(ServerPort::new(port, None));
        self.requests.port_index.insert(port, server);
        Ok(Some(server))
    }

    /// Queues a request that has arrived completely.
    pub(crate) fn queue_request(&mut self, now: Time, rpc: RpcKey, peer: SocketAddr, port: u16) {
        if self.complete_early(now, rpc) {
            return;
        }
        let length = self.buffers.incoming_len(rpc) as u64;
        let Some(&server) = self.requests.port_index.get(&port) else {
            self.endpoint.abort(now, rpc);
            return;
        };
        let refused = self.requests.queued_bytes + length > self.requests.max_queued_bytes;
        if refused
            || self.requests.ports[server].closed
            || self.phase != Phase::Open
            || self.refuses_requests(server)
        {
            self.counts.host.requests_refused += u64::from(refused);
            self.endpoint.abort(now, rpc);
            return;
        }
        self.requests.queued_bytes += length;
        self.buffers.set_role(rpc, Role::QueuedRequest { server });
        self.buffers.note_whole(rpc, now, length as u32);
        let port = &mut self.requests.ports[server];
        port.queue.push_back(QueuedRequest { rpc, peer });
        let on = port.socket.map_or(WaitTarget::Requests(server), WaitTarget::Socket);
        self.waiting.note_ready(on);
    }

    /// Takes the oldest request of a server port: its bytes, or no bytes if it is still arriving.
    pub(crate) fn take_request(
        &mut self,
        server: usize,
    ) -> Option<(QueuedRequest, Bytes, Option<PartialRequest>)> {
        loop {
            let port = &mut self.requests.ports[server];
            let queued = port.queue.pop_front()?;
            let role = self.buffers.role(queued.rpc);
            if !role.is_queued_at(server) {
                port.dead -= 1;
                continue;
            }
            port.in_hand += 1;
            let traced = self.traced(queued.rpc);
            if role == (Role::QueuedEarly { server }) {
                let arriving = self.begin_reading(queued, server);
                self.note_app_receive(traced, Message::Request, arriving.length as usize);
                return Some((queued, Bytes::new(), Some(arriving)));
            }
            let request = self.buffers.take_incoming(queued.rpc);
            self.requests.queued_bytes -= request.len() as u64;
            self.buffers.set_role(queued.rpc, Role::Delivered { server });
            self.note_app_receive(traced, Message::Request, request.len());
            return Some((queued, request, None));
        }
    }

    /// Accepts the answer to a request. The caller must flush.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        rpc: RpcKey,
        peer: SocketAddr,
        response: Outgoing,
    ) -> Result<(), ReplyError> {
        if self.phase == Phase::Closed {
            return Err(ReplyError::Closed);
        }
        let Role::Delivered { server } = self.buffers.role(rpc) else {
            return Err(ReplyError::ClientGone { peer });
        };
        let length = u32::try_from(response.len()).unwrap_or(u32::MAX);
        if let Err(error) = self.endpoint.send_response(now, rpc, length) {
            self.give_up(now, rpc);
            return Err(ReplyError::from_send(peer, response.len(), error));
        }
        self.buffers.set_role(rpc, Role::Responding { server });
        self.requests.ports[server].in_hand -= 1;
        self.requests.ports[server].answered += 1;
        let (whole_at, request_bytes) = self.buffers.whole(rpc);
        self.counts.answer_times.record(length.max(request_bytes) as usize, now.since(whole_at));
        self.note_peer(now, peer);
        self.buffers.set_outgoing(rpc, response);
        Ok(())
    }

    /// Gives up a request that the application has taken.
    pub(crate) fn give_up(&mut self, now: Time, rpc: RpcKey) {
        self.endpoint.abort(now, rpc);
        self.flush(now);
    }

    /// Handles the end of a server RPC.
    pub(crate) fn end_request(&mut self, now: Time, rpc: RpcKey, reason: DoneReason) {
        let server = match self.buffers.role(rpc) {
            Role::None | Role::Call => None,
            Role::QueuedRequest { server } | Role::QueuedEarly { server } => {
                self.requests.queued_bytes -= self.buffers.incoming_len(rpc) as u64;
                let port = &mut self.requests.ports[server];
                port.dead += 1;
                Some(server)
            }
            Role::Reading { server } => {
                self.fail_reading(rpc, reason);
                self.requests.ports[server].in_hand -= 1;
                Some(server)
            }
            Role::Delivered { server } => {
                self.requests.ports[server].in_hand -= 1;
                Some(server)
            }
            Role::Responding { server } => {
                self.requests.ports[server].answered -= 1;
                Some(server)
            }
        };
        self.buffers.release(rpc);
        if !self.sockets.lent_replies.is_empty() {
            self.return_lent(rpc, reason);
        }
        if let Some(server) = server {
            self.remove_abandoned_requests(server);
            self.close_when_done(now, server);
        }
    }

    /// Removes the requests whose clients have aborted, once these are more than half of the queue.
    fn remove_abandoned_requests(&mut self, server: usize) {
        let port = &mut self.requests.ports[server];
        if port.dead > port.queue.len() / 2 {
            let buffers = &self.buffers;
            port.queue.retain(|queued| buffers.role(queued.rpc).is_queued_at(server));
            port.dead = 0;
        }
    }

    /// Records that the last handle of a server port was dropped. Requests that no thread has taken are given
    /// up. Answers are still sent.
    pub(crate) fn close_server(&mut self, now: Time, server: usize) {
        self.requests.ports[server].closed = true;
        self.endpoint.accept_requests(self.requests.ports[server].port, false);
        self.refuse_queued(now, server);
        self.close_when_done(now, server);
    }

    /// Gives up all requests of the port that no thread has taken.
    pub(crate) fn refuse_queued(&mut self, now: Time, server: usize) {
        let queued: Vec<QueuedRequest> = self.requests.ports[server].queue.iter().copied().collect();
        for QueuedRequest { rpc, .. } in queued {
            self.endpoint.abort(now, rpc);
        }
        self.flush(now);
    }

    fn close_when_done(&mut self, now: Time, server: usize) {
        if self.phase != Phase::Open && self.is_drained(true) {
            self.waiting.note_ready(WaitTarget::Drained);
        }
        let done = |port: &ServerPort| port.closed && port.in_hand + port.answered + port.queue.len() == 0;
        if self.requests.ports.get(server).is_some_and(done) {
            let port = self.requests.ports.remove(server).port;
            self.requests.port_index.remove(&port);
            self.close_port(now, port);
        }
    }

    /// Returns whether every answer has been acknowledged and, if `in_hand` is set, every request that was
    /// taken has been answered.
    pub(crate) fn is_drained(&self, in_hand: bool) -> bool {
        self.requests.ports.iter().all(|(_, port)| port.answered == 0 && (!in_hand || port.in_hand == 0))
    }
}
