//! Messages larger than the kernel's limit, and messages that are read while they arrive.

use super::common::{self, Answer, Peer, call, config, network, settle};
use homa_proto::{CallOptions, SEC};
use homa_sim::{FaultProfile, Network, Reply};

#[test]
fn messages_above_a_megabyte_pass_between_own_peers() {
    let mut config = config(1, 2);
    config.check_every = 500;
    config.capture = false;
    config.protocol.max_message = 100_000_000;
    let mut network = network(config);
    call(&mut network, 0, 1, 1, 20_000_000);
    settle(&mut network, 10 * SEC);
    assert_eq!(network.host(0).app().responses[0].2, 20_000_000);
    let took_ns = network.host(0).app().answered_at(1).as_ns();
    // 20 MB at 25 Gbit/s with headers take 6.95 ms, and 13.9 ms in both directions.
    assert!(took_ns < 16_000_000, "{took_ns} ns: the link was not kept busy");
}

#[test]
fn a_large_response_is_readable_while_it_arrives() {
    const LENGTH: u32 = 700_000;
    const STEP: u32 = 50_000;
    for faults in [FaultProfile::default(), FaultProfile::uniform(0.05)] {
        let mut network = Network::new(config(1, 2), |_| Peer::new(Answer::Fixed(Reply::Now(LENGTH))));
        network.set_faults(faults);
        let options = CallOptions { cookie: 9, readable_step: STEP, ..CallOptions::default() };
        network.act(0, |_, host| host.call(1, common::PORT, 100, options)).unwrap().unwrap();
        settle(&mut network, 10 * SEC);
        let client = network.host(0).app();
        assert_eq!(client.cookies(), [9]);
        let ends: Vec<u32> = client.readable.iter().map(|&(_, _, end)| end).collect();
        assert!(ends.first().is_some_and(|end| (STEP..LENGTH / 2).contains(end)), "{ends:?}");
        assert!(ends.windows(2).all(|pair| pair[1] >= pair[0] + STEP || pair[1] == LENGTH), "{ends:?}");
        assert!(ends.len() as u32 <= LENGTH / STEP + 1, "{ends:?}");
        assert!(client.readable.iter().all(|readable| readable.1 == 9));
    }
}
