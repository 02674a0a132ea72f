//! What happens inside of a host: its cores, and the work that competes for them.
//!
//! A packet that has come to a host is taken from the device by one core (NAPI, in batches), handed to the core that a policy of
//! [`homa_steer`] chooses, processed there by the protocol (SoftIRQ), and what it completes wakes a thread of an application. All of it
//! takes time on a core, and packets come before applications, as in Linux. What each piece costs is [`Costs`].

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
