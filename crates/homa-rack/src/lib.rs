//! A rack on one machine: hosts with links to one switch, and the experiments that run on it.
//!
//! - [`spec`]: what a rack is built of. [`up`] builds one, [`status`] describes, changes and ends it, and
//!   [`enter`] runs commands in its hosts.
//! - [`experiment`]: experiments with their options ([`experiment::options`]); their results are findings.
//! - [`experiment::comparison`]: Homa and TCP on a rack that this machine carries, in a given time.
//!
//! The library starts the program that it is part of again: in hosts, to hold namespaces, and to disturb. Such a
//! program has a command [`RACK_COMMAND`] with the subcommands [`enter::COMMAND`], [`daemon::CHILD_COMMAND`],
//! [`experiment::agent::CHILD_COMMAND`] and [`disturb::CHILD_COMMAND`], each of which calls the function of its
//! module, and the command `switch run` (`homa-cli/switch`).
//!
//! # Design
//!
//! A host is a network namespace. Namespaces have no names: a process, the namespace daemon
//! (`daemon`), holds them open, and they live as long as it and what runs in them. A crash leaves no device
//! behind, and an unprivileged user needs nothing else than root does. What others know of a rack is a file
//! and a lock (`state`): a lock that nobody holds belongs to a crash. What runs in a rack carries its tag in
//! the environment (`leftovers`), and goes by way of `homa rack exec` (`enter`), which moves itself into the host
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
//!   share nothing. Loads begin at one moment of the clock that all processes share (`experiment/testbed`).
//!   Nobody polls and a link waits to the microsecond: hosts share processors, and one that polls would keep
//!   others from running.
//! - **The simulator is held against the rack** (`experiment/simulated`): the same settings, switch and load,
//!   hosts that take as long for a packet as the shortest round trip alone says, and no processors. What
//!   differs is the processors, the kernel, or a mistake in one of the two.
//! - **What happens to the rack is part of the results.** A process in the switch's namespace tells of links
//!   that go down and up (`experiment/cables`), the daemon starts a switch again that ended, some times, and
//!   both are noted with the load they fell into. A host's process that ends, ends the experiment: its
//!   messages are gone.
//! - **Inside of a user namespace everybody looks like root**, so that who starts something there says where
//!   the racks have their directories (`HOMA_RACK_DIR`).
//! - **An experiment is a function** from a testbed to findings. The rack, the progress bar, the table, JSON and
//!   the page are the same for all.

#![forbid(unsafe_code)]

pub mod daemon;
pub mod disturb;
pub mod enter;
pub mod experiment;
mod leftovers;
pub mod spec;
mod state;
pub mod status;
mod switch;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

use daemon::NamespaceDaemon;
use spec::Spec;
use state::Directory;

/// The command of this program under which the library's child processes run.
pub const RACK_COMMAND: &str = "rack";

/// Builds a rack, and calls `ready` when it is up. With `foreground` it ends at SIGINT or SIGTERM, and this function
/// returns then; otherwise it lives on until [`status::end`].
///
/// # Errors
/// Why there is no rack.
pub fn up(spec: &Spec, foreground: bool, ready: impl FnOnce(&Spec)) -> Result<()> {
    let interrupted = interruption()?;
    let daemon = NamespaceDaemon::start(spec, foreground)?;
    let state = Directory::of(&spec.name).up()?;
    if interrupted.load(Ordering::Relaxed) {
        drop(daemon);
        return status::end(&spec.name);
    }
    ready(spec);
    if foreground {
        while !interrupted.load(Ordering::Relaxed) && Directory::of(&spec.name).is_held() {
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(daemon);
        leftovers::end(&state);
    }
    Ok(())
}

/// A flag that SIGINT and SIGTERM set from here on, so that work in progress can be cleared away.
///
/// # Errors
/// Signals cannot be caught.
pub fn interruption() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot wait for signals")?;
    }
    Ok(flag)
}
