//! A host: one address on the network, and all that passes through it.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{XdpConfig, XdpDriver};
use homa_driver::{BufferSizes, Driver, RxBurst};
use homa_proto::{Config, Endpoint, MAX_ENDPOINTS, PeerInfo, PortError, derive_seed};
use homa_steer::PolicyName;
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;
use homa_trace::{Clock, MonotonicClock, Trace};

use crate::api::client::Client;
use crate::api::early::{EarlyServer, ReadEarly};
use crate::api::error::HostError;
use crate::api::server::Server;
use crate::observe::freeze::FreezeState;
use crate::observe::metrics::Metrics;
use crate::observe::prometheus;
use crate::runtime::engine::{Engine, Life, Limits};
use crate::runtime::progress;
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::sleep::WakeFd;
use crate::runtime::wait::{self, WaitTarget};
use crate::runtime::wake_chooser::WakeChooser;
use crate::tenancy::endpoint_group::{EndpointGroup, GroupMember};
use crate::tenancy::endpoints::Endpoints;
use crate::tenancy::host_lease::{HostLease, LeaseSource};
use crate::tenancy::placement::Placement;
use crate::tenancy::process_group::siblings::GroupPool;
use crate::tenancy::process_group::{
    self, CutoffSet, EndpointSlots, FIRST_CLIENT_PORT, Segment, SegmentError, SegmentParameters,
};
use crate::tenancy::processes::Share;

/// What the choice of endpoints derives from the host's seed.
const PLACEMENT_SEED: u64 = 0x91ac;

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
    /// A network device's receive queues, which a program in the kernel feeds (AF_XDP): for a host that has the device to itself, but
    /// for what the kernel does with it. It takes the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. The wire is as with
    /// a device's ring.
    Xdp,
}

/// How a host is set up.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What carries the packets; UDP by default.
    pub driver: DriverChoice,
    /// Address of this host. Over UDP its port is the UDP port; port 0 takes any free one, and is the default, on all IPv4
    /// addresses. Over raw IP it has no port, and `[::]` is all addresses of both IP versions. For a device it is one of the
    /// device's addresses, and tells which device where [`PacketConfig::interface`] or [`XdpConfig::interface`] does not.
    pub bind: SocketAddr,
    /// Endpoints of this host, 1 to [`MAX_ENDPOINTS`]: each has a socket, a lock and its part of the RPCs, and packets are
    /// steered to the one that owns their RPC. 1 by default: more are worth something only where several threads keep several cores
    /// busy with the network, about one per such core; elsewhere they cost, since threads of one endpoint do not help
    /// out at another before they have nothing to do, and what rides on other packets must be handed over. Each client port lives in
    /// one of them, dealt out in turn; server ports are open in all. Grants, uplink and cutoffs remain the host's; the other
    /// limits here and in `protocol` are each endpoint's own. Over UDP the kernel steers packets to sockets, on a device frames to rings
    /// ([`PacketDriver::open_group`]) or to AF_XDP sockets at each queue ([`XdpDriver::open_group`]), and over raw IP each socket's filter
    /// takes its own ([`RawDriver::bind_group`]), where each endpoint also counts as one of the [`MAX_PROCESSES`](crate::MAX_PROCESSES).
    pub endpoints: usize,
    /// The policy that chooses the endpoint of each call that somebody waits for, and a client's own, where the host has several: one of
    /// [`ENDPOINT_POLICIES`](crate::ENDPOINT_POLICIES), with endpoints for cores, a client and its server for a flow, and the RPCs open in an endpoint for its
    /// load. `None`, the default: clients are dealt out in turn, and a call looks at its client's endpoint alone. With a policy each client
    /// takes a port in each endpoint, and each call the choice's lock: for clients that many threads share.
    pub endpoint_policy: Option<PolicyName>,
    /// Settings of the protocol; `endpoints` and `endpoint` of it are set by the host. A `seed` or `incarnation` of 0 is replaced by a random number and the time of day, and a
    /// `link_mbps` of `None` by the speed that the device tells, if it tells one.
    pub protocol: Config,
    /// Settings of the UDP socket; its `bind` is ignored, the one above counts.
    pub udp: UdpConfig,
    /// Settings of the raw IP sockets; its `bind` is ignored, the one above counts.
    pub raw: RawConfig,
    /// Settings of a driver of a device; its `bind` is ignored, the one above counts.
    pub packet: PacketConfig,
    /// Settings of a driver of a device's queues; its `bind` is ignored, the one above counts.
    pub xdp: XdpConfig,
    /// How long a thread that waits polls before it sleeps in the kernel, counted from the last packet; zero: sleeps at once.
    /// The default is a little more than it costs to wake a thread on another core, so that polling at worst about
    /// doubles what waiting costs, and a peer that answers at once finds this host awake.
    pub poll: Duration,
    /// Which of the threads or tasks that sleep at an endpoint and could do the same is woken. The last to fall asleep by default: its caches are
    /// the warmest, and at low load few threads do all the work. What an order needs to know of the cores is what the host itself sees:
    /// where its threads received packets, were woken, and fell asleep.
    pub wake_order: WakeOrder,
    /// Most datagrams, or frames of a device, that a thread takes at a time, up to [`BURST_PACKETS`](homa_driver::BURST_PACKETS), which is
    /// also what larger caps come to. What came together is handled together, and what answers it, grants for one, goes out
    /// afterwards: 1 answers each before the next is looked at.
    pub batch_cap: BatchCap,
    /// Keep the processors out of deep sleep while RPCs are in flight, and a tenth of a second longer: for hosts whose threads
    /// sleep and must wake up at once. It holds `/dev/cpu_dma_latency`, which takes root or write access to it, is the
    /// whole machine's business, and costs power; where it cannot be had, that is said once (by `tracing`) and the host
    /// goes on without. False by default.
    pub low_latency: bool,
    /// Events that the time trace of each endpoint keeps, rounded up to a power of two; 0: no trace. 32 bytes of memory each. The default, half a
    /// megabyte, holds the last thousand short RPCs or more. A short RPC makes about a dozen events on each side, and an event costs 3 ns and
    /// what the processor takes to read its time-stamp counter, 10 to 25 ns: where every round trip counts, compare with 0.
    pub trace_records: usize,
    /// Freeze the trace when a call of this host took at least so long, from when the application made it to its end, good or bad. `None`, the
    /// default: no call does.
    pub trace_freeze_slower_than: Option<Duration>,
    /// Freeze the trace when a peer asks for it by a FREEZE packet; true by default. Anybody who can send packets to this host can send
    /// one. It stops the recording until [`Host::unfreeze_trace`], is counted, and does nothing else: where strangers are about and
    /// traces matter, false is better.
    pub trace_obey_freeze: bool,
    /// Have all peers freeze their traces at the same moment when this host's is frozen by a slow call or by hand; false by default.
    pub trace_freeze_peers: bool,
    /// Record also when the kernel took each packet from its device, and when it gave each to it, where the packet path tells: what lies
    /// between that and the bursts that they are in. UDP, raw IP and packet rings do, AF_XDP does not. UDP and raw IPv6 then also
    /// record the priority with which packets came, which the other paths record anyway. False by default: it costs some
    /// hundred nanoseconds for a packet received and more for one sent, which ends a thread's sleep, too; and packets that the kernel
    /// merged, or cuts from one datagram, have one time.
    pub trace_device_times: bool,
    /// Calls submitted on one client whose completion nobody has taken.
    pub max_completions: usize,
    /// Bytes of requests that wait for `recv`, over all servers of the host; beyond it requests are given up and counted.
    pub max_queued_request_bytes: u64,
    /// Where the segment lies that the processes of a host share over raw IP: a file per network namespace. All of them must
    /// name the same directory, in memory rather than on a disk, which nobody else can write to; it is made if it is not there. By default
    /// /run/homa for root, `homa` in `XDG_RUNTIME_DIR` where that is set, else `/dev/shm/homa-UID`.
    pub segment_dir: PathBuf,
    /// How long dropping the host waits for its last answers to be acknowledged.
    pub linger: Duration,
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig {
            driver: DriverChoice::default(),
            bind: SocketAddr::from(([0, 0, 0, 0], 0)),
            endpoints: 1,
            endpoint_policy: None,
            protocol: Config::default(),
            udp: UdpConfig::default(),
            raw: RawConfig::default(),
            packet: PacketConfig::default(),
            xdp: XdpConfig::default(),
            poll: Duration::from_micros(50),
            wake_order: WakeOrder::default(),
            batch_cap: RxBurst::full_cap(),
            low_latency: false,
            trace_records: 1 << 14,
            trace_freeze_slower_than: None,
            trace_obey_freeze: true,
            trace_freeze_peers: false,
            trace_device_times: false,
            max_completions: 1 << 16,
            max_queued_request_bytes: 1 << 30,
            segment_dir: process_group::default_dir(),
            linger: Duration::from_secs(1),
        }
    }
}

/// One address of this machine (over UDP: an address and a UDP port) and the protocol's state for it. Peers, grants, the uplink and acknowledgements are
/// common to all its clients and servers.
///
/// Dropping it shuts it down; answers that are on their way are delivered first, for at most [`HostConfig::linger`].
pub struct Host {
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) freezing: Arc<FreezeState>,
    /// What this host shares with other processes.
    segment: Option<Arc<EndpointSlots>>,
    local_addr: SocketAddr,
    buffer_sizes: Option<BufferSizes>,
    /// A thread for each endpoint, once there is a port.
    progress: Mutex<Vec<JoinHandle<()>>>,
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
        let count = check_endpoints(config.endpoints)?;
        let drivers = match config.driver {
            DriverChoice::Udp => {
                boxed(UdpDriver::bind_group(&UdpConfig { bind, ..config.udp.clone() }, count)?)
            }
            DriverChoice::Raw => {
                boxed(RawDriver::bind_group(&RawConfig { bind, ..config.raw.clone() }, count)?)
            }
            DriverChoice::Packet => {
                boxed(PacketDriver::open_group(&PacketConfig { bind, ..config.packet.clone() }, count)?)
            }
            DriverChoice::Xdp => {
                boxed(XdpDriver::open_group(&XdpConfig { bind, ..config.xdp.clone() }, count)?)
            }
        };
        Host::with_drivers(drivers, config)
    }

    /// A host on a packet path of the caller's choice; `driver`, `bind`, `endpoints` and the settings of the drivers in the
    /// configuration are ignored.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn with_driver(driver: Box<dyn Driver>, config: HostConfig) -> Result<Host, HostError> {
        Host::with_drivers(vec![driver], config)
    }

    /// A host of several endpoints, each with a packet path of the caller's choice at the same address; the same settings are
    /// ignored. Paths should give the endpoint `n` the packets of the RPCs that it owns (by
    /// [`owner_of`](homa_proto::wire::owner_of)); what comes elsewhere is handed over, at a cost.
    ///
    /// # Errors
    /// See [`HostError`]; there are no paths, or more than [`MAX_ENDPOINTS`].
    pub fn with_drivers(mut drivers: Vec<Box<dyn Driver>>, config: HostConfig) -> Result<Host, HostError> {
        let count = check_endpoints(drivers.len())?;
        let first = &drivers[0];
        let (local_addr, buffer_sizes) = (first.local_addr(), first.buffer_sizes());
        let mut protocol = Config { endpoints: count, ..config.protocol.clone() };
        if protocol.seed == 0 {
            // Seeded by the system, once per process, and different for each instance.
            protocol.seed = RandomState::new().build_hasher().finish();
        }
        if protocol.incarnation == 0 {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            protocol.incarnation = since_1970.as_millis() as u64;
        }
        if protocol.first_cutoff_version <= 1 {
            // What begins at 1 everywhere proves nothing (SHARE-3).
            protocol.first_cutoff_version = RandomState::new().build_hasher().finish() as u16;
        }
        protocol.link_mbps = protocol.link_mbps.or(first.link_mbps());
        let segment = match local_addr.port() {
            // Packets travel in IP itself: the address is that of all processes of this network namespace.
            0 => Some(Arc::new(join_segment(&config.segment_dir, local_addr.ip(), &mut protocol)?)),
            _ => None,
        };
        let placement = config.endpoint_policy.filter(|_| count > 1);
        let place =
            |policy| Placement::new(policy, count as usize, derive_seed(protocol.seed, PLACEMENT_SEED));
        let placement = placement.map(place).transpose()?;
        let maker = EndpointBuilder::new(&config, protocol, segment.clone())?;
        let members = drivers.drain(..).enumerate().map(|(index, driver)| maker.endpoint(index, driver));
        let members: Vec<Arc<SharedEngine>> = members.collect::<Result<_, HostError>>()?;
        Ok(Host {
            endpoints: Arc::new(Endpoints::new(members, maker.siblings, placement)),
            freezing: maker.freezing,
            segment,
            local_addr,
            buffer_sizes,
            progress: Mutex::default(),
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
        self.endpoints.open_client(|| self.choose_client_port(), self.local_addr)
    }

    /// A client port that the processes of this host agree on, where there are several. They are asked before any lock is taken: that
    /// may take a while, and the network's packets must not wait for it.
    pub(crate) fn choose_client_port(&self) -> Result<Option<u16>, HostError> {
        Ok(self.segment.as_ref().map(|segment| segment.open_client()).transpose()?)
    }

    /// Binds a server to a Homa port, 1 to 32767.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn server(&self, port: u16) -> Result<Server, HostError> {
        self.open_server(port, None)
    }

    /// Binds a server to a Homa port, 1 to 32767, that gets large requests before they are whole, and reads them while they arrive:
    /// for servers that have something to do with the first bytes, such as writing them to a disk.
    ///
    /// ```
    /// use homa::{Host, HostConfig, ReadEarly};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let host = Host::bind(HostConfig { bind: "127.0.0.1:0".parse()?, ..HostConfig::default() })?;
    /// let server = host.early_server(99, ReadEarly::default())?;
    /// # let to = homa::ServerAddr { host: host.local_addr(), port: 99 };
    /// # let one_call = std::thread::spawn(move || {
    /// #     let host = Host::bind(HostConfig::default()).unwrap();
    /// #     host.client().unwrap().call(to, vec![1; 900_000])
    /// # });
    /// let mut request = server.recv()?;
    /// let mut sum = 0_u64;
    /// while let Some(part) = request.next_part()? {
    ///     sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    /// }
    /// request.whole()?.reply(sum.to_string())?;
    /// # assert_eq!(one_call.join().unwrap()?, "900000");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn early_server(&self, port: u16, early: ReadEarly) -> Result<EarlyServer, HostError> {
        self.open_server(port, Some(early)).map(EarlyServer::new)
    }

    fn open_server(&self, port: u16, early: Option<ReadEarly>) -> Result<Server, HostError> {
        self.start_progress()?;
        let bound = match &self.segment {
            Some(_) if port == 0 || port >= FIRST_CLIENT_PORT => {
                return Err(PortError::OutOfRange(port).into());
            }
            Some(segment) => Some(segment.bind(port)?),
            None => None,
        };
        Server::open(Arc::clone(&self.endpoints), port, bound, early)
    }

    /// Every counter of the host: those of its endpoints together.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::sum(&self.metrics_by_endpoint())
    }

    /// Every counter of each endpoint, in their order.
    #[must_use]
    pub fn metrics_by_endpoint(&self) -> Vec<Metrics> {
        self.endpoints.members.iter().map(|shared| shared.lock().metrics()).collect()
    }

    /// The metrics in the text format of Prometheus, and what is known of the peers: see [`prometheus::text`].
    #[must_use]
    pub fn prometheus_text(&self) -> String {
        prometheus::text(&[self])
    }

    /// Time since the host was made.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.endpoints.first().now().as_ns())
    }

    /// What is known of each peer, by address: round-trip time, how much goes to it unasked, what limits that. At most
    /// [`max_peers`](Config::max_peers) entries for each endpoint.
    ///
    /// It is not part of [`metrics`](Host::metrics), which may be read every second at no cost worth mentioning: this takes
    /// time and memory in proportion to the number of peers, and packets wait while it copies: some milliseconds where
    /// tens of thousands are known.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerInfo> {
        let mut all: Vec<PeerInfo> = Vec::new();
        for shared in &self.endpoints.members {
            // The memory is had before the lock is taken, and the order is made after it: packets wait for the copy only.
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

    /// Shuts the host down. New calls and requests are refused at once, and open calls end in `Closed`. Requests in hand may
    /// still be answered, and answers are sent and repeated until their clients have acknowledged them, for at most
    /// `deadline`. Then all state goes. Returns whether every request in hand was answered and every answer acknowledged.
    pub fn shutdown(self, deadline: Duration) -> bool {
        self.close(deadline, true)
    }

    fn close(&self, deadline: Duration, in_hand: bool) -> bool {
        let members = &self.endpoints.members;
        if self.endpoints.first().lock().life == Life::Closed {
            return true;
        }
        for shared in members {
            shared.lock().begin_close(shared.now());
        }
        let until = self.endpoints.first().after(deadline);
        // One after the other: what those have to do that come later, their progress threads do meanwhile.
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
            // It ends for no other reason, and a panic of it has been reported.
            let _ = thread.join();
        }
        drained
    }

    /// Starts the progress threads with the first port.
    pub(crate) fn start_progress(&self) -> Result<(), HostError> {
        for shared in &self.endpoints.members {
            if !shared.lock().start_progress() {
                continue;
            }
            let shared = Arc::clone(shared);
            let thread = thread::Builder::new().name("homa-progress".to_owned());
            let thread = thread.spawn(move || progress::run_or_close(&shared));
            let thread = thread.map_err(|source| HostError::System { what: "a thread", source })?;
            self.progress.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }
}

fn boxed<D: Driver + 'static>(drivers: Vec<D>) -> Vec<Box<dyn Driver>> {
    drivers.into_iter().map(|driver| Box::new(driver) as _).collect()
}

/// How many endpoints, if so many can be.
fn check_endpoints(count: usize) -> Result<u32, HostError> {
    match u32::try_from(count) {
        Ok(count @ 1..=MAX_ENDPOINTS) => Ok(count),
        _ => Err(HostError::Endpoints { count }),
    }
}

/// Makes the endpoints of a host.
struct EndpointBuilder<'a> {
    config: &'a HostConfig,
    protocol: Config,
    segment: Option<Arc<EndpointSlots>>,
    siblings: Option<Arc<EndpointGroup>>,
    pool: Option<Arc<GroupPool>>,
    freezing: Arc<FreezeState>,
    start_ns: u64,
}

impl<'a> EndpointBuilder<'a> {
    fn new(
        config: &'a HostConfig,
        protocol: Config,
        segment: Option<Arc<EndpointSlots>>,
    ) -> Result<EndpointBuilder<'a>, HostError> {
        let count = protocol.endpoints as usize;
        let (mut siblings, mut pool) = (None, None);
        if count > 1 {
            let system = |source| HostError::System { what: "an eventfd", source };
            siblings = Some(Arc::new(EndpointGroup::new(count).map_err(system)?));
        }
        if count > 1 && segment.is_none() {
            pool =
                Some(Arc::new(GroupPool::new(count, first_cutoffs(&protocol), protocol.max_incoming.into())));
        }
        let start_ns = MonotonicClock::new().now().ns;
        Ok(EndpointBuilder { config, protocol, segment, siblings, pool, freezing: Arc::default(), start_ns })
    }

    fn endpoint(&self, index: usize, mut driver: Box<dyn Driver>) -> Result<Arc<SharedEngine>, HostError> {
        let trace = match self.config.trace_records {
            0 => Trace::off(),
            records => Trace::new(records, Clock::Tsc),
        };
        let mut endpoint = Endpoint::new(Config { endpoint: index as u32, ..self.protocol.clone() }, trace)?;
        let system = |what| move |source| HostError::System { what, source };
        let fd = driver.poll_fd().map(|fd| fd.try_clone_to_owned()).transpose();
        let fd = fd.map_err(system("a second descriptor of the packet path"))?;
        let wake_fd = || WakeFd::new().map_err(system("an eventfd"));
        let wake_fds = (wake_fd()?, wake_fd()?);
        let limits = Limits {
            completions: self.config.max_completions,
            queued_request_bytes: self.config.max_queued_request_bytes,
        };
        let (mut share, mut stake) = (None, None);
        if let Some(family) = &self.segment {
            let part = Share::new((Arc::clone(family), index), self.start_ns, &mut endpoint, &mut *driver)?;
            endpoint.refuse_bundles(); // WIRE-23: a datagram goes to the process whose port its first packet is for.
            share = Some(part);
            let holding = LeaseSource::Segment(Arc::clone(family.member(index)));
            stake = Some(HostLease::new(holding, self.start_ns, &mut endpoint));
        } else if let Some(pool) = &self.pool {
            // Its clock is the host's own.
            stake =
                Some(HostLease::new(LeaseSource::EndpointGroup(Arc::clone(pool), index), 0, &mut endpoint));
        }
        let mut engine = Engine::new(endpoint, driver, limits);
        (engine.share, engine.stake) = (share, stake);
        engine.low_latency = self.config.low_latency;
        engine.waiting.wake_by = WakeChooser::new(self.config.wake_order);
        engine.rx.set_cap(self.config.batch_cap);
        if self.config.trace_device_times {
            // Not without being asked for, nor without a trace to keep it: where the kernel says it, it costs more than the whole trace
            // may.
            if let Some(clock) = engine.endpoint.trace().ticks() {
                engine.driver.tell_priorities();
                // A path that tells the one and not the other is of use, too.
                let tells = engine.driver.stamp_received() | engine.driver.stamp_sent();
                engine.device_clock = tells.then_some(clock);
            }
            if engine.device_clock.is_none() {
                tracing::warn!("this packet path tells no times of its device, or there is no time trace");
            }
        }
        engine.freezer.host = Arc::clone(&self.freezing);
        engine.freezer.obeys = self.config.trace_obey_freeze;
        engine.freezer.tells_peers = self.config.trace_freeze_peers;
        if let Some(bound) = self.config.trace_freeze_slower_than {
            engine.freezer.slower_than_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        }
        engine.kin = self.siblings.as_ref().map(|siblings| GroupMember::new(Arc::clone(siblings), index));
        Ok(Arc::new(SharedEngine::new(engine, self.start_ns, fd, self.config.poll, wake_fds)))
    }
}

/// The cutoffs of a host that has computed none.
fn first_cutoffs(protocol: &Config) -> CutoffSet {
    CutoffSet::founding(protocol.unsched_cutoffs, protocol.first_cutoff_version)
}

/// Joins the processes that share this host's address, with each endpoint. The incarnation is then theirs.
fn join_segment(dir: &Path, address: IpAddr, protocol: &mut Config) -> Result<EndpointSlots, SegmentError> {
    let founding = SegmentParameters {
        incarnation: protocol.incarnation,
        seed: protocol.seed,
        cutoffs: first_cutoffs(protocol),
        budget: protocol.max_incoming.into(),
    };
    let path = process_group::path_in(dir)?;
    let members = (0..protocol.endpoints).map(|_| Segment::open(&path, &founding));
    let members: Vec<Segment> = members.collect::<Result<_, _>>()?;
    protocol.incarnation = members[0].incarnation();
    protocol.id_seed = members[0].id_seed();
    let presence = members[0].announce(address)?;
    Ok(EndpointSlots::new(members).shown_by(presence))
}

impl Drop for Host {
    fn drop(&mut self) {
        self.close(self.linger, false);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use homa_driver::{DriverStats, TxPacket, Unreachable};

    use super::*;

    /// A path by which nothing comes, and that notes the cap of the burst that it was to fill, and what it was asked to tell.
    #[derive(Debug, Default)]
    struct IdleDriver {
        cap: Arc<AtomicU32>,
        told: Arc<AtomicU32>,
        /// `receive` panics while this is set.
        breaks: Arc<AtomicBool>,
    }

    impl IdleDriver {
        fn tell(&self) -> bool {
            self.told.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    impl Driver for IdleDriver {
        fn local_addr(&self) -> SocketAddr {
            ([127, 0, 0, 1], 4_000).into()
        }
        fn max_packet(&self, _: SocketAddr) -> usize {
            1_472
        }
        fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
            Ok(packets.len())
        }
        fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
            assert!(!self.breaks.load(Ordering::Relaxed), "a mistake, as a test has it");
            self.cap.store(burst.cap().packets(), Ordering::Relaxed);
            Ok(0)
        }
        fn stamp_received(&mut self) -> bool {
            self.tell()
        }
        fn stamp_sent(&mut self) -> bool {
            self.tell()
        }
        fn tell_priorities(&mut self) -> bool {
            self.tell()
        }
        fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
        fn poll_unreachable(&mut self) -> Option<Unreachable> {
            None
        }
        fn link_mbps(&self) -> Option<u32> {
            None
        }
        fn buffer_sizes(&self) -> Option<BufferSizes> {
            None
        }
        fn stats(&self) -> DriverStats {
            DriverStats::default()
        }
    }

    #[test]
    fn a_path_is_asked_for_no_more_than_the_batch_cap() {
        for batch_cap in [1, 7].map(|packets| BatchCap::new(packets).unwrap()) {
            let asked = Arc::default();
            let config = HostConfig { batch_cap, ..HostConfig::default() };
            let path = IdleDriver { cap: Arc::clone(&asked), ..IdleDriver::default() };
            let host = Host::with_driver(Box::new(path), config).unwrap();
            let server = host.server(1).unwrap();
            assert!(server.recv_timeout(Duration::from_millis(1)).is_err(), "nothing comes");
            assert_eq!(asked.load(Ordering::Relaxed), batch_cap.packets());
        }
    }

    /// A mistake in what the progress thread runs is told to those who use the host, who would else wait for ever.
    #[test]
    fn a_panic_of_the_progress_thread_closes_the_host() {
        let breaks = Arc::new(AtomicBool::new(false));
        let path = IdleDriver { breaks: Arc::clone(&breaks), ..IdleDriver::default() };
        let host = Host::with_driver(Box::new(path), HostConfig::default()).unwrap();
        // Opening the port starts the progress thread. A panic before the port is open would close the host too early.
        let server = host.server(1).unwrap();
        breaks.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut *host.progress.lock().unwrap());
        assert_eq!(threads.len(), 1);
        threads.into_iter().for_each(|thread| thread.join().expect("its panic goes no further"));
        assert!(matches!(host.client(), Err(HostError::Closed)));
        // To close them in order would drive the driver once more.
        std::mem::forget((server, host));
    }

    #[test]
    fn a_path_tells_what_only_a_trace_has_where_there_is_one() {
        for (trace_records, trace_device_times, questions) in [(0, true, 0), (64, false, 0), (64, true, 3)] {
            let told = Arc::default();
            let path = IdleDriver { told: Arc::clone(&told), ..IdleDriver::default() };
            let config = HostConfig { trace_records, trace_device_times, ..HostConfig::default() };
            let _host = Host::with_driver(Box::new(path), config).unwrap();
            assert_eq!(told.load(Ordering::Relaxed), questions, "{trace_records} {trace_device_times}");
        }
    }
}
