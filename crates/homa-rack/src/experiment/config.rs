//! `config`: varies a setting over several values, and cites published results for the setting.

use std::fmt::Write;

use anyhow::{Error, Result, ensure};
use homa_bench::protocol::Protocol;
use homa_report::findings::Findings;
use serde_json::{Value, json};

use super::agent::homa_config;
use super::findings::cite;
use super::harness::Harness;
use super::options::{CommonOptions, ConfigOptions};
use super::published;
use super::settings::{Change, MISSING, OWN};
use super::sweep::{NamedScore, chart_of_values, finish};
use super::testbed::Testbed;
use homa_settings::FIELDS;

/// A setting and its values.
pub struct SettingValues {
    name: String,
    values: Vec<String>,
    changes: Vec<Change>,
}

impl SettingValues {
    /// Parses the setting and its values from the options.
    ///
    /// # Errors
    /// The setting or a value does not exist, or is not available with the chosen driver or rack.
    pub fn read(options: &ConfigOptions) -> Result<SettingValues> {
        let read = |value: &String| {
            let change = Change::read(&options.setting, value).map_err(Error::msg)?;
            change.check(options.common.driver).map_err(Error::msg)?;
            ensure!(
                options.common.name.is_none() || change.rack(&options.common.build).is_none(),
                "{}: each value needs a rack that is built for it: leave out --name",
                options.setting
            );
            Ok(change)
        };
        let changes = options.values.iter().map(read).collect::<Result<_>>()?;
        Ok(SettingValues { name: options.setting.clone(), values: options.values.clone(), changes })
    }
}

/// Runs the experiment.
pub fn run(testbed: &mut Testbed, options: &ConfigOptions, varied: &SettingValues) -> Result<Findings> {
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    harness.measure_unloaded()?;
    let mut scores: Vec<NamedScore> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    for (index, (value, change)) in varied.values.iter().zip(&varied.changes).enumerate() {
        let name = format!("{} = {value}", varied.name);
        check(&harness, &options.common, options, change).map_err(|error| error.context(name.clone()))?;
        if let Some(build) = change.rack(&options.common.build) {
            harness.testbed.rebuild(&build)?;
        }
        let mut agents = harness.agents(Protocol::Homa, |setup| {
            change.apply(setup);
            if change.divides_hosts() {
                setup.threads.have_servers();
            }
        })?;
        let plan = harness.on_all_hosts(harness.rate_of_load(options.offered.load), 1);
        let score = harness.run(&mut agents, &plan, &name)?.0;
        results.push(json!({
            "setting": varied.name, "value": value, "answering_threads": agents.answering_threads, "score": score
        }));
        scores.push((name, index as f64, score));
    }
    let chart = |title, value| chart_of_values(&varied.name, title, &varied.values, &scores, value);
    let charts = vec![
        chart("P99 of short messages, us", |score| score.short.p99_us),
        chart("Median of short messages, us", |score| score.short.p50_us),
        chart("Mean slowdown", |score| score.slowdown_mean),
    ];
    let title = format!("Homa by {}", varied.name);
    let mut findings = finish(&harness, "config", &title, &scores, charts, results.into());
    cite(&mut findings, &varied.name);
    Ok(findings)
}

/// Checks that a host accepts the change. Otherwise the error would be reported only after processes have
/// been started.
fn check(
    harness: &Harness<'_>,
    common: &CommonOptions,
    options: &ConfigOptions,
    change: &Change,
) -> Result<()> {
    let mut setup = super::setup::setup(harness.testbed.spec(), common, &options.messages, Protocol::Homa);
    change.apply(&mut setup);
    homa_config(&setup, (setup.address, setup.udp_port).into(), harness.workload.max_bytes()).map(drop)
}

/// Lists all settings, as text for a terminal.
pub fn list() -> String {
    let mut out =
        String::from("Settings of hosts, drivers and the switch, and combinations of several fields:\n");
    for (name, what) in OWN {
        let _ = writeln!(out, "  {name}: {what}");
        cited(&mut out, name);
    }
    out.push_str("Not available:\n");
    for (name, why) in MISSING {
        let _ = writeln!(out, "  {name}: {why}");
        cited(&mut out, name);
    }
    out.push_str("Fields of the protocol's configuration (for units see the docs of homa_proto::Config):\n");
    for name in FIELDS {
        let _ = writeln!(out, "  {name}");
        cited(&mut out, name);
    }
    out
}

fn cited(out: &mut String, name: &str) {
    for line in published::lines(name) {
        let _ = writeln!(out, "      {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_setting_and_what_was_found_beside_it() {
        let list = list();
        for name in super::super::settings::names() {
            assert!(list.lines().any(|line| line.trim_start().split(':').next() == Some(name)), "{name}");
        }
        let (_, after) = list.split_once("  defer_min_bytes\n").expect("a field");
        assert!(after.trim_start().starts_with("Linux Homa's notes, January 2021"), "{after}");
    }
}
