//! Sockets as Linux Homa has them, for libhoma and the preload library.

pub(crate) mod readiness;
pub(crate) mod socket;
pub(crate) mod socket_pair;
