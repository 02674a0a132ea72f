//! Artificial results for the tests of figures and table.

use super::comparisons::comparisons;
use super::figures::figures;
use super::results::{Config, Limits, Metric, Row, SCHEMA};
use super::targets::of;

/// Targets: one below the floor, one reached, and some whose goal is reached.
const TARGETS: &str = "\
[[target]]
name = \"rpcs_per_s_32\"
floor = 1.4
[[target]]
name = \"rtt_polling_p50_us\"
floor = 0.85
goal = 0.5
[[target]]
name = \"cpu_ns_per_rpc\"
as = \"absolute\"
floor = 2000
goal = 1500
[[target]]
name = \"rtt_polling_over_tcp\"
floor = 0.85
[[target]]
name = \"rpcs_32_device_over_bare\"
floor = 1.4
goal = 2
";

/// Returns results of bare UDP, of Homa over UDP and over devices, and of TCP; QUIC could not be measured.
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
    let targets = of(TARGETS);
    let (comparisons, figures) = (comparisons(&rows, &targets), figures(&rows, &targets));
    Limits { schema: SCHEMA, config, rows, comparisons, figures }
}
