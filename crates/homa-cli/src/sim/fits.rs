//! Checks before a run whether this machine can execute it.

use homa_sim::{ClusterConfig, Demand};

/// Maximum number of events. More would take days, because a processor handles one to two million per second.
const MAX_EVENTS: f64 = 1e11;
/// Number of events above which the duration of a run is announced; a pipe shows no progress bar.
const LONG_EVENTS: f64 = 1e8;
/// Number of events per second and processor, used to estimate the duration.
const EVENTS_PER_S: f64 = 1.2e6;

/// Checks that this machine can execute `at_once` runs of this kind at the same time.
///
/// # Errors
/// The error says what the runs need, what is available, and which changes would reduce the need.
pub fn check(cluster: &ClusterConfig, at_once: usize) -> Result<(), String> {
    refused(cluster, at_once, available_bytes())
}

/// Announces the estimated time of a long run on standard error.
pub fn announce(cluster: &ClusterConfig) {
    let demand = cluster.demand();
    if demand.events > LONG_EVENTS {
        eprintln!("{}", announcement(cluster.hosts, &demand));
    }
}

fn announcement(hosts: usize, demand: &Demand) -> String {
    let minutes = demand.events / EVENTS_PER_S / 60.0;
    format!(
        "{hosts} hosts: some {:.0} million events and {} of memory for each transport, about {minutes:.0} min each",
        demand.events / 1e6,
        gigabytes(demand.memory_bytes)
    )
}

/// Returns the error of [`check`], if any. `available` is the number of free bytes of memory, or `None` if it
/// is unknown.
fn refused(cluster: &ClusterConfig, at_once: usize, available: Option<f64>) -> Result<(), String> {
    let demand = cluster.demand();
    let plain = ClusterConfig { acquaint: false, ..cluster.clone() }.demand();
    let helps = plain.memory_bytes * 2.0 < demand.memory_bytes || plain.events * 2.0 < demand.events;
    let acquaint = if helps { ", or `acquaint no`" } else { "" };
    let hosts = cluster.hosts;
    let memory_bytes = demand.memory_bytes * at_once as f64;
    if let Some(available) = available.filter(|available| memory_bytes > *available) {
        return Err(format!(
            "hosts: {hosts} take about {} of memory (runs at a time: {at_once}), and {} are available: use fewer hosts{acquaint}",
            gigabytes(memory_bytes),
            gigabytes(available)
        ));
    }
    if demand.events > MAX_EVENTS {
        return Err(format!(
            "hosts: {hosts} with this load and duration take about {:.1e} events, which is days (at most {MAX_EVENTS:.0e}): use \
             fewer hosts, a shorter duration{acquaint}",
            demand.events
        ));
    }
    Ok(())
}

fn gigabytes(bytes: f64) -> String {
    if bytes < 1e11 { format!("{:.1} GB", bytes / 1e9) } else { format!("{:.0} GB", bytes / 1e9) }
}

/// Returns the memory available to processes without swapping, or `None` if the system does not report it.
fn available_bytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kib| kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use homa_workload::Workload;

    use super::*;

    fn cluster(hosts: usize, acquaint: bool) -> ClusterConfig {
        let cluster = ClusterConfig::sigcomm18(Workload::named("w4").unwrap(), 0.8, 1);
        ClusterConfig { hosts, acquaint, ..cluster }
    }

    #[test]
    fn memory_counts_for_all_runs_at_a_time() {
        let fits = |at_once| refused(&cluster(1_024, true), at_once, Some(4e9));
        assert_eq!(fits(1), Ok(()));
        let error = fits(4).unwrap_err();
        assert!(error.contains("runs at a time: 4") && error.contains("4.0 GB are available"), "{error}");
        assert!(error.contains("`acquaint no`"), "{error}");
    }

    #[test]
    fn days_of_work_are_refused_where_memory_is_unknown() {
        let error = refused(&cluster(1 << 20, true), 1, None).unwrap_err();
        assert!(error.contains("events") && error.contains("`acquaint no`"), "{error}");
        let error = refused(&cluster(1 << 20, false), 1, None).unwrap_err();
        assert!(error.contains("events") && !error.contains("acquaint"), "{error}");
        assert_eq!(refused(&cluster(144, true), 1, None), Ok(()));
    }
}
