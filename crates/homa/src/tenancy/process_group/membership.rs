//! A host's membership in the segment: joining, changes under the registry's lock, liveness, leaving.

use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use homa_proto::derive_seed;

use super::cutoffs::{self, Set};
use super::lease_share::LeaseWatch;
use super::map::{self, Head, SegmentMap};
use super::presence::Presence;
use super::registry::{PortClaim, Registry};
use super::segment::{FIRST_CLIENT_PORT, IDS_PER_LEASE, NO_SLOT, Segment};
use super::{layout, lock, place};
use crate::types::segment_error::SegmentError;

/// How long to wait for the registry's lock, which is held for microseconds, before reporting an error.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Labels of the values that are derived from the first process's seed.
const FIRST_COUNT: u64 = 0x5e60;
const ID_SEED: u64 = 0x5e61;

pub(super) const INCARNATIONS: u64 = (1 << 40) - 1;

/// The values that the first process of a host provides.
#[derive(Clone, Debug)]
pub(crate) struct SegmentParameters {
    /// The host's incarnation: 40 bits derived from the wall clock.
    pub(crate) incarnation: u64,
    /// A secret from which RPC IDs are derived.
    pub(crate) seed: u64,
    pub(crate) cutoffs: Set,
    /// Maximum number of bytes granted but not yet received.
    pub(crate) budget: u64,
}

/// Returns the path of the segment's file in `dir` for the network namespace of the calling thread.
pub(crate) fn path_in(dir: &Path) -> Result<PathBuf, SegmentError> {
    place::prepare(dir)?;
    // A thread may be in a different namespace from its process.
    let namespace = Path::new("/proc/thread-self/ns/net");
    let meta = std::fs::metadata(namespace).map_err(|source| SegmentError::System {
        what: "look up the network namespace in",
        path: namespace.to_owned(),
        source,
    })?;
    Ok(dir.join(format!("homa-net-{}", meta.ino())))
}

impl Segment {
    /// Announces to the hosts of this network namespace that this host, at `address`, shares the segment.
    pub(crate) fn announce(&self, address: IpAddr) -> Result<Presence, SegmentError> {
        Presence::announce(address, &self.file, &self.path)
    }

    /// Opens the segment and joins it. Tries again if another host removed the file while this host waited.
    pub(crate) fn open(path: &Path, founding: &SegmentParameters) -> Result<Segment, SegmentError> {
        let system = |what, source| SegmentError::System { what, path: path.to_owned(), source };
        loop {
            let file = map::open(path)?;
            wait_for_registry(&file, path)?;
            let links = file.metadata().map_err(|source| system("look at", source))?.nlink();
            if links == 0 {
                continue; // Another process removed the file while this process waited.
            }
            let alone = !lock::is_held(&file, lock::ANY_SLOT);
            match map::head(&file, path)? {
                Head::Ours => {}
                Head::Other { version, size } if !alone => {
                    return Err(SegmentError::Version {
                        path: path.to_owned(),
                        found: format!("version {version} of {size} bytes"),
                        expected: format!("version {} of {} bytes", layout::VERSION, layout::SIZE),
                    });
                }
                Head::Empty | Head::Other { .. } => map::make(&file, path)?,
            }
            let map = SegmentMap::new(&file, path)?;
            let mut segment =
                Segment { map, file, path: path.to_owned(), threads: Mutex::new(()), slot: NO_SLOT };
            segment.map.header.holder.store(std::process::id(), Relaxed);
            if alone {
                segment.found(founding);
            }
            let slot = {
                let registry = Registry { segment: &segment, _threads: lock_threads(&segment.threads) };
                registry.claim_slot(std::process::id())?
            };
            segment.slot = slot;
            return Ok(segment);
        }
    }

    /// Initialises the segment for a new host. If the process dies halfway, the segment stays uninitialised,
    /// with no process in it.
    fn found(&self, founding: &SegmentParameters) {
        let map = &*self.map;
        let made = map.header.made.load(Acquire) == 1;
        map.header.made.store(0, Relaxed);
        for slot in &map.pool.slots {
            slot.pid.store(0, Relaxed);
            slot.lease.store(0, Relaxed);
            slot.wants.store(0, Relaxed);
            slot.waiting.store(0, Relaxed);
        }
        for port in &map.ports {
            port.store(0, Relaxed);
        }
        for bytes in &map.pool.observed {
            bytes.store(0, Relaxed);
        }
        map.registry.slots_used.store(0, Relaxed);
        map.registry.leader.store(0, Relaxed);
        map.registry.found_dead.store(0, Relaxed);
        map.pool.uplink_idle_at.0.store(0, Relaxed);
        map.registry.budget.store(founding.budget.max(1), Relaxed);
        map.registry.next_client_port.store(u32::from(FIRST_CLIENT_PORT), Relaxed);
        // HOST-3: IDs continue where those of the previous host that used this file ended, since its packets
        // may still be in flight.
        if !made {
            map.next_id.0.store(derive_seed(founding.seed, FIRST_COUNT) & !(2 * IDS_PER_LEASE - 1), Relaxed);
            map.registry.id_seed.store(derive_seed(founding.seed, ID_SEED).max(1), Relaxed);
        }
        // HOST-2: higher than the last incarnation, even if the clock was set back.
        let incarnation = founding.incarnation & INCARNATIONS;
        let last = map.registry.incarnation.load(Relaxed) & INCARNATIONS;
        let ahead = incarnation.wrapping_sub(last) & INCARNATIONS;
        let newer = !made || ahead != 0 && ahead <= INCARNATIONS / 2;
        let incarnation = if newer { incarnation } else { last.wrapping_add(1) & INCARNATIONS };
        map.registry.incarnation.store(incarnation.max(1), Relaxed);
        cutoffs::publish(&map.pool, founding.cutoffs);
        map.registry.generation.fetch_add(1, Relaxed);
        self.map.write_head();
        map.header.made.store(1, Release);
    }

    /// Returns the seed from which all processes derive the IDs that they use with each peer (ID-4).
    pub(crate) fn id_seed(&self) -> u64 {
        self.map.registry.id_seed.load(Relaxed)
    }

    /// Waits for exclusive access to the registry.
    pub(super) fn registry(&self) -> Result<Registry<'_>, SegmentError> {
        let threads = lock_threads(&self.threads);
        wait_for_registry(&self.file, &self.path)?;
        self.map.header.holder.store(std::process::id(), Relaxed);
        Ok(Registry { segment: self, _threads: threads })
    }

    /// Returns exclusive access to the registry, if it is available at once.
    fn try_registry(&self) -> Option<Registry<'_>> {
        let threads = self.threads.try_lock().ok()?;
        if !lock::try_lock(&self.file, lock::REGISTRY).ok()? {
            return None;
        }
        self.map.header.holder.store(std::process::id(), Relaxed);
        Some(Registry { segment: self, _threads: threads })
    }
}

/// Ports and cutoffs.
impl Segment {
    /// Acquires a server port.
    pub(crate) fn bind(&self, port: u16) -> Result<PortClaim, SegmentError> {
        self.registry()?.bind(port)
    }

    /// Acquires any client port.
    pub(crate) fn open_client(&self) -> Result<u16, SegmentError> {
        self.registry()?.open_client()
    }

    /// Releases ports of this process; `false` if that must be retried later because another process holds
    /// the lock.
    pub(crate) fn try_release(&self, ports: &[u16]) -> bool {
        let registry = self.try_registry();
        for &port in ports {
            let Some(registry) = &registry else { return false };
            registry.release(port);
        }
        true
    }

    /// Publishes the leader's new cutoffs; returns whether it did so.
    pub(crate) fn publish_cutoffs(&self, set: Set) -> bool {
        self.try_registry().is_some_and(|registry| registry.publish_cutoffs(set))
    }
}

/// Liveness.
impl Segment {
    /// Must be called every few tens of milliseconds while this process drives its host. Shows that this
    /// process is alive, and checks whether the others are. Returns whether ports, processes or the leader
    /// have changed since the last call.
    pub(crate) fn tick(&self, now_ns: u64, watch: &mut LeaseWatch) -> bool {
        self.map.pool.slots[self.slot].beat.fetch_add(1, Relaxed);
        if self.is_leader() {
            let dead = |slot: usize| self.map.pool.slots[slot].pid.load(Relaxed) != 0 && !self.is_alive(slot);
            if (0..self.slots_used()).any(dead)
                && let Some(registry) = self.try_registry()
            {
                registry.free_dead();
            }
        } else {
            let stands_still = watch.stalled_leader(&self.map.pool, self.leader(), now_ns);
            let leads = self.leader();
            let gone = |slot| !self.is_alive(slot) || self.should_replace(slot);
            if (leads.is_none() || leads == stands_still || leads.is_some_and(gone))
                && let Some(registry) = self.try_registry()
            {
                registry.free_dead();
                registry.lead(stands_still);
            }
        }
        let generation = self.table().generation();
        watch.generation.replace(generation) != Some(generation)
    }

    /// Removes the file if no other host uses it. A process that opens the file and waits for its lock
    /// notices the removal. The file is kept if the next host's incarnation, which comes from the clock,
    /// might not be newer (HOST-2).
    fn remove_file_of_nobody(&self) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead = (since_1970.as_millis() as u64).wrapping_sub(self.incarnation()) & INCARNATIONS;
        let is_newer = ahead != 0 && ahead <= INCARNATIONS / 2;
        if is_newer && !lock::is_held(&self.file, lock::ANY_SLOT) && self.is_the_file_at_its_path() {
            // The file may have been removed, or this process may no longer be allowed to write to its
            // directory.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn is_the_file_at_its_path(&self) -> bool {
        let here = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let (own, at_path) = (self.file.metadata(), std::fs::symlink_metadata(&self.path));
        matches!((own.map(here), at_path.map(here)), (Ok(own), Ok(at_path)) if own == at_path)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.slot == NO_SLOT {
            return;
        }
        // If the registry's lock is not available, the others find this slot unlocked, as after the death of
        // its process.
        if let Ok(registry) = self.registry() {
            registry.leave();
            self.remove_file_of_nobody();
        }
        // Closing the file would not free the slot while a child process shares the file, as every child does
        // between fork and exec.
        lock::unlock(&self.file, lock::slot(self.slot));
    }
}

fn lock_threads(threads: &Mutex<()>) -> MutexGuard<'_, ()> {
    // The lock guards no data, so another thread's panic does no harm.
    threads.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_for_registry(file: &File, path: &Path) -> Result<(), SegmentError> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(20);
    loop {
        let taken = lock::try_lock(file, lock::REGISTRY);
        let failed = |source| SegmentError::System { what: "lock", path: path.to_owned(), source };
        if taken.map_err(failed)? {
            return Ok(());
        }
        if start.elapsed() > LOCK_PATIENCE {
            let pid = map::holder(file);
            return Err(SegmentError::LockHeld { path: path.to_owned(), pid, waited: LOCK_PATIENCE });
        }
        // Poll instead of sleeping in the kernel's queue, where this thread could not report that the holder
        // is stopped.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}
