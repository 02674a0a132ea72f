//! The protocols that are compared.

use serde::{Deserialize, Serialize};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// A protocol that the bench compares.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    EnumMessage,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Protocol {
    /// Homa, over the driver of --driver
    Homa,
    /// TCP as a careful user would write it
    Tcp,
    /// gRPC by tonic
    Grpc,
    /// QUIC by quinn, a stream for each RPC
    Quic,
    /// Bare packets over the driver of --driver, one per message if it fits, without a protocol: the raw
    /// baseline
    Udp,
}

impl Protocol {
    /// All protocols, in the order of the tables.
    pub const ALL: [Protocol; 5] =
        [Protocol::Homa, Protocol::Tcp, Protocol::Grpc, Protocol::Quic, Protocol::Udp];

    /// Returns the name on the command line and in results.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the display name.
    pub fn title(self) -> &'static str {
        match self {
            Protocol::Homa => "Homa",
            Protocol::Tcp => "TCP",
            Protocol::Grpc => "gRPC",
            Protocol::Quic => "QUIC",
            Protocol::Udp => "bare UDP",
        }
    }

    /// Returns the offset of this protocol's first port number from Homa's. Protocols over the same IP
    /// protocol use different port numbers.
    pub fn port_offset(self) -> u16 {
        match self {
            Protocol::Homa | Protocol::Tcp => 0,
            Protocol::Grpc | Protocol::Udp => 1000,
            Protocol::Quic => 2000,
        }
    }
}
