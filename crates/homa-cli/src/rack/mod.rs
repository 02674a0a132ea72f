//! `homa rack`: hosts with links to one switch, on one machine, and the experiments that take such a rack.
//!
//! # Design
//!
//! `homa rack` (`homa-cli/rack`) makes hosts of network namespaces. They have no names: a process, the keeper
//! (`keeper`), holds them open, and they live as long as it and what runs in them. A crash leaves no device
//! behind, and an unprivileged user needs nothing else than root does. What others know of a rack is a file
//! and a lock (`state`): a lock that nobody holds belongs to a crash. What runs in a rack carries its tag in
//! the environment (`leftovers`), and goes by way of `rack exec` (`enter`), which moves itself into the host
//! and becomes the command.
//!
//! - **Only real packets cross the links** (`wire`): late cutting, early merging and late checksums are off
//!   for all, TCP included.
//! - **A link has its rate both ways.** The switch paces what goes to a host; a token bucket in the host
//!   paces what comes from it. On slow links its tokens are never enough for two full frames: what leaves at
//!   once arrives at once, and a switch of a few packets dropped of it what no wire would have made it drop.
//! - **A switch that has no processor of its own naps between looks** (`Spec::nap`), by a quarter of what a
//!   full frame takes. One that polls takes half of two processors from the hosts, to forward what takes a
//!   twentieth; and what it then measures is who gets a processor. One that is traced does not: a nap is a
//!   delay that no trace tells of.
//! - **Neighbours are known for ever.** A question for an address, lost in a full queue, would stall a host
//!   for a second.
//! - **A host of an experiment is one process** (`experiment/agent`), client and server on the same
//!   transport, which takes orders on its standard input and gives every single latency back. Over Homa one
//!   thread sends and answers by one socket (`experiment/one_thread`): two share an endpoint, and who leads
//!   takes packets for the other, which wakes both. Where threads, ports or endpoints are what varies, all
//!   hosts have threads that only answer: else the first point would be another architecture. TCP's threads
//!   share nothing. Loads begin at one moment of the clock that all processes share (`experiment/lab`).
//!   Nobody polls and a link waits to the microsecond: hosts share processors, and one that polls would keep
//!   others from running.
//! - **The simulator is held against the rack** (`experiment/simulated`): the same settings, switch and load,
//!   hosts that take as long for a packet as the shortest round trip alone says, and no processors. What
//!   differs is the processors, the kernel, or a mistake in one of the two.
//! - **What happens to the rack is part of the results.** A process in the switch's namespace tells of links
//!   that go down and up (`experiment/cables`), the keeper starts a switch again that ended, some times, and
//!   both are noted with the load they fell into. A host's process that ends, ends the experiment: its
//!   messages are gone.
//! - **Inside of a user namespace everybody looks like root**, so that who starts something there says where
//!   the racks have their directories (`HOMA_RACK_DIR`).
//! - **An experiment is a function** from a lab to findings. The rack, the progress bar, the table, JSON and
//!   the page are the same for all.

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
