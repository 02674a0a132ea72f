//! The interface between the load generator and a protocol's client. All protocols use the same generator.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;

/// The outcome of an RPC.
#[derive(Debug)]
pub struct Answer {
    /// The cookie passed to [`Link::submit`].
    pub cookie: u64,
    /// When the complete response had arrived in this process.
    pub at: Instant,
    /// The response, or the reason why there is none.
    pub result: Result<Bytes, String>,
}

/// The client ports that one thread drives, connected to all servers.
pub trait Link: Send {
    /// Starts an RPC from the client port with index `port` to the server port with index `server`. Never
    /// blocks. The request may stay queued until [`Link::flush`], to be sent together with others.
    ///
    /// # Errors
    /// Returns the reason why the RPC was refused. No [`Answer`] follows in that case.
    fn submit(&mut self, port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String>;

    /// Sends the submitted requests.
    ///
    /// # Errors
    /// The whole link is broken: the run cannot continue.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Appends the responses that have arrived. If there are none, waits up to `wait` for one; may return
    /// early without a response.
    ///
    /// # Errors
    /// The whole link is broken: the run cannot continue.
    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()>;

    /// Returns the number of packets that the ports' hosts have sent and received so far; `None`: they are
    /// not counted.
    fn packets(&self) -> Option<u64> {
        None
    }
}

/// Appends responses from receiver threads. If there are none, waits up to `wait` for one.
pub fn take_from(
    receivers: &mpsc::Receiver<Result<Answer, String>>,
    wait: Duration,
    answers: &mut Vec<Answer>,
) -> Result<()> {
    let mut next = match wait.is_zero() {
        true => receivers.try_recv().ok(),
        false => receivers.recv_timeout(wait).ok(),
    };
    while let Some(answer) = next {
        answers.push(answer.map_err(anyhow::Error::msg)?);
        next = receivers.try_recv().ok();
    }
    Ok(())
}

/// Checks an implementation with two client ports and two server ports. It sends 40 messages at once, which
/// exceeds the socket buffers. Each response must arrive exactly once. It must contain the request's content,
/// or its first bytes if responses are 100 bytes long. One message in `long_each` has 1,000,000 bytes.
///
/// # Panics
/// A response is missing, wrong, or duplicated.
pub fn check_all_come_back(link: &mut dyn Link, long_each: u64, one_way: bool) {
    let payload: Bytes = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
    let length = |cookie: u64| if cookie.is_multiple_of(long_each) { 1_000_000 } else { 1 + cookie as usize };
    let mut waiting: std::collections::BTreeSet<u64> = (0..40).collect();
    for &cookie in &waiting {
        let (port, server) = ((cookie % 2) as usize, (cookie / 2 % 2) as usize);
        link.submit(port, server, cookie, payload.slice(..length(cookie))).expect("taken");
        link.flush().expect("sent");
    }
    let mut answers = Vec::new();
    while !waiting.is_empty() {
        link.receive(Duration::from_millis(100), &mut answers).expect("the link holds");
        for answer in answers.drain(..) {
            assert!(waiting.remove(&answer.cookie), "{} answered twice", answer.cookie);
            let bytes = answer.result.expect("an answer");
            let sent = length(answer.cookie);
            assert_eq!(bytes.len(), if one_way { 100 } else { sent });
            let same = bytes.len().min(sent);
            assert_eq!(bytes[..same], payload[..same]);
        }
    }
}
