//! Metrics in the Prometheus text format (version 0.0.4), for a program that serves them to a scraper.
//!
//! [`text`] writes all counters of hosts. [`Text`] writes the format, for an application that adds its own
//! metrics:
//!
//! ```
//! use homa::metrics::prometheus::{MetricKind, Text};
//!
//! let mut text = Text::new();
//! text.family("shop_orders_total", MetricKind::Counter, "Orders taken.");
//! text.sample("shop_orders_total", &[("country", "is")], 12);
//! assert!(text.into_string().ends_with("shop_orders_total{country=\"is\"} 12\n"));
//! ```
//!
//! Names are stable. The unit is part of a name: `_seconds`, `_bytes`, `_bits_per_second`. A name without a
//! unit is a plain count. Counters end in `_total` and start at 0 when their host is created; everything else
//! is a gauge or a histogram.

use std::time::Duration;

use homa_proto::PeerInfo;

use crate::api::host::Host;
use crate::observe::metrics::Metrics;
pub use crate::observe::metrics_text::{MetricKind, Text};
use crate::observe::times::{Times, TimesBySize};

/// Maximum number of peers of a host that have their own lines: the peers with the most open RPCs, with ties
/// broken in favour of the lower address.
pub const PEERS_LISTED: usize = 64;

/// If a host knows more peers than this, none are listed, since packets have to wait while the peers are
/// copied.
pub const PEERS_READ: u64 = 1_000;

/// Returns all counters of these hosts, and their knowledge of their peers. Each sample has the address of
/// its host as the label `host`.
///
/// This holds each host's locks for a few microseconds while its counters are copied, and then writes about
/// 130 KB for each host. At most [`PEERS_LISTED`] peers of a host are listed, and none if the host knows more
/// than [`PEERS_READ`]. `homa_peers_listed` is the number of peers listed.
#[must_use]
pub fn text(hosts: &[&Host]) -> String {
    let seen: Vec<HostSample> = hosts.iter().map(|host| HostSample::of(host)).collect();
    write(&seen)
}

impl Host {
    /// Returns the metrics and the host's knowledge of its peers in the Prometheus text format: see [`text`].
    #[must_use]
    pub fn prometheus_text(&self) -> String {
        text(&[self])
    }
}

/// State of a host at one moment.
struct HostSample {
    host: String,
    uptime_ns: u64,
    metrics: Metrics,
    peers: Vec<PeerInfo>,
}

impl HostSample {
    fn of(host: &Host) -> HostSample {
        let metrics = host.metrics();
        let uptime_ns = u64::try_from(host.uptime().as_nanos()).unwrap_or(u64::MAX);
        let readable = metrics.host.known_peers <= PEERS_READ;
        let peers = if readable { listed(host.peers()) } else { Vec::new() };
        HostSample { host: address(host.local_addr()), uptime_ns, metrics, peers }
    }
}

/// Formats an address, without its port if that is 0, as over raw IP.
fn address(addr: std::net::SocketAddr) -> String {
    if addr.port() == 0 { addr.ip().to_string() } else { addr.to_string() }
}

/// Selects the peers to list, sorted by address.
fn listed(mut peers: Vec<PeerInfo>) -> Vec<PeerInfo> {
    // The peers are already sorted by address, and a stable sort keeps that order among peers with equally
    // many RPCs.
    peers.sort_by_key(|peer| std::cmp::Reverse(peer.rpcs));
    peers.truncate(PEERS_LISTED);
    peers.sort_by_key(|peer| peer.addr);
    peers
}

fn write(hosts: &[HostSample]) -> String {
    let mut text = Text::new();
    text.family(
        "homa_uptime_seconds",
        MetricKind::Gauge,
        "Time since the host was made, when these numbers were read.",
    );
    for seen in hosts {
        text.sample("homa_uptime_seconds", &[("host", &seen.host)], seen.uptime_ns as f64 / 1e9);
    }
    write_entries(&mut text, hosts);
    write_times(&mut text, hosts);
    write_peers(&mut text, hosts);
    text.into_string()
}

fn write_entries(text: &mut Text, hosts: &[HostSample]) {
    let entries: Vec<_> = hosts.iter().map(|seen| seen.metrics.entries()).collect();
    let Some((first, kinds)) = entries.first().zip(hosts.first().map(|seen| seen.metrics.kinds())) else {
        return;
    };
    for (index, ((entry, _, help), kind)) in first.iter().zip(kinds).enumerate() {
        let (name, unit) = name_and_unit(entry, kind);
        text.family(&name, kind, &unit.help(help));
        for (seen, entries) in hosts.iter().zip(&entries) {
            let (labels, value) = ([("host", seen.host.as_str())], entries[index].1);
            match unit {
                MetricUnit::AsIs => text.sample(&name, &labels, value),
                MetricUnit::Times(factor) => text.sample(&name, &labels, value.saturating_mul(factor)),
                MetricUnit::Over(divisor) => text.sample(&name, &labels, value as f64 / divisor),
            }
        }
    }
}

/// How a counter's value is converted to the unit in its name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MetricUnit {
    AsIs,
    Times(u64),
    Over(f64),
}

impl MetricUnit {
    /// Returns the help text of a counter in this unit.
    fn help(self, help: &str) -> String {
        match self {
            MetricUnit::AsIs => help.to_owned(),
            MetricUnit::Times(_) => help.replacen("Mbit/s", "bit/s", 1),
            MetricUnit::Over(_) => help.replacen("Nanoseconds", "Seconds", 1),
        }
    }
}

/// Returns the metric name for a counter, and its unit: the format uses units without prefixes.
fn name_and_unit(entry: &str, kind: MetricKind) -> (String, MetricUnit) {
    let (stem, unit) = if let Some(stem) = entry.strip_suffix("_ns") {
        (format!("{stem}_seconds"), MetricUnit::Over(1e9))
    } else if let Some(stem) = entry.strip_suffix("_mbps") {
        (format!("{stem}_bits_per_second"), MetricUnit::Times(1_000_000))
    } else {
        (entry.to_owned(), MetricUnit::AsIs)
    };
    let end = if kind == MetricKind::Counter { "_total" } else { "" };
    (format!("homa_{stem}{end}"), unit)
}

/// A histogram of times: its name, help text and accessor.
type TimesMetric = (&'static str, &'static str, fn(&Metrics) -> &TimesBySize);

const TIMES: [TimesMetric; 2] = [
    (
        "homa_call_seconds",
        "Time of calls until their response was whole, by the bytes of the longer of request and response; without calls that failed.",
        |metrics| &metrics.call_times,
    ),
    (
        "homa_answer_seconds",
        "Time from a request's being whole at this server until its answer was handed over, waiting and handling without the network, \
         by the bytes of the longer of the two.",
        |metrics| &metrics.answer_times,
    ),
];

fn write_times(text: &mut Text, hosts: &[HostSample]) {
    // Format the bounds only once for all lines: formatting a fraction takes as long as the rest of a line.
    let of_end = |end: Option<Duration>| end.map_or("+Inf".to_owned(), |end| end.as_secs_f64().to_string());
    let ends: Vec<String> = Times::default().buckets().map(|(end, _)| of_end(end)).collect();
    for (name, help, times) in TIMES {
        text.family(name, MetricKind::Histogram, help);
        let names = ["bucket", "sum", "count"].map(|part| format!("{name}_{part}"));
        for seen in hosts {
            write_classes(text, &names, &ends, &seen.host, times(&seen.metrics));
        }
    }
}

fn write_classes(
    text: &mut Text,
    [bucket, sum, of_all]: &[String; 3],
    ends: &[String],
    host: &str,
    times: &TimesBySize,
) {
    for (bytes, times) in times.classes() {
        let mut so_far = 0;
        for ((_, count), end) in times.buckets().zip(ends) {
            so_far += count;
            let labels = [("host", host), ("bytes", bytes), ("le", end)];
            text.sample(bucket, &labels, so_far);
        }
        let labels = [("host", host), ("bytes", bytes)];
        text.sample(sum, &labels, times.sum().as_secs_f64());
        text.sample(of_all, &labels, so_far);
    }
}

/// A metric of a peer; the value is `None` if it is unknown or does not exist.
type PeerMetric = (&'static str, &'static str, fn(&PeerInfo) -> Option<f64>);

const OF_PEERS: [PeerMetric; 7] = [
    ("homa_peer_open_rpcs", "RPCs open with the peer, of both sides.", |peer| Some(peer.rpcs.into())),
    ("homa_peer_is_ours", "1 for a peer that has shown itself as of this project.", |peer| {
        Some(f64::from(u8::from(peer.is_ours)))
    }),
    (
        "homa_peer_dialect",
        "How the peer speaks Homa: 0 not known yet, 1 to 3 the dialects of Linux Homa, 4 this project.",
        |peer| Some(peer.dialect.number().into()),
    ),
    (
        "homa_peer_rtt_seconds",
        "Smallest time that a grant from the peer took lately, where it was measured.",
        |peer| peer.rtt_ns.map(|ns| ns as f64 / 1e9),
    ),
    ("homa_peer_unscheduled_bytes", "Bytes of the next message to the peer that will go unasked.", |peer| {
        Some(peer.unsched_bytes.into())
    }),
    (
        "homa_peer_unscheduled_limit_bytes",
        "What the peer lets messages to it send unasked, where it sets a limit.",
        |peer| peer.unsched_limit.map(f64::from),
    ),
    ("homa_peer_max_packet_bytes", "Largest Homa packet on the path to the peer, header included.", |peer| {
        Some(peer.max_packet.into())
    }),
];

fn write_peers(text: &mut Text, hosts: &[HostSample]) {
    text.family(
        "homa_peers_listed",
        MetricKind::Gauge,
        "Peers that are listed here: those with the most open RPCs, at most 64, and none where more than 1000 are known.",
    );
    for seen in hosts {
        text.sample("homa_peers_listed", &[("host", &seen.host)], seen.peers.len());
    }
    for (name, help, value) in OF_PEERS {
        text.family(name, MetricKind::Gauge, help);
        for seen in hosts {
            for peer in &seen.peers {
                if let Some(value) = value(peer) {
                    text.sample(name, &[("host", &seen.host), ("peer", &address(peer.addr))], value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn peer(last: u8, rpcs: u32) -> PeerInfo {
        let mut peer = PeerInfo::unknown(([10, 0, 0, last], 14_600).into());
        peer.rpcs = rpcs;
        peer
    }

    fn seen(host: &str) -> HostSample {
        let mut metrics = Metrics::default();
        metrics.endpoint.packets_sent = u64::MAX;
        metrics.host.lock_wait_ns = 1_500_000_000;
        metrics.host.link_mbps = 10_000;
        metrics.host.open_rpcs = 3;
        metrics.call_times.record(100, 5_000);
        metrics.call_times.record(100, 1 << 40);
        metrics.answer_times.record(2_000, 3_000_000);
        let mut peers = vec![peer(1, 2), peer(2, 0)];
        peers[0].rtt_ns = Some(12_500);
        HostSample { host: host.to_owned(), uptime_ns: 2_500_000_000, metrics, peers }
    }

    #[test]
    fn names_have_units_and_kinds() {
        let text = write(&[seen("10.0.0.9:14600")]);
        for line in [
            "# HELP homa_packets_sent_total Packets given out to be sent.",
            "# TYPE homa_packets_sent_total counter",
            "# HELP homa_host_lock_wait_seconds_total Seconds that threads waited for the host's lock, over all misses.",
            "homa_packets_sent_total{host=\"10.0.0.9:14600\"} 18446744073709551615",
            "homa_uptime_seconds{host=\"10.0.0.9:14600\"} 2.5",
            "homa_host_lock_wait_seconds_total{host=\"10.0.0.9:14600\"} 1.5",
            "homa_host_link_bits_per_second{host=\"10.0.0.9:14600\"} 10000000000",
            "# TYPE homa_host_open_rpcs gauge",
            "homa_host_open_rpcs{host=\"10.0.0.9:14600\"} 3",
            "# TYPE homa_pacer_off gauge",
            "# TYPE homa_call_seconds histogram",
            "homa_call_seconds_bucket{host=\"10.0.0.9:14600\",bytes=\"0-1000\",le=\"0.000001024\"} 0",
            "homa_call_seconds_bucket{host=\"10.0.0.9:14600\",bytes=\"0-1000\",le=\"0.00000512\"} 1",
            "homa_call_seconds_bucket{host=\"10.0.0.9:14600\",bytes=\"0-1000\",le=\"17.179869184\"} 1",
            "homa_call_seconds_bucket{host=\"10.0.0.9:14600\",bytes=\"0-1000\",le=\"+Inf\"} 2",
            "homa_call_seconds_count{host=\"10.0.0.9:14600\",bytes=\"0-1000\"} 2",
            "# TYPE homa_answer_seconds histogram",
            "homa_answer_seconds_sum{host=\"10.0.0.9:14600\",bytes=\"1001-10000\"} 0.003",
            "homa_answer_seconds_count{host=\"10.0.0.9:14600\",bytes=\"0-1000\"} 0",
            "homa_peers_listed{host=\"10.0.0.9:14600\"} 2",
            "homa_peer_open_rpcs{host=\"10.0.0.9:14600\",peer=\"10.0.0.1:14600\"} 2",
            "homa_peer_rtt_seconds{host=\"10.0.0.9:14600\",peer=\"10.0.0.1:14600\"} 0.0000125",
        ] {
            assert!(text.lines().any(|other| other == line), "no line {line} in {text}");
        }
        assert_eq!(text.matches("homa_peer_rtt_seconds{").count(), 1);
        assert!(!text.contains("Nanoseconds") && !text.contains("Mbit/s"), "a unit that is not the name's");
    }

    #[test]
    fn every_sample_is_there_once_and_behind_its_family() {
        let text = write(&[seen("a"), seen("b")]);
        let (mut family, mut families, mut samples) = ("", HashSet::new(), HashSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().expect("a name");
                assert!(families.insert(family), "{family} twice");
                let help = text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {family} ")));
                assert!(help.is_some_and(|help| help.ends_with('.')), "{family}: {help:?}");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} in {family}");
                assert!(samples.insert(line.rsplit_once(' ').expect("a value").0), "{line} twice");
            }
        }
        assert_eq!(text.matches("\nhoma_packets_sent_total{").count(), 2);
    }

    #[test]
    fn the_busiest_peers_are_listed() {
        let peers = (0..=200).map(|last| peer(last, u32::from(last >= 195))).collect();
        let listed = listed(peers);
        assert_eq!(listed.len(), PEERS_LISTED);
        assert!(listed.is_sorted_by_key(|peer| peer.addr));
        assert_eq!(listed.iter().filter(|peer| peer.rpcs == 1).count(), 6);
    }

    #[test]
    fn labels_and_help_are_escaped() {
        let mut text = Text::new();
        text.family("a", MetricKind::Gauge, "one\ntwo\\");
        text.sample("a", &[("b", "\"c\\\n")], 1.5);
        text.sample("a", &[], 7);
        assert_eq!(
            text.into_string(),
            "# HELP a one\\ntwo\\\\\n# TYPE a gauge\na{b=\"\\\"c\\\\\\n\"} 1.5\na 7\n"
        );
    }
}
