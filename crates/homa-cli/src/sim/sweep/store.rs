//! Finished runs of a sweep, each in its own file, so that an interrupted sweep can be resumed.

use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, Result};
use homa_report::output::{Output, json};
use homa_sim::ClusterReport;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::knobs;
use super::super::run::SCHEMA;
use super::file::Run;

/// A finished run.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Stored {
    schema: u32,
    /// Version of the program that executed the run.
    version: String,
    transport: String,
    setup: Map<String, Value>,
    /// Hash of the workload's sizes, since a workload file may have changed while its name stayed the same.
    sizes: String,
    report: ClusterReport,
}

/// The directory of a sweep's runs.
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// Opens the directory, creating it if necessary.
    ///
    /// # Errors
    /// The error names the directory.
    pub fn open(directory: &Path) -> Result<Store> {
        let directory = directory.join("runs");
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Store { directory })
    }

    /// Returns the report of a run, if the run is finished.
    pub fn read(&self, run: &Run) -> Option<ClusterReport> {
        let text = std::fs::read(self.path(run)).ok()?;
        // The run is repeated if its file cannot be read or belongs to another run.
        let stored: Stored = serde_json::from_slice(&text).ok()?;
        let key = key(run);
        let is_it = stored.schema == SCHEMA
            && stored.version == env!("CARGO_PKG_VERSION")
            && stored.transport == run.transport
            && stored.setup == key.0
            && stored.sizes == key.1;
        is_it.then_some(stored.report)
    }

    /// Writes the report of a run atomically.
    ///
    /// # Errors
    /// The error names the file.
    pub fn write(&self, run: &Run, report: &ClusterReport) -> Result<()> {
        let (setup, sizes) = key(run);
        let stored = Stored {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            transport: run.transport.clone(),
            setup,
            sizes,
            report: report.clone(),
        };
        Output::check(&self.path(run))?.write(&json(&stored)?)
    }

    /// Returns the name of the file for a run.
    pub fn file_name(run: &Run) -> String {
        let (setup, sizes) = key(run);
        let text = format!(
            "{SCHEMA} {} {} {sizes} {}",
            env!("CARGO_PKG_VERSION"),
            run.transport,
            Value::Object(setup)
        );
        format!("{}-{:016x}.json", run.transport, fnv(text.as_bytes()))
    }

    fn path(&self, run: &Run) -> PathBuf {
        self.directory.join(Store::file_name(run))
    }
}

/// Returns everything that determines the results of a run, and a hash of its message sizes.
fn key(run: &Run) -> (Map<String, Value>, String) {
    let workload = &run.plan.cluster.workload;
    let sizes: Vec<u8> =
        (0..=1_000u32).flat_map(|part| workload.quantile(f64::from(part) / 1e3).to_le_bytes()).collect();
    (knobs::setup(&run.plan, slice::from_ref(&run.transport)), format!("{:016x}", fnv(&sizes)))
}

/// Computes an FNV-1a hash, because file names must be the same on every machine and with every compiler.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
