//! The inside of a host: its cores, and the work that competes for them.
//!
//! One core takes an arriving packet from the device (NAPI, in batches) and passes it to the core that a
//! policy of [`homa_steer`] chooses. There the protocol processes it (SoftIRQ), and a complete message wakes
//! a thread of an application. All of this takes time on a core, and packets precede applications, as in
//! Linux. The costs of each step are [`Costs`].

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
