//! The segment that the processes at one host address share: memory in a file, one for each network
//! namespace.
//!
//! Over raw IP a host is an address, not an address and a port as over UDP. So all processes of a network
//! namespace are one host to their peers. Their ports, RPC ids, incarnation, cutoffs, grant budget and uplink
//! are therefore shared as well.
//!
//! Each host (mostly one for each process) has a slot, and counts as alive while it holds a lock on the byte
//! of that slot. The kernel releases the lock on any death. There is no service to start and none to restart:
//! any process that finds a slot without its lock frees the slot's resources. Rare changes are made under a
//! lock of the same kind ([`registry`]). Frequent changes are lock-free; each module gives its argument:
//! [`lease`], [`cutoffs`], [`uplink`].
//!
//! One of the processes is the leader. It answers for the ports that no process has, so that peers get one
//! answer and not one from each. It also looks for dead processes, and computes the cutoffs from the traffic
//! of all. The leader's slot is stored in the segment: a leader that dies or makes no progress is replaced by
//! the first process that notices.
//!
//! # Several processes, one host
//!
//! Over raw IP the processes of a network namespace are one host to their peers (PROTOCOL.md, HOST). The
//! host-wide resources are in a segment of memory (`homa/tenancy/process_group`): a file in
//! `HostConfig::segment_dir`, named after the namespace, that every host maps. `homa/tenancy/processes` and
//! `homa/tenancy/host_lease` are the engine's use of it. Over UDP there is none: each host has a UDP port,
//! and so an address, of its own.
//!
//! - **No daemon.** One that assigns ports and ids would have to be started first and end last. Here the
//!   first host makes the segment, and any host that notices a death cleans up.
//! - **A lock shows that a host lives.** Each host has a slot and locks one byte of the file; the kernel
//!   drops the lock on any death. The locks belong to the open file (F_OFD_SETLK). Process ids are reused and
//!   differ between pid namespaces; robust mutexes report a death only to waiters; classic record locks end
//!   when any descriptor of the file is closed. A child forked without exec keeps its parent's slot alive.
//! - **Nothing is stored twice.** The owner of a port is stored at the port, a lease at its slot; sums are
//!   computed when needed. Each change of the registry is one store under a lock of the same kind, so that a
//!   death leaves the state before or after it.
//! - **No drive round waits for the lock.** Ticks try the lock and come again. Only opening a port waits for
//!   it, before it takes the host's own lock, and names the owner if that takes long.
//! - **Frequent changes take no lock.** Ids are leased by one addition. Grant budget is leased by announcing
//!   the intended lease and then counting (`lease` has the argument, and its tests run every order of two
//!   processes). Cutoffs are in two banks (`cutoffs`).
//! - **The uplink is one moment** (`uplink`), when it will have sent everything that all processes gave it,
//!   and not a count of bytes. Bytes that another process sent a second ago are gone, and a count does not
//!   say when they were sent. Nothing needs repair after a death.
//! - **Priority on the uplink is published, not requested.** An endpoint that the pacer holds back publishes
//!   the remaining bytes of its shortest message, and the time. An endpoint that has only longer messages
//!   lets the uplink's backlog run out before it sends. So the shortest message of the host goes first if its
//!   endpoint uses the uplink while that still has something to send. The others wait no longer than that for
//!   an endpoint that is dead, asleep or busy. Such an endpoint costs the uplink nothing, and its entry is
//!   ignored after a millisecond. To wait longer was rejected: the uplink would idle for an endpoint that may
//!   not come. An endpoint that is passed over counts what the others send towards the share of its oldest
//!   message.
//! - **One process leads**, by a slot number in the segment: it answers for ports that no process has
//!   (HOST-8) and computes the cutoffs. The others leave it the histogram of their observations. If each
//!   computed its own, processes with different traffic would take turns in changing the cutoffs of all. A
//!   leader that dies or makes no progress for a quarter of a second is replaced by the process that notices.
//!   A host that drives nothing, such as one without ports, never leads.
//! - **The segment classifies packets**, one by one as they are taken, and not the filter of the socket,
//!   which lags behind. Packets that the socket received before it had a filter are dropped: another process
//!   has answered them.
//! - **The first process sets the budget.** The `max_incoming` of later processes bounds nothing; their
//!   windows follow their own settings.
//!
//! Processes that share a host run as one user, since any process that can write to the segment can stop all
//! of them. They name the same directory, and should bind the same address: ports that no process has are
//! answered only where the leader listens. No other user can write to the directory (`process_group/place`).
//! The last process removes the file. Ids need no memory of it, since each host begins at random. Times in
//! the segment are of the monotonic clock: processes in different time namespaces would pace badly.
//!
//! Containers may have one network namespace and separate file systems, and so separate segments at one
//! address. Each host therefore listens at a name in the abstract name space, which belongs to the network
//! namespace. It refuses to begin if another host has its address and another segment
//! (`process_group/presence`). Only names of its own user and of root count, since anybody can take one. The
//! segment itself was not passed over such a socket: a process would have to serve it there for as long as
//! any process lives.

mod cutoffs;
mod error;
mod family;
mod layout;
mod lease;
mod lock;
mod map;
mod part;
mod place;
mod ports;
mod presence;
mod registry;
pub(crate) mod siblings;
#[cfg(test)]
pub(crate) mod tests;
mod turns;
mod uplink;

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use homa_proto::derive_seed;
use homa_proto::wire::PRIORITIES;

pub(crate) use cutoffs::Set as CutoffSet;
pub use error::SegmentError;
pub(crate) use family::EndpointSlots;
pub use layout::MAX_PROCESSES;
use layout::ORPHAN;
use map::{Head, SegmentMap};
pub(crate) use part::{LeaseShare, LeaseWatch};
pub(crate) use place::default_dir;
use ports::Ports;
pub(crate) use presence::Presence;
pub(crate) use registry::PortClaim;
use registry::Registry;

/// More bytes than any host grants: a larger value in a damaged file would overflow sums.
const MAX_BUDGET: u64 = 1 << 40;

/// Stands for the slot of a host that has none yet.
const NO_SLOT: usize = usize::MAX;

/// Client ports begin here (ID-6).
pub(crate) const FIRST_CLIENT_PORT: u16 = 0x8000;

/// RPC ids leased at a time: whole blocks of the peers' tables of finished ids, and enough that leasing costs
/// nothing.
pub(crate) const IDS_PER_LEASE: u64 = 1 << 12;

/// How long to wait for the registry's lock, which is held for microseconds, before reporting an error.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Labels of the values derived from the seed of the first process.
const FIRST_COUNT: u64 = 0x5e60;
const ID_SEED: u64 = 0x5e61;

/// The values that the first process of a host provides.
#[derive(Clone, Debug)]
pub(crate) struct SegmentParameters {
    /// 40 bits, from the wall clock.
    pub(crate) incarnation: u64,
    /// A secret, from which RPC ids are made.
    pub(crate) seed: u64,
    pub(crate) cutoffs: CutoffSet,
    /// Maximum bytes granted and not received.
    pub(crate) budget: u64,
}

/// This host's part in the segment.
#[derive(Debug)]
pub(crate) struct Segment {
    // The mapping is dropped before the file, whose closing frees the slot for others.
    map: SegmentMap,
    file: File,
    path: PathBuf,
    threads: Mutex<()>,
    slot: usize,
}

/// The owner of a packet, by its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketOwner {
    /// This process has the port.
    Own,
    /// No process has the port, and this process answers for it. `orphan`: its last owner ended without
    /// releasing it.
    Nobodys { orphan: bool },
    /// Another process has the port, or answers for it.
    Foreign,
}

/// The segment's file in `dir` for the network namespace of the calling thread.
pub(crate) fn path_in(dir: &Path) -> Result<PathBuf, SegmentError> {
    place::prepare(dir)?;
    // A thread may be in another namespace than its process.
    let namespace = Path::new("/proc/thread-self/ns/net");
    let meta = std::fs::metadata(namespace).map_err(|source| SegmentError::System {
        what: "look up the network namespace in",
        path: namespace.to_owned(),
        source,
    })?;
    Ok(dir.join(format!("homa-net-{}", meta.ino())))
}

impl Segment {
    /// Announces to the hosts of this network namespace that this one, at `address`, shares the segment.
    pub(crate) fn announce(&self, address: IpAddr) -> Result<Presence, SegmentError> {
        Presence::announce(address, &self.file, &self.path)
    }

    /// Takes a slot in the segment in file `path`, which is initialised again if no process uses it.
    pub(crate) fn open(path: &Path, founding: &SegmentParameters) -> Result<Segment, SegmentError> {
        let system = |what, source| SegmentError::System { what, path: path.to_owned(), source };
        loop {
            let file = map::open(path)?;
            wait_for_registry(&file, path)?;
            let links = file.metadata().map_err(|source| system("look at", source))?.nlink();
            if links == 0 {
                continue; // Somebody removed it while we waited.
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
            segment.map.holder.store(std::process::id(), Relaxed);
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

    /// Initialises the segment for a new host. A death on the way leaves it uninitialised, with no process in
    /// it.
    fn found(&self, founding: &SegmentParameters) {
        let map = &*self.map;
        let made = map.made.load(Acquire) == 1;
        map.made.store(0, Relaxed);
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
        map.slots_used.store(0, Relaxed);
        map.leader.store(0, Relaxed);
        map.found_dead.store(0, Relaxed);
        map.pool.uplink_idle_at.0.store(0, Relaxed);
        map.budget.store(founding.budget.max(1), Relaxed);
        map.next_client_port.store(u32::from(FIRST_CLIENT_PORT), Relaxed);
        // HOST-3: ids continue where the last host of this file ended, whose packets may still be in flight.
        if !made {
            map.next_id.0.store(derive_seed(founding.seed, FIRST_COUNT) & !(2 * IDS_PER_LEASE - 1), Relaxed);
            map.id_seed.store(derive_seed(founding.seed, ID_SEED).max(1), Relaxed);
        }
        // HOST-2: newer than the last, even if the clock went back.
        let incarnation = founding.incarnation & INCARNATIONS;
        let last = map.incarnation.load(Relaxed) & INCARNATIONS;
        let ahead = incarnation.wrapping_sub(last) & INCARNATIONS;
        let newer = !made || ahead != 0 && ahead <= INCARNATIONS / 2;
        let incarnation = if newer { incarnation } else { last.wrapping_add(1) & INCARNATIONS };
        map.incarnation.store(incarnation.max(1), Relaxed);
        cutoffs::publish(&map.pool, founding.cutoffs);
        map.generation.fetch_add(1, Relaxed);
        self.map.write_head();
        map.made.store(1, Release);
    }

    fn system(&self, what: &'static str, source: io::Error) -> SegmentError {
        SegmentError::System { what, path: self.path.clone(), source }
    }

    /// Waits for the right to change the segment.
    fn registry(&self) -> Result<Registry<'_>, SegmentError> {
        let threads = lock_threads(&self.threads);
        wait_for_registry(&self.file, &self.path)?;
        self.map.holder.store(std::process::id(), Relaxed);
        Ok(Registry { segment: self, _threads: threads })
    }

    /// The right to change the segment, if it is available at once.
    fn try_registry(&self) -> Option<Registry<'_>> {
        let threads = self.threads.try_lock().ok()?;
        if !lock::try_lock(&self.file, lock::REGISTRY).ok()? {
            return None;
        }
        self.map.holder.store(std::process::id(), Relaxed);
        Some(Registry { segment: self, _threads: threads })
    }

    fn is_alive(&self, slot: usize) -> bool {
        slot == self.slot || lock::is_held(&self.file, lock::slot(slot))
    }

    fn leader(&self) -> Option<usize> {
        (self.map.leader.load(Acquire) as usize).checked_sub(1).filter(|slot| *slot < MAX_PROCESSES)
    }

    fn slots_used(&self) -> usize {
        // Whatever the file contains, this process has its slot.
        let own = if self.slot == NO_SLOT { 0 } else { self.slot + 1 };
        (self.map.slots_used.load(Acquire) as usize).clamp(own, MAX_PROCESSES)
    }

    fn table(&self) -> Ports<'_> {
        let map = &*self.map;
        let (servers, clients) = map.ports.split_at(FIRST_CLIENT_PORT.into());
        Ports { servers, clients, orphanings: &map.orphanings, generation: &map.generation }
    }

    fn owner(&self, port: u16) -> Option<usize> {
        self.table().owner(port)
    }

    /// Increases when a process ends that had server ports, before their orphan marks become visible.
    pub(crate) fn orphanings(&self) -> u64 {
        self.table().orphanings()
    }

    /// Whether the last owner of a free server port ended without releasing it.
    pub(crate) fn is_orphan(&self, port: u16) -> bool {
        self.table().mark(port) == ORPHAN
    }
}

/// Whether the bit of a slot is set. (In a damaged file, a port's mark may be no slot's number.)
fn has_slot(slots: u64, slot: usize) -> bool {
    slot < MAX_PROCESSES && slots & 1 << slot != 0
}

const INCARNATIONS: u64 = (1 << 40) - 1;

fn lock_threads(threads: &Mutex<()>) -> MutexGuard<'_, ()> {
    // The lock guards no data, so a panic of another thread does no harm.
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
        // Polls instead of sleeping in the kernel's queue, where a stopped holder could not be reported.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}

/// Ports.
impl Segment {
    /// Takes a server port.
    pub(crate) fn bind(&self, port: u16) -> Result<PortClaim, SegmentError> {
        self.registry()?.bind(port)
    }

    /// Takes any client port.
    pub(crate) fn open_client(&self) -> Result<u16, SegmentError> {
        self.registry()?.open_client()
    }

    /// Releases ports of this process; `false` if that must be retried later, because another process holds
    /// the lock.
    pub(crate) fn try_release(&self, ports: &[u16]) -> bool {
        let registry = self.try_registry();
        for &port in ports {
            let Some(registry) = &registry else { return false };
            registry.release(port);
        }
        true
    }

    /// The owner of packets to this port (HOST-7, HOST-8).
    #[cfg(test)]
    pub(crate) fn business(&self, port: u16) -> PacketOwner {
        self.business_of(port, 1 << self.slot)
    }

    /// The same for the owners of the slots whose bits are set.
    fn business_of(&self, port: u16, slots: u64) -> PacketOwner {
        match self.table().mark(port) {
            0 if self.is_led_by(slots) => PacketOwner::Nobodys { orphan: false },
            ORPHAN if self.is_led_by(slots) => PacketOwner::Nobodys { orphan: true },
            0 | ORPHAN => PacketOwner::Foreign,
            owner if has_slot(slots, usize::from(owner) - 1) => PacketOwner::Own,
            _ => PacketOwner::Foreign,
        }
    }

    fn is_led_by(&self, slots: u64) -> bool {
        self.leader().is_some_and(|leader| has_slot(slots, leader))
    }

    /// The ports of this process, and those of the others, in ascending order.
    #[cfg(test)]
    pub(crate) fn ports(&self) -> (Vec<u16>, Vec<u16>) {
        self.ports_of(1 << self.slot)
    }

    /// The same for the owners of the slots whose bits are set.
    fn ports_of(&self, slots: u64) -> (Vec<u16>, Vec<u16>) {
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        for port in 0..=u16::MAX {
            match self.owner(port) {
                Some(slot) if has_slot(slots, slot) => mine.push(port),
                Some(_) => others.push(port),
                None => {}
            }
        }
        (mine, others)
    }
}

/// Host-wide values.
impl Segment {
    pub(crate) fn incarnation(&self) -> u64 {
        self.map.incarnation.load(Relaxed)
    }

    /// The seed from which all processes make the ids towards each peer (ID-4).
    pub(crate) fn id_seed(&self) -> u64 {
        self.map.id_seed.load(Relaxed)
    }

    /// The first of [`IDS_PER_LEASE`] even counts of RPC ids, two apart, that no other process gets.
    pub(crate) fn lease_ids(&self) -> u64 {
        self.map.next_id.0.fetch_add(2 * IDS_PER_LEASE, Relaxed)
    }

    /// This process's part in the host-wide resources.
    pub(crate) fn part(&self) -> LeaseShare<'_> {
        let slots = &self.map.pool.slots[..self.slots_used()];
        LeaseShare {
            pool: &self.map.pool,
            slots,
            mine: self.slot,
            budget: self.map.budget.load(Relaxed).clamp(1, MAX_BUDGET),
        }
    }

    /// Publishes the leader's new cutoffs; returns whether it did.
    pub(crate) fn publish_cutoffs(&self, set: CutoffSet) -> bool {
        self.try_registry().is_some_and(|registry| registry.publish_cutoffs(set))
    }
}

/// Liveness.
impl Segment {
    /// Must be called every few tens of milliseconds while this process drives its host. It shows that this
    /// process is alive, and checks on the others. Returns whether ports, processes or the leader changed
    /// since the last call.
    pub(crate) fn tick(&self, now_ns: u64, watch: &mut LeaseWatch) -> bool {
        self.map.pool.slots[self.slot].beat.fetch_add(1, Relaxed);
        if self.is_leader() {
            let dead = |slot: usize| self.map.pool.slots[slot].pid.load(Relaxed) != 0 && !self.is_alive(slot);
            if (0..self.slots_used()).any(dead)
                && let Some(registry) = self.try_registry()
            {
                registry.bury_dead();
            }
        } else {
            let stands_still = watch.standing(&self.map.pool, self.leader(), now_ns);
            let leads = self.leader();
            if (leads.is_none() || leads == stands_still || leads.is_some_and(|slot| !self.is_alive(slot)))
                && let Some(registry) = self.try_registry()
            {
                registry.bury_dead();
                registry.lead(stands_still);
            }
        }
        let generation = self.table().generation();
        watch.generation.replace(generation) != Some(generation)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.leader() == Some(self.slot)
    }

    /// Numbers for the metrics.
    pub(crate) fn counts(&self) -> SegmentCounts {
        let map = &*self.map;
        let used = &map.pool.slots[..self.slots_used()];
        SegmentCounts {
            processes: used.iter().filter(|slot| slot.pid.load(Relaxed) != 0).count() as u64,
            slot: self.slot as u64,
            is_leader: self.is_leader(),
            found_dead: u64::from(map.found_dead.load(Relaxed)),
            budget_bytes: map.budget.load(Relaxed),
            lease_bytes: map.pool.slots[self.slot].lease.load(Relaxed),
            leased_bytes: self.part().leased_bytes(),
        }
    }
}

impl Segment {
    /// Removes the file if no other host uses it. A process that waits for its lock to open it sees that it
    /// was removed. The file stays if the next host could not tell from the clock that its incarnation is
    /// newer (HOST-2).
    fn remove_file_of_nobody(&self) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead = (since_1970.as_millis() as u64).wrapping_sub(self.incarnation()) & INCARNATIONS;
        let is_newer = ahead != 0 && ahead <= INCARNATIONS / 2;
        if is_newer && !lock::is_held(&self.file, lock::ANY_SLOT) && self.is_the_file_at_its_path() {
            // The file may have been removed, or be where this process may not write any more.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn is_the_file_at_its_path(&self) -> bool {
        let here = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let (own, at_path) = (self.file.metadata(), std::fs::symlink_metadata(&self.path));
        matches!((own.map(here), at_path.map(here)), (Ok(own), Ok(at_path)) if own == at_path)
    }
}

/// See [`Segment::counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentCounts {
    pub(crate) processes: u64,
    pub(crate) slot: u64,
    pub(crate) is_leader: bool,
    pub(crate) found_dead: u64,
    pub(crate) budget_bytes: u64,
    pub(crate) lease_bytes: u64,
    pub(crate) leased_bytes: u64,
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.slot == NO_SLOT {
            return;
        }
        // If the lock is not available, the others find this slot without its own lock, as after a death.
        if let Ok(registry) = self.registry() {
            registry.leave();
            self.remove_file_of_nobody();
        }
        // Closing the file frees the slot only if no child shares it, as each child does between fork and
        // exec.
        lock::unlock(&self.file, lock::slot(self.slot));
    }
}
