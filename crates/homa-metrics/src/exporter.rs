//! Exports metrics over HTTP: `GET /metrics`. However many clients there are, and however slow they are, this
//! costs the process only a few sleeping threads, and producing a text at most every 20 ms.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::address::{Listener, MetricsAddr, Stream};

/// Number of connections served concurrently; the kernel queues some more.
const WORKERS: usize = 4;

/// Time limit for receiving a request, and for sending the response.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time limit for reading the remainder of a request. Closing the connection earlier could reset it and lose
/// the response.
const FAREWELL: Duration = Duration::from_millis(200);

/// Maximum length of a request in bytes.
const MAX_REQUEST: usize = 8_192;

/// Minimum time between producing two texts, since the source may take locks. Clients that send a request in
/// the meantime wait: an older text would not contain recent events.
const SPACING: Duration = Duration::from_millis(20);

/// Pause after a failed accept, which is usually caused by a lack of descriptors.
const OUT_OF_ORDER: Duration = Duration::from_millis(100);

/// A function that returns the text of the metrics, or the reason why there is none.
type Source = dyn Fn() -> Result<String> + Send + Sync;

/// Serves metrics until the process exits. A socket in the file system is removed when this value is dropped.
pub struct Exporter {
    url: String,
    socket: Option<PathBuf>,
}

impl Exporter {
    /// Starts serving the text that `source` returns.
    ///
    /// # Errors
    /// The address is in use or not available.
    pub fn start(
        addr: &MetricsAddr,
        source: impl Fn() -> Result<String> + Send + Sync + 'static,
    ) -> Result<Exporter> {
        let listener = Arc::new(Listener::bind(addr)?);
        let url = listener.url()?;
        let pages = Arc::new(Pages { source: Box::new(source), last: Mutex::default() });
        for _ in 0..WORKERS {
            let (listener, pages) = (Arc::clone(&listener), Arc::clone(&pages));
            thread::Builder::new()
                .name("homa-metrics".to_owned())
                .spawn(move || serve(&listener, &pages))
                .context("cannot start a thread")?;
        }
        let socket = match addr {
            MetricsAddr::Unix(path) => Some(path.clone()),
            MetricsAddr::Tcp(_) => None,
        };
        Ok(Exporter { url, socket })
    }

    /// Returns the URL of the metrics, which [`MetricsAddr`] also parses.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            // The file may already have been removed.
            let _ = fs::remove_file(path);
        }
    }
}

/// The source of the metrics, and the text that it last returned.
struct Pages {
    source: Box<Source>,
    last: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Pages {
    /// Returns metrics that the source produced after the time `asked`.
    fn metrics(&self, asked: Instant) -> Result<Arc<str>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = last.as_ref() {
            if *at >= asked {
                return Ok(Arc::clone(text));
            }
            thread::sleep(SPACING.saturating_sub(at.elapsed()));
        }
        let at = Instant::now();
        let text: Arc<str> = (self.source)()?.into();
        *last = Some((at, Arc::clone(&text)));
        Ok(text)
    }

    /// Returns the response to a request.
    fn answer(&self, request: &Request) -> Vec<u8> {
        match request {
            Request::Get(path) if path == "/metrics" => match self.metrics(Instant::now()) {
                Ok(text) => response("200 OK", "text/plain; version=0.0.4; charset=utf-8", &text),
                Err(error) => response("503 Service Unavailable", PLAIN, &format!("{error:#}\n")),
            },
            Request::Get(_) => response("404 Not Found", PLAIN, "the metrics are at /metrics\n"),
            Request::Other => response("405 Method Not Allowed", PLAIN, "use GET /metrics\n"),
            Request::NotHttp => response("400 Bad Request", PLAIN, "use GET /metrics over HTTP\n"),
            Request::TooLong => response("431 Request Header Fields Too Large", PLAIN, "use GET /metrics\n"),
        }
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn response(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// GET with this path, without the query after the question mark.
    Get(String),
    /// A different method.
    Other,
    /// The bytes are not HTTP.
    NotHttp,
    /// The head of the request is too long.
    TooLong,
}

impl Request {
    /// Parses a request; `None` if it is still incomplete.
    fn parse(bytes: &[u8]) -> Option<Request> {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return (bytes.len() > MAX_REQUEST).then_some(Request::TooLong);
        };
        let head = String::from_utf8_lossy(&bytes[..end]);
        let words: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
        Some(match words[..] {
            ["GET", target, version] if version.starts_with("HTTP/1.") => {
                Request::Get(target.split('?').next().unwrap_or_default().to_owned())
            }
            [_, _, version] if version.starts_with("HTTP/") => Request::Other,
            _ => Request::NotHttp,
        })
    }
}

fn serve(listener: &Listener, pages: &Pages) {
    loop {
        match listener.accept() {
            // A client that disconnects needs no answer.
            Ok(mut stream) => drop(serve_connection(stream.as_mut(), pages)),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(_) => thread::sleep(OUT_OF_ORDER),
        }
    }
}

/// Serves one request, within bounds of time and memory.
fn serve_connection(stream: &mut dyn Stream, pages: &Pages) -> std::io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let request = loop {
        if let Some(request) = Request::parse(&bytes) {
            break request;
        }
        if read_some(stream, until, &mut bytes)? == 0 {
            break Request::NotHttp;
        }
    };
    let answer = pages.answer(&request);
    let until = Instant::now() + PATIENCE;
    let mut rest = &answer[..];
    while !rest.is_empty() {
        stream.set_patience(left(until)?)?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.end_writing();
    let until = Instant::now() + FAREWELL;
    while read_some(stream, until, &mut bytes)? > 0 {
        bytes.clear();
    }
    Ok(())
}

/// Reads the next bytes. The deadline covers all reads, so a slow client gets no additional time.
fn read_some(stream: &mut dyn Stream, until: Instant, bytes: &mut Vec<u8>) -> std::io::Result<usize> {
    let mut buffer = [0; 2_048];
    loop {
        stream.set_patience(left(until)?)?;
        match stream.read(&mut buffer) {
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                return Ok(count);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the time left until `until`. If none is left, returns an error, because sockets treat a timeout of
/// zero as no timeout.
pub fn left(until: Instant) -> std::io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn pages(source: impl Fn() -> Result<String> + Send + Sync + 'static) -> Pages {
        Pages { source: Box::new(source), last: Mutex::default() }
    }

    fn answer(pages: &Pages, request: &str) -> String {
        let request = Request::parse(request.as_bytes()).expect("a whole request");
        String::from_utf8(pages.answer(&request)).expect("text")
    }

    #[test]
    fn only_a_get_of_the_metrics_has_them() {
        let pages = pages(|| Ok("homa 1\n".to_owned()));
        let text = answer(&pages, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("Connection: close\r\n\r\nhoma 1\n"),
            "{text}"
        );
        assert!(text.contains("Content-Length: 7\r\n") && text.contains("version=0.0.4"), "{text}");
        for (request, status) in [
            ("GET / HTTP/1.0\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
        ] {
            assert!(answer(&pages, request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        assert_eq!(Request::parse(b"GET /metrics HTTP/1.1\r\n"), None);
        assert_eq!(Request::parse(&[b'a'; MAX_REQUEST + 1]), Some(Request::TooLong));
    }

    #[test]
    fn every_answer_is_from_after_the_question_and_many_questions_cost_no_more() {
        let asked = AtomicU32::new(0);
        let pages = pages(move || Ok(asked.fetch_add(1, Ordering::Relaxed).to_string()));
        let began = Instant::now();
        let told: Vec<String> =
            (0..5).map(|_| pages.metrics(Instant::now()).expect("a text").to_string()).collect();
        assert_eq!(told, ["0", "1", "2", "3", "4"]);
        assert!(began.elapsed() >= 4 * SPACING);
        // A client whose request arrived before the source was called may share the text.
        assert_eq!(&*pages.metrics(began).expect("a text"), "4");
    }

    #[test]
    fn a_source_that_fails_says_why() {
        let pages = pages(|| anyhow::bail!("the switch has ended"));
        let text = answer(&pages, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 503 ") && text.ends_with("the switch has ended\n"), "{text}");
    }
}
