//! Many hosts that send messages to each other by any transport: one-way messages, as in published
//! simulations of datacentre transports, or RPCs whose answer is as long as the request.
//!
//! A message is only a length. Arrivals are Poisson at every host, to uniformly chosen receivers, at a load
//! that includes all headers and optionally grants. A [`Transport`](crate::Transport) is a host's end of one
//! protocol. Homa's is [`homa_proto::Endpoint`] as it is deployed. Messages, network and random numbers are
//! the same for all transports, so two runs with the same seed differ only in the transport.

mod account;
mod check;
pub(crate) mod config;
mod demand;
pub(crate) mod event;
pub(crate) mod fluid;
pub(crate) mod ideal;
mod level;
pub(crate) mod messages;
mod on_cores;
mod preset;
pub(crate) mod report;
pub(crate) mod run;
mod sampling;
mod steady;
pub(crate) mod traffic;
mod warm_up;

pub use check::ClusterError;
pub use config::ClusterConfig;
pub use demand::Demand;
pub use ideal::Framing;
pub use messages::{Message, Messages};
pub use preset::PriorityPlan;
pub use report::{ClusterReport, Progress, QueueLengths};
pub use run::Cluster;
pub use steady::{SteadyState, TimeSeries, Unsteady};
pub use traffic::{Exchange, LoadBasis, Traffic};
pub(crate) use traffic::{mean_of, messages_per_sec as rpcs_per_sec};
