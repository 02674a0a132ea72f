//! Looks up the link through which packets to a peer leave, according to the kernel's routes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::l2::netlink::Netlink;

/// Maximum number of cached peers. If there are more, all are dropped and looked up again when used.
const PEERS_MAX: usize = 4_096;

/// Time for which a link is valid to select the socket for a packet. Routes seldom change, but packets sent
/// to the wrong link may be dropped.
const AGE_NS: u64 = 1_000_000_000;

/// Time for which a link is valid to determine whether there are several links, for which accuracy matters
/// less.
const ROUGH_AGE_NS: u64 = 60 * AGE_NS;

/// Maximum number of lookups, which take a few hundred microseconds, in one call that determines whether
/// there are several links. The rest are done later.
const LOOK_UPS: usize = 64;

/// A link, identified by the index of its device. Peers without a route share [`NO_LINK`].
pub(super) type Link = u32;

pub(super) const NO_LINK: Link = 0;

/// Caches the links of peers. A lookup that is not cached costs a few system calls, so none is made while the
/// socket has room for all packets.
#[derive(Debug)]
pub(super) struct Links {
    local: IpAddr,
    known: HashMap<IpAddr, (Link, u64)>,
    /// Whether there are several links, and the number of peers and the time when this was determined.
    several: Option<(bool, usize, u64)>,
}

impl Links {
    pub(super) fn new(local: IpAddr) -> Links {
        Links { local, known: HashMap::new(), several: None }
    }

    /// Returns the link for packets to this peer. For a multipath route, this is the first device that the
    /// kernel lists.
    pub(super) fn link_of(&mut self, to: SocketAddr, now_ns: u64) -> Link {
        match to {
            SocketAddr::V6(to) if to.scope_id() != 0 => to.scope_id(),
            _ => self.remembered(to.ip(), AGE_NS, now_ns).unwrap_or_else(|| self.look_up(to.ip(), now_ns)),
        }
    }

    fn remembered(&self, to: IpAddr, age_ns: u64, now_ns: u64) -> Option<Link> {
        let &(link, asked_ns) = self.known.get(&to)?;
        (now_ns.saturating_sub(asked_ns) < age_ns).then_some(link)
    }

    fn look_up(&mut self, to: IpAddr, now_ns: u64) -> Link {
        let from =
            Some(self.local).filter(|local| !local.is_unspecified() && local.is_ipv4() == to.is_ipv4());
        let link = Netlink::open().and_then(|mut netlink| netlink.device_to(to, from)).unwrap_or(NO_LINK);
        self.remember(to, link, now_ns);
        link
    }

    fn remember(&mut self, to: IpAddr, link: Link, now_ns: u64) {
        if self.known.len() >= PEERS_MAX {
            self.known.clear();
        }
        self.known.insert(to, (link, now_ns));
    }

    /// Whether packets to these peers leave through more than one link. The answer is cached for a while.
    pub(super) fn use_several_links(
        &mut self,
        peers: impl ExactSizeIterator<Item = SocketAddr>,
        now_ns: u64,
    ) -> bool {
        let count = peers.len();
        if let Some((several, of, asked_ns)) = self.several
            && of == count
            && now_ns.saturating_sub(asked_ns) < AGE_NS
        {
            return several;
        }
        let (mut first, mut look_ups, mut several) = (None, 0, false);
        for peer in peers {
            let link = match self.remembered(peer.ip(), ROUGH_AGE_NS, now_ns) {
                Some(link) => link,
                None if look_ups == LOOK_UPS => continue,
                None => {
                    look_ups += 1;
                    self.link_of(peer, now_ns)
                }
            };
            if link != NO_LINK && *first.get_or_insert(link) != link {
                several = true;
                break;
            }
        }
        self.several = Some((several, count, now_ns));
        several
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn here() -> SocketAddr {
        SocketAddr::new(HERE, 9)
    }

    fn use_several_links(links: &mut Links, peers: &[SocketAddr], now_ns: u64) -> bool {
        links.use_several_links(peers.iter().copied(), now_ns)
    }

    #[test]
    fn addresses_of_this_machine_are_behind_loopback_and_a_scope_is_a_link() {
        let mut links = Links::new(HERE);
        let other = "[fe80::1%7]:9".parse().unwrap();
        assert_eq!([here(), other].map(|peer| links.link_of(peer, 0)), [1, 7]);
        assert!(!use_several_links(&mut links, &[here(), "127.0.0.9:1".parse().unwrap()], 0));
        assert!(use_several_links(&mut links, &[here(), here(), other], 0));
    }

    #[test]
    fn what_no_route_leads_to_is_no_second_link() {
        let mut links = Links::new(HERE);
        let nowhere = "255.255.255.255:9".parse().unwrap();
        assert_eq!(links.link_of(nowhere, 0), NO_LINK);
        assert!(!use_several_links(&mut links, &[here(), nowhere], 0));
    }

    #[test]
    fn an_answer_is_asked_for_again_when_it_is_old() {
        let mut links = Links::new(HERE);
        links.remember(HERE, 77, 0);
        assert_eq!([AGE_NS - 1, AGE_NS].map(|now_ns| links.link_of(here(), now_ns)), [77, 1]);
    }

    #[test]
    fn a_second_link_is_seen_with_its_first_peer_or_soon() {
        let mut links = Links::new(HERE);
        let other = "10.0.0.1:9".parse().unwrap();
        assert!(!use_several_links(&mut links, &[here()], 0));
        links.remember(IpAddr::V4([10, 0, 0, 1].into()), 77, 0);
        assert!(!use_several_links(&mut links, &[other], AGE_NS - 1), "as many as before, a moment ago");
        assert!(use_several_links(&mut links, &[here(), other], AGE_NS - 1));
        assert!(!use_several_links(&mut links, &[other, other], AGE_NS * 2));
    }

    #[test]
    fn look_ups_at_a_time_are_bounded_and_all_peers_have_their_turn() {
        let mut links = Links::new(HERE);
        let peers: Vec<SocketAddr> = (0..3 * LOOK_UPS as u32)
            .map(|i| SocketAddr::new(IpAddr::V4((0x7f00_0001 + i).into()), 9))
            .collect();
        for turn in 1..=4 {
            assert!(!use_several_links(&mut links, &peers, turn * AGE_NS));
            assert_eq!(links.known.len(), (turn as usize * LOOK_UPS).min(peers.len()));
        }
    }

    #[test]
    fn memory_is_bounded_whatever_the_number_of_peers() {
        let mut links = Links::new(HERE);
        for i in 0..3 * PEERS_MAX as u32 {
            links.remember(IpAddr::V4(i.into()), 1, 0);
            assert!(links.known.len() <= PEERS_MAX);
        }
    }
}
