//! Sockets with the semantics of Linux Homa, for libhoma and the preload library.

pub(crate) mod readiness;
pub(crate) mod socket;
pub(crate) mod socket_pair;
