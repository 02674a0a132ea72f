//! Golden packets of Linux Homa's dialects, by name.

/// One packet per line: name, `ip` or `udp`, bytes, meaning.
pub const GOLDEN: &str = include_str!("golden/dialects.txt");

/// Returns the Homa packet with this name.
pub fn golden(name: &str) -> Vec<u8> {
    let line = GOLDEN.lines().find(|line| line.split(' ').next() == Some(name)).expect("a golden packet");
    let mut parts = line.split(' ').skip(1);
    let udp = parts.next() == Some("udp");
    let hex = parts.next().expect("its bytes").as_bytes();
    let bytes: Vec<u8> = hex
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    if udp { bytes[8..].to_vec() } else { bytes }
}
