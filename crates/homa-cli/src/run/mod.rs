//! `homa run`: executes a program that was written for Linux Homa's sockets, either with the kernel's Homa or
//! with the preload library.

mod args;
mod elf;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use homa_report::output;
use rustix::net::{AddressFamily, Protocol, SocketType, socket};
use serde::Serialize;

use args::Carrier;
pub use args::RunArgs;

/// File name of the preload library.
const LIBRARY: &str = "libhoma_preload.so";

/// Directories of the library relative to this program's directory: for a build or `cargo install`, for
/// installation prefixes, and for packages, which keep it separate from libraries that programs link with.
const PLACES: [&str; 3] = ["", "../lib", "../lib/homa"];

/// Environment variable that contains the path of the library.
const LIBRARY_VARIABLE: &str = "HOMA_PRELOAD";

/// IP protocol number of Homa.
const IPPROTO_HOMA: u32 = 146;

/// The name shown as the driver if a program runs without the preload library.
const KERNEL: &str = "kernel";

/// How a program will be run.
#[derive(Debug, Serialize)]
struct Plan {
    /// Path of the program.
    program: PathBuf,
    /// `kernel`, `udp`, `raw` or `linux-udp`.
    homa: &'static str,
    /// The library to preload; none if the kernel's Homa is used.
    library: Option<PathBuf>,
}

/// Runs the program. Returns only on an error, or after a dry run.
pub fn run(args: &RunArgs) -> Result<()> {
    let (program, words) = args.command.split_first().context("say what to run")?;
    let plan = plan(args, program)?;
    if args.dry_run {
        return print_plan(args, &plan);
    }
    let mut command = Command::new(program);
    command.args(words);
    if let Some(library) = &plan.library {
        command.env("LD_PRELOAD", preload(library)).env("HOMA_DRIVER", plan.homa);
    }
    Err(anyhow!(command.exec()).context(format!("cannot run `{program}`")))
}

fn plan(args: &RunArgs, program: &str) -> Result<Plan> {
    let file = find_program(program)?;
    let homa = choose(args.driver, kernel_has_homa);
    if homa == KERNEL {
        return Ok(Plan { program: file, homa, library: None });
    }
    elf::check(&file)?;
    Ok(Plan { program: file, homa, library: Some(find_library()?) })
}

/// Chooses the driver: the requested one, or else the kernel's Homa if it is available. The kernel is only
/// checked if no driver was requested.
fn choose(asked: Option<Carrier>, kernel_has_homa: impl FnOnce() -> bool) -> &'static str {
    match asked {
        Some(carrier) => carrier.name(),
        None if kernel_has_homa() => KERNEL,
        None => Carrier::Udp.name(),
    }
}

fn print_plan(args: &RunArgs, plan: &Plan) -> Result<()> {
    let text = match (args.json, &plan.library) {
        (true, _) => serde_json::to_string(plan)? + "\n",
        (false, None) => format!("{} on the kernel's Homa\n", plan.program.display()),
        (false, Some(library)) => {
            format!("{} over {} by {}\n", plan.program.display(), plan.homa, library.display())
        }
    };
    output::print(text.as_bytes())
}

/// Returns whether programs can open Homa sockets in the kernel.
fn kernel_has_homa() -> bool {
    let protocol = std::num::NonZeroU32::new(IPPROTO_HOMA).map(Protocol::from_raw);
    socket(AddressFamily::INET, SocketType::DGRAM, protocol).is_ok()
}

/// Returns the value for LD_PRELOAD: the library, followed by the previous value.
fn preload(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Finds the library: at the path in the environment variable, next to this program, or where packages
/// install it.
fn find_library() -> Result<PathBuf> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE) {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("there is no {} ({LIBRARY_VARIABLE}): correct the variable, or unset it", path.display());
        }
        return absolute(path);
    }
    let own = env::current_exe().context("cannot find the path of this program")?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let found = PLACES.iter().map(|place| beside.join(place).join(LIBRARY)).find(|file| file.is_file());
    found.map(absolute).transpose()?.with_context(|| {
        format!(
            "there is no {LIBRARY} in {}: `cargo build --release -p homa-preload` builds it; \
             install it there, or set its path in {LIBRARY_VARIABLE}",
            beside.display()
        )
    })
}

/// Makes a path absolute, because the program may change its directory.
fn absolute(path: PathBuf) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

/// Resolves a program name, which is either a path or the name of a program in PATH.
fn find_program(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("there is no program `{name}` in the PATH: install it, or give its path"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_homa_is_used_where_it_is_and_nobody_said_otherwise() {
        assert_eq!(choose(None, || true), "kernel");
        assert_eq!(choose(None, || false), "udp");
        for carrier in [Carrier::Udp, Carrier::Raw, Carrier::LinuxUdp] {
            assert_eq!(choose(Some(carrier), || panic!("nobody need ask the kernel")), carrier.name());
        }
    }
}
