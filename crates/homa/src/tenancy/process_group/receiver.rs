//! Processes that share one UDP socket (Linux Homa's UDP encapsulation), and the choice of the process that
//! receives from it.
//!
//! The receiving process hands packets over to the others. It is chosen without messages or locks: of the
//! processes that share the socket, are alive and make progress, it is the one with the lowest slot. Each
//! process applies this rule by itself every tick. While two processes come to different results, either both
//! or neither of them receive. If both do, each packet is handed over by the process that took it. If neither
//! does, packets wait in the socket.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::Slot;
use super::lease_share::LEADER_PATIENCE_NS;
use super::segment::Segment;
use crate::types::limits::MAX_PROCESSES;

/// What a process remembers about the others between two ticks.
#[derive(Debug, Default)]
pub(crate) struct ReceiverWatch {
    /// For each slot, the last beat and the time when it was first seen.
    beats: Vec<(u32, u64)>,
}

impl ReceiverWatch {
    /// Returns whether a process drives its host: its beat is not 0, and has changed recently.
    fn drives(&mut self, slot: usize, beat: u32, now_ns: u64) -> bool {
        self.beats.resize(MAX_PROCESSES, (0, 0));
        if self.beats[slot].0 != beat {
            self.beats[slot] = (beat, now_ns);
        }
        beat != 0 && now_ns.saturating_sub(self.beats[slot].1) <= LEADER_PATIENCE_NS
    }
}

impl Segment {
    /// Records that this process shares the UDP socket `path`, which is not 0. Returns the group's name and
    /// this process's slot.
    pub(crate) fn share_path(&self, path: u64) -> std::io::Result<(String, u32)> {
        use std::os::unix::fs::MetadataExt;
        let meta = self.file.metadata()?;
        self.map.pool.slots[self.slot].path.store(path, Release);
        Ok((format!("{:x}-{:x}", meta.dev(), meta.ino()), self.slot as u32))
    }

    fn shares(&self, slot: &Slot, path: u64) -> bool {
        slot.path.load(Acquire) == path && slot.pid.load(Relaxed) != 0
    }

    /// Returns the bit for the slot of the process that has the port and shares the UDP socket `path`; 0 if
    /// there is none.
    pub(super) fn sharer(&self, port: u16, path: u64) -> u64 {
        let owner = self.owner(port).filter(|&slot| self.shares(&self.map.pool.slots[slot], path));
        owner.map_or(0, |slot| 1 << slot)
    }

    /// Returns one bit for the slot of each process that shares the UDP socket `path`.
    pub(super) fn sharers(&self, path: u64) -> u64 {
        let slots = self.map.pool.slots[..self.slots_used()].iter().enumerate();
        slots.filter(|(_, slot)| self.shares(slot, path)).fold(0, |bits, (slot, _)| bits | 1 << slot)
    }

    /// Returns whether the process with these slots should receive from the UDP socket `path` (HOST-12).
    pub(super) fn receives(&self, slots: u64, path: u64, now_ns: u64, watch: &mut ReceiverWatch) -> bool {
        !(0..slots.trailing_zeros() as usize).any(|slot| {
            let entry = &self.map.pool.slots[slot];
            self.shares(entry, path)
                && watch.drives(slot, entry.beat.load(Relaxed), now_ns)
                && self.is_alive(slot)
        })
    }

    /// Returns whether this process, which uses raw IP, should lead instead of the process at `slot`, which
    /// uses UDP.
    pub(super) fn should_replace(&self, slot: usize) -> bool {
        let path = |slot: usize| self.map.pool.slots[slot].path.load(Relaxed);
        path(self.slot) == 0 && path(slot) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Dir;
    use super::*;
    use crate::tenancy::process_group::LeaseWatch;

    const PATH: u64 = 7;

    /// Simulates a process that shares the socket and drives its host.
    fn sharer(dir: &Dir) -> Segment {
        let segment = dir.open();
        segment.share_path(PATH).unwrap();
        segment.tick(0, &mut LeaseWatch::default());
        segment
    }

    fn receives(segment: &Segment, now_ns: u64, watch: &mut ReceiverWatch) -> bool {
        segment.receives(1 << segment.slot, PATH, now_ns, watch)
    }

    /// HOST-12: exactly one process receives from the socket.
    #[test]
    fn one_process_receives_and_another_when_it_ends() {
        let dir = Dir::new();
        let all = [sharer(&dir), sharer(&dir), sharer(&dir)];
        let mut watches = [(); 3].map(|()| ReceiverWatch::default());
        let mut who = |all: &[Segment]| -> Vec<bool> {
            all.iter().zip(&mut watches).map(|(segment, watch)| receives(segment, 0, watch)).collect()
        };
        assert_eq!(who(&all), [true, false, false]);
        let [first, rest @ ..] = all;
        drop(first);
        assert_eq!(who(&rest), [true, false]);
    }

    /// HOST-12: only a process that makes progress may receive.
    #[test]
    fn a_process_that_stands_still_or_drives_nothing_does_not_receive() {
        let dir = Dir::new();
        let (idle, stopped, last) = (dir.open(), sharer(&dir), sharer(&dir));
        idle.share_path(PATH).unwrap();
        let mut watch = ReceiverWatch::default();
        assert!(receives(&stopped, 0, &mut ReceiverWatch::default()), "the first one has never driven");
        assert!(!receives(&last, 0, &mut watch) && !receives(&last, LEADER_PATIENCE_NS, &mut watch));
        assert!(receives(&last, LEADER_PATIENCE_NS + 1, &mut watch));
        stopped.tick(0, &mut LeaseWatch::default());
        assert!(!receives(&last, LEADER_PATIENCE_NS + 2, &mut watch), "it goes on");
    }

    #[test]
    fn sockets_and_ports_have_their_own_sharers() {
        let dir = Dir::new();
        let (one, other, raw, elsewhere) = (sharer(&dir), sharer(&dir), dir.open(), dir.open());
        elsewhere.share_path(PATH + 1).unwrap();
        let mut watch = ReceiverWatch::default();
        assert!(elsewhere.receives(1 << elsewhere.slot, PATH + 1, 0, &mut watch));
        other.bind(99).unwrap();
        raw.bind(100).unwrap();
        elsewhere.bind(101).unwrap();
        assert_eq!([99, 100, 101, 102].map(|port| one.sharer(port, PATH)), [1 << other.slot, 0, 0, 0]);
        assert_eq!(one.sharers(PATH), 1 << one.slot | 1 << other.slot);
    }

    #[test]
    fn a_process_over_raw_ip_leads_before_one_over_udp() {
        let dir = Dir::new();
        let udp = sharer(&dir);
        assert!(udp.is_leader());
        let raw = dir.open();
        raw.tick(0, &mut LeaseWatch::default());
        assert!(raw.is_leader());
        udp.tick(0, &mut LeaseWatch::default());
        assert!(raw.is_leader());
    }
}
