//! The load generator: arrivals, client ports, RPCs in flight, and their counts and latencies.

pub mod inflight;
pub mod link;
pub mod load;
pub mod pattern;
pub mod rtt;
pub mod summary;
pub mod tally;
