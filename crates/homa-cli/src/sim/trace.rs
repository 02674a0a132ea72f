//! Writes the time traces of a run's hosts and switches, each to its own file.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use homa_report::output::{Output, make_directory};
use homa_sim::ClusterReport;

use super::draft::Plan;

/// The only transport that records time traces.
const TRACED: &str = "homa";

/// The files for the traces of a run.
pub struct Files {
    directory: PathBuf,
    hosts: Vec<Output>,
}

/// Creates a file for each host in this directory, which is created if necessary.
///
/// # Errors
/// None of the transports records traces, or the files cannot be written to the directory.
pub fn files(directory: &Path, transports: &[String], plan: &Plan) -> Result<Files> {
    if !transports.iter().any(|name| name == TRACED) {
        bail!("--trace: only {TRACED} has time traces; name it in --transport");
    }
    make_directory(directory)?;
    let width = plan.cluster.hosts.saturating_sub(1).to_string().len();
    let file = |host| Output::check(&directory.join(format!("host-{host:0width$}.trace")));
    let hosts = (0..plan.cluster.hosts).map(file).collect::<Result<_>>()?;
    Ok(Files { directory: directory.to_owned(), hosts })
}

/// Writes each host's and each switch's trace to its file.
///
/// # Errors
/// The error names the first file that cannot be written.
pub fn write(files: &Files, reports: &[ClusterReport]) -> Result<()> {
    let Some(report) = reports.iter().find(|report| !report.traces.is_empty()) else { return Ok(()) };
    for (file, trace) in files.hosts.iter().zip(&report.traces) {
        file.write(trace)?;
    }
    let width = report.switch_traces.len().saturating_sub(1).to_string().len();
    for (number, trace) in report.switch_traces.iter().enumerate() {
        Output::check(&files.directory.join(format!("switch-{number:0width$}.trace")))?.write(trace)?;
    }
    Ok(())
}
