//! The settings of a Homa host that benchmarks, servers and experiments let the user choose.

use homa::HostConfig;
use homa_steer::SteerError;
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;
use serde::{Deserialize, Serialize};

use crate::as_text;

/// The chosen settings of a Homa host. Serialized, they have the same names in results and between processes.
/// Options that are missing have their defaults.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct HostOptions {
    /// Number of endpoints of the host.
    pub endpoints: u16,
    /// The order in which sleeping threads are woken.
    #[serde(with = "as_text")]
    pub wake_order: WakeOrder,
    /// Maximum receive batch, in packets.
    #[serde(with = "packets")]
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
    pub fn apply(&self, config: &mut HostConfig) {
        config.endpoints = self.endpoints.into();
        config.wake_order = self.wake_order;
        config.batch_cap = self.batch_cap;
        config.protocol.link_mbps = self.link_mbps;
    }
}

/// A value of one option, for experiments that vary options by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostSetting {
    /// [`HostOptions::endpoints`].
    Endpoints(u16),
    /// [`HostOptions::wake_order`].
    WakeOrder(WakeOrder),
    /// [`HostOptions::batch_cap`].
    BatchCap(BatchCap),
}

impl HostSetting {
    /// Parses the value of the option with this name. `None` if no such option can be set by name.
    ///
    /// # Errors
    /// The permitted values, in words.
    pub fn read(name: &str, value: &str) -> Option<Result<HostSetting, String>> {
        Some(match name {
            "endpoints" => endpoints(value).map(HostSetting::Endpoints),
            "wake_order" => wake_order(value).map(HostSetting::WakeOrder),
            "batch_cap" => batch_cap(value).map(HostSetting::BatchCap),
            _ => return None,
        })
    }

    /// Sets the option to this value.
    pub fn apply(self, options: &mut HostOptions) {
        match self {
            HostSetting::Endpoints(count) => options.endpoints = count,
            HostSetting::WakeOrder(order) => options.wake_order = order,
            HostSetting::BatchCap(cap) => options.batch_cap = cap,
        }
    }
}

fn endpoints(text: &str) -> Result<u16, String> {
    let range = 1..=64;
    let count = text.trim().parse().ok().filter(|count| range.contains(count));
    count.ok_or_else(|| format!("`{text}` is not {} to {}", range.start(), range.end()))
}

/// Parses the name of a wake order.
///
/// # Errors
/// The names, in words.
pub fn wake_order(text: &str) -> Result<WakeOrder, String> {
    text.parse().map_err(|error: SteerError| error.to_string())
}

/// Parses the size of a receive batch, which must be within the drivers' range.
///
/// # Errors
/// The permitted range, in words.
pub fn batch_cap(text: &str) -> Result<BatchCap, String> {
    let max = homa_driver::BURST_PACKETS as u32;
    let cap = text.parse().ok().filter(|cap: &BatchCap| cap.packets() <= max);
    cap.ok_or_else(|| format!("use 1 to {max} packets"))
}

/// Serde functions for a cap as a number of packets.
mod packets {
    use homa_steer::batch::BatchCap;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(cap: &BatchCap, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(cap.packets())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BatchCap, D::Error> {
        BatchCap::new(u32::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_names_in_json_and_survive_it() {
        let mut options = HostOptions { link_mbps: Some(100), ..HostOptions::default() };
        for (name, value) in [("endpoints", "3"), ("wake_order", "least-recent"), ("batch_cap", "7")] {
            HostSetting::read(name, value).expect("an option").expect("a value").apply(&mut options);
        }
        let json = serde_json::to_string(&options).expect("JSON");
        let expected = r#"{"endpoints":3,"wake_order":"least-recent","batch_cap":7,"link_mbps":100}"#;
        assert_eq!(json, expected);
        let read: HostOptions = serde_json::from_str(&json).expect("options");
        assert_eq!(format!("{read:?}"), format!("{options:?}"));
        assert!(serde_json::from_str::<HostOptions>(&json.replace("least-recent", "last")).is_err());
        assert!(serde_json::from_str::<HostOptions>(&json.replace('7', "0")).is_err());
    }

    #[test]
    fn values_beyond_an_option_are_errors_and_other_names_are_no_options() {
        for (name, value) in [("endpoints", "65"), ("wake_order", "random"), ("batch_cap", "33")] {
            assert!(HostSetting::read(name, value).expect("an option").is_err(), "{name}");
        }
        assert!(HostSetting::read("poll_us", "1").is_none());
    }
}
