//! Simulated hosts, connected by links, that run [`homa_proto::Endpoint`] unchanged on virtual time.
//!
//! A [`Network`] is a set of hosts, each with an endpoint and an application ([`App`]), back to back or at
//! one switch. Time advances from event to event, never by a real clock: the same seed gives the same run,
//! packet by packet. Network faults (loss, duplication, delay, corruption, blocked paths) follow a
//! [`FaultProfile`] and the seed. Payload is either real, and every byte is checked on arrival, or it is only
//! a length, and nothing is copied.
//!
//! Simulated hosts make no bundles (PROTOCOL.md WIRE-21): each packet is a separate datagram.
//!
//! [`Simulation`] runs the standard load ([`RpcLoad`]) on such a network and returns a [`Report`] on every
//! RPC:
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
//! Two kinds of runs share one network (`homa-sim/fabric`: ports, queues and links; `topology`; `queue`: the
//! event queue).
//!
//! - **A `Network`** has hosts as they are deployed: RPCs with responses, applications, crashes, faults,
//!   payload that is checked, and an oracle for every endpoint. Its purpose is to find errors.
//! - **A `Cluster`** has hundreds of hosts that send messages by any `Transport`: Poisson arrivals,
//!   slowdowns, queues. Its purpose is measurement. Payload is a length, and a host's software is a delay, or
//!   the work of its cores (see below). Homa's transport is the same `Endpoint`. If messages are one-way, the
//!   harness ends an RPC on both sides when its request is delivered (`Endpoint::forget`), so that neither a
//!   response nor an acknowledgement is sent. With RPCs (`Exchange::Echo`), Homa answers them itself, and
//!   nothing is left out. For a transport that has only messages, the harness starts the answer as a second
//!   message.
//!
//! The harness requests a packet from a transport when the host's card has room for one, as a driver does
//! with the endpoint. A transport sees its own state, the table of messages, and the packets that arrive.
//!
//! - **The event queue has a list for every nanosecond** of the next 65 us (`queue`), in insertion order, and
//!   bits to find the next list, so nothing is compared or sorted. Later events, such as timers, wait in a
//!   heap. A single heap for all events would maintain an order long before it is needed. With slots of 16
//!   ns, each sorted at its turn, sorting took a seventh of a run.
//! - **The fabric is generic over the contents of packets.** Homa's headers are bytes, since its own decoder
//!   reads them. Other transports have nothing to decode.
//! - **A transport states which switches it needs** (`Transport::switch`, `spread`): pFabric needs short
//!   queues by rank, DCTCP needs marks, and TCP needs one path through the core per connection. Names and
//!   defaults are in one place (`transport/choice`). All transports divide messages into packets in the same
//!   way. Parts shared by several transports are in `transport/parts`. Those shared only by TCP and DCTCP are
//!   in `transport/stream`. Each of the two defines the growth of its window.
//! - **The oracle has no packets** (`transport/oracle`, `cluster/fluid`). Messages are a fluid with an ideal
//!   schedule, and have the same statistics (`cluster/account`) as those of a transport.
//! - **The minimum time of a message is computed** (`cluster/ideal`) for one framing that all transports
//!   share, so that slowdowns of two transports have the same denominator.
//! - **A run tests itself for steady state** (`cluster/steady`; the statistics are in `cluster/level`), since
//!   slowdowns are too small while a network fills. The length of the warm-up is computed from the load
//!   (`cluster/warm_up`) rather than determined by the run, so that transports are compared with the same
//!   messages in the same time.
//!
//! `homa sim` (`homa-cli/sim`) has one table of settings (`knobs`). Each row is an option of the command, a
//! key of a sweep and a name in results, so that these cannot diverge. Settings are evaluated after all are
//! known (`draft`), since Homa's settings depend on the network and the workload. Each thread executes whole
//! runs and shares nothing. Results are in the order of the runs on the command line and contain no
//! wall-clock times. A sweep stores each finished run in a separate file, named by a hash of everything that
//! determines the run.

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
pub use capture::{CapturedPacket, Fate};
pub use cluster::{
    Cluster, ClusterConfig, ClusterError, ClusterReport, Demand, Exchange, Framing, LoadBasis, Message,
    Messages, PriorityPlan, Progress, QueueLengths, SteadyState, TimeSeries, Traffic, Unsteady,
};
pub use cores::{
    ApplicationCosts, BUILT_IN_COSTS, CacheCosts, CoreCounts, CoresConfig, CoresError, Costs, CostsError,
    HandoffCosts, PowerCosts, ProtocolCosts, ReceiveCosts, SchedulerCosts,
};
pub use driver_queue::Drain;
pub use fabric::{FabricStats, SwitchConfig, host_address};
pub use fault::{FaultCounts, FaultProfile, PathLimit};
pub use homa_egress::{Alpha, Buffer, Forwarding, QUEUE_ALPHA};
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
