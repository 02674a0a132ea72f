//! Requests that the program has received but not answered.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;

/// The ID and the client of an RPC.
pub(crate) type RequestId = (u64, IpAddr);

/// Number of open requests at which the first search for vanished clients runs.
const MANY: usize = 1024;

/// The requests of the [module](self). An `R` is used to answer a request.
pub(crate) struct OpenRequests<R> {
    requests: HashMap<RequestId, R, RandomState>,
    /// Number of open requests at which the next search for vanished clients runs.
    look_at: usize,
}

impl<R> Default for OpenRequests<R> {
    fn default() -> OpenRequests<R> {
        OpenRequests { requests: HashMap::default(), look_at: MANY }
    }
}

impl<R> OpenRequests<R> {
    /// Adds a received request. Returns requests whose clients have vanished, which the kernel would keep
    /// forever; the caller must drop them while it holds no locks. The amortised cost of searching is
    /// constant, since the next search runs at twice as many requests.
    pub(crate) fn insert(&mut self, id: RequestId, request: R, is_wanted: impl Fn(&R) -> bool) -> Vec<R> {
        let mut vanished = Vec::from_iter(self.requests.insert(id, request));
        if self.requests.len() >= self.look_at {
            vanished.extend(self.requests.extract_if(|_, request| !is_wanted(request)).map(|(_, it)| it));
            self.look_at = (2 * self.requests.len()).max(MANY);
        }
        vanished
    }

    /// Removes a request that the program is about to answer.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<R> {
        self.requests.remove(&id)
    }

    /// Returns the IDs of the requests' RPCs.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.requests.keys().map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    /// Adds `count` requests, of which one in `one_in` is still wanted. Returns the maximum number of open
    /// requests and the number of checks.
    fn hoard(count: u64, one_in: u64) -> (usize, u64) {
        let (mut in_hand, mut most, asked) = (OpenRequests::default(), 0, Cell::new(0));
        for id in 0..count {
            let is_wanted = |id: &u64| {
                asked.set(asked.get() + 1);
                id.is_multiple_of(one_in)
            };
            let vanished = in_hand.insert((id, Ipv4Addr::LOCALHOST.into()), id, is_wanted);
            assert!(vanished.iter().all(|id| !id.is_multiple_of(one_in)), "nobody is forgotten who waits");
            most = most.max(in_hand.ids().count());
        }
        (most, asked.get())
    }

    #[test]
    fn requests_of_vanished_clients_do_not_pile_up() {
        assert_eq!(hoard(20_000, 20_001).0, MANY - 1);
        // At most about twice as many requests are kept as are wanted, and each request is checked a few
        // times.
        let (most, asked) = hoard(20_000, 4);
        assert!(most <= 2 * 5_000 + 1 && asked <= 4 * 20_000, "{most} {asked}");
    }

    #[test]
    fn all_that_are_wanted_are_kept_without_asking_again_and_again() {
        let (most, asked) = hoard(20_000, 1);
        assert!(most == 20_000 && asked <= 2 * 20_000, "{most} {asked}");
    }

    #[test]
    fn an_id_that_comes_again_takes_the_place_of_the_first() {
        let mut in_hand = OpenRequests::default();
        let id = (7, Ipv4Addr::LOCALHOST.into());
        assert_eq!(in_hand.insert(id, "one", |_| true), Vec::<&str>::new());
        assert_eq!(in_hand.insert(id, "other", |_| true), ["one"]);
        assert_eq!((in_hand.remove(id), in_hand.remove(id)), (Some("other"), None));
    }
}
