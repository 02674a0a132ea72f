//! Sets whether a socket accepts requests.

use std::sync::Arc;

use super::{Socket, SocketShard};
use crate::api::server::Server;
use crate::types::error::HostError;

impl Socket {
    /// Sets whether requests are accepted. A server port accepts them from the start, a client port only
    /// after this call. While a port does not accept requests, clients get the same answer as if no process
    /// had the port. A request that has begun to arrive is still received.
    ///
    /// Processes that share an address remember when a process with a server port exits. Clients of that port
    /// then get an error which says that the request may have run. For a client port this is not remembered:
    /// open calls to such a port end as if no process had the port.
    ///
    /// # Errors
    /// The socket is closed, or it has a client port and its host has several endpoints: requests may reach
    /// any endpoint, but a client port belongs to one.
    pub fn accept_requests(&self, accept: bool) -> Result<(), HostError> {
        if accept {
            self.become_server()?;
        }
        for SocketShard { shared, index } in &self.members {
            let mut engine = shared.lock();
            if engine.sockets.open[*index].closed {
                return Err(HostError::Closed);
            }
            engine.endpoint.accept_requests(self.number, accept);
        }
        Ok(())
    }

    /// Ensures that the socket has a server that takes requests.
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
        // Requests must not be accepted before this, since receiving threads must know where the requests
        // are.
        self.server.get_or_init(|| Server::at(Arc::clone(&self.endpoints), self.number, vec![server], None));
        Ok(())
    }
}
