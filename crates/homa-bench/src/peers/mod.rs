//! Common RPC systems that Homa is compared with: gRPC (tonic), and QUIC (quinn) with one stream per RPC.
//!
//! Each is configured as its documentation recommends for such messages. Both run on tokio. A client's
//! runtime belongs to a thread of the load generator. The thread drives the runtime while it waits for
//! responses, so that an RPC needs no hand-off between threads. A server's runtime has the requested number
//! of threads. To poll before sleeping, as the other protocols do, a task yields repeatedly and keeps the
//! runtime awake.
//!
//! Both protocols need the feature `peers`. Without it, this crate does not depend on tonic, quinn or tokio.

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

/// The client ports of a thread, and their servers.
#[derive(Clone, Debug)]
pub struct PeerLinkConfig {
    /// Addresses of all server ports of all servers.
    pub servers: Vec<SocketAddr>,
    /// Number of client ports of this thread.
    pub ports: usize,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Maximum length of a response in bytes.
    pub max_message: u32,
}

/// A running server. Its threads run until the process exits.
pub trait PeerServer {
    /// Returns the address of each port.
    fn addrs(&self) -> &[SocketAddr];

    /// Returns the number of requests answered so far.
    fn served(&self) -> u64;
}

/// Checks that this program was built with a protocol.
///
/// # Errors
/// The protocol is missing. The error says how to build a program that includes it.
pub fn check(protocol: Protocol) -> Result<()> {
    match protocol {
        Protocol::Homa | Protocol::Tcp | Protocol::Udp => Ok(()),
        Protocol::Grpc | Protocol::Quic if cfg!(feature = "peers") => Ok(()),
        Protocol::Grpc | Protocol::Quic => {
            bail!(
                "--protocol {}: this program was built without the feature `peers`: build it with `cargo build --release --features peers`",
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

/// Fails like [`check`]: this program was built without the feature `peers`.
#[cfg(not(feature = "peers"))]
pub fn start(protocol: Protocol, _: EchoServerConfig) -> Result<Box<dyn PeerServer>> {
    check(protocol)?;
    bail!("{} is not a peer protocol", protocol.title())
}

/// Fails like [`check`]: this program was built without the feature `peers`.
#[cfg(not(feature = "peers"))]
pub fn connect(protocol: Protocol, _: &PeerLinkConfig) -> Result<Box<dyn Link>> {
    check(protocol)?;
    bail!("{} is not a peer protocol", protocol.title())
}
