//! The hosts whose metrics a process serves.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use homa::Host;
use homa::metrics::prometheus::{MetricKind, Text};

use crate::cpu;

/// The hosts of a process that have not been dropped.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    hosts: Arc<Mutex<Vec<Weak<Host>>>>,
}

impl Hosts {
    /// Adds a host without keeping it alive.
    pub fn add(&self, host: &Arc<Host>) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|host| host.strong_count() > 0);
        hosts.push(Arc::downgrade(host));
    }

    /// Returns the metrics of the hosts, and the processor time of the process.
    pub fn text(&self) -> String {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hosts: Vec<Arc<Host>> = hosts.iter().filter_map(Weak::upgrade).collect();
        let hosts: Vec<&Host> = hosts.iter().map(Arc::as_ref).collect();
        homa::metrics::prometheus::text(&hosts) + &process()
    }
}

/// Returns the metrics of the process, under the conventional names of Prometheus client libraries.
fn process() -> String {
    let mut text = Text::new();
    let name = "process_cpu_seconds_total";
    text.family(name, MetricKind::Counter, "Processor time of this process, over all threads.");
    text.sample(name, &[], cpu::time_of(std::process::id()).as_secs_f64());
    text.into_string()
}
