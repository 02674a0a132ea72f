//! `homa rack`: hosts with links to one switch, on this machine, and experiments on them.

pub mod args;
pub mod experiment;

use anyhow::{Result, anyhow};
use clap::Parser;
use homa_rack::experiment::options::Program;
use homa_rack::{daemon, disturb, enter, status};
use homa_report::output::print;
use homa_switch::SwitchConfig;

use args::{DownArgs, RackArgs, RackCommand, StatusArgs, UpArgs};

/// This command, in the form that the rack library uses.
pub const PROGRAM: Program = Program { switch_config };

/// The options of a switch without the words `homa switch run`.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct SwitchArgs {
    #[command(flatten)]
    run: crate::switch::args::RunArgs,
}

fn switch_config(words: &[String]) -> Result<SwitchConfig> {
    SwitchArgs::try_parse_from(words).map_err(|error| anyhow!("{error}"))?.run.config()
}

/// Runs a subcommand. Returns false if it was an experiment in which some RPC was not answered correctly.
pub fn run(args: &RackArgs) -> Result<bool> {
    match &args.command {
        RackCommand::Up(args) => up(args)?,
        RackCommand::Status(args) => print_status(args)?,
        RackCommand::Exec(args) => enter::exec(&args.name, &args.host, args.die_with_parent, &args.command)?,
        RackCommand::Link(args) => status::set_link(&args.name, &args.host, args.to)?,
        RackCommand::Down(args) => down(args)?,
        RackCommand::Daemon(args) => daemon::serve(&args.order)?,
        RackCommand::Run(args) => return experiment::run(args),
        RackCommand::Agent => homa_rack::experiment::agent::serve()?,
        RackCommand::Disturb(args) => disturb::serve(&args.order)?,
    }
    Ok(true)
}

fn up(args: &UpArgs) -> Result<()> {
    homa_rack::up(&args.build.options().spec(&args.name), args.foreground, |spec| {
        println!(
            "rack {}: h1 (10.146.0.1) to h{} at {} Mbit/s; `homa rack exec h1 CMD` runs a command there",
            spec.name,
            spec.hosts,
            spec.rate_mbps()
        );
    })
}

fn print_status(args: &StatusArgs) -> Result<()> {
    let status = status::of(&args.name)?;
    let text = if args.json { serde_json::to_string_pretty(&status)? + "\n" } else { status.to_string() };
    print(text.as_bytes())
}

fn down(args: &DownArgs) -> Result<()> {
    if args.all { status::end_all() } else { status::end(&args.name) }
}
