//! A faulty path that loses, duplicates, reorders, corrupts and delays packets, at random from a seed.

mod delay_line;
mod plan;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use homa_steer::batch::BatchCap;

use crate::burst::RxBurst;
use crate::driver::{BufferSizes, Driver, DriverStats, TxPacket, UnreachableReport};
use crate::exchange::Exchange;
use crate::filter::ReceiveFilter;
use delay_line::{DelayLine, Packet};

pub use delay_line::FaultCounts;
pub use plan::{FaultAction, FaultError, FaultPlan, FaultRates, REORDER_DISTANCE_MAX, REORDER_HOLD_NS};

/// The faults of a [`FaultDriver`] in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultConfig {
    /// Seed of the random decisions.
    pub seed: u64,
    /// Faults of sent packets.
    pub send: FaultRates,
    /// Faults of received packets.
    pub receive: FaultRates,
}

/// Wraps a driver and injects faults into the packets that it sends and receives.
///
/// The same seed and order of packets give the same decisions, but the times at which delayed packets are
/// released depend on the wall clock. Delayed packets are released only when the driver is called: see
/// [`Driver::poll_timeout`]. Their number and bytes are bounded; packets beyond the bound are lost and
/// counted.
///
/// A corrupted packet is sent with correct lower-layer checksums, so that it reaches the peer's protocol.
#[derive(Debug)]
pub struct FaultDriver<D> {
    inner: D,
    start: Instant,
    send: Option<DelayLine>,
    receive: Option<DelayLine>,
    /// Packets that the inner driver received, before faults are applied.
    arrived: RxBurst,
}

impl<D: Driver> FaultDriver<D> {
    /// Wraps a driver. A direction without faults costs nothing.
    ///
    /// # Errors
    /// The rates are invalid; see [`FaultError`].
    pub fn new(inner: D, config: &FaultConfig) -> Result<FaultDriver<D>, FaultError> {
        let line = |rates: FaultRates, salt: u64| {
            let plan = FaultPlan::new(config.seed ^ salt, rates)?;
            Ok((!rates.are_zero()).then(|| DelayLine::new(plan)))
        };
        // The two directions must have independent random numbers. The salt is derived from the golden ratio;
        // any constant would do.
        let (send, receive) = (line(config.send, 0)?, line(config.receive, 0x9e37_79b9_7f4a_7c15)?);
        Ok(FaultDriver { inner, start: Instant::now(), send, receive, arrived: RxBurst::new() })
    }

    /// Returns the fault counts of sent packets.
    #[must_use]
    pub fn sent_counts(&self) -> FaultCounts {
        self.send.as_ref().map(DelayLine::counts).unwrap_or_default()
    }

    /// Returns the fault counts of received packets.
    #[must_use]
    pub fn received_counts(&self) -> FaultCounts {
        self.receive.as_ref().map(DelayLine::counts).unwrap_or_default()
    }

    /// Returns the inner driver.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Represents the priority of a received packet if the driver does not provide it.
const UNKNOWN_PRIORITY: u8 = u8::MAX;

/// Sends the due packets one at a time, and returns whether there was room for all of them.
fn release_to(inner: &mut impl Driver, line: &mut DelayLine, now_ns: u64) -> io::Result<bool> {
    line.release(now_ns, |held| {
        let packet = TxPacket { to: held.peer, priority: held.priority, header: &held.bytes, payload: &[] };
        Ok(inner.send(&[packet])? == 1)
    })
}

/// Adds the due packets to the burst, up to its cap, and returns whether there was room for all of them.
fn release_into(burst: &mut RxBurst, line: &mut DelayLine, now_ns: u64) -> bool {
    let result = line.release(now_ns, |held| {
        let priority = Some(held.priority).filter(|priority| *priority != UNKNOWN_PRIORITY);
        Ok::<_, Infallible>(
            burst.len() < burst.max_packets() && push(burst, (held.peer, priority), &held.bytes),
        )
    });
    result.unwrap_or_else(|never| match never {})
}

/// Adds a packet to the burst, with its priority if known, and returns whether there was room.
fn push(burst: &mut RxBurst, (peer, priority): (SocketAddr, Option<u8>), bytes: &[u8]) -> bool {
    let first = burst.len();
    let taken = burst.push(peer, bytes);
    burst.note_priority(first, priority);
    taken
}

/// Sends packets through the line and counts the accepted ones in `taken`.
fn send_through(
    inner: &mut impl Driver,
    line: &mut DelayLine,
    now_ns: u64,
    packets: &[TxPacket<'_>],
    taken: &mut usize,
) -> io::Result<()> {
    // If there is no room for delayed packets, accept no more: the caller must see a full path, and the delay
    // line must not grow.
    while release_to(inner, line, now_ns)? && *taken < packets.len() {
        let left = &packets[*taken..];
        let mut struck = None;
        let mut untouched = left.len().min(line.room_without_fault());
        for (i, packet) in left[..untouched].iter().enumerate() {
            let action = line.decide(packet.len());
            if action != FaultAction::NONE {
                struck = Some(action);
                untouched = i;
                break;
            }
        }
        if untouched > 0 {
            let sent = inner.send(&left[..untouched])?;
            line.passed_untouched(sent);
            *taken += sent;
            // The decisions for the remaining packets are discarded. When these packets are offered again,
            // they get new decisions at the same rates.
            if sent < untouched {
                return Ok(());
            }
        }
        if let Some(action) = struck {
            let packet = &left[untouched];
            let bytes = [packet.header, packet.payload].concat();
            line.admit(now_ns, action, Packet { peer: packet.to, priority: packet.priority, bytes });
            *taken += 1;
        }
    }
    Ok(())
}

impl<D: Driver> Driver for FaultDriver<D> {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.inner.max_packet(to)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let now_ns = self.now_ns();
        let Some(line) = &mut self.send else { return self.inner.send(packets) };
        let mut taken = 0;
        let result = send_through(&mut self.inner, line, now_ns, packets, &mut taken);
        match result {
            // The next call returns the error again; this call must return the number of accepted packets.
            Err(error) if taken == 0 => Err(error),
            _ => Ok(taken),
        }
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        let now_ns = self.now_ns();
        if let Some(line) = &mut self.send {
            release_to(&mut self.inner, line, now_ns)?;
        }
        let Some(line) = &mut self.receive else { return self.inner.receive(burst) };
        burst.clear();
        let mut room = release_into(burst, line, now_ns);
        // If there is no room for delayed packets, receive no more: the delay line must not grow.
        let left = burst.max_packets().saturating_sub(burst.len());
        let (true, Ok(cap)) = (room, BatchCap::new(left as u32)) else { return Ok(burst.len()) };
        self.arrived.set_cap(cap);
        match self.inner.receive(&mut self.arrived) {
            Err(error) if burst.is_empty() => return Err(error),
            // The next call returns the error again; this call must return the packets received so far.
            Err(_) => return Ok(burst.len()),
            Ok(_) => (),
        }
        for (index, (peer, bytes)) in self.arrived.iter().enumerate() {
            let known = self.arrived.priority(index);
            let held = || Packet { peer, priority: known.unwrap_or(UNKNOWN_PRIORITY), bytes: bytes.to_vec() };
            let action = line.decide(bytes.len());
            if action != FaultAction::NONE {
                line.admit(now_ns, action, held());
            } else if room && push(burst, (peer, known), bytes) {
                line.passed_untouched(1);
            } else {
                room = false;
                line.queue_untouched(now_ns, held());
            }
            room = room && release_into(burst, line, now_ns);
        }
        if self.arrived.may_have_more() || line.next_due_ns().is_some() {
            burst.note_more();
        }
        Ok(burst.len())
    }

    fn tell_priorities(&mut self) -> bool {
        self.inner.tell_priorities()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }

    fn poll_timeout(&self) -> Option<u64> {
        let due = [&self.send, &self.receive].into_iter().flatten().filter_map(DelayLine::next_due_ns).min();
        let own = due.map(|due_ns| due_ns.saturating_sub(self.now_ns()));
        [own, self.inner.poll_timeout()].into_iter().flatten().min()
    }

    fn shows_room(&self) -> bool {
        self.inner.shows_room()
    }

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.inner.poll_unreachable()
    }

    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        self.inner.set_receive_filter(filter)
    }

    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        self.inner.refuse(peer, packet);
    }

    fn peers_port(&self) -> Option<u16> {
        self.inner.peers_port()
    }

    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        self.inner.exchange()
    }

    fn link_mbps(&self) -> Option<u32> {
        self.inner.link_mbps()
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        self.inner.buffer_sizes()
    }

    /// Returns the counts of the inner driver. Packets that an injected fault lost on sending are not
    /// included.
    fn stats(&self) -> DriverStats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDriver;

    fn config(send: FaultRates, receive: FaultRates) -> FaultConfig {
        FaultConfig { seed: 11, send, receive }
    }

    fn numbered(count: u32) -> Vec<[u8; 4]> {
        (0..count).map(u32::to_le_bytes).collect()
    }

    fn packets(bytes: &[[u8; 4]]) -> Vec<TxPacket<'_>> {
        let to = ([127, 0, 0, 1], 9).into();
        bytes.iter().map(|b| TxPacket { to, priority: 4, header: &b[..1], payload: &b[1..] }).collect()
    }

    /// Calls the driver until it holds no packets. Every delayed packet is due within about a millisecond.
    fn drain(driver: &mut FaultDriver<MemoryDriver>, got: &mut Vec<u32>) {
        let mut burst = RxBurst::new();
        loop {
            assert_eq!(driver.send(&[]).unwrap(), 0);
            driver.receive(&mut burst).unwrap();
            got.extend(burst.iter().map(|(_, packet)| u32::from_le_bytes(packet.try_into().unwrap())));
            if burst.is_empty() && driver.poll_timeout().is_none() {
                return;
            }
        }
    }

    fn all_numbers(driver: &MemoryDriver) -> Vec<u32> {
        driver.sent.iter().map(|(_, packet)| u32::from_le_bytes(packet[..].try_into().unwrap())).collect()
    }

    #[test]
    fn without_faults_everything_passes_in_order() {
        let mut driver = FaultDriver::new(MemoryDriver::default(), &FaultConfig::default()).unwrap();
        let bytes = numbered(100);
        assert_eq!(driver.send(&packets(&bytes)).unwrap(), 100);
        assert_eq!(all_numbers(&driver.inner), (0..100).collect::<Vec<_>>());
        assert_eq!(driver.poll_timeout(), None);
    }

    #[test]
    fn what_is_sent_is_lost_and_doubled_as_counted() {
        let rates = FaultRates { loss: 0.2, duplication: 0.3, ..FaultRates::default() };
        let mut driver =
            FaultDriver::new(MemoryDriver::default(), &config(rates, FaultRates::default())).unwrap();
        let bytes = numbered(5_000);
        assert_eq!(driver.send(&packets(&bytes)).unwrap(), 5_000);
        let counts = driver.sent_counts();
        assert_eq!(counts.packets, 5_000);
        assert!(counts.lost > 0 && counts.duplicated > 0);
        let numbers = all_numbers(&driver.inner);
        assert_eq!(numbers.len() as u64, 5_000 - counts.lost + counts.duplicated);
        assert!(numbers.is_sorted(), "neither loss nor doubling reorders");
        assert!(driver.inner.sent.iter().all(|(priority, _)| *priority == 4));
    }

    #[test]
    fn who_holds_packets_back_says_that_there_may_be_more() {
        let rates = FaultRates { delay: 1.0, delay_max_ns: 1_000_000_000_000, ..FaultRates::default() };
        let mut driver =
            FaultDriver::new(MemoryDriver::default(), &config(FaultRates::default(), rates)).unwrap();
        let mut burst = RxBurst::new();
        assert!(driver.receive(&mut burst).unwrap() == 0 && !burst.may_have_more());
        driver.inner.arriving.extend((0..20).map(|byte| (([127, 0, 0, 1], 9).into(), vec![byte])));
        for _ in 0..2 {
            // A few packets may be due already.
            driver.receive(&mut burst).unwrap();
            assert!(burst.may_have_more());
        }
    }

    #[test]
    fn what_is_sent_is_reordered_but_all_there() {
        let rates = FaultRates { reordering: 0.2, delay: 0.1, delay_max_ns: 50_000, ..FaultRates::default() };
        let mut driver =
            FaultDriver::new(MemoryDriver::default(), &config(rates, FaultRates::default())).unwrap();
        let bytes = numbered(2_000);
        assert_eq!(driver.send(&packets(&bytes)).unwrap(), 2_000);
        drain(&mut driver, &mut Vec::new());
        let mut numbers = all_numbers(&driver.inner);
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert_eq!(numbers, (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn no_packet_is_passed_by_more_than_the_distance() {
        let rates = FaultRates { reordering: 0.02, ..FaultRates::default() };
        let mut driver =
            FaultDriver::new(MemoryDriver::default(), &config(rates, FaultRates::default())).unwrap();
        let bytes = numbered(5_000);
        assert_eq!(driver.send(&packets(&bytes)).unwrap(), 5_000);
        let numbers = all_numbers(&driver.inner);
        assert!(driver.sent_counts().reordered > 50);
        for (i, &number) in numbers.iter().enumerate() {
            let passed_by = numbers[..i].iter().rev().take(100).filter(|&&earlier| earlier > number).count();
            assert!(passed_by <= REORDER_DISTANCE_MAX as usize, "{number} was passed by {passed_by}");
        }
    }

    #[test]
    fn a_path_without_room_loses_nothing_and_tells_what_it_took() {
        let rates = FaultRates { duplication: 0.1, reordering: 0.1, ..FaultRates::default() };
        let inner = MemoryDriver { room: Some(3), ..MemoryDriver::default() };
        let mut driver = FaultDriver::new(inner, &config(rates, FaultRates::default())).unwrap();
        let bytes = numbered(1_000);
        let all = packets(&bytes);
        let mut taken = 0;
        while taken < all.len() {
            taken += driver.send(&all[taken..]).unwrap();
            driver.inner.room = Some(3);
        }
        driver.inner.room = None;
        drain(&mut driver, &mut Vec::new());
        let mut numbers = all_numbers(&driver.inner);
        assert_eq!(numbers.len() as u64, 1_000 + driver.sent_counts().duplicated);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_received_is_faulty_too_and_a_full_burst_loses_nothing() {
        let rates = FaultRates { duplication: 0.5, reordering: 0.1, ..FaultRates::default() };
        let mut inner = MemoryDriver::default();
        let from = ([127, 0, 0, 1], 7).into();
        // The delay line emits half as many packets again as it accepts, so the burst fills up before all
        // packets have passed.
        let count = 3 * RxBurst::MAX_PACKETS as u32;
        inner.arriving.extend(numbered(count).iter().map(|bytes| (from, bytes.to_vec())));
        let mut driver = FaultDriver::new(inner, &config(FaultRates::default(), rates)).unwrap();
        let mut numbers = Vec::new();
        drain(&mut driver, &mut numbers);
        let counts = driver.received_counts();
        assert_eq!((counts.packets, counts.overflowed), (u64::from(count), 0));
        assert_eq!(numbers.len() as u64, u64::from(count) + counts.duplicated);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_held_comes_in_bursts_no_longer_than_their_cap() {
        let rates = FaultRates { duplication: 1.0, ..FaultRates::default() };
        let mut inner = MemoryDriver::default();
        let from = ([127, 0, 0, 1], 7).into();
        inner.arriving.extend(numbered(9).iter().map(|bytes| (from, bytes.to_vec())));
        let mut driver = FaultDriver::new(inner, &config(FaultRates::default(), rates)).unwrap();
        let mut burst = RxBurst::new();
        burst.set_cap(BatchCap::new(2).unwrap());
        let mut all = Vec::new();
        while all.len() < 18 {
            driver.receive(&mut burst).unwrap();
            assert!(burst.len() <= 2, "{}", burst.len());
            all.extend(burst.iter().map(|(_, packet)| u32::from_le_bytes(packet.try_into().unwrap())));
        }
        assert_eq!(all, (0..18).map(|copy| copy / 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_corrupted_packet_differs_in_one_bit() {
        let rates = FaultRates { corruption: 1.0, ..FaultRates::default() };
        let mut driver =
            FaultDriver::new(MemoryDriver::default(), &config(rates, FaultRates::default())).unwrap();
        let bytes = numbered(200);
        assert_eq!(driver.send(&packets(&bytes)).unwrap(), 200);
        for (number, got) in (0_u32..).zip(all_numbers(&driver.inner)) {
            assert_eq!((number ^ got).count_ones(), 1);
        }
    }

    #[test]
    fn the_directions_do_not_share_their_luck() {
        let rates = FaultRates { loss: 0.5, ..FaultRates::default() };
        let mut driver = FaultDriver::new(MemoryDriver::default(), &config(rates, rates)).unwrap();
        let mut decide = |count: usize| {
            let (send, receive) = (driver.send.as_mut().unwrap(), driver.receive.as_mut().unwrap());
            (0..count).filter(|_| send.decide(9) == receive.decide(9)).count()
        };
        assert!((300..700).contains(&decide(1_000)));
    }
}
