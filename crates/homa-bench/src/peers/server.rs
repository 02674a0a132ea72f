//! The echo server over gRPC or QUIC: a tokio runtime with the requested number of threads.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::PeerServer;
use crate::addresses::bind_at;
use crate::tcp::server::{EchoServerConfig, one_way_answer};
use crate::tcp::spin::LOOKS_BETWEEN_YIELDS;

/// A server port.
pub trait Listener: Send + Sized + 'static {
    /// The protocol's name in error messages.
    const NAME: &str;

    /// Binds a port and returns its address. Called within the runtime.
    fn bind(addr: SocketAddr, config: &EchoServerConfig) -> Result<(Self, SocketAddr)>;

    /// Serves requests forever. Returns only on an error.
    fn serve(self, config: EchoServerConfig, echo: Echo) -> impl Future<Output = Result<()>> + Send;
}

/// Computes and counts the responses of a server.
#[derive(Clone, Debug)]
pub struct Echo {
    one_way: bool,
    /// Whether a polling task must be woken for each request.
    polls: bool,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    served: AtomicU64,
    woken: Notify,
}

impl Echo {
    /// Returns the response to a request.
    pub fn answer(&self, request: Bytes) -> Bytes {
        self.state.served.fetch_add(1, Ordering::Relaxed);
        if self.polls {
            self.state.woken.notify_one();
        }
        if self.one_way { one_way_answer(&request) } else { request }
    }

    /// Keeps the runtime from sleeping after each request, until no request has arrived for `poll`.
    async fn poll(self, poll: Duration) {
        loop {
            self.state.woken.notified().await;
            let mut seen = self.state.served.load(Ordering::Relaxed);
            let mut since = Instant::now();
            let mut looks = 0_u32;
            while since.elapsed() < poll {
                // Yields the processor like the other polling threads do, because the client may be waiting
                // for it.
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS_BETWEEN_YIELDS) {
                    thread::yield_now();
                }
                yield_now().await;
                let served = self.state.served.load(Ordering::Relaxed);
                if served != seen {
                    (seen, since, looks) = (served, Instant::now(), 0);
                }
            }
        }
    }
}

struct RunningServer {
    addrs: Vec<SocketAddr>,
    state: Arc<State>,
}

impl PeerServer for RunningServer {
    fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    fn served(&self) -> u64 {
        self.state.served.load(Ordering::Relaxed)
    }
}

/// Binds all ports and starts the threads.
pub fn start<L: Listener>(config: EchoServerConfig) -> Result<Box<dyn PeerServer>> {
    let runtime = match config.threads {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads.into()).enable_all().build(),
    };
    let runtime = runtime.context("cannot make a runtime")?;
    let state = Arc::new(State::default());
    let echo = Echo { one_way: config.one_way, polls: !config.poll.is_zero(), state: Arc::clone(&state) };
    let mut addrs = Vec::new();
    let guard = runtime.enter();
    for index in 0..config.ports {
        let bind = bind_at(config.bind, index)?;
        let (listener, addr) =
            L::bind(bind, &config).with_context(|| format!("cannot serve {} at {bind}", L::NAME))?;
        addrs.push(addr);
        let serve = listener.serve(config, echo.clone());
        runtime.spawn(async move {
            if let Err(error) = serve.await {
                eprintln!("homa: {} is no longer served at {addr}: {error:#}", L::NAME);
            }
        });
    }
    if echo.polls {
        runtime.spawn(echo.poll(config.poll));
    }
    drop(guard);
    thread::Builder::new()
        .name(format!("{}-server", L::NAME))
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .context("cannot start a thread")?;
    Ok(Box::new(RunningServer { addrs, state }))
}
