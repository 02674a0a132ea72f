//! `homa top`: what happens now, at one process or many.

use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use homa_report::output;
use serde::Serialize;

use super::address::MetricsAddr;
use super::args::TopArgs;
use super::ask;
use super::figures::{Figures, Numbers, between};
use super::screen::{Column, render};

/// A process that is watched.
struct Watched {
    addr: MetricsAddr,
    /// What it told last, while it answers.
    last: Option<Seen>,
    /// Why it does not answer, and since when.
    away: Option<(Instant, String)>,
    hosts: Vec<Look>,
}

/// What a process told.
struct Seen {
    at: Instant,
    hosts: Vec<(String, Numbers)>,
    process: Numbers,
}

/// One host in one look.
#[derive(Clone, Debug, Serialize)]
struct Look {
    /// The host's own address.
    host: String,
    #[serde(flatten)]
    figures: Figures,
}

/// One process in one look, as JSON.
#[derive(Serialize)]
struct Endpoint<'a> {
    /// Where it was asked.
    addr: String,
    up: bool,
    /// Why it is not.
    error: Option<&'a str>,
    hosts: &'a [Look],
}

/// One look, as JSON.
#[derive(Serialize)]
struct All<'a> {
    schema: u32,
    /// Seconds since 1970.
    at: f64,
    endpoints: Vec<Endpoint<'a>>,
}

/// Shows what happens, again and again.
pub fn run(args: &TopArgs) -> Result<()> {
    let addr = |text: &String| text.parse::<MetricsAddr>().map_err(|error| anyhow!(error));
    let addrs = args.addrs.iter().map(addr).collect::<Result<Vec<_>>>()?;
    let mut all: Vec<Watched> = addrs.into_iter().map(Watched::new).collect();
    if let Some(error) = look(&mut all).filter(|_| all.iter().all(|watched| watched.last.is_none())) {
        return Err(error);
    }
    let count = if args.once { Some(1) } else { args.count };
    let mut looks = 0;
    while count.is_none_or(|count| looks < count) {
        thread::sleep(Duration::from_nanos(args.interval));
        look(&mut all);
        let text = if args.json { as_json(&all)? } else { screen(&all) };
        if args.json { output::print(text.as_bytes()) } else { output::redraw(&text) }?;
        looks += 1;
    }
    Ok(())
}

/// Asks all of them at once; the first error.
fn look(all: &mut [Watched]) -> Option<anyhow::Error> {
    thread::scope(|scope| {
        let asked: Vec<_> = all.iter_mut().map(|watched| scope.spawn(|| watched.look())).collect();
        let results = asked.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a thread that asked for metrics has panicked")))
        });
        // All of them are waited for.
        results.fold(None, |first, result| first.or(result.err()))
    })
}

impl Watched {
    fn new(addr: MetricsAddr) -> Watched {
        Watched { addr, last: None, away: None, hosts: Vec::new() }
    }

    fn look(&mut self) -> Result<()> {
        match ask::ask(&self.addr) {
            Ok(told) => {
                let (hosts, process) = Numbers::by_host(&told.snapshot);
                let now = Seen { at: Instant::now(), hosts, process };
                self.hosts = now.since(self.last.as_ref());
                self.last = Some(now);
                self.away = None;
                Ok(())
            }
            Err(error) => {
                let since = self.away.take().map_or_else(Instant::now, |(since, _)| since);
                self.away = Some((since, output::in_words(&error)));
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
        let anew = self.hosts.iter().any(|look| look.figures.restarted);
        anew.then(|| format!("{}: has begun anew", self.addr))
    }

    /// A host's column; one that listens at all addresses is known by where it was asked.
    fn title(&self, host: &str) -> String {
        if self.hosts.len() == 1 && matches!(self.addr, MetricsAddr::Tcp(_)) {
            return self.addr.to_string();
        }
        host.to_owned()
    }
}

impl Seen {
    fn since(&self, before: Option<&Seen>) -> Vec<Look> {
        let elapsed = before.map_or(0.0, |before| self.at.duration_since(before.at).as_secs_f64());
        let look = |(host, numbers): &(String, Numbers)| {
            let then = before.and_then(|before| {
                let (_, numbers) = before.hosts.iter().find(|(other, _)| other == host)?;
                Some((numbers, &before.process))
            });
            Look { host: host.clone(), figures: between(then, (numbers, &self.process), elapsed) }
        };
        self.hosts.iter().map(look).collect()
    }
}

fn as_json(all: &[Watched]) -> Result<String> {
    let endpoints = all.iter().map(|watched| Endpoint {
        addr: watched.addr.to_string(),
        up: watched.away.is_none(),
        error: watched.away.as_ref().map(|(_, why)| why.as_str()),
        hosts: if watched.away.is_none() { &watched.hosts } else { &[] },
    });
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let all = All { schema: 1, at, endpoints: endpoints.collect() };
    Ok(serde_json::to_string(&all).context("cannot write the look as JSON")? + "\n")
}

fn screen(all: &[Watched]) -> String {
    let mut columns = Vec::new();
    for watched in all {
        if watched.away.is_some() {
            columns.push(Column { title: watched.addr.to_string(), figures: None });
            continue;
        }
        for Look { host, figures } in &watched.hosts {
            columns.push(Column { title: watched.title(host), figures: Some(figures) });
        }
    }
    let notes: Vec<String> = all.iter().filter_map(Watched::notes).collect();
    render(&columns, &notes, width())
}

/// Characters in a line of the terminal; of a file, what a page holds.
fn width() -> usize {
    let out = stdout();
    let size = if out.is_terminal() { rustix::termios::tcgetwinsize(&out).ok() } else { None };
    size.map_or(100, |size| usize::from(size.ws_col))
}
