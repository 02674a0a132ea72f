//! The client ports of one thread over TCP: a connection for each pair of client port and server port, all
//! polled by one epoll instance.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::frame::{Frame, FrameReader, FrameWriter, Header, ONE_WAY, Progress};
use super::{CONNECT_TIMEOUT, Congestion, IdlePolling, READ_BUDGET, choose};
use crate::engine::link::{Answer, Link, take_from};

/// Maximum number of events per call of epoll_wait.
const EVENTS: usize = 256;

/// The client ports of one thread, and their servers.
#[derive(Clone, Debug)]
pub struct TcpLinkConfig {
    /// Addresses of all server ports of all servers.
    pub servers: Vec<SocketAddr>,
    /// Number of client ports of this thread.
    pub ports: usize,
    /// Number of threads per client port that only receive responses.
    pub receivers: usize,
    /// Time that an idle thread polls before it sleeps.
    pub poll: Duration,
    /// Maximum length of a response in bytes.
    pub max_message: u32,
    /// Whether to request responses of 100 bytes.
    pub one_way: bool,
    /// Congestion control for the requests; `None`: the kernel's default.
    pub congestion: Option<Congestion>,
    /// Whether waits end with microsecond precision, by means of a kernel timer. Epoll's own timeouts are
    /// whole milliseconds.
    pub precise: bool,
}

/// The client ports of one thread over TCP.
pub struct TcpLink {
    config: TcpLinkConfig,
    poll: Poll,
    events: Events,
    /// The timer that ends precise waits.
    timer: Option<OwnedFd>,
    spin: IdlePolling,
    /// Indexed by client port, then by server port.
    connections: Vec<Connection>,
    /// Connections that may have more data although epoll has reported no further event.
    unfinished: Vec<usize>,
    /// Responses from the receiver threads, if there are any.
    receivers: Option<mpsc::Receiver<Result<Answer, String>>>,
}

struct Connection {
    addr: SocketAddr,
    stream: TcpStream,
    /// `None` if a receiver thread reads from this connection.
    reader: Option<FrameReader>,
    writer: FrameWriter,
}

impl TcpLink {
    /// Connects to every server port from every client port.
    pub fn connect(config: TcpLinkConfig) -> Result<TcpLink> {
        let poll = Poll::new().context("cannot make an epoll instance")?;
        let (sender, receiver) = mpsc::channel();
        let mut connections = Vec::new();
        for port in 0..config.ports {
            let mut shares: Vec<Vec<Reading>> = Vec::new();
            shares.resize_with(config.receivers, Vec::new);
            for (index, &addr) in config.servers.iter().enumerate() {
                let (mut stream, clone) = open(addr, config.receivers > 0, config.congestion)
                    .with_context(|| format!("cannot reach a TCP server at {addr}"))?;
                let token = Token(port * config.servers.len() + index);
                let reader = FrameReader::new(config.max_message);
                let (interest, reader) = match clone {
                    Some(stream) => {
                        shares[index % config.receivers].push(Reading { addr, stream, reader });
                        (Interest::WRITABLE, None)
                    }
                    None => (Interest::READABLE | Interest::WRITABLE, Some(reader)),
                };
                poll.registry().register(&mut stream, token, interest).context("cannot watch a socket")?;
                connections.push(Connection { addr, stream, reader, writer: FrameWriter::default() });
            }
            for share in shares.into_iter().filter(|share| !share.is_empty()) {
                Receiver::spawn(share, config.poll, sender.clone())?;
            }
        }
        let timer = config.precise.then(|| timer(&poll)).transpose().context("cannot make a timer")?;
        Ok(TcpLink {
            poll,
            timer,
            events: Events::with_capacity(EVENTS),
            spin: IdlePolling::new(config.poll),
            connections,
            unfinished: Vec::new(),
            receivers: (config.receivers > 0).then_some(receiver),
            config,
        })
    }

    fn serve(&mut self, index: usize, answers: &mut Vec<Answer>) -> Result<()> {
        let connection = &mut self.connections[index];
        let Connection { addr, stream, reader, writer } = connection;
        writer.write(stream).with_context(|| connection_lost(*addr))?;
        let Some(reader) = reader else { return Ok(()) };
        if read(*addr, stream, reader, |answer| answers.push(answer))? == Progress::More
            && !self.unfinished.contains(&index)
        {
            self.unfinished.push(index);
        }
        Ok(())
    }

    /// Polls once, for at most `wait`.
    fn poll(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        let wait = if self.unfinished.is_empty() { wait } else { Duration::ZERO };
        let timeout = match &self.timer {
            Some(timer) if !wait.is_zero() => {
                arm(timer, wait).context("cannot set a timer")?;
                None
            }
            _ => Some(wait),
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result.context("epoll failed")?,
        }
        let mut ready = std::mem::take(&mut self.unfinished);
        ready.extend(
            self.events
                .iter()
                .map(|event| event.token())
                .filter(|&token| token != TIMER)
                .map(|token| token.0),
        );
        for index in ready {
            self.serve(index, answers)?;
        }
        Ok(())
    }
}

impl Link for TcpLink {
    fn submit(&mut self, port: usize, server: usize, cookie: u64, request: Bytes) -> Result<(), String> {
        let connection = &mut self.connections[port * self.config.servers.len() + server];
        let flags = if self.config.one_way { ONE_WAY } else { 0 };
        let header = Header { length: request.len() as u32, flags, id: cookie };
        connection.writer.push(Frame { header, payload: request });
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        for Connection { addr, stream, writer, .. } in &mut self.connections {
            if writer.bytes() > 0 {
                writer.write(stream).with_context(|| connection_lost(*addr))?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration, answers: &mut Vec<Answer>) -> Result<()> {
        let before = answers.len();
        let deadline = (!wait.is_zero()).then(|| Instant::now() + wait);
        loop {
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            let timeout = self.spin.timeout(Some(left)).unwrap_or_default().min(left);
            match &self.receivers {
                None => self.poll(timeout, answers)?,
                Some(_) if self.connections.iter().any(|connection| connection.writer.bytes() > 0) => {
                    // The socket buffer is full: poll, so that the remaining bytes are sent as soon as there
                    // is room.
                    self.poll(Duration::ZERO, answers)?;
                    if let Some(receivers) = &self.receivers {
                        take_from(receivers, Duration::ZERO, answers)?;
                    }
                }
                Some(receivers) => take_from(receivers, timeout, answers)?,
            }
            if answers.len() > before {
                self.spin.record_work();
                return Ok(());
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        // Shutting down the sockets ends the receiver threads, which hold duplicates of the sockets.
        for connection in &self.connections {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The timer's token, different from all tokens of connections.
const TIMER: Token = Token(usize::MAX / 2);

/// Creates a timer that wakes this epoll instance.
fn timer(poll: &Poll) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
    Ok(timer)
}

/// Sets the timer to expire once after `wait`.
fn arm(timer: &OwnedFd, wait: Duration) -> io::Result<()> {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    let value = Timespec { tv_sec: seconds, tv_nsec: wait.subsec_nanos().into() };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
    Ok(())
}

/// Connects a socket. If `duplicate`, also duplicates it for a receiver thread.
fn open(
    addr: SocketAddr,
    duplicate: bool,
    congestion: Option<Congestion>,
) -> io::Result<(TcpStream, Option<TcpStream>)> {
    let stream = std::net::TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT)?;
    choose(&stream, congestion)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let clone = if duplicate { Some(TcpStream::from_std(stream.try_clone()?)) } else { None };
    Ok((TcpStream::from_std(stream), clone))
}

fn connection_lost(addr: SocketAddr) -> String {
    format!("the TCP connection to {addr} broke")
}

fn read(
    addr: SocketAddr,
    stream: &mut TcpStream,
    reader: &mut FrameReader,
    mut take: impl FnMut(Answer),
) -> Result<Progress> {
    let progress = reader
        .read(stream, READ_BUDGET, |frame| {
            take(Answer { cookie: frame.header.id, at: Instant::now(), result: Ok(frame.payload) });
        })
        .with_context(|| connection_lost(addr))?;
    if progress == Progress::Closed {
        bail!("the TCP server at {addr} closed the connection");
    }
    Ok(progress)
}

/// A thread that only receives responses, on some of a client port's connections.
struct Receiver {
    poll: Poll,
    spin: IdlePolling,
    readings: Vec<Reading>,
    answers: mpsc::Sender<Result<Answer, String>>,
}

struct Reading {
    addr: SocketAddr,
    stream: TcpStream,
    reader: FrameReader,
}

impl Receiver {
    fn spawn(
        mut readings: Vec<Reading>,
        poll: Duration,
        answers: mpsc::Sender<Result<Answer, String>>,
    ) -> Result<()> {
        let spin = IdlePolling::new(poll);
        let poll = Poll::new().context("cannot make an epoll instance")?;
        for (index, reading) in readings.iter_mut().enumerate() {
            poll.registry()
                .register(&mut reading.stream, Token(index), Interest::READABLE)
                .context("cannot watch a socket")?;
        }
        let mut receiver = Receiver { poll, spin, readings, answers };
        thread::Builder::new()
            .name("tcp-receiver".to_owned())
            .spawn(move || {
                // Sending fails if the link is gone; its sockets are gone too in that case.
                if let Err(error) = receiver.run() {
                    let _ = receiver.answers.send(Err(format!("{error:#}")));
                }
            })
            .context("cannot start a thread")?;
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut unfinished: Vec<usize> = Vec::new();
        loop {
            let timeout = if unfinished.is_empty() { self.spin.timeout(None) } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result.context("epoll failed")?,
            }
            if !events.is_empty() {
                self.spin.record_work();
            }
            let mut ready = std::mem::take(&mut unfinished);
            ready.extend(events.iter().map(|event| event.token().0));
            for index in ready {
                let Reading { addr, stream, reader } = &mut self.readings[index];
                let answers = &self.answers;
                let progress = read(*addr, stream, reader, |answer| {
                    let _ = answers.send(Ok(answer));
                })?;
                if progress == Progress::More && !unfinished.contains(&index) {
                    unfinished.push(index);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::server::{EchoServerConfig, TcpServer};

    fn link(receivers: usize, one_way: bool, precise: bool) -> TcpLink {
        let config = EchoServerConfig {
            bind: "127.0.0.1:0".parse().expect("an address"),
            ports: 2,
            threads: 1,
            poll: Duration::ZERO,
            max_message: 1 << 20,
            one_way: false,
        };
        let server = TcpServer::start(config, None).expect("a server on any port");
        TcpLink::connect(TcpLinkConfig {
            servers: server.addrs().to_vec(),
            ports: 2,
            receivers,
            poll: Duration::from_micros(10),
            max_message: 1 << 20,
            one_way,
            congestion: None,
            precise,
        })
        .expect("the server is there")
    }

    /// Checks that a large number of messages, sent at once and exceeding the socket buffers, is answered
    /// once each with the right content.
    fn check_all_come_back(receivers: usize, one_way: bool) {
        let mut link = link(receivers, one_way, false);
        crate::engine::link::check_all_come_back(&mut link, 4, one_way);
    }

    #[test]
    fn all_come_back_to_the_sending_thread() {
        check_all_come_back(0, false);
    }

    #[test]
    fn all_come_back_through_receiver_threads() {
        check_all_come_back(1, false);
        check_all_come_back(3, false);
    }

    #[test]
    fn a_precise_wait_ends_by_itself_and_by_an_answer() {
        let mut link = link(0, false, true);
        crate::engine::link::check_all_come_back(&mut link, 4, false);
        let (begin, mut answers) = (Instant::now(), Vec::new());
        let wait = Duration::from_micros(300);
        link.receive(wait, &mut answers).expect("the link holds");
        assert!(answers.is_empty() && begin.elapsed() >= wait);
    }

    #[test]
    fn one_way_answers_are_short() {
        check_all_come_back(0, true);
    }

    #[test]
    fn nobody_listening_is_an_error_that_names_the_address() {
        let addr = {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("any port");
            socket.local_addr().expect("bound")
        };
        let config = TcpLinkConfig {
            servers: vec![addr],
            ports: 1,
            receivers: 0,
            poll: Duration::ZERO,
            max_message: 1,
            one_way: false,
            congestion: None,
            precise: false,
        };
        let Err(error) = TcpLink::connect(config) else { panic!("nobody listens there") };
        assert!(format!("{error:#}").contains(&addr.to_string()), "{error:#}");
    }
}
