//! Addresses and settings of the hosts of a bench.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use homa::HostConfig;

use crate::driver::{Driver, XdpMode};
use crate::protocol::Protocol;

/// The Homa port number of the first server port. The other server ports have the following numbers.
pub const FIRST_HOMA_PORT: u16 = homa::ServerAddr::DEFAULT_PORT;

/// Minimum buffer space of a host, in complete messages of the largest size.
const ROOM_MESSAGES: u64 = 512;

/// Returns the address of a protocol's first server port if Homa's is at `bind`. Port 0 stays 0.
pub fn offset(bind: SocketAddr, protocol: Protocol) -> Result<SocketAddr> {
    bind_at(bind, protocol.port_offset())
}

/// Returns the address of the server port with this index. Port 0 stays 0.
///
/// # Errors
/// The port number exceeds 65535.
pub fn bind_at(bind: SocketAddr, index: u16) -> Result<SocketAddr> {
    let port = match bind.port() {
        0 => 0,
        port => port
            .checked_add(index)
            .with_context(|| format!("port {index} after {bind} would exceed 65535: use a lower port"))?,
    };
    Ok(SocketAddr::new(bind.ip(), port))
}

/// Returns the settings of a Homa client or server host that accepts messages of up to `max_message` bytes.
pub fn host_config(driver: Driver, bind: SocketAddr, max_message: u32, poll: Duration) -> HostConfig {
    let mut config = HostConfig::default();
    (config.driver, config.address, config.poll) = (driver.into(), bind, poll);
    let protocol = &mut config.protocol;
    protocol.max_message = protocol.max_message.max(max_message);
    let room = ROOM_MESSAGES * u64::from(max_message);
    protocol.max_incoming_bytes = protocol.max_incoming_bytes.max(room);
    protocol.max_outgoing_bytes = protocol.max_outgoing_bytes.max(room);
    config.max_queued_request_bytes = config.max_queued_request_bytes.max(room);
    config
}

/// Sets the device, its receive queues and the AF_XDP mode, for drivers that use a device.
pub fn on_device(config: &mut HostConfig, interface: Option<&str>, queues: Option<&[u32]>, mode: XdpMode) {
    config.packet.interface = interface.map(str::to_owned);
    config.xdp.interface.clone_from(&config.packet.interface);
    config.xdp.queues = queues.map(<[u32]>::to_vec);
    config.xdp.mode = mode.into();
}

/// Returns the address to which client host `number`, counted from 0, binds to reach a server at `to`. With a
/// driver whose processes share an address, only the address distinguishes hosts over loopback, so each host
/// gets its own address. Otherwise the address is arbitrary.
pub fn client_bind(driver: Driver, to: IpAddr, number: u8) -> SocketAddr {
    let ip: IpAddr = match to {
        IpAddr::V4(to) if driver.shares_address() && to.is_loopback() => {
            let mut last = number.wrapping_add(2);
            if to == Ipv4Addr::new(127, 0, 0, last) {
                last = 1;
            }
            [127, 0, 0, last].into()
        }
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    match driver {
        // The address selects the device.
        Driver::Packet | Driver::Xdp => SocketAddr::new(source_for(to).unwrap_or(ip), 0),
        Driver::Udp | Driver::Raw | Driver::LinuxUdp => SocketAddr::new(ip, 0),
    }
}

/// Returns the source address of packets to `to`. Connecting a UDP socket sends no packet.
fn source_for(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the bind address of client port `number` for raw packets, counted from 1 over all client hosts.
/// Over loopback, with a driver whose processes share an address, each port has its own address, which also
/// differs from those of Homa hosts.
///
/// # Errors
/// There is more than one port to another machine with such a driver, where each port would need its own
/// address.
pub fn bare_client_bind(driver: Driver, to: IpAddr, number: u16) -> Result<SocketAddr> {
    let ip = match to {
        IpAddr::V4(to) if driver.shares_address() && to.is_loopback() => {
            let [high, low] = number.to_be_bytes();
            Ipv4Addr::new(127, 1, high, low).into()
        }
        _ => {
            ensure!(
                !driver.shares_address() || number == 1,
                "with --driver {} each address is a single client port of bare packets: use --ports 1 --clients 1",
                driver.name()
            );
            return Ok(client_bind(driver, to, 0));
        }
    };
    Ok(SocketAddr::new(ip, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_bind_anywhere_but_over_raw_loopback_apart_from_their_server() {
        let bind = |driver, to: &str, number| {
            client_bind(driver, to.parse().expect("an address"), number).to_string()
        };
        assert_eq!(bind(Driver::Udp, "127.0.0.1", 3), "0.0.0.0:0");
        assert_eq!(bind(Driver::LinuxUdp, "127.0.0.1", 0), "127.0.0.2:0");
        assert_eq!(bind(Driver::LinuxUdp, "10.0.0.1", 7), "0.0.0.0:0");
        assert_eq!(bind(Driver::Raw, "10.0.0.1", 0), "0.0.0.0:0");
        assert_eq!(bind(Driver::Raw, "fd00::1", 0), "[::]:0");
        assert_eq!(bind(Driver::Raw, "127.0.0.1", 0), "127.0.0.2:0");
        assert_eq!(bind(Driver::Raw, "127.0.0.1", 63), "127.0.0.65:0");
        assert_eq!(bind(Driver::Raw, "127.0.0.2", 0), "127.0.0.1:0");
    }
}
