//! Uniform 32-bit hashes that are equal for all packets of a flow or of an RPC.
//!
//! The hash is our own, because a device's hash is not available where the first programs see a frame, and
//! the kernel does not expose its hash. It consists of a few 32-bit steps, so the kernel's virtual machine
//! computes it in about ten nanoseconds. With a secret seed, an attacker cannot direct all flows at one core.

use std::net::IpAddr;

/// Factor for each word. It is odd and has the bits of the golden ratio, so that hashes of neighbouring words
/// are far apart.
pub const WORD_FACTOR: u32 = 0x9e37_79b1;
/// Distance by which the upper half is shifted down between two words.
pub const WORD_SHIFT: u32 = 15;
/// Shifts of the last steps, as in the 32-bit finalizer of MurmurHash3. After these steps, each input bit
/// changes each output bit with a probability of about one half.
pub const LAST_SHIFTS: [u32; 3] = [16, 13, 16];
/// Factors between the [`LAST_SHIFTS`].
pub const LAST_FACTORS: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];

/// Adds a word to a hash.
fn mix(hash: u32, word: u32) -> u32 {
    let product = (hash ^ word).wrapping_mul(WORD_FACTOR);
    product ^ product >> WORD_SHIFT
}

fn finish(mut hash: u32) -> u32 {
    let [first, second, third] = LAST_SHIFTS;
    hash = (hash ^ hash >> first).wrapping_mul(LAST_FACTORS[0]);
    hash = (hash ^ hash >> second).wrapping_mul(LAST_FACTORS[1]);
    hash ^ hash >> third
}

/// Returns the hash of these words. A word is four bytes of a packet, of which the first is the least
/// significant.
fn of_words(seed: u32, words: impl IntoIterator<Item = u32>) -> u32 {
    finish(words.into_iter().fold(seed, mix))
}

fn words(octets: &[u8]) -> impl Iterator<Item = u32> {
    octets.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word))
}

/// Returns two consecutive ports of a packet as a word.
fn word_of(ports: [u16; 2]) -> u32 {
    let [[a, b], [c, d]] = ports.map(u16::to_be_bytes);
    u32::from_le_bytes([a, b, c, d])
}

/// The fields that identify a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address, of the same IP version as the destination.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// Source and destination port of TCP or UDP; 0 for other protocols and for fragments, which have none.
    /// Therefore, all Homa traffic directly over IP between two hosts is one flow.
    pub ports: [u16; 2],
}

impl Flow {
    /// Returns the hash of the flow.
    #[must_use]
    pub fn hash(&self, seed: u32) -> u32 {
        let [source, destination] = [self.source, self.destination].map(|ip| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        });
        let addresses = words(&source).chain(words(&destination));
        of_words(seed, addresses.chain([word_of(self.ports), self.protocol.into()]))
    }
}

/// Returns the hash of a Homa packet's source and destination port and its RPC ID. The hash is the same for
/// all packets of an RPC that a host receives, and differs from the hash of the next RPC between the same
/// hosts. Bit 0 of the ID is ignored: it only identifies the packet's side.
#[must_use]
pub fn rpc_hash(seed: u32, ports: [u16; 2], rpc_id: u64) -> u32 {
    let id = (rpc_id & !1).to_be_bytes();
    of_words(seed, [word_of(ports)].into_iter().chain(words(&id)))
}

/// Maps a hash to one of `count` indices, using the kernel's scaling for RPS, which depends on the upper
/// bits.
#[must_use]
pub fn place(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Flow {
        let [source, destination] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        Flow { source, destination, protocol: 6, ports: [port, 80] }
    }

    /// Returns how far the fullest of `places` places exceeds the mean when 0 to 63,999 are hashed with
    /// `hash`.
    fn excess(places: usize, hash: impl Fn(u32) -> u32) -> f64 {
        let mut counts = vec![0_u32; places];
        (0..64_000).for_each(|i| counts[place(hash(i), places)] += 1);
        let most = *counts.iter().max().unwrap();
        f64::from(most) * places as f64 / 64_000.0 - 1.0
    }

    #[test]
    fn each_part_of_a_flow_counts_and_so_does_the_seed() {
        let base = flow(1000);
        let same = base.hash(7);
        assert_eq!(same, flow(1000).hash(7));
        let (source, destination, ports) = (base.source, base.destination, base.ports);
        for (what, other) in [
            ("source", Flow { source: destination, ..base }),
            ("destination", Flow { destination: source, ..base }),
            ("both", Flow { source: destination, destination: source, ..base }),
            ("protocol", Flow { protocol: 17, ..base }),
            ("ports", Flow { ports: [ports[1], ports[0]], ..base }),
        ] {
            assert_ne!(other.hash(7), same, "{what}");
        }
        assert_ne!(base.hash(8), same);
    }

    #[test]
    fn hashes_are_those_of_any_machine() {
        // The expected values come from an independent implementation in another language.
        assert_eq!(flow(1000).hash(7), 0xafa6_12c9);
        let [source, destination] = ["fd00::1", "fd00::2"].map(|ip| ip.parse().unwrap());
        assert_eq!(Flow { source, destination, protocol: 17, ports: [1, 2] }.hash(0), 0x98c9_0349);
        assert_eq!(rpc_hash(0, [100, 200], 0x1234_5678_9abc_def0), 0x78bf_e728);
    }

    #[test]
    fn flows_and_rpcs_that_are_numbered_one_by_one_spread_evenly() {
        for places in [2, 3, 16, 64] {
            let bound = if places == 64 { 0.15 } else { 0.06 };
            assert!(excess(places, |i| flow(i as u16).hash(1)) < bound, "ports over {places}");
            let rpcs = excess(places, |i| rpc_hash(1, [40_000, 99], u64::from(i) * 2));
            assert!(rpcs < bound, "RPC ids over {places}: {rpcs}");
        }
    }

    #[test]
    fn both_sides_of_an_rpc_have_its_hash() {
        assert_eq!(rpc_hash(3, [1, 2], 77), rpc_hash(3, [1, 2], 76));
        assert_ne!(rpc_hash(3, [1, 2], 78), rpc_hash(3, [1, 2], 76));
    }

    #[test]
    fn places_are_the_upper_bits_scaled() {
        assert_eq!([0, 0x7fff_ffff, 0x8000_0000, u32::MAX].map(|hash| place(hash, 2)), [0, 0, 1, 1]);
        assert_eq!([0x5555_5555, 0x5555_5556, u32::MAX].map(|hash| place(hash, 3)), [0, 1, 2]);
        assert_eq!(place(u32::MAX, 1), 0);
    }
}
