//! Reasons for which all RPCs of a peer end together, and the event that reports the end of each RPC.

use crate::contract::{DoneReason, RpcError};

/// Why all RPCs of a peer's earlier epoch end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncarnationEnd {
    Restarted,
    Unreachable,
    /// The machine does not support the protocol.
    NoHoma,
}

impl IncarnationEnd {
    pub(crate) fn client_error(self) -> RpcError {
        match self {
            IncarnationEnd::Restarted => RpcError::PeerRestarted,
            IncarnationEnd::Unreachable => RpcError::Unreachable,
            IncarnationEnd::NoHoma => RpcError::ProtocolUnreachable,
        }
    }

    pub(crate) fn server_reason(self) -> DoneReason {
        match self {
            IncarnationEnd::Restarted => DoneReason::ClientRestarted,
            IncarnationEnd::Unreachable | IncarnationEnd::NoHoma => DoneReason::ClientSilent,
        }
    }
}
