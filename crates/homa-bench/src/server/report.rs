//! Reports of a server, as lines of text.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use homa::ServerAddr;

use crate::protocol::Protocol;

/// A line on a server's standard output. The bench parses the lines of its own servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The address of a Homa server port.
    Homa(ServerAddr),
    /// The address of a server port of another protocol.
    Socket(Protocol, SocketAddr),
    /// The URL of the metrics.
    Metrics(String),
    /// Reports that all ports are open.
    Ready,
    /// Number of requests handled for a protocol, reported at the end.
    Served(Protocol, u64),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Homa(addr) => write!(f, "serving homa {addr}"),
            Report::Socket(protocol, addr) => write!(f, "serving {} {addr}", protocol.name()),
            Report::Metrics(url) => write!(f, "metrics {url}"),
            Report::Ready => f.write_str("ready"),
            Report::Served(protocol, count) => write!(f, "served {} {count}", protocol.name()),
        }
    }
}

impl FromStr for Report {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Report> {
        let words: Vec<&str> = line.split(' ').collect();
        let unknown = || anyhow!("a server printed `{line}`, which is not a report");
        let protocol =
            |name| Protocol::ALL.into_iter().find(|known| known.name() == name).ok_or_else(unknown);
        Ok(match words[..] {
            ["serving", "homa", addr] => Report::Homa(addr.parse().map_err(|_| unknown())?),
            ["serving", name, addr] => Report::Socket(protocol(name)?, addr.parse().map_err(|_| unknown())?),
            ["metrics", url] => Report::Metrics(url.to_owned()),
            ["ready"] => Report::Ready,
            ["served", name, count] => Report::Served(protocol(name)?, count.parse().map_err(|_| unknown())?),
            _ => return Err(unknown()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_their_line() {
        for report in [
            Report::Homa("127.0.0.1:1/99".parse().expect("an address")),
            Report::Homa("[fe80::1%3]:14600/99".parse().expect("an address")),
            Report::Socket(Protocol::Tcp, "[::1]:7".parse().expect("an address")),
            Report::Metrics("http://127.0.0.1:9100/metrics".to_owned()),
            Report::Ready,
            Report::Served(Protocol::Tcp, 5),
        ] {
            assert_eq!(report.to_string().parse::<Report>().expect("a report"), report);
        }
        assert!("serving sctp 1".parse::<Report>().is_err());
    }
}
