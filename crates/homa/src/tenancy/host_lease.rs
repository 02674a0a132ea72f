//! An endpoint's part in what its host has once: grant budget, uplink, cutoffs. The other parts are other processes', over raw
//! IP, or other endpoints' of the same process.
//!
//! All of it happens in the drive rounds of whoever drives, and nothing waits for another endpoint.

use std::sync::Arc;

use homa_proto::{Endpoint, MS, Time};

use crate::runtime::engine::Engine;
use crate::tenancy::process_group::siblings::GroupPool;
use crate::tenancy::process_group::{CutoffSet, LeaseShare, LeaseWatch, Segment};

/// How soon an endpoint asks again for grant budget that others had: the time in which a few full packets come.
const HUNGER_NS: u64 = 200_000;

/// How often one of several endpoints tells the others what it saw, and looks whether somebody leads.
const TICK_NS: u64 = 20 * MS;

/// Where it is that the host has what it has once.
pub(crate) enum LeaseSource {
    /// In a segment that other processes map.
    Segment(Arc<Segment>),
    /// In this process, for several endpoints, of which this is the one with that number.
    EndpointGroup(Arc<GroupPool>, usize),
}

/// See the [module](self).
pub(crate) struct HostLease {
    holding: LeaseSource,
    /// The clock of the holding at [`Time::ZERO`], in nanoseconds.
    start_ns: u64,
    /// Budget was short; time to ask again.
    hungry: Option<Time>,
    /// Grant budget that this endpoint has.
    lease: u64,
    /// Number of the cutoffs that were taken over last.
    cutoffs_seen: u64,
    /// Version of the cutoffs that the host knows of.
    cutoff_version: u16,
    leads: bool,
    /// What the endpoint has sent that the others know of, in nanoseconds of the uplink.
    uplink_told_ns: u64,
    /// The others know that a message here waits for the uplink.
    waits_for_uplink: bool,
    watch: LeaseWatch,
    next_tick: Time,
}

impl HostLease {
    /// Begins to share: the endpoint gets the host's cutoffs, and everything else when it needs it.
    pub(crate) fn new(holding: LeaseSource, start_ns: u64, endpoint: &mut Endpoint) -> HostLease {
        endpoint.set_grant_budget(Time::ZERO, 0);
        endpoint.follow_cutoffs(true);
        let mut stake = HostLease {
            holding,
            start_ns,
            hungry: None,
            lease: 0,
            cutoffs_seen: 0,
            cutoff_version: 0,
            leads: false,
            uplink_told_ns: 0,
            waits_for_uplink: false,
            watch: LeaseWatch::default(),
            next_tick: Time::ZERO,
        };
        stake.adopt_cutoffs(endpoint);
        stake
    }

    fn part(&self) -> LeaseShare<'_> {
        match &self.holding {
            LeaseSource::Segment(segment) => segment.part(),
            LeaseSource::EndpointGroup(pool, mine) => pool.part(*mine),
        }
    }

    fn clock_ns(&self, now: Time) -> u64 {
        self.start_ns + now.as_ns()
    }

    /// When a drive round is due for the host's sake. An endpoint that has nothing of what is shared owes nobody a sign of life.
    pub(crate) fn next_wake(&self) -> Time {
        let tick = match &self.holding {
            LeaseSource::EndpointGroup(..) if self.lease > 0 => self.next_tick,
            _ => Time::NEVER,
        };
        self.hungry.unwrap_or(Time::NEVER).min(tick)
    }

    /// HOST-4: takes over the host's cutoffs where they changed.
    pub(crate) fn adopt_cutoffs(&mut self, endpoint: &mut Endpoint) {
        if self.part().cutoffs_published() == self.cutoffs_seen {
            return;
        }
        if let Some((number, set)) = self.part().cutoffs() {
            self.cutoffs_seen = number;
            self.cutoff_version = set.version;
            endpoint.set_cutoffs(set.levels, set.version);
            endpoint.set_unsched_limit(set.unsched_limit);
        }
    }

    /// HOST-4: tells the others of cutoffs that the endpoint has computed.
    fn publish_cutoffs(&mut self, endpoint: &mut Endpoint) {
        let (levels, version) = endpoint.cutoffs();
        if version == self.cutoff_version || !self.leads {
            return;
        }
        let set = CutoffSet { levels, version, unsched_limit: endpoint.unsched_limit() };
        let taken = match &self.holding {
            LeaseSource::Segment(segment) => segment.publish_cutoffs(set),
            LeaseSource::EndpointGroup(pool, mine) => pool.publish_cutoffs(*mine, set),
        };
        if taken {
            self.cutoff_version = version;
            self.cutoffs_seen = self.part().cutoffs_published();
        }
    }

    /// HOST-5: leases grant budget for what waits, and gives back what nothing waits for.
    fn lease_grants(&mut self, now: Time, endpoint: &mut Endpoint) {
        let demand = endpoint.grant_demand();
        let lease = self.part().lease_grants(demand, endpoint.granted_bytes());
        if lease != self.lease {
            self.lease = lease;
            endpoint.set_grant_budget(now, lease);
        }
        self.hungry = (demand > lease).then_some(now + HUNGER_NS);
    }

    /// HOST-6: tells the endpoint what the others have given the uplink, and whether they wait for it.
    pub(crate) fn note_uplink(&self, now: Time, endpoint: &mut Endpoint) {
        let (part, clock_ns) = (self.part(), self.clock_ns(now));
        let backlog_ns = part.uplink_backlog_ns(clock_ns);
        let mut shortest = None;
        if backlog_ns > 0 {
            endpoint.set_uplink_backlog(now, backlog_ns);
            shortest = part.shortest_elsewhere(clock_ns);
        }
        endpoint.share_uplink(shortest);
    }

    /// HOST-6: tells the others what the endpoint has given the uplink, and what it still waits to give.
    pub(crate) fn tell_uplink(&mut self, now: Time, endpoint: &Endpoint) {
        let sent_ns = endpoint.uplink_sent_ns();
        if sent_ns != self.uplink_told_ns {
            self.part().uplink_sent(self.clock_ns(now), sent_ns - self.uplink_told_ns);
            self.uplink_told_ns = sent_ns;
        }
        let waiting = endpoint.waiting_for_uplink();
        if waiting.is_some() || self.waits_for_uplink {
            self.part().wait_for_uplink(self.clock_ns(now), waiting);
            self.waits_for_uplink = waiting.is_some();
        }
    }

    /// Takes the lead in computing the cutoffs, or leaves it, and passes on what was seen of the traffic.
    pub(crate) fn settle(&mut self, endpoint: &mut Endpoint, leads: bool) {
        self.adopt_cutoffs(endpoint);
        if leads != self.leads {
            self.leads = leads;
            endpoint.follow_cutoffs(!leads);
        }
        let part = self.part();
        if leads {
            part.take_observed(|bucket, bytes| endpoint.add_observed(bucket, bytes));
        } else {
            endpoint.take_observed(|bucket, bytes| part.add_observed(bucket, bytes));
        }
    }

    /// What one of several endpoints does every few tens of milliseconds in which it is driven.
    fn tick(&mut self, now: Time, endpoint: &mut Endpoint) {
        let LeaseSource::EndpointGroup(pool, mine) = &self.holding else { return };
        self.next_tick = now + TICK_NS;
        pool.tick(*mine, now.as_ns(), &mut self.watch);
        let leads = pool.is_leader(*mine);
        self.settle(endpoint, leads);
    }

    /// Bytes that all endpoints together may have granted and not received, those that this one has of them, and those that all have.
    pub(crate) fn grant_bytes(&self) -> (u64, u64, u64) {
        (self.part().budget_bytes(), self.lease, self.part().leased_bytes())
    }
}

impl Drop for HostLease {
    fn drop(&mut self) {
        if let LeaseSource::EndpointGroup(pool, mine) = &self.holding {
            pool.leave(*mine);
        }
    }
}

impl Engine {
    /// Looks at the other endpoints of this process, where there are any and it is time to.
    pub(crate) fn stake_tick(&mut self, now: Time) {
        if let Some(stake) = &mut self.stake
            && stake.next_tick <= now
        {
            stake.tick(now, &mut self.endpoint);
        }
    }

    /// What follows from packets and timers for the host's other endpoints.
    pub(crate) fn stake_after(&mut self, now: Time) {
        if let Some(stake) = &mut self.stake {
            stake.publish_cutoffs(&mut self.endpoint);
            stake.lease_grants(now, &mut self.endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use homa_proto::wire::PRIORITIES;
    use homa_proto::{CallOptions, Config, RpcKey, Transmit};
    use homa_trace::Trace;

    use super::*;

    const STEP_NS: u64 = 100;
    /// Of a packet, at most.
    const PACKET: u32 = 1_500;

    /// A link that takes 1 ns for a byte and nothing else, and messages that need no grants.
    fn link() -> Config {
        Config {
            link_mbps: Some(8_000),
            link_margin: 0,
            link_overhead: 0,
            unsched_bytes: 500_000,
            max_unsched_bytes: 500_000,
            ..Config::default()
        }
    }

    /// One endpoint of a host, and what it sends.
    struct Member {
        endpoint: Endpoint,
        stake: HostLease,
        port: u16,
    }

    fn members(count: u32) -> Vec<Member> {
        let pool =
            Arc::new(GroupPool::new(count as usize, CutoffSet::founding([0; PRIORITIES], 1), 1_000_000));
        let member = |index: u32| {
            let config = Config { endpoints: count, endpoint: index, ..link() };
            let mut endpoint = Endpoint::new(config, Trace::off()).unwrap();
            let port = endpoint.open_client_port().unwrap();
            let stake = HostLease::new(
                LeaseSource::EndpointGroup(Arc::clone(&pool), index as usize),
                0,
                &mut endpoint,
            );
            Member { endpoint, stake, port }
        };
        (0..count).map(member).collect()
    }

    impl Member {
        fn send(&mut self, now: Time, length: u32) -> RpcKey {
            let to = SocketAddr::from(([10, 0, 0, 2], 14_600));
            let options = CallOptions::default();
            self.endpoint.send_request(now, self.port, to, 99, length, options).unwrap()
        }

        /// What a drive round sends.
        fn drive(&mut self, now: Time) -> u32 {
            self.stake.note_uplink(now, &mut self.endpoint);
            let packets = std::iter::from_fn(|| self.endpoint.poll_transmit(now));
            let bytes = packets.map(|Transmit { payload, .. }| payload.map_or(0, |range| range.len)).sum();
            self.stake.tell_uplink(now, &self.endpoint);
            bytes
        }
    }

    #[test]
    fn the_shortest_message_of_all_endpoints_goes_first() {
        let [long, short] = &mut members(2)[..] else { panic!("two") };
        long.send(Time::ZERO, 300_000);
        let (mut now, mut of_long, mut of_short) = (Time::ZERO, 0, 0);
        while of_long < 20_000 {
            of_long += long.drive(now);
            now = now + STEP_NS;
        }
        let before = of_long;
        short.send(now, 50_000);
        while of_short < 50_000 {
            // The other one is always there first.
            of_long += long.drive(now);
            of_short += short.drive(now);
            now = now + STEP_NS;
        }
        // What goes between is what was under way, and the oldest one's share: one part in 20.
        let between = of_long - before;
        assert!(between <= 50_000 / 20 + 3 * PACKET, "{between} bytes went before"); // HOST-6
        assert!(long.endpoint.stats().uplink_left_to_others > 0);
        while of_long < 300_000 {
            of_long += long.drive(now);
            short.drive(now);
            now = now + STEP_NS;
        }
        let busy_ns = long.endpoint.uplink_sent_ns() + short.endpoint.uplink_sent_ns();
        assert!(now.as_ns() <= busy_ns, "the link is idle only when all is sent: {now:?}");
    }

    #[test]
    fn nobody_waits_for_an_endpoint_that_has_said_that_it_waits_and_does_not_come() {
        let [long, short] = &mut members(2)[..] else { panic!("two") };
        long.send(Time::ZERO, 300_000);
        let (mut now, mut of_long) = (Time::ZERO, long.drive(Time::ZERO));
        short.send(now, 50_000);
        assert_eq!(short.drive(now), 0);
        while of_long < 300_000 {
            of_long += long.drive(now);
            now = now + STEP_NS;
        }
        assert!(long.endpoint.stats().uplink_left_to_others > 0);
        // It lets the backlog run out, and may be a step late then: what it sends at once takes many steps.
        let busy_ns = long.endpoint.uplink_sent_ns();
        assert!(now.as_ns() <= busy_ns + busy_ns / 20, "{now:?}");
    }

    #[test]
    fn the_oldest_message_gets_its_share_of_what_others_send() {
        let [long, short] = &mut members(2)[..] else { panic!("two") };
        long.send(Time::ZERO, 400_000);
        let (mut now, mut of_long, mut of_short, mut given) = (Time::ZERO, 0, 0, 0);
        while now.as_ns() < 2_000_000 {
            // There is always a shorter one.
            while given < of_short + 60_000 {
                short.send(now, 20_000);
                given += 20_000;
            }
            of_long += long.drive(now);
            of_short += short.drive(now);
            now = now + STEP_NS;
        }
        // One part in 20 of two million bytes, and a little for the start.
        assert!((80_000..=130_000).contains(&of_long), "{of_long} of {of_short} bytes"); // SEND-5
    }

    #[test]
    fn messages_that_are_equally_long_share_the_uplink() {
        let [one, other] = &mut members(2)[..] else { panic!("two") };
        let (mut now, mut sent) = (Time::ZERO, [0, 0]);
        one.send(now, 200_000);
        other.send(now, 200_000);
        while sent != [200_000; 2] {
            // Each is first in turn.
            sent[0] += one.drive(now);
            sent[1] += other.drive(now);
            now = now + STEP_NS;
            sent[1] += other.drive(now);
            sent[0] += one.drive(now);
            now = now + STEP_NS;
        }
        let busy_ns = one.endpoint.uplink_sent_ns() + other.endpoint.uplink_sent_ns();
        assert!(now.as_ns() <= busy_ns, "{now:?}");
    }
}
