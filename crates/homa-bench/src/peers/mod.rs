//! The RPC systems that people use today, to measure Homa against: gRPC by tonic, and QUIC by quinn with a stream per RPC.
//!
//! Each is set up as its documentation advises for messages of this kind. Both run on tokio. A client's runtime belongs to the
//! thread of the load generator, which drives it whenever it waits, so that an RPC costs no hand-off between threads; a server's
//! has the threads that it is given. Where the others poll before they sleep, a task that yields keeps the runtime polling.
//!
//! They are the feature `peers`: without it nothing here depends on them.

#[cfg(feature = "peers")]
mod grpc;
#[cfg(feature = "peers")]
mod link;
#[cfg(feature = "peers")]
mod quic;
#[cfg(feature = "peers")]
mod server;
#[cfg(all(test, feature = "peers"))]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::engine::link::Link;
use crate::protocol::Protocol;
use crate::tcp::server::EchoServerConfig;

/// How the client ports of a thread reach their servers.
#[derive(Clone, Debug)]
pub struct PeerLinkConfig {
    /// Every server port of every server.
    pub servers: Vec<SocketAddr>,
    /// Client ports of this thread.
    pub ports: usize,
    /// How long an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Largest answer in bytes.
    pub max_message: u32,
}

/// A running server. Its threads end with the process.
pub trait PeerServer {
    /// Where each port listens.
    fn addrs(&self) -> &[SocketAddr];

    /// Requests answered so far.
    fn served(&self) -> u64;
}

/// Whether this program can speak a protocol.
///
/// # Errors
/// How to get a program that does.
pub fn check(protocol: Protocol) -> Result<()> {
    match protocol {
        Protocol::Homa | Protocol::Tcp | Protocol::Udp => Ok(()),
        Protocol::Grpc | Protocol::Quic if cfg!(feature = "peers") => Ok(()),
        Protocol::Grpc | Protocol::Quic => {
            bail!(
                "--protocol {}: this program was built without the feature `peers`: build it by `cargo build --release --features peers`",
                protocol.name()
            )
        }
    }
}

/// Starts a server of gRPC or QUIC.
#[cfg(feature = "peers")]
pub fn start(protocol: Protocol, config: EchoServerConfig) -> Result<Box<dyn PeerServer>> {
    check(protocol)?;
    match protocol {
        Protocol::Grpc => server::start::<grpc::Grpc>(config),
        _ => server::start::<quic::Quic>(config),
    }
}

/// Connects every client port of a thread to every server port over gRPC or QUIC.
#[cfg(feature = "peers")]
pub fn connect(protocol: Protocol, config: &PeerLinkConfig) -> Result<Box<dyn Link>> {
    check(protocol)?;
    match protocol {
        Protocol::Grpc => link::connect::<grpc::GrpcClient>(config),
        _ => link::connect::<quic::QuicClient>(config),
    }
}

/// Starts nothing: see [`check`].
#[cfg(not(feature = "peers"))]
pub fn start(protocol: Protocol, _: EchoServerConfig) -> Result<Box<dyn PeerServer>> {
    check(protocol)?;
    bail!("{} is no peer", protocol.title())
}

/// Connects nothing: see [`check`].
#[cfg(not(feature = "peers"))]
pub fn connect(protocol: Protocol, _: &PeerLinkConfig) -> Result<Box<dyn Link>> {
    check(protocol)?;
    bail!("{} is no peer", protocol.title())
}
