//! Memory of messages: reassembly, pools, and bytes that are sent from where they lie.

pub(crate) mod buffers;
pub(crate) mod deferred_copy;
pub(crate) mod direct_receive;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod pool;
pub(crate) mod sparse;
