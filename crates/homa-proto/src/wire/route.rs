//! Determines which of the endpoints behind one address a packet concerns.

use zerocopy::FromBytes;

use super::decode::decode;
use super::packet::{Body, PacketType};
use super::raw::{CommonHeader, DataHeader};

/// Returns the endpoint, of `endpoints` behind one address, that owns the RPC with this id. The result is the
/// same for both directions, whose ids differ in bit 0. It depends only on the lower half of the id, because
/// a kernel filter program cannot compute with 64 bits.
///
/// # Panics
/// `endpoints` is 0.
#[must_use]
pub const fn owner_of(rpc_id: u64, endpoints: u32) -> u32 {
    (rpc_id as u32 >> 1) % endpoints
}

/// The endpoints that a packet concerns; see [`route`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// The endpoint that owns the packet's RPC and receives the packet.
    pub owner: u32,
    /// One bit for each other endpoint that the packet also concerns, because of its acknowledgements,
    /// cutoffs or FREEZE. These endpoints need only the packet's header
    /// ([`handle_foreign`](crate::Endpoint::handle_foreign)).
    pub others: u64,
}

/// Returns which of `endpoints` endpoints (1 to 64) a packet concerns. `bytes` begins with the packet's
/// header. Bytes that are not a packet belong to the first endpoint.
///
/// # Panics
/// `endpoints` is 0.
#[must_use]
pub fn route(bytes: &[u8], endpoints: u32) -> Route {
    let Ok((common, _)) = CommonHeader::ref_from_prefix(bytes) else { return Route::default() };
    let owner = owner_of(common.sender_id.get(), endpoints);
    let bit = |id| 1_u64 << owner_of(id, endpoints);
    let others = match PacketType::try_from(common.kind) {
        Ok(PacketType::Data) => match DataHeader::ref_from_prefix(bytes) {
            Ok((data, _)) if data.ack.client_id.get() != 0 => bit(data.ack.client_id.get()),
            _ => 0,
        },
        Ok(PacketType::Ack) => match decode(bytes, bytes.len()).map(|packet| packet.body) {
            Ok(Body::Ack(acks)) => acks.iter().fold(0, |bits, ack| bits | bit(ack.client_id)),
            _ => 0,
        },
        Ok(PacketType::Cutoffs | PacketType::Freeze) => u64::MAX >> (64 - endpoints.min(64)),
        _ => 0,
    };
    Route { owner, others: others & !(1 << owner) }
}

#[cfg(test)]
mod tests {
    use super::super::encode::{HeaderBuf, encode};
    use super::super::incarnation::Incarnation;
    use super::super::packet::{Ack, AckList, Common, Cutoffs, Data};
    use super::*;

    fn bytes(sender_id: u64, body: &Body) -> HeaderBuf {
        let incarnation = Incarnation::NONE;
        encode(&Common { source_port: 1, dest_port: 2, sender_id, incarnation, bundle_endpoints: 0 }, body)
    }

    fn data(ack: Option<u64>) -> Body {
        Body::Data(Data {
            message_length: 100,
            incoming: 100,
            ack: ack.map(|client_id| Ack { client_id, server_port: 9 }),
            cutoff_version: 1,
            retransmit: false,
            response_limit: None,
            offset: 0,
        })
    }

    #[test]
    fn a_packet_is_its_rpcs_owners_and_what_rides_along_is_others() {
        let of = |sender_id, body| {
            let route = route(bytes(sender_id, &body).as_slice(), 4);
            (route.owner, route.others)
        };
        assert_eq!((of(10, data(None)), of(11, data(None))), ((1, 0), (1, 0)), "both directions");
        assert_eq!(of(10, data(Some(12))), (1, 1 << 2));
        assert_eq!(of(10, data(Some(18))), (1, 0), "its own");
        let mut acks = AckList::new();
        for client_id in [10, 14, 12, 20] {
            acks.push(Ack { client_id, server_port: 9 });
        }
        assert_eq!(of(8, Body::Ack(acks)), (0, 0b1110));
        let cutoffs = Cutoffs { cutoffs: [0; 8], version: 1, unsched_limit: None };
        assert_eq!(of(13, Body::Cutoffs(cutoffs)), (2, 0b1011));
        assert_eq!((of(9, Body::Freeze), of(9, Body::Busy)), ((0, 0b1110), (0, 0)));
    }

    #[test]
    fn with_one_endpoint_nothing_is_anybody_elses_and_what_is_no_packet_is_the_firsts() {
        assert_eq!(route(bytes(10, &Body::Freeze).as_slice(), 1), Route::default());
        for length in 0..28 {
            assert_eq!(route(&[0xff; 28][..length], 64), Route::default());
        }
        assert_eq!(route(bytes(10, &data(Some(12))).as_slice(), 64).others, 1 << 6);
        assert_eq!(route(bytes(0x7f, &Body::Freeze).as_slice(), 64).others, u64::MAX >> 1);
    }
}
