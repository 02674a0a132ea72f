//! The Homa ports that are open on this host, and which of them accept requests.

use crate::config::Config;
use crate::contract::PortError;

/// First client port; servers bind lower ports (ID-6).
pub(crate) const FIRST_CLIENT_PORT: u16 = 0x8000;

/// A set of ports: one bit for each.
#[derive(Debug)]
struct PortSet(Box<[u64]>);

impl PortSet {
    fn new() -> PortSet {
        PortSet(vec![0; 1 << 10].into_boxed_slice())
    }

    fn contains(&self, port: u16) -> bool {
        self.0[usize::from(port / 64)] >> (port % 64) & 1 == 1
    }

    fn set(&mut self, port: u16, is_in: bool) {
        let (word, bit) = (&mut self.0[usize::from(port / 64)], 1 << (port % 64));
        *word = if is_in { *word | bit } else { *word & !bit };
    }
}

#[derive(Debug)]
pub(crate) struct Ports {
    open: PortSet,
    /// The open ports that accept requests.
    accepting: PortSet,
    /// First client port of this endpoint. Its client ports are `step` apart, so that no two endpoints of a
    /// host assign the same port.
    first_client: u16,
    step: u16,
    next_client: u16,
}

impl Ports {
    pub(crate) fn new(config: &Config) -> Ports {
        let first_client = FIRST_CLIENT_PORT + config.endpoint as u16;
        let (open, accepting) = (PortSet::new(), PortSet::new());
        Ports { open, accepting, first_client, step: config.endpoints as u16, next_client: first_client }
    }

    pub(crate) fn is_open(&self, port: u16) -> bool {
        self.open.contains(port)
    }

    /// Returns the number of open ports.
    pub(crate) fn open_count(&self) -> usize {
        self.open.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn any_open(&self) -> Option<u16> {
        let (at, word) = self.open.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(at as u16 * 64 + word.trailing_zeros() as u16)
    }

    pub(crate) fn accepts(&self, port: u16) -> bool {
        self.accepting.contains(port)
    }

    /// Sets whether an open port accepts requests (ID-15).
    pub(crate) fn accept(&mut self, port: u16, accept: bool) {
        self.accepting.set(port, accept && self.is_open(port));
    }

    pub(crate) fn bind(&mut self, port: u16) -> Result<(), PortError> {
        if port == 0 || port >= FIRST_CLIENT_PORT {
            return Err(PortError::OutOfRange(port));
        }
        self.open(port)
    }

    /// Opens a server or client port that the caller chose. A server port accepts requests.
    pub(crate) fn open(&mut self, port: u16) -> Result<(), PortError> {
        if port == 0 {
            return Err(PortError::OutOfRange(port));
        }
        if self.is_open(port) {
            return Err(PortError::InUse(port));
        }
        self.open.set(port, true);
        self.accept(port, port < FIRST_CLIENT_PORT);
        Ok(())
    }

    /// Opens the next free client port. Ports are assigned in turn, so that a closed port is not reused
    /// immediately.
    pub(crate) fn open_client(&mut self) -> Result<u16, PortError> {
        for _ in FIRST_CLIENT_PORT..=u16::MAX {
            let port = self.next_client;
            self.next_client = port.checked_add(self.step).unwrap_or(self.first_client);
            if !self.is_open(port) {
                self.open.set(port, true);
                return Ok(port);
            }
        }
        Err(PortError::NoneFree)
    }

    pub(crate) fn close(&mut self, port: u16) {
        self.open.set(port, false);
        self.accepting.set(port, false);
    }

    pub(crate) fn check(&self) {
        let mut both = self.open.0.iter().zip(&self.accepting.0);
        assert!(both.all(|(open, accepting)| accepting & !open == 0), "a closed port accepts requests");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_bind_low_ports_once() {
        let mut ports = Ports::new(&Config::default());
        assert_eq!(ports.bind(99), Ok(()));
        assert_eq!(ports.bind(99), Err(PortError::InUse(99)));
        assert_eq!(ports.bind(0), Err(PortError::OutOfRange(0)));
        assert_eq!(ports.bind(32_768), Err(PortError::OutOfRange(32_768)));
        assert!(ports.accepts(99) && !ports.accepts(98));
        ports.close(99);
        assert!(!ports.accepts(99));
        assert_eq!(ports.bind(99), Ok(()));
    }

    #[test]
    fn open_ports_accept_requests_as_they_are_told() {
        let mut ports = Ports::new(&Config::default());
        ports.bind(99).unwrap();
        ports.open(98).unwrap();
        ports.open(40_000).unwrap();
        assert_eq!(ports.open_client(), Ok(32_768));
        assert_eq!([99, 98, 40_000, 32_768].map(|port| ports.accepts(port)), [true, true, false, false]);
        for port in [99, 98, 40_000, 32_768] {
            for accept in [true, false, true] {
                ports.accept(port, accept);
                assert_eq!((ports.accepts(port), ports.is_open(port)), (accept, true));
            }
            ports.close(port);
            ports.accept(port, true);
            assert!(!ports.accepts(port), "it is closed");
            ports.check();
        }
        ports.open(40_000).unwrap();
        assert!(!ports.accepts(40_000), "what its last owner wanted is forgotten");
    }

    #[test]
    fn clients_get_high_ports_in_turn_until_none_is_free() {
        let mut ports = Ports::new(&Config::default());
        assert_eq!(ports.open_client(), Ok(32_768));
        ports.close(32_768);
        assert_eq!(ports.open_client(), Ok(32_769));
        for _ in 0..32_767 {
            ports.open_client().unwrap();
        }
        assert_eq!(ports.open_client(), Err(PortError::NoneFree));
    }

    #[test]
    fn no_two_endpoints_of_a_host_give_a_client_the_same_port() {
        let mut given = vec![0; 1 << 16];
        for endpoint in 0..3 {
            let mut ports = Ports::new(&Config { endpoints: 3, endpoint, ..Config::default() });
            while let Ok(port) = ports.open_client() {
                given[usize::from(port)] += 1;
            }
        }
        assert!(given[..32_768].iter().all(|n| *n == 0) && given[32_768..].iter().all(|n| *n == 1));
    }
}
