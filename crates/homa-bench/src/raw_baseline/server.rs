//! The echo server over raw packets. Each port has its own thread, because a packet path has one owner.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::frame::PacketKind;
use super::open;
use super::path::Path;
use crate::addresses::bind_at;
use crate::driver::Driver;
use crate::tcp::IdlePolling;
use crate::tcp::server::one_way_answer;

/// The settings of an echo server.
#[derive(Clone, Copy, Debug)]
pub struct RawBaselineServerConfig {
    /// The packet driver.
    pub driver: Driver,
    /// Address of the first port. Further ports use consecutive port numbers, unless the port is 0.
    pub bind: SocketAddr,
    /// Number of ports, each with its own thread.
    pub ports: u16,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Maximum length of a request in bytes.
    pub max_message: u32,
    /// Whether responses are 100 bytes long instead of as long as the request.
    pub one_way: bool,
    /// Whether the kernel segments and merges runs of packets of equal length.
    pub offload: bool,
}

/// A running server. Its threads run until the process exits.
#[derive(Debug)]
pub struct RawBaselineServer {
    addrs: Vec<SocketAddr>,
    served: Arc<AtomicU64>,
}

impl RawBaselineServer {
    /// Binds all ports and starts the threads.
    pub fn start(config: RawBaselineServerConfig) -> Result<RawBaselineServer> {
        ensure!(
            !config.driver.shares_address() || config.ports == 1,
            "--server-ports {}: with --driver {} bare packets have no ports of their own; use --driver udp",
            config.ports,
            config.driver.name()
        );
        let served = Arc::new(AtomicU64::new(0));
        let mut addrs = Vec::new();
        for index in 0..config.ports {
            let driver = open(config.driver, bind_at(config.bind, index)?, config.offload)?;
            let mut path = Path::new(driver, config.max_message.max(100));
            addrs.push(path.local_addr());
            let served = Arc::clone(&served);
            thread::Builder::new()
                .name(format!("bare-server-{index}"))
                .spawn(move || {
                    if let Err(error) = echo(&mut path, &served, config) {
                        eprintln!("homa: bare packets are no longer served: {error:#}");
                    }
                })
                .context("cannot start a thread")?;
        }
        Ok(RawBaselineServer { addrs, served })
    }

    /// Returns the address of each port.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Returns the number of requests answered so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

fn echo(path: &mut Path, served: &AtomicU64, config: RawBaselineServerConfig) -> Result<()> {
    let mut spin = IdlePolling::new(config.poll);
    let mut requests = Vec::new();
    loop {
        let count = path.receive(|message| {
            if message.kind == PacketKind::Request {
                requests.push(message);
            }
        })?;
        // The server must not end because a client has exited.
        while path.refused().is_some() {}
        for request in requests.drain(..) {
            served.fetch_add(1, Ordering::Relaxed);
            let answer = if config.one_way { one_way_answer(&request.payload) } else { request.payload };
            path.push(request.from, PacketKind::Answer, request.id, answer);
        }
        path.flush()?;
        if count > 0 {
            spin.record_work();
            continue;
        }
        path.sweep(Instant::now());
        match spin.timeout(None) {
            Some(Duration::ZERO) => {}
            _ => path.sleep(Duration::MAX)?,
        }
    }
}
