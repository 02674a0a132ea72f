//! The policies of `homa-steer` with which a host can choose the endpoint of a call.

use homa_steer::PolicyName;

/// Policies that need only the information that a host has when a call begins.
pub(crate) const ENDPOINT_POLICIES: [PolicyName; 5] = [
    PolicyName::SameCore,
    PolicyName::RssHash,
    PolicyName::Sparse,
    PolicyName::Idle,
    PolicyName::LeastLoaded,
];
