//! What happens inside of a host: its cores, and the work that competes for them. What each piece of it costs is [`Costs`].

mod costs;

pub use costs::{
    ApplicationCosts, BUILT_IN_COSTS, CacheCosts, Costs, CostsError, HandoffCosts, PowerCosts, ProtocolCosts,
    ReceiveCosts, SchedulerCosts,
};
