//! What applications use: hosts, clients, servers, requests, errors.

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod early;
pub(crate) mod error;
pub(crate) mod host;
pub(crate) mod server;
