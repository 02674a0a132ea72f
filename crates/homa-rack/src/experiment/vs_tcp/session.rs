//! The measurement of a cell: agents of all contenders in each host, and repetitions in which the contenders
//! take turns.

use std::time::Duration;

use anyhow::Result;
use homa_bench::engine::rtt::RttTable;
use homa_report::findings::{Findings, Section};
use serde_json::{Map, Value, json};

use super::{Contender, ContenderRuns, ContenderTotal, PORT_STEP, Plan, Repetition, config, sections, warn};
use crate::experiment::agents::Agents;
use crate::experiment::framing;
use crate::experiment::harness;
use crate::experiment::options::VsTcpOptions;
use crate::experiment::setup::{PORT, setup};
use crate::experiment::testbed::Testbed;

/// A measurement in progress.
pub struct Session<'a> {
    /// The plan. Changes take effect at the next repetition.
    pub plan: Plan<'a>,
    agents: Vec<Agents>,
    totals: Vec<ContenderTotal>,
    repetitions: Vec<Repetition>,
    unloaded: RttTable,
}

/// The results of a cell.
pub struct CellResults<'a> {
    /// The plan of the measurement.
    pub plan: Plan<'a>,
    /// The results of each contender over all repetitions, Homa first.
    pub runs: Vec<ContenderRuns>,
    /// The results of each contender in each repetition, in the order of `runs`.
    pub repetitions: Vec<Repetition>,
    pub(super) totals: Vec<ContenderTotal>,
    pub(super) unloaded: RttTable,
    /// Counters of the transports, by contender and host.
    hosts: Map<String, Value>,
    switch: Option<Value>,
}

impl<'a> Session<'a> {
    /// Starts the agents, and measures Homa's unloaded round trips for `unloaded_time`.
    ///
    /// # Errors
    /// The user pressed Ctrl-C, or a process or the rack has ended.
    pub fn start(testbed: &mut Testbed, plan: Plan<'a>, unloaded_time: Duration) -> Result<Session<'a>> {
        let options = &plan.cell.options;
        let contenders = Contender::all(&options.common.cc);
        let mut agents = start(testbed, options, &contenders)?;
        let step = format!("{}Homa: round trips without load, by size", plan.cell.prefix());
        testbed.progress.step(&step, unloaded_time);
        let unloaded = agents[0].unloaded(testbed, &[], unloaded_time.min(2 * plan.measured))?;
        agents.iter_mut().try_for_each(|agents| agents.open_all(testbed))?;
        let totals =
            contenders.into_iter().map(|contender| ContenderTotal::new(contender, &plan.workload)).collect();
        Ok(Session { plan, agents, totals, repetitions: Vec::new(), unloaded })
    }

    /// Returns the number of contenders, including Homa.
    pub fn contenders(&self) -> usize {
        self.agents.len()
    }

    /// Runs the same load on each contender in turn.
    ///
    /// # Errors
    /// The user pressed Ctrl-C, or a process or the rack has ended.
    pub fn repeat(&mut self, testbed: &mut Testbed, text: &str) -> Result<()> {
        let number = (self.repetitions.len() / self.agents.len()) as u32 + 1;
        let load = self.plan.load(number)?;
        let mut these: Vec<(usize, Repetition)> = Vec::new();
        for index in turns(number, self.agents.len()) {
            let (agents, total) = (&mut self.agents[index], &mut self.totals[index]);
            let text = format!("{}{}: {text}", self.plan.cell.prefix(), total.contender.title);
            for loaded in testbed.load(&mut [(agents, &load)], &text)? {
                these.push((index, total.take(loaded, (number, load.measured), &self.plan, &self.unloaded)?));
            }
        }
        these.sort_by_key(|(index, _)| *index);
        self.repetitions.extend(these.into_iter().map(|(_, one)| one));
        Ok(())
    }

    /// Returns the completed share of the due bytes of each contender, over all repetitions so far. Contenders
    /// to which nothing was due are left out.
    pub fn completed_fractions(&self) -> Vec<f64> {
        self.totals.iter().filter_map(|total| total.tally.counted.completed_fraction()).collect()
    }

    /// Discards the repetitions so far.
    pub fn restart(&mut self) {
        self.repetitions.clear();
        for total in &mut self.totals {
            *total = ContenderTotal::new(total.contender.clone(), &self.plan.workload);
        }
    }

    /// Ends the agents, and returns the results.
    ///
    /// # Errors
    /// A host's agent has exited.
    pub fn finish(self, testbed: &Testbed) -> Result<CellResults<'a>> {
        let Session { plan, mut agents, totals, repetitions, unloaded } = self;
        let switch = testbed.switch_stats();
        let hosts = agents
            .iter_mut()
            .zip(&totals)
            .map(|(agents, total)| Ok((total.contender.key.clone(), agents.metrics(testbed)?.into())));
        let hosts: Map<String, Value> = hosts.collect::<Result<_>>()?;
        drop(agents);
        let max_outstanding = plan.cell.options.messages.max_outstanding;
        let pace = framing::open(plan.gbps * f64::from(plan.spec.hosts), max_outstanding);
        let runs = totals.iter().map(|total| total.contender_runs(plan.workload.name(), pace)).collect();
        Ok(CellResults { plan, runs, repetitions, totals, unloaded, hosts, switch })
    }
}

impl CellResults<'_> {
    /// Returns the sections: slowdown by size, round trips of short messages, and conditions.
    pub fn sections(&self) -> Vec<Section> {
        vec![
            sections::slowdowns(&self.runs, &self.plan.workload),
            sections::shorts(&self.runs, &self.totals, &self.repetitions),
            sections::conditions(&self.runs, &self.totals),
        ]
    }

    /// Returns whether every RPC was answered exactly once and correctly.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|ran| ran.run.clean())
    }

    /// Returns warnings about the results.
    pub fn warnings(&self) -> Vec<String> {
        let mut findings = Findings::default();
        warn(&mut findings, &self.runs, &self.totals, self.plan.spec.packet_us());
        findings.warnings
    }

    /// Returns all results as JSON.
    pub fn json(&self, experiment: &str) -> Value {
        let CellResults { plan, runs, repetitions, unloaded, hosts, switch, .. } = self;
        let config = config(plan, repetitions.len() / runs.len().max(1));
        let mut json = harness::header(experiment, &plan.spec, &plan.cell.options.common, config, unloaded);
        json["runs"] = json!(runs);
        json["repetitions"] = json!(repetitions);
        json["hosts"] = json!(hosts);
        json["switch"] = json!(switch);
        json
    }
}

/// Starts the agents of all contenders. Each TCP variant has its own ports.
fn start(testbed: &Testbed, options: &VsTcpOptions, contenders: &[Contender]) -> Result<Vec<Agents>> {
    let start = |(index, contender): (u16, &Contender)| {
        let mut setup = setup(testbed.spec(), &options.common, &options.messages, contender.protocol);
        if contender.congestion.is_some() {
            setup.congestion = contender.congestion;
            setup.udp_port = PORT + (index - 1) * PORT_STEP;
        }
        Agents::start(testbed, &setup)
    };
    (0..).zip(contenders).map(start).collect()
}

/// Returns the order of the contenders in a repetition. Every second repetition reverses the order, so that
/// no contender always follows the same other contender.
fn turns(repetition: u32, contenders: usize) -> Vec<usize> {
    let forward = 0..contenders;
    if repetition % 2 == 1 { forward.collect() } else { forward.rev().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_repetition_goes_the_other_way_round() {
        assert_eq!(turns(1, 3), [0, 1, 2]);
        assert_eq!(turns(2, 3), [2, 1, 0]);
        assert_eq!(turns(3, 2), [0, 1]);
    }
}
