//! A rack on one machine: hosts with links to one switch, and the experiments that run on it.
//!
//! - [`spec`]: the description of a rack. [`up`] builds one, [`status`] describes, changes and ends it, and
//!   [`enter`] runs commands in its hosts.
//! - [`experiment`]: experiments with their options ([`experiment::options`]). They return findings.
//! - [`experiment::comparison`]: Homa and TCP on a rack for the processors of this machine, in a given time.
//!
//! The library starts its own program again as child processes: in hosts, to hold namespaces, and to disturb
//! hosts. Such a program has a command [`RACK_COMMAND`] with the subcommands [`enter::COMMAND`],
//! [`daemon::CHILD_COMMAND`], [`experiment::agent::CHILD_COMMAND`] and [`disturb::CHILD_COMMAND`], each of
//! which calls the function of its module, and the command `switch run` (`homa-cli/switch`).
//!
//! # Design
//!
//! A host is a network namespace without a name. The namespace daemon (`daemon`) holds all namespaces open;
//! they live as long as the daemon and the processes in them. A crash therefore leaves no device behind, and
//! root and unprivileged users need the same. A rack is known to other processes by a file and a lock
//! (`state`); a free lock means that the rack's daemon crashed. Processes in a rack carry its tag in their
//! environment (`leftovers`). They are started through `homa rack exec` (`enter`), which moves itself into
//! the host and becomes the command.
//!
//! - **Only real packets cross the links** (`rack_namespaces`): segmentation offload, receive merging and
//!   checksum offload are off for all protocols, TCP included.
//! - **A link limits both directions.** The switch paces packets to a host; a token bucket in the host paces
//!   packets from it. On slow links the bucket never holds tokens for two full frames: frames that leave
//!   together arrive together, and a small switch would drop packets that a wire would not.
//! - **A switch without a processor of its own sleeps between polls** (`Spec::poll_sleep`), for a quarter of
//!   the time of a full frame. A polling switch takes half of two processors from the hosts, for a twentieth
//!   of the work, and the experiment then measures processor scheduling. A traced switch polls: sleeping
//!   would be a delay that no trace explains.
//! - **Neighbour entries are permanent.** An ARP request lost in a full queue would stall a host for a
//!   second.
//! - **A host of an experiment is one process** (`experiment/agent`): client and server on the same
//!   transport. It takes orders on standard input and returns every latency. Over Homa one thread sends and
//!   answers through one socket (`experiment/one_thread`): of two threads at one endpoint the leader receives
//!   packets for the other, and each wakes the other. If threads, ports or endpoints are the variable, all
//!   hosts have answering threads, so that the points of a series have one architecture. TCP's threads share
//!   nothing.
//! - **Hosts sleep, to the microsecond.** They share processors, and a polling host would stop others. Loads
//!   begin at one moment of the clock that all processes share (`experiment/testbed`).
//! - **The simulator is compared with the rack** (`experiment/simulated`): the same settings, switch and
//!   load, the host's delay for a packet taken from the shortest round trip without load, and no processors.
//!   A difference comes from processors, from the kernel, or from an error in one of the two.
//! - **Events of the rack are part of the results.** A process in the switch's namespace reports links that
//!   go down and up (`experiment/cables`). The daemon restarts a switch that ended, a few times. Both are
//!   noted with the load in which they happened. If a host's process ends, the experiment ends: its messages
//!   are lost.
//! - **In a user namespace every user appears as root**, so programs started there name the directory of the
//!   racks (`HOMA_RACK_DIR`).
//! - **An experiment is a function** from a testbed to findings. The rack, the progress bar, the table, the
//!   JSON and the page are common to all experiments.

#![forbid(unsafe_code)]

pub mod daemon;
pub mod disturb;
pub mod enter;
pub mod experiment;
mod leftovers;
mod rack_namespaces;
pub mod spec;
mod state;
pub mod status;
mod switch;

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

/// Builds a rack, and calls `ready` when it is up. With `foreground`, the rack ends at SIGINT or SIGTERM, and
/// this function then returns. Otherwise the rack lives until [`status::end`].
///
/// # Errors
/// The rack cannot be built.
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

/// Returns a flag that SIGINT and SIGTERM set from now on, so that work in progress can be cleaned up.
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
