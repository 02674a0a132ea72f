//! The size of the rack for a machine: a number of hosts and a link rate at which the network is the
//! bottleneck, not the processors.

use crate::experiment::testbed::Machine;

/// Number of hosts and link rate of a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of hosts.
    pub hosts: u16,
    /// Rate of each link in each direction, in Mbit/s.
    pub rate_mbps: u32,
}

/// Rates to choose from, in Mbit/s. The switch can pace all of them, and in the common range, steps are at
/// most a third.
const RATES_MBPS: [u32; 19] =
    [10, 15, 20, 30, 40, 50, 60, 75, 100, 125, 150, 200, 250, 300, 400, 500, 600, 800, 1_000];

/// Sum of link rates, in Mbit/s, that one processor can handle with capacity to spare. 4 hosts at 75 Mbit/s,
/// with W3 at 70 % load over Homa, keep 1.1 of 2 processors busy.
const LINKS_MBPS_PER_PROCESSOR: u32 = 150;

/// Number of hosts if there are enough processors. With more senders, ports are congested as in a larger
/// network.
const MANY_HOSTS: u16 = 8;

/// Number of hosts otherwise.
const FEW_HOSTS: u16 = 4;

/// Maximum share of busy processors. Above it, waiting times for processors grow and dominate the tail.
const MAX_BUSY: f64 = 0.65;

/// Target share of busy processors for the next rack if a rack exceeded the maximum.
const AIM_BUSY: f64 = 0.5;

/// Maximum mean wait for a processor, as a multiple of the transmission time of a full packet.
const MAX_WAIT_PACKETS: f64 = 0.5;

/// Target mean wait for the next rack if a rack exceeded the maximum.
const AIM_WAIT_PACKETS: f64 = 0.3;

/// Minimum factor between the link rates of a rack and the next one, before rounding down. The mean wait in a
/// short trial can be that of a single stall: with 1.1 of 2 processors busy, a trial on links of 75 Mbit/s
/// showed 326 us instead of the usual 20 to 60, and without a minimum the next rack had 10 Mbit/s.
const MIN_FACTOR: f64 = 0.5;

impl Size {
    /// Returns the first guess for this number of processors.
    pub fn of_processors(processors: usize) -> Size {
        let processors = u32::try_from(processors).unwrap_or(u32::MAX).max(1);
        let hosts = if processors > u32::from(MANY_HOSTS) { MANY_HOSTS } else { FEW_HOSTS };
        let rate = processors.saturating_mul(LINKS_MBPS_PER_PROCESSOR) / u32::from(hosts);
        Size { hosts, rate_mbps: at_most(f64::from(rate)) }
    }

    /// Returns the next rack to try after a load on this one, or `None` if this one is small enough or is the
    /// smallest. `packet_us` is the transmission time of a full packet.
    pub fn smaller(self, machine: &Machine, packet_us: f64) -> Option<Size> {
        let busy = (machine.hosts_busy + machine.switch_busy) / machine.cpus.max(1) as f64;
        let wait = machine.hosts_waited_us.max(machine.switch_waited_us) / packet_us;
        let mut factor = 1.0f64;
        if busy > MAX_BUSY {
            factor = factor.min(AIM_BUSY / busy);
        }
        if wait > MAX_WAIT_PACKETS {
            // The wait is assumed to remain the same when packets take longer.
            factor = factor.min(AIM_WAIT_PACKETS / wait);
        }
        if factor == 1.0 {
            return None;
        }
        let rate_mbps = at_most(f64::from(self.rate_mbps) * factor.max(MIN_FACTOR));
        if rate_mbps < self.rate_mbps {
            return Some(Size { rate_mbps, ..self });
        }
        (self.hosts > 2).then(|| Size { hosts: self.hosts - 1, ..self })
    }
}

/// Returns the highest available rate up to `mbps`, or the lowest available rate if all are higher.
fn at_most(mbps: f64) -> u32 {
    let fitting = RATES_MBPS.into_iter().rev().find(|&rate| f64::from(rate) <= mbps);
    fitting.unwrap_or(RATES_MBPS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(busy: f64, waited_us: f64) -> Machine {
        Machine {
            cpus: 2,
            hosts_busy: busy * 0.7,
            switch_busy: busy * 0.3,
            hosts_waited_us: waited_us,
            ..Machine::default()
        }
    }

    #[test]
    fn more_processors_carry_faster_links_and_many_carry_more_hosts() {
        let sizes = [1, 2, 4, 16, 64, 1_000].map(Size::of_processors);
        let expected = [(4, 30), (4, 75), (4, 150), (8, 300), (8, 1_000), (8, 1_000)];
        assert_eq!(sizes, expected.map(|(hosts, rate_mbps)| Size { hosts, rate_mbps }));
    }

    #[test]
    fn a_rack_that_leaves_room_stays_as_it_is() {
        let size = Size { hosts: 4, rate_mbps: 75 };
        assert_eq!(size.smaller(&machine(1.2, 60.0), 164.0), None);
    }

    #[test]
    fn busy_processors_and_long_waits_each_make_a_rack_slower() {
        let size = Size { hosts: 4, rate_mbps: 75 };
        assert_eq!(size.smaller(&machine(1.9, 60.0), 164.0), Some(Size { hosts: 4, rate_mbps: 30 }));
        assert_eq!(size.smaller(&machine(1.2, 100.0), 164.0), Some(Size { hosts: 4, rate_mbps: 30 }));
    }

    #[test]
    fn a_single_stall_in_a_trial_does_not_lead_to_the_slowest_links() {
        let size = Size { hosts: 4, rate_mbps: 75 };
        for waited_us in [164.0, 326.0, 9_000.0] {
            assert_eq!(size.smaller(&machine(1.1, waited_us), 164.0), Some(Size { hosts: 4, rate_mbps: 30 }));
        }
    }

    #[test]
    fn the_slowest_links_lose_hosts_and_a_pair_is_the_end() {
        let size = Size { hosts: 4, rate_mbps: 10 };
        assert_eq!(size.smaller(&machine(2.0, 9_000.0), 1_230.0), Some(Size { hosts: 3, rate_mbps: 10 }));
        assert_eq!(Size { hosts: 2, rate_mbps: 10 }.smaller(&machine(2.0, 9_000.0), 1_230.0), None);
    }
}
