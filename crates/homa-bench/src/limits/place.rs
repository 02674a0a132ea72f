//! The network for limits measurements: loopback, or a network namespace for each side with a veth pair
//! between them.
//!
//! The namespaces are unnamed, and the veth pair belongs to them. They disappear with the processes, even if
//! the processes crash.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::addresses::{bare_client_bind, client_bind};
use crate::compare::CpuSplit;
use crate::driver::Driver;
use crate::netns::{current, enter, forget_segment, fresh, ip};

/// Addresses of the two ends of the veth pair.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 146, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 146, 0, 2);

/// Attempts to send a packet through the veth pair, 20 ms each. Together they take up to a minute, because a
/// busy kernel needs many seconds to bring up a device.
const LOOKS: u32 = 3_000;

/// The network between clients and servers, and the processors of each side.
pub struct Place {
    wire: Option<Wire>,
    /// `None` if there is only one processor.
    placement: Option<CpuSplit>,
}

struct Wire {
    outside: OwnedFd,
    clients: OwnedFd,
    servers: OwnedFd,
}

impl Place {
    /// Returns loopback, with separate processors for each side.
    pub fn loopback() -> Result<Place> {
        Ok(Place { wire: None, placement: CpuSplit::split_cpus()? })
    }

    /// Creates two namespaces joined by a veth pair with this MTU, and moves this thread to the clients'
    /// side. With `one_by_one`, large segments are split before they cross the pair. A veth pair otherwise
    /// passes large segments whole, unlike a physical wire.
    ///
    /// # Errors
    /// A privilege or the program `ip` is missing.
    pub fn veth(mtu: u32, one_by_one: bool) -> Result<Place> {
        let wire = Wire { outside: current()?, clients: fresh()?, servers: fresh()? };
        let place = Place { wire: Some(wire), placement: CpuSplit::split_cpus()? };
        place.join(mtu, one_by_one)?;
        Ok(place)
    }

    fn join(&self, mtu: u32, one_by_one: bool) -> Result<()> {
        let Some(wire) = &self.wire else { return Ok(()) };
        let there = format!("/proc/{}/fd/{}", std::process::id(), wire.servers.as_raw_fd());
        enter(&wire.clients)?;
        ip(&format!("link add homa0 mtu {mtu} type veth peer name homa1"))?;
        ip(&format!("link set homa1 netns {there}"))?;
        up("homa0", CLIENT, mtu, one_by_one)?;
        enter(&wire.servers)?;
        up("homa1", SERVER, mtu, one_by_one)?;
        self.await_path()?;
        self.enter_clients()
    }

    /// Waits until packets pass.
    fn await_path(&self) -> Result<()> {
        self.enter_servers()?;
        let to = UdpSocket::bind((SERVER, 0)).context("cannot bind a socket to the veth pair")?;
        to.set_read_timeout(Some(Duration::from_millis(20)))?;
        self.enter_clients()?;
        let from = UdpSocket::bind((CLIENT, 0)).context("cannot bind a socket to the veth pair")?;
        let path = (0..LOOKS).any(|_| {
            // A failed send, like a missing packet, means that there is no path yet.
            let _ = to.local_addr().and_then(|addr| from.send_to(b"?", addr));
            to.recv(&mut [0]).is_ok()
        });
        ensure!(path, "no packet passes the veth pair");
        Ok(())
    }

    /// Returns the name used in results.
    pub fn name(&self) -> &'static str {
        if self.wire.is_some() { "veth" } else { "loopback" }
    }

    /// Moves this thread to the servers' side, with all threads and processes that it starts from now on.
    pub fn enter_servers(&self) -> Result<()> {
        self.wire.as_ref().map_or(Ok(()), |wire| enter(&wire.servers))?;
        self.placement.as_ref().map_or(Ok(()), CpuSplit::enter_servers)
    }

    /// Moves this thread to the clients' side, with all threads and processes that it starts from now on.
    pub fn enter_clients(&self) -> Result<()> {
        self.wire.as_ref().map_or(Ok(()), |wire| enter(&wire.clients))?;
        self.placement.as_ref().map_or(Ok(()), CpuSplit::enter_clients)
    }

    /// Moves this thread back to the machine's own network namespace and to the processors of both sides,
    /// with all threads and processes that it starts from now on.
    pub fn leave(&self) -> Result<()> {
        self.wire.as_ref().map_or(Ok(()), |wire| enter(&wire.outside))?;
        self.placement.as_ref().map_or(Ok(()), CpuSplit::enter_all)
    }

    /// Returns the address to which a server binds.
    pub fn server_bind(&self) -> SocketAddr {
        SocketAddr::from((if self.wire.is_some() { SERVER } else { Ipv4Addr::LOCALHOST }, 0))
    }

    /// Returns the address to which a client of Homa binds or, with `bare`, a client of raw packets.
    pub fn client_bind(&self, driver: Driver, bare: bool) -> Result<SocketAddr> {
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        match (&self.wire, bare) {
            (Some(_), _) => Ok(SocketAddr::from((CLIENT, 0))),
            (None, true) => bare_client_bind(driver, to, 1),
            (None, false) => Ok(client_bind(driver, to, 0)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(wire) = &self.wire {
            // Entering fails only if this thread was never permitted to move.
            let _ = enter(&wire.outside);
            for namespace in [&wire.clients, &wire.servers] {
                forget_segment(namespace);
            }
        }
    }
}

fn up(device: &str, address: Ipv4Addr, mtu: u32, one_by_one: bool) -> Result<()> {
    ip("link set lo up")?;
    ip(&format!("link set {device} mtu {mtu}"))?;
    if one_by_one {
        // Like `ethtool -K DEVICE tso off gso off tx-udp-segmentation off`, but without needing `ethtool`.
        ip(&format!("link set {device} gso_max_segs 1"))?;
    }
    ip(&format!("addr add {address}/24 dev {device}"))?;
    ip(&format!("link set {device} up"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_is_there_and_goes_with_its_place() {
        let before = std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
        let place = match Place::veth(1500, false) {
            Ok(place) => place,
            Err(why) => return homa_testkit::skip(format_args!("{why:#}")),
        };
        assert_eq!(place.name(), "veth");
        assert_ne!(std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace"), before);
        place.leave().expect("a way back");
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace"), before);
        place.enter_clients().expect("a way in again");
        assert_ne!(std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace"), before);
        drop(place);
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace"), before);
    }

    /// Returns the number of packets sent by this thread's end of the veth pair.
    fn sent() -> u64 {
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev").expect("the devices");
        let ours = devices.lines().find_map(|line| line.trim().strip_prefix("homa0:")).expect("our end");
        ours.split_whitespace().nth(9).and_then(|packets| packets.parse().ok()).expect("a number")
    }

    #[test]
    fn packets_cross_one_by_one_where_that_is_asked_for() {
        let crossed = [false, true].map(|one_by_one| {
            let place = Place::veth(1500, one_by_one)
                .map_err(|why| homa_testkit::skip(format_args!("{why:#}")))
                .ok()?;
            let bind = place.client_bind(Driver::Udp, false).expect("an address");
            let config = homa_driver::udp::UdpConfig { bind, ..Default::default() };
            let mut driver = homa_driver::udp::UdpDriver::bind(&config).expect("a socket");
            let to = SocketAddr::from((SERVER, 9));
            let packet = homa_driver::TxPacket { to, priority: 0, header: &[0; 56], payload: &[0; 1_000] };
            let before = sent();
            assert_eq!(homa_driver::Driver::send(&mut driver, &[packet; 40]).expect("a path"), 40);
            Some(sent() - before)
        });
        let [Some(merged), Some(single)] = crossed else { return };
        // The machine itself may send one or two packets.
        assert!(merged < 10 && single >= 40, "{merged} and {single}");
    }
}
