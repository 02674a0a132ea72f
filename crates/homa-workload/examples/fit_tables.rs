//! Fits the compact tables of `src/tables.rs` to distributions published point by point.
//!
//! `cargo run -p homa-workload --example fit_tables -- w4.csv` prints the rows of one table. The input is a
//! list of `size,cumulative_fraction` rows; only the listed sizes occur. Lines that do not start with a digit
//! are skipped.
//!
//! The messages of a row `(first, last, upto_ppm)` are spread evenly over the sizes `first..=last`. The fit
//! goes through the published points from small to large and makes each row as long as possible. Within a
//! row, the share of messages must stay within `MESSAGE_TOLERANCE` of the published share, and the share of
//! bytes within a second tolerance. The second tolerance is the smallest for which `MAX_ROWS` rows suffice.
//! The share of bytes matters because loads and cutoffs depend on it. A row has exactly the mass of the
//! points that it replaces, and their mean to within half a byte, so errors do not accumulate from row to
//! row.

use std::process::ExitCode;

/// Maximum number of rows of a table, so that the table stays readable.
const MAX_ROWS: usize = 60;

/// Maximum deviation of the share of messages at a published point. The tables promise 0.005; the difference
/// is a margin.
const MESSAGE_TOLERANCE: f64 = 0.004;

/// A published point: its size, and the shares of messages and of bytes up to this size.
#[derive(Clone, Copy)]
struct Point {
    size: u64,
    messages: f64,
    bytes: f64,
}

/// A fitted row, and the maximum deviation within the row.
#[derive(Clone, Copy)]
struct Row {
    first: u64,
    last: u64,
    upto: f64,
    error: Deviation,
}

/// The maximum deviations from the published shares within a row.
#[derive(Clone, Copy)]
struct Deviation {
    messages: f64,
    bytes: f64,
}

impl Deviation {
    fn worst(self) -> f64 {
        self.messages.max(self.bytes)
    }

    fn within(self, byte_tolerance: f64) -> bool {
        self.messages <= MESSAGE_TOLERANCE && self.bytes <= byte_tolerance
    }
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: fit_tables FILE.csv");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    };
    let Some((points, mean)) = read_points(&text) else {
        eprintln!("{path}: no rows of the form size,cumulative_fraction");
        return ExitCode::from(2);
    };
    let (mut low, mut high) = (0.0, 0.5);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if fit(&points, mean, middle).len() <= MAX_ROWS { high = middle } else { low = middle }
    }
    let rows = fit(&points, mean, high);
    println!("// {} rows, byte shares within {high:.5}", rows.len());
    for row in &rows {
        println!("    ({}, {}, {:.0}),", row.first, row.last, row.upto * 1e6);
    }
    ExitCode::SUCCESS
}

/// Reads the points and merges rows that repeat a size. Returns the points and the mean.
fn read_points(text: &str) -> Option<(Vec<Point>, f64)> {
    let mut points: Vec<Point> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let (size, fraction) = line.split_once(',')?;
        let point = Point { size: size.parse().ok()?, messages: fraction.parse().ok()?, bytes: 0.0 };
        match points.last_mut() {
            Some(last) if last.size == point.size => *last = point,
            _ => points.push(point),
        }
    }
    let mut mean = 0.0;
    let mut before = 0.0;
    for point in &mut points {
        mean += point.size as f64 * (point.messages - before);
        before = point.messages;
        point.bytes = mean;
    }
    points.iter_mut().for_each(|point| point.bytes /= mean);
    (!points.is_empty()).then_some((points, mean))
}

/// Fits rows greedily: makes every row as long as the tolerances allow.
fn fit(points: &[Point], mean: f64, byte_tolerance: f64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut start = 0;
    // No row begins below the smallest size with messages.
    let smallest = points.iter().find(|point| point.messages > 0.0).map_or(1, |point| point.size);
    while start < points.len() {
        let floor = rows.last().map_or(smallest - 1, |row| row.last);
        let mut best: Option<(usize, Row)> = None;
        let mut failures = 0;
        for end in start..points.len() {
            match fit_row(points, mean, start, end, floor) {
                Some(row) if row.error.within(byte_tolerance) => {
                    best = Some((end, row));
                    failures = 0;
                }
                _ => failures += 1,
            }
            if failures > 60 {
                break;
            }
        }
        // A single point can always be represented by a row of one size. A point without messages needs no
        // row.
        match best {
            Some((end, row)) => {
                rows.push(row);
                start = end + 1;
            }
            None => start += 1,
        }
    }
    rows
}

/// Returns the best row for the points `start..=end` with all sizes above `floor`.
fn fit_row(points: &[Point], mean: f64, start: usize, end: usize, floor: u64) -> Option<Row> {
    let before = start.checked_sub(1).map_or(Point { size: 0, messages: 0.0, bytes: 0.0 }, |i| points[i]);
    let upto = points[end].messages;
    let mass = upto - before.messages;
    if mass <= 5e-7 {
        return None;
    }
    let mass_mean = (points[end].bytes - before.bytes) * mean / mass;
    let twice = (2.0 * mass_mean).round() as u64;
    let largest = points[end].size;
    // The largest message of the workload must keep its published size.
    let smallest_last =
        if end + 1 == points.len() { largest } else { (mass_mean.ceil() as u64).min(largest) };
    let step = ((largest - smallest_last) / 64).max(1);
    let mut best: Option<Row> = None;
    let mut last = smallest_last;
    while last <= largest {
        let first = twice.saturating_sub(last);
        if first > floor && first <= last {
            let error = row_error(&points[start..=end], before, mean, mass, (first, last));
            if best.is_none_or(|row| error.worst() < row.error.worst()) {
                best = Some(Row { first, last, upto, error });
            }
        }
        last += step;
    }
    best
}

/// Returns the maximum deviations from the published shares at the points that the row replaces.
fn row_error(points: &[Point], before: Point, mean: f64, mass: f64, (first, last): (u64, u64)) -> Deviation {
    let width = (last - first + 1) as f64;
    let mut worst = Deviation { messages: 0.0, bytes: 0.0 };
    for point in points {
        let upto = point.size.min(last);
        let covered = (upto + 1).saturating_sub(first) as f64;
        let messages = before.messages + mass * covered / width;
        let bytes = before.bytes + mass * covered / width * (first + upto) as f64 / 2.0 / mean;
        worst.messages = worst.messages.max((messages - point.messages).abs());
        worst.bytes = worst.bytes.max((bytes - point.bytes).abs());
    }
    worst
}
