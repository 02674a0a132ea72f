//! Homa for applications: remote procedure calls whose tail latency stays flat under load.
//!
//! A [`Host`] is this machine's end of the network: one address, and the protocol's state for all traffic
//! through that address. [`Host::client`] opens a [`Client`], which makes calls. [`Host::server`] opens a
//! [`Server`], which answers requests. Both can be cloned, and any number of threads, blocking or async, can
//! use them at once.
//!
//! A server:
//!
//! ```
//! use homa::{Host, ServerAddr};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let host = Host::builder().address("127.0.0.1:0".parse()?).bind()?;
//!     let server = host.server(ServerAddr::DEFAULT_PORT)?;
//! #   let to = ServerAddr::new(host.local_addr(), server.port());
//! #   let one_call = std::thread::spawn(move || {
//! #       let host = Host::builder().bind().unwrap();
//! #       assert_eq!(host.client().unwrap().call(to, "hello").wait().unwrap(), "hello");
//! #   });
//!     loop {
//!         let mut request = server.recv().wait()?;
//!         let answer = request.take_payload(); // an echo
//!         request.reply(answer)?;
//! #       break;
//!     }
//! #   host.shutdown(std::time::Duration::from_secs(1));
//! #   one_call.join().unwrap();
//! #   Ok(())
//! }
//! ```
//!
//! A client:
//!
//! ```
//! use homa::{Host, ServerAddr};
//! use std::time::Duration;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let echo_host = Host::builder().address("127.0.0.1:0".parse()?).bind()?;
//! #   let server = echo_host.server(99)?;
//! #   let text = format!("{}/99", echo_host.local_addr());
//! #   let echo = std::thread::spawn(move || server.recv().wait().unwrap().reply("hello").unwrap());
//!     let host = Host::builder().bind()?;
//!     let client = host.client()?;
//! #   let address = &text;
//!     let to: ServerAddr = address.parse()?; // such as "10.0.0.7:14600/99": UDP address / Homa port
//!     let answer = client.call(to, "hello").timeout(Duration::from_secs(1)).wait()?;
//!     assert_eq!(answer, "hello");
//! #   echo.join().unwrap();
//!     Ok(())
//! }
//! ```
//!
//! # One way for each operation
//!
//! An operation that can take time is an object named after it: [`Call`], [`Recv`], [`RecvCompletion`], and
//! the parts of a message in [`reader`]. A thread waits for it by `wait()`, a task awaits it, and either has
//! a time limit if `timeout(Duration)` is called before. A limit counts from the start of the wait or from
//! the first poll; zero only polls. ([`RecvCompletion`] is for threads alone: tasks await calls.)
//!
//! | act | way |
//! |---|---|
//! | make a host | [`Host::builder`], a setter for each option of [`HostConfig`], [`HostBuilder::bind`] |
//! | call a server | [`Client::call`] |
//! | have several calls in flight | [`Call::start`] |
//! | have many calls in flight in one thread | [`Client::completions`] |
//! | read a response while it arrives | [`Call::reader`] |
//! | receive requests | [`Server::recv`]; [`Recv::wait_batch`] for short handlers |
//! | answer | [`Request::reply`]; [`Request::reply_all`] after a batch |
//! | read a request while it arrives | [`Server::early`], [`Request::reader`] |
//!
//! A [`Call`] is lazy, as futures are: nothing is sent before it is waited for, polled, started or read. A
//! blocking round trip therefore takes the host's lock once for starting the call and for waiting.
//!
//! # Cancel safety
//!
//! Dropping a future, or a handle, has these effects:
//!
//! | dropped | effect |
//! |---|---|
//! | [`Call`] not started | nothing was sent |
//! | [`Call`] in flight, [`reader::ResponseReader`] | the call is aborted; the server may run the request, and its response is dropped |
//! | [`Recv`], [`RecvCompletion`] | none: no request is lost, and one for which the task was woken goes to the next task or thread |
//! | [`reader::ResponsePart`], [`reader::RequestPart`] | none: no bytes are lost, and the next part begins where the last one ended |
//! | [`Request`] unanswered, [`reader::RequestReader`], [`reader::WholeRequest`] | the request is given up; its client gets an error |
//! | last [`Client`] of a port | its submitted calls are aborted; a [`Call`] keeps the port open |
//! | last [`Server`] of a port | untaken requests are given up; answers are delivered, then the port is free |
//! | [`Host`] | new calls and requests are refused; answers are delivered for at most [`HostConfig::linger`] |
//!
//! [`Recv`] and the parts of a message can therefore stand in a branch of `tokio::select!` that loses. A call
//! can, too, but then it is aborted: to go on with it, poll `&mut call`. A time limit that passes has the
//! effect of dropping: a call is aborted, and a part can be read again.
//!
//! # Wake-up guarantees
//!
//! - Each request wakes one thread or task that waits for it, and each completion one thread. If the woken
//!   one does not take it, because its future was dropped, the next is woken.
//! - A call wakes the thread or task that waits for it, and no other.
//! - Wakers are called without the host's lock: a waker may call any function of this library.
//! - Of the wakers that polls of one future leave, only the last is called.
//! - The order in which waiting threads and tasks are woken is [`HostConfig::wake_order`].
//! - A future makes progress without being polled: the task or thread that drives the network receives,
//!   sends, acknowledges and keeps time limits.
//! - A time limit ends a blocking wait in time. It wakes a future when the network is driven next, at the
//!   latest a tick of the background thread later: a millisecond, and up to ten on links below 100 Mbit/s.
//! - [`Host::shutdown`] wakes all waiting threads and tasks with an error that names the cause.
//!
//! # Who drives the network
//!
//! No extra thread stands between an application and the network. A thread that waits for a [`Call`], a
//! [`Recv`] or a [`RecvCompletion`] receives and sends packets itself. It spins for
//! [`HostConfig::poll`], then sleeps in the kernel until a packet arrives. If several threads wait, one is
//! the leader and drives the network. The followers sleep, and are woken in the order of
//! [`HostConfig::wake_order`]. A thread that sends while another thread waits also sends its own packets.
//! Futures use a task on their own tokio runtime, which must have its I/O and time drivers enabled. Without
//! such a runtime, or without the feature `tokio`, the background thread drives for them.
//!
//! If no thread waits, because all threads of the application compute, a background thread (the progress
//! thread) takes over. It notices within a millisecond. Below 100 Mbit/s it notices within the time of eight
//! full packets, 10 ms at most. It tells peers that their requests are being worked on, receives requests for
//! bound servers, and sends acknowledgements. It sleeps in the kernel while there is nothing to do.
//!
//! # What is bounded
//!
//! Everything that a peer or a caller can make grow has a limit in [`HostConfig`] or in
//! [`protocol`](HostConfig::protocol). At a limit, a caller gets an error that names the setting, and a
//! peer's packet is dropped and counted: see [`Host::metrics`]. [`Host::peers`] returns what the host
//! measured and chose for each peer.
//!
//! # Features
//!
//! | feature | default | content |
//! |---|---|---|
//! | `tokio` | yes | a task of the application's tokio runtime drives the network for futures |
//! | `kernel-api` | no | `kernel_api`: sockets with the semantics of Linux Homa, for homa-preload and libhoma |
//!
//! # From C and C++
//!
//! libhoma (`bindings/c`, the package `homa-c`) offers hosts, and sockets with the semantics of Linux Homa,
//! to other languages. It consists of a shared and a static library, of `homa.h`, which describes each
//! function, and of `homa.pc`. `make -C bindings/c install` installs them, and `bindings/c/examples` has a
//! client and a server in C.

#![deny(unsafe_op_in_unsafe_fn, missing_debug_implementations)]

mod api;
#[cfg(feature = "kernel-api")]
pub mod kernel_api;
#[cfg(doctest)]
mod misuse;
mod observe;
#[cfg_attr(
    not(feature = "kernel-api"),
    allow(dead_code, reason = "messages that are lent, or copied while they are sent, are those of sockets")
)]
mod payload;
mod runtime;
mod tenancy;
mod types;

pub use api::builder::{DriverChoice, HostBuilder, HostConfig};
pub use api::call::Call;
pub use api::client::Client;
pub use api::completions::{Completion, CompletionQueue, RecvCompletion};
pub use api::host::Host;
pub use api::recv::Recv;
pub use api::request::Request;
pub use api::server::Server;
pub use bytes::Bytes;
pub use homa_driver as driver;
pub use homa_proto as proto;
pub use homa_steer as steer;
pub use homa_trace as trace;
pub use types::address::ServerAddr;
pub use types::error;

/// Messages that are read while they arrive, on both sides.
pub mod reader {
    pub use crate::api::request_reader::{RequestPart, RequestReader, WholeRequest};
    pub use crate::api::response_reader::{ResponsePart, ResponseReader};
    pub use crate::types::early::EarlyDelivery;
}

/// What a host counts, measures and knows of its peers: [`Host::metrics`], [`Host::peers`].
pub mod metrics {
    pub use homa_proto::PeerInfo;

    pub use crate::observe::metrics::{HostCounts, Metrics};
    pub use crate::observe::prometheus;
    pub use crate::observe::times::{Times, TimesBySize};
}
