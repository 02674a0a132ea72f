//! `homa sim steer`: steering policies under load, on hosts with several cores.

pub mod args;
pub mod router;
mod show;

use std::ops::ControlFlow;

use anyhow::{Result, anyhow};
use homa_report::outputs::Outputs;
use homa_sim::{BUILT_IN_COSTS, CoresConfig, Costs, SteerConfig, SteerLoad, SteerReport};
use homa_workload::Workload;
use serde::Serialize;

use self::args::SteerArgs;
use super::draft;
use super::run::SCHEMA;
use super::work;

/// The contents of `results.json`.
#[derive(Serialize)]
struct Results<'a> {
    schema: u32,
    hosts: usize,
    server_threads: Option<usize>,
    client_threads: Option<usize>,
    sender_threads: Option<usize>,
    poll_ns: u64,
    #[serde(rename = "batch_cap")]
    receive_batch: u32,
    wake_order: String,
    receive_cores: Option<usize>,
    rpcs: u64,
    duration_ns: Option<u64>,
    outstanding: Option<u32>,
    costs: &'a Costs,
    runs: &'a [SteerReport],
}

/// Runs all combinations, and prints and writes the results.
///
/// # Errors
/// A one-line description of what is wrong with the options or a file.
pub fn run(args: &SteerArgs) -> Result<()> {
    if let Some(name) = &args.print_costs {
        return print_costs(name);
    }
    let costs = args::costs(&args.costs).map_err(|error| anyhow!(error))?;
    let runs = plan(args, &costs)?;
    let Some(first) = runs.first().map(|run| run.cores.clone()) else {
        return Err(anyhow!(
            "there is nothing to run: give a policy, a workload, a number of cores and a load"
        ));
    };
    let outputs = Outputs::check(args.work.out.as_deref(), args.work.json.as_deref())?;
    let reports = work::all(work::jobs(args.work.jobs.map(usize::from)), &runs, |bar, run| {
        bar.set_message(format!("{} {} on {} cores", run.cores.policy, run.workload, run.cores.cores));
        run.run(&mut |_| ControlFlow::Continue(()))
    });
    let results = Results {
        schema: SCHEMA,
        hosts: args.hosts,
        server_threads: args.server_threads,
        client_threads: args.client_threads,
        sender_threads: args.sender_threads,
        poll_ns: first.poll_ns,
        receive_batch: first.receive_batch.packets(),
        wake_order: first.wake_order.to_string(),
        receive_cores: args.receive_cores,
        rpcs: args.rpcs,
        duration_ns: args.duration,
        outstanding: args.outstanding,
        costs: &first.costs,
        runs: &reports,
    };
    let summary = summary(args, &first);
    outputs
        .write(&format!("{summary}\n\n{}", show::text(&reports)), &results, || show::page(&summary, &reports))
}

fn print_costs(name: &str) -> Result<()> {
    let names = || BUILT_IN_COSTS.map(|(name, _)| name).join(" or ");
    let found = BUILT_IN_COSTS.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| anyhow!("--print-costs {name}: use {}", names()))?;
    homa_report::output::print(text.as_bytes())
}

/// Checks and returns the runs of all combinations.
fn plan(args: &SteerArgs, costs: &Costs) -> Result<Vec<SteerConfig>> {
    let workloads: Vec<Workload> = args
        .workloads
        .iter()
        .map(|name| draft::workload(name).map_err(|error| anyhow!(error)))
        .collect::<Result<_>>()?;
    let loads: Vec<SteerLoad> = match args.outstanding {
        Some(outstanding) => vec![SteerLoad::Outstanding(outstanding)],
        None => args.loads.iter().map(|&load| SteerLoad::Share(load)).collect(),
    };
    let mut runs = Vec::new();
    for workload in &workloads {
        for &cores in &args.cores {
            for &load in &loads {
                for policy in args::chosen(&args.policies) {
                    let cores = host(args, costs, cores, policy);
                    cores.check().map_err(|error| anyhow!("{error}"))?;
                    let run = SteerConfig {
                        hosts: args.hosts,
                        seed: args.seed,
                        rpcs: args.rpcs,
                        duration_ns: args.duration,
                        ..SteerConfig::new(workload.clone(), load, cores)
                    };
                    run.check().map_err(|error| anyhow!("{workload}: {error}"))?;
                    runs.push(run);
                }
            }
        }
    }
    Ok(runs)
}

/// Returns a host with these options.
fn host(args: &SteerArgs, costs: &Costs, cores: usize, policy: homa_steer::PolicyName) -> CoresConfig {
    let base = CoresConfig::x86(cores, policy);
    let mut costs = costs.clone();
    if let Some(exit_ns) = args.power_exit {
        costs.power.exit_ns = exit_ns;
        costs.power.idle_ns = args.power_idle.unwrap_or(costs.power.idle_ns);
    }
    CoresConfig {
        costs,
        receive_cores: args.receive_cores.unwrap_or(base.receive_cores),
        wake_order: args.wake_order,
        receive_batch: args.receive_batch.unwrap_or(base.receive_batch),
        poll_ns: args.poll.unwrap_or(base.poll_ns),
        server_threads: args.server_threads.unwrap_or(base.server_threads),
        client_threads: args.client_threads.unwrap_or(base.client_threads),
        sender_threads: args.sender_threads.unwrap_or(base.sender_threads),
        ..base
    }
}

fn summary(args: &SteerArgs, first: &CoresConfig) -> String {
    let threads = |asked: Option<usize>, default: usize| match asked {
        Some(count) => count.to_string(),
        None => format!("up to {default}"),
    };
    let base = CoresConfig::x86(homa_steer::MAX_CORES, first.policy);
    format!(
        "{} hosts with {} server, {} client and {} sender threads, {} first; polling {} us, batches of {} packets at most{}, costs {}; seed {}",
        args.hosts,
        threads(args.server_threads, base.server_threads),
        threads(args.client_threads, base.client_threads),
        threads(args.sender_threads, base.sender_threads),
        first.wake_order,
        first.poll_ns as f64 / 1e3,
        first.receive_batch.packets(),
        args.outstanding.map_or(String::new(), |count| format!(", {count} RPCs of each under way")),
        first.costs.name,
        args.seed
    )
}
