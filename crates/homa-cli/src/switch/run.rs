//! `homa switch run`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use homa_driver::frames::FramesConfig;
use homa_metrics::Exporter;
use homa_report::output;
use homa_switch::{Bridge, BridgeConfig};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use super::args::RunArgs;
use super::control::{Control, Questions};
use super::{prometheus, table};

/// Assumed mean length of a queued frame in bytes, used to size the memory.
const AVERAGE_FRAME_BYTES: u64 = 512;

/// Minimum and maximum number of frames in memory; with slots for the standard MTU, 8 MB and 512 MB.
const HELD_FRAMES: (u64, u64) = (4_096, 262_144);

/// Forwards frames until a signal stops the switch.
pub fn run(args: &RunArgs) -> Result<()> {
    if args.ports.len() < 2 {
        bail!("a switch has two ports or more: name them, as in --ports sw0,sw1");
    }
    let switch = args.config()?;
    switch.check()?;
    let (fewest, most) = HELD_FRAMES;
    let held = (switch.buffer.bytes(args.ports.len()) / AVERAGE_FRAME_BYTES).clamp(fewest, most) as u32;
    let frames =
        FramesConfig { path: args.path.into(), held_frames: held, ..FramesConfig::new(args.ports.clone()) };
    let config = BridgeConfig {
        frames,
        switch,
        poll: Duration::from_nanos(args.poll),
        nap: Duration::from_nanos(args.nap),
        planted_work: Duration::from_nanos(args.planted_work),
        trace_records: args.trace.as_ref().map_or(0, |_| args.trace_records as usize),
    };
    if let Some(path) = &args.trace {
        create(path)?;
    }
    let questions = Questions::new();
    let control =
        args.control.as_deref().map(|path| Control::listen(path, questions.requester())).transpose()?;
    let requester = questions.requester();
    let metrics = move || requester.ask().map(|snapshot| prometheus::text(&snapshot));
    let exporter = args.metrics.as_ref().map(|addr| Exporter::start(addr, metrics)).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot listen to signals")?;
    }
    let trace_wanted = Arc::new(AtomicBool::new(false));
    if args.trace.is_some() {
        signal_hook::flag::register(SIGUSR1, Arc::clone(&trace_wanted))
            .context("cannot listen to signals")?;
    }
    let mut bridge = Bridge::open(&config)?;
    if let Some(exporter) = &exporter {
        output::print(format!("metrics {}\n", exporter.url()).as_bytes())?;
    }
    output::print(b"ready\n")?;
    std::io::stdout().flush()?;
    bridge.run(|bridge| {
        questions.answer(|| bridge.snapshot());
        if let Some(path) = args.trace.as_deref().filter(|_| trace_wanted.swap(false, Ordering::Relaxed))
            && let Err(error) = write_trace(bridge, path)
        {
            // A failure to write this file does not stop forwarding.
            tracing::warn!("{error:#}");
        }
        stop.load(Ordering::Relaxed)
    });
    if let Some(path) = &args.trace {
        write_trace(&bridge, path)?;
    }
    drop((control, exporter));
    let snapshot = bridge.snapshot();
    let text = if args.json {
        serde_json::to_string(&snapshot).context("cannot write the counters as JSON")? + "\n"
    } else {
        table::whole(&snapshot)
    };
    output::print(text.as_bytes())
}

fn create(path: &Path) -> Result<File> {
    File::create(path)
        .with_context(|| format!("cannot write the time trace to {}: choose another --trace", path.display()))
}

fn write_trace(bridge: &Bridge, path: &Path) -> Result<()> {
    let mut out = BufWriter::new(create(path)?);
    let written = bridge.write_trace(&mut out).and_then(|()| out.flush());
    written.with_context(|| format!("cannot write the time trace to {}", path.display()))
}
