//! The servers of the protocols with which Homa is compared.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use super::options::ServerOptions;
use crate::peers::{self, PeerServer};
use crate::protocol::Protocol;
use crate::raw_baseline::server::{RawBaselineServer, RawBaselineServerConfig};
use crate::tcp::server::{EchoServerConfig, TcpServer};

/// The server of a protocol other than Homa.
pub(super) enum OtherServer {
    Tcp(TcpServer),
    Bare(RawBaselineServer),
    Peer(Box<dyn PeerServer>),
}

impl OtherServer {
    /// Starts the server of a protocol. Returns `None` for Homa.
    pub(super) fn start(
        protocol: Protocol,
        bind: SocketAddr,
        options: &ServerOptions,
    ) -> Result<Option<OtherServer>> {
        let ServerOptions { ports, threads, poll, max_message, one_way, driver, .. } = *options;
        let config = EchoServerConfig { bind, ports, threads, poll, max_message, one_way };
        Ok(Some(match protocol {
            Protocol::Homa => return Ok(None),
            Protocol::Tcp => OtherServer::Tcp(TcpServer::start(config, None)?),
            Protocol::Grpc | Protocol::Quic => OtherServer::Peer(peers::start(protocol, config)?),
            Protocol::Udp => {
                ensure!(
                    !driver.shares_address() || !options.protocols.contains(&Protocol::Homa),
                    "with --driver {} each address is one host: serve bare packets alone (--protocol udp), or with another --bind",
                    driver.name()
                );
                let offload = options.offload;
                OtherServer::Bare(RawBaselineServer::start(RawBaselineServerConfig {
                    driver,
                    bind,
                    ports,
                    poll,
                    max_message,
                    one_way,
                    offload,
                })?)
            }
        }))
    }

    pub(super) fn addrs(&self) -> &[SocketAddr] {
        match self {
            OtherServer::Tcp(server) => server.addrs(),
            OtherServer::Bare(server) => server.addrs(),
            OtherServer::Peer(server) => server.addrs(),
        }
    }

    pub(super) fn served(&self) -> u64 {
        match self {
            OtherServer::Tcp(server) => server.served(),
            OtherServer::Bare(server) => server.served(),
            OtherServer::Peer(server) => server.served(),
        }
    }
}
