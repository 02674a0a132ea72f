//! Results made up for the tests of figures and table.

use super::figures::figures;
use super::results::{Config, Limits, Metric, Row, SCHEMA};

/// Bare UDP, Homa over UDP and over devices, TCP; QUIC could not be measured.
pub fn limits() -> Limits {
    let row = |name: &str, rtt: f64, rate: f64| {
        let mut row = Row { name: name.to_owned(), ..Row::default() };
        for repetition in [1.0, 1.1, 0.9] {
            for metric in Metric::ALL {
                let value = match metric.name() {
                    name if name.ends_with("_us") => rtt,
                    name if name.starts_with("rpcs") => rate,
                    _ => 1000.0,
                };
                let counted = metric != Metric::CpuPacket && metric != Metric::CpuBulkPacket;
                row.add(metric, (counted || !row.name.starts_with("tcp")).then_some(value * repetition));
            }
        }
        row
    };
    let mut quic = Row { name: "quic".to_owned(), ..Row::default() };
    quic.skipped = Some("this program was built without the feature `peers`".to_owned());
    let rows = vec![
        row("bare/udp", 4.0, 500_000.0),
        row("homa/udp", 5.0, 400_000.0),
        row("homa/packet", 2.0, 1_000_000.0),
        row("homa/xdp", 3.0, 800_000.0),
        row("tcp", 6.0, 300_000.0),
        quic,
    ];
    let config = Config {
        version: "0.0.0",
        cpus: 2,
        path: "veth",
        mtu: Some(1500),
        repetitions: 3,
        slice_ms: 200,
        low_latency: true,
        notes: vec!["nothing of note".to_owned()],
        ..Config::default()
    };
    let mut limits = Limits { schema: SCHEMA, config, rows, figures: Vec::new() };
    limits.figures = figures(&limits);
    limits
}
