//! The switch process, which forwards between the hosts.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use super::enter;
use super::spec::{SWITCH, Spec, SwitchKind, port_name};
use super::state::{BASE_VARIABLE, Directory};

/// Starts the switch in its namespace, through a process that enters the namespace. Returns once the switch
/// forwards. The result is `None` if the kernel forwards.
///
/// # Errors
/// The switch failed; the error contains its error output.
pub fn start(spec: &Spec, directory: &Directory) -> Result<Option<Child>> {
    if spec.switch == SwitchKind::LinuxBridge {
        return Ok(None);
    }
    let program = std::env::current_exe().context("cannot find this program to start the switch")?;
    let ports: Vec<String> = spec.numbers().map(port_name).collect();
    let mut command = enter::command_in(&spec.name, SWITCH)?;
    command.arg(&program).args(["switch", "run", "--ports", &ports.join(",")]);
    command.arg(format!("--rate={}mbit", spec.rate_mbps())).arg(format!("--buffer={}", spec.buffer));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    command.arg(format!("--nap={}ns", spec.poll_sleep(processors).as_nanos()));
    command.arg("--control").arg(control(directory)).args(&spec.switch_options);
    command.env(BASE_VARIABLE, directory.base());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the switch")?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let mut out = BufReader::new(out);
        while out.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.trim() != "ready" {
            line.clear();
        }
        // Later output is discarded. If nothing read the pipe, writing to it would end the switch.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    }
    if line.trim() == "ready" {
        if let Some(mut err) = child.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut err, &mut std::io::sink()));
        }
        return Ok(Some(child));
    }
    let mut words = String::new();
    if let Some(mut err) = child.stderr.take() {
        let _ = err.read_to_string(&mut words);
    }
    let _ = child.kill();
    let _ = child.wait();
    let words = words.trim().trim_start_matches("homa:").trim();
    bail!("the switch failed: {}", if words.is_empty() { "it printed no error" } else { words })
}

/// Returns the path of the switch's control socket, through which its counters are read.
pub fn control(directory: &Directory) -> std::path::PathBuf {
    directory.file("switch.sock")
}
