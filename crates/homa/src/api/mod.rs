//! The interface for applications: hosts, clients, servers, their configuration and their errors.
//!
//! # The shape of the interface
//!
//! There is one way to do each thing. An operation that can take time returns an object named after the
//! operation. The object has two ways to wait, `wait()` and `.await`, and a method `timeout(Duration)` that
//! limits either wait. A time limit counts from the start of the wait or from the first poll. A limit of zero
//! only polls.
//!
//! | to | use |
//! |---|---|
//! | make a host | `Host::builder()`, one setter for each option, `bind()`; `bind_on(drivers)` for other packet paths |
//! | call a server | `client.call(to, bytes)`: a `Call`, with `wait`, `timeout`, `start`, `try_wait`, `reader` |
//! | have several calls in flight | `call(..).start()` sends the request and returns the same `Call` |
//! | have many calls in flight in one thread | `client.completions()`: a `CompletionQueue`; `submit`, `submit_all`, `recv` |
//! | read a response while it arrives | `call(..).reader()`: a `ResponseReader`; `next_part` |
//! | receive a request | `server.recv()`: a `Recv`, with `wait`, `timeout`, `wait_batch` |
//! | answer | `request.reply(bytes)`; `Request::reply_all` for a batch |
//! | read a request while it arrives | `server.early(..)` once, then `request.reader()`: a `RequestReader` |
//!
//! # Why a call is lazy
//!
//! A `Call` sends nothing until it is waited for, polled, started or read, for three reasons:
//!
//! - A blocking round trip takes the host's lock once, both to start the call and to begin the wait. An eager
//!   call would release the lock and take it again.
//! - Starting a request fixes how its response is delivered. A later `reader()` would come too late.
//! - Futures are also lazy, and `#[must_use]` reports a call that was never used.
//!
//! To have two calls in flight at the same time, start both: `start()` returns once the unscheduled part of
//! the request is sent.

pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod completions;
pub(crate) mod endpoints;
pub(crate) mod host;
pub(crate) mod port_handle;
pub(crate) mod recv;
pub(crate) mod request;
pub(crate) mod request_reader;
pub(crate) mod response_reader;
pub(crate) mod server;
