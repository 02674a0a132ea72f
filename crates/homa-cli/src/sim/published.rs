//! Published slowdowns, shown in charts beside our own.

use std::path::Path;

use super::draft::Plan;

/// The published values of one protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub protocol: String,
    pub points: Vec<Point>,
}

/// A bin of message sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Share of all messages up to the middle of the bin, 0 to 1.
    pub middle: f64,
    /// Share of all messages up to the upper end of the bin.
    pub upto: f64,
    /// Maximum message size in the bin.
    pub bytes: u32,
    pub p50: f64,
    pub p99: f64,
    /// Line number in the file, starting at 1.
    line: usize,
}

/// The preset to which the published slowdowns apply.
const PRESET: &str = "sigcomm18";
/// Maximum difference between the share of messages up to a size in the file and the share in the workload.
/// The workloads that are most similar to each other differ by 0.3.
const TOLERANCE: f64 = 0.05;

/// Reads a file and checks that it is for this preset and workload.
///
/// # Errors
/// The error names the file, and the line that is wrong or the mismatch.
pub fn read(path: &Path, plan: &Plan) -> Result<Vec<Curve>, String> {
    let name = path.display();
    if plan.preset != PRESET {
        return Err(format!("{name}: published values are those of preset {PRESET}, not of {}", plan.preset));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let curves = parse(&text).map_err(|error| format!("{name}: {error}"))?;
    let workload = &plan.cluster.workload;
    for point in curves.iter().flat_map(|curve| &curve.points) {
        let ours = workload.cdf(point.bytes);
        if (ours - point.upto).abs() > TOLERANCE {
            return Err(format!(
                "{name}: line {}: it is not about {workload}: up to {} bytes it has {:.1} % of the messages, and {workload} has {:.1} %",
                point.line,
                point.bytes,
                point.upto * 100.0,
                ours * 100.0
            ));
        }
    }
    Ok(curves)
}

const COLUMNS: [&str; 6] =
    ["protocol", "size_bytes", "percent_of_messages", "slowdown_mean", "slowdown_p50", "slowdown_p99"];

fn parse(text: &str) -> Result<Vec<Curve>, String> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let head = lines.next().map(|(_, line)| line.split(',').collect::<Vec<_>>());
    if head.is_none_or(|head| head != COLUMNS) {
        return Err(format!("the first line must be {}", COLUMNS.join(",")));
    }
    let mut curves: Vec<Curve> = Vec::new();
    for (number, line) in lines {
        let (protocol, bytes, percent, p50, p99) = fields(line)
            .ok_or_else(|| format!("line {number}: `{line}` is not of the form of the first line"))?;
        if curves.last().is_none_or(|curve| curve.protocol != protocol) {
            curves.push(Curve { protocol: protocol.to_owned(), points: Vec::new() });
        }
        let points = curves.last_mut().map(|curve| &mut curve.points);
        let Some(points) = points else { continue };
        let before = points.last().map_or(0.0, |point| point.upto);
        let upto = before + percent / 100.0;
        points.push(Point { middle: (before + upto) / 2.0, upto, bytes, p50, p99, line: number });
    }
    if curves.is_empty() { Err("it has no values".to_owned()) } else { Ok(curves) }
}

fn fields(line: &str) -> Option<(&str, u32, f64, f64, f64)> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [protocol, bytes, percent, _mean, p50, p99] = cells[..] else { return None };
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    Some((protocol, bytes.parse().ok()?, number(percent)?, number(p50)?, number(p99)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "# published\nprotocol,size_bytes,percent_of_messages,slowdown_mean,slowdown_p50,slowdown_p99\n";

    #[test]
    fn curves_lie_over_the_share_of_messages() {
        let curves = parse(&format!("{HEAD}A,10,50,1,1.5,2\nA,20,50,1,1.6,3\nB,10,100,1,1,1\n")).unwrap();
        assert_eq!(curves.len(), 2);
        let middles: Vec<f64> = curves[0].points.iter().map(|point| point.middle).collect();
        assert_eq!(middles, [0.25, 0.75]);
        assert_eq!((curves[0].points[1].p50, curves[0].points[1].p99), (1.6, 3.0));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let error = parse(&format!("{HEAD}A,10,50,1,1.5,2\nA,x,50,1,1.6,3\n")).unwrap_err();
        assert!(error.starts_with("line 4"), "{error}");
        assert!(parse("size,fraction\n1,1\n").unwrap_err().contains("protocol,size_bytes"));
        assert!(parse(HEAD).unwrap_err().contains("no values"));
    }
}
