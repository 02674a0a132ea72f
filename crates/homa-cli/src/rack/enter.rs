//! `homa rack exec`: becomes a command in a host of the rack.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use homa_bench::netns;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::args::ExecArgs;
use super::state::{Directory, RACK_VARIABLE, State};

/// The environment of whatever runs in a host says in which one.
const HOST_VARIABLE: &str = "HOMA_HOST";

/// Never comes back but with an error.
pub fn run(args: &ExecArgs) -> Result<()> {
    let state = Directory::of(&args.name).up()?;
    move_to(&state, &args.host)?;
    if args.die_with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))
            .context("cannot be bound to the parent process")?;
    }
    let (program, words) = args.command.split_first().context("say what to run")?;
    let mut command = Command::new(program);
    command.args(words).env(RACK_VARIABLE, state.tag()).env(HOST_VARIABLE, &args.host);
    Err(anyhow!(command.exec()).context(format!("cannot run `{program}`")))
}

/// Moves this process, which must have one thread, into a host of the rack, or to its switch.
///
/// # Errors
/// There is no such host, or the rack is another user's.
pub fn move_to(state: &State, name: &str) -> Result<()> {
    let place = state.place(name)?;
    let open = |what: &str| {
        let path = format!("/proc/{}/{what}", state.keeper);
        File::open(&path).with_context(|| format!("cannot open {path} of rack `{}`", state.spec.name))
    };
    let namespace = open(&format!("fd/{}", place.descriptor))?;
    let ours = std::fs::read_link("/proc/self/ns/user").ok();
    if std::fs::read_link(format!("/proc/{}/ns/user", state.keeper)).ok() != ours {
        netns::enter_user(open("ns/user")?)?;
    }
    netns::enter(namespace)
}
