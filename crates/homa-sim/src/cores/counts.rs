//! Counters of a host's cores.

use serde::{Deserialize, Serialize};

/// Counters of the hosts' cores in the measured time, summed over the hosts unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreCounts {
    /// Packets that cores received from the device.
    pub packets: u64,
    /// Batches that cores took from the device.
    pub batches: u64,
    /// Packets that were passed to a core other than the one on which they arrived.
    pub handed_off: u64,
    /// Wake-ups of another core for packets. A wake-up may be for several packets.
    pub core_wakes: u64,
    /// Packets processed on a core that was cold for the protocol.
    pub cold_packets: u64,
    /// Messages that threads received.
    pub messages: u64,
    /// Messages whose thread was cold.
    pub cold_messages: u64,
    /// Messages for which a thread was woken.
    pub thread_wakes: u64,
    /// Wake-ups of threads on a different core than before.
    pub moved_threads: u64,
    /// Number of times a core left packets waiting so that application threads could run.
    pub deferrals: u64,
    /// Packets dropped because the queue of a device or a core was full.
    pub dropped: u64,
    /// Fraction of the time for which the busiest core of any host worked, without polling.
    pub busiest_core: f64,
    /// Fraction of the time for which cores worked, without polling: the mean over all cores.
    pub mean_core: f64,
    /// Fraction of the cores' time for which threads polled.
    pub polling: f64,
}

impl CoreCounts {
    /// Adds the counters of another host to these counters of `hosts` hosts. All hosts have the same number
    /// of cores.
    pub(crate) fn add(&mut self, other: &CoreCounts, hosts: usize) {
        self.packets += other.packets;
        self.batches += other.batches;
        self.handed_off += other.handed_off;
        self.core_wakes += other.core_wakes;
        self.cold_packets += other.cold_packets;
        self.messages += other.messages;
        self.cold_messages += other.cold_messages;
        self.thread_wakes += other.thread_wakes;
        self.moved_threads += other.moved_threads;
        self.deferrals += other.deferrals;
        self.dropped += other.dropped;
        self.busiest_core = self.busiest_core.max(other.busiest_core);
        let before = hosts as f64;
        self.mean_core = (self.mean_core * before + other.mean_core) / (before + 1.0);
        self.polling = (self.polling * before + other.polling) / (before + 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_summed_and_shares_averaged() {
        let host = |packets, busiest_core, mean_core| CoreCounts {
            packets,
            busiest_core,
            mean_core,
            ..CoreCounts::default()
        };
        let mut sum = CoreCounts::default();
        for (hosts, other) in [host(3, 0.5, 0.2), host(4, 0.9, 0.5), host(5, 0.1, 0.2)].iter().enumerate() {
            sum.add(other, hosts);
        }
        assert_eq!((sum.packets, sum.busiest_core), (12, 0.9));
        assert!((sum.mean_core - 0.3).abs() < 1e-9);
    }
}
