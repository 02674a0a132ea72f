use super::*;

const ALONE: SocketIndex = SocketIndex { number: 0, of: 1 };

/// Runs a program on a packet as the kernel would. A load beyond the packet's end returns 0, as in the
/// kernel.
fn run(program: &[Instruction], packet: &[u8]) -> u32 {
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
    let load = |at: u32, bytes: u32| {
        let part = packet.get(at as usize..(at + bytes) as usize)?;
        Some(part.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    };
    loop {
        let Instruction { code, if_true, if_false, k } = program[at];
        at += 1;
        let loaded = match code {
            LOAD_BYTE_X => load(x + k, 1),
            LOAD_HALF_X => load(x + k, 2),
            LOAD_WORD_X => load(x + k, 4),
            LOAD_LENGTH => Some(packet.len() as u32),
            SUBTRACT_X => Some(a.wrapping_sub(x)),
            ADD_NUMBER => Some(a + k),
            A_FROM_X => Some(x),
            SHIFT_RIGHT => Some(a >> k),
            MODULO => Some(a % k),
            _ => Some(a),
        };
        let Some(loaded) = loaded else { return 0 };
        a = loaded;
        match code {
            X_HEADER => match load(k, 1) {
                Some(byte) => x = 4 * (byte & 15),
                None => return 0,
            },
            X_NUMBER => x = k,
            JUMP => at += k as usize,
            IF_EQUAL => at += usize::from(if a == k { if_true } else { if_false }),
            IF_AT_LEAST => at += usize::from(if a >= k { if_true } else { if_false }),
            RETURN_NUMBER => return k,
            RETURN_A => return a,
            _ => (),
        }
    }
}

/// Lengths of a packet's IP header: none for IPv6, whose header the filter does not see, and with options for
/// IPv4.
const IP_HEADERS: [Option<usize>; 4] = [None, Some(20), Some(24), Some(60)];

fn packet(ip_header: Option<usize>, port: u16, packet_type: u8, ack: u64, length: usize) -> Vec<u8> {
    let mut homa = vec![0xee; length.max(56)];
    homa[..4].copy_from_slice(&[0x80, 0x01, (port >> 8) as u8, port as u8]);
    homa[11] = packet_type;
    homa[36..44].copy_from_slice(&ack.to_be_bytes());
    homa.truncate(length);
    let mut packet = vec![0xdd; ip_header.unwrap_or(0)];
    if let Some(byte) = packet.first_mut() {
        *byte = 0x40 | (ip_header.unwrap_or(0) / 4) as u8;
    }
    packet.extend(homa);
    packet
}

/// Returns how many bytes of a packet, from its Homa header on, a socket with this filter gets. Every form of
/// IP header must give the same result.
fn gets(filter: &ReceiveFilter, port: u16, packet_type: u8, ack: u64, length: usize) -> usize {
    let got = IP_HEADERS.map(|ip_header| {
        let program = build(filter, ip_header.is_some(), ALONE);
        let packet = packet(ip_header, port, packet_type, ack, length);
        let kept = (run(&program, &packet) as usize).min(packet.len());
        kept.saturating_sub(if kept > 0 { ip_header.unwrap_or(0) } else { 0 })
    });
    assert_eq!(got, [got[0]; 4], "the same for all IP headers");
    got[0]
}

const GRANT: u8 = 0x11;
const HOST_WIDE: [u8; 3] = [0x15, 0x16, 0x18];

#[test]
fn own_ports_get_their_packets_whole() {
    let filter = ReceiveFilter::new([99, 40_000], None);
    for port in [99, 40_000] {
        assert_eq!(gets(&filter, port, DATA as u8, 0, 1_480), 1_480);
        assert_eq!(gets(&filter, port, GRANT, 0, 33), 33);
        assert_eq!(gets(&filter, port, 0xff, 0, 28), 28, "an unknown type is counted by the port's owner");
    }
}

#[test]
fn what_concerns_the_host_reaches_everybody() {
    let filter = ReceiveFilter::new([99], None);
    for packet_type in HOST_WIDE {
        assert_eq!(gets(&filter, 7, packet_type, 0, 80), 80);
    }
    for ack in [2, 1 << 40, u64::MAX - 1] {
        assert_eq!(gets(&filter, 7, DATA as u8, ack, 1_480), 56, "the header with its ack {ack}");
    }
    assert_eq!(gets(&filter, 7, DATA as u8, 0, 1_480), 0);
    assert_eq!(gets(&filter, 7, GRANT, 2, 60), 0);
}

#[test]
fn one_process_answers_for_the_ports_that_nobody_has() {
    let filter = ReceiveFilter::new([99], Some(vec![7, 8, 99, 65_535]));
    for port in [0, 6, 9, 99, 65_534] {
        assert_eq!(gets(&filter, port, GRANT, 0, 33), 33, "port {port}");
    }
    for port in [7, 8, 65_535] {
        assert_eq!(gets(&filter, port, GRANT, 0, 33), 0, "port {port}");
        assert_eq!(gets(&filter, port, DATA as u8, 4, 100), 56, "port {port}");
    }
    assert_eq!(gets(&ReceiveFilter::accept_all(), 5, DATA as u8, 0, 100), 100);
}

#[test]
fn what_is_no_packet_goes_to_whoever_answers_for_nobodys_ports() {
    let rest = ReceiveFilter::new([99], Some(vec![7]));
    let own = ReceiveFilter::new([99], None);
    for length in [0, 1, 11, 27] {
        assert_eq!(gets(&rest, 7, GRANT, 0, length), length);
        assert_eq!(gets(&own, 99, GRANT, 0, length), 0);
    }
    assert_eq!(gets(&own, 7, DATA as u8, 2, 43), 0, "DATA that ends before its ack");
}

#[test]
fn the_program_and_the_receiver_agree_for_every_port() {
    let apart: Vec<u16> = (0..600).map(|i| i * 109).collect();
    let runs: Vec<u16> = (32_768..33_500).chain(200..300).chain([0, 65_535]).collect();
    for ports in [vec![], vec![0], vec![65_535], apart, runs] {
        for others in [None, Some(ports.clone())] {
            let own = if others.is_some() { vec![109, 33_000] } else { ports.clone() };
            let filter = ReceiveFilter::new(own, others);
            let program = build(&filter, false, ALONE);
            assert!(program.len() > 1 && program.len() <= INSTRUCTIONS_MAX);
            for port in 0..=u16::MAX {
                let packet = packet(None, port, GRANT, 0, 33);
                assert_eq!(run(&program, &packet) > 0, filter.accepts(&packet), "port {port} of {ports:?}");
            }
        }
    }
}

#[test]
fn too_many_ports_for_a_program_let_everything_through() {
    let filter = ReceiveFilter::new((0..2_000).map(|i| i * 3), None);
    let program = build(&filter, true, ALONE);
    assert_eq!(run(&program, &packet(Some(20), 1, GRANT, 0, 33)), WHOLE);
    assert_eq!(program.len(), 1);
}

#[test]
fn each_packet_is_the_turn_of_one_socket_of_a_group() {
    for of in [2, 3, 64] {
        for filter in [ReceiveFilter::accept_all(), ReceiveFilter::new([99], None)] {
            for id in [0_u64, 1, 2, 3, 0x1234_5678_9abc_def0, u64::MAX, 0xffff_ffff, 1 << 32] {
                for ip_header in IP_HEADERS {
                    let mut packet = packet(ip_header, 99, GRANT, 0, 100);
                    let at = ip_header.unwrap_or(0) + 20;
                    packet[at..at + 8].copy_from_slice(&id.to_be_bytes());
                    let accepts = |number: &u32| {
                        let turn = SocketIndex { number: *number, of };
                        run(&build(&filter, ip_header.is_some(), turn), &packet) > 0
                    };
                    let takers: Vec<u32> = (0..of).filter(accepts).collect();
                    assert_eq!(takers, [(id as u32 >> 1) % of], "{id:x}");
                }
            }
        }
    }
}

#[test]
fn what_has_no_id_is_the_first_sockets_turn() {
    for ip_header in IP_HEADERS {
        let short = packet(ip_header, 99, GRANT, 0, 27);
        let accepts = |number| run(&pass_own(ip_header.is_some(), SocketIndex { number, of: 3 }), &short) > 0;
        assert_eq!([0, 1, 2].map(accepts), [true, false, false]);
    }
}
