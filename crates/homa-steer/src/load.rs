//! The state of cores, as far as policies can observe it.

use crate::cores::{CORE_NUMBERS, Core};

/// The recent load of a core. Times are from the clock of [`crate::Packet::now_ns`]; 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreLoad {
    /// When the core last took packets from a device (NAPI).
    pub received_ns: u64,
    /// When the core was last given packets to process.
    pub processed_ns: u64,
    /// When an application thread last ran on the core.
    pub application_ns: u64,
    /// Whether nothing runs or waits to run on the core.
    pub idle: bool,
    /// Number of packets waiting on the core to be processed.
    pub waiting_packets: u32,
    /// Number of packets processed on the core so far.
    pub done_packets: u64,
    /// Total processing time of all waiting work, in nanoseconds.
    pub backlog_ns: u64,
}

impl Default for CoreLoad {
    /// Returns the load of a core that has not been active yet.
    fn default() -> CoreLoad {
        CoreLoad {
            received_ns: 0,
            processed_ns: 0,
            application_ns: 0,
            idle: true,
            waiting_packets: 0,
            done_packets: 0,
            backlog_ns: 0,
        }
    }
}

impl CoreLoad {
    /// Returns the time when the core was last known to be active; 0 means never.
    #[must_use]
    pub fn active_ns(&self) -> u64 {
        self.received_ns.max(self.processed_ns).max(self.application_ns)
    }
}

/// Returns whether `last_ns` is less than `within_ns` ago. A time in the future, possibly from another core's
/// clock, is not recent.
#[must_use]
pub fn is_recent(now_ns: u64, last_ns: u64, within_ns: u64) -> bool {
    last_ns != 0 && now_ns.checked_sub(last_ns).is_some_and(|ago_ns| ago_ns < within_ns)
}

/// The loads of all cores, indexed by core number. Cores beyond the slice have no load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loads<'a>(pub &'a [CoreLoad]);

impl Loads<'_> {
    /// Returns the load of this core.
    #[must_use]
    pub fn of(&self, core: Core) -> CoreLoad {
        self.0.get(usize::from(core)).copied().unwrap_or_default()
    }
}

/// Loads that can be observed without the scheduler. A program in a device's receive path knows only where
/// packets arrived and where they were sent. A process also knows where its threads ran.
#[derive(Clone, Debug)]
pub struct ObservedLoads {
    cores: Vec<CoreLoad>,
}

impl Default for ObservedLoads {
    fn default() -> ObservedLoads {
        ObservedLoads { cores: vec![CoreLoad::default(); CORE_NUMBERS] }
    }
}

impl ObservedLoads {
    /// Records that a packet has arrived on this core. Cores beyond the maximum are not observed.
    pub fn note_arrival(&mut self, core: Core, now_ns: u64) {
        if let Some(load) = self.cores.get_mut(usize::from(core)) {
            load.received_ns = now_ns;
        }
    }

    /// Records that this core was given a packet to process.
    pub fn note_assignment(&mut self, core: Core, now_ns: u64) {
        if let Some(load) = self.cores.get_mut(usize::from(core)) {
            load.processed_ns = now_ns;
        }
    }

    /// Records that an application thread ran on this core.
    pub fn note_run(&mut self, core: Core, now_ns: u64) {
        if let Some(load) = self.cores.get_mut(usize::from(core)) {
            load.application_ns = now_ns;
        }
    }

    /// Returns the loads observed so far.
    #[must_use]
    pub fn loads(&self) -> Loads<'_> {
        Loads(&self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_is_what_was_less_than_so_long_ago_and_neither_never_nor_ahead() {
        assert!(is_recent(100, 100, 10) && is_recent(109, 100, 10));
        assert!(!is_recent(110, 100, 10));
        assert!(!is_recent(5, 0, 10), "never");
        assert!(!is_recent(99, 100, 10), "ahead");
    }

    #[test]
    fn packets_tell_where_they_arrived_and_where_they_went() {
        let mut observed = ObservedLoads::default();
        observed.note_arrival(1, 10);
        observed.note_assignment(2, 11);
        let loads = observed.loads();
        assert_eq!((loads.of(1).received_ns, loads.of(1).processed_ns), (10, 0));
        assert_eq!((loads.of(2).received_ns, loads.of(2).processed_ns), (0, 11));
        assert_eq!(loads.of(2).active_ns(), 11);
        observed.note_run(2, 12);
        assert_eq!(observed.loads().of(2).active_ns(), 12);
        observed.note_arrival(u16::MAX, 1);
        observed.note_assignment(u16::MAX, 1);
        assert_eq!(observed.loads().of(u16::MAX), CoreLoad::default());
    }
}
