//! The application on a host.

use homa_proto::{
    CallOptions, DoneReason, Endpoint, PortError, RpcError, RpcKey, SendError, Time, Unreachable,
};

use crate::fabric::{Event, Fabric, host_address};
use crate::host::HostState;
use crate::network::{Deployed, HostEvent};

/// A server's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Responds immediately with this many bytes.
    Now(u32),
    /// Answers after a delay for computation.
    After {
        /// Computing time.
        delay_ns: u64,
        /// Length of the response in bytes.
        length: u32,
    },
    /// Keeps the request. [`HostCtx::reply`] or [`HostCtx::abort`] may end it later.
    Never,
}

/// The application on one host. The simulator calls its methods to report events.
///
/// Its behaviour may depend only on its arguments and its own state, both determined by the seed.
pub trait App {
    /// Called when the host has started, or restarted after a crash.
    fn on_start(&mut self, host: &mut HostCtx<'_>);

    /// Called when a complete request of `length` bytes has arrived at server port `port`.
    fn on_request(
        &mut self,
        host: &mut HostCtx<'_>,
        rpc: RpcKey,
        from: usize,
        port: u16,
        length: u32,
    ) -> Reply {
        let _ = (host, rpc, from, port);
        Reply::Now(length)
    }

    /// Called when the complete response of the RPC with this cookie has arrived.
    fn on_response(&mut self, host: &mut HostCtx<'_>, cookie: u64, length: u32) {
        let _ = (host, cookie, length);
    }

    /// Called when the RPC with this cookie has ended without a response.
    fn on_failed(&mut self, host: &mut HostCtx<'_>, cookie: u64, error: RpcError) {
        let _ = (host, cookie, error);
    }

    /// Called when the first `end` of `length` bytes of a response have arrived. `cookie` identifies the RPC.
    fn on_readable(&mut self, host: &mut HostCtx<'_>, cookie: u64, end: u32, length: u32) {
        let _ = (host, cookie, end, length);
    }

    /// Called when the state of a server RPC whose client is `from` is gone.
    fn on_done(&mut self, host: &mut HostCtx<'_>, rpc: RpcKey, from: usize, reason: DoneReason) {
        let _ = (host, rpc, from, reason);
    }

    /// Called when a timer set with [`HostCtx::set_timer`] has expired.
    fn on_timer(&mut self, host: &mut HostCtx<'_>, token: u64) {
        let _ = (host, token);
    }
}

/// The actions of an application on its host.
pub struct HostCtx<'a> {
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) state: &'a mut HostState,
    pub(crate) fabric: &'a mut Fabric<Deployed>,
}

impl HostCtx<'_> {
    /// Returns the network's time. The host's clock may differ.
    pub fn now(&self) -> Time {
        self.fabric.now
    }

    /// Returns the time of the host's clock, which is passed to its endpoint.
    pub fn clock(&self) -> Time {
        self.state.clock.read(self.fabric.now)
    }

    /// Returns the index of this host.
    pub fn host(&self) -> usize {
        self.state.index as usize
    }

    /// Opens a server port.
    ///
    /// # Errors
    /// As [`Endpoint::bind`].
    pub fn bind(&mut self, port: u16) -> Result<(), PortError> {
        self.endpoint.bind(port)
    }

    /// Starts an RPC from this host's client port. The first call opens the port.
    ///
    /// # Errors
    /// As [`Endpoint::send_request`].
    ///
    /// # Panics
    /// If no client port is left, that is, if 32,768 are in use.
    pub fn call(
        &mut self,
        to: usize,
        port: u16,
        length: u32,
        options: CallOptions,
    ) -> Result<RpcKey, SendError> {
        let from_port = match self.state.client_port {
            Some(port) => port,
            None => self.endpoint.open_client_port().expect("one client port is free"),
        };
        self.state.client_port = Some(from_port);
        self.call_from(from_port, to, port, length, options)
    }

    /// Starts an RPC from a client port that the application has opened through [`HostCtx::endpoint`].
    ///
    /// # Errors
    /// As [`Endpoint::send_request`].
    pub fn call_from(
        &mut self,
        from_port: u16,
        to: usize,
        port: u16,
        length: u32,
        options: CallOptions,
    ) -> Result<RpcKey, SendError> {
        let (now, address) = (self.clock(), host_address(to));
        let rpc = self.endpoint.send_request(now, from_port, address, port, length, options)?;
        self.state.store.start_client(rpc, to as u32, options.cookie, length);
        self.state.counts.started += 1;
        Ok(rpc)
    }

    /// Closes the client port; its RPCs end as aborted. The next [`HostCtx::call`] opens a new one.
    pub fn close_client_port(&mut self) {
        if let Some(port) = self.state.client_port.take() {
            self.endpoint.close_port(self.clock(), port);
        }
    }

    /// Closes a server or client port; its RPCs end as aborted.
    pub fn unbind(&mut self, port: u16) {
        self.endpoint.close_port(self.clock(), port);
    }

    /// Reports to the endpoint, as ICMP would, that a host or one of its ports is unreachable.
    pub fn report_unreachable(&mut self, host: usize, report: Unreachable) {
        self.endpoint.peer_unreachable(self.clock(), host_address(host), report);
    }

    /// Answers a request for which [`App::on_request`] returned [`Reply::Never`].
    ///
    /// # Errors
    /// As [`Endpoint::send_response`].
    pub fn reply(&mut self, rpc: RpcKey, length: u32) -> Result<(), SendError> {
        self.endpoint.send_response(self.clock(), rpc, length)?;
        match self.state.store.get(rpc) {
            Some(entry) => entry.outgoing = length,
            None => self.state.store.violation(format!("takes a response for {rpc:?}, which is not open")),
        }
        Ok(())
    }

    /// Aborts an RPC.
    pub fn abort(&mut self, rpc: RpcKey) {
        self.endpoint.abort(self.clock(), rpc);
    }

    /// Sets a timer: [`App::on_timer`] is called at `at`, which must not be in the past.
    pub fn set_timer(&mut self, at: Time, token: u64) {
        let (host, life) = (self.state.index, self.state.life);
        let event = Event::Host(HostEvent::AppTimer { host, life, token });
        self.fabric.queue.push(at.max(self.fabric.now), event);
    }

    /// Returns the host's endpoint, for actions without a method here.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        self.endpoint
    }
}
