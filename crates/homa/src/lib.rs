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
//! use homa::{Host, HostConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::builder().address("127.0.0.1:0".parse()?).bind()?;
//! let server = host.server(homa::DEFAULT_SERVER_PORT)?;
//! # let echo_host = host.local_addr();
//! # let one_call = std::thread::spawn(move || {
//! #     let host = Host::builder().bind().unwrap();
//! #     let to = homa::ServerAddr { host: echo_host, port: homa::DEFAULT_SERVER_PORT };
//! #     assert_eq!(host.client().unwrap().call(to, "hello").wait().unwrap(), "hello");
//! # });
//! loop {
//!     let rpc = server.recv()?;
//!     let answer = rpc.request().clone();
//!     rpc.reply(answer)?;
//! #   break;
//! }
//! # host.shutdown(std::time::Duration::from_secs(1));
//! # one_call.join().unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! A client:
//!
//! ```
//! use homa::{Host, HostConfig, ServerAddr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let echo_host = Host::builder().address("127.0.0.1:0".parse()?).bind()?;
//! # let server = echo_host.server(99)?;
//! # let text = format!("{}/99", echo_host.local_addr());
//! # let echo = std::thread::spawn(move || {
//! #     let rpc = server.recv().unwrap();
//! #     rpc.reply("hello").unwrap();
//! # });
//! let host = Host::builder().bind()?;
//! let client = host.client()?;
//! # let address = &text;
//! let to: ServerAddr = address.parse()?; // such as "10.0.0.7:14600/99": UDP address / Homa port
//! let answer = client.call(to, "hello").wait()?;
//! assert_eq!(answer, "hello");
//! # echo.join().unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! # Who drives the network
//!
//! No extra thread stands between an application and the network. A thread that waits in [`Call::wait`],
//! [`Server::recv`] or [`RecvCompletion::wait`] receives and sends packets itself. It spins for
//! [`HostConfig::poll`], then sleeps in the kernel until a packet arrives. If several threads wait, one is
//! the leader and drives the network. The followers sleep, and are woken in the order of
//! [`HostConfig::wake_order`]. A thread that sends while another thread waits also sends its own packets.
//! Async callers use a task on their own runtime, which must have its I/O and time drivers enabled.
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
//! # From C and C++
//!
//! libhoma (`bindings/c`, the package `homa-c`) offers [`Host`] and [`Socket`] to other languages. It
//! consists of a shared and a static library, of `homa.h`, which describes each function, and of `homa.pc`.
//! `make -C bindings/c install` installs them.
//!
//! `homa_host_open` is [`Host::bind`]; its settings have the names of `homa serve`'s options. `homa_call`,
//! `homa_start` and `homa_receive` are [`Socket::start`], [`Socket::start_deadline`] and [`Socket::recv`].
//! `homa_reply` is [`Request::reply`], and `homa_socket_fd` is a [`ReadinessFd`]. A message stays in its receive
//! buffer until `homa_message_free`. `bindings/c/examples` has a client and a server in C.

#![deny(unsafe_op_in_unsafe_fn)]

mod api;
mod kernel_api;
mod observe;
mod payload;
mod runtime;
mod tenancy;

pub use api::address::{DEFAULT_SERVER_PORT, DEFAULT_UDP_PORT, ParseServerAddrError, ServerAddr};
pub use api::builder::{DriverChoice, HostBuilder, HostConfig};
pub use api::call::Call;
pub use api::client::Client;
pub use api::completions::{Completion, CompletionQueue, RecvCompletion};
pub use api::early::EarlyDelivery;
pub use api::error::{CallError, HostError, ReadError, RecvError, ReplyError};
pub use api::host::Host;
pub use api::recv::Recv;
pub use api::request::Request;
pub use api::request_reader::{RequestPart, RequestReader, WholeRequest};
pub use api::response_reader::{ResponsePart, ResponseReader};
pub use api::server::Server;
pub use bytes::Bytes;
pub use homa_driver as driver;
pub use homa_proto as proto;
pub use homa_proto::{MAX_ENDPOINTS, PeerInfo};
pub use homa_steer as steer;
pub use homa_trace as trace;
pub use kernel_api::readiness::ReadinessFd;
pub use kernel_api::socket::{Arrival, CallInfo, Outcome, ReturnedReply, Socket};
pub use observe::metrics::{HostCounts, Metrics};
pub use observe::prometheus;
pub use observe::times::{Times, TimesBySize};
pub use payload::memory::{Lender, Lent, MessageMemory};
pub use tenancy::placement::ENDPOINT_POLICIES;
pub use tenancy::process_group::{MAX_PROCESSES, SegmentError};
