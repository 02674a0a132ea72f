//! The `homa` command: an echo server, single calls, and a bench that compares Homa with TCP. It decodes
//! captures, simulates networks, forwards frames as a software switch, and builds a rack of hosts on one
//! machine. It also steers received packets, analyses time traces, measures the machine's interruptions,
//! shows running processes, and runs programs written for Linux Homa's sockets.
#![forbid(unsafe_code)]

mod addr;
mod args;
mod bench;
mod call;
mod choice;
mod decode;
mod doctor;
mod idle_args;
mod jitter;
#[cfg(feature = "packaging")]
mod packaging;
mod rack;
mod recording;
mod run;
mod serve;
mod sim;
mod steer;
mod switch;
mod trace;
mod values;
mod warnings;
mod watch;

use std::process::ExitCode;

use clap::error::ErrorKind;

use args::{Cli, Command};
use homa_report::output;

/// Exit code of a bench that ran to completion, but in which some RPC was not answered exactly once and
/// correctly.
const UNCLEAN: u8 = 1;

/// Exit code of all other failures.
pub const FAILED: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::of_words(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    warnings::print();
    let result = match &cli.command {
        Command::Serve(args) => serve::run(args).map(|()| true),
        Command::Call(args) => call::run(args).map(|()| true),
        Command::Bench(args) => bench::run(args),
        Command::BenchServer => homa_bench::server::serve_for_parent().map(|()| true),
        Command::Decode(args) => decode::run(args).map(|()| true),
        Command::Run(args) => run::run(args).map(|()| true),
        Command::Sim(args) => sim::run(args).map(|()| true),
        Command::Rack(args) => rack::run(args),
        Command::Switch(args) => switch::run(args).map(|()| true),
        Command::Steer(args) => steer::run(args).map(|()| true),
        Command::Trace(args) => trace::run(args).map(|()| true),
        Command::Jitter(args) => jitter::run(args).map(|()| true),
        Command::Doctor(args) => doctor::run(args).map(|()| true),
        Command::Metrics(args) => watch::metrics(args).map(|()| true),
        Command::Top(args) => watch::top(args).map(|()| true),
        #[cfg(feature = "packaging")]
        Command::Packaging(args) => packaging::run(args).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(UNCLEAN),
        Err(error) => fail(&output::error_line(&error)),
    }
}

/// Prints help and version on standard output, and errors as one line on standard error.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match output::print(error.to_string().as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&output::error_line(&error)),
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => fail(
            "say what to do: serve, call, bench, decode, run, sim, switch, rack, steer, trace, jitter, doctor, metrics or top; `homa --help` explains",
        ),
        _ => fail(&format!("{}; see --help", args::one_line(error))),
    }
}

fn fail(text: &str) -> ExitCode {
    let line = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    eprintln!("homa: {line}");
    ExitCode::from(FAILED)
}
