//! The control socket of a running switch: a client gets the counters as one JSON document.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Snapshot;

/// Time limit for an answer. A running switch serves its control socket fifty times per second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why counters could not be obtained from a switch.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No process listens at the socket.
    #[error("no switch listens at {path}: start one with `homa switch run --control {path}`", path = .0.display())]
    NotRunning(PathBuf),
    /// The socket refuses the connection.
    #[error("cannot ask the switch at {}", .0.display())]
    Connect(PathBuf, #[source] io::Error),
    /// There was no complete answer within the time limit.
    #[error("the switch at {} does not answer", .0.display())]
    NoAnswer(PathBuf, #[source] io::Error),
    /// The answer has another format.
    #[error("{} is no switch of this version", .0.display())]
    Version(PathBuf, #[source] serde_json::Error),
}

/// Returns the counters of the switch with this control socket.
///
/// # Errors
/// No switch of this version answers there.
pub fn ask(path: &Path) -> Result<Snapshot, ControlError> {
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ControlError::NotRunning(path.to_owned()),
        _ => ControlError::Connect(path.to_owned(), error),
    })?;
    let mut answer = Vec::new();
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.read_to_end(&mut answer))
        .map_err(|error| ControlError::NoAnswer(path.to_owned(), error))?;
    serde_json::from_slice(&answer).map_err(|error| ControlError::Version(path.to_owned(), error))
}
