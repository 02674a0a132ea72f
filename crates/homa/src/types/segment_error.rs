//! Errors of the segment.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::limits::MAX_PROCESSES;

/// The reason why the processes of this host cannot share its address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The segment's file belongs to another user.
    #[error(
        "{} is not open to this user, and all processes that share this host's address share that file: run them as \
         one user, or remove the file when none of them runs", path.display()
    )]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// Other users could write to the segment's file, or it is not a plain file.
    #[error(
        "{} is not a plain file of this user alone, so its contents cannot be trusted: find out who made it, and \
         remove it when no Homa process of this host runs", path.display()
    )]
    Untrusted {
        /// The file.
        path: PathBuf,
    },
    /// Other users could put a file into the directory.
    #[error(
        "{} is not a directory of this user or root alone, so what lies there cannot be trusted: remove it or close it to others, or set \
         segment_dir to another", path.display()
    )]
    UntrustedDir {
        /// The directory.
        path: PathBuf,
    },
    /// Another host has the address, and does not share a segment with this host.
    #[error(
        "process {pid} has a host at {address} in this network namespace that does not share {} with this one: let both see the same \
         segment_dir, in one file system, or give each an address", path.display()
    )]
    Divided {
        /// This host's file.
        path: PathBuf,
        /// This host's address.
        address: IpAddr,
        /// The other process's ID in this process's PID namespace; 0 if it has none there.
        pid: i32,
    },
    /// Processes of another version are running.
    #[error(
        "{} is in use by processes whose layout of it is {found}, and this process has {expected}: end them first",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version and size that the file states.
        found: String,
        /// Version and size that this process supports.
        expected: String,
    },
    /// All slots are in use.
    #[error("{MAX_PROCESSES} hosts share this address already ({}): end one of them", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// A process holds the file's lock and makes no progress.
    #[error(
        "process {pid} has held the lock of {} for more than {waited:?}: it is stopped or hangs; continue or end it",
        path.display()
    )]
    LockHeld {
        /// The file.
        path: PathBuf,
        /// The ID of the process that holds the lock, in its own PID namespace.
        pid: u32,
        /// How long this process waited for the lock.
        waited: Duration,
    },
    /// The operating system refused an operation.
    #[error("cannot {what} {}, which the processes of this host share: {source}", path.display())]
    System {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the Homa port.
    #[error("Homa port {port} is taken by process {pid} of this host: choose another, or end that process")]
    PortTaken {
        /// The port.
        port: u16,
        /// The ID of the process that has the port, in its own PID namespace.
        pid: u32,
    },
    /// Every client port is open in some process.
    #[error("all client ports of this host are open: close one")]
    NoClientPort,
}
