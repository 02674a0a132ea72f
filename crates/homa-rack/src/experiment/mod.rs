//! The published experiments, on a rack.
//!
//! An experiment is a module with options in [`options`] and a function from a `testbed::Testbed` to
//! [`Findings`]. All experiments share the code that calls this function.

pub mod agent;
mod agent_protocol;
mod agents;
mod basic;
mod by_size;
mod cables;
mod causes;
pub mod comparison;
mod config;
mod findings;
mod framing;
mod harness;
mod incast;
mod links;
mod mtu;
mod one_thread;
pub mod options;
mod published;
mod queue;
mod rps;
mod settings;
mod setup;
mod simulation;
mod starve;
mod steady;
mod sweep;
mod testbed;
mod threads;
mod vs_tcp;

use std::time::Duration;

use anyhow::{Error, Result, ensure};
use homa_report::findings::Findings;

use causes::planted::PlantedCause;
pub use config::list as list_of_settings;
use options::{CommonOptions, Experiment, MessageOptions};
use testbed::Testbed;

/// Checks the options before a rack is built.
///
/// # Errors
/// The options are invalid.
pub fn check(experiment: &Experiment) -> Result<()> {
    match experiment {
        Experiment::VsTcp(options) => {
            // The rack is built for the first cell.
            let first = &vs_tcp::cells(options)?[0].options;
            return check_common(&first.common, &first.messages);
        }
        Experiment::Config(options) => drop(config::SettingValues::read(options)?),
        Experiment::Mtu(options) => {
            ensure!(options.common.name.is_none(), "mtu builds a rack for each MTU: leave out --name");
        }
        Experiment::Causes(options) => {
            causes::check(options)?;
            return check_common(&options.common, &causes::messages(PlantedCause::None));
        }
        _ => (),
    }
    match experiment.common() {
        Some((common, messages)) => check_common(common, messages),
        None => Ok(()),
    }
}

fn check_common(common: &CommonOptions, messages: &MessageOptions) -> Result<()> {
    harness::workload_of(messages)?;
    common.set.iter().try_for_each(|setting| setting.change().check(common.driver).map_err(Error::msg))
}

impl Experiment {
    /// Returns the options that most experiments share, or `None` for experiments that have other options.
    fn common(&self) -> Option<(&CommonOptions, &MessageOptions)> {
        match self {
            Experiment::VsTcp(options) => Some((&options.common, &options.messages)),
            Experiment::Basic(options) => Some((&options.common, &options.messages)),
            Experiment::Incast(options) => Some((&options.common, &options.messages)),
            Experiment::Load(options) => Some((&options.common, &options.messages)),
            Experiment::MaxLoad(options) => Some((&options.common, &options.messages)),
            Experiment::Both(options) => Some((&options.common, &options.messages)),
            Experiment::Config(options) => Some((&options.common, &options.messages)),
            Experiment::Mtu(options) => Some((&options.common, &options.messages)),
            Experiment::ClientThreads(options) => Some((&options.common, &options.messages)),
            Experiment::ServerPorts(options) => Some((&options.common, &options.messages)),
            Experiment::Starve(options) => Some((&options.common, &options.messages)),
            Experiment::Causes(_) | Experiment::Rps(_) => None,
        }
    }
}

/// Runs an experiment. Its findings are clean if every RPC was answered exactly once and correctly.
///
/// # Errors
/// The options are invalid, the user pressed Ctrl-C, or a process or the rack has ended.
pub fn run(experiment: &Experiment) -> Result<Findings> {
    check(experiment)?;
    match experiment {
        Experiment::VsTcp(options) => {
            let cells = vs_tcp::cells(options)?;
            let turns = (1 + options.common.cc.len()) * options.common.repetitions as usize;
            let time = sweep::time(&options.common, turns) * u32::try_from(cells.len())?;
            on_testbed(&cells[0].options.common, time, |testbed| vs_tcp::run(testbed, &cells))
        }
        Experiment::Basic(options) => {
            let time = sweep::time(&options.common, 12);
            on_testbed(&options.common, time, |testbed| basic::run(testbed, options))
        }
        Experiment::Incast(options) => {
            let time = sweep::time(&options.common, 2 * options.senders.len());
            on_testbed(&options.common, time, |testbed| incast::run(testbed, options))
        }
        Experiment::Load(options) => {
            let time = sweep::time(&options.common, 2 * options.loads.len());
            on_testbed(&options.common, time, |testbed| sweep::load(testbed, options))
        }
        Experiment::MaxLoad(options) => {
            let time = sweep::time(&options.common, 2 * options.loads.len() + 2);
            on_testbed(&options.common, time, |testbed| sweep::max_load(testbed, options))
        }
        Experiment::Both(options) => {
            let time = sweep::time(&options.common, options.shares.len());
            on_testbed(&options.common, time, |testbed| sweep::both(testbed, options))
        }
        Experiment::Config(options) => {
            let varied = config::SettingValues::read(options)?;
            let time = sweep::time(&options.common, options.values.len());
            on_testbed(&options.common, time, |testbed| config::run(testbed, options, &varied))
        }
        Experiment::Mtu(options) => {
            // Unloaded round trips are measured for each MTU as well.
            let time = sweep::time(&options.common, 4) * u32::try_from(options.mtus.len())?;
            on_testbed(&options.common, time, |testbed| mtu::run(testbed, options))
        }
        Experiment::ClientThreads(options) => {
            let time = sweep::time(&options.common, 2 * options.threads.len() * options.receivers.len());
            on_testbed(&options.common, time, |testbed| threads::client_threads(testbed, options))
        }
        Experiment::ServerPorts(options) => {
            let time = sweep::time(&options.common, 2 * options.ports.len() * options.receivers.len());
            on_testbed(&options.common, time, |testbed| threads::server_ports(testbed, options))
        }
        Experiment::Starve(options) => {
            let time = sweep::time(&options.common, options.shares.len());
            on_testbed(&options.common, time, |testbed| starve::run(testbed, options))
        }
        Experiment::Causes(options) => {
            let turns = options.causes.len() * options.common.repetitions as usize;
            let time = sweep::time(&options.common, turns);
            // This experiment sets the trace directories of its racks itself.
            let common = CommonOptions { trace: None, ..options.common.clone() };
            on_testbed(&common, time, |testbed| causes::run(testbed, options))
        }
        Experiment::Rps(options) => rps::run(options),
    }
}

/// Opens the testbed, runs the experiment on it, and adds the events of the rack to the findings.
fn on_testbed(
    common: &CommonOptions,
    total: Duration,
    experiment: impl FnOnce(&mut Testbed) -> Result<Findings>,
) -> Result<Findings> {
    let mut testbed = Testbed::open(common, total)?;
    let mut findings = experiment(&mut testbed)?;
    testbed.report(&mut findings);
    Ok(findings)
}
