//! Transports for a [`Cluster`](crate::Cluster), one per file, behind one trait.

mod basic;
pub(crate) mod choice;
mod dctcp;
pub(crate) mod homa;
pub(crate) mod interface;
pub(crate) mod oracle;
mod parts;
mod pfabric;
mod stream;
mod tcp;

pub use basic::{Basic, BasicConfig, SenderOrder};
pub use choice::TransportConfig;
pub use dctcp::{Dctcp, MarkedShare};
pub use homa::{Homa, HomaConfig};
pub use interface::{Ctx, Transport};
pub use oracle::OracleConfig;
pub use pfabric::{Pfabric, PfabricConfig};
pub use stream::{Acked, Congestion, Connections, Stream, TcpConfig};
pub use tcp::{Cubic, Tcp};
