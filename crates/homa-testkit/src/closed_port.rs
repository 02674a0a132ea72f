//! Ports at which nothing listens.

use std::net::{SocketAddr, ToSocketAddrs};

use socket2::{Domain, Socket, Type};

/// A port of this host that refuses every sender until this value is dropped.
///
/// A port that was free a moment ago may be given to a test that runs at the same time. Here a socket holds
/// the port and accepts nothing.
#[derive(Debug)]
pub struct ClosedPort {
    socket: Socket,
}

impl ClosedPort {
    /// Returns a UDP port of the address `any`, whose own port is 0. Datagrams to it are answered with ICMP port
    /// unreachable.
    ///
    /// # Panics
    /// Panics if `any` is not an address, or cannot be bound.
    pub fn udp(any: impl ToSocketAddrs) -> ClosedPort {
        let port = ClosedPort::bind(any, Type::DGRAM);
        // A connected socket gets only the datagrams of its peer. It is its own peer, and sends none.
        port.socket.connect(&port.address().into()).expect("it connects to itself");
        port
    }

    /// Returns a TCP port of the address `any`, whose own port is 0. Connections to it are refused, because the
    /// socket does not listen.
    ///
    /// # Panics
    /// Panics if `any` is not an address, or cannot be bound.
    pub fn tcp(any: impl ToSocketAddrs) -> ClosedPort {
        ClosedPort::bind(any, Type::STREAM)
    }

    fn bind(any: impl ToSocketAddrs, socket_type: Type) -> ClosedPort {
        let address = any.to_socket_addrs().expect("an address and a port").next().expect("an address");
        let socket = Socket::new(Domain::for_address(address), socket_type, None).expect("a socket");
        socket.bind(&address.into()).expect("an address of this host");
        ClosedPort { socket }
    }

    /// Returns the address and port.
    ///
    /// # Panics
    /// Panics if the kernel does not tell the address of the socket.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound").as_socket().expect("an IP address")
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use super::*;

    #[test]
    fn datagrams_are_refused_and_the_port_stays_taken() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let closed = ClosedPort::udp(any);
            let sender = UdpSocket::bind(any).unwrap();
            sender.connect(closed.address()).unwrap();
            sender.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            sender.send(b"anyone?").unwrap();
            assert_eq!(sender.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert_eq!(UdpSocket::bind(closed.address()).unwrap_err().kind(), ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn connections_are_refused_and_the_port_stays_taken() {
        let closed = ClosedPort::tcp("127.0.0.1:0");
        assert_eq!(TcpStream::connect(closed.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(closed.address()).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
