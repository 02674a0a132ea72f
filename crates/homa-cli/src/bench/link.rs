//! What the load generator needs of a protocol. All protocols run under the same generator, thread for thread.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;

/// The end of an RPC.
#[derive(Debug)]
pub struct Answer {
    /// From [`Link::submit`].
    pub cookie: u64,
    /// When the answer was complete in this process.
    pub at: Instant,
    /// The answer, or why there is none.
    pub result: Result<Bytes, String>,
}

/// The client ports that one thread drives, with their ways to all servers.
pub trait Link: Send {
    /// Starts an RPC from the client port with index `port` to the server port with index `server`. Never blocks. It may wait
    /// for [`Link::flush`] to go out with others.
    ///
    /// # Errors
    /// Why this RPC was not taken; no [`Answer`] comes for it then.
    fn submit(&mut self, port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String>;

    /// Sends what was submitted.
    ///
    /// # Errors
    /// The whole link is broken: the run cannot go on.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Appends the answers that are there, and otherwise waits for one for at most `wait`; zero only looks. May return
    /// early with nothing.
    ///
    /// # Errors
    /// The whole link is broken: the run cannot go on.
    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()>;

    /// Packets sent and received so far by the ports' hosts, where they are counted.
    fn packets(&self) -> Option<u64> {
        None
    }
}

/// Appends the answers that receiver threads handed over, and otherwise waits for one for at most `wait`.
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
