//! Frames between hosts in network namespaces, through a switch in a namespace of its own. Needs root.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use homa_driver::frames::{FramePath, FramesConfig};
use homa_driver::xdp::XdpMode;
use homa_switch::{Bridge, BridgeConfig, Snapshot, SwitchConfig};
use homa_testkit::namespace::Namespace;
use socket2::{Domain, Protocol, Socket, Type};

const PATHS: [FramePath; 3] = [FramePath::Ring, FramePath::Xdp(XdpMode::Generic), FramePath::Auto];

/// Time limit for a datagram that must arrive.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three hosts and a running switch.
struct Rack {
    hosts: Vec<Namespace>,
    stop: Arc<AtomicBool>,
    bridge: Option<JoinHandle<Snapshot>>,
    _switch: Namespace,
}

impl Rack {
    /// Starts the rack. Returns `None`, and prints the reason, if the test lacks a required privilege or
    /// tool.
    fn up(path: FramePath, config: SwitchConfig, nap: Duration) -> Option<Rack> {
        let build = || {
            let switch = Namespace::new()?;
            let mut hosts = Vec::new();
            for number in 1..=3 {
                let host = Namespace::new()?;
                host.join("e0", &switch, &format!("p{number}"))?;
                host.ip(&format!("addr add 10.147.0.{number}/24 dev e0"))?;
                hosts.push(host);
            }
            Ok((switch, hosts))
        };
        let (switch, hosts) = match build() {
            Ok(built) => built,
            Err::<_, String>(why) => {
                homa_testkit::skip(why);
                return None;
            }
        };
        let devices = (1..=3).map(|number| format!("p{number}")).collect();
        let config = BridgeConfig {
            frames: FramesConfig { path, ..FramesConfig::new(devices) },
            switch: config,
            poll: Duration::from_millis(1),
            nap,
            planted_work: Duration::ZERO,
            trace_records: 0,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let bridge = switch.run(move || {
            let mut bridge = Bridge::open(&config).expect("the devices are there");
            std::thread::spawn(move || {
                bridge.run(|_| told.load(Ordering::Relaxed));
                bridge.snapshot()
            })
        });
        Some(Rack { hosts, stop, bridge: Some(bridge), _switch: switch })
    }

    /// Opens a socket on a host. Its datagrams have no checksum, since a checksum would be left to the
    /// device.
    fn socket(&self, host: usize) -> UdpSocket {
        self.hosts[host].run(move || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            let one: libc::c_int = 1;
            // SAFETY: the descriptor is open, and the kernel reads an integer.
            let result = unsafe {
                use std::os::fd::AsRawFd;
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_NO_CHECK,
                    (&raw const one).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
            assert_eq!(result, 0);
            let address: std::net::SocketAddr = format!("10.147.0.{}:7", host + 1).parse().unwrap();
            socket.bind(&address.into()).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.into()
        })
    }

    fn down(mut self) -> Snapshot {
        self.stop.store(true, Ordering::Relaxed);
        self.bridge.take().expect("it runs").join().expect("the switch did not panic")
    }
}

/// Sends until a reply arrives, because a device that has just come up loses frames.
fn until_answered(from: &UdpSocket, to: &UdpSocket) {
    to.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let there = to.local_addr().unwrap();
    let begin = Instant::now();
    loop {
        from.send_to(b"?", there).unwrap();
        if to.recv(&mut [0]).is_ok() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "no datagram passes the switch");
    }
    // The path is up and preserves frame order, so repeated datagrams arrive before the last one.
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    from.send_to(b"!", there).unwrap();
    let mut last = [0];
    while last != *b"!" {
        to.recv(&mut last).expect("the last datagram comes");
    }
}

#[test]
fn hosts_reach_each_other_by_every_path_and_only_whom_they_mean() {
    for path in PATHS {
        let Some(rack) = Rack::up(path, SwitchConfig::default(), Duration::ZERO) else { return };
        let sockets: Vec<UdpSocket> = (0..3).map(|host| rack.socket(host)).collect();
        for (from, to) in [(0, 1), (1, 0), (2, 0), (1, 2)] {
            until_answered(&sockets[from], &sockets[to]);
        }
        let (there, mut buffer) = (sockets[1].local_addr().unwrap(), [0; 2_000]);
        for length in [1, 100, 1_472] {
            sockets[0].send_to(&vec![7; length], there).unwrap();
            assert_eq!(sockets[1].recv(&mut buffer).unwrap(), length, "{path:?}");
            assert!(buffer[..length].iter().all(|&byte| byte == 7));
        }
        let snapshot = rack.down();
        let sent = |port: usize| snapshot.ports[port].queues.iter().map(|queue| queue.frames).sum::<u64>();
        assert!(snapshot.addresses >= 3 && snapshot.flooded > 0, "{snapshot:?}");
        assert!(sent(1) > sent(2), "host 3 does not get what is for host 2");
        let drops: u64 = snapshot.ports.iter().map(|port| port.receive_drops + port.too_long).sum();
        assert_eq!(drops, 0, "{path:?}: {snapshot:?}");
    }
}

#[test]
fn the_higher_priority_overtakes_what_waits_for_a_slow_link() {
    // A full frame takes 12 ms, so this test has 600 ms to send all of them before the switch has sent most.
    const FRAMES: u8 = 60;
    const OVERTAKEN_AT_LEAST: usize = 10;
    let nap = Duration::from_millis(3);
    for (path, nap) in PATHS.map(|path| (path, Duration::ZERO)).into_iter().chain([(FramePath::Auto, nap)]) {
        let config = SwitchConfig {
            rate_bps: Some(1_000_000),
            buffer: homa_switch::Buffer::PerPort { bytes: 100_000 },
            ..SwitchConfig::default()
        };
        let begin = Instant::now();
        let Some(rack) = Rack::up(path, config, nap) else { return };
        let [from, to] = [rack.socket(0), rack.socket(1)];
        until_answered(&from, &to);
        let there = to.local_addr().unwrap();
        let low = socket2::SockRef::from(&from);
        for number in 0..FRAMES {
            from.send_to(&[number; 1_400], there).unwrap();
        }
        low.set_tos_v4(7 << 5).unwrap();
        from.send_to(&[99; 100], there).unwrap();
        let mut order = Vec::new();
        let mut buffer = [0; 2_000];
        while order.len() <= usize::from(FRAMES) {
            to.recv(&mut buffer).expect("every frame has room");
            order.push(buffer[0]);
        }
        let at = order.iter().position(|&number| number == 99).expect("it has come");
        assert!(at + OVERTAKEN_AT_LEAST < usize::from(FRAMES), "{path:?}: {order:?}");
        order.remove(at);
        assert!(order.iter().copied().eq(0..FRAMES), "equals keep their order: {order:?}");
        let snapshot = rack.down();
        if !nap.is_zero() {
            // A frame ends a sleep early, but not a nap.
            let most = begin.elapsed().as_nanos() / nap.as_nanos() + u128::from(snapshot.busy_rounds) + 1;
            let idle = snapshot.rounds - snapshot.busy_rounds;
            assert!(u128::from(idle) <= most, "{idle} looks found nothing, of {most} at most");
        }
        let queues = &snapshot.ports[1].queues;
        assert!(
            queues[0].frames >= u64::from(FRAMES)
                && queues[7].frames == 1
                && queues[0].depth.max_bytes > 5 * 1_400
        );
    }
}

#[test]
fn a_device_that_is_not_there_or_is_taken_is_named() {
    let open = |devices: &[&str], path| {
        let devices = devices.iter().map(|&name| name.to_owned()).collect();
        let config = BridgeConfig {
            frames: FramesConfig { path, ..FramesConfig::new(devices) },
            switch: SwitchConfig::default(),
            poll: Duration::ZERO,
            nap: Duration::ZERO,
            planted_work: Duration::ZERO,
            trace_records: 0,
        };
        Bridge::open(&config).map(drop).map_err(|error| error.to_string())
    };
    assert!(
        open(&["nowhere0", "nowhere1"], FramePath::Auto).unwrap_err().contains("no network device nowhere0")
    );
    let Some(rack) = Rack::up(FramePath::Auto, SwitchConfig::default(), Duration::ZERO) else { return };
    assert!(open(&["lo", "lo"], FramePath::Ring).unwrap_err().contains("lo is named twice"));
    let again = rack._switch.run(move || open(&["p1", "p2"], FramePath::Xdp(XdpMode::Generic)));
    let error = again.unwrap_err();
    assert!(error.contains("p1") && error.contains("taken"), "{error}");
    rack.down();
}
