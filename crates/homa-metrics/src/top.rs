//! A live view of processes that export metrics.

use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use crate::address::MetricsAddr;
use crate::figures::{Figures, HostMetrics, between};
use crate::scrape::scrape;
use crate::screen::{Column, render};

/// The processes of a live view, with the figures of each process's hosts between the last two scrapes.
#[derive(Debug)]
pub struct LiveView {
    processes: Vec<Process>,
}

impl LiveView {
    /// Creates a view of the processes at these addresses, and scrapes them once. Figures are available from
    /// the second scrape on.
    ///
    /// # Errors
    /// None of the processes responds.
    pub fn start(addrs: Vec<MetricsAddr>) -> Result<LiveView> {
        let mut top = LiveView { processes: addrs.into_iter().map(Process::new).collect() };
        match top.update() {
            Some(error) if top.processes.iter().all(|process| process.last.is_none()) => Err(error),
            _ => Ok(top),
        }
    }

    /// Scrapes all processes concurrently, and returns the first error. A process that does not respond stays
    /// in the view.
    pub fn update(&mut self) -> Option<anyhow::Error> {
        thread::scope(|scope| {
            let threads: Vec<_> =
                self.processes.iter_mut().map(|process| scope.spawn(|| process.update())).collect();
            let results = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread that scrapes metrics has panicked")))
            });
            // This waits for all scrapes.
            results.fold(None, |first, result| first.or(result.err()))
        })
    }

    /// Formats the view as one line of JSON.
    ///
    /// # Errors
    /// The view cannot be represented as JSON.
    pub fn json(&self) -> Result<String> {
        let endpoints = self.processes.iter().map(|process| Endpoint {
            addr: process.addr.to_string(),
            up: process.away.is_none(),
            error: process.away.as_ref().map(|(_, why)| why.as_str()),
            hosts: if process.away.is_none() { &process.hosts } else { &[] },
        });
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let view = LiveViewJson { schema: 1, at, endpoints: endpoints.collect() };
        Ok(serde_json::to_string(&view).context("cannot write the look as JSON")? + "\n")
    }

    /// Renders the view for a terminal of `width` characters.
    #[must_use]
    pub fn screen(&self, width: usize) -> String {
        let mut columns = Vec::new();
        for process in &self.processes {
            if process.away.is_some() {
                columns.push(Column { title: process.addr.to_string(), figures: None });
                continue;
            }
            for HostFigures { host, figures } in &process.hosts {
                columns.push(Column { title: process.title(host), figures: Some(figures) });
            }
        }
        let notes: Vec<String> = self.processes.iter().filter_map(Process::notes).collect();
        render(&columns, &notes, width)
    }
}

/// A process in the view.
#[derive(Debug)]
struct Process {
    addr: MetricsAddr,
    /// The latest scrape of the process.
    last: Option<Counters>,
    /// When the process became unavailable, and why.
    away: Option<(Instant, String)>,
    hosts: Vec<HostFigures>,
}

/// The metrics of a process at one point in time.
#[derive(Debug)]
struct Counters {
    at: Instant,
    hosts: Vec<(String, HostMetrics)>,
    process: HostMetrics,
}

/// The figures of one host between two scrapes.
#[derive(Clone, Debug, Serialize)]
struct HostFigures {
    /// The host's address.
    host: String,
    #[serde(flatten)]
    figures: Figures,
}

/// A process in the JSON output.
#[derive(Serialize)]
struct Endpoint<'a> {
    /// The address of the process's metrics.
    addr: String,
    up: bool,
    /// Why the process is not available.
    error: Option<&'a str>,
    hosts: &'a [HostFigures],
}

/// The JSON output.
#[derive(Serialize)]
struct LiveViewJson<'a> {
    schema: u32,
    /// Seconds since 1970.
    at: f64,
    endpoints: Vec<Endpoint<'a>>,
}

impl Process {
    fn new(addr: MetricsAddr) -> Process {
        Process { addr, last: None, away: None, hosts: Vec::new() }
    }

    fn update(&mut self) -> Result<()> {
        match scrape(&self.addr) {
            Ok(scrape) => {
                let (hosts, process) = HostMetrics::by_host(&scrape.snapshot);
                let now = Counters { at: Instant::now(), hosts, process };
                self.hosts = now.since(self.last.as_ref());
                self.last = Some(now);
                self.away = None;
                Ok(())
            }
            Err(error) => {
                let since = self.away.take().map_or_else(Instant::now, |(since, _)| since);
                self.away = Some((since, format!("{error:#}")));
                Err(error)
            }
        }
    }

    fn notes(&self) -> Option<String> {
        if let Some((since, why)) = &self.away {
            return Some(format!("{}: away for {} s: {why}", self.addr, since.elapsed().as_secs()));
        }
        if self.hosts.is_empty() {
            return Some(format!("{}: answers, and has no host now", self.addr));
        }
        let restarted = self.hosts.iter().any(|host| host.figures.restarted);
        restarted.then(|| format!("{}: was restarted", self.addr))
    }

    /// Returns the title of a host's column. If there is a single host, this is the address of the metrics,
    /// because the host may listen at all addresses.
    fn title(&self, host: &str) -> String {
        if self.hosts.len() == 1 && matches!(self.addr, MetricsAddr::Tcp(_)) {
            return self.addr.to_string();
        }
        host.to_owned()
    }
}

impl Counters {
    fn since(&self, before: Option<&Counters>) -> Vec<HostFigures> {
        let elapsed = before.map_or(0.0, |before| self.at.duration_since(before.at).as_secs_f64());
        let figures = |(host, numbers): &(String, HostMetrics)| {
            let then = before.and_then(|before| {
                let (_, numbers) = before.hosts.iter().find(|(other, _)| other == host)?;
                Some((numbers, &before.process))
            });
            HostFigures { host: host.clone(), figures: between(then, (numbers, &self.process), elapsed) }
        };
        self.hosts.iter().map(figures).collect()
    }
}
