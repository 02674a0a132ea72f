//! Tests gRPC and QUIC through the interfaces that the bench uses.

use std::time::Duration;

use bytes::Bytes;

use super::*;

fn link(protocol: Protocol, threads: u16, one_way: bool, poll: Duration) -> Box<dyn Link> {
    let server = start(
        protocol,
        EchoServerConfig {
            bind: "127.0.0.1:0".parse().expect("an address"),
            ports: 2,
            threads,
            poll,
            max_message: 1 << 20,
            one_way,
        },
    )
    .expect("a server on any port");
    let servers = server.addrs().to_vec();
    connect(protocol, &PeerLinkConfig { servers, ports: 2, poll, max_message: 1 << 20 })
        .expect("the server is there")
}

/// Checks that many short and long messages, sent at once, are answered once each with their content.
fn check_all_come_back(mut link: Box<dyn Link>, one_way: bool) {
    crate::engine::link::check_all_come_back(&mut *link, 8, one_way);
}

#[test]
fn all_come_back_sleeping_and_polling() {
    for protocol in [Protocol::Grpc, Protocol::Quic] {
        check_all_come_back(link(protocol, 1, false, Duration::ZERO), false);
        check_all_come_back(link(protocol, 1, false, Duration::from_millis(1)), false);
    }
}

#[test]
fn servers_of_several_threads_and_short_answers() {
    for protocol in [Protocol::Grpc, Protocol::Quic] {
        check_all_come_back(link(protocol, 2, true, Duration::from_micros(50)), true);
    }
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    let addr = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("any port");
        socket.local_addr().expect("bound")
    };
    let config = PeerLinkConfig { servers: vec![addr], ports: 1, poll: Duration::ZERO, max_message: 1 };
    let Err(error) = connect(Protocol::Grpc, &config) else { panic!("nobody listens there") };
    assert!(format!("{error:#}").contains(&addr.to_string()), "{error:#}");
}

#[test]
fn a_request_above_the_limit_is_refused_and_the_next_is_not() {
    for protocol in [Protocol::Grpc, Protocol::Quic] {
        let mut link = link(protocol, 1, false, Duration::ZERO);
        link.submit(0, 0, 1, Bytes::from(vec![1; 2 << 20])).expect("taken");
        link.submit(0, 0, 2, Bytes::from_static(b"short")).expect("taken");
        let mut answers = Vec::new();
        while answers.len() < 2 {
            link.receive(Duration::from_millis(100), &mut answers).expect("connections hold");
        }
        for answer in answers {
            assert_eq!(answer.result.is_ok(), answer.cookie == 2, "{}", protocol.name());
        }
    }
}
