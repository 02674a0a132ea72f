//! A host: one address on the network, and the state of all traffic through that address.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homa_driver::BufferSizes;
use homa_proto::{PeerInfo, PortError};

use crate::api::client::Client;
use crate::api::endpoints::Endpoints;
use crate::api::server::Server;
use crate::observe::freeze::FreezeState;
use crate::observe::metrics::Metrics;
use crate::runtime::engine::Phase;
use crate::runtime::progress_thread;
use crate::runtime::wait;
use crate::runtime::wait_target::WaitTarget;
use crate::tenancy::process_group::{EndpointSlots, FIRST_CLIENT_PORT};
use crate::types::error::HostError;

/// One address of this machine (over UDP, an address and a UDP port) and the protocol's state for it. All
/// clients and servers of a host share its peers, grants, uplink and acknowledgements.
///
/// Dropping a host shuts it down. Answers in flight are delivered first, for at most
/// [`HostConfig::linger`](crate::HostConfig::linger).
pub struct Host {
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) freezing: Arc<FreezeState>,
    /// The segment that this host shares with other processes.
    pub(crate) segment: Option<Arc<EndpointSlots>>,
    pub(crate) local_addr: SocketAddr,
    pub(crate) buffer_sizes: Option<BufferSizes>,
    /// The progress threads, one for each endpoint, once a port has been opened.
    pub(crate) progress: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) linger: Duration,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl Host {
    /// Returns the address of this host. The IP is unspecified if the host was bound to the unspecified
    /// address, and the port is 0 over raw IP.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the sizes of the kernel's buffers, if the packet path has any.
    #[must_use]
    pub fn buffer_sizes(&self) -> Option<BufferSizes> {
        self.buffer_sizes
    }

    /// Opens a client port.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn client(&self) -> Result<Client, HostError> {
        self.start_progress()?;
        let opened = self.endpoints.open_client(|| self.choose_client_port(), self.local_addr);
        opened.map(|(ports, home, placement)| Client::new(ports, home, placement))
    }

    /// Chooses a client port jointly with the other processes of this host, if any. The choice may take a
    /// while, so call this before taking any lock: packets must not wait for the choice.
    pub(crate) fn choose_client_port(&self) -> Result<Option<u16>, HostError> {
        Ok(self.segment.as_ref().map(|segment| segment.open_client()).transpose()?)
    }

    /// Binds a server to a Homa port, 1 to 32767.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn server(&self, port: u16) -> Result<Server, HostError> {
        self.start_progress()?;
        let bound = match &self.segment {
            Some(_) if port == 0 || port >= FIRST_CLIENT_PORT => {
                return Err(PortError::OutOfRange(port).into());
            }
            Some(segment) => Some(segment.bind(port)?),
            None => None,
        };
        Server::open(Arc::clone(&self.endpoints), port, bound)
    }

    /// Returns every counter of the host, summed over its endpoints.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::sum(&self.metrics_by_endpoint())
    }

    /// Returns every counter of each endpoint, in endpoint order.
    #[must_use]
    pub fn metrics_by_endpoint(&self) -> Vec<Metrics> {
        self.endpoints.members.iter().map(|shared| shared.lock().metrics()).collect()
    }

    /// Returns the time since the host was created.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.endpoints.first().now().as_ns())
    }

    /// Returns what this host knows about each peer, sorted by address: round-trip time, unscheduled bytes,
    /// and the limits on them. There are at most [`max_peers`](homa_proto::Config::max_peers) entries for
    /// each endpoint.
    ///
    /// This is separate from [`metrics`](Host::metrics), which can be read every second at negligible cost.
    /// This function takes time and memory in proportion to the number of peers. Packets have to wait during
    /// the copy, for a few milliseconds if tens of thousands of peers are known.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerInfo> {
        let mut all: Vec<PeerInfo> = Vec::new();
        for shared in &self.endpoints.members {
            // Reserve memory before taking the lock, and sort after releasing it, so that packets wait only
            // for the copy.
            let known = shared.lock().endpoint.known_peers();
            all.reserve(known);
            all.extend(shared.lock().endpoint.peers());
        }
        all.sort_by_key(|peer| peer.addr);
        all.dedup_by(|other, peer| {
            let same = other.addr == peer.addr;
            if same {
                peer.merge(other);
            }
            same
        });
        all
    }

    /// Shuts the host down. New calls and requests are refused at once, and open calls end with `Closed`.
    /// Requests that the application has taken may still be answered. For at most `timeout`, answers are
    /// sent, and resent as needed, until their clients have acknowledged them. Then all state is dropped.
    /// Returns whether every taken request was answered and every answer was acknowledged.
    pub fn shutdown(self, timeout: Duration) -> bool {
        self.close(timeout, true)
    }

    fn close(&self, timeout: Duration, in_hand: bool) -> bool {
        let members = &self.endpoints.members;
        if self.endpoints.first().lock().phase == Phase::Closed {
            return true;
        }
        for shared in members {
            shared.lock().begin_close(shared.now());
        }
        let until = self.endpoints.first().after(timeout);
        // Drain one endpoint after another. In the meantime the progress threads of the later endpoints keep
        // working.
        let drained = members.iter().fold(true, |drained, shared| {
            let this = wait::wait(shared, shared.lock(), WaitTarget::Drained, Some(until), |engine| {
                engine.is_drained(in_hand).then_some(())
            });
            drained && this.is_some()
        });
        for shared in members {
            shared.lock().finish_close(shared.now());
        }
        let progress = std::mem::take(&mut *self.progress.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in progress {
            // The thread does not end for any other reason, and a panic in it has already been reported.
            let _ = thread.join();
        }
        drained
    }

    /// Starts the progress threads when the first port opens.
    pub(crate) fn start_progress(&self) -> Result<(), HostError> {
        for shared in &self.endpoints.members {
            if !shared.lock().start_progress() {
                continue;
            }
            let shared = Arc::clone(shared);
            let thread = thread::Builder::new().name("homa-progress".to_owned());
            let thread = thread.spawn(move || progress_thread::run_and_close_on_panic(&shared));
            let thread = thread.map_err(|source| HostError::System { what: "a thread", source })?;
            self.progress.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.close(self.linger, false);
    }
}
