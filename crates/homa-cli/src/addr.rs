//! Names and addresses on the command line.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, anyhow};

/// Resolves `HOST[:PORT]`, with a default port. If an IPv6 address has a port, it must be in brackets.
pub fn resolve(text: &str, default_port: u16) -> Result<SocketAddr> {
    let bare: Result<std::net::IpAddr, _> = text.trim_start_matches('[').trim_end_matches(']').parse();
    if let Ok(ip) = bare {
        return Ok(SocketAddr::new(ip, default_port));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => {
            (host, port.parse().map_err(|_| anyhow!("`{text}`: `{port}` is not a port"))?)
        }
        _ => (text, default_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = (host, port).to_socket_addrs().with_context(|| format!("cannot resolve `{host}`"))?;
    found.next().with_context(|| format!("`{host}` has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_a_port() {
        for (text, want) in [
            ("10.0.0.1", "10.0.0.1:14600"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("::1", "[::1]:14600"),
            ("[::1]", "[::1]:14600"),
            ("[::1]:7", "[::1]:7"),
            ("[fe80::1%1]", "[fe80::1%1]:14600"),
            ("[fe80::1%1]:7", "[fe80::1%1]:7"),
        ] {
            assert_eq!(resolve(text, 14_600).expect(text).to_string(), want);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for text in ["10.0.0.1:port", "10.0.0.1:70000", ":", "no such name:1"] {
            assert!(resolve(text, 1).is_err(), "{text}");
        }
    }
}
