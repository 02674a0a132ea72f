//! The namespace daemon: the process that holds a rack's namespaces.
//!
//! The namespaces are unnamed. They exist as long as this process and the processes in them, so a crash of
//! the daemon leaves no devices and no addresses behind. The daemon can be started with an option to end its
//! rack when its standard input is closed. Experiments that build their own rack use this option.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use homa_bench::netns;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::RACK_COMMAND;
use super::rack_namespaces::RackNamespaces;
use super::spec::{SWITCH, Spec};
use super::state::{Directory, Place, State};
use super::{leftovers, switch};

/// The line that the daemon prints when the rack is up.
const READY: &str = "ready";

/// Interval at which the daemon checks the switch.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum number of restarts of a switch during the lifetime of a rack.
const RESTARTS: u32 = 3;

/// Maximum number of consecutive failed starts. A device's queue stays occupied for about 40 ms after its
/// socket has been closed.
const STARTS: u32 = 10;

/// The subcommand of [`RACK_COMMAND`] that calls [`serve`] with its only argument.
pub const CHILD_COMMAND: &str = "keep";

/// The daemon's settings, as JSON on its command line.
#[derive(Serialize, Deserialize)]
struct Order {
    spec: Spec,
    /// Whether to end the rack when standard input is closed.
    until_stdin_ends: bool,
    /// Whether to become root of a new user namespace first.
    user_namespace: bool,
}

/// The namespace daemon of a rack, as seen by the process that started it.
pub struct NamespaceDaemon {
    process: Child,
    /// The pipe to the daemon's standard input, if the daemon is bound to this process.
    stdin: Option<ChildStdin>,
}

impl NamespaceDaemon {
    /// Builds a rack. With `bound`, the rack ends when this process ends or when the returned value is
    /// dropped.
    ///
    /// # Errors
    /// The rack cannot be built; the error contains the reason.
    pub fn start(spec: &Spec, bound: bool) -> Result<NamespaceDaemon> {
        let root = rustix::process::geteuid().is_root();
        match NamespaceDaemon::start_as(spec, bound, !root) {
            Err(error)
                if root
                    && homa_report::output::error_line(&error)
                        .contains("cannot make a network namespace") =>
            {
                // This process is root but lacks the capability, as in a container.
                NamespaceDaemon::start_as(spec, bound, true).map_err(|_| error)
            }
            result => result,
        }
    }

    fn start_as(spec: &Spec, bound: bool, user_namespace: bool) -> Result<NamespaceDaemon> {
        let program = std::env::current_exe().context("cannot find this program to build the rack")?;
        let mut command = Command::new(program);
        let order = Order { spec: spec.clone(), until_stdin_ends: bound, user_namespace };
        command.args([RACK_COMMAND, CHILD_COMMAND, &serde_json::to_string(&order)?]);
        command.stdin(if bound { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start the rack's daemon")?;
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut line).context("cannot read from the rack's daemon")?;
        }
        if line.trim() == READY {
            let stdin = process.stdin.take();
            return Ok(NamespaceDaemon { process, stdin });
        }
        let mut words = String::new();
        if let Some(mut err) = process.stderr.take() {
            let _ = err.read_to_string(&mut words);
        }
        let _ = process.wait();
        let words = words.trim().trim_start_matches("homa:").trim();
        if user_namespace && words.contains("namespace") {
            bail!("{words}: run it as root, or permit user namespaces for unprivileged users");
        }
        bail!("{}", if words.is_empty() { "the rack's daemon ended without an error message" } else { words })
    }
}

impl Drop for NamespaceDaemon {
    fn drop(&mut self) {
        if self.stdin.take().is_some() {
            // The daemon ends its processes and removes its files before it exits.
            let _ = self.process.wait();
        }
    }
}

/// Runs the daemon: builds the rack described by `order`, and holds it until the daemon is told to end it.
///
/// # Errors
/// The rack cannot be built.
pub fn serve(order: &str) -> Result<()> {
    let order: Order = serde_json::from_str(order).context("the daemon's settings are invalid")?;
    let spec = order.spec.clone();
    // Start a new session, because a terminal sends Ctrl-C to the whole foreground process group. The
    // starting process handles Ctrl-C and ends the rack.
    let _ = rustix::process::setsid();
    let directory = Directory::of(&spec.name);
    let lock = directory.make()?;
    let result = hold(&order, spec, &directory);
    directory.remove()?;
    drop(lock);
    result
}

fn hold(order: &Order, spec: Spec, directory: &Directory) -> Result<()> {
    // Processes of a crashed rack with this name would otherwise continue to run.
    if let Ok(Some(old)) = directory.read() {
        leftovers::end(&old);
    }
    if order.user_namespace {
        netns::enter_user_namespace()?;
    }
    let (ends, end) = mpsc::channel();
    end_by_signal(ends.clone())?;
    if order.until_stdin_ends {
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let _ = ends.send(());
        });
    }
    let namespaces = RackNamespaces::create(&spec)?;
    let hosts = spec
        .numbers()
        .zip(&namespaces.hosts)
        .map(|(number, host)| Place::host(&spec, number, host.as_raw_fd()));
    let place =
        Place { name: SWITCH.to_owned(), descriptor: namespaces.switch.as_raw_fd(), addresses: Vec::new() };
    let mut state = State::new(spec.clone(), token(), hosts.collect(), place);
    directory.write(&state)?;
    let result = run_switch(&mut state, directory, &end);
    leftovers::end(&state);
    for descriptor in &namespaces.hosts {
        netns::forget_segment(descriptor);
    }
    result
}

/// Starts the switch, and restarts it whenever it has exited, until the rack is to end.
fn run_switch(state: &mut State, directory: &Directory, end: &mpsc::Receiver<()>) -> Result<()> {
    let mut switch = switch::start(&state.spec, directory)?;
    state.switch_pid = switch.as_ref().map(Child::id);
    directory.write(state)?;
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).context("cannot report that the rack is up")?;
    let mut failed = 0;
    while end.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
        if let Some(status) = switch.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
            switch = None;
            state.switch_pid = None;
            state.switch_ended = Some(status.to_string());
            state.switch_ends += 1;
            state.switch_given_up = state.switch_ends > RESTARTS;
            failed = 0;
            directory.write(state)?;
        }
        if switch.is_none() && state.switch_ends > 0 && !state.switch_given_up {
            match switch::start(&state.spec, directory) {
                Ok(started) => switch = started,
                Err(error) => {
                    failed += 1;
                    state.switch_ended = Some(homa_report::output::error_line(&error));
                    state.switch_given_up = failed == STARTS;
                }
            }
            state.switch_pid = switch.as_ref().map(Child::id);
            directory.write(state)?;
        }
    }
    if let Some(mut child) = switch {
        leftovers::send(child.id(), Signal::TERM);
        for _ in 0..20 {
            if child.try_wait().ok().flatten().is_some() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(())
}

fn end_by_signal(ends: mpsc::Sender<()>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = ends.send(());
        }
    });
    Ok(())
}

/// Returns a random token that distinguishes this rack from earlier and later racks with the same name.
fn token() -> String {
    let mut bytes = [0; 8];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if random.is_err() {
        bytes = (std::process::id() as u64).to_le_bytes();
    }
    format!("{:016x}", u64::from_le_bytes(bytes))
}
