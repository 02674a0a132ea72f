//! SHARE: what one peer may take while others ask.

use homa_proto::wire::PacketType;
use homa_proto::{Config, MS, RpcKey};

use super::kit::{Sent, Side, addr, kernel};

/// Payload bytes of the DATA packets among `sent`.
fn payload(sent: &[Sent]) -> u64 {
    sent.iter().map(|sent| u64::from(sent.packet.payload_len)).sum()
}

/// A request of kernel `n` with the id `id`, answered with `length` bytes, all of which have been sent.
fn answered(server: &mut Side, n: u8, id: u64, length: u32) -> RpcKey {
    server.hear(addr(n), &kernel(n).whole(id, 100));
    let rpc = server.requests()[0];
    server.respond(rpc, length);
    server.hear(addr(n), &kernel(n).grant(id, length, 0));
    assert_eq!(payload(&server.take()), u64::from(length));
    rpc
}

/// SHARE-4: 37 bytes brought 900,000 again and again.
#[test]
fn a_peer_that_asks_again_and_again_gets_a_bounded_number_of_bytes() {
    let mut server = Side::new(1, Config::default());
    answered(&mut server, 2, 2, 900_000);
    let mut again = 0;
    for _ in 0..200 {
        server.hear(addr(2), &kernel(2).resend(2, 0, None));
        again += payload(&server.take());
    }
    assert!(again >= 400_000, "what may be on its way is sent again at once: {again}");
    assert!(again <= 900_000, "{again} bytes for 200 RESENDs of 37");
    assert!(server.stats().resends_over_budget > 0);
    let later = server.pass(10 * MS);
    assert_eq!(payload(&later), 0, "what was refused must be asked for again");
    server.hear(addr(2), &kernel(2).resend(2, 0, Some(5_000)));
    assert_eq!(payload(&server.take()), 5_000, "time refills the budget, so that all ends well");
}

/// SHARE-4.
#[test]
fn bytes_delivered_refill_the_budget_for_those_sent_again() {
    let mut server = Side::new(1, Config::default());
    answered(&mut server, 2, 2, 900_000);
    let ask = |server: &mut Side, id| {
        server.hear(addr(2), &kernel(2).resend(id, 0, None));
        payload(&server.take())
    };
    (0..100).for_each(|_| _ = ask(&mut server, 2));
    assert_eq!(ask(&mut server, 2), 0);
    server.hear(addr(2), &kernel(2).ack(2, &[]));
    answered(&mut server, 2, 4, 300_000);
    assert!(ask(&mut server, 4) >= 295_000);
}

/// SHARE-5: they went before all other bytes of all peers.
#[test]
fn bytes_sent_again_wait_for_shorter_messages() {
    let mut server = Side::new(1, Config::default());
    answered(&mut server, 2, 2, 300_000);
    server.hear(addr(3), &kernel(3).whole(2, 100));
    let short = server.requests()[0];
    server.hear(addr(2), &kernel(2).resend(2, 0, None));
    server.respond(short, 20_000);
    let data: Vec<Sent> = server.take().into_iter().filter(|sent| sent.is(PacketType::Data)).collect();
    let first_long = data.iter().position(|sent| sent.to == addr(2)).unwrap();
    let last_short = data.iter().rposition(|sent| sent.to == addr(3)).unwrap();
    assert!(last_short < first_long, "{first_long} {last_short}");
    assert_eq!(payload(&data), 320_000);
}
