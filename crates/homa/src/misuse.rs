//! Examples of misuse that must not compile. Each is paired with a version that compiles and differs only in
//! the mistake. The pair shows that the compiler rejects the mistake and nothing else.
//!
//! A call that is neither waited for nor started sends nothing:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! fn f(client: &homa::Client, to: homa::ServerAddr) {
//!     client.call(to, "hello");
//! }
//! ```
//! ```
//! #![deny(unused_must_use)]
//! fn f(client: &homa::Client, to: homa::ServerAddr) {
//!     let _ = client.call(to, "hello").wait();
//! }
//! ```
//!
//! A call that is started but not kept is aborted at once:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! fn f(client: &homa::Client, to: homa::ServerAddr) -> Result<(), homa::error::CallError> {
//!     client.call(to, "hello").start()?;
//!     Ok(())
//! }
//! ```
//! ```
//! #![deny(unused_must_use)]
//! fn f(client: &homa::Client, to: homa::ServerAddr) -> Result<(), homa::error::CallError> {
//!     let call = client.call(to, "hello").start()?;
//!     call.wait().map(|_| ())
//! }
//! ```
//!
//! A request that is received but not kept is given up:
//!
//! ```compile_fail
//! #![deny(unused_must_use)]
//! fn f(server: &homa::Server) -> Result<(), homa::error::RecvError> {
//!     server.recv().wait()?;
//!     Ok(())
//! }
//! ```
//! ```
//! #![deny(unused_must_use)]
//! fn f(server: &homa::Server) -> Result<(), homa::error::RecvError> {
//!     let _request = server.recv().wait()?;
//!     Ok(())
//! }
//! ```
//!
//! A request is answered once:
//!
//! ```compile_fail
//! fn f(request: homa::Request) {
//!     let _ = request.reply("one");
//!     let _ = request.reply("two");
//! }
//! ```
//! ```
//! fn f(request: homa::Request) {
//!     let _ = request.reply("one");
//! }
//! ```
//!
//! A result is taken once:
//!
//! ```compile_fail
//! fn f(call: homa::Call) {
//!     let _ = (call.wait(), call.wait());
//! }
//! ```
//! ```
//! fn f(call: homa::Call) {
//!     let _ = call.wait();
//! }
//! ```
//!
//! Two parts of one message cannot be waited for at the same time, since they are ordered:
//!
//! ```compile_fail
//! fn f(reader: &mut homa::reader::ResponseReader) {
//!     let (one, two) = (reader.next_part(), reader.next_part());
//!     let _ = (one.wait(), two.wait());
//! }
//! ```
//! ```
//! fn f(reader: &mut homa::reader::ResponseReader) {
//!     let _ = (reader.next_part().wait(), reader.next_part().wait());
//! }
//! ```
//!
//! A pending receive does not outlive its server:
//!
//! ```compile_fail
//! fn f(server: homa::Server) -> homa::Recv<'static> {
//!     server.recv()
//! }
//! ```
//! ```
//! fn f(server: &homa::Server) -> homa::Recv<'_> {
//!     server.recv()
//! }
//! ```
//!
//! A new option breaks no user's code, since users cannot construct a configuration by naming its fields:
//!
//! ```compile_fail
//! let config = homa::HostConfig { low_latency: true, ..homa::HostConfig::default() };
//! ```
//! ```
//! let mut config = homa::HostConfig::default();
//! config.low_latency = true;
//! ```
//!
//! A new error breaks no user's code, since every `match` needs a wildcard arm:
//!
//! ```compile_fail
//! fn f(error: homa::error::RecvError) {
//!     match error {
//!         homa::error::RecvError::TimedOut => {}
//!         homa::error::RecvError::Closed => {}
//!         homa::error::RecvError::NoSuchCall { .. } => {}
//!     }
//! }
//! ```
//! ```
//! fn f(error: homa::error::RecvError) {
//!     match error {
//!         homa::error::RecvError::TimedOut => {}
//!         _ => {}
//!     }
//! }
//! ```
