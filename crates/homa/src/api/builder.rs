//! Creates a host and its endpoints from the host's options.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homa_driver::linux_udp::{LinuxUdpConfig, LinuxUdpDriver};
use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{XdpConfig, XdpDriver};
use homa_driver::{Driver, RxBurst};
use homa_proto::{Config, Endpoint, MAX_ENDPOINTS, derive_seed};
use homa_steer::PolicyName;
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;
use homa_trace::{Clock, MonotonicClock, Trace};

use crate::api::endpoints::Endpoints;
use crate::api::host::Host;
use crate::observe::freeze::FreezeState;
use crate::runtime::engine::{Engine, Limits};
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::wake_chooser::WakeChooser;
use crate::runtime::wake_fd::WakeFd;
use crate::tenancy::endpoint_group::{EndpointGroup, GroupMember};
use crate::tenancy::host_lease::{HostLease, LeaseSource};
use crate::tenancy::placement::Placement;
use crate::tenancy::process_group::{self, CutoffSet, EndpointSlots, GroupPool, Segment, SegmentParameters};
use crate::tenancy::processes::ProcessMember;
use crate::types::endpoint_policies::ENDPOINT_POLICIES;
use crate::types::error::HostError;
use crate::types::limits::MAX_PROCESSES;
use crate::types::segment_error::SegmentError;

/// Combined with the host's seed to seed the choice of endpoints.
const PLACEMENT_SEED: u64 = 0x91ac;

/// The driver that carries a host's packets. Both sides of a call need the same wire format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverChoice {
    /// UDP, which needs no privileges. A peer is an address and a UDP port.
    #[default]
    Udp,
    /// Raw IP (protocol 146), like Linux Homa, for exchanging RPCs with kernel Homa. Requires the capability
    /// CAP_NET_RAW. A peer is an address; a UDP port in an address is ignored.
    Raw,
    /// UDP port 54321 at both ends, like Linux Homa's UDP encapsulation (`net.homa.hijack_udp`), for
    /// exchanging RPCs with kernel Homa across networks that drop protocol 146. Requires no privileges. A
    /// peer is an address; a UDP port in an address is ignored. All processes in a network namespace share
    /// the port.
    LinuxUdp,
    /// A network device, whose packets are received through a memory-mapped ring. This is faster than a
    /// socket, but limits the host to one device. Requires the capability CAP_NET_RAW. The wire format is
    /// that of UDP, or that of raw IP if [`PacketConfig::carrier`] selects it. Peers may use any driver with
    /// that wire format.
    Packet,
    /// The receive queues of a network device, filled by a program in the kernel (AF_XDP). This is for a host
    /// that has the device to itself, apart from the kernel's own traffic. Requires the capabilities
    /// CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. The wire format is the same as for `Packet`.
    Xdp,
}

/// Builds a host: see [`Host::builder`](crate::Host::builder). Each option of [`HostConfig`] has a setter of
/// the same name.
///
/// ```
/// # use homa::Host;
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::builder()
///     .address("127.0.0.1:0".parse()?)
///     .poll(Duration::ZERO)
///     .configure(|config| config.protocol.max_message = 8 << 20)
///     .bind()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes no host before `bind`"]
pub struct HostBuilder {
    config: HostConfig,
}

impl HostConfig {
    /// Maximum number of [`endpoints`](HostConfig::endpoints).
    pub const MAX_ENDPOINTS: usize = MAX_ENDPOINTS as usize;

    /// Maximum number of processes, or of their endpoints, that share an address over raw IP or Linux Homa's
    /// UDP encapsulation.
    pub const MAX_PROCESSES: usize = MAX_PROCESSES;

    /// Valid values of [`endpoint_policy`](HostConfig::endpoint_policy): the policies for which the
    /// information that a host has at the start of a call suffices.
    pub const ENDPOINT_POLICIES: [PolicyName; 5] = ENDPOINT_POLICIES;
}

impl Host {
    /// Returns a builder: set options on it, then open the host with [`bind`](HostBuilder::bind).
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }
}

impl HostBuilder {
    /// Sets all options at once.
    pub fn config(self, config: HostConfig) -> HostBuilder {
        HostBuilder { config }
    }

    /// Returns the current options.
    #[must_use]
    pub fn options(&self) -> &HostConfig {
        &self.config
    }

    /// Changes options in place, mainly individual settings of [`protocol`](HostConfig::protocol) and of the
    /// drivers.
    pub fn configure(mut self, change: impl FnOnce(&mut HostConfig)) -> HostBuilder {
        change(&mut self.config);
        self
    }

    /// Creates the host on the packet path that is selected by the option [`driver`](HostConfig::driver).
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn bind(self) -> Result<Host, HostError> {
        let config = &self.config;
        let bind = config.address;
        let count = check_endpoints(config.endpoints)?;
        let drivers = match config.driver {
            DriverChoice::Udp => {
                boxed(UdpDriver::bind_group(&UdpConfig { bind, ..config.udp.clone() }, count)?)
            }
            DriverChoice::Raw => {
                boxed(RawDriver::bind_group(&RawConfig { bind, ..config.raw.clone() }, count)?)
            }
            DriverChoice::LinuxUdp => boxed(LinuxUdpDriver::bind_group(
                &LinuxUdpConfig { bind, ..config.linux_udp.clone() },
                count,
            )?),
            DriverChoice::Packet => {
                boxed(PacketDriver::open_group(&PacketConfig { bind, ..config.packet.clone() }, count)?)
            }
            DriverChoice::Xdp => {
                boxed(XdpDriver::open_group(&XdpConfig { bind, ..config.xdp.clone() }, count)?)
            }
        };
        self.bind_on(drivers)
    }

    /// Creates the host on the given packet paths, all at the same address, with one endpoint for each path.
    /// The options `driver`, `address`, `endpoints` and the drivers' own options are ignored. Path `n` should
    /// receive the packets of the RPCs that endpoint `n` owns (see [`owner_of`](homa_proto::wire::owner_of)).
    /// Packets that arrive on another path are handed over, at a cost.
    ///
    /// # Errors
    /// See [`HostError`]; also if there are no paths, or more than
    /// [`MAX_ENDPOINTS`](HostConfig::MAX_ENDPOINTS).
    pub fn bind_on(self, mut drivers: Vec<Box<dyn Driver>>) -> Result<Host, HostError> {
        let config = self.config;
        let count = check_endpoints(drivers.len())?;
        let first = &drivers[0];
        let (local_addr, buffer_sizes) = (first.local_addr(), first.buffer_sizes());
        let mut protocol = Config { endpoints: count, ..config.protocol.clone() };
        if protocol.seed == 0 {
            // The system seeds `RandomState` once per process, and each instance differs.
            protocol.seed = RandomState::new().build_hasher().finish();
        }
        if protocol.incarnation == 0 {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            protocol.incarnation = since_1970.as_millis() as u64;
        }
        if protocol.first_cutoff_version <= 1 {
            // If versions began at 1 on every host, an equal version would prove nothing (SHARE-3).
            protocol.first_cutoff_version = RandomState::new().build_hasher().finish() as u16;
        }
        protocol.link_mbps = protocol.link_mbps.or(first.link_mbps());
        let segment = match first.peers_port() {
            // All processes in this network namespace share the address.
            Some(_) => Some(Arc::new(join_segment(&config.segment_dir, local_addr.ip(), &mut protocol)?)),
            None => None,
        };
        let placement = config.endpoint_policy.filter(|_| count > 1);
        let place =
            |policy| Placement::new(policy, count as usize, derive_seed(protocol.seed, PLACEMENT_SEED));
        let placement = placement.map(place).transpose()?;
        let maker = EndpointBuilder::new(&config, protocol, segment.clone())?;
        let members = drivers.drain(..).enumerate().map(|(index, driver)| maker.endpoint(index, driver));
        let members: Vec<Arc<SharedEngine>> = members.collect::<Result<_, HostError>>()?;
        Ok(Host {
            endpoints: Arc::new(Endpoints::new(members, placement)),
            freezing: maker.freezing,
            segment,
            local_addr,
            buffer_sizes,
            progress: Mutex::default(),
            linger: config.linger,
        })
    }
}

/// Defines the configuration, its defaults, and a setter of the builder for each option.
macro_rules! host_config {
    ($(#[$about:meta])* pub struct $config:ident { $($(#[$doc:meta])* pub $name:ident: $type:ty = $default:expr,)+ }) => {
        $(#[$about])*
        pub struct $config {
            $($(#[$doc])* pub $name: $type,)+
        }

        impl Default for $config {
            fn default() -> $config {
                $config { $($name: $default,)+ }
            }
        }

        impl HostBuilder {
            $(
                #[doc = concat!("Sets the option [`", stringify!($name), "`](HostConfig::", stringify!($name), ").")]
                pub fn $name(mut self, $name: $type) -> HostBuilder {
                    self.config.$name = $name;
                    self
                }
            )+
        }
    };
}

host_config! {
    /// The configuration of a host, as set by [`Host::builder`](crate::Host::builder). A separate value lets
    /// programs store a configuration, or create several hosts from one.
    ///
    /// Options may be added in later versions, so start from the default and set fields.
    ///
    /// ```
    /// let mut config = homa::HostConfig::default();
    /// config.protocol.link_mbps = Some(10_000);
    /// let host = homa::Host::builder().config(config).bind()?;
    /// # Ok::<(), homa::error::HostError>(())
    /// ```
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct HostConfig {
        /// The driver that carries the packets; UDP by default.
        pub driver: DriverChoice = DriverChoice::default(),
        /// Address of this host. Over UDP its port is the UDP port; port 0 picks any free port. The default
        /// is port 0 on all IPv4 addresses. Over raw IP the address has no port, and `[::]` means all
        /// addresses of both IP versions. With Linux Homa's UDP encapsulation the port is 54321, and
        /// `0.0.0.0` and `[::]` both mean all addresses. For a device it is one of the device's addresses. It
        /// also selects the device if [`PacketConfig::interface`] or [`XdpConfig::interface`] does not.
        pub address: SocketAddr = SocketAddr::from(([0, 0, 0, 0], 0)),
        /// Number of endpoints of this host, 1 to [`MAX_ENDPOINTS`](HostConfig::MAX_ENDPOINTS). Each endpoint
        /// has its own socket, lock and share of the RPCs. Packets are steered to the endpoint that owns
        /// their RPC.
        ///
        /// The default is 1. More endpoints help only if several threads keep several cores busy with the
        /// network: use about one endpoint for each such core. Otherwise they cost time: a thread of one
        /// endpoint helps another endpoint only when it is otherwise idle, and information that piggybacks on
        /// packets for another endpoint must be handed over.
        ///
        /// Each client port belongs to one endpoint, assigned in turn; server ports are open in all
        /// endpoints. Grants, the uplink and the cutoffs are still managed for the host as a whole. The other
        /// limits here and in `protocol` apply to each endpoint separately.
        ///
        /// Over UDP the kernel steers packets to sockets. On a device it steers frames to rings
        /// ([`PacketDriver::open_group`]) or to AF_XDP sockets at each queue ([`XdpDriver::open_group`]).
        /// Over raw IP the filter of each socket selects its packets ([`RawDriver::bind_group`]), and each
        /// endpoint also counts as one of the [`MAX_PROCESSES`](HostConfig::MAX_PROCESSES). The same limit
        /// applies to Linux Homa's UDP encapsulation, where all endpoints receive from one socket, so more
        /// than one endpoint is of little use.
        pub endpoints: usize = 1,
        /// The policy that chooses among several endpoints of a host: for each client, and for each call for
        /// which a thread or task waits. It is one of [`ENDPOINT_POLICIES`](HostConfig::ENDPOINT_POLICIES).
        /// In the policy's terms, an endpoint is a core, a client and its server are a flow, and an
        /// endpoint's load is its number of open RPCs.
        ///
        /// With the default, `None`, clients are assigned to endpoints in turn, and a call uses only its
        /// client's endpoint. With a policy, each client takes a port in each endpoint, and each call takes
        /// the lock of the policy. Policies are meant for clients that are shared by many threads.
        pub endpoint_policy: Option<PolicyName> = None,
        /// Settings of the protocol; the host sets its `endpoints` and `endpoint`. A `seed` of 0 is replaced
        /// by a random number, and an `incarnation` of 0 by the time of day. A `link_mbps` of `None` is
        /// replaced by the speed that the device reports, if any.
        pub protocol: Config = Config::default(),
        /// Settings of the UDP socket; its `bind` is ignored in favour of [`address`](HostConfig::address).
        pub udp: UdpConfig = UdpConfig::default(),
        /// Settings of the raw IP sockets; its `bind` is ignored in favour of
        /// [`address`](HostConfig::address).
        pub raw: RawConfig = RawConfig::default(),
        /// Settings of Linux Homa's UDP encapsulation; its `bind` is ignored in favour of
        /// [`address`](HostConfig::address).
        pub linux_udp: LinuxUdpConfig = LinuxUdpConfig::default(),
        /// Settings of the packet-ring driver of a device; its `bind` is ignored in favour of
        /// [`address`](HostConfig::address).
        pub packet: PacketConfig = PacketConfig::default(),
        /// Settings of the AF_XDP driver of a device; its `bind` is ignored in favour of
        /// [`address`](HostConfig::address).
        pub xdp: XdpConfig = XdpConfig::default(),
        /// How long a waiting thread polls before it sleeps in the kernel, counted from the last packet. If
        /// this is zero, the thread sleeps at once. The default is slightly above the cost of waking a thread
        /// on another core. With it, polling at most roughly doubles the cost of waiting, and an immediate
        /// response from the peer finds this host awake.
        pub poll: Duration = Duration::from_micros(50),
        /// The order in which sleeping threads or tasks of an endpoint are woken, if several could do the
        /// same work. By default the last to fall asleep is woken first: its caches are the warmest, and at
        /// low load a few threads do all the work. An order that depends on cores uses the host's own
        /// observations: the cores where its threads received packets, were woken, and fell asleep.
        pub wake_order: WakeOrder = WakeOrder::default(),
        /// Maximum receive batch: the number of datagrams, or frames of a device, that a thread takes at a
        /// time. The upper limit is [`BURST_PACKETS`](homa_driver::BURST_PACKETS); larger caps are reduced to
        /// it. The packets of a batch are processed together, and the packets sent in response, such as
        /// grants, are sent afterwards. With a cap of 1, each packet is answered before the next is read.
        pub batch_cap: BatchCap = RxBurst::full_cap(),
        /// Whether to keep processors out of deep sleep while RPCs are in flight and for a tenth of a second
        /// afterwards. This is for hosts whose threads sleep but must wake up immediately. False by default.
        ///
        /// The host holds `/dev/cpu_dma_latency` open, which needs root or write access to that file, affects
        /// the whole machine, and costs power. If the file cannot be opened, the host logs this once (through
        /// `tracing`) and continues without it.
        pub low_latency: bool = false,
        /// Number of events that the time trace of each endpoint keeps, rounded up to a power of two; 0
        /// disables the trace. Each event takes 32 bytes of memory. The default, half a megabyte, holds at
        /// least the last thousand short RPCs. A short RPC makes about a dozen events on each side. An event
        /// costs 3 ns plus the time to read the processor's time-stamp counter, 10 to 25 ns: if round-trip
        /// time is critical, compare with 0.
        pub trace_records: usize = 1 << 14,
        /// Freezes the trace when a call of this host took at least this long, measured from its start by the
        /// application until its success or failure. By default (`None`) no call freezes the trace.
        pub trace_freeze_slower_than: Option<Duration> = None,
        /// Whether a peer's FREEZE packet freezes the trace; true by default. Anybody who can send packets to
        /// this host can send a FREEZE packet. The packet stops recording until [`Host::unfreeze_trace`] is
        /// called, is counted, and has no other effect. Choose false if traces matter and untrusted senders
        /// can reach this host.
        pub trace_obey_freeze: bool = true,
        /// Whether to request that all peers freeze their traces too whenever a slow call or the application
        /// freezes this host's trace; false by default.
        pub trace_freeze_peers: bool = false,
        /// Whether to record also when the kernel received each packet from its device and when it handed
        /// each packet to the device, if the packet path reports these times. The records show how long
        /// packets spend between the device and the bursts in which they are received or sent. UDP, raw IP
        /// and packet rings report these times; AF_XDP does not. With this option, UDP and raw IPv6 also
        /// record the priority of received packets, which the other paths always record.
        ///
        /// False by default, because it costs a few hundred nanoseconds for each received packet, and more
        /// for each sent packet, whose report also wakes a sleeping thread. Packets that the kernel merged,
        /// or split from one datagram, share one timestamp.
        pub trace_device_times: bool = false,
        /// For each client, the maximum number of submitted calls whose completions have not been taken.
        pub max_completions: usize = 1 << 16,
        /// Maximum total size in bytes of the requests that wait for `recv`, over all servers of the host.
        /// Requests beyond this limit are dropped and counted.
        pub max_queued_request_bytes: u64 = 1 << 30,
        /// Directory of the shared-memory segment that the processes of a host use over raw IP and Linux
        /// Homa's UDP encapsulation: one file for each network namespace. All processes must name the same
        /// directory. It must be in memory rather than on a disk, and not writable by any other user. The
        /// directory is created if it does not exist. The default is /run/homa for root, otherwise `homa` in
        /// `XDG_RUNTIME_DIR` if that is set, otherwise `/dev/shm/homa-UID`.
        pub segment_dir: PathBuf = process_group::default_dir(),
        /// How long dropping the host waits for its last answers to be acknowledged.
        pub linger: Duration = Duration::from_secs(1),
    }
}

fn boxed<D: Driver + 'static>(drivers: Vec<D>) -> Vec<Box<dyn Driver>> {
    drivers.into_iter().map(|driver| Box::new(driver) as _).collect()
}

/// Returns the number of endpoints, if it is in range.
fn check_endpoints(count: usize) -> Result<u32, HostError> {
    match u32::try_from(count) {
        Ok(count @ 1..=MAX_ENDPOINTS) => Ok(count),
        _ => Err(HostError::Endpoints { count }),
    }
}

/// Builds the endpoints of a host.
struct EndpointBuilder<'a> {
    config: &'a HostConfig,
    protocol: Config,
    segment: Option<Arc<EndpointSlots>>,
    group: Option<Arc<EndpointGroup>>,
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
        let (mut group, mut pool) = (None, None);
        if count > 1 {
            let system = |source| HostError::System { what: "an eventfd", source };
            group = Some(Arc::new(EndpointGroup::new(count).map_err(system)?));
        }
        if count > 1 && segment.is_none() {
            pool =
                Some(Arc::new(GroupPool::new(count, first_cutoffs(&protocol), protocol.max_incoming.into())));
        }
        let start_ns = MonotonicClock::new().now().ns;
        Ok(EndpointBuilder { config, protocol, segment, group, pool, freezing: Arc::default(), start_ns })
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
        let (mut processes, mut lease) = (None, None);
        if let Some(slots) = &self.segment {
            let member =
                ProcessMember::new((Arc::clone(slots), index), self.start_ns, &mut endpoint, &mut *driver)?;
            endpoint.refuse_bundles(); // WIRE-23: the first packet's port selects the process.
            processes = Some(member);
            let source = LeaseSource::Segment(Arc::clone(slots.member(index)));
            lease = Some(HostLease::new(source, self.start_ns, &mut endpoint));
        } else if let Some(pool) = &self.pool {
            // 0, since the endpoint group uses the host's own clock.
            lease =
                Some(HostLease::new(LeaseSource::EndpointGroup(Arc::clone(pool), index), 0, &mut endpoint));
        }
        let mut engine = Engine::new(endpoint, driver, limits);
        (engine.tenancy.processes, engine.tenancy.lease) = (processes, lease);
        engine.driving.avoids_deep_sleep = self.config.low_latency;
        engine.waiting.wake_by = WakeChooser::new(self.config.wake_order);
        engine.receiving.burst.set_cap(self.config.batch_cap);
        if self.config.trace_device_times {
            // Only on request, and only with a trace that can store the times: having the kernel report them
            // may cost more than the rest of the trace.
            if let Some(clock) = engine.endpoint.trace().ticks() {
                engine.driver.tell_priorities();
                // A path that reports only one of the two times is still useful.
                let tells = engine.driver.stamp_received() | engine.driver.stamp_sent();
                engine.tracing.device_clock = tells.then_some(clock);
            }
            if engine.tracing.device_clock.is_none() {
                tracing::warn!("this packet path tells no times of its device, or there is no time trace");
            }
        }
        engine.tracing.freezer.host = Arc::clone(&self.freezing);
        engine.tracing.freezer.obeys = self.config.trace_obey_freeze;
        engine.tracing.freezer.tells_peers = self.config.trace_freeze_peers;
        if let Some(bound) = self.config.trace_freeze_slower_than {
            engine.tracing.freezer.slower_than_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        }
        engine.tenancy.group = self.group.as_ref().map(|group| GroupMember::new(Arc::clone(group), index));
        Ok(Arc::new(SharedEngine::new(engine, self.start_ns, fd, self.config.poll, wake_fds)))
    }
}

/// Returns the cutoffs of a host that has not computed any yet.
fn first_cutoffs(protocol: &Config) -> CutoffSet {
    CutoffSet::initial(protocol.unsched_cutoffs, protocol.first_cutoff_version)
}

/// Joins the processes that share this host's address, once for each endpoint. The host then uses their
/// common incarnation.
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use homa_driver::{BufferSizes, DriverStats, TxPacket, UnreachableReport};

    use super::*;

    /// A driver that receives nothing, and records the cap of each burst and which reports are enabled.
    #[derive(Debug, Default)]
    struct IdleDriver {
        cap: Arc<AtomicU32>,
        enabled: Arc<AtomicU32>,
        /// Whether `receive` panics.
        breaks: Arc<AtomicBool>,
    }

    impl IdleDriver {
        fn tell(&self) -> bool {
            self.enabled.fetch_add(1, Ordering::Relaxed);
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
        fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
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
    fn a_driver_receives_no_more_than_the_batch_cap() {
        for batch_cap in [1, 7].map(|packets| BatchCap::new(packets).unwrap()) {
            let cap = Arc::default();
            let config = HostConfig { batch_cap, ..HostConfig::default() };
            let path = IdleDriver { cap: Arc::clone(&cap), ..IdleDriver::default() };
            let host = Host::builder().config(config).bind_on(vec![Box::new(path)]).unwrap();
            let server = host.server(1).unwrap();
            assert!(server.recv().timeout(Duration::from_millis(1)).wait().is_err(), "nothing comes");
            assert_eq!(cap.load(Ordering::Relaxed), batch_cap.packets());
        }
    }

    /// A panic in the progress thread must be reported to the users of the host, which would otherwise wait
    /// forever.
    #[test]
    fn a_panic_of_the_progress_thread_closes_the_host() {
        let breaks = Arc::new(AtomicBool::new(false));
        let path = IdleDriver { breaks: Arc::clone(&breaks), ..IdleDriver::default() };
        let host = Host::builder().bind_on(vec![Box::new(path)]).unwrap();
        // Opening the port starts the progress thread. A panic before the port is open would close the host
        // too early.
        let server = host.server(1).unwrap();
        breaks.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut *host.progress.lock().unwrap());
        assert_eq!(threads.len(), 1);
        threads.into_iter().for_each(|thread| thread.join().expect("its panic goes no further"));
        assert!(matches!(host.client(), Err(HostError::Closed)));
        // A normal drop would drive the panicking driver once more.
        std::mem::forget((server, host));
    }

    #[test]
    fn a_path_tells_what_only_a_trace_has_where_there_is_one() {
        for (trace_records, trace_device_times, questions) in [(0, true, 0), (64, false, 0), (64, true, 3)] {
            let enabled = Arc::default();
            let path = IdleDriver { enabled: Arc::clone(&enabled), ..IdleDriver::default() };
            let config = HostConfig { trace_records, trace_device_times, ..HostConfig::default() };
            let _host = Host::builder().config(config).bind_on(vec![Box::new(path)]).unwrap();
            assert_eq!(enabled.load(Ordering::Relaxed), questions, "{trace_records} {trace_device_times}");
        }
    }
}
