//! The results as text for a terminal of 110 columns.

use std::fmt::Write;

use super::results::{Bound, MEASURES, Measure, PathResults, Results};
use crate::engine::summary::Summary;

/// Renders one line for each metric with values, and one column for each interface.
pub fn render(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, results);
    text
}

fn write_all(out: &mut String, results: &Results) -> std::fmt::Result {
    let Results { version, cpus, repetitions, slice_ms, load, missed, .. } = results;
    writeln!(
        out,
        "homa {version} bench switch: {cpus} processors, {repetitions} x {slice_ms} ms, source and sink through {load}"
    )?;
    for note in &results.notes {
        writeln!(out, "Note: {note}.")?;
    }
    if *missed > 0 {
        writeln!(out, "Note: {missed} frames were dropped at the sink for lack of room.")?;
    }
    write!(out, "\n{:40}{:>7}", "median (range); * misses the target", "target")?;
    for path in &results.paths {
        write!(out, "{:>21}", path.name)?;
    }
    writeln!(out)?;
    for measure in &MEASURES {
        if results.paths.iter().any(|path| path.metrics.contains_key(measure.name)) {
            line(out, results, measure)?;
        }
    }
    for PathResults { name, skipped, .. } in &results.paths {
        if let Some(why) = skipped {
            writeln!(out, "{name}: incomplete: {why}")?;
        }
    }
    Ok(())
}

fn line(out: &mut String, results: &Results, measure: &Measure) -> std::fmt::Result {
    write!(out, "{:40}{:>7}", measure.text, target_text(measure))?;
    for path in &results.paths {
        let cell = path.metrics.get(measure.name).map_or("-".to_owned(), |summary| cell(summary, measure));
        write!(out, "{cell:>21}")?;
    }
    writeln!(out)
}

/// Returns the target of a metric as text, empty if there is none.
pub fn target_text(measure: &Measure) -> String {
    match measure.asked {
        Some(Bound::AtLeast(least)) => format!(">={least}"),
        Some(Bound::AtMost(most)) => format!("<={most}"),
        None => String::new(),
    }
}

fn cell(Summary { median, min, max, .. }: &Summary, measure: &Measure) -> String {
    let number = |value: f64| match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let digits = number(*median);
    let star = if measure.asked.is_some_and(|asked| !asked.is_kept(*median)) { "*" } else { "" };
    format!("{star}{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_falls_short_is_marked_and_everything_fits() {
        let summary = |value: f64| Summary::of([value, value * 1.01]).expect("values");
        let path = |name, small, worst| PathResults {
            name,
            skipped: None,
            metrics: [("small_mpps", small), ("rate_1g_worst", worst), ("probe_100m_store_p99_us", 1234.5)]
                .map(|(name, value): (&str, f64)| (name.to_owned(), summary(value)))
                .into(),
        };
        let mut paths = vec![path("xdp-generic", 1.7, 0.2), path("ring", 1.2, 1.8)];
        paths.push(PathResults {
            name: "xdp-native",
            skipped: Some("no".to_owned()),
            ..PathResults::default()
        });
        let results = Results {
            schema: 1,
            version: "0",
            cpus: 2,
            repetitions: 2,
            slice_ms: 30,
            load: "xdp-generic",
            missed: 3,
            notes: vec!["of note".to_owned()],
            measures: MEASURES.to_vec(),
            paths,
        };
        let text = render(&results);
        assert_eq!(text.matches('*').count(), 3, "two and the one in the head:\n{text}");
        for part in [
            "*1.21 (1.20-1.21)",
            " 1.71 (",
            "Note: of note.",
            "3 frames were dropped",
            "xdp-native: incomplete: no",
            "*1.81",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 110), "{text}");
        assert!(!text.contains("5 Gbit/s"), "what has no values has no line:\n{text}");
    }

    #[test]
    fn every_metric_has_a_name_of_its_own() {
        let mut names: Vec<&str> = MEASURES.iter().map(|measure| measure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MEASURES.len());
    }
}
