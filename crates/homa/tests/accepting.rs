//! Tests of sockets that accept requests, and of sockets that do not.

use std::thread;

use super::common::hand::Hand;
use super::common::{PATIENCE, config, eventually, host, message, outcome, until_idle};
use homa::ServerAddr;
use homa::error::{CallError, HostError};
use homa::kernel_api::Arrival;

#[test]
fn requests_are_refused_where_they_are_not_wanted() {
    let (server, client) = (host(), host());
    let socket = server.socket(Some(7)).unwrap();
    let to = ServerAddr::new(server.local_addr(), 7);
    socket.accept_requests(false).unwrap();
    let refused = client.client().unwrap().call(to, "?").timeout(PATIENCE).wait();
    assert_eq!(refused, Err(CallError::NoSuchPort { to }));
    assert!(!socket.has_arrival());
    socket.accept_requests(true).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| match socket.recv(Some(PATIENCE)) {
            Ok(Arrival::Request { rpc, .. }) => rpc.reply("!").unwrap(),
            _ => panic!("a request was sent"),
        });
        assert_eq!(client.client().unwrap().call(to, "?").timeout(PATIENCE).wait().unwrap(), "!");
    });
}

#[test]
fn a_socket_with_a_client_port_accepts_requests_once_it_is_told_to() {
    let (here, there) = (config().endpoints(1).bind().unwrap(), host());
    let (socket, caller) = (here.socket(None).unwrap(), there.socket(None).unwrap());
    let to = ServerAddr::new(here.local_addr(), socket.port());
    let call = |tag| {
        caller.start(to, message(20_000, tag), tag, false).unwrap();
    };
    let refused = Err(CallError::NoSuchPort { to });
    call(0);
    assert_eq!(outcome(&caller).result, refused);
    for _ in 0..2 {
        socket.accept_requests(true).unwrap();
        call(1);
        // The socket still calls as before, and its requests and outcomes arrive in the same queue.
        let own = ServerAddr::new(there.local_addr(), caller.port());
        socket.start(own, message(100, 2), 2, false).unwrap();
        let (mut requests, mut outcomes) = (0, 0);
        while requests + outcomes < 2 {
            match socket.recv(Some(PATIENCE)).unwrap() {
                Arrival::Request { mut rpc, client_port, .. } => {
                    assert_eq!((rpc.port(), client_port), (socket.port(), caller.port()));
                    let request = rpc.take_payload();
                    rpc.reply(request).unwrap();
                    requests += 1;
                }
                Arrival::Outcome(outcome) => {
                    assert_eq!(outcome.result, Err(CallError::NoSuchPort { to: own }));
                    outcomes += 1;
                }
                Arrival::ReturnedReply(_) => panic!("nothing was lent"),
            }
        }
        let answered = outcome(&caller);
        assert_eq!((requests, answered.result), (1, Ok(message(20_000, 1))));
        socket.accept_requests(false).unwrap();
        call(3);
        assert_eq!(outcome(&caller).result, refused);
        assert!(!socket.has_arrival());
    }
    // The socket closes like a server: it delivers its answers, and then the port is free.
    socket.accept_requests(true).unwrap();
    call(4);
    let Ok(Arrival::Request { rpc, .. }) = socket.recv(Some(PATIENCE)) else { panic!("a request was sent") };
    socket.close();
    assert!(matches!(socket.accept_requests(true), Err(HostError::Closed)));
    drop(socket);
    rpc.reply("!").unwrap();
    assert_eq!(outcome(&caller).result, Ok("!".into()));
    until_idle(&here);
    call(5);
    assert_eq!(outcome(&caller).result, refused);
}

#[test]
fn where_there_are_several_endpoints_only_server_ports_accept_requests() {
    let host = config().endpoints(2).bind().unwrap();
    let socket = host.socket(None).unwrap();
    assert!(matches!(socket.accept_requests(true), Err(HostError::ClientPortOfSeveral { count: 2 })));
    socket.accept_requests(false).unwrap();
    let socket = host.socket(Some(7)).unwrap();
    socket.accept_requests(false).unwrap();
    let (other, to) = (self::host(), ServerAddr::new(host.local_addr(), 7));
    for _ in 0..8 {
        let refused = other.client().unwrap().call(to, "?").timeout(PATIENCE).wait();
        assert_eq!(refused, Err(CallError::NoSuchPort { to }));
    }
    drop(socket);
    eventually("the port is free", || host.server(7).is_ok());
}

#[test]
fn a_request_that_has_begun_to_arrive_is_received_though_no_more_are_wanted() {
    let host = config().endpoints(1).bind().unwrap();
    let (hand, socket) = (Hand::new(&host), host.socket(Some(9)).unwrap());
    let request = message(2_000, 1);
    hand.data(2, 9, &request, 0..1_000);
    eventually("it has begun", || host.metrics().host.open_rpcs > 0);
    socket.accept_requests(false).unwrap();
    hand.data(2, 9, &request, 1_000..2_000);
    let Ok(Arrival::Request { mut rpc, .. }) = socket.recv(Some(PATIENCE)) else { panic!("it came") };
    assert_eq!(rpc.take_payload(), request);
}

#[test]
fn a_port_that_is_taken_over_accepts_requests_whatever_its_last_owner_wanted() {
    // With several endpoints, only one of them would keep the port open.
    let host = config().endpoints(1).bind().unwrap();
    let hand = Hand::new(&host);
    let socket = host.socket(Some(9)).unwrap();
    hand.data(2, 9, b"?", 0..1);
    let Ok(Arrival::Request { rpc, .. }) = socket.recv(Some(PATIENCE)) else { panic!("there is a request") };
    socket.accept_requests(false).unwrap();
    drop(socket);
    // The client never acknowledges the answer, so the port stays open.
    rpc.reply("!").unwrap();
    let server = host.server(9).unwrap();
    hand.data(4, 9, b"?", 0..1);
    assert!(server.recv().timeout(PATIENCE).wait().is_ok());
}
