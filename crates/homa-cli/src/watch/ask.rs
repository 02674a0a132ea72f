//! Getting metrics: from a process that serves them, or from a file.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::address::{MetricsAddr, connect};
use super::exporter::left;
use super::text::{self, Snapshot};

/// How long connecting may take, and how long the whole answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest text that is read: a process with hundreds of hosts tells less.
const MAX_BYTES: usize = 16 << 20;

/// First line of a saved snapshot, with the address and the time behind it.
const HEAD: &str = "# homa metrics of ";

/// Between the two.
const AT: &str = " at ";

/// Last line of a saved snapshot, so that a part of one is known.
const END: &str = "# EOF\n";

/// The place in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A process that is asked.
    Live(MetricsAddr),
    /// A saved snapshot.
    File(String),
}

impl Place {
    /// What a user means by it: a path is a socket or a file, whichever is there.
    pub fn of(text: &str) -> Place {
        let is_file =
            |path: &Path| fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket());
        match text.parse::<MetricsAddr>() {
            Ok(MetricsAddr::Unix(path))
                if !text.starts_with("unix:") && (is_file(&path) || !path.exists()) =>
            {
                Place::File(text.to_owned())
            }
            Ok(addr) => Place::Live(addr),
            Err(_) => Place::File(text.to_owned()),
        }
    }

    /// What is told there.
    ///
    /// # Errors
    /// Nobody answers, the file cannot be read, or what comes is no metrics.
    pub fn read(&self) -> Result<Told> {
        match self {
            Place::Live(addr) => ask(addr),
            Place::File(path) => {
                let bytes = fs::read(path).with_context(|| {
                    format!("cannot read {path}: it must be a snapshot of metrics, or an address as in 127.0.0.1:9100")
                })?;
                Told::saved(&bytes).with_context(|| format!("{path} is no whole snapshot of metrics"))
            }
        }
    }
}

/// Metrics as somebody told them.
#[derive(Clone, Debug)]
pub struct Told {
    /// Who; `None` in a file that does not say.
    pub source: Option<String>,
    /// When, in seconds since 1970; `None` in a file that does not say.
    pub at: Option<f64>,
    text: String,
    /// What.
    pub snapshot: Snapshot,
}

impl Told {
    /// From a file: one of ours, or the bare text.
    pub fn saved(bytes: &[u8]) -> Result<Told> {
        ensure!(bytes.len() <= MAX_BYTES, "it has more than {MAX_BYTES} bytes");
        let text = std::str::from_utf8(bytes).map_err(|_| anyhow!("it is no text"))?;
        let Some(rest) = text.strip_prefix(HEAD) else {
            return Ok(Told { source: None, at: None, text: text.to_owned(), snapshot: text::parse(text)? });
        };
        let (head, rest) = rest.split_once('\n').context("it ends in its first line")?;
        let (source, at) = head.rsplit_once(AT).context("its first line does not say when it was taken")?;
        let at: f64 = at.parse().ok().context("its first line does not say when it was taken")?;
        let text = rest.strip_suffix(END).context("its end is missing")?;
        ensure!(at.is_finite(), "its first line does not say when it was taken");
        Ok(Told {
            source: Some(source.to_owned()),
            at: Some(at),
            text: text.to_owned(),
            snapshot: text::parse(text)?,
        })
    }

    /// As it is saved.
    pub fn to_file(&self) -> String {
        let (source, at) = (self.source.as_deref().unwrap_or("a file"), self.at.unwrap_or(0.0));
        format!("{HEAD}{source}{AT}{at:.3}\n{}{END}", self.text)
    }
}

/// Asks a process.
///
/// # Errors
/// Nobody listens, or no metrics come within some seconds.
pub fn ask(addr: &MetricsAddr) -> Result<Told> {
    let text = get(addr)?;
    let snapshot = text::parse(&text).with_context(|| format!("what {addr} tells is no metrics"))?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    Ok(Told { source: Some(addr.to_string()), at: Some(at), text, snapshot })
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
    // Version 1.0, so that the answer comes in one piece that ends with the connection.
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

/// What an answer of HTTP brings.
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
        let told = Told {
            source: Some("unix:/a at b".to_owned()),
            at: Some(1_234.5),
            text: TEXT.to_owned(),
            snapshot: text::parse(TEXT).expect("metrics"),
        };
        let file = told.to_file();
        let again = Told::saved(file.as_bytes()).expect("whole");
        assert_eq!((again.source.as_deref(), again.at), (Some("unix:/a at b"), Some(1_234.5)));
        assert_eq!(again.snapshot, told.snapshot);
        for end in HEAD.len()..file.len() {
            assert!(Told::saved(&file.as_bytes()[..end]).is_err(), "{}", &file[..end]);
        }
        let bare = Told::saved(TEXT.as_bytes()).expect("metrics");
        assert_eq!((bare.source, bare.at, bare.snapshot), (None, None, told.snapshot));
        assert!(Told::saved(b"\xff").is_err());
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
        let file = |path: &str| Place::File(path.to_owned());
        assert_eq!(Place::of("127.0.0.1:9100"), Place::Live(MetricsAddr::Tcp("127.0.0.1:9100".to_owned())));
        assert_eq!(Place::of("unix:/nowhere"), Place::Live(MetricsAddr::Unix("/nowhere".into())));
        assert_eq!(Place::of("a.prom"), file("a.prom"));
        assert_eq!(Place::of("/nowhere/a.prom"), file("/nowhere/a.prom"));
        assert_eq!(Place::of("/dev/null"), file("/dev/null"));
    }
}
