use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn ends() -> [[SocketAddr; 2]; 2] {
    let parse = |pair: [&str; 2]| pair.map(|end| end.parse().unwrap());
    [parse(["10.1.2.3:4000", "10.1.2.4:65535"]), parse(["[fd00::1]:4000", "[fd00::2]:65535"])]
}

fn frame(
    carrier: Carrier,
    [from, to]: [SocketAddr; 2],
    priority: u8,
    header: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let headers = Headers::new(carrier, (MACS[0], from), (MACS[1], to)).unwrap();
    let mut out = [0xaa; HEADERS_MAX];
    let length = headers.write(&TxPacket { to, priority, header, payload }, &mut out);
    [&out[..length], header, payload].concat()
}

fn view(carrier: Carrier, frame: &[u8]) -> ParseOptions {
    ParseOptions { carrier, wire_length: frame.len(), verify: true, scope: 7 }
}

fn parsed(carrier: Carrier, frame: &[u8]) -> Result<FramedPacket, ParseError> {
    parse(frame, &view(carrier, frame))
}

/// Returns random bytes.
fn bytes(random: &mut Pcg64Mcg, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.random()).collect()
}

#[test]
fn what_is_written_is_found_again_with_right_checksums() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for carrier in [Carrier::Udp, Carrier::Ip] {
        for [from, to] in ends() {
            for (header, payload) in [(28, 0), (56, 1_400), (33, 7), (33, 8), (0, 0), (60, 65_000), (1, 1)] {
                let (header, payload) = (bytes(&mut random, header), bytes(&mut random, payload));
                let made = frame(carrier, [from, to], 5, &header, &payload);
                let found = parsed(carrier, &made).unwrap();
                let port = |end: SocketAddr| if carrier == Carrier::Udp { end.port() } else { 0 };
                assert_eq!((found.from.ip(), found.from.port()), (from.ip(), port(from)));
                assert_eq!((found.to.ip(), found.to.port()), (to.ip(), port(to)));
                assert_eq!(made[found.start..][..found.length], [header, payload].concat());
                assert_eq!((&made[..6], &made[6..12]), (&MACS[1][..], &MACS[0][..]));
            }
        }
    }
}

#[test]
fn the_fields_that_switches_and_routers_read() {
    // WIRE-15, WIRE-17
    let v4 = frame(Carrier::Udp, ends()[0], 6, &[1; 28], &[2; 100]);
    assert_eq!(v4[12..16], [0x08, 0x00, 0x45, 6 << 5]);
    assert_eq!(v4[14 + 2..14 + 4], (20 + 8 + 128_u16).to_be_bytes());
    assert_eq!(v4[14 + 6..14 + 8], [0x40, 0], "don't fragment");
    assert_eq!(v4[14 + 9], 17);
    let v6 = frame(Carrier::Ip, ends()[1], 7, &[1; 28], &[2; 100]);
    assert_eq!(v6[12..16], [0x86, 0xdd, 0x6e, 0]);
    assert_eq!(v6[14 + 4..14 + 8], [0, 128, 146, 64]);
}

#[test]
fn any_byte_that_changes_under_a_checksum_is_noticed() {
    for ends in ends() {
        let good = frame(Carrier::Udp, ends, 3, &[9; 33], &[7; 64]);
        for at in ETHERNET_BYTES..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            // The IPv6 header itself has no checksum, so traffic class and hop limit may change.
            let covered = ends[0].is_ipv4() || !(15..18).contains(&at) && at != 14 + 7;
            assert_eq!(parsed(Carrier::Udp, &bad).is_err(), covered, "byte {at}");
            let trusting = ParseOptions { verify: false, ..view(Carrier::Udp, &bad) };
            if at >= good.len() - 97 {
                assert!(parse(&bad, &trusting).is_ok(), "byte {at}");
            }
        }
    }
}

#[test]
fn a_checksum_may_be_missing_over_ipv4_only() {
    for (ends, at) in ends().into_iter().zip([14 + 20 + 6, 14 + 40 + 6]) {
        let mut none = frame(Carrier::Udp, ends, 3, &[9; 33], &[7; 64]);
        none[at..at + 2].fill(0);
        assert_eq!(parsed(Carrier::Udp, &none).is_ok(), ends[0].is_ipv4());
    }
}

#[test]
fn a_checksum_that_comes_out_as_zero_is_sent_as_its_complement() {
    for ends in ends() {
        let zero_at = |payload: u16| frame(Carrier::Udp, ends, 0, &[0; 28], &payload.to_be_bytes());
        let first = zero_at(0);
        let udp_at = first.len() - 30 - 8;
        let sum = u16::from_be_bytes([first[udp_at + 6], first[udp_at + 7]]);
        // A payload that equals the checksum computed for a zero payload makes the checksum zero.
        let made = zero_at(sum);
        assert_eq!(made[udp_at + 6..udp_at + 8], [0xff, 0xff]);
        assert!(parsed(Carrier::Udp, &made).is_ok());
    }
}

#[test]
fn tags_padding_and_options_are_passed_over() {
    let plain = frame(Carrier::Udp, ends()[0], 3, &[9; 30], &[7; 4]);
    let tagged = [&plain[..12], &[0x81, 0, 0x60, 5], &plain[12..]].concat();
    let found = parsed(Carrier::Udp, &tagged).unwrap();
    assert_eq!(found.length, 34);
    assert_eq!(tagged[found.start..][..30], [9; 30]);
    // Short frames are padded: Ethernet frames are at least 60 bytes long.
    let padded = [&plain[..], &[0; 20]].concat();
    assert_eq!(parsed(Carrier::Udp, &padded).unwrap().length, 34);
    let mut options = [&plain[..34], &[1; 8], &plain[34..]].concat();
    options[14] = 0x47;
    options[17] += 8;
    let relaxed = ParseOptions { verify: false, ..view(Carrier::Udp, &options) };
    assert_eq!(parse(&options, &relaxed).unwrap().start, 14 + 28 + 8);
}

#[test]
fn fragments_and_other_protocols_are_not_ours() {
    for carrier in [Carrier::Udp, Carrier::Ip] {
        for (at, value) in [(14 + 6, 0x20), (14 + 7, 1), (14 + 9, 6)] {
            let mut made = frame(carrier, ends()[0], 3, &[9; 33], &[7; 64]);
            made[at] = value;
            let relaxed = ParseOptions { verify: false, ..view(carrier, &made) };
            assert_eq!(parse(&made, &relaxed), Err(ParseError::Foreign));
        }
        let other = if carrier == Carrier::Udp { Carrier::Ip } else { Carrier::Udp };
        for ends in ends() {
            assert_eq!(parsed(other, &frame(carrier, ends, 3, &[9; 33], &[])), Err(ParseError::Foreign));
        }
    }
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    assert_eq!(parsed(Carrier::Udp, &arp), Err(ParseError::Foreign));
}

#[test]
fn a_packet_cut_by_a_filter_is_as_long_as_what_is_left() {
    let made = frame(Carrier::Ip, ends()[0], 3, &[9; 56], &[7; 500]);
    let cut = &made[..34 + 56];
    assert_eq!(parsed(Carrier::Ip, cut), Err(ParseError::Damaged), "the wire had no more");
    let found = parse(cut, &ParseOptions { wire_length: made.len(), ..view(Carrier::Ip, cut) }).unwrap();
    assert_eq!((found.start, found.length), (34, 56));
}

#[test]
fn senders_that_cannot_be_answered_and_link_local_ones() {
    let mut to_all = frame(Carrier::Ip, ends()[0], 3, &[9; 33], &[]);
    to_all[26..30].copy_from_slice(&[224, 0, 0, 1]);
    let relaxed = ParseOptions { verify: false, ..view(Carrier::Ip, &to_all) };
    assert_eq!(parse(&to_all, &relaxed), Err(ParseError::Damaged));
    let [from, to] = ["[fe80::1]:5", "[fe80::2]:6"].map(|end| end.parse().unwrap());
    let found = parsed(Carrier::Udp, &frame(Carrier::Udp, [from, to], 0, &[1; 28], &[])).unwrap();
    assert_eq!(found.from, "[fe80::1%7]:5".parse().unwrap());
    assert!(Headers::new(Carrier::Udp, (MACS[0], from), (MACS[1], ends()[0][0])).is_none());
}

#[test]
fn no_bytes_make_it_panic_or_find_what_is_not_there() {
    let mut random = Pcg64Mcg::seed_from_u64(2);
    for round in 0..200_000_u32 {
        let carrier = if round % 2 == 0 { Carrier::Udp } else { Carrier::Ip };
        let mut made = if round % 3 == 0 {
            let length = random.random_range(0..120);
            bytes(&mut random, length)
        } else {
            frame(carrier, ends()[round as usize / 2 % 2], 3, &[9; 33], &[7; 20])
        };
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..made.len().max(1));
            if let Some(byte) = made.get_mut(at) {
                *byte = random.random();
            }
        }
        made.truncate(random.random_range(0..200));
        let wire_length = made.len() + random.random_range(0..50);
        let view = ParseOptions { carrier, wire_length, verify: round % 5 == 0, scope: 1 };
        if let Ok(found) = parse(&made, &view) {
            assert!(found.start + found.length <= made.len());
        }
    }
}

#[test]
fn the_quick_sum_is_the_sum() {
    let mut random = Pcg64Mcg::seed_from_u64(3);
    for length in 0..200 {
        let bytes = bytes(&mut random, length);
        assert_eq!(fold(quick_sum(&bytes)), fold(sum(0, &bytes)), "{length} bytes");
    }
    assert_eq!(fold(quick_sum(&vec![0xff; 65_535])), fold(sum(0, &vec![0xff; 65_535])));
}

#[test]
fn checksums_that_a_device_was_to_finish_fit_and_damaged_ones_do_not() {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    for carrier in [Carrier::Udp, Carrier::Ip] {
        for [from, to] in ends() {
            let payload = bytes(&mut random, 401);
            let made = frame(carrier, [from, to], 5, &payload[..28], &payload[28..]);
            let fits = |frame: &[u8]| {
                let trusting = ParseOptions { verify: false, ..view(carrier, frame) };
                parse(frame, &trusting).is_ok_and(|found| checksums_fit(carrier, frame, &found))
            };
            assert!(fits(&made));
            let start = parsed(carrier, &made).unwrap().start;
            let with = |at: usize, two: [u8; 2]| {
                let mut frame = made.clone();
                frame[at..at + 2].copy_from_slice(&two);
                frame
            };
            if from.is_ipv4() {
                assert!(!fits(&with(22, [77, made[23]])), "the hops that are left");
            }
            if carrier == Carrier::Ip {
                continue;
            }
            for at in [start, start + 200, made.len() - 2] {
                assert!(!fits(&with(at, [made[at] ^ 4, made[at + 1]])));
            }
            assert_eq!(fits(&with(start - 2, [0, 0])), from.is_ipv4(), "none at all");
            // The checksum in the form in which the kernel leaves it: the sum over the pseudo-header.
            let length = payload.len() as u64 + 8;
            let unfinished = !fold(pseudo_sum(from.ip(), to.ip()) + length);
            assert!(fits(&with(start - 2, unfinished.to_be_bytes())));
            assert!(!fits(&with(start - 2, (unfinished ^ 1).to_be_bytes())));
        }
    }
}
