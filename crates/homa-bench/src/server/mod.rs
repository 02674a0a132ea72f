//! Echo servers: for Homa, and for the protocols that Homa is compared with.
//!
//! [`Server`] serves in this process. [`ServerProcess`] runs a single protocol in a child process, so that
//! processor time is counted per protocol. The child runs [`serve_for_parent`].

mod homa;
mod options;
mod other;
mod process;
mod report;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::homa::Host;
use anyhow::{Result, ensure};
use homa_metrics::Exporter;

pub use self::homa::serve_homa;
pub use options::{DEFAULT_POLL, ServerOptions};
pub use process::{CHILD_COMMAND, ServerProcess, serve_for_parent};
pub use report::Report;

use self::homa::HomaServer;
use crate::addresses::offset;
use crate::hosts::Hosts;
use crate::protocol::Protocol;
use other::OtherServer;

/// Servers that answer each request with the request's own bytes. Their threads run until the process exits.
pub struct Server {
    homa: Option<HomaServer>,
    others: Vec<(Protocol, OtherServer)>,
    /// Dropping the exporter removes its socket.
    _exporter: Option<Exporter>,
}

impl Server {
    /// Opens all ports. Calls `announce` with the address of the metrics, then with the address of each port,
    /// and finally with [`Report::Ready`].
    ///
    /// # Errors
    /// The options contradict each other, a port cannot be opened, a file cannot be written, or `announce`
    /// failed.
    pub fn start(options: &ServerOptions, announce: impl Fn(Report) -> Result<()>) -> Result<Server> {
        let with_homa = options.protocols.contains(&Protocol::Homa);
        ensure!(
            with_homa || options.metrics.is_none(),
            "--metrics needs Homa: serve it too (--protocol homa,tcp)"
        );
        let traced = options.trace_file.is_some();
        ensure!(with_homa || !traced, "--trace needs Homa: serve it too (--protocol homa,tcp)");
        let hosts = Hosts::default();
        let watched = hosts.clone();
        let metrics = options.metrics.as_ref();
        let exporter = metrics.map(|addr| Exporter::start(addr, move || Ok(watched.text()))).transpose()?;
        if let Some(exporter) = &exporter {
            announce(Report::Metrics(exporter.url().to_owned()))?;
        }
        let mut homa = None;
        if with_homa {
            let server = HomaServer::start(options)?;
            hosts.add(&server.host);
            server.addrs.iter().try_for_each(|addr| announce(Report::Homa(*addr)))?;
            homa = Some(server);
        }
        let mut others = Vec::new();
        for protocol in Protocol::ALL.into_iter().filter(|protocol| options.protocols.contains(protocol)) {
            if let Some(server) = OtherServer::start(protocol, offset(options.bind, protocol)?, options)? {
                server.addrs().iter().try_for_each(|addr| announce(Report::Socket(protocol, *addr)))?;
                others.push((protocol, server));
            }
        }
        announce(Report::Ready)?;
        Ok(Server { homa, others, _exporter: exporter })
    }

    /// Returns the Homa host, or `None` if Homa is not served.
    pub fn host(&self) -> Option<&Arc<Host>> {
        self.homa.as_ref().map(|server| &server.host)
    }

    /// Returns the number of requests handled so far, for each served protocol.
    pub fn served(&self) -> Vec<(Protocol, u64)> {
        let homa = self.homa.as_ref().map(|server| (Protocol::Homa, server.served.load(Ordering::Relaxed)));
        let others = self.others.iter().map(|(protocol, server)| (*protocol, server.served()));
        homa.into_iter().chain(others).collect()
    }

    /// Writes the time trace, if one is recorded.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_trace(&mut self) -> Result<()> {
        match self.homa.as_mut().and_then(|server| server.recorder.take()) {
            Some(recorder) => recorder.finish(),
            None => Ok(()),
        }
    }
}
