//! The settings of Homa hosts that users of a comparison or a server can choose.

use homa::HostConfig;
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;
use serde::{Deserialize, Serialize};

use crate::as_text;

/// The chosen settings of a Homa host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HostOptions {
    /// Number of endpoints of the host.
    pub endpoints: u16,
    /// The order in which sleeping threads are woken.
    #[serde(with = "as_text")]
    pub wake_order: WakeOrder,
    /// Maximum receive batch.
    #[serde(with = "as_text")]
    pub batch_cap: BatchCap,
    /// Rate of the link in Mbit/s; `None`: as reported by the device.
    pub link_mbps: Option<u32>,
}

impl Default for HostOptions {
    /// Returns the options for one endpoint, with the defaults of a host.
    fn default() -> HostOptions {
        let HostConfig { wake_order, batch_cap, .. } = HostConfig::default();
        HostOptions { endpoints: 1, wake_order, batch_cap, link_mbps: None }
    }
}

impl HostOptions {
    /// Applies these settings to the configuration of a host.
    pub(crate) fn apply(&self, config: &mut HostConfig) {
        config.endpoints = self.endpoints.into();
        config.wake_order = self.wake_order;
        config.batch_cap = self.batch_cap;
        config.protocol.link_mbps = self.link_mbps;
    }
}
