//! A host's counters and its peers, as text and as JSON.

use std::fmt;
use std::net::SocketAddr;

use homa::Host;
use homa::metrics::PeerInfo;
use serde::{Serialize, Serializer};

/// The counters and peers of a host at one point in time. The text form lists the counters that are not 0,
/// with their meanings, and a table of peers. The JSON form has all counters by name.
#[derive(Serialize)]
pub struct HostReport {
    #[serde(serialize_with = "by_name")]
    counters: Vec<Counter>,
    peers: Vec<Peer>,
}

/// Name, value and meaning.
type Counter = (String, u64, &'static str);

/// The state of a peer.
#[derive(Serialize)]
struct Peer {
    addr: String,
    is_ours: bool,
    /// `?`, `1`, `2`, `3` or `ours`.
    dialect: &'static str,
    rpcs: u32,
    /// `None` if it was not measured.
    rtt_us: Option<f64>,
    unsched_bytes: u32,
    /// `None` if the peer advertises no limit.
    unsched_limit: Option<u32>,
    max_packet: u32,
}

impl HostReport {
    /// Returns the current report of this host.
    pub fn of(host: &Host) -> HostReport {
        HostReport {
            counters: host.metrics().entries(),
            peers: host.peers().into_iter().map(Peer::from).collect(),
        }
    }
}

impl From<PeerInfo> for Peer {
    fn from(peer: PeerInfo) -> Peer {
        Peer {
            addr: name(peer.addr),
            is_ours: peer.is_ours,
            dialect: peer.dialect.name(),
            rpcs: peer.rpcs,
            rtt_us: peer.rtt_ns.map(|ns| ns as f64 / 1e3),
            unsched_bytes: peer.unsched_bytes,
            unsched_limit: peer.unsched_limit,
            max_packet: peer.max_packet,
        }
    }
}

/// Returns the peer's name. Over raw IP, peers have no port.
fn name(addr: SocketAddr) -> String {
    match addr.port() {
        0 => addr.ip().to_string(),
        _ => addr.to_string(),
    }
}

fn by_name<S: Serializer>(counters: &[Counter], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counters.iter().map(|(name, value, _)| (name, value)))
}

impl fmt::Display for HostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "counters that are not 0:")?;
        let counters: Vec<&Counter> = self.counters.iter().filter(|(_, value, _)| *value > 0).collect();
        let widest = counters.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        for (name, value, meaning) in counters {
            writeln!(f, "  {name:widest$} {value:>12}  {meaning}")?;
        }
        if self.peers.is_empty() {
            return writeln!(f, "peers: none");
        }
        writeln!(f, "peers:")?;
        let widest = self.peers.iter().map(|peer| peer.addr.len()).max().unwrap_or(0).max("address".len());
        writeln!(
            f,
            "  {:widest$}  ours  dialect  RPCs     RTT µs  unscheduled  its limit  max packet",
            "address"
        )?;
        for peer in &self.peers {
            let ours = if peer.is_ours { "yes" } else { "no" };
            let rtt = peer.rtt_us.map_or("-".to_owned(), |us| format!("{us:.1}"));
            let limit = peer.unsched_limit.map_or("none".to_owned(), |bytes| bytes.to_string());
            writeln!(
                f,
                "  {:widest$}  {ours:4}  {:7} {:>5} {rtt:>10} {:>12} {limit:>10} {:>11}",
                peer.addr, peer.dialect, peer.rpcs, peer.unsched_bytes, peer.max_packet
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> HostReport {
        let peer = |addr: &str, rtt_us, unsched_limit: Option<u32>| Peer {
            addr: name(addr.parse().expect("an address")),
            is_ours: unsched_limit.is_some(),
            dialect: if unsched_limit.is_some() { "ours" } else { "2" },
            rpcs: 2,
            rtt_us,
            unsched_bytes: 40_000,
            unsched_limit,
            max_packet: 1_480,
        };
        HostReport {
            counters: vec![
                ("packets_sent".to_owned(), 1_234, "Packets given out to be sent."),
                ("drop_invalid".to_owned(), 0, "Dropped: not a valid Homa packet."),
            ],
            peers: vec![peer("10.0.0.1:0", None, None), peer("[fd00::1]:14600", Some(12.345), Some(9_000))],
        }
    }

    #[test]
    fn counters_that_are_not_0_with_their_meaning_and_a_table_of_peers() {
        assert_eq!(
            report().to_string(),
            "counters that are not 0:\n\
            \x20 packets_sent         1234  Packets given out to be sent.\n\
            peers:\n\
            \x20 address          ours  dialect  RPCs     RTT µs  unscheduled  its limit  max packet\n\
            \x20 10.0.0.1         no    2           2          -        40000       none        1480\n\
            \x20 [fd00::1]:14600  yes   ours        2       12.3        40000       9000        1480\n"
        );
        let nobody = HostReport { counters: Vec::new(), peers: Vec::new() };
        assert_eq!(nobody.to_string(), "counters that are not 0:\npeers: none\n");
    }

    #[test]
    fn json_has_all_counters_and_unknowns_as_null() {
        let json = serde_json::to_value(report()).expect("JSON");
        assert_eq!(json["counters"]["packets_sent"], 1_234);
        assert_eq!(json["counters"]["drop_invalid"], 0);
        let peers = json["peers"].as_array().expect("an array");
        assert!(peers[0]["rtt_us"].is_null() && peers[0]["unsched_limit"].is_null());
        let expected = serde_json::json!({
            "addr": "[fd00::1]:14600", "is_ours": true, "dialect": "ours", "rpcs": 2, "rtt_us": 12.345,
            "unsched_bytes": 40_000, "unsched_limit": 9_000, "max_packet": 1_480,
        });
        assert_eq!(peers[1], expected);
    }
}
