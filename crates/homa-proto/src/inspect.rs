//! State of one RPC, for programs and tools that inspect its progress.

use std::net::SocketAddr;

use crate::rpc::Rpc;

/// Progress of one RPC on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcInfo {
    /// The RPC's id: even on the client, odd on the server.
    pub id: u64,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Homa port at the peer.
    pub peer_port: u16,
    /// Bytes of the outgoing message; 0: there is none yet.
    pub out_length: u32,
    /// Bytes of the outgoing message that have been sent at least once.
    pub out_sent: u32,
    /// Bytes of the outgoing message that the peer has permitted us to send so far.
    pub out_granted: u32,
    /// Priority of scheduled packets of the outgoing message.
    pub out_priority: u8,
    /// Bytes of the incoming message; 0: nothing of it has arrived.
    pub in_length: u32,
    /// Bytes of the incoming message that are missing.
    pub in_missing: u32,
    /// Bytes of the incoming message that the peer may send so far.
    pub in_granted: u32,
    /// Number of gaps: missing ranges that precede a received byte.
    pub in_gaps: u32,
    /// Bytes in these gaps.
    pub in_gap_bytes: u32,
}

impl RpcInfo {
    pub(crate) fn of(rpc: &Rpc, peer: SocketAddr) -> RpcInfo {
        let (out, incoming) = (&rpc.outgoing, &rpc.incoming);
        let gaps = incoming.gaps.missing();
        let in_gap_bytes: u32 = gaps.iter().map(|gap| gap.end - gap.start).sum();
        RpcInfo {
            id: rpc.id,
            peer,
            peer_port: rpc.peer_port,
            out_length: out.length,
            out_sent: out.next,
            out_granted: out.granted,
            out_priority: out.sched_priority,
            in_length: incoming.length,
            in_missing: incoming.length - incoming.received,
            in_granted: incoming.granted,
            in_gaps: gaps.len() as u32,
            in_gap_bytes,
        }
    }
}
