//! The subjects of the measurements: each protocol, and Homa and raw packets once per driver.

use crate::driver::Driver;
use crate::protocol::Protocol;

/// What is measured in one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The protocol.
    pub protocol: Protocol,
    /// The packet driver of Homa or of raw packets; ignored for TCP, gRPC and QUIC.
    pub driver: Driver,
    /// Raw packets only: whether the kernel segments and merges runs of packets of equal length.
    pub offload: bool,
}

impl Subject {
    /// Returns all combinations of these protocols and drivers: raw packets first, then Homa, then the other
    /// protocols.
    pub fn all(protocols: &[Protocol], drivers: &[Driver]) -> Vec<Subject> {
        let mut subjects = Vec::new();
        let has = |protocol| protocols.contains(&protocol);
        for (protocol, wanted) in [(Protocol::Udp, has(Protocol::Udp)), (Protocol::Homa, has(Protocol::Homa))]
        {
            for &driver in drivers.iter().filter(|_| wanted) {
                subjects.push(Subject { protocol, driver, offload: false });
                if protocol == Protocol::Udp && matches!(driver, Driver::Udp | Driver::Packet) {
                    subjects.push(Subject { protocol, driver, offload: true });
                }
            }
        }
        for protocol in Protocol::ALL {
            if has(protocol) && !matches!(protocol, Protocol::Udp | Protocol::Homa) {
                subjects.push(Subject { protocol, driver: Driver::Udp, offload: false });
            }
        }
        subjects
    }

    /// Returns the stable name used in JSON and figures.
    pub fn name(&self) -> String {
        match self.protocol {
            Protocol::Homa => format!("homa/{}", self.driver.name()),
            Protocol::Udp if self.offload => format!("bare/{}-offload", self.driver.name()),
            Protocol::Udp => format!("bare/{}", self.driver.name()),
            protocol => protocol.name().to_owned(),
        }
    }

    /// Returns whether only root can open the subject's driver.
    pub fn needs_root(&self) -> bool {
        matches!(self.protocol, Protocol::Homa | Protocol::Udp)
            && !matches!(self.driver, Driver::Udp | Driver::LinuxUdp)
    }

    /// Returns whether the subject's driver needs a network device, which loopback does not provide.
    pub fn needs_device(&self) -> bool {
        self.needs_root() && self.driver != Driver::Raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray;

    #[test]
    fn floors_then_homa_then_the_others_each_with_a_name_of_its_own() {
        let subjects = Subject::all(&Protocol::ALL, Driver::VARIANTS);
        let mut names: Vec<String> = subjects.iter().map(Subject::name).collect();
        assert_eq!(names[..3], ["bare/udp", "bare/udp-offload", "bare/raw"]);
        assert_eq!(names[names.len() - 3..], ["tcp", "grpc", "quic"]);
        assert!(names.contains(&"homa/udp".to_owned()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), subjects.len());
    }

    #[test]
    fn only_what_was_asked_for() {
        let names = |protocols: &[Protocol]| {
            Subject::all(protocols, &[Driver::Raw]).iter().map(Subject::name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[Protocol::Tcp, Protocol::Homa]), ["homa/raw", "tcp"]);
        assert_eq!(names(&[Protocol::Udp]), ["bare/raw"]);
    }
}
