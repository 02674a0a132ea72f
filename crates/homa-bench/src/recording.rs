//! Time traces of the hosts of a process: settings and files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use homa::{Host, HostConfig};
use homa_report::output::Output;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGUSR1;

/// Interval at which the recorder checks for a frozen trace and for SIGUSR1.
const LOOK: Duration = Duration::from_millis(20);

/// Maximum number of files written before the end of the recording. A trace that freezes after that stays
/// frozen until the end.
const MOST_FILES: u32 = 16;

/// Settings of the time traces of a process's hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSettings {
    /// Number of events that each endpoint keeps, rounded up to a power of two; 0: no trace; `None`: the
    /// library's default.
    pub records: Option<u32>,
    /// Minimum duration of an RPC that freezes its client's trace; `None`: no RPC freezes the trace.
    pub slower_than: Option<Duration>,
    /// Whether the traces of the peers are frozen at the same time.
    pub freeze_peers: bool,
    /// Whether to record when the kernel received each packet from its device, or passed it to the device.
    pub device_times: bool,
}

impl TraceSettings {
    /// Applies the settings to a host's configuration.
    pub fn apply(&self, config: &mut HostConfig) {
        if let Some(records) = self.records {
            config.trace_records = records as usize;
        }
        config.trace_freeze_slower_than = self.slower_than;
        config.trace_freeze_peers = self.freeze_peers;
        config.trace_device_times = self.device_times;
    }
}

/// Writes the trace of a host when it freezes, and at the end.
pub struct Recorder {
    writer: Arc<Writer>,
    over: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

struct Writer {
    host: Arc<Host>,
    /// Name of the host in the trace; `None`: its address is used.
    name: Option<String>,
    output: Output,
}

impl Recorder {
    /// Starts recording the trace of `host`. Checks that the trace file can be written.
    ///
    /// # Errors
    /// The file cannot be written, or a thread cannot be started.
    pub fn start(path: &Path, host: &Arc<Host>, name: Option<String>) -> Result<Recorder> {
        let writer = Arc::new(Writer { host: Arc::clone(host), name, output: Output::check(path)? });
        let (over, wanted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&wanted))
            .context("cannot register a signal handler")?;
        let looks = (Arc::clone(&writer), Arc::clone(&over));
        let looker = thread::Builder::new().name("homa-trace".to_owned());
        let looker =
            looker.spawn(move || looks.0.look(&looks.1, &wanted)).context("cannot start a thread")?;
        Ok(Recorder { writer, over, looker: Some(looker) })
    }

    /// Writes the trace at the end of the recording.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.end_looks();
        self.writer.write(&self.writer.output)
    }

    fn end_looks(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            looker.thread().unpark();
            // A panic of the thread has been reported already.
            let _ = looker.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end_looks();
    }
}

/// A host whose trace is written when this is dropped.
pub struct RecordedHost {
    /// The host.
    pub host: Arc<Host>,
    recorder: Option<Recorder>,
}

impl RecordedHost {
    /// Records the trace of a host to a file named after `name` in `directory`. If `directory` is `None`, no
    /// trace is written.
    ///
    /// # Errors
    /// The errors of [`Recorder::start`].
    pub fn new(host: Host, directory: Option<&Path>, name: &str) -> Result<RecordedHost> {
        let host = Arc::new(host);
        let file = directory.map(|directory| file_in(directory, name));
        let recorder = file.map(|file| Recorder::start(&file, &host, Some(name.to_owned()))).transpose()?;
        Ok(RecordedHost { host, recorder })
    }

    /// Creates a host without a recorder.
    pub fn without(host: &Arc<Host>) -> RecordedHost {
        RecordedHost { host: Arc::clone(host), recorder: None }
    }
}

impl Drop for RecordedHost {
    fn drop(&mut self) {
        if let Some(recorder) = self.recorder.take()
            && let Err(error) = recorder.finish()
        {
            tracing::warn!("{error:#}");
        }
    }
}

/// Returns the path of the trace with this name in a directory.
pub fn file_in(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.trace"))
}

impl Writer {
    fn look(&self, over: &AtomicBool, wanted: &AtomicBool) {
        let mut files = 0;
        while !over.load(Ordering::Relaxed) {
            if wanted.swap(false, Ordering::Relaxed) {
                self.host.freeze_trace();
            }
            if files < MOST_FILES && self.host.trace_is_frozen() {
                files += 1;
                if let Err(error) = self.write_numbered(files) {
                    tracing::warn!("{error:#}");
                }
                self.host.unfreeze_trace();
            }
            thread::park_timeout(LOOK);
        }
    }

    fn write_numbered(&self, number: u32) -> Result<()> {
        self.write(&Output::check(&numbered(self.output.path(), number))?)
    }

    fn write(&self, output: &Output) -> Result<()> {
        let mut dump = self.host.trace_dump();
        if let Some(name) = &self.name {
            dump.node.name.clone_from(name);
        }
        output.write(&dump.to_bytes())
    }
}

/// Inserts a number before the path's file name extension.
fn numbered(path: &Path, number: u32) -> PathBuf {
    match path.extension() {
        Some(ending) => path.with_extension(format!("{number}.{}", ending.to_string_lossy())),
        None => path.with_extension(number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_before_the_ending() {
        assert_eq!(numbered(Path::new("a/h1.trace"), 2), Path::new("a/h1.2.trace"));
        assert_eq!(numbered(Path::new("a/h1"), 3), Path::new("a/h1.3"));
    }
}
