//! An endpoint's lease on host-wide resources: grant budget, uplink, cutoffs. The rest is leased by other
//! processes (over raw IP) or by other endpoints of the same process.
//!
//! All of this happens in drive rounds, and no endpoint waits for another.

use std::sync::Arc;

use homa_proto::{Endpoint, MS, Time};

use crate::tenancy::process_group::{CutoffSet, GroupPool, LeaseShare, LeaseWatch, Segment};

/// Interval after which an endpoint retries to lease grant budget that others held, in nanoseconds: the time
/// in which a few full packets arrive.
const RETRY_NS: u64 = 200_000;

/// Interval at which each of several endpoints publishes its observations and checks for a live leader.
const TICK_NS: u64 = 20 * MS;

/// The place where the host-wide resources are stored.
pub(crate) enum LeaseSource {
    /// A segment that other processes map.
    Segment(Arc<Segment>),
    /// This process's memory, which its endpoints share. The number is this endpoint's index.
    EndpointGroup(Arc<GroupPool>, usize),
}

/// An endpoint's lease on host-wide resources: see the [module](self).
pub(crate) struct HostLease {
    source: LeaseSource,
    /// The value of the source's clock at [`Time::ZERO`], in nanoseconds.
    start_ns: u64,
    /// When to retry, if there was too little budget.
    retry_at: Option<Time>,
    /// Grant budget that this endpoint has leased.
    leased: u64,
    /// Publication number of the cutoffs that were last adopted.
    adopted_cutoffs: u64,
    /// Version of the cutoffs that the endpoint knows.
    cutoff_version: u16,
    leads: bool,
    /// Uplink time of this endpoint's packets that has already been published, in nanoseconds.
    uplink_published_ns: u64,
    /// Whether this endpoint has published that it has a message waiting for the uplink.
    waiting_published: bool,
    watch: LeaseWatch,
    next_tick: Time,
}

impl HostLease {
    /// Begins sharing: the endpoint gets the host's cutoffs now, and all other resources when it needs them.
    pub(crate) fn new(source: LeaseSource, start_ns: u64, endpoint: &mut Endpoint) -> HostLease {
        endpoint.set_grant_budget(Time::ZERO, 0);
        endpoint.follow_cutoffs(true);
        let mut lease = HostLease {
            source,
            start_ns,
            retry_at: None,
            leased: 0,
            adopted_cutoffs: 0,
            cutoff_version: 0,
            leads: false,
            uplink_published_ns: 0,
            waiting_published: false,
            watch: LeaseWatch::default(),
            next_tick: Time::ZERO,
        };
        lease.adopt_cutoffs(endpoint);
        lease
    }

    fn lease_share(&self) -> LeaseShare<'_> {
        match &self.source {
            LeaseSource::Segment(segment) => segment.lease_share(),
            LeaseSource::EndpointGroup(pool, mine) => pool.lease_share(*mine),
        }
    }

    fn clock_ns(&self, now: Time) -> u64 {
        self.start_ns + now.as_ns()
    }

    /// Returns when a drive round is due for the host-wide resources. An endpoint that holds no lease need
    /// not show that it is alive.
    pub(crate) fn next_wake(&self) -> Time {
        let tick = match &self.source {
            LeaseSource::EndpointGroup(..) if self.leased > 0 => self.next_tick,
            _ => Time::NEVER,
        };
        self.retry_at.unwrap_or(Time::NEVER).min(tick)
    }

    /// HOST-4: adopts the host's cutoffs if they have changed.
    pub(crate) fn adopt_cutoffs(&mut self, endpoint: &mut Endpoint) {
        if self.lease_share().cutoffs_published() == self.adopted_cutoffs {
            return;
        }
        if let Some((number, set)) = self.lease_share().cutoffs() {
            self.adopted_cutoffs = number;
            self.cutoff_version = set.version;
            endpoint.set_cutoffs(set.levels, set.version);
            endpoint.set_unsched_limit(set.unsched_limit);
        }
    }

    /// HOST-4: publishes the cutoffs that the endpoint has computed.
    pub(crate) fn publish_cutoffs(&mut self, endpoint: &mut Endpoint) {
        let (levels, version) = endpoint.cutoffs();
        if version == self.cutoff_version || !self.leads {
            return;
        }
        let set = CutoffSet { levels, version, unsched_limit: endpoint.unsched_limit() };
        let taken = match &self.source {
            LeaseSource::Segment(segment) => segment.publish_cutoffs(set),
            LeaseSource::EndpointGroup(pool, mine) => pool.publish_cutoffs(*mine, set),
        };
        if taken {
            self.cutoff_version = version;
            self.adopted_cutoffs = self.lease_share().cutoffs_published();
        }
    }

    /// HOST-5: leases grant budget for waiting messages, and returns budget that no message needs.
    pub(crate) fn lease_grants(&mut self, now: Time, endpoint: &mut Endpoint) {
        let demand = endpoint.grant_demand();
        let lease = self.lease_share().lease_grants(demand, endpoint.granted_bytes());
        if lease != self.leased {
            self.leased = lease;
            endpoint.set_grant_budget(now, lease);
        }
        self.retry_at = (demand > lease).then_some(now + RETRY_NS);
    }

    /// HOST-6: passes to the endpoint the part of the uplink's backlog that consists of other endpoints'
    /// packets, and the length of the shortest message that waits in another endpoint.
    pub(crate) fn note_uplink(&self, now: Time, endpoint: &mut Endpoint) {
        let (lease_share, clock_ns) = (self.lease_share(), self.clock_ns(now));
        let backlog_ns = lease_share.uplink_backlog_ns(clock_ns);
        let mut shortest = None;
        if backlog_ns > 0 {
            endpoint.set_uplink_backlog(now, backlog_ns);
            shortest = lease_share.shortest_elsewhere(clock_ns);
        }
        endpoint.share_uplink(shortest);
    }

    /// HOST-6: publishes the uplink time of the packets that the endpoint has sent, and its shortest waiting
    /// message.
    pub(crate) fn publish_uplink(&mut self, now: Time, endpoint: &Endpoint) {
        let sent_ns = endpoint.uplink_sent_ns();
        if sent_ns != self.uplink_published_ns {
            self.lease_share().uplink_sent(self.clock_ns(now), sent_ns - self.uplink_published_ns);
            self.uplink_published_ns = sent_ns;
        }
        let waiting = endpoint.waiting_for_uplink();
        if waiting.is_some() || self.waiting_published {
            self.lease_share().wait_for_uplink(self.clock_ns(now), waiting);
            self.waiting_published = waiting.is_some();
        }
    }

    /// Starts or stops computing the cutoffs as leader, and forwards the observed traffic.
    pub(crate) fn set_leader(&mut self, endpoint: &mut Endpoint, leads: bool) {
        self.adopt_cutoffs(endpoint);
        if leads != self.leads {
            self.leads = leads;
            endpoint.follow_cutoffs(!leads);
        }
        let lease_share = self.lease_share();
        if leads {
            lease_share.take_observed(|bucket, bytes| endpoint.add_observed(bucket, bytes));
        } else {
            endpoint.take_observed(|bucket, bytes| lease_share.add_observed(bucket, bytes));
        }
    }

    /// Does the work that is due every few tens of milliseconds while the endpoint is driven, if there are
    /// several endpoints.
    pub(crate) fn tick(&mut self, now: Time, endpoint: &mut Endpoint) {
        if now < self.next_tick {
            return;
        }
        let LeaseSource::EndpointGroup(pool, mine) = &self.source else { return };
        self.next_tick = now + TICK_NS;
        pool.tick(*mine, now.as_ns(), &mut self.watch);
        let leads = pool.is_leader(*mine);
        self.set_leader(endpoint, leads);
    }

    /// Returns three byte counts: the bytes that all endpoints together may have granted but not received,
    /// the bytes that this endpoint has leased, and the bytes that all endpoints have leased.
    pub(crate) fn grant_bytes(&self) -> (u64, u64, u64) {
        (self.lease_share().budget_bytes(), self.leased, self.lease_share().leased_bytes())
    }
}

impl Drop for HostLease {
    fn drop(&mut self) {
        if let LeaseSource::EndpointGroup(pool, mine) = &self.source {
            pool.leave(*mine);
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
    /// Maximum packet size in bytes.
    const PACKET: u32 = 1_500;

    /// Settings for a link that takes 1 ns per byte without other overhead, and for messages that need no
    /// grants.
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

    /// One endpoint of a host, and the port from which it sends.
    struct Member {
        endpoint: Endpoint,
        lease: HostLease,
        port: u16,
    }

    fn members(count: u32) -> Vec<Member> {
        let pool =
            Arc::new(GroupPool::new(count as usize, CutoffSet::initial([0; PRIORITIES], 1), 1_000_000));
        let member = |index: u32| {
            let config = Config { endpoints: count, endpoint: index, ..link() };
            let mut endpoint = Endpoint::new(config, Trace::off()).unwrap();
            let port = endpoint.open_client_port().unwrap();
            let lease = HostLease::new(
                LeaseSource::EndpointGroup(Arc::clone(&pool), index as usize),
                0,
                &mut endpoint,
            );
            Member { endpoint, lease, port }
        };
        (0..count).map(member).collect()
    }

    impl Member {
        fn send(&mut self, now: Time, length: u32) -> RpcKey {
            let to = SocketAddr::from(([10, 0, 0, 2], 14_600));
            let options = CallOptions::default();
            self.endpoint.send_request(now, self.port, to, 99, length, options).unwrap()
        }

        /// Drives the endpoint for one round; returns the number of bytes sent.
        fn drive(&mut self, now: Time) -> u32 {
            self.lease.note_uplink(now, &mut self.endpoint);
            let packets = std::iter::from_fn(|| self.endpoint.poll_transmit(now));
            let bytes = packets.map(|Transmit { payload, .. }| payload.map_or(0, |range| range.len)).sum();
            self.lease.publish_uplink(now, &self.endpoint);
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
            // The endpoint with the long message is always driven first.
            of_long += long.drive(now);
            of_short += short.drive(now);
            now = now + STEP_NS;
        }
        // The bytes sent in between are packets that were already in flight, and the oldest message's share
        // of 1/20.
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
    fn no_endpoint_waits_for_one_that_published_an_entry_and_does_not_send() {
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
        // This endpoint lets the backlog drain, and may then be up to a step late: sending one burst takes
        // many steps of link time.
        let busy_ns = long.endpoint.uplink_sent_ns();
        assert!(now.as_ns() <= busy_ns + busy_ns / 20, "{now:?}");
    }

    #[test]
    fn the_oldest_message_gets_its_share_of_what_others_send() {
        let [long, short] = &mut members(2)[..] else { panic!("two") };
        long.send(Time::ZERO, 400_000);
        let (mut now, mut of_long, mut of_short, mut given) = (Time::ZERO, 0, 0, 0);
        while now.as_ns() < 2_000_000 {
            // Always keep a shorter message waiting.
            while given < of_short + 60_000 {
                short.send(now, 20_000);
                given += 20_000;
            }
            of_long += long.drive(now);
            of_short += short.drive(now);
            now = now + STEP_NS;
        }
        // 1/20 of two million bytes, plus some for the start.
        assert!((80_000..=130_000).contains(&of_long), "{of_long} of {of_short} bytes"); // SEND-5
    }

    #[test]
    fn messages_that_are_equally_long_share_the_uplink() {
        let [one, other] = &mut members(2)[..] else { panic!("two") };
        let (mut now, mut sent) = (Time::ZERO, [0, 0]);
        one.send(now, 200_000);
        other.send(now, 200_000);
        while sent != [200_000; 2] {
            // Take turns in driving first.
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
