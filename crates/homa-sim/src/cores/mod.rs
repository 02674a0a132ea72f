//! The inside of a host: its cores, and the work that competes for them.
//!
//! One core takes an arriving packet from the device (NAPI, in batches) and passes it to the core that a
//! [`homa_steer`] policy selects. There the protocol processes it (SoftIRQ), and a complete message wakes an
//! application thread. All of this takes time on a core, and packets take precedence over applications, as in
//! Linux. The costs of each step are in [`Costs`].

mod config;
mod core;
mod costs;
mod counts;
mod machine;
mod threads;

pub use config::{CoresConfig, CoresError};
pub use costs::{
    ApplicationCosts, BUILT_IN_COSTS, CacheCosts, Costs, CostsError, HandoffCosts, PowerCosts, ProtocolCosts,
    ReceiveCosts, SchedulerCosts,
};
pub use counts::CoreCounts;
pub(crate) use machine::{Action, Machine, Timer};
pub(crate) use threads::{Job, JobKind};
