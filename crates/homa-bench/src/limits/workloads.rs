//! The maximum rates of workloads, measured as `homa bench --loopback --workload W --find-max` does by
//! default.

use std::time::Duration;

use anyhow::{Context, Result};
use homa_report::progress::Progress;

use super::comparisons::{BARE, HOMA, TCP};
use super::results::{Metric, Row};
use crate::compare::results::{Results, Run};
use crate::compare::{Load, Options, Plan, measure, total_time};
use crate::protocol::Protocol;
use crate::workloads::{self, Truncation};

/// Metrics for which raw packets are measured too. Raw packets have no flow control: in the longer workloads,
/// most messages would lose packets.
const BARE_TOO: [Metric; 3] = [Metric::MaxW1, Metric::MaxW2, Metric::MaxW3];

/// Minimum measurement time per number of open RPCs that the bench accepts.
const SHORTEST: Duration = Duration::from_millis(10);

/// The search for the maximum rate of a workload.
pub struct Maximum {
    /// The metric of the result.
    pub metric: Metric,
    plan: Plan,
}

/// Returns the name of a protocol's row, or `None` if the protocol is not compared here.
fn row_of(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Homa => Some(HOMA),
        Protocol::Tcp => Some(TCP),
        Protocol::Udp => Some(BARE),
        Protocol::Grpc | Protocol::Quic => None,
    }
}

impl Maximum {
    /// Plans the search for the protocols that have one of `rows`, and measures each number of open RPCs for
    /// `slice`. Returns `None` if no protocol has a row.
    ///
    /// # Errors
    /// The bench refuses the plan.
    pub fn new(metric: Metric, rows: &[Row], slice: Duration) -> Result<Option<Maximum>> {
        let workload = metric.workload().with_context(|| format!("{} has no workload", metric.name()))?;
        let has_row = |name: &str| rows.iter().any(|row| row.name == name);
        let protocols = [Protocol::Homa, Protocol::Tcp, Protocol::Udp].into_iter().filter(|&protocol| {
            row_of(protocol).is_some_and(has_row) && (protocol != Protocol::Udp || BARE_TOO.contains(&metric))
        });
        let protocols: Vec<Protocol> = protocols.collect();
        if protocols.is_empty() {
            return Ok(None);
        }
        let workload = workloads::named(workload, Truncation::default())?;
        let (load, duration) = (Load::FindMax, slice.max(SHORTEST));
        let options = Options { protocols, load, duration, ..Options::new(workload) };
        Ok(Some(Maximum { metric, plan: Plan::new(options)? }))
    }

    /// Estimates the duration of a repetition.
    pub fn time(&self) -> Duration {
        total_time(&self.plan)
    }

    /// Measures a repetition and adds its results to the rows.
    ///
    /// # Errors
    /// The bench cannot run.
    pub fn repetition(&self, rows: &mut [Row], progress: Progress) -> Result<()> {
        note(self.metric, &measure(&self.plan, progress)?, rows);
        Ok(())
    }
}

fn note(metric: Metric, results: &Results, rows: &mut [Row]) {
    for row in rows {
        let is_row = |protocol: Protocol| row_of(protocol) == Some(&row.name);
        let max = results.max.iter().find(|max| is_row(max.protocol)).map(|max| max.gbps);
        let run = results.runs.iter().find(|run| is_row(run.protocol));
        row.add(metric, max);
        if let Some(Run { errors, lost, duplicated, first_error, .. }) = run {
            row.errors += errors + lost + duplicated;
            if row.first_error.is_none() {
                row.first_error.clone_from(first_error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{results, samples};

    fn rows(names: &[&str]) -> Vec<Row> {
        names.iter().map(|name| Row { name: (*name).to_owned(), ..Row::default() }).collect()
    }

    #[test]
    fn what_is_measured_is_the_bench_with_its_defaults() {
        let slice = Duration::from_millis(1_600);
        let of = |metric, names: &[&str]| Maximum::new(metric, &rows(names), slice).expect("valid");
        let all = [BARE, HOMA, "homa/xdp", TCP, "grpc"];
        let plan = of(Metric::MaxW2, &all).expect("measured").plan;
        assert_eq!((plan.workload.name(), plan.slice * plan.slices), ("w2", slice));
        assert_eq!(plan.protocols, [Protocol::Homa, Protocol::Tcp, Protocol::Udp]);
        assert!(plan.options.load == Load::FindMax && plan.client_ports == 4);
        let plan = of(Metric::MaxW4, &all).expect("measured").plan;
        assert_eq!(plan.protocols, [Protocol::Homa, Protocol::Tcp]);
        assert!(of(Metric::MaxW4, &[BARE, "homa/xdp"]).is_none());
        assert!(Maximum::new(Metric::Bulk, &rows(&all), slice).is_err());
        // A slice below the minimum of the bench is extended.
        assert!(Maximum::new(Metric::MaxW1, &rows(&all), Duration::ZERO).is_ok());
    }

    #[test]
    fn each_protocol_s_maximum_goes_into_its_row_with_what_went_wrong() {
        let mut results = samples::both();
        let maximum = |protocol, gbps| results::Maximum { protocol, gbps, outstanding: 64 };
        results.max = vec![maximum(Protocol::Homa, 1.5), maximum(Protocol::Tcp, 2.5)];
        results.runs[1].errors = 2;
        results.runs[1].lost = 1;
        results.runs[1].duplicated = 4;
        results.runs[1].first_error = Some("first".to_owned());
        let mut rows = rows(&[HOMA, "homa/xdp", TCP]);
        note(Metric::MaxW5, &results, &mut rows);
        let max = |row: &Row| row.get(Metric::MaxW5).map(|summary| summary.median);
        assert_eq!(rows.iter().map(max).collect::<Vec<_>>(), [Some(1.5), None, Some(2.5)]);
        assert_eq!(rows.iter().map(|row| row.errors).collect::<Vec<_>>(), [0, 0, 7]);
        assert_eq!(rows[2].first_error.as_deref(), Some("first"));
    }
}
