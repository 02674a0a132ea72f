use std::os::fd::AsFd;

use super::*;

const XDP_DROP: u32 = 1;
const PORT: u16 = 4_000;

fn ours(udp_port: Option<u16>) -> LocalAddresses {
    let ips = ["10.146.0.1", "10.146.0.77", "fd00:146::1", "fe80::77"];
    LocalAddresses { udp_port, ips: ips.map(|ip| ip.parse().unwrap()).to_vec(), sockets: 1 }
}

/// Builds a frame to this address, with the address's EtherType, this protocol and destination port, and some
/// payload.
fn frame(to: &str, protocol: u8, port: u16) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    match to.parse().unwrap() {
        IpAddr::V4(ip) => {
            frame.extend([
                0x08, 0x00, 0x45, 0x20, 0, 0, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0, 10, 146, 0, 2,
            ]);
            frame.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            frame.extend([0x86, 0xdd, 0x62, 0, 0, 0, 0, 36, protocol, 64]);
            frame.extend([0xfd; 16]);
            frame.extend(ip.octets());
        }
    }
    frame.extend([0x12, 0x34]);
    frame.extend(port.to_be_bytes());
    frame.extend([0; 60]);
    frame
}

/// A program that runs in the kernel and drops this driver's frames. Creating it returns `None`, with the
/// reason printed, if the test lacks the required privilege.
struct Classifier(OwnedFd);

impl Classifier {
    fn load(ours: &LocalAddresses) -> Option<Classifier> {
        let program = assemble(ours, |program| program.set(R0, XDP_DROP));
        match load(&program) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                homa_testkit::skip(format_args!("loading a program: {error}"));
                None
            }
            loaded => Some(Classifier(loaded.unwrap())),
        }
    }

    fn accepts(&self, frame: &[u8]) -> bool {
        match program::test_run(self.0.as_fd(), frame).unwrap() {
            XDP_PASS => false,
            XDP_DROP => true,
            other => panic!("the program ended with {other}"),
        }
    }
}

const TO: [&str; 4] = ["10.146.0.1", "10.146.0.77", "fd00:146::1", "fe80::77"];
const NOT_TO: [&str; 6] =
    ["10.146.0.2", "11.146.0.1", "255.255.255.255", "fd00:146::2", "fd01:146::1", "fe80:0:1::77"];

#[test]
fn udp_for_our_port_and_addresses_is_ours() {
    let Some(classifier) = Classifier::load(&ours(Some(PORT))) else { return };
    for to in TO {
        assert!(classifier.accepts(&frame(to, 17, PORT)), "{to}");
        assert!(!classifier.accepts(&frame(to, 17, PORT + 1)), "{to}: another port");
        assert!(!classifier.accepts(&frame(to, 17, PORT.swap_bytes())), "{to}: the bytes of the port");
        assert!(!classifier.accepts(&frame(to, 6, PORT)), "{to}: TCP");
        assert!(!classifier.accepts(&frame(to, 146, PORT)), "{to}: Homa in IP");
    }
    for to in NOT_TO {
        assert!(!classifier.accepts(&frame(to, 17, PORT)), "{to}");
    }
}

#[test]
fn homa_in_ip_for_our_addresses_is_ours_whatever_its_ports() {
    let Some(classifier) = Classifier::load(&ours(None)) else { return };
    for to in TO {
        assert!(classifier.accepts(&frame(to, 146, 0)) && classifier.accepts(&frame(to, 146, PORT)), "{to}");
        assert!(!classifier.accepts(&frame(to, 17, PORT)), "{to}");
        assert!(
            !classifier.accepts(&frame(to, 58, PORT)) && !classifier.accepts(&frame(to, 1, PORT)),
            "{to}"
        );
    }
    for to in NOT_TO {
        assert!(!classifier.accepts(&frame(to, 146, 0)), "{to}");
    }
}

#[test]
fn of_several_sockets_the_one_is_chosen_that_owns_the_rpc() {
    const FIRST: u32 = 100;
    for (udp_port, udp_bytes) in [(Some(PORT), 8), (None, 0)] {
        for sockets in [1, 2, 3, 64] {
            let ours = LocalAddresses { sockets, ..ours(udp_port) };
            let program = assemble(&ours, |program| {
                choose(program, sockets);
                program.copy(R0, R2);
                program.add(R0, FIRST);
            });
            let program = match load(&program) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    return homa_testkit::skip(error);
                }
                loaded => loaded.unwrap(),
            };
            for (to, ip_bytes) in [(TO[1], 20), (TO[3], 40)] {
                let mut frame = frame(to, if udp_port.is_some() { 17 } else { 146 }, PORT);
                let id_at = 14 + ip_bytes + udp_bytes + 20;
                for id in [0_u64, 1, 2, 3, 0x1234_5678_9abc_def0, u64::MAX, 0xffff_ffff, 1 << 32] {
                    frame[id_at..id_at + 8].copy_from_slice(&id.to_be_bytes());
                    let chosen = program::test_run(program.as_fd(), &frame).unwrap();
                    assert_eq!(chosen, FIRST + (id as u32 >> 1) % sockets, "{to} {id:x} {sockets}");
                    let short = program::test_run(program.as_fd(), &frame[..id_at + 7]).unwrap();
                    assert_eq!(short, FIRST, "too short for an id");
                }
            }
        }
    }
}

#[test]
fn what_only_the_kernel_can_read_goes_to_the_kernel() {
    for udp_port in [Some(PORT), None] {
        let Some(classifier) = Classifier::load(&ours(udp_port)) else { return };
        let protocol = if udp_port.is_some() { 17 } else { 146 };
        let v4 = frame(TO[0], protocol, PORT);
        let with = |at: usize, byte: u8| {
            let mut frame = v4.clone();
            frame[at] = byte;
            frame
        };
        assert!(classifier.accepts(&with(20, 0x40)), "don't fragment is no fragment");
        assert!(classifier.accepts(&with(20, 0x00)));
        for (why, frame) in [
            ("more fragments come", with(20, 0x20)),
            ("a later fragment", with(20, 0x01)),
            ("the last fragment", with(21, 0x01)),
            ("options", with(14, 0x46)),
            ("a version that is none", with(14, 0x55)),
            ("a VLAN", with(12, 0x81)),
            ("ARP", with(13, 0x06)),
        ] {
            assert!(!classifier.accepts(&frame), "{why}");
        }
    }
}

#[test]
fn frames_too_short_for_their_headers_go_to_the_kernel() {
    for (udp_port, behind_ip) in [(Some(PORT), 8), (None, 0)] {
        let Some(classifier) = Classifier::load(&ours(udp_port)) else { return };
        for (to, ip_bytes) in [(TO[1], 20), (TO[3], 40)] {
            let whole = frame(to, if udp_port.is_some() { 17 } else { 146 }, PORT);
            let needed = 14 + ip_bytes + behind_ip;
            // The kernel's test run accepts no frame shorter than an Ethernet header.
            for length in 14..whole.len() {
                assert_eq!(classifier.accepts(&whole[..length]), length >= needed, "{to}: {length}");
            }
        }
    }
}

#[test]
fn a_host_of_one_ip_version_leaves_the_other_to_the_kernel() {
    for (ip, taken, left) in [(0, TO[0], TO[2]), (2, TO[2], TO[0])] {
        let ours = LocalAddresses { udp_port: Some(PORT), ips: vec![TO[ip].parse().unwrap()], sockets: 1 };
        let Some(classifier) = Classifier::load(&ours) else { return };
        assert!(classifier.accepts(&frame(taken, 17, PORT)));
        assert!(!classifier.accepts(&frame(left, 17, PORT)));
    }
}

#[test]
fn a_queue_without_a_socket_leaves_its_frames_to_the_kernel() {
    let map = match sockets(8) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return homa_testkit::skip(error),
        map => map.unwrap(),
    };
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&map);
    for sockets in [1, 2] {
        let ours = LocalAddresses { sockets, ..ours(Some(PORT)) };
        let program = load(&build(&ours, descriptor)).unwrap();
        assert_eq!(program::test_run(program.as_fd(), &frame(TO[0], 17, PORT)).unwrap(), XDP_PASS);
    }
}

#[test]
fn a_refused_program_is_reported_with_the_verifiers_words() {
    let mut program = Assembler::default();
    // The context has no field at this offset.
    program.load(Width::Four, R0, R1, 400);
    program.exit();
    let error = load(&program.finish()).unwrap_err();
    if error.raw_os_error() == Some(libc::EPERM) {
        return homa_testkit::skip(error);
    }
    assert!(error.to_string().contains("the verifier says: invalid"), "{error}");
}

#[test]
fn a_thousand_addresses_make_a_program_that_loads() {
    let ips = (0..1_000_u32).map(|i| match i % 2 {
        0 => IpAddr::V4((0x0a00_0000 + i).into()),
        _ => IpAddr::V6((0xfd00_u128 << 112 | u128::from(i)).into()),
    });
    let ours = LocalAddresses { udp_port: Some(PORT), ips: ips.collect(), sockets: 1 };
    let Some(classifier) = Classifier::load(&ours) else { return };
    assert!(
        classifier.accepts(&frame("10.0.3.230", 17, PORT))
            && classifier.accepts(&frame("fd00::3e7", 17, PORT))
    );
    assert!(
        !classifier.accepts(&frame("10.0.3.231", 17, PORT))
            && !classifier.accepts(&frame("fd00::3e6", 17, PORT))
    );
}
