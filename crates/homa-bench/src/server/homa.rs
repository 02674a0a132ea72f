//! The Homa server, which answers each request with the request's own bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use homa::{Host, ServerAddr};

use super::options::ServerOptions;
use crate::addresses::{FIRST_HOMA_PORT, host_config, on_device};
use crate::driver::Driver;
use crate::recording::Recorder;
use crate::tcp::server::one_way_answer;

/// A Homa host with server ports, each served by one or more threads.
pub(super) struct HomaServer {
    pub(super) addrs: Vec<ServerAddr>,
    pub(super) served: Arc<AtomicU64>,
    /// Keeps the host alive: the server ports end with it.
    pub(super) host: Arc<Host>,
    pub(super) recorder: Option<Recorder>,
}

impl HomaServer {
    pub(super) fn start(options: &ServerOptions) -> Result<HomaServer> {
        let bind = options.bind;
        let mut config = host_config(options.driver, bind, options.max_message, options.poll);
        config.low_latency = options.low_latency;
        options.host.apply(&mut config);
        on_device(&mut config, options.interface.as_deref(), options.queues.as_deref(), options.xdp_mode);
        options.trace.apply(&mut config);
        let host = Host::builder().config(config).bind().with_context(|| match options.driver {
            Driver::Udp => format!("cannot serve Homa at UDP {bind}"),
            Driver::Raw => format!("cannot serve Homa over raw IP at {}", bind.ip()),
            Driver::LinuxUdp => format!("cannot serve Homa in Linux Homa's UDP form at {}", bind.ip()),
            Driver::Packet | Driver::Xdp => format!("cannot serve Homa through a device at UDP {bind}"),
        })?;
        let host = Arc::new(host);
        let path = options.trace_file.as_deref();
        let recorder = path.map(|path| Recorder::start(path, &host, None)).transpose()?;
        let served = Arc::new(AtomicU64::new(0));
        ensure!(options.ports > 0, "a Homa server needs a port");
        let threads_of = |index| {
            let rest = u16::from(index < options.threads % options.ports);
            (options.threads / options.ports + rest).max(1)
        };
        let open = |index| serve_homa(&host, index, threads_of(index), options.one_way, &served);
        let addrs = (0..options.ports).map(open).collect::<Result<_>>()?;
        Ok(HomaServer { addrs, served, host, recorder })
    }
}

/// Opens the server port with this index on a host, and starts `threads` threads that answer its requests.
/// The threads run until the process exits.
///
/// # Errors
/// The port is open already, or a thread cannot be started.
pub fn serve_homa(
    host: &Host,
    index: u16,
    threads: u16,
    one_way: bool,
    served: &Arc<AtomicU64>,
) -> Result<ServerAddr> {
    let port = FIRST_HOMA_PORT + index;
    let server = host.server(port).with_context(|| format!("cannot open Homa port {port}"))?;
    for _ in 0..threads {
        let (server, served) = (server.clone(), Arc::clone(served));
        thread::Builder::new()
            .name(format!("homa-server-{index}"))
            .spawn(move || echo(&server, &served, one_way))
            .context("cannot start a thread")?;
    }
    Ok(ServerAddr { host: host.local_addr(), port })
}

/// Maximum number of requests that a thread receives in one batch. An echo is so short that later requests of
/// a batch wait only briefly.
const BATCH: usize = 32;

fn echo(server: &homa::Server, served: &AtomicU64, one_way: bool) {
    let (mut requests, mut replies) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    while let Ok(count) = server.recv().wait_batch(BATCH, &mut requests) {
        served.fetch_add(count as u64, Ordering::Relaxed);
        for mut rpc in requests.drain(..) {
            let request = rpc.take_payload();
            let answer = if one_way { one_way_answer(&request) } else { request };
            replies.push((rpc, answer));
        }
        // Errors are ignored: either the client gave up, or this server is at a limit. In both cases the
        // client notices.
        homa::Request::reply_all(&mut replies, drop);
    }
}
