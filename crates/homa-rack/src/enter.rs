//! `homa rack exec`: runs a command in a host of the rack, by replacing this process with the command.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use homa_bench::netns;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::RACK_COMMAND;
use super::state::{Directory, RACK_VARIABLE, State};

/// Environment variable that is set to the host's name in processes of a host.
const HOST_VARIABLE: &str = "HOMA_HOST";

/// The subcommand of [`RACK_COMMAND`] that calls [`exec`]: `exec [--die-with-parent] --name RACK HOST --
/// COMMAND`.
pub const COMMAND: &str = "exec";

/// The option of [`COMMAND`] that ends the command with its parent.
pub const DIE_WITH_PARENT: &str = "die-with-parent";

/// Returns a command that starts a program in a host of a rack, or in the switch's namespace. The caller
/// appends the program and its arguments. The program ends with this process.
pub(crate) fn command_in(rack: &str, host: &str) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let mut command = Command::new(program);
    command.args([RACK_COMMAND, COMMAND, &format!("--{DIE_WITH_PARENT}"), "--name", rack, host, "--"]);
    Ok(command)
}

/// Replaces this process with a command in a host of a rack, or in the switch's namespace. Returns only on an
/// error.
///
/// # Errors
/// There is no such rack, host or program.
pub fn exec(rack: &str, host: &str, die_with_parent: bool, words: &[String]) -> Result<()> {
    let state = Directory::of(rack).up()?;
    move_to(&state, host)?;
    if die_with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))
            .context("cannot be bound to the parent process")?;
    }
    let (program, words) = words.split_first().context("name a program to run")?;
    let mut command = Command::new(program);
    command.args(words).env(RACK_VARIABLE, state.tag()).env(HOST_VARIABLE, host);
    Err(anyhow!(command.exec()).context(format!("cannot run `{program}`")))
}

/// Moves this process into a host of the rack, or into the switch's namespace. The process must be
/// single-threaded.
///
/// # Errors
/// There is no such host, or the rack belongs to another user.
pub(crate) fn move_to(state: &State, name: &str) -> Result<()> {
    let place = state.place(name)?;
    let open = |what: &str| {
        let path = format!("/proc/{}/{what}", state.daemon);
        File::open(&path).with_context(|| format!("cannot open {path} of rack `{}`", state.spec.name))
    };
    let namespace = open(&format!("fd/{}", place.descriptor))?;
    let ours = std::fs::read_link("/proc/self/ns/user").ok();
    if std::fs::read_link(format!("/proc/{}/ns/user", state.daemon)).ok() != ours {
        netns::enter_user(open("ns/user")?)?;
    }
    netns::enter(namespace)
}
