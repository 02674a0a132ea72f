//! Formats numbers, labels and distributions as text and as JSON.

use serde_json::{Value, json};

use crate::histogram::Histogram;

/// Formats a name with its labels, as in the text format.
pub fn named(name: &str, labels: &[(String, String)]) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

/// Formats the mean and quantiles of a distribution.
pub fn tail(times: &Histogram, unit: &str) -> String {
    let at = |fraction| match times.quantile(fraction) {
        Some(time) if time.is_finite() && unit == "s" => duration(time),
        Some(time) => plain(time),
        None => "-".to_owned(),
    };
    let mean = times.sum / times.count().max(1.0);
    let mean = if unit == "s" { duration(mean) } else { plain(mean) };
    format!("mean {mean}, P50 {}, P99 {}, max {}", at(0.5), at(0.99), at(1.0))
}

/// Formats a time in a suitable unit.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1e-3 => format!("{:.1} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// Formats a number with about three digits.
pub fn plain(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else if value.abs() >= 100.0 {
        format!("{value:.1}")
    } else if value.abs() >= 0.01 || value == 0.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.3e}")
    }
}

/// Converts a histogram to JSON, leaving out empty buckets.
pub fn histogram_as_json(labels: &[(String, String)], times: &Histogram) -> Value {
    let buckets: Vec<Value> = times
        .buckets
        .iter()
        .filter(|(_, count)| *count > 0.0)
        .map(|(end, count)| json!({ "end": end, "count": count }))
        .collect();
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|fraction| times.quantile(fraction));
    json!({
        "labels": labels_as_json(labels), "count": times.count(), "sum": times.sum, "p50": p50, "p99": p99, "max": max,
        "buckets": buckets,
    })
}

/// Converts labels to a JSON object.
pub fn labels_as_json(labels: &[(String, String)]) -> Value {
    Value::Object(labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [12.0, 0.0, 1.23456, 1234.56, 0.000_012].map(plain),
            ["12", "0", "1.235", "1234.6", "1.200e-5"]
        );
        assert_eq!([0.000_012, 0.001_5, 2.0].map(duration), ["12.0 µs", "1.50 ms", "2.00 s"]);
    }
}
