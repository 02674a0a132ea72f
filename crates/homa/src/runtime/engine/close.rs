//! Closes a host: first it refuses everything except answers, then it drops all state.

use homa_proto::Time;

use super::{Engine, Phase};
use crate::runtime::calls::CallOwner;
use crate::runtime::waiters::Wakeup;
use crate::types::error::CallError;

impl Engine {
    /// Refuses everything from now on, except answers to requests that the application has taken.
    pub(crate) fn begin_close(&mut self, now: Time) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Closing;
        if let Some(member) = &self.tenancy.group {
            member.group.mailbox(member.index).hurry();
        }
        let calls: Vec<usize> = self.calls.open.iter().map(|(call, _)| call).collect();
        for call in calls {
            self.close_call(now, call);
        }
        let servers: Vec<usize> = self.requests.ports.iter().map(|(server, _)| server).collect();
        for server in servers {
            self.refuse_queued(now, server);
            while let Some(port) = self.requests.ports.get_mut(server) {
                let Some(task) = port.tasks.pop(&self.waiting.wake_by) else { break };
                self.waiting.wakes.push(Wakeup::Task(task));
            }
        }
        self.flush(now);
        self.wake_waiters();
        self.waiting.wake_all();
    }

    /// Ends a call because the host closes.
    fn close_call(&mut self, now: Time, call: usize) {
        let Some(entry) = self.calls.open.get_mut(call) else { return };
        let rpc = entry.rpc;
        match &mut entry.owner {
            CallOwner::CallTicket(ticket) if ticket.result.is_none() => {
                ticket.result = Some(Err(CallError::Closed));
                if let Some(waker) = ticket.waker.take() {
                    self.waiting.wakes.push(Wakeup::Task(waker));
                }
                self.endpoint.abort(now, rpc);
            }
            CallOwner::Queue { .. } => {
                self.finish_call(call, Err(CallError::Closed));
                self.endpoint.abort(now, rpc);
            }
            CallOwner::Socket(_) => self.forget_socket_call(now, call),
            _ => {}
        }
    }

    /// Drops all state.
    pub(crate) fn finish_close(&mut self, now: Time) {
        self.phase = Phase::Closed;
        if let Some((_, client)) = self.calls.clients.iter().next() {
            self.endpoint.flush_acks(client.port); // ACK-13: send what is still waiting.
        }
        let ports = self
            .calls
            .clients
            .iter()
            .map(|(_, c)| c.port)
            .chain(self.requests.ports.iter().map(|(_, s)| s.port));
        for port in ports.collect::<Vec<_>>() {
            self.close_port(now, port);
        }
        while self.endpoint.open_rpcs() > 0 {
            let before = self.endpoint.open_rpcs();
            self.endpoint.handle_timeout(now);
            self.flush(now);
            if self.endpoint.open_rpcs() >= before && self.endpoint.poll_timeout().is_none_or(|due| due > now)
            {
                break;
            }
        }
        self.flush(now);
        self.sending.unsent.clear();
        // Release what this endpoint has leased, for other processes and endpoints.
        self.tenancy.lease = None;
        self.tenancy.processes = None;
        self.close_readings();
        self.buffers.release_all();
        self.wake_waiters();
        self.waiting.wake_all();
        self.notify_progress();
        self.driving.async_driver.notify();
        self.waiting.wakes.push(Wakeup::AsyncDriver);
    }
}
