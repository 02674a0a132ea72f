//! Addresses at which metrics are exported: an IP address and a port, or a socket in the file system.

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// The address at which a process exports its metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MetricsAddr {
    /// HTTP over TCP, to a host name or an IP address, and a port.
    Tcp(String),
    /// HTTP over a stream socket in the file system.
    Unix(PathBuf),
}

impl FromStr for MetricsAddr {
    type Err = String;

    /// Parses IP:PORT and paths, and the URLs that [`Exporter::url`](crate::Exporter::url) returns:
    /// `http://IP:PORT/metrics` and `unix:/PATH`.
    fn from_str(text: &str) -> Result<MetricsAddr, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(format!("`{text}` names no socket"))
            } else {
                Ok(MetricsAddr::Unix(path.into()))
            };
        }
        let bare = text.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
        if bare.is_none() && text.contains('/') {
            return Ok(MetricsAddr::Unix(text.into()));
        }
        let bare = bare.unwrap_or(text);
        match bare.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(MetricsAddr::Tcp(bare.to_owned()))
            }
            _ => Err(format!(
                "`{text}` is no address of metrics: use IP:PORT, or the path of a socket, as in unix:/run/homa.sock"
            )),
        }
    }
}

impl MetricsAddr {
    /// Returns an address for another process of the same command: port 0 of the IP address, or the path with
    /// `.server` appended.
    #[must_use]
    pub fn for_child(&self) -> MetricsAddr {
        match self {
            MetricsAddr::Tcp(addr) => {
                let host = addr.rsplit_once(':').map_or(addr.as_str(), |(host, _)| host);
                MetricsAddr::Tcp(format!("{host}:0"))
            }
            MetricsAddr::Unix(path) => {
                let mut path = path.clone().into_os_string();
                path.push(".server");
                MetricsAddr::Unix(path.into())
            }
        }
    }
}

impl fmt::Display for MetricsAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricsAddr::Tcp(addr) => f.write_str(addr),
            MetricsAddr::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection over TCP or a socket in the file system.
pub trait Stream: Read + Write + Send {
    /// Sets the timeout of each read and each write.
    fn set_patience(&self, patience: Duration) -> std::io::Result<()>;

    /// Shuts down the writing half.
    fn end_writing(&self);
}

impl Stream for TcpStream {
    fn set_patience(&self, patience: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(patience)).and_then(|()| self.set_write_timeout(Some(patience)))
    }

    fn end_writing(&self) {
        // The peer may have disconnected already.
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, patience: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(patience)).and_then(|()| self.set_write_timeout(Some(patience)))
    }

    fn end_writing(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

/// A listening socket over TCP or in the file system.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens at an address; port 0 picks any free port.
    ///
    /// # Errors
    /// The address is in use, belongs to another machine, or requires privileges.
    pub fn bind(addr: &MetricsAddr) -> Result<Listener> {
        match addr {
            MetricsAddr::Tcp(text) => {
                let addr = resolve(text)?;
                let listener = TcpListener::bind(addr).with_context(|| {
                    format!("cannot serve metrics at {addr}: choose another --metrics address")
                })?;
                Ok(Listener::Tcp(listener))
            }
            MetricsAddr::Unix(path) => listen_unix(path, "--metrics").map(Listener::Unix),
        }
    }

    /// Returns the URL for users and scrapers.
    pub fn url(&self) -> Result<String> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let addr = listener.local_addr().context("cannot tell where metrics are served")?;
                format!("http://{addr}/metrics")
            }
            Listener::Unix(listener) => {
                let addr = listener.local_addr().context("cannot tell where metrics are served")?;
                format!("unix:{}", addr.as_pathname().unwrap_or(Path::new("?")).display())
            }
        })
    }

    /// Accepts the next connection.
    pub fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(listener.accept()?.0),
            Listener::Unix(listener) => Box::new(listener.accept()?.0),
        })
    }
}

/// Connects, waiting for at most `patience`.
pub fn connect(addr: &MetricsAddr, patience: Duration) -> Result<Box<dyn Stream>> {
    Ok(match addr {
        MetricsAddr::Tcp(text) => Box::new(TcpStream::connect_timeout(&resolve(text)?, patience)?),
        MetricsAddr::Unix(path) => Box::new(UnixStream::connect(path)?),
    })
}

/// Resolves `HOST:PORT`, where an IPv6 address is in brackets.
fn resolve(text: &str) -> Result<SocketAddr> {
    let (host, port) = text.rsplit_once(':').with_context(|| format!("`{text}` has no port"))?;
    let port: u16 = port.parse().map_err(|_| anyhow!("`{text}`: `{port}` is not a port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = (host, port).to_socket_addrs().with_context(|| format!("cannot resolve `{host}`"))?;
    found.next().with_context(|| format!("`{host}` has no address"))
}

/// Listens on a socket in the file system, replacing any socket left behind by a dead process. `option` is
/// the name of the command-line option that sets the path, for error messages.
///
/// # Errors
/// Another process listens on the socket, the path is not a socket, or its directory is not writable.
pub fn listen_unix(path: &Path, option: &str) -> Result<UnixListener> {
    let failed = || format!("cannot listen at {}", path.display());
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            bail!("another process listens at {}: end it, or choose another {option}", path.display());
        }
        fs::remove_file(path).with_context(failed)?;
    }
    UnixListener::bind(path).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_or_paths_and_also_what_is_printed() {
        let tcp = |addr: &str| Ok(MetricsAddr::Tcp(addr.to_owned()));
        let unix = |path: &str| Ok(MetricsAddr::Unix(path.into()));
        for (text, want) in [
            ("127.0.0.1:9100", tcp("127.0.0.1:9100")),
            ("[::1]:0", tcp("[::1]:0")),
            ("localhost:9100", tcp("localhost:9100")),
            ("http://10.0.0.1:9100/metrics", tcp("10.0.0.1:9100")),
            ("http://10.0.0.1:9100", tcp("10.0.0.1:9100")),
            ("unix:/run/homa.sock", unix("/run/homa.sock")),
            ("unix:homa.sock", unix("homa.sock")),
            ("./homa.sock", unix("./homa.sock")),
        ] {
            assert_eq!(text.parse::<MetricsAddr>(), want, "{text}");
        }
        for text in ["", "9100", ":9100", "10.0.0.1", "10.0.0.1:70000", "unix:", "http://10.0.0.1"] {
            assert!(text.parse::<MetricsAddr>().is_err(), "{text}");
        }
    }

    #[test]
    fn another_process_is_beside_the_first_one() {
        let beside = |text: &str| text.parse::<MetricsAddr>().expect("an address").for_child().to_string();
        let places = ["10.0.0.1:9100", "[::1]:9100", "unix:/run/homa.sock"].map(beside);
        assert_eq!(places, ["10.0.0.1:0", "[::1]:0", "unix:/run/homa.sock.server"]);
    }
}
