//! A host: one address on the network, and all that passes through it.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::{BufferSizes, Driver};
use homa_proto::{Config, Endpoint, PeerInfo, PortError};
use homa_trace::{Clock, Trace};

use crate::client::Client;
use crate::core::{Core, Life, Limits};
use crate::error::HostError;
use crate::metrics::Metrics;
use crate::progress;
use crate::segment::{self, FIRST_CLIENT_PORT, Founding, Segment, SegmentError};
use crate::server::Server;
use crate::share::{self, Share};
use crate::shared::Shared;
use crate::sleep::Bell;
use crate::wait::{self, WaitOn};

/// What carries a host's packets. Both sides of a call need the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DriverChoice {
    /// UDP, which takes no privileges. A peer is an address and a UDP port.
    #[default]
    Udp,
    /// IP itself (protocol 146), as Linux Homa has it: for exchanging RPCs with a kernel. It takes the capability
    /// CAP_NET_RAW. A peer is an address; UDP ports, where an address has one, are ignored.
    Raw,
    /// A network device itself, received from by a ring in mapped memory: faster than a socket, for hosts on one device. It takes
    /// the capability CAP_NET_RAW. The wire is that of UDP, or of raw IP where [`PacketConfig::carrier`] says so, and peers
    /// may use any driver of that wire.
    Packet,
}

/// How a host is set up.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What carries the packets; UDP by default.
    pub driver: DriverChoice,
    /// Address of this host. Over UDP its port is the UDP port; port 0 takes any free one, and is the default, on all IPv4
    /// addresses. Over raw IP it has no port, and `[::]` is all addresses of both IP versions. For a device it is one of the
    /// device's addresses, and tells which device where [`PacketConfig::interface`] does not.
    pub bind: SocketAddr,
    /// Settings of the protocol. A `seed` or `incarnation` of 0 is replaced by a random number and the time of day, and a
    /// `link_mbps` of `None` by the speed that the device tells, if it tells one.
    pub protocol: Config,
    /// Settings of the UDP socket; its `bind` is ignored, the one above counts.
    pub udp: UdpConfig,
    /// Settings of the raw IP sockets; its `bind` is ignored, the one above counts.
    pub raw: RawConfig,
    /// Settings of a driver of a device; its `bind` is ignored, the one above counts.
    pub packet: PacketConfig,
    /// How long a thread that waits polls before it sleeps in the kernel, counted from the last packet; zero: sleeps at once.
    /// The default is a little more than it costs to wake a thread on another core, so that polling at worst about
    /// doubles what waiting costs, and a peer that answers at once finds this host awake.
    pub poll: Duration,
    /// Events that the time trace keeps; 0: no trace.
    pub trace_records: usize,
    /// Calls submitted on one client whose completion nobody has taken.
    pub max_completions: usize,
    /// Bytes of requests that wait for `recv`, over all servers of the host; beyond it requests are given up and counted.
    pub max_queued_request_bytes: u64,
    /// Where the segment lies that the processes of a host share over raw IP: a file per network namespace. All of them must
    /// name the same directory, in memory rather than on a disk. /dev/shm by default.
    pub segment_dir: PathBuf,
    /// How long dropping the host waits for its last answers to be acknowledged.
    pub linger: Duration,
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig {
            driver: DriverChoice::default(),
            bind: SocketAddr::from(([0, 0, 0, 0], 0)),
            protocol: Config::default(),
            udp: UdpConfig::default(),
            raw: RawConfig::default(),
            packet: PacketConfig::default(),
            poll: Duration::from_micros(50),
            trace_records: 0,
            max_completions: 1 << 16,
            max_queued_request_bytes: 1 << 30,
            segment_dir: PathBuf::from("/dev/shm"),
            linger: Duration::from_secs(1),
        }
    }
}

/// One address of this machine (over UDP: an address and a UDP port) and the protocol's state for it. Peers, grants, the uplink and acknowledgements are
/// common to all its clients and servers.
///
/// Dropping it shuts it down; answers that are on their way are delivered first, for at most [`HostConfig::linger`].
pub struct Host {
    shared: Arc<Shared>,
    /// What this host shares with other processes.
    segment: Option<Arc<Segment>>,
    local_addr: SocketAddr,
    buffer_sizes: Option<BufferSizes>,
    progress: Mutex<Option<JoinHandle<()>>>,
    linger: Duration,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl Host {
    /// A host on the packet path that the configuration chooses.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn bind(config: HostConfig) -> Result<Host, HostError> {
        let bind = config.bind;
        let driver: Box<dyn Driver> = match config.driver {
            DriverChoice::Udp => Box::new(UdpDriver::bind(&UdpConfig { bind, ..config.udp.clone() })?),
            DriverChoice::Raw => Box::new(RawDriver::bind(&RawConfig { bind, ..config.raw.clone() })?),
            DriverChoice::Packet => {
                Box::new(PacketDriver::open(&PacketConfig { bind, ..config.packet.clone() })?)
            }
        };
        Host::with_driver(driver, config)
    }

    /// A host on a packet path of the caller's choice; `driver`, `bind`, `udp`, `raw` and `packet` of the
    /// configuration are ignored.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn with_driver(mut driver: Box<dyn Driver>, config: HostConfig) -> Result<Host, HostError> {
        let mut protocol = config.protocol;
        if protocol.seed == 0 {
            // Seeded by the system, once per process, and different for each instance.
            protocol.seed = RandomState::new().build_hasher().finish();
        }
        if protocol.incarnation == 0 {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            protocol.incarnation = since_1970.as_millis() as u64;
        }
        protocol.link_mbps = protocol.link_mbps.or(driver.link_mbps());
        let trace = match config.trace_records {
            0 => Trace::off(),
            records => Trace::new(records, Clock::Tsc),
        };
        let segment = match driver.local_addr().port() {
            // Packets travel in IP itself: the address is that of all processes of this network namespace.
            0 => Some(Arc::new(join_segment(&config.segment_dir, &mut protocol)?)),
            _ => None,
        };
        let mut endpoint = Endpoint::new(protocol, trace)?;
        let (start, start_ns) = (Instant::now(), share::monotonic_ns());
        let system = |what| move |source| HostError::System { what, source };
        let fd = driver.poll_fd().map(|fd| fd.try_clone_to_owned()).transpose();
        let fd = fd.map_err(system("a second descriptor of the packet path"))?;
        let bell = || Bell::new().map_err(system("an eventfd"));
        let bells = (bell()?, bell()?);
        let local_addr = driver.local_addr();
        let buffer_sizes = driver.buffer_sizes();
        let limits = Limits {
            completions: config.max_completions,
            queued_request_bytes: config.max_queued_request_bytes,
        };
        let part = match &segment {
            Some(segment) => Some(Share::new(Arc::clone(segment), start_ns, &mut endpoint, &mut *driver)?),
            None => None,
        };
        let mut core = Core::new(endpoint, driver, limits);
        core.share = part;
        let shared = Arc::new(Shared::new(core, start, fd, config.poll, bells));
        Ok(Host {
            shared,
            segment,
            local_addr,
            buffer_sizes,
            progress: Mutex::new(None),
            linger: config.linger,
        })
    }

    /// The address of this host. Its IP is unspecified where it was bound so, and its port is 0 over raw IP.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Sizes of the kernel's buffers, where the packet path has any.
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
        // The other processes are asked first: that may take a while, and the network's packets must not wait for it.
        let chosen = self.segment.as_ref().map(|segment| segment.open_client()).transpose()?;
        let client = self.shared.lock().open_client(self.shared.now(), chosen)?;
        Ok(Client::new(Arc::clone(&self.shared), client))
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
        let mut core = self.shared.lock();
        let server = core.open_server(self.shared.now(), port, bound)?;
        core.leave(self.shared.now());
        drop(core);
        Ok(Server::new(Arc::clone(&self.shared), server, port))
    }

    /// Every counter of the host.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let core = self.shared.lock();
        let mut host = core.counts.clone();
        host.open_rpcs = core.endpoint.open_rpcs() as u64;
        host.open_calls = core.calls.len() as u64;
        host.queued_requests = core.servers.iter().map(|(_, port)| Core::queue_len(port) as u64).sum();
        host.queued_request_bytes = core.queued_bytes;
        host.outgoing_bytes = core.buffers.outgoing_bytes();
        host.incoming_bytes = core.buffers.incoming_bytes();
        host.buffers_allocated = core.buffers.allocations();
        host.known_peers = core.endpoint.known_peers() as u64;
        host.link_mbps = core.endpoint.config().link_mbps.unwrap_or(0).into();
        host.unsched_limit_bytes = core.endpoint.unsched_limit().unwrap_or(0).into();
        host.leader_sleeps = core.waiting.leader_sleeps;
        host.leader_rings = core.waiting.leader_rings;
        host.handovers = core.waiting.handovers;
        host.progress_takeovers = core.progress.takeovers;
        if let Some(share) = &core.share {
            share.count(&mut host);
        }
        Metrics { endpoint: core.endpoint.stats().clone(), driver: core.driver.stats(), host }
    }

    /// What is known of each peer, by address: round-trip time, how much goes to it unasked, what limits that. At most
    /// [`max_peers`](Config::max_peers) entries.
    ///
    /// It is not part of [`metrics`](Host::metrics), which may be read every second at no cost worth mentioning: this takes
    /// time and memory in proportion to the number of peers, and packets wait while it copies: some milliseconds where
    /// tens of thousands are known.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerInfo> {
        // The memory is had before the lock is taken, and the order is made after it: packets wait for the copy only.
        let mut peers = Vec::with_capacity(self.shared.lock().endpoint.known_peers());
        peers.extend(self.shared.lock().endpoint.peers());
        peers.sort_unstable_by_key(|peer| peer.addr);
        peers
    }

    /// The time trace so far, as a dump that `homa_trace::read_dump` reads; without events where
    /// [`HostConfig::trace_records`] is 0.
    #[must_use]
    pub fn trace_dump(&self) -> Vec<u8> {
        let mut dump = Vec::new();
        // A vector takes whatever is written to it.
        let _ = self.shared.lock().endpoint.trace().write_dump(&mut dump);
        dump
    }

    /// Shuts the host down. New calls and requests are refused at once, and open calls end in `Closed`. Requests in hand may
    /// still be answered, and answers are sent and repeated until their clients have acknowledged them, for at most
    /// `deadline`. Then all state goes. Returns whether every request in hand was answered and every answer acknowledged.
    pub fn shutdown(self, deadline: Duration) -> bool {
        self.close(deadline, true)
    }

    fn close(&self, deadline: Duration, in_hand: bool) -> bool {
        let shared = &*self.shared;
        let mut core = shared.lock();
        if core.life == Life::Closed {
            return true;
        }
        core.begin_close(shared.now());
        let until = shared.after(deadline);
        let drained = wait::wait(shared, core, WaitOn::Drained, Some(until), |core| {
            core.is_drained(in_hand).then_some(())
        });
        shared.lock().finish_close(shared.now());
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(progress) = progress {
            // It ends for no other reason, and a panic of it has been reported.
            let _ = progress.join();
        }
        drained.is_some()
    }

    /// Starts the progress thread with the first port.
    fn start_progress(&self) -> Result<(), HostError> {
        if !self.shared.lock().start_progress() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("homa-progress".to_owned());
        let thread = thread.spawn(move || progress::run(&shared));
        let thread = thread.map_err(|source| HostError::System { what: "a thread", source })?;
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }
}

/// Joins the processes that share this host's address. The incarnation is then theirs.
fn join_segment(dir: &Path, protocol: &mut Config) -> Result<Segment, SegmentError> {
    let founding = Founding {
        incarnation: protocol.incarnation,
        seed: protocol.seed,
        cutoffs: protocol.unsched_cutoffs,
        budget: protocol.max_incoming.into(),
    };
    let segment = Segment::open(&segment::path_in(dir)?, &founding)?;
    protocol.incarnation = segment.incarnation();
    Ok(segment)
}

impl Drop for Host {
    fn drop(&mut self) {
        self.close(self.linger, false);
    }
}
