//! Opening and closing ports (PROTOCOL.md ID, ABORT).

use super::state::Endpoint;
use crate::contract::PortError;
use crate::time::Time;

impl Endpoint {
    /// Opens a server port, 1 to 32767. It accepts requests.
    ///
    /// # Errors
    /// The port is out of range or taken.
    pub fn bind(&mut self, port: u16) -> Result<(), PortError> {
        self.tables.ports.bind(port)
    }

    /// Opens a client port, 32768 to 65535. It does not [accept requests](Endpoint::accept_requests) yet.
    ///
    /// # Errors
    /// All client ports are open.
    pub fn open_client_port(&mut self) -> Result<u16, PortError> {
        self.tables.ports.open_client()
    }

    /// Opens a port that the caller chose, for a server or a client. A server port, 1 to 32767, accepts
    /// requests; a client port does not [accept requests](Endpoint::accept_requests) yet.
    ///
    /// # Errors
    /// The port is 0, or open.
    pub fn open_port(&mut self, port: u16) -> Result<(), PortError> {
        self.tables.ports.open(port)
    }

    /// Returns whether a port is open. A closed port stays open until the last of its RPCs has been freed.
    pub fn is_port_open(&self, port: u16) -> bool {
        self.tables.ports.is_open(port)
    }

    /// Sets whether an open port accepts requests from now on. If it does not, new requests are answered as
    /// if the port were not open (ID-15). Requests that have begun to arrive continue. Does nothing on a port
    /// that is not open or is being closed.
    pub fn accept_requests(&mut self, port: u16, accept: bool) {
        self.tables.ports.accept(port, accept && !self.lifetimes.reaper.is_closing(port));
    }

    /// Returns whether a port is open and accepts requests.
    pub fn accepts_requests(&self, port: u16) -> bool {
        self.tables.ports.accepts(port)
    }

    /// Returns whether a port is being closed. Some of its RPCs may still exist.
    pub fn is_port_closing(&self, port: u16) -> bool {
        self.lifetimes.reaper.is_closing(port)
    }

    /// Closes a port, immediately if it has no RPCs. Otherwise its RPCs are aborted, a few per drive call,
    /// and the port is not reassigned before all of them have ended.
    pub fn close_port(&mut self, now: Time, port: u16) {
        self.advance(now);
        if self.tables.ports.is_open(port) {
            self.tables.ports.accept(port, false);
            match self.tables.port_rpcs.oldest(port) {
                Some(_) => self.lifetimes.reaper.close_port(port),
                None => self.tables.ports.close(port),
            }
        }
    }

    /// Returns the number of open ports, server and client ports together.
    pub fn open_ports(&self) -> usize {
        self.tables.ports.open_count()
    }
}
