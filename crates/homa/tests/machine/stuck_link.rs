//! Tests a host with loopback and two links, one of which sends almost nothing. Calls over the other link and
//! over loopback must continue.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use super::common::{Echo, PATIENCE, eventually, message};
use homa::driver::raw::RawConfig;
use homa::driver::udp::UdpConfig;
use homa::{DriverChoice, Host, HostBuilder, Server, ServerAddr};
use homa_testkit::namespace::{Namespace, V4, V6, pair};

/// Addresses of the two ends of the second link, as [`V4`] and [`V6`] are for the first.
const OTHER_V4: [&str; 2] = ["10.147.0.1", "10.147.0.2"];
const OTHER_V6: [&str; 2] = ["fd00:147::1", "fd00:147::2"];

/// Size of the socket's send buffer in bytes, small enough for a few calls to fill it.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Number of calls over the stuck link: several times the number for which the socket has room.
const STUCK_CALLS: u64 = 60;

/// Number of calls over each of the other links, one after another.
const CALLS: u64 = 50;

/// The two tested capacities, in bytes, of a device's queue in front of the token bucket. The first exceeds
/// the socket's buffer, so that the socket fills up. The second is less than two packets, so that the queue
/// refuses packets while the socket has room.
const QUEUES: [u32; 2] = [100_000_000, 2_000];

fn config((driver, endpoints): (DriverChoice, usize), ip: &str) -> HostBuilder {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    // Use a different directory from the other hosts of this machine.
    let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
    let udp = UdpConfig { send_buffer_bytes: SEND_BUFFER_BYTES, ..UdpConfig::default() };
    let raw = RawConfig { send_buffer_bytes: SEND_BUFFER_BYTES, ..RawConfig::default() };
    Host::builder()
        .driver(driver)
        .address(bind)
        .endpoints(endpoints)
        .segment_dir(segment_dir)
        .udp(udp)
        .raw(raw)
}

/// Returns two namespaces joined by two links: `v0` and `v1`, `w0` and `w1`.
fn doubly_joined() -> Option<[Namespace; 2]> {
    let pair = pair(1_500)?;
    let join = || {
        pair[0].join("w0", &pair[1], "w1")?;
        for (i, namespace) in pair.iter().enumerate() {
            namespace.ip(&format!("addr add {}/24 dev w{i}", OTHER_V4[i]))?;
            namespace.ip(&format!("-6 addr add {}/64 dev w{i} nodad", OTHER_V6[i]))?;
        }
        // Check that this kernel and this machine have what the test needs.
        pair[0].tc("qdisc add dev v0 root tbf rate 8kbit burst 1600 limit 3000")?;
        pair[0].tc("qdisc del dev v0 root")
    };
    match join() {
        Ok(()) => Some(pair),
        Err::<(), String>(why) => {
            homa_testkit::skip(why);
            None
        }
    }
}

/// Calls the host at this address. If `patient` is true, first repeats one call until it is answered. Then
/// makes `calls` calls, each of which must be answered.
fn call_all(host: &Host, to: ServerAddr, calls: u64, patient: bool) {
    let client = host.client().unwrap();
    if patient {
        let short = Duration::from_millis(200);
        eventually("an answer", || client.call(to, message(10, 0)).timeout(short).wait().is_ok());
    }
    for tag in 0..calls {
        let request = message(3_000, tag);
        let answer = client.call(to, request.clone()).timeout(PATIENCE).wait();
        assert!(answer.as_ref() == Ok(&request), "call {tag} of {to}: {:?}", answer.err());
    }
}

/// Answers requests until the host is closed.
fn serve(server: &Server) {
    while let Ok(mut rpc) = server.recv().wait() {
        let request = rpc.take_payload();
        // A client may abort at any time.
        let _ = rpc.reply(request);
    }
}

/// All peers used to share one socket buffer, and one list of packets for which there was no room. As a
/// result, 0 of 4 calls over the good link and loopback completed.
fn one_link_is_stuck(
    kind: (DriverChoice, usize),
    stuck_ips: [&'static str; 2],
    other_ips: [&'static str; 2],
) {
    let any = if stuck_ips == V4 { "0.0.0.0" } else { "::" };
    let local = if stuck_ips == V4 { "127.0.0.1" } else { "::1" };
    for queue_bytes in QUEUES {
        let Some(namespaces) = doubly_joined() else { return };
        let echo = |end: usize, ip| namespaces[end].run(move || Echo::with(config(kind, ip), 1));
        let there = echo(1, any);
        // Over raw IP the processes of a namespace are one host, and a server of that host is reachable at
        // each of the host's addresses.
        let here = if kind.0 == DriverChoice::Udp { Some(echo(0, local)) } else { None };
        let serves = here.is_none();
        // Run this in the namespace: the host's threads, which start with its first port, must belong to the
        // namespace.
        let (host, own) = namespaces[0].run(move || {
            let host = config(kind, any).bind().unwrap();
            let server = serves.then(|| host.server(99).unwrap());
            let thread = server.map(|server| thread::spawn(move || serve(&server)));
            (host, thread)
        });
        let loopback = SocketAddr::new(local.parse().unwrap(), 0);
        let loopback = here.as_ref().map_or(ServerAddr::new(loopback, 99), |echo| echo.to);
        let at = |ip: &str| ServerAddr::new(SocketAddr::new(ip.parse().unwrap(), there.to.host.port()), 99);
        let [stuck, good] = [stuck_ips[1], other_ips[1]].map(at);
        let host = namespaces[0].run(move || {
            for to in [stuck, good, loopback] {
                call_all(&host, to, 1, true);
            }
            host
        });
        namespaces[0]
            .tc(&format!("qdisc add dev v0 root tbf rate 8kbit burst 1600 limit {queue_bytes}"))
            .unwrap();
        let (host, drops) = namespaces[0].run(move || {
            let client = host.client().unwrap();
            let calls: Vec<_> = (0..STUCK_CALLS)
                .map(|tag| client.call(stuck, message(8_000, tag)).start().unwrap())
                .collect();
            eventually("no room", || host.metrics().driver.would_block > 0);
            for to in [good, loopback] {
                call_all(&host, to, CALLS, false);
            }
            // All calls must end, with either an answer or an error.
            for call in calls {
                let result = call.timeout(2 * PATIENCE).wait();
                assert!(!matches!(result, Err(homa::error::CallError::TimedOut { .. })), "{result:?}");
            }
            let drops = host.metrics().driver.send_errors.link_stuck;
            (host, drops)
        });
        assert!(drops > 0, "{kind:?}, a queue of {queue_bytes} bytes: the link was not stuck");
        namespaces[0].tc("qdisc del dev v0 root").unwrap();
        namespaces[0].run(move || {
            for to in [stuck, good, loopback] {
                call_all(&host, to, 3, true);
            }
            drop(host);
        });
        if let Some(thread) = own {
            thread.join().unwrap();
        }
    }
}

#[test]
fn calls_over_udp_go_on_by_other_links_while_one_is_stuck() {
    one_link_is_stuck((DriverChoice::Udp, 1), V4, OTHER_V4);
    one_link_is_stuck((DriverChoice::Udp, 1), V6, OTHER_V6);
}

#[test]
fn calls_over_raw_ip_go_on_by_other_links_while_one_is_stuck() {
    one_link_is_stuck((DriverChoice::Raw, 1), V4, OTHER_V4);
    one_link_is_stuck((DriverChoice::Raw, 1), V6, OTHER_V6);
}

#[test]
fn calls_of_several_endpoints_go_on_by_other_links_while_one_is_stuck() {
    one_link_is_stuck((DriverChoice::Udp, 2), V4, OTHER_V4);
    one_link_is_stuck((DriverChoice::Raw, 2), V4, OTHER_V4);
}
