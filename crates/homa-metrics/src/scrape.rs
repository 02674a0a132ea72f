//! Reads metrics from a process that exports them, or from a file.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};

use serde_json::{Value, json};

use crate::address::{MetricsAddr, connect};
use crate::exporter::left;
use crate::format::{histogram_as_json, labels_as_json, named, plain, tail};
use crate::histogram::Histogram;
use crate::text::{self, Family, Snapshot};

/// Time limit for connecting and receiving the whole response.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum length of a text in bytes: even a process with hundreds of hosts exports less.
const MAX_BYTES: usize = 16 << 20;

/// The start of the first line of a saved scrape; the address and the time follow.
const HEAD: &str = "# homa metrics of ";

/// Separator between the address and the time.
const AT: &str = " at ";

/// Last line of a saved scrape, which makes it possible to detect a truncated file.
const END: &str = "# EOF\n";

/// A source of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A process that exports metrics.
    Live(MetricsAddr),
    /// A file with a saved scrape.
    File(String),
}

impl Source {
    /// Determines the source that `text` names. A path names a socket or a file, whichever exists.
    #[must_use]
    pub fn of(text: &str) -> Source {
        let is_file =
            |path: &Path| fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket());
        match text.parse::<MetricsAddr>() {
            Ok(MetricsAddr::Unix(path))
                if !text.starts_with("unix:") && (is_file(&path) || !path.exists()) =>
            {
                Source::File(text.to_owned())
            }
            Ok(addr) => Source::Live(addr),
            Err(_) => Source::File(text.to_owned()),
        }
    }

    /// Reads the metrics.
    ///
    /// # Errors
    /// No process responds, the file cannot be read, or the text is not in the metrics format.
    pub fn read(&self) -> Result<Scrape> {
        match self {
            Source::Live(addr) => scrape(addr),
            Source::File(path) => {
                let bytes = fs::read(path).with_context(|| {
                    format!("cannot read {path}: it must be a snapshot of metrics, or an address as in 127.0.0.1:9100")
                })?;
                Scrape::parse(&bytes).with_context(|| format!("{path} is no whole snapshot of metrics"))
            }
        }
    }
}

/// The metrics of one process at one point in time.
#[derive(Clone, Debug)]
pub struct Scrape {
    /// The address that was scraped; `None` if the file does not contain it.
    pub source: Option<String>,
    /// The time of the scrape in seconds since 1970; `None` if the file does not contain it.
    pub at: Option<f64>,
    text: String,
    /// The metrics.
    pub snapshot: Snapshot,
}

impl Scrape {
    /// Parses a file that contains either a saved scrape or only the text format.
    ///
    /// # Errors
    /// The file is damaged, too long, or not in the metrics format.
    pub fn parse(bytes: &[u8]) -> Result<Scrape> {
        ensure!(bytes.len() <= MAX_BYTES, "it has more than {MAX_BYTES} bytes");
        let text = std::str::from_utf8(bytes).map_err(|_| anyhow!("it is no text"))?;
        let Some(rest) = text.strip_prefix(HEAD) else {
            return Ok(Scrape {
                source: None,
                at: None,
                text: text.to_owned(),
                snapshot: text::parse(text)?,
            });
        };
        let (head, rest) = rest.split_once('\n').context("it ends in its first line")?;
        let (source, at) = head.rsplit_once(AT).context("its first line does not say when it was taken")?;
        let at: f64 = at.parse().ok().context("its first line does not say when it was taken")?;
        let text = rest.strip_suffix(END).context("its end is missing")?;
        ensure!(at.is_finite(), "its first line does not say when it was taken");
        Ok(Scrape {
            source: Some(source.to_owned()),
            at: Some(at),
            text: text.to_owned(),
            snapshot: text::parse(text)?,
        })
    }

    /// Returns the contents of a file with this scrape.
    #[must_use]
    pub fn to_file(&self) -> String {
        let (source, at) = (self.source.as_deref().unwrap_or("a file"), self.at.unwrap_or(0.0));
        format!("{HEAD}{source}{AT}{at:.3}\n{}{END}", self.text)
    }

    /// Formats the metrics that are not 0, one per line, with their unit and meaning.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines: Vec<[String; 4]> = Vec::new();
        for family in &self.snapshot.families {
            if family.kind == "histogram" {
                for (labels, times) in Histogram::all(family).iter().filter(|(_, times)| times.count() > 0.0)
                {
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

    /// Converts all metrics to JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let families: Vec<Value> = self.snapshot.families.iter().map(family_as_json).collect();
        json!({ "schema": 1, "source": self.source, "at": self.at, "metrics": families })
    }
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

fn family_as_json(family: &Family) -> Value {
    let samples: Vec<Value> = if family.kind == "histogram" {
        Histogram::all(family).iter().map(|(labels, times)| histogram_as_json(labels, times)).collect()
    } else {
        let sample = |labels: &[(String, String)], value: f64| json!({ "labels": labels_as_json(labels), "value": value });
        family.samples.iter().map(|one| sample(&one.labels, one.value)).collect()
    };
    json!({
        "name": family.name, "kind": family.kind, "unit": family.unit(), "help": family.help, "samples": samples,
    })
}

/// Scrapes a process.
///
/// # Errors
/// No process listens, or no metrics arrive within a few seconds.
pub fn scrape(addr: &MetricsAddr) -> Result<Scrape> {
    let text = get(addr)?;
    let snapshot = text::parse(&text).with_context(|| format!("what {addr} tells is no metrics"))?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    Ok(Scrape { source: Some(addr.to_string()), at: Some(at), text, snapshot })
}

fn get(addr: &MetricsAddr) -> Result<String> {
    let nobody = || format!("no metrics at {addr}: is `homa serve --metrics {addr}` running?");
    let until = Instant::now() + PATIENCE;
    let mut stream = connect(addr, PATIENCE).with_context(nobody)?;
    let host = match addr {
        MetricsAddr::Tcp(host) => host,
        MetricsAddr::Unix(_) => "localhost",
    };
    let silent = || format!("{addr} does not answer as metrics do");
    stream.set_patience(left(until)?).with_context(silent)?;
    // Use HTTP 1.0, so that the response is not chunked and ends with the connection.
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\n\r\n")
        .with_context(silent)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        stream.set_patience(left(until).with_context(silent)?).with_context(silent)?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(silent),
        }
        ensure!(answer.len() <= MAX_BYTES, "{addr} tells more than {MAX_BYTES} bytes");
    }
    body(&answer).with_context(silent)
}

/// Returns the body of an HTTP response.
fn body(answer: &[u8]) -> Result<String> {
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n").context("it is not HTTP")?;
    let (head, body) = (String::from_utf8_lossy(&answer[..head_end]), &answer[head_end + 4..]);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    ensure!(status.starts_with("HTTP/"), "it is not HTTP");
    let text = String::from_utf8(body.to_vec()).map_err(|_| anyhow!("it is no text"))?;
    if status.split(' ').nth(1) != Some("200") {
        bail!("it says {status}: {}", text.lines().next().unwrap_or_default());
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    ensure!(length.is_none_or(|length| length == text.len()), "the answer is cut short");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE homa_a_total counter\nhoma_a_total 5\n";

    #[test]
    fn what_is_saved_can_be_read_and_a_part_of_it_not() {
        let scrape = Scrape {
            source: Some("unix:/a at b".to_owned()),
            at: Some(1_234.5),
            text: TEXT.to_owned(),
            snapshot: text::parse(TEXT).expect("metrics"),
        };
        let file = scrape.to_file();
        let again = Scrape::parse(file.as_bytes()).expect("whole");
        assert_eq!((again.source.as_deref(), again.at), (Some("unix:/a at b"), Some(1_234.5)));
        assert_eq!(again.snapshot, scrape.snapshot);
        for end in HEAD.len()..file.len() {
            assert!(Scrape::parse(&file.as_bytes()[..end]).is_err(), "{}", &file[..end]);
        }
        let bare = Scrape::parse(TEXT.as_bytes()).expect("metrics");
        assert_eq!((bare.source, bare.at, bare.snapshot), (None, None, scrape.snapshot));
        assert!(Scrape::parse(b"\xff").is_err());
    }

    #[test]
    fn answers_are_whole_or_errors() {
        let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na\n";
        assert_eq!(body(ok).expect("whole"), "a\n");
        assert!(body(&ok[..ok.len() - 1]).is_err());
        let error = body(b"HTTP/1.1 404 Not Found\r\n\r\nnot here\nat all").expect_err("not found");
        assert_eq!(error.to_string(), "it says HTTP/1.1 404 Not Found: not here");
        assert!(body(b"SSH-2.0-OpenSSH").is_err() && body(b"SSH\r\n\r\n").is_err());
        assert!(body(b"HTTP/1.1 200 OK\r\n\r\n\xff").is_err());
    }

    #[test]
    fn a_place_is_an_address_or_a_file() {
        let file = |path: &str| Source::File(path.to_owned());
        assert_eq!(Source::of("127.0.0.1:9100"), Source::Live(MetricsAddr::Tcp("127.0.0.1:9100".to_owned())));
        assert_eq!(Source::of("unix:/nowhere"), Source::Live(MetricsAddr::Unix("/nowhere".into())));
        assert_eq!(Source::of("a.prom"), file("a.prom"));
        assert_eq!(Source::of("/nowhere/a.prom"), file("/nowhere/a.prom"));
        assert_eq!(Source::of("/dev/null"), file("/dev/null"));
    }

    const SHOWN: &str = "# HELP a_total All.\n# TYPE a_total counter\na_total{host=\"h\"} 12\na_total{host=\"i\"} 0\n\
        # HELP b_seconds How long.\n# TYPE b_seconds histogram\nb_seconds_bucket{le=\"0.00002\"} 3\n\
        b_seconds_bucket{le=\"+Inf\"} 4\nb_seconds_sum 0.0001\nb_seconds_count 4\n";

    #[test]
    fn lines_that_are_not_0_with_unit_and_meaning() {
        let scrape = Scrape::parse(SHOWN.as_bytes()).expect("metrics");
        assert_eq!(
            scrape.text(),
            "a_total{host=\"h\"}  12        All.\n\
             b_seconds           4 times  mean 25.0 µs, P50 20.0 µs, P99 inf, max inf\n"
        );
    }

    #[test]
    fn json_has_everything() {
        let value = Scrape::parse(SHOWN.as_bytes()).expect("metrics").json();
        assert_eq!(value["metrics"][0]["samples"][1], json!({ "labels": { "host": "i" }, "value": 0.0 }));
        assert_eq!(value["metrics"][1]["unit"], "s");
        let times = &value["metrics"][1]["samples"][0];
        assert_eq!((times["count"].as_f64(), times["p50"].as_f64()), (Some(4.0), Some(0.000_02)));
        assert!(times["max"].is_null() && times["buckets"].as_array().is_some_and(|all| all.len() == 2));
    }
}
