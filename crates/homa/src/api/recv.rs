//! Receiving requests: threads that wait, tasks that poll, and their time limits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::api::port_handle::PortHandle;
use crate::api::request::Request;
use crate::api::server::{Server, take};
use crate::runtime::async_driver;
use crate::runtime::engine::Engine;
use crate::runtime::timers::TimeLimit;
use crate::runtime::wait;
use crate::runtime::wait_target::WaitTarget;
use crate::tenancy::endpoint_group::exchange::WaitOutcome;
use crate::types::error::RecvError;

/// A pending receive of a server's next request: see [`Server::recv`]. It is a future; threads can also
/// [wait](Recv::wait) for it. Dropping it loses no request.
///
/// ```
/// # use homa::Server;
/// # use std::time::Duration;
/// # async fn serve(server: Server) -> Result<(), Box<dyn std::error::Error>> {
/// let request = server.recv().wait()?; // in a thread
/// let soon = server.recv().timeout(Duration::from_millis(10)).wait();
/// let other = server.recv().await?; // in a task
/// # Ok(())
/// # }
/// ```
#[must_use = "a request is received when it is waited for or awaited"]
pub struct Recv<'a> {
    port: &'a Arc<PortHandle>,
    limit: TimeLimit,
    /// The endpoint at which the task waits, once polled.
    home: Option<usize>,
    /// The ID of the task's wait at that endpoint.
    id: Option<u64>,
}

impl Server {
    /// Receives the next request. Any number of threads and tasks may do so at once; each request goes to one
    /// of them.
    pub fn recv(&self) -> Recv<'_> {
        Recv { port: self.handle(), limit: TimeLimit::default(), home: None, id: None }
    }
}

impl Recv<'_> {
    /// Limits the wait, counted from the start of [`wait`](Recv::wait), or from the first poll of the future.
    /// When the limit passes, the result is [`RecvError::TimedOut`]; a limit of zero only polls.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit.set(timeout);
        self
    }

    /// Waits for the request.
    ///
    /// # Errors
    /// No request arrived in time, or the host was shut down.
    pub fn wait(self) -> Result<Request, RecvError> {
        self.wait_with(|_, _| ())
    }

    /// Waits for a request, then appends it and all further available requests to `requests`, at most `max`
    /// in total. Returns the number of requests appended.
    ///
    /// This suits short handlers: later requests of the batch wait while the thread handles the earlier ones.
    /// Together with [`Request::reply_all`], this costs a fraction of receiving and answering requests one by
    /// one.
    ///
    /// # Errors
    /// No request arrived in time, or the host was shut down.
    pub fn wait_batch(self, max: usize, requests: &mut Vec<Request>) -> Result<usize, RecvError> {
        if max == 0 {
            return Ok(0);
        }
        let before = requests.len();
        let first = self.wait_with(|engine, endpoint| {
            while requests.len() - before + 1 < max
                && let Some(Ok(request)) = take(engine, self.port, endpoint)
            {
                requests.push(request);
            }
        })?;
        requests.insert(before, first);
        Ok(requests.len() - before)
    }

    /// Waits for the next request. `more` may take further requests under the same endpoint lock; its second
    /// argument is the endpoint's index.
    fn wait_with(&self, mut more: impl FnMut(&mut Engine, usize)) -> Result<Request, RecvError> {
        let port = self.port;
        let home = port.home();
        let shared = port.shared(home);
        let on = port.wait_target(home);
        let deadline = self.limit.end(|| shared.now());
        let mut engine = shared.lock();
        // Without this, a caller whose limit has already passed would never drive the network.
        if deadline.is_some() && !engine.has_item(on) {
            engine.drive(shared.now());
        }
        loop {
            let found = wait::wait(shared, engine, on, deadline, |engine| {
                let found = port.find(engine, home);
                if let Some(WaitOutcome::Here(Ok(_))) = &found {
                    more(engine, home);
                }
                found
            });
            match found {
                Some(WaitOutcome::Here(taken)) => return taken,
                Some(WaitOutcome::Elsewhere(marked)) => {
                    if let Some(taken) = port.take_elsewhere(home, marked, &mut more) {
                        return taken;
                    }
                }
                None => return Err(RecvError::TimedOut),
            }
            engine = shared.lock();
        }
    }
}

impl Future for Recv<'_> {
    type Output = Result<Request, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let recv = &mut *self;
        let port = recv.port;
        let home = *recv.home.get_or_insert_with(|| port.next_endpoint());
        let (shared, server) = (port.shared(home), port.index(home));
        let waker = context.waker().clone();
        let mut has_driven = false;
        let replaced = loop {
            let mut engine = shared.lock();
            match port.find(&mut engine, home) {
                Some(WaitOutcome::Here(taken)) => {
                    if let Some(on) = engine.waiting.taken.take() {
                        engine.pass_on(on);
                    }
                    // Remove the task's wait under the lock, but drop its wakers after the lock is released.
                    let timer = recv.limit.disarm(&mut engine.waiting.timers);
                    let tasks = &mut engine.requests.ports.get_mut(server).map(|server| &mut server.tasks);
                    let old = recv.id.take().and_then(|id| tasks.as_mut()?.forget(id));
                    drop(engine);
                    drop((old, timer));
                    return Poll::Ready(taken);
                }
                Some(WaitOutcome::Elsewhere(marked)) => {
                    drop(engine);
                    if let Some(taken) = port.take_elsewhere(home, marked, |_, _| ()) {
                        return Poll::Ready(taken);
                    }
                }
                None => {
                    // The clock is read only if there is a limit.
                    let now = recv.limit.timeout().map(|_| shared.now());
                    if let Some(now) = now.filter(|now| recv.limit.has_passed(*now)) {
                        if has_driven {
                            return Poll::Ready(Err(RecvError::TimedOut));
                        }
                        // Packets that are waiting may contain a request, so even a limit of zero polls once.
                        has_driven = true;
                        engine.drive(now);
                        engine.leave(now);
                        continue;
                    }
                    let (id, old) = engine.requests.ports[server].tasks.register(recv.id, waker);
                    recv.id = Some(id);
                    let (is_new, timer) = recv.limit.arm(&mut engine.waiting.timers, context.waker());
                    if let Some(now) = now.filter(|_| is_new) {
                        engine.after_work(now);
                    }
                    break (old, timer);
                }
            }
        };
        drop(replaced);
        port.members().iter().for_each(async_driver::ensure_driver);
        Poll::Pending
    }
}

impl Drop for Recv<'_> {
    fn drop(&mut self) {
        let Some(home) = self.home.filter(|_| self.id.is_some() || self.limit.is_armed()) else { return };
        let mut engine = self.port.shared(home).lock();
        let timer = self.limit.disarm(&mut engine.waiting.timers);
        let server = self.port.index(home);
        let entry = engine.requests.ports.get_mut(server);
        let waker = entry.zip(self.id).map(|(entry, id)| entry.tasks.forget(id));
        if let Some(None) = waker {
            // The task was woken for a request that it will not take: pass the request on to the next waiting
            // thread or task.
            let on = WaitTarget::Requests(server);
            engine.end_call(on);
            engine.waiting.note_ready(on);
            engine.wake_waiters();
            engine.pass_on(on);
        }
        drop(engine);
        drop((waker, timer));
    }
}

impl fmt::Debug for Recv<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut recv = f.debug_struct("Recv");
        recv.field("port", &self.port.number()).field("timeout", &self.limit.timeout());
        recv.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::api::host::Host;
    use crate::types::address::ServerAddr;

    #[test]
    fn a_future_that_is_dropped_leaves_no_timer() {
        let host = Host::builder().address(([127, 0, 0, 1], 0).into()).bind().unwrap();
        let server = host.server(9).unwrap();
        let client = host.client().unwrap();
        let to = ServerAddr::new(host.local_addr(), 9);
        let long = Duration::from_secs(60);
        let timers = || usize::from(host.endpoints.first().lock().waiting.timers.first().is_some());
        fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
            Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
        }
        let mut recv = server.recv().timeout(long);
        assert!(is_pending(&mut recv) && timers() == 1);
        drop(recv);
        assert_eq!(timers(), 0);

        // No thread takes these requests from the server.
        let mut call = client.call(to, "x").timeout(long);
        assert!(is_pending(&mut call) && timers() == 1);
        drop(call);
        assert_eq!(timers(), 0);

        let mut reader = client.call(to, "x").reader().unwrap();
        let mut part = reader.next_part().timeout(long);
        assert!(is_pending(&mut part) && timers() == 1);
        drop(part);
        assert_eq!(timers(), 0);
    }
}
