//! `homa rack`: hosts with links to one switch, on one machine, and the experiments that take such a rack.

pub mod args;
mod disturb;
mod enter;
pub mod experiment;
mod keeper;
mod leftovers;
mod spec;
mod state;
mod status;
mod switch;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

use args::{RackArgs, RackCommand, UpArgs};
use keeper::Keeper;
use state::Directory;

/// Runs a subcommand. False if an experiment ran and not every RPC was answered right.
pub fn run(args: &RackArgs) -> Result<bool> {
    match &args.command {
        RackCommand::Up(args) => up(args)?,
        RackCommand::Status(args) => status::run(args)?,
        RackCommand::Exec(args) => enter::run(args)?,
        RackCommand::Link(args) => status::link(args)?,
        RackCommand::Down(args) => status::down(args)?,
        RackCommand::Keep(args) => keeper::run(args)?,
        RackCommand::Run(args) => return experiment::run(args),
        RackCommand::Agent => experiment::agent::run()?,
        RackCommand::Disturb(what) => disturb::run(what)?,
    }
    Ok(true)
}

fn up(args: &UpArgs) -> Result<()> {
    let interrupted = interruption()?;
    let spec = args.build.spec(&args.name);
    let keeper = Keeper::start(&spec, args.foreground)?;
    let state = Directory::of(&args.name).up()?;
    if interrupted.load(Ordering::Relaxed) {
        drop(keeper);
        return status::end(&args.name);
    }
    println!(
        "rack {}: h1 (10.146.0.1) to h{} at {} Mbit/s; `homa rack exec h1 CMD` runs something there",
        args.name,
        spec.hosts,
        spec.rate_mbps()
    );
    if args.foreground {
        while !interrupted.load(Ordering::Relaxed) && Directory::of(&args.name).is_held() {
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(keeper);
        leftovers::end(&state);
    }
    Ok(())
}

/// Set by SIGINT and SIGTERM from here on, so that whoever works can clear away before it ends.
pub fn interruption() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot wait for signals")?;
    }
    Ok(flag)
}
