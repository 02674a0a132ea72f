//! A rack on one machine: hosts with links to one switch, and the experiments that run on it.
//!
//! - [`spec`]: the description of a rack. [`up`] builds one, [`status`] describes, changes and ends it, and
//!   [`enter`] runs commands in its hosts.
//! - [`experiment`]: experiments with their options ([`experiment::options`]). They return findings.
//! - [`experiment::comparison`]: Homa and TCP compared in a given time, on a rack sized for this machine's
//!   processors.
//!
//! The library starts its own program again as child processes: in hosts, to hold namespaces, and to disturb
//! hosts. Such a program must have the command `switch run` (`homa-cli/switch`) and a command
//! [`RACK_COMMAND`]. The subcommands of the latter are [`enter::COMMAND`], [`daemon::CHILD_COMMAND`],
//! [`experiment::agent::CHILD_COMMAND`] and [`disturb::CHILD_COMMAND`]. Each of them calls the function of
//! its module.
//!
//! # Design
//!
//! A host is an unnamed network namespace. The namespace daemon (`daemon`) holds all namespaces open; they
//! exist as long as the daemon and the processes in them. A crash therefore leaves no device behind, and root
//! and unprivileged users need the same setup. Other processes find a rack by a file and a lock (`state`). A
//! free lock means that the rack's daemon crashed. The environment of all processes in a rack contains the
//! rack's tag (`leftovers`). These processes are started through `homa rack exec` (`enter`), which moves
//! itself into the host and becomes the command.
//!
//! - **Only real packets cross the links** (`rack_namespaces`): segmentation offload, receive merging and
//!   checksum offload are off for all protocols, including TCP.
//! - **A link limits both directions.** The switch paces packets to a host, and a token bucket in the host
//!   paces packets from it. On slow links, the bucket never holds tokens for two full frames. Otherwise, two
//!   frames sent at the same time would arrive at the same time, and a small switch would drop packets that
//!   it would not drop after a real wire.
//! - **A switch without its own processor sleeps between polls** (`Spec::poll_sleep`), for a quarter of the
//!   transmission time of a full frame. A polling switch takes half of two processors from the hosts,
//!   although it accounts for a twentieth of the work, and the experiment then measures processor scheduling.
//!   A switch with a time trace polls, because sleeping would be a delay that no trace explains.
//! - **Neighbour entries are permanent.** If an ARP request were lost in a full queue, a host would stall for
//!   a second.
//! - **A host of an experiment is one process** (`experiment/agent`): client and server on the same
//!   transport. It receives orders on standard input and returns all latencies. With Homa, one thread sends
//!   and answers through one socket (`experiment/one_thread`). If two threads shared an endpoint, the leader
//!   would receive packets for the follower, and each thread would wake the other. If threads, ports or
//!   endpoints are varied, all hosts have answering threads, so that the points of a series have the same
//!   architecture. TCP's threads share nothing.
//! - **Hosts sleep with microsecond precision.** They share processors, and a polling host would keep others
//!   from running. Loads start at the same time on the clock that all processes share (`experiment/testbed`).
//! - **The simulator is compared with the rack** (`experiment/simulated`): settings, switch and load are the
//!   same, but the simulator has no processors. The host's delay per packet is derived from the shortest
//!   unloaded round trip. A difference is caused by the processors, by the kernel, or by an error in one of
//!   the two.
//! - **Events of the rack are part of the results.** A process in the switch's namespace reports links that
//!   go down and up (`experiment/cables`). The daemon restarts a switch that has exited, a limited number of
//!   times. Both kinds of events are noted with the load in which they happened. If a host's process exits,
//!   the experiment ends, because the process's messages are lost.
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

/// Builds a rack, and calls `ready` when the rack is up. With `foreground`, this function ends the rack on
/// SIGINT or SIGTERM, and then returns. Otherwise the rack exists until [`status::end`].
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

/// Returns a flag that is set on SIGINT or SIGTERM from now on, so that work in progress can be cleaned up.
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
