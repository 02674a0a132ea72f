//! The UDP path over a link with an MTU set by the test: the loopback device of a separate network namespace.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::common::{message, packets, receive_packets};
use homa_driver::linux_udp::{LinuxUdpConfig, LinuxUdpDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::{Driver, RxBurst};

/// Moves this thread into a new network namespace with a loopback device that is up. Returns false, with the
/// reason printed, if the test lacks the required privilege.
fn enter_namespace() -> bool {
    // SAFETY: the call affects only this thread, which creates its sockets afterwards.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        homa_testkit::skip(format_args!("no network namespace: {}", std::io::Error::last_os_error()));
        return false;
    }
    change_loopback(libc::SIOCSIFFLAGS, |request| {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    });
    true
}

fn set_mtu(mtu: libc::c_int) {
    change_loopback(libc::SIOCSIFMTU, |request| request.ifr_ifru.ifru_mtu = mtu);
}

fn change_loopback(change: libc::Ioctl, fill: impl FnOnce(&mut libc::ifreq)) {
    // SAFETY: all-zero bytes are a valid value of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = from as libc::c_char;
    }
    fill(&mut request);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    // SAFETY: the socket is open, and the request is the structure that these calls take.
    let result = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), change, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn bind(segmentation: bool) -> UdpDriver {
    let bind = "127.0.0.1:0".parse().unwrap();
    UdpDriver::bind(&UdpConfig { bind, segmentation, ..UdpConfig::default() }).unwrap()
}

#[test]
fn the_devices_mtu_bounds_packets_and_full_ones_arrive() {
    if !enter_namespace() {
        return;
    }
    set_mtu(1_500);
    for segmentation in [true, false] {
        let (mut a, mut b) = (bind(segmentation), bind(segmentation));
        assert_eq!(a.max_packet(b.local_addr()), 1_472);
        let bytes: Vec<Vec<u8>> = (0..40).map(|i| message(1_472, i as u8)).collect();
        assert_eq!(a.send(&packets(b.local_addr(), 1, &bytes)).unwrap(), 40);
        let got = receive_packets(&mut b, 40);
        assert!(got.iter().map(|(_, packet)| packet).eq(&bytes));
        assert_eq!(a.stats().send_errors.total(), 0);
    }
}

#[test]
fn a_path_that_narrows_costs_the_packets_that_no_longer_fit_and_is_learnt() {
    if !enter_namespace() {
        return;
    }
    for segmentation in [true, false] {
        set_mtu(1_500);
        let (mut a, mut b) = (bind(segmentation), bind(segmentation));
        let to = b.local_addr();
        assert_eq!(a.max_packet(to), 1_472);
        set_mtu(1_000);
        let mut bytes: Vec<Vec<u8>> = (0..10).map(|i| message(1_472, i as u8)).collect();
        bytes.push(message(500, 10));
        assert_eq!(a.send(&packets(to, 1, &bytes)).unwrap(), 11);
        assert_eq!(receive_packets(&mut b, 1)[0].1, bytes[10], "the one that fits arrives");
        assert_eq!((a.stats().send_errors.too_big, a.stats().send_errors.total()), (10, 10));
        assert_eq!(a.stats().network_errors, 0, "this host's own report is not the network's");
        assert_eq!(a.max_packet(to), 972);
        let bytes: Vec<Vec<u8>> = (0..10).map(|i| message(972, i as u8)).collect();
        assert_eq!(a.send(&packets(to, 1, &bytes)).unwrap(), 10);
        assert_eq!(receive_packets(&mut b, 10).len(), 10);
    }
}

/// Sends an ICMP error about a packet between two UDP ports of loopback. The packet contained a Homa packet
/// of the RPC `id` and was longer than `mtu` bytes.
fn report_too_long(ports: [u16; 2], id: u64, mtu: u16) {
    let mut quoted = vec![0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
    quoted.extend(ports.map(u16::to_be_bytes).concat());
    quoted.extend([5, 0xc8, 0, 0]);
    quoted.extend([0; 20]);
    quoted.extend(id.to_be_bytes());
    let mut packet = vec![3, 4, 0, 0, 0, 0];
    packet.extend(mtu.to_be_bytes());
    packet.extend(quoted);
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[2..4].copy_from_slice(&(!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes());
    let (kind, protocol) = (socket2::Type::RAW, socket2::Protocol::ICMPV4);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, Some(protocol)).unwrap();
    let to: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.send_to(&packet, &to.into()).unwrap();
}

/// Returns the kernel's path MTU between two ports of loopback.
fn kernel_path_mtu(to: SocketAddr) -> i32 {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    let (mut mtu, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the socket is open, and the kernel writes at most `length` bytes to `mtu`, which is `length`
    // bytes long.
    let result = unsafe {
        let mtu: *mut libc::c_int = &raw mut mtu;
        libc::getsockopt(fd, libc::IPPROTO_IP, libc::IP_MTU, mtu.cast(), &raw mut length)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    mtu
}

/// SEND-17: earlier, a forged report before the first packet to a peer reduced the path MTU through the
/// kernel's cache.
#[test]
fn a_forged_report_before_the_first_packet_narrows_no_path() {
    if !enter_namespace() {
        return;
    }
    set_mtu(1_500);
    let (mut a, mut b) = (bind(true), bind(true));
    let to = b.local_addr();
    report_too_long([a.local_addr().port(), to.port()], 77, 600);
    assert_eq!(kernel_path_mtu(to), 600, "the kernel believes every report that names a socket");
    assert_eq!(a.max_packet(to), 1_472);
    let bytes: Vec<Vec<u8>> = (0..10).map(|i| message(1_472, i)).collect();
    assert_eq!(a.send(&packets(to, 1, &bytes)).unwrap(), 10);
    assert_eq!(receive_packets(&mut b, 10).len(), 10);
    assert_eq!(a.max_packet(to), 1_472, "also after the report was read");
    // A smaller device MTU still takes effect.
    set_mtu(1_000);
    assert_eq!(a.send(&packets(to, 1, &bytes)).unwrap(), 10);
    assert_eq!((a.stats().send_errors.too_big, a.max_packet(to)), (10, 972));
}

/// An off-path attacker may forge the report, but does not know the ID that it must quote.
#[test]
fn a_path_narrows_only_by_a_report_that_quotes_a_packet_of_ours() {
    if !enter_namespace() {
        return;
    }
    set_mtu(1_500);
    let (mut a, mut b) = (bind(true), bind(true));
    let to = b.local_addr();
    assert_eq!(a.max_packet(to), 1_472);
    let bytes: Vec<Vec<u8>> = (0..10).map(|i| message(1_472, i)).collect();
    let all_arrive = |a: &mut UdpDriver, b: &mut UdpDriver| {
        assert_eq!(a.send(&packets(to, 1, &bytes)).unwrap(), 10);
        assert_eq!(receive_packets(b, 10).len(), 10);
    };
    all_arrive(&mut a, &mut b);
    let id = u64::from_be_bytes(bytes[3][20..28].try_into().unwrap());
    let report = |a: &mut UdpDriver, id: u64| {
        let before = a.stats().network_errors;
        report_too_long([a.local_addr().port(), to.port()], id, 600);
        // Loopback delivers the report before the send call returns.
        assert_eq!(a.receive(&mut RxBurst::new()).unwrap(), 0);
        assert_eq!(a.stats().network_errors, before + 1);
    };
    report(&mut a, id ^ 0x100_0000);
    assert_eq!(a.max_packet(to), 1_472, "nobody has sent a packet with this id");
    all_arrive(&mut a, &mut b);
    report(&mut a, id);
    assert_eq!(a.max_packet(to), 600 - 28);
}

/// Number of reports in a flood.
const FORGED_REPORTS: u64 = 30_000;

/// Sends short packets from `driver` to `to` while others forge reports that packets are too long, which the
/// kernel returns as errors of the sends. Meanwhile `sharer` reads the reports.
fn send_beside_forgers(driver: &mut dyn Driver, sharer: &mut (dyn Driver + Send), to: SocketAddr) {
    let ports = [driver.local_addr().port(), to.port()];
    let forged = AtomicU64::new(0);
    let is_over = || forged.load(Relaxed) >= FORGED_REPORTS;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over() {
                let id = forged.fetch_add(1, Relaxed);
                report_too_long(ports, id << 32, 600);
            }
        });
        scope.spawn(|| {
            while !is_over() {
                sharer.receive(&mut RxBurst::new()).unwrap();
            }
        });
        while !is_over() {
            let short: Vec<Vec<u8>> = (0..10).map(|i| message(61, i)).collect();
            assert_eq!(driver.send(&packets(to, 1, &short)).unwrap(), 10);
            assert_eq!(driver.max_packet(to), 1_472);
        }
    });
}

/// SEND-17: earlier, the errors that a flood of forged reports causes counted as refusals of short packets, and
/// reduced the path to a few bytes.
#[test]
fn a_flood_of_forged_reports_narrows_no_path() {
    if !enter_namespace() {
        return;
    }
    set_mtu(1_500);
    let b = bind(true);
    let [mut a, mut other] = [bind(true), bind(true)];
    send_beside_forgers(&mut a, &mut other, b.local_addr());
    let config = LinuxUdpConfig { bind: "127.0.0.1:0".parse().unwrap(), ..LinuxUdpConfig::default() };
    let mut sharers = LinuxUdpDriver::bind_group(&config, 2).unwrap().into_iter();
    let (mut a, mut other) = (sharers.next().unwrap(), sharers.next().unwrap());
    send_beside_forgers(&mut a, &mut other, b.local_addr());
}
