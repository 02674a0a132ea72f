//! The socket by which a running switch is asked for its counters. Whoever connects gets them as one JSON document.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use homa_switch::Snapshot;

/// How long an answer may take: a running switch looks for questions fifty times a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a running switch hears questions. The socket goes with this value.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    questions: Receiver<Sender<Snapshot>>,
}

impl Control {
    /// Listens at a socket. One that a dead process has left is replaced.
    pub fn listen(path: &Path) -> Result<Control> {
        let failed = || format!("cannot listen at {}", path.display());
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
            if UnixStream::connect(path).is_ok() {
                bail!("another process listens at {}: end it, or choose another --control", path.display());
            }
            fs::remove_file(path).with_context(failed)?;
        }
        let listener = UnixListener::bind(path).with_context(failed)?;
        let (to_switch, questions) = channel();
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (to_us, answer) = channel();
                    if to_switch.send(to_us).is_err() {
                        return;
                    }
                    // To write takes longer than to count, and whoever asked may be slow to read: not the switch's business.
                    if let Ok(snapshot) = answer.recv_timeout(PATIENCE) {
                        let _ = answer_to(stream, &snapshot);
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(Control { path: path.to_owned(), questions })
    }

    /// Answers who has asked.
    pub fn answer(&self, mut snapshot: impl FnMut() -> Snapshot) {
        while let Ok(question) = self.questions.try_recv() {
            // Who no longer waits needs no answer.
            let _ = question.send(snapshot());
        }
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

/// Asks the switch at this socket.
pub fn ask(path: &Path) -> Result<Snapshot> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            bail!("no switch listens at {}: start one with `homa switch run --control {0}`", path.display())
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot ask the switch at {}", path.display()));
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .with_context(|| format!("the switch at {} does not answer", path.display()))?;
    serde_json::from_slice(&answer)
        .with_context(|| format!("{} is no switch of this version", path.display()))
}
