//! `homa steer`: chooses the core that processes each received packet, using a program that the device runs
//! for each frame.

pub mod args;
mod show;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use homa_driver::xdp::XdpMode;
use homa_rack::interruption;
use homa_report::output::{json, print};
use homa_steer::{Core, Settings};
use homa_steer_xdp::{AttachLifetime, Filter, SteerConfig, Steering};
use serde_json::json;

use args::{AttachArgs, DetachArgs, FilterChoice, StatusArgs, SteerArgs, SteerCommand};

/// Interval at which a process that has attached a program checks whether the program is still attached.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the subcommand.
pub fn run(args: &SteerArgs) -> Result<()> {
    match &args.command {
        SteerCommand::Attach(args) => attach(args),
        SteerCommand::Status(args) => status(args),
        SteerCommand::Detach(args) => detach(args),
    }
}

/// Returns an unpredictable number.
fn random_u32() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

fn config(args: &AttachArgs) -> SteerConfig {
    let has = |choice| args.filter.contains(&choice);
    SteerConfig {
        policy: args.policy,
        cores: args.cpus.clone(),
        settings: Settings { levels: args.levels, hash_seed: random_u32(), ..Settings::default() },
        filter: Filter {
            homa: has(FilterChoice::Homa),
            tcp: has(FilterChoice::Tcp),
            udp: has(FilterChoice::Udp),
            all: has(FilterChoice::All),
        },
        homa_port: Some(args.homa_port),
        mode: if args.native { XdpMode::Native } else { XdpMode::Generic },
        queue_packets: args.queue,
        ..SteerConfig::default()
    }
}

fn attach(args: &AttachArgs) -> Result<()> {
    let hold = if args.until_exit { AttachLifetime::Process } else { AttachLifetime::Device };
    let interrupted = if args.until_exit { Some(interruption()?) } else { None };
    let steering = homa_steer_xdp::attach(&args.devices, &config(args), hold)?;
    for device in args.devices.iter().filter(|device| homa_steer_xdp::kernel_steers(device)) {
        warn(&format!(
            "the kernel steers packets of {device}, too (rps_cpus), and may move them again: \
             `echo 0 > /sys/class/net/{device}/queues/rx-0/rps_cpus` ends that for its first queue"
        ));
    }
    if let Err(error) = report(args, &steering) {
        // After an error, no program may remain attached: the user would have to detach it.
        steering.detach().with_context(|| format!("{error:#}; the attached programs remain"))?;
        return Err(error);
    }
    match interrupted {
        Some(interrupted) => run_until_interrupted(&steering, &interrupted),
        None => Ok(()),
    }
}

/// Prints what has been attached.
fn report(args: &AttachArgs, steering: &Steering) -> Result<()> {
    if args.json {
        return print(&json(&json!({ "attached": args.devices }))?);
    }
    let what = show::describe(args.policy, &args.cpus.to_string(), steering.is_native());
    print(format!("{}: {what}\n", args.devices.join(", ")).as_bytes())
}

/// Waits until interrupted, and prints a warning if a core goes offline.
fn run_until_interrupted(steering: &Steering, interrupted: &AtomicBool) -> Result<()> {
    let mut offline = Vec::new();
    while !interrupted.load(Ordering::Relaxed) {
        let before = std::mem::replace(&mut offline, steering.offline());
        if let Some(text) = switched_off(&before, &offline) {
            warn(&text);
        }
        if let Some(device) = steering.lost() {
            bail!(
                "{device} is no longer steered: the device is gone, or another process removed the program"
            );
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Returns a warning if cores have gone offline between the two checks.
fn switched_off(before: &[Core], now: &[Core]) -> Option<String> {
    let new: Vec<String> = now.iter().filter(|core| !before.contains(core)).map(Core::to_string).collect();
    match new.as_slice() {
        [] => None,
        [core] => Some(format!("core {core} was switched off: another one does its work")),
        _ => Some(format!("cores {} were switched off: others do their work", new.join(", "))),
    }
}

/// Prints a warning. It is not an error if standard error is closed.
fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "homa: warning: {text}");
}

fn status(args: &StatusArgs) -> Result<()> {
    let devices = if args.devices.is_empty() { homa_steer_xdp::steered()? } else { args.devices.clone() };
    let mut all = Vec::new();
    for device in devices {
        let cost = args.cost.map(|ns| homa_steer_xdp::cost(&device, Duration::from_nanos(ns))).transpose()?;
        all.push((homa_steer_xdp::status(&device)?, cost));
    }
    if args.json {
        return print(&json(&all.iter().map(show::as_json).collect::<Vec<_>>())?);
    }
    if all.is_empty() {
        return print(b"no device is steered\n");
    }
    print(all.iter().map(show::table).collect::<Vec<_>>().join("\n").as_bytes())
}

fn detach(args: &DetachArgs) -> Result<()> {
    for device in &args.devices {
        homa_steer_xdp::detach(device)?;
    }
    if args.json {
        return print(&json(&json!({ "detached": args.devices }))?);
    }
    print(format!("{}: not steered any more\n", args.devices.join(", ")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_that_is_switched_off_is_named_once() {
        assert_eq!(switched_off(&[], &[]), None);
        assert_eq!(switched_off(&[1, 3], &[3]), None, "one is back");
        let one = switched_off(&[3], &[1, 3]).unwrap();
        assert_eq!(one, "core 1 was switched off: another one does its work");
        let more = switched_off(&[3], &[1, 2, 3, 9]).unwrap();
        assert!(more.starts_with("cores 1, 2, 9 were switched off"), "{more}");
    }
}
