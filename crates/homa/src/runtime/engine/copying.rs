//! The outgoing message that is copied while it is being sent.

use super::Engine;

impl Engine {
    /// Returns how many bytes of the message that is being copied have been sent. Returns `None` if no
    /// message is being copied any more, because the peer has all of it or the RPC has ended.
    pub(crate) fn sent_of_copying(&mut self) -> Option<u32> {
        let rpc = self.buffers.copying.as_ref()?.rpc;
        let info = self.endpoint.rpc_info(rpc)?;
        let answered = info.in_missing < info.in_length && self.buffers.call_of(rpc).is_some();
        if answered {
            // RECV-8: no part of the request will be requested again.
            self.buffers.drop_copying();
            return None;
        }
        Some(info.out_sent)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use homa_proto::{PayloadRange, RpcKey, Time};

    use super::*;
    use crate::payload::deferred_copy::{GatherList, Outgoing};
    use crate::runtime::calls::{CallOwner, CallTicket};
    use crate::runtime::engine::testing::engine;
    use crate::types::address::ServerAddr;

    /// Starts a call of half a megabyte to a host that has not received anything yet, and copies a part of
    /// it.
    fn begun(client: &mut Engine, server: &Engine, bytes: &'static [u8]) -> RpcKey {
        let to = ServerAddr::new(server.driver.local_addr(), 9);
        let port = client.open_client(Time::ZERO, None).unwrap();
        let port = (client.calls.clients[port].port, true);
        // SAFETY: the bytes are static.
        let request = Outgoing::GatherList(unsafe { GatherList::new(&[bytes]) });
        let owner = CallOwner::CallTicket(CallTicket::default());
        let call = client.start_call_from(Time::ZERO, port, to, request, owner, 0).unwrap();
        client.flush(Time::ZERO);
        assert!(client.buffers.copy_more());
        client.calls.open[call].rpc
    }

    #[test]
    fn what_the_peer_has_is_not_copied_to_the_end() {
        static BYTES: [u8; 500_000] = [3; 500_000];
        let (mut client, mut server) = (engine(), engine());
        server.endpoint.open_port(9).unwrap();
        let rpc = begun(&mut client, &server, &BYTES);
        assert!(client.sent_of_copying().is_some_and(|sent| 0 < sent && sent < 500_000));
        let answer = Bytes::from_static(&BYTES);
        // Time advances, so that RESENDs are sent for packets that a full queue dropped.
        let mut rounds = (1..100_000).map(|round| Time::from_ns(round * 20_000));
        let request = rounds.find_map(|now| {
            client.drive(now);
            server.receive(now);
            server.endpoint.handle_timeout(now);
            server.transmit_round(now);
            match server.endpoint.poll_event() {
                Some(homa_proto::Event::Request { rpc, .. }) => Some(rpc),
                _ => None,
            }
        });
        let (request, now) = (request.expect("it comes whole"), rounds.next().unwrap());
        assert_eq!(client.sent_of_copying(), Some(500_000), "it may have to be sent again");
        server.endpoint.send_response(now, request, answer.len() as u32).unwrap();
        server.buffers.set_outgoing(request, Outgoing::Whole(answer));
        server.flush(now);
        let begins = rounds.any(|now| {
            client.drive(now);
            client.endpoint.rpc_info(rpc).is_some_and(|info| info.in_length > 0)
        });
        assert!(begins, "its first packet comes");
        assert_eq!(client.sent_of_copying(), None);
        assert!(client.buffers.copying.is_none());
        let range = PayloadRange { rpc, offset: 0, len: 1 };
        assert_eq!((client.buffers.outgoing(&range), client.buffers.outgoing_bytes()), (None, 0));
        client.buffers.finish_copying();
        client.buffers.release(rpc);
        assert_eq!(client.buffers.outgoing_bytes(), 0);
    }

    #[test]
    fn a_call_that_ends_takes_its_copy_along() {
        static BYTES: [u8; 500_000] = [4; 500_000];
        let (mut client, server) = (engine(), engine());
        let rpc = begun(&mut client, &server, &BYTES);
        client.endpoint.abort(Time::ZERO, rpc);
        assert_eq!(client.sent_of_copying(), None);
        client.flush(Time::ZERO);
        assert!(client.buffers.copying.is_none());
        assert_eq!(client.buffers.outgoing_bytes(), 0);
    }
}
