//! The endpoint: one type, one drive contract.

use std::net::SocketAddr;

use homa_trace::Trace;

use crate::config::{Config, ConfigError};
use crate::contract::{
    CallOptions, Event, PortError, Reassembly, RpcKey, RxPacket, SendError, Transmit,
};
use crate::stats::Stats;
use crate::time::Time;

/// A Homa host's protocol state.
pub struct Endpoint {
    stats: Stats,
    trace: Trace,
}

impl Endpoint {
    /// A new endpoint without ports.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, trace: Trace) -> Result<Endpoint, ConfigError> {
        config.validate()?;
        Ok(Endpoint { stats: Stats::default(), trace })
    }
    /// Opens a server port, 1 to 32767.
    pub fn bind(&mut self, port: u16) -> Result<(), PortError> {
        Err(PortError::OutOfRange(port))
    }
    /// Opens a client port, 32768 to 65535.
    pub fn open_client_port(&mut self) -> Result<u16, PortError> {
        Err(PortError::NoneFree)
    }
    /// Closes a port; its RPCs are aborted, a few per drive call.
    pub fn close_port(&mut self, _now: Time, _port: u16) {}
    /// Starts an RPC.
    #[allow(clippy::too_many_arguments, reason = "stub")]
    pub fn send_request(
        &mut self,
        _now: Time,
        _from_port: u16,
        _to: SocketAddr,
        _to_port: u16,
        _length: u32,
        _options: CallOptions,
    ) -> Result<RpcKey, SendError> {
        Err(SendError::EmptyMessage)
    }
    /// Answers a request.
    pub fn send_response(&mut self, _now: Time, _rpc: RpcKey, _length: u32) -> Result<(), SendError> {
        Err(SendError::UnknownRpc)
    }
    /// Gives an RPC up, either side. A dead key is ignored.
    pub fn abort(&mut self, _now: Time, _rpc: RpcKey) {}
    /// Takes a burst of packets.
    pub fn handle_packets<'a>(
        &mut self,
        _now: Time,
        _burst: impl IntoIterator<Item = RxPacket<'a>>,
        _sink: &mut impl Reassembly,
    ) {
    }
    /// The next packet to send now, if any.
    pub fn poll_transmit(&mut self, _now: Time) -> Option<Transmit> {
        None
    }
    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    /// When `handle_timeout` (or, for the pacer, `poll_transmit`) wants to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }
    /// Does what is due.
    pub fn handle_timeout(&mut self, _now: Time) {}
    /// ICMP says that nobody is at `peer`.
    pub fn peer_unreachable(&mut self, _now: Time, _peer: SocketAddr) {}
    /// Largest Homa packet (header included) that this peer's path carries.
    pub fn set_peer_max_packet(&mut self, _peer: SocketAddr, _bytes: u32) {}
    /// RPCs open.
    pub fn open_rpcs(&self) -> usize {
        0
    }
    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
    /// The recorder.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }
    /// Proves the whole state; panics with what is wrong. Costs time in proportion to the state: for tests.
    pub fn check(&self) {}
    /// Whether everything is back to nothing: no RPC, buffer, timer, queued packet (finished ids may remain).
    pub fn is_idle(&self) -> bool {
        true
    }
}
