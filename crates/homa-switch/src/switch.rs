//! The switch: forwarding, admission to queues, and departure times.

use homa_egress::queue_of;
use homa_trace::{EventKind, Place, Trace};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::buffer::Pool;
use crate::config::{ConfigError, SwitchConfig};
use crate::ethernet::FrameHeader;
use crate::packet::Packets;
use crate::port::{PS, Port, record};
use crate::queues::QueuedFrame;
use crate::stats::{PortSnapshot, QueueSnapshot, Snapshot};
use crate::table::Table;

/// Forwarding decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this port.
    Port(usize),
    /// To all ports except the one that received the frame.
    All,
    /// Nowhere: the frame's receiver is behind the port that received the frame.
    Nowhere,
}

/// Room reserved in a queue, to be passed to [`Switch::push`].
#[derive(Debug)]
#[must_use = "the place is taken until a frame is pushed"]
pub struct Admission {
    port: usize,
    queue: usize,
    bytes: u32,
    packets: Packets,
    /// Whether the frame must be marked before it is pushed ([`mark_congestion`](crate::mark_congestion)).
    pub mark: bool,
}

/// Why a frame was dropped. The numbers are those used in time traces ([`Place::reason`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum DropReason {
    /// The buffer is full, or the queue is at its threshold.
    Full = 1,
    /// Dropped at random (`loss`).
    Lost = 2,
    /// The device refused the frame after the frame had left the link.
    Device = 3,
}

/// Ingress counters of a port.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    frames: u64,
    bytes: u64,
    lost: u64,
}

/// A switch for frames of type `F`. Times are nanoseconds and never decrease.
#[derive(Debug)]
pub struct Switch<F> {
    config: SwitchConfig,
    table: Table,
    pool: Pool,
    ports: Vec<Port<F>>,
    arrivals: Vec<Arrivals>,
    random: Pcg64,
    trace: Trace,
    started_ns: u64,
    flooded: u64,
    filtered: u64,
}

impl<F> Switch<F> {
    /// Creates a switch with this many ports and an empty address table.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: SwitchConfig, ports: usize, now_ns: u64) -> Result<Switch<F>, ConfigError> {
        config.check()?;
        Ok(Switch {
            table: Table::new(config.seed),
            pool: Pool::new(config.buffer),
            ports: (0..ports).map(|number| Port::new(now_ns, number as u16)).collect(),
            arrivals: vec![Arrivals::default(); ports],
            random: Pcg64::seed_from_u64(config.seed),
            config,
            trace: Trace::off(),
            started_ns: now_ns,
            flooded: 0,
            filtered: 0,
        })
    }

    /// Records frames in this trace from now on. The trace's clock is
    /// [`Clock::Virtual`](homa_trace::Clock::Virtual), set to the times of the links.
    pub fn set_trace(&mut self, trace: Trace) {
        self.trace = trace;
    }

    /// Returns the trace, which is [off](Trace::off) by default. A departure is recorded when the frame is
    /// polled, but with its departure time, so records are not ordered by time.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns whether callers must pass the packets of each frame.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.trace.is_recording()
    }

    /// Counts a frame that was dropped after it had left a port.
    pub fn dropped(
        &mut self,
        now_ns: u64,
        port: usize,
        head: &FrameHeader,
        packets: &Packets,
        why: DropReason,
    ) {
        if self.trace.is_recording() {
            let queue = queue_of(head.priority, self.config.priorities) as u16;
            let place = Place::in_switch(port as u16, queue, why as u16);
            record(&mut self.trace, now_ns, EventKind::SwitchDropped, packets, place);
        }
    }

    /// Learns the sender's port from a received frame, and returns where to forward it.
    pub fn route(&mut self, now_ns: u64, from: usize, head: &FrameHeader, bytes: usize) -> Route {
        let arrivals = &mut self.arrivals[from];
        arrivals.frames += 1;
        arrivals.bytes += bytes as u64;
        self.table.learn(now_ns, head.from, from as u16);
        let known = if head.is_for_many() { None } else { self.table.find(&head.to) };
        match known.map(usize::from) {
            Some(port) if port == from => {
                self.filtered += 1;
                Route::Nowhere
            }
            Some(port) => Route::Port(port),
            None => {
                self.flooded += 1;
                Route::All
            }
        }
    }

    /// Reserves room for a frame at a port. `packets` are the frame's packets, if the switch is traced.
    ///
    /// # Errors
    /// There is no room. The drop is counted.
    pub fn admit(
        &mut self,
        now_ns: u64,
        port: usize,
        head: &FrameHeader,
        bytes: usize,
        packets: &Packets,
    ) -> Result<Admission, DropReason> {
        let result = self.has_place(port, head, bytes, packets);
        if let Err(why) = result {
            self.dropped(now_ns, port, head, packets, why);
        }
        result
    }

    fn has_place(
        &mut self,
        port: usize,
        head: &FrameHeader,
        bytes: usize,
        packets: &Packets,
    ) -> Result<Admission, DropReason> {
        if self.config.loss > 0.0 && self.random.random_bool(self.config.loss) {
            self.arrivals[port].lost += 1;
            return Err(DropReason::Lost);
        }
        let queue = queue_of(head.priority, self.config.priorities);
        let bytes = bytes as u32;
        let way_out = &mut self.ports[port];
        let depth = way_out.depth.bytes();
        if !self.pool.has_room(depth, way_out.depths[queue].bytes(), bytes.into()) {
            let count = &mut way_out.counts[queue];
            count.dropped_frames += 1;
            count.dropped_bytes += u64::from(bytes);
            return Err(DropReason::Full);
        }
        self.pool.take(bytes.into());
        let mark = head.may_be_marked && self.config.mark_bytes.is_some_and(|most| depth >= most);
        way_out.counts[queue].marked_frames += u64::from(mark);
        Ok(Admission { port, queue, bytes, packets: packets.clone(), mark })
    }

    /// Queues an admitted frame that arrived at `came_ns`, which is at most `now_ns`. If the link was idle,
    /// it is considered busy with the frame since `came_ns`.
    pub fn push(&mut self, now_ns: u64, came_ns: u64, admitted: Admission, frame: F) {
        let Admission { port, queue, bytes, packets, .. } = admitted;
        if self.trace.is_recording() {
            let place = Place::in_switch(port as u16, queue as u16, 0);
            record(&mut self.trace, now_ns, EventKind::SwitchEntered, &packets, place);
        }
        self.ports[port].push(
            now_ns,
            queue,
            QueuedFrame { frame, bytes, packets, came_ps: came_ns.min(now_ns) * PS },
        );
    }

    /// Returns the next frame that has arrived at the far end of a port's link by now, if any.
    pub fn poll(&mut self, now_ns: u64, port: usize) -> Option<F> {
        self.ports[port].poll(now_ns, &self.config, &mut self.pool, &mut self.trace)
    }

    /// Returns the time when [`poll`](Switch::poll) next has work at any port, rounded up, unless a frame is
    /// pushed earlier.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.ports.iter().filter_map(Port::due_ps).min().map(|ps| ps.div_ceil(PS))
    }

    /// Returns the bytes queued at all ports.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        self.pool.used()
    }

    /// Returns the bytes queued at a port, excluding the frame on its link.
    #[must_use]
    pub fn waiting_bytes_at(&self, port: usize) -> u64 {
        self.ports[port].depth.bytes()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Returns all counters. Fields about devices stay empty.
    #[must_use]
    pub fn snapshot(&mut self, now_ns: u64) -> Snapshot {
        let time_ns = now_ns.saturating_sub(self.started_ns);
        let priorities = self.config.priorities;
        let ports = self.ports.iter_mut().zip(&self.arrivals).map(|(port, arrivals)| {
            let queues = port.counts.iter().zip(&mut port.depths).take(priorities);
            let busy_ns = port.busy_ps / PS;
            PortSnapshot {
                received_frames: arrivals.frames,
                received_bytes: arrivals.bytes,
                lost: arrivals.lost,
                utilisation: busy_ns as f64 / time_ns.max(1) as f64,
                busy_ns,
                depth: port.depth.summary(now_ns),
                queues: queues
                    .map(|(count, depth)| QueueSnapshot {
                        frames: count.frames,
                        bytes: count.bytes,
                        dropped_frames: count.dropped_frames,
                        dropped_bytes: count.dropped_bytes,
                        marked_frames: count.marked_frames,
                        depth: depth.summary(now_ns),
                    })
                    .collect(),
                ..PortSnapshot::default()
            }
        });
        Snapshot {
            time_ns,
            addresses: self.table.len(),
            flooded: self.flooded,
            filtered: self.filtered,
            ports: ports.collect(),
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::Mac;
    use crate::packet::Packet;
    use homa_egress::Buffer;
    use homa_trace::{Clock, Record};

    const FRAME: usize = 1_226;
    /// Serialization time of a frame at 1 Gbit/s.
    const FRAME_NS: u64 = 10_000;

    fn mac(host: u8) -> Mac {
        [2, 0, 0, 0, 0, host]
    }

    fn head(from: u8, to: u8, priority: u8) -> FrameHeader {
        FrameHeader { to: mac(to), from: mac(from), priority, may_be_marked: true }
    }

    /// Creates a switch of 1 Gbit/s that has learned that hosts 0 to 3 are behind the ports of the same
    /// number.
    fn switch(change: impl FnOnce(&mut SwitchConfig)) -> Switch<u32> {
        let mut config =
            SwitchConfig { buffer: Buffer::PerPort { bytes: 100_000 }, ..SwitchConfig::default() };
        change(&mut config);
        let mut switch = Switch::new(config, 4, 0).unwrap();
        for host in 0..4 {
            assert_eq!(switch.route(0, host.into(), &head(host, 9, 0), FRAME), Route::All);
        }
        switch
    }

    fn offer(
        switch: &mut Switch<u32>,
        now_ns: u64,
        to: u8,
        priority: u8,
        name: u32,
    ) -> Result<bool, DropReason> {
        let head = head(0, to, priority);
        let Route::Port(port) = switch.route(now_ns, 0, &head, FRAME) else { panic!("it is known") };
        let packets = Packet { id: name.into(), word: FRAME as u32, offset: 7 }.into();
        let admitted = switch.admit(now_ns, port, &head, FRAME, &packets)?;
        let mark = admitted.mark;
        switch.push(now_ns, now_ns, admitted, name);
        Ok(mark)
    }

    #[test]
    fn frames_go_where_their_receiver_was_seen() {
        let mut switch = switch(|_| ());
        assert_eq!(switch.route(1, 0, &head(0, 3, 0), FRAME), Route::Port(3));
        assert_eq!(switch.route(1, 3, &head(8, 3, 0), FRAME), Route::Nowhere);
        assert_eq!(switch.route(2, 1, &head(3, 0, 0), FRAME), Route::Port(0), "host 3 has moved to port 1");
        assert_eq!(switch.route(3, 0, &head(0, 3, 0), FRAME), Route::Port(1));
        let all = FrameHeader { to: [0xff; 6], ..head(0, 0, 0) };
        assert_eq!(switch.route(4, 0, &all, FRAME), Route::All);
        let snapshot = switch.snapshot(5);
        assert_eq!((snapshot.flooded, snapshot.filtered, snapshot.addresses), (5, 1, 5));
        assert_eq!(snapshot.ports[0].received_frames, 4);
    }

    #[test]
    fn a_full_queue_drops_and_leaves_room_for_a_higher_one() {
        let mut switch = switch(|_| ());
        let taken = (0..100).filter(|&name| offer(&mut switch, 0, 1, 2, name).is_ok()).count();
        assert!((70..80).contains(&taken), "eight ninths of what the port has: {taken}");
        assert_eq!(offer(&mut switch, 0, 1, 2, 0), Err(DropReason::Full));
        let higher = (0..100).filter(|&name| offer(&mut switch, 0, 1, 7, name).is_ok()).count();
        assert!(higher >= 5 && taken + higher <= 100_000 / FRAME, "{higher}");
        assert_eq!(offer(&mut switch, 0, 2, 0, 0), Ok(false), "other ports have their own");
        let port = &switch.snapshot(0).ports[1];
        let dropped = [2, 7].map(|queue: usize| port.queues[queue].dropped_frames as usize);
        assert_eq!(dropped, [101 - taken, 100 - higher]);
        assert_eq!(port.depth.now_bytes, ((taken + higher) * FRAME) as u64);
    }

    #[test]
    fn what_finds_a_long_queue_is_marked() {
        let mut switch = switch(|config| config.mark_bytes = Some(3 * FRAME as u64));
        let marks: Vec<_> = (0..6).map(|name| offer(&mut switch, 0, 1, 0, name).unwrap()).collect();
        assert_eq!(marks, [false, false, false, true, true, true]);
        assert_eq!(switch.snapshot(0).ports[1].queues[0].marked_frames, 3);
    }

    #[test]
    fn a_seed_says_what_is_lost() {
        let lost = |seed| {
            let mut switch = switch(|config| (config.loss, config.seed) = (0.25, seed));
            let is_lost = |name| offer(&mut switch, u64::from(name) * FRAME_NS, 1, 0, name).is_err();
            let drain = (0..40).map(is_lost).collect::<Vec<_>>();
            assert_eq!(switch.snapshot(0).ports[1].lost as usize, drain.iter().filter(|&&lost| lost).count());
            drain
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }

    #[test]
    fn a_bundle_is_one_frame_and_each_of_its_packets_is_traced() {
        let mut switch = switch(|_| ());
        switch.set_trace(Trace::new(1_024, Clock::Virtual));
        let head = head(0, 1, 3);
        let packets = Packets::from([10, 12].map(|id| Packet { id, word: 600, offset: 7 }));
        let admitted = switch.admit(100, 1, &head, FRAME, &packets).unwrap();
        switch.push(100, 100, admitted, 1);
        assert_eq!((switch.poll(100 + FRAME_NS, 1), switch.poll(1_000_000, 1)), (Some(1), None));
        switch.dropped(200 + FRAME_NS, 1, &head, &packets, DropReason::Device);
        let records: Vec<_> =
            switch.trace().iter().map(|of| (of.event().unwrap(), of.time, of.id, of.a, of.b)).collect();
        use EventKind::{SwitchDropped, SwitchEntered, SwitchLeft};
        let each = [(SwitchEntered, 100), (SwitchLeft, 100 + FRAME_NS), (SwitchDropped, 200 + FRAME_NS)];
        assert_eq!(records, each.map(|(kind, time)| [10, 12].map(|id| (kind, time, id, 600, 7))).concat());
        assert_eq!(switch.snapshot(1_000_000).ports[1].queues[3].frames, 1);
    }

    #[test]
    fn a_trace_tells_when_each_frame_entered_left_and_was_dropped() {
        let mut switch = switch(|config| config.delay_ns = 50_000);
        offer(&mut switch, 0, 1, 0, 1).unwrap();
        assert!(switch.trace().is_empty() && !switch.is_traced(), "off unless asked for");
        switch.set_trace(Trace::new(1_024, Clock::Virtual));
        for (now_ns, name) in [(500, 10), (600, 11)] {
            offer(&mut switch, now_ns, 2, 5, name).unwrap();
        }
        let dropped_at = |switch: &mut Switch<u32>| {
            (0..).find(|&name| offer(switch, 700, 3, 4, 1_000 + name) == Err(DropReason::Full)).unwrap()
        };
        let dropped = 1_000 + u64::from(dropped_at(&mut switch));
        // The polls are late, but the departure times are those of the link: the second frame waits for the
        // first.
        for port in [2, 1] {
            while switch.poll(1_000_000, port).is_some() {}
        }
        let of = |id: u64| {
            let records = switch.trace().iter().filter(move |record| record.id == id);
            records.map(|record| {
                let Record { time, a, b, place, .. } = *record;
                assert_eq!((a, b), (FRAME as u32, 7));
                (record.event().unwrap(), time, place.port(), place.queue(), place.reason())
            })
        };
        use EventKind::{SwitchDropped, SwitchEntered, SwitchLeft};
        let [first, second] = [10, 11].map(|id| of(id).collect::<Vec<_>>());
        assert_eq!(first, [(SwitchEntered, 500, 2, 5, 0), (SwitchLeft, 500 + FRAME_NS, 2, 5, 0)]);
        assert_eq!(second, [(SwitchEntered, 600, 2, 5, 0), (SwitchLeft, 500 + 2 * FRAME_NS, 2, 5, 0)]);
        assert_eq!(of(dropped).collect::<Vec<_>>(), [(SwitchDropped, 700, 3, 4, 1)]);
    }

    #[test]
    fn ports_send_side_by_side_and_the_time_of_the_next_is_told() {
        let mut switch = switch(|_| ());
        assert_eq!(switch.poll_timeout(), None);
        for (to, name) in [(1, 1), (1, 2), (2, 3)] {
            offer(&mut switch, 500, to, 0, name).unwrap();
        }
        let mut now = 500;
        let mut left = Vec::new();
        while let Some(due) = switch.poll_timeout() {
            now = now.max(due);
            for port in 0..4 {
                while let Some(name) = switch.poll(now, port) {
                    left.push((now - 500, name));
                }
            }
        }
        assert_eq!(left, [(FRAME_NS, 1), (FRAME_NS, 3), (2 * FRAME_NS, 2)]);
        let snapshot = switch.snapshot(500 + 4 * FRAME_NS);
        assert_eq!((snapshot.ports[1].queues[0].frames, switch.waiting_bytes()), (2, 0));
        assert_eq!(snapshot.ports[1].busy_ns, 2 * FRAME_NS);
    }
}
