//! The policies, one per file.

pub(crate) mod bypass;
pub(crate) mod gen2;
pub(crate) mod gen3;
pub(crate) mod homa_hash;
pub(crate) mod idle;
pub(crate) mod least_loaded;
pub(crate) mod no_tasks;
pub(crate) mod rfs;
pub(crate) mod rss_hash;
pub(crate) mod same_core;
pub(crate) mod sparse;
