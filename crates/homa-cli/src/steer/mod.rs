//! `homa steer`: which core processes what a device receives, by a program that the device runs on each frame.

pub mod args;
mod show;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use homa_driver::steer::{self, Filter, Hold, SteerConfig};
use homa_driver::xdp::XdpMode;
use homa_steer::Settings;
use serde_json::json;

use crate::output::{json, print};
use crate::rack::interruption;
use args::{AttachArgs, DetachArgs, FilterChoice, StatusArgs, SteerArgs, SteerCommand};

/// How often a process that holds a program looks whether it is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Does what the command line says.
pub fn run(args: &SteerArgs) -> Result<()> {
    match &args.command {
        SteerCommand::Attach(args) => attach(args),
        SteerCommand::Status(args) => status(args),
        SteerCommand::Detach(args) => detach(args),
    }
}

/// A number that nobody can foresee.
fn unforeseen() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

fn config(args: &AttachArgs) -> SteerConfig {
    let has = |choice| args.filter.contains(&choice);
    SteerConfig {
        policy: args.policy,
        cores: args.cpus.clone(),
        settings: Settings { levels: args.levels, hash_seed: unforeseen(), ..Settings::default() },
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
    let hold = if args.until_exit { Hold::Process } else { Hold::Device };
    let interrupted = if args.until_exit { Some(interruption()?) } else { None };
    let steering = steer::attach(&args.devices, &config(args), hold)?;
    for device in args.devices.iter().filter(|device| steer::kernel_steers(device)) {
        eprintln!(
            "homa: warning: the kernel steers packets of {device}, too (rps_cpus), and may move them again: \
             `echo 0 > /sys/class/net/{device}/queues/rx-0/rps_cpus` ends that for its first queue"
        );
    }
    if args.json {
        print(&json(&json!({ "attached": args.devices }))?)?;
    } else {
        let what = show::what(args.policy, &args.cpus.to_string(), steering.is_native());
        print(format!("{}: {what}\n", args.devices.join(", ")).as_bytes())?;
    }
    let Some(interrupted) = interrupted else { return Ok(()) };
    let mut offline = None;
    while !interrupted.load(Ordering::Relaxed) {
        let before = std::mem::replace(&mut offline, steering.offline());
        if let Some(core) = offline.filter(|_| offline != before) {
            eprintln!("homa: warning: core {core} was switched off: another one does its work");
        }
        if let Some(device) = steering.lost() {
            bail!("{device} is steered no more: the device is gone, or somebody took the program off");
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

fn status(args: &StatusArgs) -> Result<()> {
    let devices = if args.devices.is_empty() { steer::steered()? } else { args.devices.clone() };
    let mut all = Vec::new();
    for device in devices {
        let cost = args.cost.map(|ns| steer::cost(&device, Duration::from_nanos(ns))).transpose()?;
        all.push((steer::status(&device)?, cost));
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
        steer::detach(device)?;
    }
    if args.json {
        return print(&json(&json!({ "detached": args.devices }))?);
    }
    print(format!("{}: not steered any more\n", args.devices.join(", ")).as_bytes())
}
