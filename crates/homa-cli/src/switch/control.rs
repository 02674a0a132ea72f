//! The socket by which a running switch is asked for its counters. Whoever connects gets them as one JSON document.

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

/// How long an answer may take: a running switch looks for questions fifty times a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a running switch finds the questions that others have.
#[derive(Debug)]
pub struct Questions {
    asker: Asker,
    questions: Receiver<Sender<Snapshot>>,
}

impl Questions {
    /// Nobody has asked.
    pub fn new() -> Questions {
        let (to_switch, questions) = channel();
        Questions { asker: Asker { to_switch }, questions }
    }

    /// For whoever may ask.
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Answers who has asked.
    pub fn answer(&self, mut snapshot: impl FnMut() -> Snapshot) {
        while let Ok(question) = self.questions.try_recv() {
            // Who no longer waits needs no answer.
            let _ = question.send(snapshot());
        }
    }
}

/// Asks a switch of this process.
#[derive(Clone, Debug)]
pub struct Asker {
    to_switch: Sender<Sender<Snapshot>>,
}

impl Asker {
    /// Its counters.
    ///
    /// # Errors
    /// It has ended, or is too busy.
    pub fn ask(&self) -> Result<Snapshot> {
        let (to_us, answer) = channel();
        self.to_switch.send(to_us).context("the switch has ended")?;
        answer.recv_timeout(PATIENCE).context("the switch does not answer")
    }
}

/// The socket at which a running switch is asked. It goes with this value.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens at a socket. One that a dead process has left is replaced.
    pub fn listen(path: &Path, switch: Asker) -> Result<Control> {
        let listener = listen_unix(path, "--control")?;
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // To write takes longer than to count, and whoever asked may be slow to read: not the switch's business.
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
        // Somebody else may have taken it away.
        let _ = fs::remove_file(&self.path);
    }
}

fn answer_to(mut stream: UnixStream, snapshot: &Snapshot) -> Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(snapshot)?)?;
    Ok(())
}
