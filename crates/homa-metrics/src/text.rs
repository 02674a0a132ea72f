//! Parses the Prometheus text format (version 0.0.4).

use anyhow::{Context, Result, bail, ensure};

/// Names and values of labels, in the order of the text.
pub type Labels = Vec<(String, String)>;

/// All metrics at one point in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The families, in the order of the text.
    pub families: Vec<Family>,
}

/// A metric: all samples with one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name, which ends with the unit.
    pub name: String,
    /// "counter", "gauge" or "histogram"; "untyped" if the text does not specify it.
    pub kind: String,
    /// The meaning of the metric; empty if the text does not specify it.
    pub help: String,
    /// The samples, one for each set of labels; a histogram also has one for each bucket.
    pub samples: Vec<Sample>,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the family; in histograms, with `_bucket`, `_sum` or `_count` appended.
    pub name: String,
    /// Names and values of the labels.
    pub labels: Labels,
    /// The value; may be infinite or NaN.
    pub value: f64,
}

impl Sample {
    /// Returns the value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

impl Family {
    /// Returns the unit as derived from the name: "s", "B" or "bit/s"; empty for plain counts.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let name = self.name.strip_suffix("_total").unwrap_or(&self.name);
        let has = |unit: &str| name.ends_with(&format!("_{unit}")) || name.contains(&format!("_{unit}_"));
        if has("bits_per_second") {
            "bit/s"
        } else if has("seconds") {
            "s"
        } else if has("bytes") {
            "B"
        } else {
            ""
        }
    }
}

/// Parses a text.
///
/// # Errors
///
/// The error names the line and what is wrong with it.
pub fn parse(text: &str) -> Result<Snapshot> {
    ensure!(text.ends_with('\n') || text.is_empty(), "its last line is cut off");
    let mut snapshot = Snapshot::default();
    for (index, line) in text.lines().enumerate() {
        read_line(&mut snapshot, line.trim()).with_context(|| format!("line {}", index + 1))?;
    }
    snapshot.families.retain(|family| !family.samples.is_empty());
    ensure!(!snapshot.families.is_empty(), "there are no metrics in it");
    Ok(snapshot)
}

fn read_line(snapshot: &mut Snapshot, line: &str) -> Result<()> {
    if let Some(comment) = line.strip_prefix('#') {
        let mut words = comment.trim_start().splitn(3, ' ');
        let (what, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        match what {
            "HELP" => family(snapshot, name).help = unescape(rest),
            "TYPE" => rest.clone_into(&mut family(snapshot, name).kind),
            _ => {}
        }
        return Ok(());
    }
    if line.is_empty() {
        return Ok(());
    }
    let sample = sample(line)?;
    let belongs = snapshot.families.last().is_some_and(|family| family.has(&sample.name));
    let name = if belongs { String::new() } else { sample.name.clone() };
    let last = if belongs { snapshot.families.last_mut() } else { None };
    match last {
        Some(family) => family.samples.push(sample),
        None => family(snapshot, &name).samples.push(sample),
    }
    Ok(())
}

impl Family {
    /// Whether a sample with this name belongs to this family.
    fn has(&self, sample: &str) -> bool {
        let end = sample.strip_prefix(self.name.as_str());
        match self.kind.as_str() {
            "histogram" | "summary" => matches!(end, Some("" | "_bucket" | "_sum" | "_count")),
            _ => end == Some(""),
        }
    }
}

/// Returns the family with this name. The last family is checked first, because a text lists all samples of a
/// family together.
fn family<'a>(snapshot: &'a mut Snapshot, name: &str) -> &'a mut Family {
    let families = &mut snapshot.families;
    if families.last().is_none_or(|last| last.name != name) {
        families.push(Family {
            name: name.to_owned(),
            kind: "untyped".to_owned(),
            help: String::new(),
            samples: Vec::new(),
        });
    }
    let last = families.len() - 1;
    &mut families[last]
}

/// Parses `name{label="value",...} number [time]`.
fn sample(line: &str) -> Result<Sample> {
    let name_end = line.find(|c: char| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    ensure!(!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()), "there is no name");
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().context("there is no value")?;
    // Rust's parser also accepts values such as "+Inf".
    let value: f64 = value.parse().ok().with_context(|| format!("`{}` is no value", shortened(value)))?;
    if let Some(time) = words.next() {
        ensure!(time.parse::<i64>().is_ok() && words.next().is_none(), "there is more than a value");
    }
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// Parses the labels up to the closing brace, and returns what follows it.
fn labels(text: &str) -> Result<(Labels, &str)> {
    let mut labels = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(behind) = rest.strip_prefix('}') {
            return Ok((labels, behind));
        }
        let (name, behind) = rest.split_once('=').context("the labels do not end")?;
        let name = name.trim();
        ensure!(!name.is_empty() && name.chars().all(is_name), "a label has no name");
        let behind = behind.trim_start().strip_prefix('"').context("a label has no value in quotes")?;
        let end = value_end(behind).context("a label's value does not end")?;
        labels.push((name.to_owned(), unescape(&behind[..end])));
        rest = behind[end + 1..].trim_start();
        match rest.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None if rest.starts_with('}') => {}
            None => bail!("the labels do not end"),
        }
    }
}

/// Returns the position of the quote that ends a value.
fn value_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(index),
            _ => {}
        }
    }
    None
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
            _ => plain.push(c),
        }
    }
    plain
}

/// Truncates a text to what fits on a line.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use homa::metrics::prometheus::{MetricKind, Text};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut text = Text::new();
        text.family("homa_a_seconds_total", MetricKind::Counter, "First.\nSecond \\.");
        text.sample("homa_a_seconds_total", &[("host", "a \"b\", {c}\\\n"), ("peer", "")], 1.5);
        text.sample("homa_a_seconds_total", &[], u64::MAX);
        text.family("homa_h_seconds", MetricKind::Histogram, "Times.");
        text.sample("homa_h_seconds_bucket", &[("le", "+Inf")], 2);
        text.sample("homa_h_seconds_sum", &[], f64::INFINITY);
        text.sample("homa_h_seconds_count", &[], 2);
        let snapshot = parse(&text.into_string()).expect("metrics");
        let [counter, histogram] = &snapshot.families[..] else { panic!("{snapshot:?}") };
        assert_eq!((counter.kind.as_str(), counter.unit()), ("counter", "s"));
        assert_eq!(counter.help, "First.\nSecond \\.");
        assert_eq!(counter.samples[0].label("host"), Some("a \"b\", {c}\\\n"));
        assert_eq!((counter.samples[0].label("peer"), counter.samples[0].label("x")), (Some(""), None));
        assert_eq!(counter.samples[1].value, u64::MAX as f64);
        assert_eq!((histogram.kind.as_str(), histogram.samples.len()), ("histogram", 3));
        assert_eq!(histogram.samples[1].value, f64::INFINITY);
    }

    #[test]
    fn what_others_write_is_read_too() {
        let text =
            "\n# a remark\nup 1 1395066363000\n\nrequests{ code = \"200\" , } 3e2\n# TYPE unused gauge\n";
        let snapshot = parse(text).expect("metrics");
        let values: Vec<f64> = snapshot.families.iter().map(|family| family.samples[0].value).collect();
        assert_eq!(values, [1.0, 300.0]);
        assert_eq!((snapshot.families[0].kind.as_str(), snapshot.families[0].unit()), ("untyped", ""));
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        for (line, part) in [
            ("a", "no value"),
            ("a b", "`b` is no value"),
            ("{a=\"b\"} 1", "no name"),
            ("1a 1", "no name"),
            ("a{b=\"c} 1", "does not end"),
            ("a{b=c} 1", "quotes"),
            ("a{b=\"c\" d=\"e\"} 1", "do not end"),
            ("a{=\"c\"} 1", "no name"),
            ("a 1 2 3", "more than a value"),
        ] {
            let error = format!("{:#}", parse(&format!("ok 1\n{line}\n")).expect_err(line));
            assert!(error.starts_with("line 2: ") && error.contains(part), "{line}: {error}");
        }
        assert!(parse("a 1").is_err() && parse("").is_err() && parse("# nothing\n").is_err());
    }

    #[test]
    fn units_stand_in_names() {
        let unit = |name: &str| {
            let family = Family {
                name: name.to_owned(),
                kind: String::new(),
                help: String::new(),
                samples: Vec::new(),
            };
            family.unit()
        };
        assert_eq!(
            [
                "homa_data_bytes_sent_total",
                "homa_x_seconds",
                "homa_host_link_bits_per_second",
                "homa_acks_total"
            ]
            .map(unit),
            ["B", "s", "bit/s", ""]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z#{}=\",\\\\ \n0-9\u{e9}]{0,200}") {
            let _ = parse(&(text + "\n"));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = crate::Scrape::parse(&bytes);
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn damage_to_metrics_is_survived(at in 0_usize..200, byte in any::<u8>(), cut in 0_usize..200) {
            let mut bytes = b"# HELP homa_a A.\n# TYPE homa_a gauge\nhoma_a{host=\"[::1]:14600\",peer=\"b\\\\\"} 1.5e3 17\n".to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut % bytes.len());
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
