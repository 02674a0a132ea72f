//! The command line: every option with its default, its unit and an example.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::call::CallArgs;
use crate::decode::DecodeArgs;
use crate::doctor::DoctorArgs;
use crate::jitter::JitterArgs;
use crate::rack::args::RackArgs;
use crate::serve::ServeArgs;
use crate::sim::args::SimArgs;
use crate::switch::args::SwitchArgs;
use crate::watch::args::{MetricsArgs, TopArgs};

/// Homa: remote procedure calls with a short tail, in user space.
#[derive(Debug, Parser)]
#[command(
    name = "homa",
    // Set by build/main.rs to the version of the package and the commit.
    version = env!("HOMA_VERSION"),
    max_term_width = 110,
    after_help = "Example: `homa bench` compares Homa and TCP on this machine and writes report.html.\n\
                  Exit codes: 0 success; 1 the bench ran, but some RPC was not answered exactly once and correctly; \
                  2 any other error."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an echo server; it is also the server of `homa bench --servers`
    Serve(ServeArgs),
    /// Send one request, print or save the response and its time
    Call(CallArgs),
    /// Compare the tail latency of a workload over Homa and over TCP, on an emulated rack, over loopback or
    /// between machines
    Bench(Box<BenchArgs>),
    /// Print the Homa packets of a capture, one line each
    Decode(DecodeArgs),
    /// Run a program that was written for Linux Homa's sockets, without the kernel module if it is missing
    Run(crate::run::RunArgs),
    /// Run Homa and other transports in a simulated network of any size
    Sim(SimArgs),
    /// Build a rack of hosts on this machine, and run experiments on it
    Rack(RackArgs),
    /// Forward frames between network devices like a top-of-rack switch: link rates, priorities, bounded
    /// buffers
    Switch(Box<SwitchArgs>),
    /// Choose the cores on which the kernel processes packets received by network devices
    Steer(crate::steer::args::SteerArgs),
    /// Analyse time traces of live hosts, switches and the simulator
    Trace(crate::trace::TraceArgs),
    /// Measure interruptions of this machine's processors: duration, frequency and cause
    Jitter(JitterArgs),
    /// Find settings of this host that cost tail latency, and the commands that change them
    Doctor(DoctorArgs),
    /// Print the statistics of a process started with --metrics, or their changes
    Metrics(MetricsArgs),
    /// Live view of processes started with --metrics
    Top(TopArgs),
    /// Run the server of a bench that has started this process
    #[command(name = homa_bench::server::CHILD_COMMAND, hide = true)]
    BenchServer,
    /// Write the man pages and shell completions of a package
    #[cfg(feature = "packaging")]
    #[command(hide = true)]
    Packaging(crate::packaging::PackagingArgs),
}

impl Cli {
    /// Parses the arguments of a command line.
    ///
    /// # Errors
    /// The errors of clap, including help and version.
    pub fn of_words<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Cli, clap::Error> {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(words)?;
        let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if let (Command::Bench(args), Some(("bench", matches))) = (&mut cli.command, matches.subcommand()) {
            let options = command.find_subcommand("bench").into_iter().flat_map(clap::Command::get_arguments);
            let given = options
                .map(|option| option.get_id().as_str())
                .filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
            let given: Vec<String> = given.map(str::to_owned).collect();
            args.choose_place(&given).map_err(|text| command.error(ErrorKind::ArgumentConflict, text))?;
        }
        Ok(cli)
    }
}

/// Reduces clap's error to one line: its first paragraph, followed by the tip if there is one.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let mut line = paragraphs.next().unwrap_or_default();
    if let Some(tip) = paragraphs.find(|paragraph| paragraph.starts_with("tip:")) {
        line = format!("{line} ({})", tip.trim_start_matches("tip:").trim());
    }
    line.trim_start_matches("error:").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use homa_bench::driver::Driver;
    use homa_bench::limits::{Metric, PathChoice};
    use homa_bench::protocol::Protocol;
    use homa_bench::workloads::Truncation;
    use std::path::PathBuf;

    use crate::bench::BenchCommand;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words)
    }

    fn bench(words: &[&str]) -> BenchArgs {
        match parse(words).map(|cli| cli.command) {
            Ok(Command::Bench(args)) => *args,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn bench_without_options_compares_both() {
        let args = bench(&["homa", "bench"]);
        assert_eq!(args.protocol, [Protocol::Homa, Protocol::Tcp]);
        assert_eq!(args.max_message.unwrap_or_default(), Truncation::At(1_000_000));
        assert_eq!(args.max_outstanding, 200);
    }

    #[test]
    fn only_a_described_rack_rules_out_loopback() {
        for (words, is_rack_wanted) in
            [("", false), (" --quick", false), (" --seconds 20", false), (" --hosts 3", true)]
        {
            let words = format!("homa bench{words}");
            let cli = Cli::of_words(words.split(' ').map(OsString::from)).expect("valid");
            let Command::Bench(args) = cli.command else { panic!("{words}") };
            assert_eq!((args.is_rack_wanted, args.loopback), (is_rack_wanted, false), "{words}");
        }
    }

    #[test]
    fn limits_have_options_of_their_own() {
        let limits = |words: &str| {
            let words = format!("homa bench limits {words}");
            match bench(&words.split_whitespace().collect::<Vec<_>>()).command {
                Some(BenchCommand::Limits(args)) => args,
                _ => panic!("{words}: not the limits"),
            }
        };
        let args = limits("");
        assert!(args.protocol.is_empty() && args.driver.is_empty() && args.path == PathChoice::Auto);
        assert_eq!((args.repetitions, args.slice_ms, args.mtu), (None, None, 1500));
        let args =
            limits("--quick --protocol homa,udp --driver udp,raw --path loopback --repetitions 2 --json -");
        assert_eq!(args.protocol, [Protocol::Homa, Protocol::Udp]);
        assert_eq!(args.driver, [Driver::Udp, Driver::Raw]);
        assert!(args.quick && args.repetitions == Some(2));
        assert!(args.rows.is_empty() && args.targets.is_none());
        let args = limits("--rows w2,rpcs_per_s_128 --targets t.toml");
        assert_eq!(args.rows, [Metric::MaxW2, Metric::Rpcs128]);
        assert_eq!(args.targets, Some(PathBuf::from("t.toml")));
        for words in [
            "--rows w9",
            "--rows w1 --long-only",
            "--gbps 1",
            "--mtu 100",
            "--repetitions 0",
            "--slice-ms 0",
            "--path wire",
        ] {
            let words = format!("homa bench limits {words}");
            assert!(parse(&words.split_whitespace().collect::<Vec<_>>()).is_err(), "{words}");
        }
        assert!(parse(&["homa", "bench", "--gbps", "1", "limits"]).is_err());
    }

    #[test]
    fn one_pace_at_a_time() {
        for words in [
            ["homa", "bench", "--gbps", "1", "--load", "0.5"],
            ["homa", "bench", "--gbps", "1", "--outstanding", "5"],
            ["homa", "bench", "--size", "1", "--workload", "w1"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (option, value) in [
            ("--gbps", "0"),
            ("--gbps", "nan"),
            ("--load", "-1"),
            ("--size", "0"),
            ("--size", "3000000000"),
            ("--max-message", "0"),
            ("--poll-us", "10001"),
            ("--link-mbps", "0"),
            ("--duration", "inf"),
            ("--ports", "0"),
            ("--endpoints", "0"),
            ("--endpoints", "65"),
        ] {
            assert!(parse(&["homa", "bench", option, value]).is_err(), "{option} {value}");
        }
    }

    #[test]
    fn an_error_is_one_line() {
        for words in [
            &["homa", "bench", "--laod", "1"][..],
            &["homa", "bench", "--protocol", "sctp"],
            &["homa", "call"],
            &["homa", "frobnicate"],
            &["homa"],
        ] {
            let line = one_line(&parse(words).expect_err("must not parse"));
            assert!(!line.is_empty() && !line.contains('\n'), "{words:?}: {line:?}");
            assert!(!line.starts_with("error"), "{words:?}: {line:?}");
        }
    }
}
