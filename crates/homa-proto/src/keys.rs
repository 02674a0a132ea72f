//! Secrets of an endpoint, all derived from one seed by a keyed one-way function (SipHash-2-4, Aumasson and
//! Bernstein 2012). An outsider who learns one of the secrets learns nothing about the seed or the other
//! secrets.

use std::hash::Hasher;
use std::net::SocketAddr;

use siphasher::sip::SipHasher24;

/// The purpose of a derived secret. The numbers are not part of any interface.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Purpose {
    Tables = 1,
    FirstId = 2,
    Ids = 3,
    Challenges = 4,
    Caller = 5,
}

/// The secrets of one endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    /// Seeds the hash tables.
    pub tables: u64,
    /// Counter value of the first RPC id, before the part that depends on the peer is added.
    pub first_id: u64,
    /// Key of the part of RPC ids that depends on the peer.
    pub ids: u64,
    /// Key of the numbers used in challenges to peers.
    pub challenges: u64,
}

impl Keys {
    /// Derives the secrets from `seed`. If `id_seed` is not 0, RPC ids are derived from `id_seed` instead.
    pub(crate) fn new(seed: u64, id_seed: u64) -> Keys {
        let ids = if id_seed == 0 { seed } else { id_seed };
        Keys {
            tables: derive(seed, Purpose::Tables, 0),
            first_id: derive(seed, Purpose::FirstId, 0),
            ids: derive(ids, Purpose::Ids, 0),
            challenges: derive(seed, Purpose::Challenges, 0),
        }
    }

    /// Returns a number that depends on an address, for RPC ids.
    pub(crate) fn of_addr(&self, addr: SocketAddr) -> u64 {
        let (ip, scope) = match addr {
            SocketAddr::V4(v4) => (u128::from(v4.ip().to_bits()), 0),
            SocketAddr::V6(v6) => (v6.ip().to_bits(), v6.scope_id()),
        };
        let rest = u64::from(addr.port()) | u64::from(addr.is_ipv6()) << 16 | u64::from(scope) << 32;
        siphash([self.ids, Purpose::Ids as u64], &[ip as u64, (ip >> 64) as u64, rest])
    }

    /// Returns an unpredictable number for each `count`.
    pub(crate) fn challenge(&self, count: u64) -> u64 {
        siphash([self.challenges, Purpose::Challenges as u64], &[count])
    }
}

/// Derives a secret for the caller from the seed of a [`Config`](crate::Config). The secret differs for each
/// `purpose`. Neither the seed nor any secret of the endpoint can be computed from it.
#[must_use]
pub fn derive_seed(seed: u64, purpose: u64) -> u64 {
    derive(seed, Purpose::Caller, purpose)
}

fn derive(seed: u64, purpose: Purpose, which: u64) -> u64 {
    // The second half of the key separates this use of SipHash from any other.
    siphash([seed, 0x686f_6d61_2d6b_6579], &[purpose as u64, which])
}

/// Returns SipHash-2-4 of `words`, each as eight bytes in little-endian order.
fn siphash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    for word in words {
        hasher.write(&word.to_le_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All processes of a host must compute the same ids, regardless of the version of the library that each
    /// uses. The vectors are from the reference implementation: key 00 to 0f, messages 00 01 02 ...
    #[test]
    fn siphash_gives_the_published_values() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(key, &[key[0]]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn each_purpose_and_each_address_has_a_number_of_its_own() {
        let keys = Keys::new(7, 0);
        let mut numbers = vec![7, keys.tables, keys.first_id, keys.ids, keys.challenges, derive_seed(7, 0)];
        numbers.extend([derive_seed(7, 1), derive_seed(8, 0), keys.challenge(0), keys.challenge(1)]);
        let addrs = ["10.0.0.1:7", "10.0.0.1:8", "10.0.0.2:7", "[::1]:7", "[::10.0.0.1]:7", "[fe80::1%1]:7"];
        numbers.extend(addrs.map(|addr| keys.of_addr(addr.parse().unwrap())));
        numbers.push(Keys::new(7, 9).of_addr(addrs[0].parse().unwrap()));
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        assert_eq!(
            Keys::new(7, 9).of_addr(addrs[0].parse().unwrap()),
            Keys::new(8, 9).of_addr(addrs[0].parse().unwrap())
        );
    }
}
