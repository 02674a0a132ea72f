//! `homa metrics`: a snapshot.

use std::fmt::Write;

use anyhow::{Context, Result};
use homa_report::output::{Output, print};
use serde_json::{Value, json};

use super::args::MetricsArgs;
use super::ask::{Place, Told};
use super::histogram::Histogram;
use super::text::Family;

/// Prints a snapshot, and saves it.
pub fn run(args: &MetricsArgs) -> Result<()> {
    let from = args.from.as_deref().context("say where the metrics are: homa metrics ADDR")?;
    let out = args.out.as_deref().map(Output::check).transpose()?;
    let told = Place::of(from).read()?;
    if let Some(out) = out {
        out.write(told.to_file().as_bytes())?;
    }
    let text = if args.json {
        serde_json::to_string_pretty(&as_json(&told)).context("cannot write the metrics as JSON")? + "\n"
    } else {
        as_text(&told)
    };
    print(text.as_bytes())
}

/// What is not 0, a line each.
fn as_text(told: &Told) -> String {
    let mut lines: Vec<[String; 4]> = Vec::new();
    for family in &told.snapshot.families {
        if family.kind == "histogram" {
            for (labels, times) in Histogram::all(family).iter().filter(|(_, times)| times.count() > 0.0) {
                let name = named(&family.name, labels);
                lines.push([name, plain(times.count()), "times".to_owned(), tail(times, family.unit())]);
            }
            continue;
        }
        for sample in family.samples.iter().filter(|sample| sample.value != 0.0) {
            let name = named(&sample.name, &sample.labels);
            lines.push([name, plain(sample.value), family.unit().to_owned(), family.help.clone()]);
        }
    }
    table(&lines)
}

fn table(lines: &[[String; 4]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let [names, values, units] = [0, 1, 2].map(width);
    let mut text = String::new();
    for [name, value, unit, help] in lines {
        let line = format!("{name:names$}  {value:>values$} {unit:units$}  {help}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// With its labels, as in the text.
pub fn named(name: &str, labels: &[(String, String)]) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

/// The distribution of some times, in words.
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

/// A time in a fitting unit.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds < 1e-3 => format!("{:.1} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// A number without more digits than anybody reads.
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

fn as_json(told: &Told) -> Value {
    let families: Vec<Value> = told.snapshot.families.iter().map(family_as_json).collect();
    json!({ "schema": 1, "source": told.source, "at": told.at, "metrics": families })
}

fn family_as_json(family: &Family) -> Value {
    let samples: Vec<Value> = if family.kind == "histogram" {
        Histogram::all(family).iter().map(|(labels, times)| histogram_as_json(labels, times)).collect()
    } else {
        let sample =
            |labels: &[(String, String)], value: f64| json!({ "labels": map(labels), "value": value });
        family.samples.iter().map(|one| sample(&one.labels, one.value)).collect()
    };
    json!({
        "name": family.name, "kind": family.kind, "unit": family.unit(), "help": family.help, "samples": samples,
    })
}

/// With the buckets that have something in them.
pub fn histogram_as_json(labels: &[(String, String)], times: &Histogram) -> Value {
    let buckets: Vec<Value> = times
        .buckets
        .iter()
        .filter(|(_, count)| *count > 0.0)
        .map(|(end, count)| json!({ "end": end, "count": count }))
        .collect();
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|fraction| times.quantile(fraction));
    json!({
        "labels": map(labels), "count": times.count(), "sum": times.sum, "p50": p50, "p99": p99, "max": max,
        "buckets": buckets,
    })
}

/// Labels as JSON has them.
pub fn map(labels: &[(String, String)]) -> Value {
    Value::Object(labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total All.\n# TYPE a_total counter\na_total{host=\"h\"} 12\na_total{host=\"i\"} 0\n\
        # HELP b_seconds How long.\n# TYPE b_seconds histogram\nb_seconds_bucket{le=\"0.00002\"} 3\n\
        b_seconds_bucket{le=\"+Inf\"} 4\nb_seconds_sum 0.0001\nb_seconds_count 4\n";

    #[test]
    fn lines_that_are_not_0_with_unit_and_meaning() {
        let told = Told::saved(TEXT.as_bytes()).expect("metrics");
        assert_eq!(
            as_text(&told),
            "a_total{host=\"h\"}  12        All.\n\
             b_seconds           4 times  mean 25.0 µs, P50 20.0 µs, P99 inf, max inf\n"
        );
    }

    #[test]
    fn json_has_everything() {
        let value = as_json(&Told::saved(TEXT.as_bytes()).expect("metrics"));
        assert_eq!(value["metrics"][0]["samples"][1], json!({ "labels": { "host": "i" }, "value": 0.0 }));
        assert_eq!(value["metrics"][1]["unit"], "s");
        let times = &value["metrics"][1]["samples"][0];
        assert_eq!((times["count"].as_f64(), times["p50"].as_f64()), (Some(4.0), Some(0.000_02)));
        assert!(times["max"].is_null() && times["buckets"].as_array().is_some_and(|all| all.len() == 2));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [12.0, 0.0, 1.23456, 1234.56, 0.000_012].map(plain),
            ["12", "0", "1.235", "1234.6", "1.200e-5"]
        );
        assert_eq!([0.000_012, 0.001_5, 2.0].map(duration), ["12.0 µs", "1.50 ms", "2.00 s"]);
    }
}
