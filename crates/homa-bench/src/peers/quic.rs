//! QUIC (quinn): one connection per pair of ports, and a bidirectional stream for each RPC.
//!
//! The settings follow quinn's documentation: streams are cheap and not reused, and the stream limit and the
//! windows are raised for the bench's messages. Fairness between streams is off, since it is pure overhead
//! for many small streams. The socket buffers have the same size as those of the other protocols. Path MTU
//! discovery, offload and congestion control keep quinn's defaults.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use homa_driver::udp::UdpConfig;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, ServerConfig,
    TokioRuntime, TransportConfig,
};
use socket2::{Domain, SockRef, Socket, Type};

use super::PeerLinkConfig;
use super::link;
use super::server::{Echo, Listener};
use crate::tcp::server::EchoServerConfig;

/// The certificate that all servers of a bench use, with its key. It provides no security, but costs as much
/// as any other certificate. Made by `openssl ca -selfsign` for `DNS:homa-bench`, `CA:FALSE`, valid from 2020
/// to 2099.
const CERTIFICATE: &[u8] = include_bytes!("quic-cert.der");
const KEY: &[u8] = include_bytes!("quic-key.der");
const SERVER_NAME: &str = "homa-bench";

/// Receive window of a stream in bytes: two messages of 1 MB.
const STREAM_WINDOW: u32 = 2 << 20;

/// Maximum number of unacknowledged bytes of a connection, for many RPCs in flight.
const SEND_WINDOW: u64 = 16 << 20;

/// Maximum number of open RPCs per connection: more than any bench opens.
const MAX_STREAMS: u32 = 100_000;

/// Interval of keep-alive packets, so that connections survive the turns of other protocols.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Error code of a stream whose request the server refuses.
const REFUSED: u32 = 1;

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(MAX_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .send_window(SEND_WINDOW)
        .send_fairness(false)
        .keep_alive_interval(Some(KEEP_ALIVE));
    Arc::new(transport)
}

/// Opens a socket with the same buffer sizes as Homa's.
fn socket(bind: SocketAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(bind), Type::DGRAM, None)?;
    socket.bind(&bind.into())?;
    let sizes = UdpConfig::default();
    let buffers = SockRef::from(&socket);
    buffers.set_send_buffer_size(sizes.send_buffer_bytes)?;
    buffers.set_recv_buffer_size(sizes.receive_buffer_bytes)?;
    Ok(socket.into())
}

fn endpoint(bind: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let endpoint = Endpoint::new(EndpointConfig::default(), server, socket(bind)?, Arc::new(TokioRuntime));
    endpoint.context("cannot make a QUIC endpoint")
}

/// QUIC, implemented by quinn.
pub struct Quic {
    endpoint: Endpoint,
}

impl Listener for Quic {
    const NAME: &str = "QUIC";

    fn bind(addr: SocketAddr, _: &EchoServerConfig) -> Result<(Quic, SocketAddr)> {
        let key = PrivatePkcs8KeyDer::from(KEY).into();
        let mut config = ServerConfig::with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key)?;
        config.transport_config(transport());
        let endpoint = endpoint(addr, Some(config))?;
        let addr = endpoint.local_addr()?;
        Ok((Quic { endpoint }, addr))
    }

    async fn serve(self, config: EchoServerConfig, echo: Echo) -> Result<()> {
        while let Some(incoming) = self.endpoint.accept().await {
            tokio::spawn(serve_connection(incoming, config.max_message as usize, echo.clone()));
        }
        Err(anyhow!("the endpoint was closed"))
    }
}

/// Serves a connection until the client closes it, which is not an error.
async fn serve_connection(incoming: Incoming, max_message: usize, echo: Echo) {
    let Ok(connection) = incoming.await else { return };
    while let Ok((send, receive)) = connection.accept_bi().await {
        let echo = echo.clone();
        tokio::spawn(async move {
            // The end of the stream reports errors to the client.
            let _ = serve_stream(send, receive, max_message, &echo).await;
        });
    }
}

async fn serve_stream(
    mut send: SendStream,
    mut receive: RecvStream,
    max_message: usize,
    echo: &Echo,
) -> Result<()> {
    let request = match receive.read_to_end(max_message).await {
        Ok(request) => request,
        Err(error) => {
            // Without the reset, dropping the stream would finish it, and the client would mistake the end
            // for a response.
            let _ = send.reset(REFUSED.into());
            return Err(error.into());
        }
    };
    send.write_chunk(echo.answer(request.into())).await?;
    send.finish()?;
    Ok(())
}

/// The client's end of a connection.
#[derive(Clone, Debug)]
pub struct QuicClient {
    connection: Connection,
    max_message: usize,
}

impl link::Connection for QuicClient {
    const NAME: &str = "QUIC";

    type Local = Endpoint;

    fn local(config: &PeerLinkConfig) -> Result<Endpoint> {
        let bind = match config.servers.first() {
            Some(SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(CERTIFICATE))?;
        let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
        client.transport_config(transport());
        let mut endpoint = endpoint(bind, None)?;
        endpoint.set_default_client_config(client);
        Ok(endpoint)
    }

    async fn connect(endpoint: &Endpoint, server: SocketAddr, config: &PeerLinkConfig) -> Result<QuicClient> {
        let connection = endpoint.connect(server, SERVER_NAME)?.await?;
        Ok(QuicClient { connection, max_message: config.max_message as usize })
    }

    async fn call(self, request: Bytes) -> Result<Bytes, String> {
        self.exchange(request).await.map_err(|error| format!("{error:#}"))
    }
}

impl QuicClient {
    async fn exchange(self, request: Bytes) -> Result<Bytes> {
        let (mut send, mut receive) = self.connection.open_bi().await?;
        send.write_chunk(request).await?;
        send.finish()?;
        Ok(receive.read_to_end(self.max_message).await?.into())
    }
}
