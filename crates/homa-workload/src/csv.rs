//! Parses a user-defined distribution: `size,cumulative_fraction` per line.

use crate::error::WorkloadError;

/// Maximum number of points of a user-defined distribution, far more than any published distribution has. It
/// limits the memory needed.
pub const MAX_CSV_POINTS: usize = 100_000;

/// Maximum difference between the last fraction and 1. Fractions in files may have as few as six digits.
const END_TOLERANCE: f64 = 1e-6;

/// Parses and checks the points. In the result, the last fraction is exactly 1.
pub(crate) fn parse(text: &str) -> Result<Vec<(u32, f64)>, WorkloadError> {
    let mut points: Vec<(u32, f64)> = Vec::new();
    let mut header_allowed = true;
    let mut last_line = 0;
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let content = raw.trim().trim_start_matches('\u{feff}');
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let is_header = header_allowed && content.starts_with(|c: char| c.is_alphabetic());
        header_allowed = false;
        if is_header {
            continue;
        }
        if points.len() == MAX_CSV_POINTS {
            return Err(invalid_line(line, format!("more than {MAX_CSV_POINTS} points; merge some sizes")));
        }
        let point = parse_point(line, content)?;
        check_order(line, points.last().copied(), point)?;
        points.push(point);
        last_line = line;
    }
    let last = points.last_mut().ok_or(WorkloadError::CsvEmpty)?;
    if last.1 < 1.0 - END_TOLERANCE {
        let problem = format!("the last cumulative fraction is {}; it must be 1", last.1);
        return Err(invalid_line(last_line, problem));
    }
    let end = last.1;
    // Otherwise, points that repeat the last fraction could be above 1, or appear to contain a tiny share of
    // messages.
    points.iter_mut().filter(|point| point.1 == end).for_each(|point| point.1 = 1.0);
    Ok(points)
}

fn parse_point(line: usize, content: &str) -> Result<(u32, f64), WorkloadError> {
    let (size, fraction) = content.split_once(',').ok_or_else(|| {
        invalid_line(line, format!("`{content}` is not of the form size,cumulative_fraction"))
    })?;
    let (size, fraction) = (size.trim(), fraction.trim());
    let bytes: u32 = size.parse().ok().filter(|&bytes| bytes >= 1).ok_or_else(|| {
        invalid_line(line, format!("size `{size}` is not a whole number of bytes from 1 to {}", u32::MAX))
    })?;
    let cumulative = fraction.parse().ok().filter(|value| (0.0..=1.0).contains(value)).ok_or_else(|| {
        invalid_line(line, format!("cumulative fraction `{fraction}` is not a number from 0 to 1"))
    })?;
    Ok((bytes, cumulative))
}

fn check_order(line: usize, before: Option<(u32, f64)>, point: (u32, f64)) -> Result<(), WorkloadError> {
    let Some((size, fraction)) = before else { return Ok(()) };
    if point.0 <= size {
        let problem = format!("size {} follows size {size}; sizes must increase, each listed once", point.0);
        return Err(invalid_line(line, problem));
    }
    if point.1 < fraction {
        let problem =
            format!("cumulative fraction {} follows {fraction}; fractions must not decrease", point.1);
        return Err(invalid_line(line, problem));
    }
    Ok(())
}

fn invalid_line(line: usize, problem: String) -> WorkloadError {
    WorkloadError::Csv { line, problem }
}
