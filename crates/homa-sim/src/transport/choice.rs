//! Transports by name.

use std::ops::ControlFlow;

use super::parts::ACK_BYTES;
use super::{
    Basic, BasicConfig, Dctcp, Homa, HomaConfig, OracleConfig, Pfabric, PfabricConfig, Tcp, TcpConfig,
    Transport,
};
use crate::cluster::config::ClusterConfig;
use crate::cluster::fluid::FluidCluster;
use crate::cluster::report::{ClusterReport, Progress};
use crate::cluster::run::Cluster;
use crate::cluster::traffic::{mean_grant_bytes, mean_of};

/// A transport with its settings, for [`TransportConfig::run`].
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a run has one of these")]
pub enum TransportConfig {
    /// Homa, as it is deployed.
    Homa(HomaConfig),
    /// RAMCloud's BasicTransport.
    Basic(BasicConfig),
    /// TCP with CUBIC.
    Tcp(TcpConfig),
    /// DCTCP.
    Dctcp(TcpConfig),
    /// pFabric.
    Pfabric(PfabricConfig),
    /// The ideal schedule, without packets.
    Oracle(OracleConfig),
}

/// Simulated time between two reports of progress, in nanoseconds.
const STEP_NS: u64 = 100_000;

impl TransportConfig {
    /// The names of all transports, in the order used in tables.
    pub const NAMES: &[&str] =
        &[Homa::NAME, Basic::NAME, Tcp::NAME, Dctcp::NAME, Pfabric::NAME, FluidCluster::NAME];

    /// Returns the transport with this name and its defaults for a network and load; `None`: the name is
    /// unknown.
    pub fn named(name: &str, cluster: &ClusterConfig) -> Option<TransportConfig> {
        match name {
            Homa::NAME => Some(TransportConfig::Homa(HomaConfig::tuned(cluster))),
            Basic::NAME => Some(TransportConfig::Basic(BasicConfig::for_cluster(cluster))),
            Tcp::NAME => Some(TransportConfig::Tcp(TcpConfig::for_cluster(cluster))),
            Dctcp::NAME => Some(TransportConfig::Dctcp(TcpConfig::dctcp(cluster))),
            Pfabric::NAME => Some(TransportConfig::Pfabric(PfabricConfig::for_cluster(cluster))),
            FluidCluster::NAME => Some(TransportConfig::Oracle(OracleConfig::default())),
            _ => None,
        }
    }

    /// Returns the transport's name.
    pub fn name(&self) -> &'static str {
        match self {
            TransportConfig::Homa(_) => Homa::NAME,
            TransportConfig::Basic(_) => Basic::NAME,
            TransportConfig::Tcp(_) => Tcp::NAME,
            TransportConfig::Dctcp(_) => Dctcp::NAME,
            TransportConfig::Pfabric(_) => Pfabric::NAME,
            TransportConfig::Oracle(_) => FluidCluster::NAME,
        }
    }

    /// Returns the fraction of the hosts' link capacity in use at this load, including the transport's grants
    /// or acknowledgements. It is an estimate for a network without losses. At 1 and above, the load cannot
    /// be sustained.
    pub fn link_share(&self, cluster: &ClusterConfig, load: f64) -> f64 {
        let payload = cluster.framing.payload;
        let overhead = cluster.link.overhead_bytes;
        let acks = |but: u32| {
            let acks = move |size: u32| f64::from(size.div_ceil(payload).max(1).saturating_sub(but));
            mean_of(&cluster.workload, move |size| acks(size) * f64::from(ACK_BYTES + overhead))
        };
        let control_bytes = match self {
            TransportConfig::Homa(config) => config.mean_grant_bytes(cluster),
            TransportConfig::Basic(_) => mean_grant_bytes(cluster),
            TransportConfig::Tcp(_) | TransportConfig::Dctcp(_) => acks(0),
            // The last packet of a message needs no acknowledgement.
            TransportConfig::Pfabric(_) => acks(1),
            TransportConfig::Oracle(_) => 0.0,
        };
        cluster.link_share(load, control_bytes)
    }

    /// Runs a cluster with this transport to the end, or until `progress` stops the run. In the latter case
    /// the report contains the results so far.
    ///
    /// `progress` has no other influence on the run.
    ///
    /// # Panics
    /// If there are fewer than 2 hosts, or the load is not above 0.
    pub fn run(
        &self,
        cluster: ClusterConfig,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> ClusterReport {
        match self {
            TransportConfig::Homa(config) => run::<Homa>(cluster, config, progress),
            TransportConfig::Basic(config) => run::<Basic>(cluster, config, progress),
            TransportConfig::Tcp(config) => run::<Tcp>(cluster, config, progress),
            TransportConfig::Dctcp(config) => run::<Dctcp>(cluster, config, progress),
            TransportConfig::Pfabric(config) => run::<Pfabric>(cluster, config, progress),
            TransportConfig::Oracle(config) => {
                let mut cluster = FluidCluster::new(cluster, *config);
                while cluster.advance(STEP_NS) && progress(cluster.progress()).is_continue() {}
                cluster.finish()
            }
        }
    }
}

fn run<T: Transport>(
    cluster: ClusterConfig,
    config: &T::Config,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> ClusterReport {
    let mut cluster = Cluster::<T>::new(cluster, config);
    while cluster.advance(STEP_NS) && progress(cluster.progress()).is_continue() {}
    cluster.finish()
}

#[cfg(test)]
mod tests {
    use homa_workload::Workload;

    use super::*;

    #[test]
    fn every_name_gives_the_transport_of_that_name() {
        let cluster = ClusterConfig::sigcomm18(Workload::named("w2").unwrap(), 0.5, 1);
        for &name in TransportConfig::NAMES {
            assert_eq!(TransportConfig::named(name, &cluster).map(|transport| transport.name()), Some(name));
        }
        assert!(TransportConfig::named("Homa", &cluster).is_none());
    }
}
