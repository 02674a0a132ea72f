//! The client ports of one thread over gRPC or QUIC: connections on a tokio runtime that the thread itself
//! drives.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

use super::PeerLinkConfig;
use crate::engine::link::{Answer, Link};
use crate::tcp::IdlePolling;

/// Maximum time of a connection's handshake. With TCP the server's kernel answers. Here a server thread must
/// run, which takes seconds on a machine with more threads than processors. A lost QUIC packet takes another
/// second.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to one server port.
pub trait Connection: Clone + Send + Sized + 'static {
    /// The protocol's name in error messages.
    const NAME: &str;

    /// State shared by the connections of a thread. It is created within the thread's runtime.
    type Local: Send;

    /// Creates the shared state.
    fn local(config: &PeerLinkConfig) -> Result<Self::Local>;

    /// Connects to a server port.
    fn connect(
        local: &Self::Local,
        server: SocketAddr,
        config: &PeerLinkConfig,
    ) -> impl Future<Output = Result<Self>> + Send;

    /// Runs one RPC.
    fn call(self, request: Bytes) -> impl Future<Output = Result<Bytes, String>> + Send + 'static;
}

/// Connects every client port to every server port.
pub fn connect<C: Connection>(config: &PeerLinkConfig) -> Result<Box<dyn Link>> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot make a runtime")?;
    let mut connections = Vec::new();
    let local = runtime.block_on(async {
        let local = C::local(config)?;
        for _ in 0..config.ports {
            for &server in &config.servers {
                let connection = tokio::time::timeout(HANDSHAKE_TIMEOUT, C::connect(&local, server, config));
                let failed = || format!("cannot reach a {} server at {server}", C::NAME);
                connections.push(connection.await.with_context(failed)?.with_context(failed)?);
            }
        }
        anyhow::Ok(local)
    })?;
    let (sender, receiver) = unbounded_channel();
    let servers = config.servers.len();
    let spin = IdlePolling::new(config.poll);
    Ok(Box::new(PeerLink { connections, servers, sender, receiver, spin, _local: local, runtime }))
}

struct PeerLink<C: Connection> {
    /// Indexed by client port, then by server port.
    connections: Vec<C>,
    servers: usize,
    sender: UnboundedSender<Answer>,
    receiver: UnboundedReceiver<Answer>,
    spin: IdlePolling,
    _local: C::Local,
    /// This is the last field, so that the connections are dropped before their runtime.
    runtime: Runtime,
}

impl<C: Connection> PeerLink<C> {
    fn drain(&mut self, answers: &mut Vec<Answer>) -> bool {
        let before = answers.len();
        while let Ok(answer) = self.receiver.try_recv() {
            answers.push(answer);
        }
        answers.len() > before
    }
}

impl<C: Connection> Link for PeerLink<C> {
    fn submit(&mut self, port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String> {
        let call = self.connections[port * self.servers + server].clone().call(request);
        let answers = self.sender.clone();
        self.runtime.spawn(async move {
            let result = call.await;
            // Sending fails only if the link is gone.
            let _ = answers.send(Answer { cookie, at: Instant::now(), result });
        });
        Ok(())
    }

    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        let begin = Instant::now();
        loop {
            let left = wait.saturating_sub(begin.elapsed());
            let timeout = self.spin.timeout(Some(left)).unwrap_or_default().min(left);
            if timeout.is_zero() {
                // Runs the tasks that are ready and polls the sockets once, without waiting.
                self.runtime.block_on(yield_now());
            } else {
                let receiver = &mut self.receiver;
                let answer = async { tokio::time::timeout(timeout, receiver.recv()).await };
                answers.extend(self.runtime.block_on(answer).ok().flatten());
            }
            if self.drain(answers) || !answers.is_empty() {
                self.spin.record_work();
                return Ok(());
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }
}
