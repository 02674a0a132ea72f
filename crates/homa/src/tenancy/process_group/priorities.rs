//! The number of priority levels. `cutoffs` and `layout` import it from here, so that the models in `models`
//! can compile the same files with fewer levels.

pub(super) use homa_proto::wire::PRIORITIES;
