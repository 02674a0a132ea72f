//! Tests of async calls and servers: on tokio's runtimes, without a runtime, and with cancellation.

use std::future::Future;
use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use super::common::{Echo, PATIENCE, host, message, until_idle};
use homa::error::{CallError, RecvError};
use homa::{Bytes, Host, Server, ServerAddr};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn serve(server: Server) {
    loop {
        match server.recv().await {
            Ok(rpc) => {
                let answer = rpc.payload().clone();
                let _ = rpc.reply(answer);
            }
            Err(RecvError::Closed) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn thousand_calls(host: &Host, server_host: &Host) {
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let servers: Vec<_> = (0..4).map(|_| tokio::spawn(serve(server.clone()))).collect();
    let client = host.client().unwrap();
    let calls: Vec<_> = (0..1_000_u64)
        .map(|tag| {
            let client = client.clone();
            tokio::spawn(async move {
                let request = message(1 + (tag as usize * 13) % 4_000, tag);
                assert!(client.call(to, request.clone()).await.unwrap() == request);
            })
        })
        .collect();
    for call in calls {
        timeout(PATIENCE, call).await.expect("every call ends").unwrap();
    }
    for server in servers {
        server.abort();
    }
}

#[test]
fn a_thousand_calls_at_a_time_on_one_thread() {
    let (host, server_host) = (host(), host());
    one_thread().block_on(thousand_calls(&host, &server_host));
    until_idle(&host);
    until_idle(&server_host);
}

#[test]
fn a_thousand_calls_at_a_time_on_two_threads() {
    let (host, server_host) = (host(), host());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(thousand_calls(&host, &server_host));
    until_idle(&host);
    until_idle(&server_host);
}

#[test]
fn every_size_comes_back_to_the_byte() {
    let (echo, host) = (Echo::new(1), host());
    one_thread().block_on(async {
        let client = host.client().unwrap();
        for size in [1, 100, 100_000, 1_000_000] {
            let request = message(size, 1);
            assert!(client.call(echo.to, request.clone()).await.unwrap() == request);
        }
        let mut reader = client.call(echo.to, message(1_000_000, 2)).reader().unwrap();
        let mut read = Vec::new();
        while let Some(part) = reader.next_part().await.unwrap() {
            read.extend_from_slice(&part);
        }
        assert!(read == message(1_000_000, 2));
    });
    until_idle(&host);
}

#[test]
fn calls_that_are_dropped_leave_nothing() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ServerAddr::new(silent.local_addr().unwrap(), 99);
    let host = host();
    one_thread().block_on(async {
        let client = host.client().unwrap();
        for size in [1, 1_000_000] {
            let call = client.call(to, vec![1; size]);
            assert!(timeout(Duration::from_millis(2), call).await.is_err());
        }
    });
    until_idle(&host);
    assert_eq!(host.metrics().endpoint.rpcs_aborted, 2);
}

#[test]
fn a_receiver_that_is_dropped_loses_no_request() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    one_thread().block_on(async {
        let client = host.client().unwrap();
        for tag in 0..20 {
            assert!(timeout(Duration::from_micros(1), server.recv()).await.is_err());
            let call = tokio::spawn({
                let client = client.clone();
                async move { client.call(to, message(10, tag)).await }
            });
            let other = tokio::spawn({
                let server = server.clone();
                async move { timeout(PATIENCE, server.recv()).await.unwrap().unwrap() }
            });
            other.await.unwrap().reply("ok").unwrap();
            assert_eq!(call.await.unwrap().unwrap(), "ok");
        }
    });
}

#[test]
fn a_runtime_that_computes_keeps_its_client() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let handler = thread::spawn(move || {
        one_thread().block_on(async {
            let rpc = server.recv().await.unwrap();
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                std::hint::spin_loop();
            }
            rpc.reply("done").unwrap();
            // The runtime ends here, and its driver task with it. The answer is still delivered.
        });
        server_host
    });
    assert_eq!(host.client().unwrap().call(to, "compute").wait().unwrap(), "done");
    let server_host = handler.join().unwrap();
    assert!(server_host.metrics().endpoint.busys_sent > 0);
    assert_eq!(host.metrics().endpoint.rpcs_timed_out, 0);
    until_idle(&server_host);
}

#[test]
fn blocking_and_async_callers_share_a_client() {
    let (echo, host) = (Echo::new(1), host());
    let client = host.client().unwrap();
    let blocking = thread::spawn({
        let (client, to) = (client.clone(), echo.to);
        move || {
            for tag in 0..200 {
                assert!(client.call(to, message(100, tag)).wait().unwrap() == message(100, tag));
            }
        }
    });
    one_thread().block_on(async {
        for tag in 0..200 {
            assert!(client.call(echo.to, message(90, tag)).await.unwrap() == message(90, tag));
        }
    });
    blocking.join().unwrap();
    until_idle(&host);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn without_a_runtime_the_host_wakes_the_future() {
    let (echo, host) = (Echo::new(1), host());
    let client = host.client().unwrap();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut call = pin!(client.call(echo.to, "hello"));
    let response = loop {
        match call.as_mut().poll(&mut context) {
            Poll::Ready(response) => break response,
            Poll::Pending => thread::park(),
        }
    };
    assert_eq!(response, Ok(Bytes::from("hello")));
}

#[test]
fn a_runtime_without_drivers_is_served_by_the_host() {
    let (echo, host) = (Echo::new(1), host());
    let client = host.client().unwrap();
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        for tag in 0..3 {
            assert!(client.call(echo.to, message(100, tag)).await.unwrap() == message(100, tag));
        }
    });
}

#[test]
fn shutdown_ends_what_waits() {
    let (server_host, host) = (host(), host());
    let (_called, awaited) = (server_host.server(99).unwrap(), server_host.server(98).unwrap());
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let client = host.client().unwrap();
    one_thread().block_on(async {
        let receiver = tokio::spawn(async move { awaited.recv().await.map(|_| ()) });
        let call = tokio::spawn(async move { client.call(to, "x").await });
        tokio::task::yield_now().await;
        let closer = thread::spawn(move || (host.shutdown(PATIENCE), server_host.shutdown(PATIENCE)));
        assert_eq!(call.await.unwrap(), Err(CallError::Closed));
        assert_eq!(receiver.await.unwrap(), Err(RecvError::Closed));
        closer.join().unwrap();
    });
}

/// Returns a server that never answers, and the address of its port.
fn silent() -> (UdpSocket, ServerAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ServerAddr::new(socket.local_addr().unwrap(), 99);
    (socket, to)
}

#[test]
fn a_time_limit_ends_a_future_on_tokio() {
    let ((_silent, to), host) = (silent(), host());
    let timeout = Duration::from_millis(3);
    one_thread().block_on(async {
        let client = host.client().unwrap();
        for request in [vec![1; 10], vec![1; 1_000_000]] {
            let result = client.call(to, request).timeout(timeout).await;
            assert_eq!(result, Err(CallError::TimedOut { to, timeout }));
        }
        let mut reader = client.call(to, "x").reader().unwrap();
        let part = reader.next_part().timeout(timeout).await;
        assert_eq!(part, Err(CallError::TimedOut { to, timeout }));
    });
    until_idle(&host);
    assert_eq!(host.metrics().endpoint.rpcs_aborted, 3);
}

#[test]
fn a_time_limit_ends_a_future_without_a_runtime() {
    let ((_silent, to), host) = (silent(), host());
    let timeout = Duration::from_millis(3);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut call = pin!(host.client().unwrap().call(to, "hello").timeout(timeout));
    let result = loop {
        match call.as_mut().poll(&mut context) {
            Poll::Ready(result) => break result,
            Poll::Pending => thread::park(),
        }
    };
    assert_eq!(result, Err(CallError::TimedOut { to, timeout }));
    until_idle(&host);
}

#[test]
fn a_call_that_was_polled_can_be_waited_for() {
    let (echo, host) = (Echo::new(1), host());
    let client = host.client().unwrap();
    for timeout in [None, Some(PATIENCE)] {
        let mut call = client.call(echo.to, "hello");
        if let Some(timeout) = timeout {
            call = call.timeout(timeout);
        }
        let mut context = Context::from_waker(Waker::noop());
        // The call may already be answered here, but rarely is.
        match std::pin::Pin::new(&mut call).poll(&mut context) {
            Poll::Ready(result) => assert_eq!(result.unwrap(), "hello"),
            Poll::Pending => assert_eq!(call.wait().unwrap(), "hello"),
        }
    }
    until_idle(&host);
}

#[test]
fn a_time_limit_ends_the_wait_for_a_request() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let timeout = Duration::from_millis(2);
    one_thread().block_on(async {
        for limit in [Duration::ZERO, timeout] {
            assert_eq!(server.recv().timeout(limit).await.map(|_| ()), Err(RecvError::TimedOut));
        }
        // A limit that has not expired loses no request, and leaves no timer.
        let call = host.client().unwrap().call(to, "hello").start().unwrap();
        server.recv().timeout(PATIENCE).await.unwrap().reply("there").unwrap();
        assert_eq!(call.await.unwrap(), "there");
    });
    // Without a runtime, the host's background thread ends the wait.
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut recv = pin!(server.recv().timeout(timeout));
    loop {
        match recv.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => break assert_eq!(result.map(|_| ()), Err(RecvError::TimedOut)),
            Poll::Pending => thread::park(),
        }
    }
}
