//! What a policy sees of the cores.

use crate::cores::{CORE_NUMBERS, Core};

/// The recent load of a core. Times are of the clock of [`crate::Packet::now_ns`], and 0 is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreLoad {
    /// When it last took packets from a device (NAPI).
    pub received_ns: u64,
    /// When packets were last given to it to be processed.
    pub processed_ns: u64,
    /// When an application's thread last ran there.
    pub application_ns: u64,
    /// Whether nothing at all runs there or waits to.
    pub idle: bool,
    /// Packets that wait there to be processed.
    pub waiting_packets: u32,
    /// Packets processed there since the beginning.
    pub done_packets: u64,
    /// Time that everything takes that waits there, in nanoseconds.
    pub backlog_ns: u64,
}

impl Default for CoreLoad {
    /// A core on which nothing has happened yet.
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
    /// When it last did anything that is known of; 0: never.
    #[must_use]
    pub fn active_ns(&self) -> u64 {
        self.received_ns.max(self.processed_ns).max(self.application_ns)
    }
}

/// Whether something last happened at a time that is less than `within_ns` ago. What lies ahead, as another core's clock may have
/// it, is not.
#[must_use]
pub fn is_recent(now_ns: u64, last_ns: u64, within_ns: u64) -> bool {
    last_ns != 0 && now_ns.checked_sub(last_ns).is_some_and(|ago_ns| ago_ns < within_ns)
}

/// The loads of all cores, by their numbers. A core beyond them has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loads<'a>(pub &'a [CoreLoad]);

impl Loads<'_> {
    /// The load of this core.
    #[must_use]
    pub fn of(&self, core: Core) -> CoreLoad {
        self.0.get(usize::from(core)).copied().unwrap_or_default()
    }
}

/// Loads as far as one sees them without asking the scheduler: where packets arrived and where they were sent, which is all that a
/// program in a device's receive path knows, and in a process also where its threads ran.
#[derive(Clone, Debug)]
pub struct Observed {
    cores: Vec<CoreLoad>,
}

impl Default for Observed {
    fn default() -> Observed {
        Observed { cores: vec![CoreLoad::default(); CORE_NUMBERS] }
    }
}

impl Observed {
    /// A packet has arrived on this core. Cores out of reach are not observed.
    pub fn arrived(&mut self, core: Core, now_ns: u64) {
        if let Some(load) = self.cores.get_mut(usize::from(core)) {
            load.received_ns = now_ns;
        }
    }

    /// A packet was given to this core to be processed.
    pub fn given(&mut self, core: Core, now_ns: u64) {
        if let Some(load) = self.cores.get_mut(usize::from(core)) {
            load.processed_ns = now_ns;
        }
    }

    /// A thread of an application ran on this core.
    pub fn ran(&mut self, core: Core, now_ns: u64) {
        if let Some(load) = self.cores.get_mut(usize::from(core)) {
            load.application_ns = now_ns;
        }
    }

    /// What is known now.
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
        let mut observed = Observed::default();
        observed.arrived(1, 10);
        observed.given(2, 11);
        let loads = observed.loads();
        assert_eq!((loads.of(1).received_ns, loads.of(1).processed_ns), (10, 0));
        assert_eq!((loads.of(2).received_ns, loads.of(2).processed_ns), (0, 11));
        assert_eq!(loads.of(2).active_ns(), 11);
        observed.ran(2, 12);
        assert_eq!(observed.loads().of(2).active_ns(), 12);
        observed.arrived(u16::MAX, 1);
        observed.given(u16::MAX, 1);
        assert_eq!(observed.loads().of(u16::MAX), CoreLoad::default());
    }
}
