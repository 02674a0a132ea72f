//! The echo server over TCP: a few threads with an epoll instance each, which divide the connections among
//! themselves.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::frame::{Frame, FrameReader, FrameWriter, Header, ONE_WAY, ONE_WAY_BYTES, Progress};
use super::{Congestion, IdlePolling, READ_BUDGET, choose};
use crate::addresses::bind_at;

/// Limit on queued responses, above which the server stops reading from a connection. It bounds the memory
/// used for a client that does not read its responses. The limit exceeds the largest burst of a well-behaved
/// client: 200 requests of 1 MB.
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// Maximum number of connections per thread. Further connections are closed at once.
const MAX_CONNECTIONS: usize = 4096;

/// Maximum number of events per call of epoll_wait.
const EVENTS: usize = 256;

/// The settings of an echo server for a protocol other than Homa.
#[derive(Clone, Copy, Debug)]
pub struct EchoServerConfig {
    /// Address of the first port. Further ports use consecutive port numbers, unless the port is 0.
    pub bind: SocketAddr,
    /// Number of ports.
    pub ports: u16,
    /// Number of threads.
    pub threads: u16,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Maximum length of a request in bytes.
    pub max_message: u32,
    /// Whether responses are [`ONE_WAY_BYTES`] bytes long instead of as long as the request.
    pub one_way: bool,
}

/// A running server. Its threads run until the process exits.
#[derive(Debug)]
pub struct TcpServer {
    addrs: Vec<SocketAddr>,
    served: Arc<AtomicU64>,
}

impl TcpServer {
    /// Binds all ports and starts the threads. `congestion` is the congestion control for responses; `None`
    /// selects the kernel's default.
    pub fn start(config: EchoServerConfig, congestion: Option<Congestion>) -> Result<TcpServer> {
        let listeners =
            (0..config.ports).map(|index| listen(config.bind, index)).collect::<Result<Vec<_>>>()?;
        listeners.iter().try_for_each(|listener| choose(listener, congestion))?;
        let addrs = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let served = Arc::new(AtomicU64::new(0));
        let mut polls = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..config.threads {
            let poll = Poll::new().context("cannot make an epoll instance")?;
            let waker = Waker::new(poll.registry(), WAKER).context("cannot make an eventfd")?;
            inboxes.push(Arc::new(Inbox { waker, streams: Mutex::new(Vec::new()) }));
            polls.push(poll);
        }
        let mut acceptor = Some(Acceptor { listeners, inboxes: inboxes.clone(), next: 0 });
        for (index, (poll, inbox)) in polls.into_iter().zip(inboxes).enumerate() {
            let mut worker = Worker {
                poll,
                inbox,
                acceptor: acceptor.take(),
                connections: Vec::new(),
                unfinished: Vec::new(),
                served: Arc::clone(&served),
                config,
            };
            worker.listen()?;
            thread::Builder::new()
                .name(format!("tcp-server-{index}"))
                .spawn(move || worker.run())
                .context("cannot start a thread")?;
        }
        Ok(TcpServer { addrs, served })
    }

    /// Returns the address of each port.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Returns the number of requests answered so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

fn listen(bind: SocketAddr, index: u16) -> Result<TcpListener> {
    let addr = bind_at(bind, index)?;
    TcpListener::bind(addr).with_context(|| format!("cannot listen on TCP {addr}"))
}

/// The waker's token. Tokens below it are connections, those above it listeners.
const WAKER: Token = Token(usize::MAX / 2);

/// New connections handed to a thread.
struct Inbox {
    waker: Waker,
    streams: Mutex<Vec<TcpStream>>,
}

/// Accepts connections in the first thread and distributes them evenly over all threads.
struct Acceptor {
    listeners: Vec<TcpListener>,
    inboxes: Vec<Arc<Inbox>>,
    next: usize,
}

impl Acceptor {
    fn accept(&mut self, listener: usize) {
        // An error means that no connection is waiting, or that the process has no free file descriptors. In
        // both cases the next connection attempt triggers another event.
        while let Ok((stream, _)) = self.listeners[listener].accept() {
            let inbox = &self.inboxes[self.next % self.inboxes.len()];
            self.next += 1;
            inbox.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            let _ = inbox.waker.wake();
        }
    }
}

struct Worker {
    poll: Poll,
    inbox: Arc<Inbox>,
    acceptor: Option<Acceptor>,
    connections: Vec<Option<Connection>>,
    /// Connections that may have more data although epoll has reported no further event.
    unfinished: Vec<usize>,
    served: Arc<AtomicU64>,
    config: EchoServerConfig,
}

struct Connection {
    stream: TcpStream,
    reader: FrameReader,
    writer: FrameWriter,
}

impl Worker {
    fn listen(&mut self) -> Result<()> {
        let Some(acceptor) = &mut self.acceptor else { return Ok(()) };
        for (index, listener) in acceptor.listeners.iter_mut().enumerate() {
            listener
                .register(self.poll.registry(), Token(WAKER.0 + 1 + index), Interest::READABLE)
                .context("cannot watch a listener")?;
        }
        Ok(())
    }

    fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut spin = IdlePolling::new(self.config.poll);
        loop {
            let timeout = if self.unfinished.is_empty() { spin.timeout(None) } else { Some(Duration::ZERO) };
            // Only a signal can interrupt the wait. No event is lost, and the loop polls again.
            if self.poll.poll(&mut events, timeout).is_err() {
                continue;
            }
            if !events.is_empty() {
                spin.record_work();
            }
            for index in std::mem::take(&mut self.unfinished) {
                self.serve(index);
            }
            for event in &events {
                match event.token() {
                    WAKER => self.adopt(),
                    Token(listener) if listener > WAKER.0 => {
                        if let Some(acceptor) = &mut self.acceptor {
                            acceptor.accept(listener - WAKER.0 - 1);
                        }
                    }
                    Token(index) => self.serve(index),
                }
            }
        }
    }

    /// Registers the new connections.
    fn adopt(&mut self) {
        let streams = std::mem::take(&mut *self.inbox.streams.lock().unwrap_or_else(PoisonError::into_inner));
        for mut stream in streams {
            let free = self.connections.iter().position(Option::is_none);
            let index = free.unwrap_or(self.connections.len());
            if index >= MAX_CONNECTIONS {
                continue;
            }
            let watched = stream.set_nodelay(true).is_ok()
                && stream
                    .register(self.poll.registry(), Token(index), Interest::READABLE | Interest::WRITABLE)
                    .is_ok();
            if !watched {
                continue;
            }
            if index == self.connections.len() {
                self.connections.push(None);
            }
            let reader = FrameReader::new(self.config.max_message);
            self.connections[index] = Some(Connection { stream, reader, writer: FrameWriter::default() });
            // Data that arrived before the registration triggers no event.
            self.unfinished.push(index);
        }
    }

    /// Reads requests and writes responses. Drops the connection if its peer has closed it or has sent
    /// invalid data.
    fn serve(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        match connection.serve(self.config.one_way, &self.served) {
            Ok(Progress::Drained) => {}
            Ok(Progress::More) => {
                if !self.unfinished.contains(&index) {
                    self.unfinished.push(index);
                }
            }
            Ok(Progress::Closed) | Err(_) => self.connections[index] = None,
        }
    }
}

impl Connection {
    fn serve(&mut self, one_way: bool, served: &AtomicU64) -> io::Result<Progress> {
        let Connection { stream, reader, writer } = self;
        writer.write(stream)?;
        if writer.bytes() > MAX_QUEUED_BYTES {
            // An event will report that the socket has room again.
            return Ok(Progress::Drained);
        }
        // If the queue exceeds the limit afterwards, the socket buffer is full, and an event will resume the
        // work.
        let progress = reader.read(stream, READ_BUDGET, |frame| {
            served.fetch_add(1, Ordering::Relaxed);
            writer.push(answer(frame, one_way));
        })?;
        writer.write(stream)?;
        Ok(progress)
    }
}

fn answer(frame: Frame, one_way: bool) -> Frame {
    let short = one_way || frame.header.flags & ONE_WAY != 0;
    let payload = if short { one_way_answer(&frame.payload) } else { frame.payload };
    Frame { header: Header { length: payload.len() as u32, flags: 0, id: frame.header.id }, payload }
}

/// Returns the response to a one-way request: the request's first [`ONE_WAY_BYTES`] bytes, padded with zeros.
pub fn one_way_answer(request: &Bytes) -> Bytes {
    if request.len() >= ONE_WAY_BYTES {
        return request.slice(..ONE_WAY_BYTES);
    }
    let mut answer = [0; ONE_WAY_BYTES];
    answer[..request.len()].copy_from_slice(request);
    Bytes::copy_from_slice(&answer)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn server(one_way: bool) -> TcpServer {
        let config = EchoServerConfig {
            bind: "127.0.0.1:0".parse().expect("an address"),
            ports: 2,
            threads: 2,
            poll: Duration::ZERO,
            max_message: 100_000,
            one_way,
        };
        TcpServer::start(config, None).expect("a server on any port")
    }

    fn exchange(stream: &mut std::net::TcpStream, header: Header, payload: &[u8]) -> Vec<u8> {
        stream.write_all(&header.encode()).expect("header sent");
        stream.write_all(payload).expect("payload sent");
        let mut bytes = [0; 16];
        stream.read_exact(&mut bytes).expect("header of the answer");
        let answer = Header::decode(&bytes);
        assert_eq!(answer.id, header.id);
        let mut payload = vec![0; answer.length as usize];
        stream.read_exact(&mut payload).expect("payload of the answer");
        payload
    }

    #[test]
    fn echoes_on_each_port_and_counts() {
        let server = server(false);
        for (index, addr) in server.addrs().iter().enumerate() {
            let mut stream = std::net::TcpStream::connect(addr).expect("a connection");
            for length in [1, 100, 100_000] {
                let payload = vec![index as u8; length];
                let header = Header { length: length as u32, flags: 0, id: length as u64 };
                assert_eq!(exchange(&mut stream, header, &payload), payload);
            }
        }
        assert_eq!(server.served(), 6);
    }

    #[test]
    fn one_way_by_flag_and_by_setting() {
        for (setting, flags) in [(false, ONE_WAY), (true, 0)] {
            let server = server(setting);
            let mut stream = std::net::TcpStream::connect(server.addrs()[0]).expect("a connection");
            let short = exchange(&mut stream, Header { length: 2, flags, id: 1 }, b"ab");
            assert_eq!((short.len(), &short[..3]), (ONE_WAY_BYTES, &b"ab\0"[..]));
            let long = exchange(&mut stream, Header { length: 1000, flags, id: 2 }, &[7; 1000]);
            assert_eq!(long, [7; ONE_WAY_BYTES]);
        }
    }

    #[test]
    fn a_message_above_the_limit_closes_only_its_connection() {
        let server = server(false);
        let mut bad = std::net::TcpStream::connect(server.addrs()[0]).expect("a connection");
        let mut good = std::net::TcpStream::connect(server.addrs()[0]).expect("a connection");
        bad.write_all(&Header { length: u32::MAX, flags: 0, id: 0 }.encode()).expect("header sent");
        assert_eq!(bad.read(&mut [0; 10]).unwrap_or(0), 0);
        assert_eq!(exchange(&mut good, Header { length: 1, flags: 0, id: 5 }, b"x"), b"x");
    }

    #[test]
    fn a_busy_port_is_an_error_that_names_it() {
        let server = server(false);
        let addr = server.addrs()[0];
        let config = EchoServerConfig {
            bind: addr,
            ports: 1,
            threads: 1,
            poll: Duration::ZERO,
            max_message: 1,
            one_way: false,
        };
        let error = TcpServer::start(config, None).expect_err("the port is taken");
        assert!(format!("{error:#}").contains(&addr.to_string()), "{error:#}");
    }
}
