//! The address of a server: its host's address, and its Homa port on that host.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A server's address, written `HOST:UDP_PORT/HOMA_PORT`, as in `10.0.0.7:14600/99` or
/// `[fe80::1%2]:14600/99`.
///
/// In text to be parsed, both ports may be omitted. They default to
/// [`DEFAULT_UDP_PORT`](ServerAddr::DEFAULT_UDP_PORT) and [`DEFAULT_PORT`](ServerAddr::DEFAULT_PORT). Raw IP
/// has no UDP ports: a host over raw IP ignores the UDP port here, and omits it from its own messages about a
/// server (`10.0.0.7/99`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddr {
    /// Address of the server's host, with the host's UDP port. Over raw IP, that port may be 0 or any number.
    pub host: SocketAddr,
    /// Homa port of the server: 1 to 32767 if the server chose the port. A port from 32768 on belongs to a
    /// socket of the kernel API that accepts requests without having chosen a port.
    pub port: u16,
}

impl ServerAddr {
    /// The Homa port of an address that states none.
    pub const DEFAULT_PORT: u16 = 99;

    /// The UDP port of an address that states none.
    pub const DEFAULT_UDP_PORT: u16 = 14_600;

    /// Returns the address of the server at `port` of `host`.
    #[must_use]
    pub const fn new(host: SocketAddr, port: u16) -> ServerAddr {
        ServerAddr { host, port }
    }

    /// Returns whether this is a link-local IPv6 address without a scope. Such an address identifies no host,
    /// and no packet can be sent to it.
    pub(crate) fn lacks_scope(&self) -> bool {
        matches!(self.host, SocketAddr::V6(host) if host.scope_id() == 0 && host.ip().is_unicast_link_local())
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            SocketAddr::V4(host) if host.port() == 0 => write!(f, "{}/{}", host.ip(), self.port),
            SocketAddr::V6(host) if host.port() == 0 && host.scope_id() == 0 => {
                write!(f, "[{}]/{}", host.ip(), self.port)
            }
            SocketAddr::V6(host) if host.port() == 0 => {
                write!(f, "[{}%{}]/{}", host.ip(), host.scope_id(), self.port)
            }
            host => write!(f, "{host}/{}", self.port),
        }
    }
}

/// The error for text that is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a server's address: {reason}; write it like 10.0.0.7:14600/99")]
pub struct ParseServerAddrError {
    /// The rejected text.
    pub text: String,
    /// The reason for the rejection.
    pub reason: &'static str,
}

impl FromStr for ServerAddr {
    type Err = ParseServerAddrError;

    fn from_str(text: &str) -> Result<ServerAddr, ParseServerAddrError> {
        let error = |reason| ParseServerAddrError { text: text.to_owned(), reason };
        let (host, port) = match text.split_once('/') {
            Some((host, port)) => (host, port.parse().map_err(|_| error("the Homa port is not a number"))?),
            None => (text, ServerAddr::DEFAULT_PORT),
        };
        if port == 0 {
            return Err(error("a Homa port is 1 to 65535"));
        }
        let host = match host.parse::<SocketAddr>() {
            Ok(host) => host,
            Err(_) => {
                let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
                let read = match bare.parse::<IpAddr>() {
                    Ok(ip) => Ok(SocketAddr::new(ip, ServerAddr::DEFAULT_UDP_PORT)),
                    // An address with a scope parses only in brackets and with a port.
                    Err(_) => format!("[{bare}]:{}", ServerAddr::DEFAULT_UDP_PORT).parse(),
                };
                read.map_err(|_| error("the host is not an IP address"))?
            }
        };
        Ok(ServerAddr { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, &'static str> {
        text.parse::<ServerAddr>().map(|a| a.to_string()).map_err(|e| e.reason)
    }

    #[test]
    fn whole_addresses_come_back_as_written() {
        for text in ["127.0.0.1:14600/99", "10.0.0.7:1/1", "[::1]:14600/65535"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn missing_ports_are_the_defaults() {
        assert_eq!(read("127.0.0.1:7").as_deref(), Ok("127.0.0.1:7/99"));
        assert_eq!(read("127.0.0.1").as_deref(), Ok("127.0.0.1:14600/99"));
        assert_eq!(read("127.0.0.1/5").as_deref(), Ok("127.0.0.1:14600/5"));
        assert_eq!(read("::1/5").as_deref(), Ok("[::1]:14600/5"));
        assert_eq!(read("[::1]").as_deref(), Ok("[::1]:14600/99"));
    }

    #[test]
    fn addresses_without_a_udp_port_are_shown_so() {
        for (host, shown) in [
            ("10.0.0.7:0", "10.0.0.7/5"),
            ("[::1]:0", "[::1]/5"),
            ("[fe80::1%2]:0", "[fe80::1%2]/5"),
            ("10.0.0.7:8", "10.0.0.7:8/5"),
        ] {
            let host: SocketAddr = host.parse().unwrap();
            let mut addr = ServerAddr::new(host, 5);
            assert_eq!(addr.to_string(), shown);
            if host.port() == 0 {
                addr.host.set_port(ServerAddr::DEFAULT_UDP_PORT);
            }
            assert_eq!(
                shown.parse(),
                Ok(addr),
                "what is shown can be read, where UDP needs a port with its default"
            );
        }
    }

    #[test]
    fn nonsense_is_named() {
        assert!(read("127.0.0.1:1/0").unwrap_err().contains("1 to 65535"));
        assert!(read("127.0.0.1:1/65536").unwrap_err().contains("not a number"));
        assert!(read("127.0.0.1:1/x").unwrap_err().contains("not a number"));
        assert!(read("elsewhere:1").unwrap_err().contains("IP address"));
        assert!(read("").unwrap_err().contains("IP address"));
    }
}
