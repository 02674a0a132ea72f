//! The counters of a switch in the text format of Prometheus.

use homa::metrics::prometheus::{MetricKind, Text};
use homa_switch::{PortSnapshot, QueueSnapshot, Snapshot};

/// A metric of a port.
type PortMetric = (&'static str, MetricKind, &'static str, fn(&PortSnapshot) -> f64);

/// A metric of a queue.
type QueueMetric = (&'static str, MetricKind, &'static str, fn(&QueueSnapshot) -> f64);

const PORTS: &[PortMetric] = &[
    ("received_frames_total", MetricKind::Counter, "Frames received by the port", |port| {
        port.received_frames as f64
    }),
    ("received_bytes_total", MetricKind::Counter, "Bytes of frames received by the port", |port| {
        port.received_bytes as f64
    }),
    ("receive_drops_total", MetricKind::Counter, "Frames dropped because the switch was too slow", |port| {
        port.receive_drops as f64
    }),
    ("too_long_frames_total", MetricKind::Counter, "Frames longer than the MTU", |port| port.too_long as f64),
    ("refused_frames_total", MetricKind::Counter, "Frames that the device refused", |port| {
        port.refused as f64
    }),
    ("lost_frames_total", MetricKind::Counter, "Frames dropped by --loss", |port| port.lost as f64),
    ("link_busy_seconds_total", MetricKind::Counter, "Time that the link was sending", |port| {
        port.busy_ns as f64 / 1e9
    }),
];

const QUEUES: &[QueueMetric] = &[
    ("sent_frames_total", MetricKind::Counter, "Frames sent", |queue| queue.frames as f64),
    ("sent_bytes_total", MetricKind::Counter, "Bytes of frames sent", |queue| queue.bytes as f64),
    ("dropped_frames_total", MetricKind::Counter, "Frames dropped because the buffer was full", |queue| {
        queue.dropped_frames as f64
    }),
    ("dropped_bytes_total", MetricKind::Counter, "Bytes of frames dropped", |queue| {
        queue.dropped_bytes as f64
    }),
    ("marked_frames_total", MetricKind::Counter, "Frames marked (ECN)", |queue| queue.marked_frames as f64),
    ("depth_bytes", MetricKind::Gauge, "Queued bytes", |queue| queue.depth.now_bytes as f64),
    ("depth_mean_bytes", MetricKind::Gauge, "Queued bytes, mean over time", |queue| queue.depth.mean_bytes),
    ("depth_p99_bytes", MetricKind::Gauge, "Queued bytes, 99th percentile over time", |queue| {
        queue.depth.p99_bytes as f64
    }),
    ("depth_max_bytes", MetricKind::Gauge, "Queued bytes, maximum", |queue| queue.depth.max_bytes as f64),
];

/// Formats the counters as text.
pub fn text(snapshot: &Snapshot) -> String {
    let mut text = Text::new();
    let whole = [
        ("flooded_frames_total", MetricKind::Counter, "Frames flooded to all ports", snapshot.flooded as f64),
        (
            "filtered_frames_total",
            MetricKind::Counter,
            "Frames for the port of their arrival",
            snapshot.filtered as f64,
        ),
        (
            "malformed_frames_total",
            MetricKind::Counter,
            "Frames without addresses",
            snapshot.malformed as f64,
        ),
        ("no_memory_frames_total", MetricKind::Counter, "Frames without memory", snapshot.no_memory as f64),
        ("addresses", MetricKind::Gauge, "Known addresses", snapshot.addresses as f64),
    ];
    for (name, kind, help, value) in whole {
        let name = format!("homa_switch_{name}");
        text.family(&name, kind, help);
        text.sample(&name, &[], value);
    }
    for (name, kind, help, value) in PORTS {
        let name = format!("homa_switch_{name}");
        text.family(&name, *kind, help);
        for port in &snapshot.ports {
            text.sample(&name, &[("port", &port.name)], value(port));
        }
    }
    for (name, kind, help, value) in QUEUES {
        let name = format!("homa_switch_{name}");
        text.family(&name, *kind, help);
        for port in &snapshot.ports {
            for (number, queue) in port.queues.iter().enumerate() {
                let labels = [("port", port.name.as_str()), ("priority", &number.to_string())];
                text.sample(&name, &labels, value(queue));
            }
        }
    }
    text.into_string()
}
