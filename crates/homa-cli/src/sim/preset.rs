//! The presets, selected by name.

use homa_sim::{ClusterConfig, Traffic};
use homa_workload::Workload;

use super::homa::Base;

/// A network, its load, and Homa's settings for them.
#[derive(Debug)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    /// Further notes.
    pub notes: &'static str,
    /// The network and the load.
    pub cluster: fn() -> ClusterConfig,
    /// The base configuration for Homa's settings.
    pub homa: Base,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "sigcomm18",
        summary: "the simulations of the SIGCOMM 2018 paper: 144 hosts in 9 racks, 10 and 40 Gbit/s, w4 at 80 %",
        notes: "One-way messages to hosts chosen at random; switches with room for everything. Homa as our sweeps found it best; with \
                `--homa paper` as in the paper. The load counts data packets with their headers; published loads count grants, too, \
                which `--load-counts grants` does.",
        cluster: sigcomm18,
        homa: Base::Tuned,
    },
    Preset {
        name: "atc21",
        summary: "the cluster of the kernel paper (ATC 2021): 40 hosts at one switch, 25 Gbit/s, MTU 3000, echo RPCs, w4 at 80 %",
        notes: "Hosts take what the kernel's published timeline of January 2021 says: 1,475 ns (server) and 1,710 (client) to send, \
                3,220 and 3,080 to receive, here the means for every packet; 2,805 from card to card, shared out by guess between \
                links and switch. Requests and responses are equally long, with all that the deployed protocol sends for them; \
                slowdown is the RPC's, and the load counts both. Homa as it is deployed. Software takes the same time for every \
                packet: its queues and wake-ups are not modelled, and P99 is a third to a sixth of the published one.",
        cluster: atc21,
        homa: Base::Deployed,
    },
    Preset {
        name: "incast",
        summary: "rounds in which 32 hosts at once send 10 kB each to one host; the network of sigcomm18",
        notes: "`senders` sets the degree (1 to 500 and more: hosts then send several), `incast-interval` the time from round to round.",
        cluster: incast,
        homa: Base::Tuned,
    },
];

/// Returns the preset with this name.
///
/// # Errors
/// The error names the known presets.
pub fn named(name: &str) -> Result<&'static Preset, String> {
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        format!("unknown preset `{name}`: use {}", known.join(", "))
    })
}

fn workload(name: &str) -> Workload {
    Workload::named(name).expect("the workload is a built-in one")
}

fn sigcomm18() -> ClusterConfig {
    ClusterConfig::sigcomm18(workload("w4"), 0.8, 1)
}

fn atc21() -> ClusterConfig {
    ClusterConfig::atc21(workload("w4"), 0.8, 1)
}

fn incast() -> ClusterConfig {
    ClusterConfig {
        workload: workload("10000"),
        traffic: Traffic::Incast { senders: 32, interval_ns: 1_000_000 },
        warm_up_ns: 1_000_000,
        duration_ns: 20_000_000,
        ..sigcomm18()
    }
}

#[cfg(test)]
mod tests {
    use homa_sim::{Exchange, Topology};

    use super::super::draft::SettingsDraft;
    use super::*;

    #[test]
    fn every_preset_is_a_run() {
        for preset in PRESETS {
            SettingsDraft::new(preset).build().unwrap_or_else(|error| panic!("{}: {error}", preset.name));
        }
    }

    #[test]
    fn the_kernels_cluster_has_one_switch_and_runs_rpcs() {
        assert!(matches!(atc21().topology, Topology::Switch { .. }));
        assert_eq!(atc21().exchange, Exchange::Echo);
    }
}
