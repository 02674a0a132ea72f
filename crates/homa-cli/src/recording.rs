//! Time traces of the hosts that a command runs: what is asked for on the command line, and the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use homa::{Host, HostConfig};
use homa_report::output::Output;
use homa_report::units;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGUSR1;

/// How often somebody looks whether a trace is frozen or wanted.
const LOOK: Duration = Duration::from_millis(20);

/// Most files that are written while a command runs. A trace that froze once more stays frozen, and is what is written at the end.
const MOST_FILES: u32 = 16;

/// What is said about time traces by every command that runs hosts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Time traces")]
pub struct TraceArgs {
    /// Write the time trace to this file at the end; to NAME.1.EXT, NAME.2.EXT and so on, 16 at most, when SIGUSR1 comes and each time it
    /// froze, and go on then
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub settings: TraceSettings,
}

/// How a trace is recorded, wherever it goes.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Time traces")]
pub struct TraceSettings {
    /// Events that each endpoint keeps, rounded up to a power of two, 32 bytes of memory each; 0: no trace [default: 16384; in a rack 262144
    /// with --trace, and none without]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub trace_records: Option<u32>,
    /// Freeze the trace when an RPC that began here takes at least so long, as in 1ms or 250us
    #[arg(long, value_name = "TIME", value_parser = units::duration_ns)]
    pub trace_slower_than: Option<u64>,
    /// When it freezes by that, or by SIGUSR1, have all peers freeze theirs at the same moment
    #[arg(long)]
    pub trace_freeze_peers: bool,
    /// Record also when the kernel took each packet from its device, and gave each to it, not over --driver xdp; and with which priority
    /// packets came, which drivers that see the IP header (raw over IPv4, packet, xdp) record anyway
    #[arg(long)]
    pub trace_device_times: bool,
}

impl TraceSettings {
    /// Sets up a host so.
    pub fn apply(&self, config: &mut HostConfig) {
        if let Some(records) = self.trace_records {
            config.trace_records = records as usize;
        }
        config.trace_freeze_slower_than = self.trace_slower_than.map(Duration::from_nanos);
        config.trace_freeze_peers = self.trace_freeze_peers;
        config.trace_device_times = self.trace_device_times;
    }

    /// The same settings as arguments of another process of ours.
    pub fn as_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        args.extend(self.trace_records.map(|records| format!("--trace-records={records}")));
        args.extend(self.trace_slower_than.map(|bound| format!("--trace-slower-than={bound}ns")));
        let flags = [
            ("--trace-freeze-peers", self.trace_freeze_peers),
            ("--trace-device-times", self.trace_device_times),
        ];
        args.extend(flags.iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| (*flag).to_owned()));
        args
    }
}

/// Writes the trace of a host.
pub struct Recorder {
    writer: Arc<Writer>,
    over: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

struct Writer {
    host: Arc<Host>,
    /// What people call the host; none: its address.
    name: Option<String>,
    output: Output,
}

impl Recorder {
    /// Looks after the trace of `host` from here on, whose file is checked now.
    ///
    /// # Errors
    /// The file cannot be written, or no thread be started.
    pub fn start(path: &Path, host: &Arc<Host>, name: Option<String>) -> Result<Recorder> {
        let writer = Arc::new(Writer { host: Arc::clone(host), name, output: Output::check(path)? });
        let (over, wanted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&wanted)).context("cannot listen to signals")?;
        let looks = (Arc::clone(&writer), Arc::clone(&over));
        let looker = thread::Builder::new().name("homa-trace".to_owned());
        let looker =
            looker.spawn(move || looks.0.look(&looks.1, &wanted)).context("cannot start a thread")?;
        Ok(Recorder { writer, over, looker: Some(looker) })
    }

    /// Writes what the trace holds at the end.
    ///
    /// # Errors
    /// Names the file.
    pub fn finish(mut self) -> Result<()> {
        self.end_looks();
        self.writer.write(&self.writer.output)
    }

    fn end_looks(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            looker.thread().unpark();
            // A panic of it has been reported.
            let _ = looker.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end_looks();
    }
}

/// A host whose trace, if it is wanted, is written when the host goes.
pub struct Recorded {
    pub host: Arc<Host>,
    recorder: Option<Recorder>,
}

impl Recorded {
    /// With a file for the trace of this name in a directory; `None`: none is written.
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub fn new(host: Host, directory: Option<&Path>, name: &str) -> Result<Recorded> {
        let host = Arc::new(host);
        let file = directory.map(|directory| file_in(directory, name));
        let recorder = file.map(|file| Recorder::start(&file, &host, Some(name.to_owned()))).transpose()?;
        Ok(Recorded { host, recorder })
    }

    /// One whose trace is somebody else's business.
    pub fn without(host: &Arc<Host>) -> Recorded {
        Recorded { host: Arc::clone(host), recorder: None }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(recorder) = self.recorder.take()
            && let Err(error) = recorder.finish()
        {
            tracing::warn!("{error:#}");
        }
    }
}

/// The file of a trace among others.
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

/// The same file with a number before its ending.
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

    #[test]
    fn settings_go_on_to_another_process_as_they_are() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            settings: TraceSettings,
        }
        let parse = |args: &[String]| {
            let words = std::iter::once("homa".to_owned()).chain(args.iter().cloned());
            <Command as clap::Parser>::try_parse_from(words).expect("valid").settings
        };
        let said = [
            "--trace-records=7",
            "--trace-slower-than=1.5us",
            "--trace-freeze-peers",
            "--trace-device-times",
        ]
        .map(str::to_owned);
        let args = parse(&said).as_args();
        let mut config = HostConfig::default();
        parse(&args).apply(&mut config);
        assert_eq!(
            (config.trace_records, config.trace_freeze_peers, config.trace_device_times),
            (7, true, true)
        );
        assert_eq!(config.trace_freeze_slower_than, Some(Duration::from_nanos(1_500)));
        let mut config = HostConfig::default();
        parse(&[]).apply(&mut config);
        assert_eq!(config.trace_records, HostConfig::default().trace_records);
    }
}
