//! The command line of `homa run`.

use clap::{Args, ValueEnum};

/// Driver of a preloaded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Carrier {
    /// UDP, without privileges, between preloaded programs and `homa serve`
    Udp,
    /// Raw IP, for peers with the kernel's Homa; needs CAP_NET_RAW
    Raw,
    /// UDP port 54321, for peers with the kernel's Homa in its UDP form, without privileges
    LinuxUdp,
}

impl Carrier {
    /// Returns the carrier's name on the command line and in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Udp => "udp",
            Carrier::Raw => "raw",
            Carrier::LinuxUdp => "linux-udp",
        }
    }
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa run -- ./server --port 4000                  on the kernel's Homa if it exists, else over UDP
  homa run --driver raw -- ./client 10.0.0.7 4000   never on the kernel's
  homa run --driver linux-udp -- ./client 10.0.0.7 4000
                                                    with Linux Homa where networks drop IP protocol 146
  HOMA_MAX_INCOMING=400000 homa run ./server        the sysctls net.homa.* by name

Over UDP a server at Homa port N is at UDP port 14501 + N. The exit code is that of the program.")]
pub struct RunArgs {
    /// Use this driver instead of the kernel's Homa
    #[arg(long, value_name = "HOW")]
    pub driver: Option<Carrier>,
    /// Print how the program would be run, and do not run it
    #[arg(long)]
    pub dry_run: bool,
    /// Print that as JSON
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}
