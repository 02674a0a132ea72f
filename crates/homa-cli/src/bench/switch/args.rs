//! The command line of `homa bench switch`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use homa_driver::frames::FramePath;
use homa_driver::xdp::XdpMode;

/// How frames come to the switch and leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// AF_XDP in the kernel's receive path
    XdpGeneric,
    /// AF_XDP in the device's driver
    XdpNative,
    /// Packet sockets with a mapped ring
    Ring,
}

impl Way {
    /// As the switch reports it.
    pub fn name(self) -> &'static str {
        match self {
            Way::XdpGeneric => "xdp-generic",
            Way::XdpNative => "xdp-native",
            Way::Ring => "ring",
        }
    }

    /// As devices are opened.
    pub fn path(self) -> FramePath {
        match self {
            Way::XdpGeneric => FramePath::Xdp(XdpMode::Generic),
            Way::XdpNative => FramePath::Xdp(XdpMode::Native),
            Way::Ring => FramePath::Ring,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Frames a second without limits
    Capacity,
    /// How exactly a link's rate is kept
    Rate,
    /// What a high-priority probe meets at a saturated port
    Probe,
    /// What is left of the throughput when more is offered than can be handled
    Overload,
}

/// `homa bench switch`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa bench switch                                     everything, two minutes
  homa bench switch --path xdp-generic --measure probe  one part
  homa bench switch --quick --json -                    a smoke test

The switch runs in a thread on one processor; a thread on the other is source and sink of all frames, by AF_XDP where there is, so that all
times are of one clock. Both have network namespaces of their own, joined by two veth pairs. The work that a veth does for its
receiver counts for the sender: what brings frames to the switch is the source's, and what brings them to the sink the switch's. The
capacity is therefore measured with a socket that receives at the sink and without: there the kernel counts the frames that come to the
sink's device and drops them, as if the port led to a wire. What the machine takes is what is lost to a thread in the switch's place that
only reads the clock: no switch is more exact than that, but by making up for it. Needs root.")]
pub struct SwitchBenchArgs {
    /// How frames come to the switch and leave it [default: all]; what cannot be had is skipped, with the reason
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub path: Vec<Way>,
    /// What to measure [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub measure: Vec<What>,
    /// Repetitions, each with all paths in turn [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Measured time of each value in a repetition, milliseconds [default: 300, with --quick 30]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub slice_ms: Option<u64>,
    /// Only see whether it works
    #[arg(long)]
    pub quick: bool,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all else then goes to standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}
