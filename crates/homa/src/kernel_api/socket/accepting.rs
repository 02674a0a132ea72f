//! Whether a socket accepts requests.

use std::sync::Arc;

use super::{Socket, SocketShard};
use crate::api::error::HostError;
use crate::api::server::Server;

impl Socket {
    /// Whether requests are accepted, as they are on a server port from the start and on a client port from when this says so. While they
    /// are not, it is to clients as if nobody had the port. What has begun to arrive is received all the same.
    ///
    /// Processes that share an address remember the end of one that had a server port, and clients are told that what they asked for may
    /// have run. That it had a client port is not remembered: calls that were open are told that nobody has it.
    ///
    /// # Errors
    /// It is closed; or it has a client port, and its host several endpoints: requests come to any of them, and a client port is in one.
    pub fn accept_requests(&self, accept: bool) -> Result<(), HostError> {
        if accept {
            self.become_server()?;
        }
        for SocketShard { shared, index } in &self.members {
            let mut engine = shared.lock();
            if engine.sockets[*index].closed {
                return Err(HostError::Closed);
            }
            engine.endpoint.accept_requests(self.number, accept);
        }
        Ok(())
    }

    /// Sees that there is something that takes requests.
    fn become_server(&self) -> Result<(), HostError> {
        let count = self.endpoints.members.len();
        let _ports = self.endpoints.lock_ports();
        if self.server.get().is_some() {
            return Ok(());
        }
        if count > 1 {
            return Err(HostError::ClientPortOfSeveral { count });
        }
        let SocketShard { shared, index } = &self.members[0];
        let server = shared.lock().open_socket_server(*index)?;
        // Requests are accepted only behind this: threads that receive must know where they are.
        self.server.get_or_init(|| Server::at(Arc::clone(&self.endpoints), self.number, vec![server], None));
        Ok(())
    }
}
