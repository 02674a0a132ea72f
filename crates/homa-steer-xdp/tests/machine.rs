//! Steering on devices, in network namespaces (as root).

use std::ffi::CString;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use homa_bpf::attach::XdpMode;
use homa_steer::{Cores, PolicyName, Reason};
use homa_steer_xdp::{AttachLifetime, Filter, IN_KERNEL, SteerConfig, Steering, SteeringError};
use homa_testkit::namespace::{Namespace, V4, pair};

/// Returns the cores of the machine, at most two.
fn cores() -> Cores {
    Cores::first(std::thread::available_parallelism().map_or(1, usize::from).min(2)).unwrap()
}

fn config(policy: PolicyName) -> SteerConfig {
    SteerConfig { policy, cores: cores(), ..SteerConfig::default() }
}

fn attach(
    namespace: &Namespace,
    config: SteerConfig,
    hold: AttachLifetime,
) -> Result<Steering, SteeringError> {
    namespace.run(move || homa_steer_xdp::attach(&["v1".to_owned()], &config, hold))
}

/// Time limit for a packet that must arrive.
const PATIENCE: Duration = Duration::from_secs(60);

/// First port of the senders, below the ports that the kernel chooses.
const FIRST_PORT: u16 = 20_000;

/// Sends this many datagrams, each from a port of its own, one after the other, and checks that all of them
/// arrive.
fn send(pair: &[Namespace; 2], count: usize) {
    let to = pair[1].run(|| UdpSocket::bind((V4[1], 0)).unwrap());
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let there = to.local_addr().unwrap();
    for number in 0..count as u32 {
        // A port chosen by the kernel may have been chosen before.
        let from = pair[0].run(move || UdpSocket::bind((V4[0], FIRST_PORT + number as u16)).unwrap());
        from.send_to(&number.to_be_bytes(), there).unwrap();
        let mut bytes = [0; 4];
        to.recv(&mut bytes).unwrap_or_else(|error| panic!("datagram {number} did not arrive: {error}"));
        assert_eq!(u32::from_be_bytes(bytes), number);
    }
}

fn status(namespace: &Namespace) -> Result<homa_steer_xdp::Status, SteeringError> {
    namespace.run(|| homa_steer_xdp::status("v1"))
}

#[test]
fn every_policy_steers_and_all_packets_arrive_and_are_counted() {
    let Some(pair) = pair(1_500) else { return };
    let udp = Filter { udp: true, ..Filter::NONE };
    for policy in IN_KERNEL {
        drop(
            attach(&pair[1], SteerConfig { filter: udp, ..config(policy) }, AttachLifetime::Device).unwrap(),
        );
        send(&pair, 200);
        let status = status(&pair[1]).unwrap();
        assert_eq!((status.policy, status.filter, status.held_by_process), (policy, udp, false));
        assert_eq!((status.packets(), status.drops()), (200, 0), "{status:?}");
        assert_eq!(status.decisions.iter().map(|(_, count)| count).sum::<u64>(), 200, "{status:?}");
        let chosen = |reason: Reason| {
            status.decisions.iter().find(|(other, _)| *other == reason).map_or(0, |(_, count)| *count)
        };
        match policy {
            PolicyName::Sparse => {
                let slots = 4 * status.cores.len() as u64;
                assert_eq!(chosen(Reason::NewFlow), slots, "{status:?}");
                assert_eq!(chosen(Reason::FlowHash), 200 - slots, "{status:?}");
            }
            PolicyName::Gen2 => assert!(chosen(Reason::Stays) > 0, "{status:?}"),
            _ => assert!(status.cores.iter().all(|core| core.packets > 20 && core.flows > 5.0), "{status:?}"),
        }
        assert_eq!(pair[1].run(homa_steer_xdp::steered).unwrap(), ["v1"]);
        pair[1].run(|| homa_steer_xdp::detach("v1")).unwrap();
        assert!(pair[1].run(homa_steer_xdp::steered).unwrap().is_empty());
        send(&pair, 5);
    }
}

#[test]
fn a_device_takes_one_program_and_its_traffic_goes_on() {
    let Some(pair) = pair(1_500) else { return };
    attach(&pair[1], config(PolicyName::Sparse), AttachLifetime::Device).unwrap();
    for hold in [AttachLifetime::Device, AttachLifetime::Process] {
        let error = attach(&pair[1], config(PolicyName::RssHash), hold).unwrap_err().to_string();
        assert!(
            error.contains("v1 already runs the XDP program homa_steer") && error.contains("detach v1"),
            "{error}"
        );
    }
    send(&pair, 5);
    assert_eq!(status(&pair[1]).unwrap().policy, PolicyName::Sparse);
    pair[1].run(|| homa_steer_xdp::detach("v1")).unwrap();
    for error in [status(&pair[1]).unwrap_err(), pair[1].run(|| homa_steer_xdp::detach("v1")).unwrap_err()] {
        assert!(error.to_string().contains("v1 is not steered"), "{error}");
    }
    send(&pair, 5);
}

#[test]
fn what_a_process_holds_goes_with_it_and_can_be_detached_by_others() {
    let Some(pair) = pair(1_500) else { return };
    let steering = attach(&pair[1], config(PolicyName::RssHash), AttachLifetime::Process).unwrap();
    assert!(status(&pair[1]).unwrap().held_by_process);
    send(&pair, 5);
    let steering = Arc::new(steering);
    let of = |steering: &Arc<Steering>| {
        let steering = Arc::clone(steering);
        pair[1].run(move || steering.lost().map(str::to_owned))
    };
    assert_eq!(of(&steering), None);
    pair[1].run(|| homa_steer_xdp::detach("v1")).unwrap();
    assert_eq!(of(&steering), Some("v1".to_owned()));
    drop(steering);
    let again = attach(&pair[1], config(PolicyName::RssHash), AttachLifetime::Process).unwrap();
    drop(again);
    // The kernel detaches the program only after it has released the link, which takes a while.
    let begin = Instant::now();
    let mut error = None;
    while error.is_none() && begin.elapsed() < PATIENCE {
        error = status(&pair[1]).err();
    }
    assert!(error.is_some_and(|error| error.to_string().contains("not steered")));
    send(&pair, 5);
}

#[test]
fn two_devices_have_one_state_and_either_both_are_steered_or_none() {
    let (Some(pair), Ok(third)) = (pair(1_500), Namespace::new()) else { return };
    pair[1].join("w1", &third, "w0").unwrap();
    let both = |names: [&'static str; 2]| {
        pair[1].run(move || {
            homa_steer_xdp::attach(
                &names.map(str::to_owned),
                &config(PolicyName::Sparse),
                AttachLifetime::Device,
            )
            .map(drop)
        })
    };
    let error = both(["v1", "none0"]).unwrap_err().to_string();
    assert!(error.contains("no interface none0") && error.contains("w1"), "{error}");
    assert!(pair[1].run(homa_steer_xdp::steered).unwrap().is_empty());
    both(["v1", "w1"]).unwrap();
    send(&pair, 3);
    let on_other = pair[1].run(|| homa_steer_xdp::status("w1")).unwrap();
    assert!(on_other.packets() >= 3, "{on_other:?}");
    pair[1].run(|| homa_steer_xdp::detach("v1")).unwrap();
    assert!(both(["v1", "w1"]).unwrap_err().to_string().contains("w1 already runs the XDP program"));
    assert_eq!(pair[1].run(homa_steer_xdp::steered).unwrap(), ["w1"], "v1 was let go again");
}

#[test]
fn a_device_that_vanishes_takes_everything_with_it() {
    let Some(pair) = pair(1_500) else { return };
    let steering = attach(&pair[1], config(PolicyName::RssHash), AttachLifetime::Process).unwrap();
    pair[1].ip("link del v1").unwrap();
    let lost = pair[1].run(move || steering.lost().map(str::to_owned));
    assert_eq!(lost, Some("v1".to_owned()));
    for error in [status(&pair[1]).unwrap_err(), pair[1].run(|| homa_steer_xdp::detach("v1")).unwrap_err()] {
        assert!(error.to_string().contains("no interface v1"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_attached() {
    let refused = |names: &[&str], config: SteerConfig, part: &str| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let error = homa_steer_xdp::attach(&names, &config, AttachLifetime::Process).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    };
    let base = config(PolicyName::RssHash);
    refused(&[], base.clone(), "name a device");
    refused(&["none0"], base.clone(), "no interface none0");
    refused(&["lo"], config(PolicyName::LeastLoaded), "choose one of rss-hash, sparse, homa-hash, gen2");
    refused(&["lo"], SteerConfig { cores: "255".parse().unwrap(), ..base.clone() }, "core 255 is not online");
    refused(&["lo"], SteerConfig { queue_packets: 0, ..base.clone() }, "queue_packets");
    refused(&["lo"], SteerConfig { queue_packets: 16_385, ..base.clone() }, "queue_packets");
    refused(&["lo"], SteerConfig { filter: Filter::NONE, ..base.clone() }, "admits nothing");
    let settings = homa_steer::Settings { levels: 6, ..homa_steer::Settings::default() };
    refused(&["lo"], SteerConfig { settings, ..base }, "6 levels");
}

/// Opens a packet socket on a device of this thread's namespace. The socket reports the VLAN tags that the
/// kernel removed from received frames.
fn packet_socket(device: &str) -> OwnedFd {
    let device = CString::new(device).unwrap();
    // SAFETY: the name is a C string that outlives the call.
    let index = unsafe { libc::if_nametoindex(device.as_ptr()) };
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: the call takes numbers and no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, protocol.into()) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: the structure consists of numbers, for which zero bytes are valid.
    let mut at: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (at.sll_family, at.sll_protocol, at.sll_ifindex) = (libc::AF_PACKET as u16, protocol, index as i32);
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `at` has `bytes` bytes and outlives the call.
    assert_eq!(unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), bytes) }, 0);
    let (yes, wait) = (1_i32, libc::timeval { tv_sec: PATIENCE.as_secs() as libc::time_t, tv_usec: 0 });
    let options: [(_, _, *const libc::c_void, _); 2] = [
        (libc::SOL_PACKET, libc::PACKET_AUXDATA, (&raw const yes).cast(), size_of::<i32>()),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const wait).cast(), size_of::<libc::timeval>()),
    ];
    for (level, option, value, bytes) in options {
        // SAFETY: each value has its length in `bytes`, and outlives the call.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes as u32) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
    socket
}

fn send_frame(socket: &OwnedFd, frame: &[u8]) {
    // SAFETY: pointer and length are those of `frame`, which outlives the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
}

/// Returns the next frame, with the type and value of the tag that the kernel removed, if there was one.
fn next_frame(socket: &OwnedFd) -> (Vec<u8>, Option<(u16, u16)>) {
    const ROOM: usize = 64;
    let (mut frame, mut control) = (vec![0; 2_000], [0_u64; ROOM / 8]);
    let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
    // SAFETY: null pointers and zero lengths are valid fields of the header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), ROOM as _);
    // SAFETY: the header's pointers refer to local buffers of the given lengths, which outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    assert!(length > 0, "{}", std::io::Error::last_os_error());
    frame.truncate(length as usize);
    // SAFETY: the kernel has filled the header and the control buffer, which are still alive.
    let said = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let said =
        said.filter(|said| (said.cmsg_level, said.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA));
    let aux = said.map(|said| {
        // SAFETY: a header of this type is followed by this structure, and the read needs no alignment.
        unsafe { libc::CMSG_DATA(said).cast::<libc::tpacket_auxdata>().read_unaligned() }
    });
    let tagged = aux.filter(|aux| aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0);
    (frame, tagged.map(|aux| (aux.tp_vlan_tpid, aux.tp_vlan_tci)))
}

/// Creates a UDP datagram with a flow and a number, after these VLAN tags.
fn tagged_frame(tags: &[(u16, u16)], flow: u8, number: u32) -> Vec<u8> {
    let mut frame = [0xff; 12].to_vec();
    for (kind, value) in tags {
        frame.extend(kind.to_be_bytes().iter().chain(&value.to_be_bytes()));
    }
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 146, 0, 1, 10, 146, 0, flow]);
    frame.extend([0x30, flow, 0x30, 1, 0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

#[test]
fn packets_behind_vlan_tags_are_steered_and_keep_their_tags() {
    const FLOWS: u8 = 64;
    let Some(pair) = pair(1_500) else { return };
    let [from, to] = [0, 1].map(|end| pair[end].run(move || packet_socket(["v0", "v1"][end])));
    let udp = Filter { udp: true, ..Filter::NONE };
    let mut number = 0xfeed_0000_u32;
    for mode in [XdpMode::Generic, XdpMode::Native] {
        for tags in [&[][..], &[(0x8100, 5)], &[(0x88a8, 7), (0x8100, 5)]] {
            attach(
                &pair[1],
                SteerConfig { filter: udp, mode, ..config(PolicyName::RssHash) },
                AttachLifetime::Device,
            )
            .unwrap();
            for flow in 0..FLOWS {
                number += 1;
                send_frame(&from, &tagged_frame(tags, flow, number));
                let (frame, tag) = std::iter::repeat_with(|| next_frame(&to))
                    .find(|(frame, _)| frame.ends_with(&number.to_be_bytes()))
                    .expect("a read that waits for too long fails");
                let behind_first = tagged_frame(tags.get(1..).unwrap_or_default(), flow, number);
                assert_eq!((frame, tag), (behind_first, tags.first().copied()), "{mode:?} {tags:?}");
            }
            let status = status(&pair[1]).unwrap();
            assert_eq!((status.packets(), status.drops()), (FLOWS.into(), 0), "{mode:?} {tags:?} {status:?}");
            assert!(status.cores.iter().all(|core| core.packets > 10), "{mode:?} {tags:?} {status:?}");
            pair[1].run(|| homa_steer_xdp::detach("v1")).unwrap();
        }
    }
}
