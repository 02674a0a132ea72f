//! Hosts joined by links on virtual time that run [`homa_proto::Endpoint`] unchanged.
//!
//! A [`Network`] is a set of hosts, each with an endpoint and an application ([`App`]), back to back or behind one
//! switch. Time advances from event to event, never by a clock: the same seed gives the same run, packet by packet. What a
//! network may do to packets (lose, duplicate, delay, corrupt, block) follows a [`FaultProfile`] by the seed. Payload is
//! real, and then every byte is checked where it arrives, or only a length, and then nothing is copied.
//!
//! Simulated hosts make no bundles (PROTOCOL.md WIRE-21): each packet is a datagram of its own.
//!
//! [`Simulation`] puts the standard load ([`RpcLoad`]) on such a network and gives a [`Report`] of what became of every RPC:
//!
//! ```
//! use homa_sim::{Load, NetworkConfig, Simulation, SimulationConfig};
//! use homa_workload::Workload;
//!
//! let load = Load { rpcs: 100, ..Load::closed(Workload::fixed(20_000).unwrap(), 4) };
//! let report = Simulation::new(SimulationConfig::new(NetworkConfig::new(7, 2), load)).run();
//! assert_eq!(report.problems(), Vec::<String>::new());
//! ```
//!
//! # Design
//!
//! Two kinds of runs share one network (`homa-sim/fabric`: ports, queues, links, `topology`, `queue` of
//! events).
//!
//! - **A `Network`** has hosts as they are deployed: RPCs with responses, applications, crashes, faults,
//!   payload that is checked, an oracle beside every endpoint. It looks for mistakes.
//! - **A `Cluster`** has hundreds of hosts that send messages by any `Transport`: Poisson arrivals,
//!   slowdowns, queues. It measures. Payload is a length, and a host's software is a delay, or the work of
//!   its cores (see below). Homa's transport is the same `Endpoint`. Where messages are one-way, the harness
//!   ends an RPC on both sides when its request is delivered (`Endpoint::forget`), so that neither a response
//!   nor an acknowledgement goes over the wire. Where they are RPCs (`Exchange::Echo`), Homa answers them
//!   itself and nothing is left out; for a transport that knows messages alone the harness starts the answer
//!   as a second one.
//!
//! A transport is asked for a packet when the host's card has room for one, as the endpoint is by a driver.
//! What it sees is its own state and the table of messages; the network it sees through packets alone.
//!
//! - **The event queue has a list for every nanosecond** of the next 65 us (`queue`), in the order of coming,
//!   and bits to find the next one: nothing is compared or sorted. What lies beyond, as timers do, waits in a
//!   heap. A heap for all ordered at once what nobody asked for yet; slots of 16 ns, each sorted at its turn,
//!   spent a seventh of a run on that.
//! - **The fabric is generic over a packet's body**, not a byte string for all: Homa's headers are bytes,
//!   since its own decoder reads them, and other transports have none to decode.
//! - **A transport says what switches it needs** (`Transport::switch`, `spread`): pFabric short queues by
//!   rank, DCTCP marks, TCP one way through the core for a connection. Names and defaults are in one place
//!   (`transport/choice`). Packets are cut alike by all; what several transports are made of is in
//!   `transport/parts`, and what TCP and DCTCP share in `transport/stream`, which leaves to them how a window
//!   grows.
//! - **The oracle has no packets** (`transport/oracle`, `cluster/fluid`): messages are a fluid that someone
//!   schedules who knows them all, and take the same account (`cluster/account`) as those of a transport.
//! - **The least time of a message is computed** (`cluster/ideal`) for one framing, the same for all
//!   transports: slowdowns of two transports have the same denominator.
//! - **A run tests itself for steady state** (`cluster/steady`; the statistics are in `cluster/level`), since
//!   slowdowns in a network that still fills are too small. How long a load takes is computed
//!   (`cluster/warm_up`), and not found by the run: transports are compared with the same messages in the same
//!   time.
//!
//! `homa sim` (`homa-cli/sim`) has one table of settings (`knobs`). Each row is an option of the command, a key of
//! a sweep and a name in results, so that these cannot differ. Settings are evaluated when all are known (`draft`),
//! since Homa's depend on the network and the workload. Threads take whole runs and share nothing. Results are in
//! the order of the runs on the command line and contain no time of the machine's clock. A sweep stores each
//! finished run in its own file, named by a hash of everything that determines the run.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod app;
mod capture;
mod clock;
mod cluster;
mod cores;
pub mod dialects;
mod driver_queue;
mod fabric;
mod fault;
mod host;
mod incast;
mod link;
mod load;
mod network;
mod oracle;
mod packet;
mod payload;
mod precedence;
mod queue;
mod repeats;
mod router;
mod run;
mod steer;
mod store;
mod swarm;
mod switches;
mod topology;
mod transport;

pub use app::{App, HostCtx, Reply};
pub use capture::{Captured, Fate};
pub use cluster::{
    Cluster, ClusterConfig, ClusterError, ClusterReport, Course, Demand, Exchange, Framing, LoadBasis,
    Message, Messages, PriorityPlan, Progress, QueueLengths, SteadyState, Traffic, Unsteady,
};
pub use cores::{
    ApplicationCosts, BUILT_IN_COSTS, CacheCosts, CoreCounts, CoresConfig, CoresError, Costs, CostsError,
    HandoffCosts, PowerCosts, ProtocolCosts, ReceiveCosts, SchedulerCosts,
};
pub use driver_queue::Drain;
pub use fabric::{Buffer, FabricStats, Forwarding, SwitchConfig, host_address};
pub use fault::{FaultCounts, FaultProfile, PathLimit};
pub use host::{Host, HostCounts};
pub use incast::{Incast, IncastKind, IncastReport, IncastRound};
pub use link::{Discipline, LinkConfig};
pub use load::{Arrivals, Load, LoadCounts, ResponseSize, RpcLoad};
pub use network::{Network, NetworkConfig};
pub use packet::{Body, Packet, PacketInfo};
pub use payload::PayloadMode;
pub use queue::EventQueue;
pub use router::{RouterConfig, RouterReport};
pub use run::{Report, Simulation, SimulationConfig};
pub use steer::{SteerConfig, SteerLoad, SteerReport};
pub use swarm::{SwarmOptions, SwarmReport, swarm};
pub use topology::{LeafSpine, Spread, Topology};
pub use transport::{
    Acked, Basic, BasicConfig, Congestion, Connections, Ctx, Cubic, Dctcp, Homa, HomaConfig, MarkedShare,
    OracleConfig, Pfabric, PfabricConfig, SenderOrder, Stream, Tcp, TcpConfig, Transport, TransportConfig,
};
