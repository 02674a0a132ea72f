//! The control socket of a running switch. Each client that connects receives the counters as one JSON
//! document.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use homa_metrics::listen_unix;
use homa_switch::Snapshot;

/// Time limit for an answer. A running switch checks for requests fifty times per second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pending requests for the counters of a running switch.
#[derive(Debug)]
pub struct Questions {
    requester: SnapshotRequester,
    questions: Receiver<Sender<Snapshot>>,
}

impl Questions {
    /// Creates an empty queue of requests.
    pub fn new() -> Questions {
        let (to_switch, questions) = channel();
        Questions { requester: SnapshotRequester { to_switch }, questions }
    }

    /// Returns a handle for threads that request the counters.
    pub fn requester(&self) -> SnapshotRequester {
        self.requester.clone()
    }

    /// Answers all pending requests.
    pub fn answer(&self, mut snapshot: impl FnMut() -> Snapshot) {
        while let Ok(question) = self.questions.try_recv() {
            // If the requesting thread no longer waits, it needs no answer.
            let _ = question.send(snapshot());
        }
    }
}

/// A handle for requesting counters from a switch in this process.
#[derive(Clone, Debug)]
pub struct SnapshotRequester {
    to_switch: Sender<Sender<Snapshot>>,
}

impl SnapshotRequester {
    /// Returns the counters of the switch.
    ///
    /// # Errors
    /// The switch has exited, or is too busy.
    pub fn ask(&self) -> Result<Snapshot> {
        let (to_us, answer) = channel();
        self.to_switch.send(to_us).context("the switch has ended")?;
        answer.recv_timeout(PATIENCE).context("the switch does not answer")
    }
}

/// The listening control socket of a switch. Dropping it removes the socket.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens on a socket, replacing any socket left behind by a dead process.
    pub fn listen(path: &Path, switch: SnapshotRequester) -> Result<Control> {
        let listener = listen_unix(path, "--control")?;
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // Writing takes longer than collecting the counters, and the client may be slow.
                    // Therefore this thread writes the answer, not the switch.
                    if let Ok(snapshot) = switch.ask() {
                        let _ = answer_to(stream, &snapshot);
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(Control { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Another process may have removed the socket.
        let _ = fs::remove_file(&self.path);
    }
}

fn answer_to(mut stream: UnixStream, snapshot: &Snapshot) -> Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(snapshot)?)?;
    Ok(())
}
