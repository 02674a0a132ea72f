//! gRPC (tonic): a unary method whose messages are raw bytes, run as in tonic's generated clients and
//! servers.
//!
//! The settings follow tonic's documentation: one channel per pair of ports, cloned for each call; NODELAY on
//! both sides; message limits raised to the longest message. The flow control windows of HTTP/2 hold several
//! messages, because the default of 64 KB stalls long messages.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context, Result};
use bytes::{Buf, BufMut, Bytes};
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use super::PeerLinkConfig;
use super::link::Connection;
use super::server::{Echo, Listener};
use crate::tcp::server::EchoServerConfig;

/// Flow control window of a stream in bytes: two messages of 1 MB.
const STREAM_WINDOW: u32 = 2 << 20;

/// Flow control window of a connection in bytes, large enough for many calls in flight.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Maximum number of open calls per connection: more than any bench opens.
const MAX_STREAMS: u32 = 100_000;

const METHOD: &str = "/homa.bench.Echo/Call";

/// gRPC, implemented by tonic.
pub struct Grpc {
    incoming: TcpIncoming,
}

impl Listener for Grpc {
    const NAME: &str = "gRPC";

    fn bind(addr: SocketAddr, _: &EchoServerConfig) -> Result<(Grpc, SocketAddr)> {
        let incoming = TcpIncoming::bind(addr)?.with_nodelay(Some(true));
        let addr = incoming.local_addr()?;
        Ok((Grpc { incoming }, addr))
    }

    async fn serve(self, config: EchoServerConfig, echo: Echo) -> Result<()> {
        let service = EchoService { echo, max_message: config.max_message as usize };
        Server::builder()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(MAX_STREAMS)
            .serve_with_incoming(service, self.incoming)
            .await
            .context("tonic's server ended")
    }
}

/// The service, as generated code would implement it.
#[derive(Clone, Debug)]
struct EchoService {
    echo: Echo,
    max_message: usize,
}

impl NamedService for EchoService {
    const NAME: &'static str = "homa.bench.Echo";
}

impl Service<http::Request<Body>> for EchoService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let EchoService { echo, max_message } = self.clone();
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("this server has one method").into_http());
            }
            let mut grpc = tonic::server::Grpc::new(BytesCodec).max_decoding_message_size(max_message);
            Ok(grpc.unary(EchoMethod(echo), request).await)
        })
    }
}

struct EchoMethod(Echo);

impl UnaryService<Bytes> for EchoMethod {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(Response::new(self.0.answer(request.into_inner()))))
    }
}

/// The client's end of a connection.
#[derive(Clone, Debug)]
pub struct GrpcClient {
    channel: Channel,
    max_message: usize,
}

impl Connection for GrpcClient {
    const NAME: &str = "gRPC";

    type Local = ();

    fn local(_: &PeerLinkConfig) -> Result<()> {
        Ok(())
    }

    async fn connect((): &(), server: SocketAddr, config: &PeerLinkConfig) -> Result<GrpcClient> {
        let channel = Endpoint::from_shared(format!("http://{server}"))?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect()
            .await?;
        Ok(GrpcClient { channel, max_message: config.max_message as usize })
    }

    async fn call(self, request: Bytes) -> Result<Bytes, String> {
        let mut client = tonic::client::Grpc::new(self.channel).max_decoding_message_size(self.max_message);
        client.ready().await.map_err(|error| error.to_string())?;
        let path = PathAndQuery::from_static(METHOD);
        let answer = client.unary(Request::new(request), path, BytesCodec).await;
        answer.map(Response::into_inner).map_err(|status| status.to_string())
    }
}

/// A codec for messages of raw bytes.
#[derive(Clone, Copy, Debug)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = BytesCodec;
    type Decoder = BytesCodec;

    fn encoder(&mut self) -> BytesCodec {
        BytesCodec
    }

    fn decoder(&mut self) -> BytesCodec {
        BytesCodec
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
