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
//! An operation that can take time returns an object named after the operation: [`Call`], [`Recv`],
//! [`RecvCompletion`], or a message part of [`reader`]. A thread calls `wait()` on the object, and a task
//! awaits it. Calling `timeout(Duration)` first limits either wait. The limit counts from the start of the
//! wait or from the first poll; a limit of zero only polls. ([`RecvCompletion`] is for threads only: tasks
//! await calls.)
//!
//! | to | use |
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
//! A [`Call`] is lazy, like a future: nothing is sent until the call is waited for, polled, started or read.
//! A blocking round trip therefore takes the host's lock once, both to start the call and to wait.
//!
//! # Cancel safety
//!
//! Dropping a future or a handle has the following effect:
//!
//! | dropped | effect |
//! |---|---|
//! | [`Call`] not started | nothing was sent |
//! | [`Call`] in flight, [`reader::ResponseReader`] | the call is aborted; the server may still execute the request, but its response is dropped |
//! | [`Recv`], [`RecvCompletion`] | none: no request is lost; a request for which the task was woken goes to the next task or thread |
//! | [`reader::ResponsePart`], [`reader::RequestPart`] | none: no bytes are lost; the next part begins where the previous part ended |
//! | [`Request`] unanswered, [`reader::RequestReader`], [`reader::WholeRequest`] | the request is given up; its client gets an error |
//! | last [`Client`] of a port | its submitted calls are aborted; a [`Call`] keeps the port open |
//! | last [`Server`] of a port | requests not yet received are given up; answers are delivered, then the port is free |
//! | [`Host`] | new calls and requests are refused; answers are delivered for at most [`HostConfig::linger`] |
//!
//! [`Recv`] and the parts of a message can therefore be used in any branch of `tokio::select!`, even if the
//! branch loses. So can a call, but if its branch loses, the call is aborted: to continue the call, poll
//! `&mut call`. An expired time limit has the same effect as dropping: a call is aborted, and a part can be
//! read again.
//!
//! # Wake-up guarantees
//!
//! - Each request wakes one waiting thread or task, and each completion wakes one thread. If the woken thread
//!   or task does not take the item, because its future was dropped, the next one is woken.
//! - A call wakes only the thread or task that waits for it.
//! - Wakers are called without holding the host's lock, so a waker may call any function of this library.
//! - If a future is polled with several wakers, only the last is called.
//! - The order in which waiting threads and tasks are woken is [`HostConfig::wake_order`].
//! - A future makes progress without being polled: the task or thread that drives the network receives,
//!   sends, acknowledges and enforces time limits.
//! - A time limit ends a blocking wait on time. It wakes a future when the network is next driven, at most
//!   one tick of the background thread later: one millisecond, or up to ten on links below 100 Mbit/s.
//! - [`Host::shutdown`] wakes all waiting threads and tasks with an error that names the cause.
//!
//! # Who drives the network
//!
//! No extra thread sits between an application and the network. A thread that waits for a [`Call`], a
//! [`Recv`] or a [`RecvCompletion`] receives and sends packets itself. It spins for [`HostConfig::poll`],
//! then sleeps in the kernel until a packet arrives. If several threads wait, one is the leader and drives
//! the network. The followers sleep, and are woken in the order of [`HostConfig::wake_order`]. A thread that
//! starts a send while another thread waits transmits its own packets itself. Futures are driven by a task on
//! their own tokio runtime, which must have its I/O and time drivers enabled. Without such a runtime, or
//! without the feature `tokio`, the background thread drives them.
//!
//! If no thread waits because all threads of the application are computing, a background thread (the progress
//! thread) takes over within a millisecond. On links below 100 Mbit/s it takes over within the serialization
//! delay of eight full packets, 10 ms at most. The progress thread informs peers that their requests are
//! being processed, receives requests for bound servers, and sends acknowledgements. It sleeps in the kernel
//! while there is nothing to do.
//!
//! # What is bounded
//!
//! Everything that can grow because of a peer or a caller has a limit in [`HostConfig`] or in
//! [`protocol`](HostConfig::protocol). At a limit, a caller gets an error that names the setting, while a
//! peer's packet is dropped and counted: see [`Host::metrics`]. [`Host::peers`] returns the values that the
//! host has measured and chosen for each peer.
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
//! to other languages. It consists of a shared library, a static library, `homa.pc`, and `homa.h`, which
//! describes each function. `make -C bindings/c install` installs them, and `bindings/c/examples` has a
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

/// Readers of messages that are still arriving, for both sides.
pub mod reader {
    pub use crate::api::request_reader::{RequestPart, RequestReader, WholeRequest};
    pub use crate::api::response_reader::{ResponsePart, ResponseReader};
    pub use crate::types::early::EarlyDelivery;
}

/// Counters and measurements of a host, and its knowledge of each peer: [`Host::metrics`], [`Host::peers`].
pub mod metrics {
    pub use homa_proto::PeerInfo;

    pub use crate::observe::metrics::{HostCounts, Metrics};
    pub use crate::observe::prometheus;
    pub use crate::observe::times::{Times, TimesBySize};
}
