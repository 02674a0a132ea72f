//! Pairings of Homa implementations: this project's endpoint with each dialect of Linux Homa, in both roles.
//!
//! The kernels are models (`model`), written from the known facts about their source and independently of the
//! endpoint: they share no code with `homa_proto`, so that an error in one does not hide an error in the
//! other. The link between two speakers loses, duplicates and reorders packets.

mod format;
mod model;
mod node;
mod pair;
mod sent_ranges;
mod speaker;
mod swarm;

pub use self::model::Quirks;
pub use self::pair::{CallTimes, PairPlan, PairReport, run_pair};
pub use self::speaker::{Kernel, Speaker, TrafficCounts};
pub use self::swarm::{PAIR_LOSSES, PAIR_SIZES, pair_plan, pair_swarm, pairings};
