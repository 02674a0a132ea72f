//! AF_XDP between two network namespaces.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::common::{message, packets, poll_readable, receive_packets, receive_priorities};
use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{LinkError, XdpConfig, XdpDriver, XdpMode};
use homa_driver::{Carrier, Driver, KeptFrame, RxBurst};
use homa_testkit::namespace::{Namespace, V4, V6, pair, pair_with};

/// Time limit for the kernel's background work.
const PATIENCE: Duration = Duration::from_secs(60);

const MODES: [XdpMode; 2] = [XdpMode::Native, XdpMode::Generic];

fn host(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 0)
}

fn config(ip: &str, carrier: Carrier, mode: XdpMode) -> XdpConfig {
    XdpConfig { bind: host(ip), carrier, mode, receive_frames: 512, ..XdpConfig::default() }
}

fn open_in(namespace: &Namespace, config: XdpConfig) -> XdpDriver {
    try_open_in(namespace, config).unwrap()
}

fn try_open_in(namespace: &Namespace, config: XdpConfig) -> Result<XdpDriver, LinkError> {
    namespace.run(move || {
        let frames = XdpDriver::open(&config)?;
        learn_paths(&frames);
        Ok(frames)
    })
}

/// Makes a driver query the paths to all peers from its namespace and cache them. The test threads themselves
/// run in a different namespace.
fn learn_paths(driver: &dyn Driver) {
    for ip in V4.iter().chain(&V6) {
        driver.max_packet(host(ip));
    }
}

/// Opens a driver over the kernel's sockets, to act as a peer without AF_XDP.
fn kernel_driver(ip: &str, carrier: Carrier) -> Box<dyn Driver> {
    kernel_driver_that_cuts(ip, carrier, false)
}

/// Like [`kernel_driver`]. `segmentation` is whether the driver leaves segmenting datagrams to the kernel.
fn kernel_driver_that_cuts(ip: &str, carrier: Carrier, segmentation: bool) -> Box<dyn Driver> {
    let driver: Box<dyn Driver> = match carrier {
        Carrier::Udp => {
            let config = UdpConfig { bind: host(ip), segmentation, ..UdpConfig::default() };
            Box::new(UdpDriver::bind(&config).unwrap())
        }
        Carrier::Ip => {
            Box::new(RawDriver::bind(&RawConfig { bind: host(ip), ..RawConfig::default() }).unwrap())
        }
    };
    learn_paths(&*driver);
    driver
}

/// Checks that both copied and lent packets have the priority they were sent with.
fn check_priorities(from: &mut dyn Driver, to: &mut dyn Driver) {
    let there = to.local_addr();
    assert!(to.tell_priorities());
    for priority in [0, 7, 2] {
        let bytes = [message(60, priority), message(1_000, priority)];
        assert_eq!(from.send(&packets(there, priority, &bytes)).unwrap(), 2);
        assert_eq!(receive_priorities(to, 2), [Some(priority); 2]);
    }
}

/// Sends packets of many lengths, in bursts that fit the receiver's buffers, and checks that they arrive in
/// order and unchanged.
fn check_way(from: &mut dyn Driver, to: &mut dyn Driver) {
    let there = to.local_addr();
    let longest = from.max_packet(there);
    let lengths = [28, 29, 60, 100, 511, 512, 1_000, longest - 1, longest];
    let bytes: Vec<Vec<u8>> = (0..90).map(|i| message(lengths[i % lengths.len()], i as u8)).collect();
    for (priority, burst) in bytes.chunks(30).enumerate() {
        let mut packets = &packets(there, priority as u8, burst)[..];
        while !packets.is_empty() {
            let taken = from.send(packets).unwrap();
            packets = &packets[taken..];
        }
        let got = receive_packets(&mut *to, burst.len());
        assert!(got.iter().all(|(sender, _)| *sender == from.local_addr()));
        assert!(got.iter().map(|(_, bytes)| bytes).eq(burst), "unchanged, in order");
    }
    let (out, arrived) = (from.stats(), to.stats());
    assert_eq!((out.send_errors.total(), arrived.truncated, arrived.queue_drops), (0, 0, 0));
}

#[test]
fn sockets_of_the_kernel_and_frames_exchange_packets() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        for carrier in [Carrier::Udp, Carrier::Ip] {
            for ips in [V4, V6] {
                let mut frames = open_in(&namespaces[0], config(ips[0], carrier, mode));
                assert_eq!((frames.is_native(), frames.is_zero_copy()), (mode == XdpMode::Native, false));
                let mut kernel = namespaces[1].run(move || kernel_driver(ips[1], carrier));
                assert_eq!(frames.max_packet(kernel.local_addr()), kernel.max_packet(frames.local_addr()));
                check_way(&mut frames, &mut *kernel);
                check_way(&mut *kernel, &mut frames);
                check_priorities(&mut *kernel, &mut frames);
                check_priorities(&mut frames, &mut *kernel);
                assert_eq!(frames.held_frames(), 0, "bursts have given back what they held");
            }
        }
    }
}

#[test]
fn two_that_use_frames_exchange_packets() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        let mut ends = [0, 1].map(|i| open_in(&namespaces[i], config(V6[i], Carrier::Udp, mode)));
        let [a, b] = &mut ends;
        check_way(a, b);
        check_way(b, a);
    }
}

#[test]
fn more_packets_than_all_rings_hold_pass_in_order() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        let few = |i: usize| XdpConfig { receive_frames: 64, ..config(V4[i], Carrier::Udp, mode) };
        let mut ends = [0, 1].map(|i| open_in(&namespaces[i], few(i)));
        let [a, b] = &mut ends;
        let mut burst = RxBurst::new();
        let mut next = 0_u32;
        for round in 0..1_000_u32 {
            let bytes: Vec<Vec<u8>> =
                (0..16).map(|i| [&message(600, 1)[..], &(round * 16 + i).to_be_bytes()].concat()).collect();
            assert_eq!(a.send(&packets(b.local_addr(), 0, &bytes)).unwrap(), 16);
            while next < (round + 1) * 16 {
                poll_readable(b.poll_fd().unwrap());
                b.receive(&mut burst).unwrap();
                for (_, packet) in &burst {
                    assert_eq!(packet[600..], next.to_be_bytes());
                    next += 1;
                }
            }
        }
        assert_eq!((b.stats().packets_in, b.stats().queue_drops), (16_000, 0));
    }
}

#[test]
fn each_queue_has_its_packets_taken() {
    let Some(namespaces) = pair_with(1_500, 2) else { return };
    for mode in MODES {
        let mut frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, mode));
        assert_eq!(frames.queues(), 2);
        let there = frames.local_addr();
        // The queue of a packet depends on its ports; with this many senders, every queue receives some
        // packets.
        for number in 0..64 {
            let from = namespaces[1].run(move || UdpSocket::bind((V4[1], 0)).unwrap());
            from.send_to(&message(700, number), there).unwrap();
            let got = receive_packets(&mut frames, 1);
            assert_eq!(got, [(from.local_addr().unwrap(), message(700, number))]);
        }
        drop(frames);
        if mode == XdpMode::Generic {
            // If no program makes the veth poll, the queue that a packet came through is no longer known when
            // the packet arrives here.
            continue;
        }
        // A single queue receives only some of the packets.
        let one = XdpConfig { queues: Some(vec![1]), ..config(V4[0], Carrier::Udp, mode) };
        let mut frames = open_in(&namespaces[0], one);
        let there = frames.local_addr();
        for number in 0..64 {
            let from = namespaces[1].run(move || UdpSocket::bind((V4[1], 0)).unwrap());
            from.send_to(&message(700, number), there).unwrap();
        }
        let mut burst = RxBurst::new();
        while frames.stats().packets_in < 16 {
            poll_readable(frames.poll_fd().unwrap());
            frames.receive(&mut burst).unwrap();
        }
    }
}

#[test]
fn the_kernel_serves_the_device_as_before() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        let frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, mode));
        for ips in [V4, V6] {
            let listener = namespaces[0].run(move || TcpListener::bind((ips[0], 0)).unwrap());
            let there = listener.local_addr().unwrap();
            let mut to = namespaces[1].run(move || TcpStream::connect(there).unwrap());
            let (mut from, _) = listener.accept().unwrap();
            // Send only as much as fits into the sockets' buffers.
            let bytes = message(60_000, 3);
            to.write_all(&bytes).unwrap();
            let mut got = vec![0; bytes.len()];
            from.read_exact(&mut got).unwrap();
            assert_eq!(got, bytes);
            let [a, b] = [0, 1].map(|i| namespaces[i].run(move || UdpSocket::bind((ips[i], 0)).unwrap()));
            b.send_to(b"not ours", a.local_addr().unwrap()).unwrap();
            let mut got = [0; 64];
            assert_eq!(a.recv(&mut got).unwrap(), 8);
            let ping = namespaces[1]
                .run(move || Command::new("ping").args(["-c", "1", "-W", "60", ips[0]]).output());
            match ping {
                Ok(ping) => assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout)),
                Err(error) => homa_testkit::skip(format_args!("the part with ping: {error}")),
            }
        }
        assert_eq!(frames.stats().packets_in, 0);
    }
}

/// Whether the first end of the veth has an XDP program.
fn has_program(namespace: &Namespace) -> bool {
    let shown = namespace.run(|| Command::new("ip").args(["link", "show", "v0"]).output().unwrap());
    String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
}

/// Waits until the veth has no XDP program. Processes started by other tests have copies of this process's
/// descriptors until they call exec.
fn await_no_program(namespace: &Namespace) {
    let begin = Instant::now();
    while has_program(namespace) {
        assert!(begin.elapsed() < PATIENCE, "the program is still there");
    }
}

#[test]
fn the_program_goes_with_the_driver_and_the_device_can_be_had_again_at_once() {
    let Some(namespaces) = pair_with(1_500, 2) else { return };
    for mode in MODES {
        let config = config(V4[0], Carrier::Udp, mode);
        for _ in 0..3 {
            let frames = open_in(&namespaces[0], config.clone());
            assert!(has_program(&namespaces[0]));
            drop(frames);
        }
        await_no_program(&namespaces[0]);
    }
}

/// The body of the process that the next test kills, not a test of its own.
#[test]
fn a_process_that_is_to_be_killed() {
    let Ok(ip) = std::env::var("HOMA_TEST_HOLD_XDP") else { return };
    let frames = XdpDriver::open(&config(&ip, Carrier::Udp, XdpMode::Auto)).unwrap();
    println!("holds {}", frames.local_addr());
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
}

#[test]
fn the_program_goes_with_a_process_that_is_killed() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut child = namespaces[0].run(|| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "xdp::a_process_that_is_to_be_killed", "--nocapture"])
            .env("HOMA_TEST_HOLD_XDP", V4[0])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut said = String::new();
    let mut stdout = child.stdout.take().unwrap();
    while !said.contains("holds 10.146.0.1:") {
        let mut bytes = [0; 256];
        let count = stdout.read(&mut bytes).unwrap();
        assert!(count > 0, "the process ended: {said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(has_program(&namespaces[0]));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, XdpMode::Auto));
    let mut kernel = namespaces[1].run(|| kernel_driver(V4[1], Carrier::Udp));
    check_way(&mut *kernel, &mut frames);
    drop(frames);
    await_no_program(&namespaces[0]);
}

#[test]
fn an_mtu_that_native_mode_refuses_is_served_in_generic_mode() {
    let Some(namespaces) = pair(9_000) else { return };
    for ips in [V4, V6] {
        let mut frames = open_in(&namespaces[0], config(ips[0], Carrier::Udp, XdpMode::Auto));
        assert!(!frames.is_native());
        let mut kernel = namespaces[1].run(move || kernel_driver(ips[1], Carrier::Udp));
        assert_eq!(frames.max_packet(kernel.local_addr()), 9_000 - if ips == V4 { 28 } else { 48 });
        check_way(&mut frames, &mut *kernel);
        check_way(&mut *kernel, &mut frames);
        drop(frames);
        let native = XdpConfig { mode: XdpMode::Native, ..config(ips[0], Carrier::Udp, XdpMode::Auto) };
        let error = try_open_in(&namespaces[0], native).unwrap_err().to_string();
        assert!(error.contains("cannot open v0 for packets: attaching the XDP program failed"), "{error}");
    }
}

#[test]
fn reception_goes_on_however_many_frames_are_kept() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        let few = XdpConfig { receive_frames: 64, kept_frames: 1_000, ..config(V4[0], Carrier::Udp, mode) };
        let mut frames = open_in(&namespaces[0], few);
        let mut kernel = namespaces[1].run(|| kernel_driver(V4[1], Carrier::Udp));
        let mut burst = RxBurst::new();
        let mut kept: Vec<(u32, KeptFrame)> = Vec::new();
        let packet = |number: u32| [&message(1_200, number as u8)[..], &number.to_be_bytes()].concat();
        for number in 0..3_000 {
            let bytes = [packet(number)];
            kernel.send(&packets(frames.local_addr(), 0, &bytes)).unwrap();
            poll_readable(frames.poll_fd().unwrap());
            assert_eq!(frames.receive(&mut burst).unwrap(), 1);
            let (_, received) = burst.get(0).unwrap();
            assert_eq!(received, bytes[0]);
            kept.extend(burst.keep(received).map(|frame| (number, frame)));
        }
        assert_eq!(kept.len(), 1_000, "as many as may be kept, and the rest is copied");
        assert_eq!(frames.stats().queue_drops, 0);
        assert!(kept.iter().all(|(number, frame)| frame.as_ref() == packet(*number)), "nobody wrote to them");
        // Frames may be returned from any thread, and after the driver is dropped.
        let half = kept.split_off(500);
        std::thread::spawn(move || drop(half)).join().unwrap();
        burst.clear();
        assert_eq!(frames.held_frames(), 500);
        check_way(&mut *kernel, &mut frames);
        drop(frames);
        assert_eq!(kept[499].1.as_ref(), packet(kept[499].0));
    }
}

#[test]
fn what_cannot_be_had_is_named_with_what_to_do() {
    let Some(namespaces) = pair_with(1_500, 2) else { return };
    let ask = |config: XdpConfig| match try_open_in(&namespaces[0], config) {
        Ok(_) => panic!("it opened"),
        Err(error) => error.to_string(),
    };
    let plain = config(V4[0], Carrier::Udp, XdpMode::Auto);
    let is = |error: String, parts: &[&str]| {
        assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
    };
    let interface = Some("eth7".to_owned());
    is(ask(XdpConfig { interface, ..plain.clone() }), &["no interface eth7", "v0"]);
    let queues = Some(vec![0, 2]);
    is(ask(XdpConfig { queues, ..plain.clone() }), &["v0 has no receive queue 2", "0 to 1"]);
    let zero_copy = Some(true);
    is(ask(XdpConfig { zero_copy, ..plain.clone() }), &["v0 cannot read and write frames itself"]);
    is(ask(XdpConfig { kept_frames: u32::MAX, ..plain.clone() }), &["no memory for", "kept_frames"]);
    let first = open_in(&namespaces[0], plain.clone());
    is(ask(plain.clone()), &["v0 runs the XDP program homa_to_sockets (id", "ip link set v0 xdp off"]);
    drop(first);
    let denied = plain.clone();
    let error = namespaces[0].run(move || {
        std::thread::spawn(move || {
            // SAFETY: the call takes numbers. As a direct system call it affects only this thread, which ends
            // below.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
            XdpDriver::open(&denied).unwrap_err().to_string()
        })
        .join()
        .unwrap()
    });
    is(error, &["CAP_NET_ADMIN", "CAP_BPF", "setcap cap_net_raw,cap_net_admin,cap_bpf+ep /", "--driver udp"]);
}

#[test]
fn a_device_that_is_down_loses_packets_and_goes_on_when_it_is_up() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        let mut frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, mode));
        let mut kernel = namespaces[1].run(|| kernel_driver(V4[1], Carrier::Udp));
        check_way(&mut frames, &mut *kernel);
        namespaces[0].ip("link set v0 down").unwrap();
        let there = kernel.local_addr();
        for _ in 0..3 {
            assert_eq!(frames.send(&packets(there, 0, &[message(100, 1)])).unwrap(), 1);
        }
        assert!(frames.stats().send_errors.unreachable >= 2, "{:?}", frames.stats());
        assert_eq!(frames.receive(&mut RxBurst::new()).unwrap(), 0);
        namespaces[0].ip("link set v0 up").unwrap();
        let mut burst = RxBurst::new();
        let mut came = false;
        while !came {
            frames.send(&packets(there, 0, &[message(100, 2)])).unwrap();
            kernel.receive(&mut burst).unwrap();
            came = burst.iter().any(|(_, packet)| packet == message(100, 2));
        }
    }
}

#[test]
fn a_device_that_is_gone_is_an_error() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, XdpMode::Auto));
    namespaces[0].ip("link del v0").unwrap();
    let mut burst = RxBurst::new();
    while frames.receive(&mut burst).is_ok() {
        assert!(burst.is_empty());
    }
    let to: IpAddr = V4[1].parse().unwrap();
    let _ = frames.send(&packets((to, 9).into(), 0, &[message(100, 1)]));
}

#[test]
fn damaged_frames_are_dropped_and_counted() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        let mut frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, mode));
        let port = frames.local_addr().port();
        // The kernel computes no checksum for data that already has a UDP header.
        let udp = namespaces[1].run(|| {
            let (kind, protocol) = (socket2::Type::RAW, socket2::Protocol::UDP);
            socket2::Socket::new(socket2::Domain::IPV4, kind, Some(protocol)).unwrap()
        });
        let send = |checksum: u16, length: u16| {
            let header = [4_000, port, length, checksum].map(u16::to_be_bytes);
            let bytes = [header.as_flattened(), &[7; 100]].concat();
            udp.send_to(&bytes, &host(V4[0]).into()).unwrap();
        };
        send(0x1234, 108);
        send(0, 109);
        send(0, 7);
        send(0, 108);
        let got = receive_packets(&mut frames, 1);
        assert_eq!(got, [((V4[1].parse::<IpAddr>().unwrap(), 4_000).into(), vec![7; 100])]);
        assert_eq!((frames.stats().damaged, frames.stats().packets_in), (3, 1));
    }
}

#[test]
fn datagrams_that_the_kernel_is_to_cut_come_cut_or_are_counted() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, XdpMode::Native));
    let mut kernel = namespaces[1].run(|| kernel_driver_that_cuts(V4[1], Carrier::Udp, true));
    check_way(&mut *kernel, &mut frames);
    let bytes: Vec<Vec<u8>> = (0..10).map(|number| message(1_400, number)).collect();
    kernel.send(&packets(frames.local_addr(), 0, &bytes)).unwrap();
    assert!(receive_packets(&mut frames, 10).iter().map(|(_, packet)| packet).eq(&bytes));
    // The same over a packet socket; the kernel computes checksums for it too.
    let mut ring = namespaces[1].run(|| {
        let driver =
            PacketDriver::open(&PacketConfig { bind: host(V4[1]), ..PacketConfig::default() }).unwrap();
        learn_paths(&driver);
        driver
    });
    check_way(&mut ring, &mut frames);
    assert_eq!(ring.send(&packets(frames.local_addr(), 0, &bytes)).unwrap(), 10);
    assert!(receive_packets(&mut frames, 10).iter().map(|(_, packet)| packet).eq(&bytes));
    assert_eq!(frames.stats().damaged, 0);
    drop(frames);
    // With the program in the generic receive path, the kernel does no segmentation for a veth, which
    // forwards everything unchanged.
    let mut frames = open_in(&namespaces[0], config(V4[0], Carrier::Udp, XdpMode::Generic));
    kernel.send(&packets(frames.local_addr(), 0, &bytes)).unwrap();
    kernel.send(&packets(frames.local_addr(), 0, &bytes[..1])).unwrap();
    let got = receive_packets(&mut frames, 1);
    assert_eq!((got[0].1.as_slice(), frames.stats().truncated), (&bytes[0][..], 1));
}

/// A child process has copies of all descriptors until it calls exec, which may take a while.
#[test]
fn a_device_is_free_when_its_driver_is_closed_whoever_has_a_copy_of_its_descriptors() {
    let Some(namespaces) = pair(1_500) else { return };
    for mode in MODES {
        let driver = open_in(&namespaces[0], config(V4[0], Carrier::Udp, mode));
        let copies: Vec<OwnedFd> = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter(|entry| {
                std::fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("anon_inode:bpf_link"))
            })
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            // SAFETY: another test may close the descriptor in the meantime. The copy then fails or is of an
            // unrelated file, and is only held.
            .filter_map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().ok())
            .collect();
        assert!(!copies.is_empty(), "{mode:?}: the driver holds its program by a link");
        drop(driver);
        drop(open_in(&namespaces[0], config(V4[0], Carrier::Udp, mode)));
    }
}
