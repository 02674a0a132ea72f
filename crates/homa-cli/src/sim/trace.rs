//! The time traces of a run's hosts, a file each.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use homa_sim::ClusterReport;

use super::draft::Plan;
use crate::output::Output;

/// The transport whose hosts have traces.
const TRACED: &str = "homa";

/// A file for each host in this directory, which is made if need be.
///
/// # Errors
/// No transport has traces, or the files cannot be written there.
pub fn files(directory: &Path, transports: &[String], plan: &Plan) -> Result<Vec<Output>> {
    if !transports.iter().any(|name| name == TRACED) {
        bail!("--trace: only {TRACED} has time traces; name it in --transport");
    }
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let width = plan.cluster.hosts.saturating_sub(1).to_string().len();
    (0..plan.cluster.hosts)
        .map(|host| Output::check(&directory.join(format!("host-{host:0width$}.trace"))))
        .collect()
}

/// Writes each host's trace to its file.
///
/// # Errors
/// Names the first file that cannot be written.
pub fn write(files: &[Output], reports: &[ClusterReport]) -> Result<()> {
    let traces = reports.iter().flat_map(|report| &report.traces);
    files.iter().zip(traces).try_for_each(|(file, trace)| file.write(trace))
}
