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

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod app;
mod capture;
mod clock;
mod cluster;
mod cores;
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
    Cluster, ClusterConfig, ClusterError, ClusterReport, Demand, Exchange, Framing, Message, Messages,
    PriorityPlan, Progress, QueueLengths, Traffic,
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
    Acked, Basic, BasicConfig, Congestion, Ctx, Cubic, Dctcp, Homa, HomaConfig, MarkedShare, OracleConfig,
    Pfabric, PfabricConfig, SenderOrder, Stream, Tcp, TcpConfig, Transport, TransportConfig,
};
