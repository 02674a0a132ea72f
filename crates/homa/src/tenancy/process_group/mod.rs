//! The memory segment that the processes at one host address share: a file, one for each network namespace.
//!
//! Over raw IP a host is identified by an address alone, not by an address and a port as over UDP. All
//! processes of a network namespace are therefore one host to their peers, and share ports, RPC IDs,
//! incarnation, cutoffs, grant budget and uplink.
//!
//! Each host (usually one per process) has a slot, and counts as alive while it holds a lock on that slot's
//! byte. The kernel releases the lock no matter how the process dies. There is no service to start or
//! restart: any process that finds a slot unlocked frees the slot's resources. Rare changes are made under a
//! lock of the same kind ([`registry`]). Frequent changes are lock-free; each module argues why this is safe:
//! [`lease`], [`cutoffs`], [`uplink`].
//!
//! One of the processes is the leader. It answers for the ports that no process has, so that peers get one
//! answer rather than one from each process. It also looks for dead processes, and computes the cutoffs from
//! the traffic of all processes. The leader's slot is stored in the segment. If the leader dies or makes no
//! progress, the first process that notices takes its place.
//!
//! # Several processes, one host
//!
//! Over raw IP the processes of a network namespace are one host to their peers (PROTOCOL.md, HOST). The
//! host-wide resources are in a memory segment (`homa/tenancy/process_group`): a file in
//! `HostConfig::segment_dir`, named after the namespace, that every host maps. In `homa/tenancy/processes`
//! and `homa/tenancy/host_lease`, the engine uses the segment. Over UDP there is no segment: each host has
//! its own UDP port, and therefore its own address.
//!
//! - **No daemon.** A daemon that assigns ports and IDs would have to start first and end last. Here the
//!   first host creates the segment, and any host that notices a death cleans up.
//! - **A lock shows that a host is alive.** Each host has a slot and locks one byte of the file. The kernel
//!   releases the lock no matter how the host dies. The locks belong to the open file (F_OFD_SETLK).
//!   Alternatives were rejected: process IDs are reused and differ between PID namespaces, robust mutexes
//!   report a death only to waiters, and classic record locks end when any descriptor of the file is closed.
//!   A child forked without exec keeps its parent's slot alive.
//! - **Nothing is stored twice.** The owner of a port is stored at the port, a lease at its slot; sums are
//!   computed when needed. Each change of the registry is a single store under a lock of the same kind, so a
//!   process that dies leaves the state either before or after the store.
//! - **No drive round waits for the lock.** Ticks try the lock and retry later. Only a thread that opens a
//!   port waits for the lock, before it takes the host's own lock, and reports the lock's owner if the wait
//!   takes long.
//! - **Frequent changes take no lock.** IDs are leased by a single addition. To lease grant budget, a process
//!   announces the intended lease and then counts all leases (`lease` has the argument, and its tests run
//!   every order of two processes). Cutoffs are in two banks (`cutoffs`).
//! - **The uplink is one point in time** (`uplink`): the time when it will have sent everything that all
//!   processes gave it. A count of bytes would not do, since bytes that another process sent a second ago no
//!   longer occupy the uplink, and a count does not say when bytes were sent. Nothing needs repair after a
//!   death.
//! - **Priority on the uplink is published, not requested.** An endpoint that the pacer holds back publishes
//!   the remaining bytes of its shortest message, and the time. An endpoint that has only longer messages
//!   lets the uplink's backlog drain before it sends. The shortest message of the host therefore goes first
//!   if its endpoint sends before the uplink runs empty. The other endpoints wait only until then for an
//!   endpoint that is dead, asleep or busy. Such an endpoint costs the uplink nothing, and its entry is
//!   ignored after a millisecond. A longer wait was rejected, because the uplink would be idle for the sake
//!   of an endpoint that might not send. An endpoint that gives way counts what the others send towards the
//!   share of its oldest message.
//! - **One process leads**, identified by a slot number in the segment. The leader answers for ports that no
//!   process has (HOST-8) and computes the cutoffs. The other processes pass histograms of their observations
//!   to the leader. If each process computed its own cutoffs, processes with different traffic would take
//!   turns changing the cutoffs of all. If the leader dies or makes no progress for a quarter of a second,
//!   the process that notices takes its place. A host that does not drive the network, such as one without
//!   ports, never leads.
//! - **Packets are classified by the segment**, one by one as they are received, and not by the socket's
//!   filter, which lags behind. Packets that the socket received before it had a filter are dropped: another
//!   process has answered them.
//! - **The first process sets the budget.** The `max_incoming` of later processes limits nothing, but their
//!   windows follow their own settings.
//!
//! Processes that share a host run as one user, since any process that can write to the segment can stop all
//! of them. They name the same directory, and should bind the same address: requests to ports that no process
//! has are answered only where the leader listens. No other user can write to the directory
//! (`process_group/place`). The last process removes the file. The file need not preserve IDs, since each new
//! host begins at a random ID. Times in the segment are those of the monotonic clock, so processes in
//! different time namespaces would pace badly.
//!
//! Containers may share one network namespace but have separate file systems, and therefore separate segments
//! at one address. To detect this, each host listens at a name in the abstract name space, which belongs to
//! the network namespace. A host refuses to start if another host has its address and a different segment
//! (`process_group/presence`). Only names of the host's own user and of root count, since any user can take a
//! name. The segment itself is not passed over such a socket, because some process would have to serve it
//! there for as long as any process is alive.

mod cutoffs;
mod endpoint_slots;
mod group_pool;
mod layout;
mod lease;
mod lease_share;
mod lock;
mod map;
mod membership;
mod place;
mod ports;
mod presence;
mod priorities;
mod receiver;
mod registry;
mod segment;
#[cfg(test)]
pub(crate) mod tests;
mod turns;
mod uplink;

pub(crate) use cutoffs::Set as CutoffSet;
pub(crate) use endpoint_slots::EndpointSlots;
pub(crate) use group_pool::GroupPool;

pub(crate) use lease_share::{LeaseShare, LeaseWatch};
pub(crate) use membership::{SegmentParameters, path_in};
pub(crate) use place::default_dir;
pub(crate) use receiver::ReceiverWatch;
pub(crate) use registry::PortClaim;
pub(crate) use segment::{FIRST_CLIENT_PORT, IDS_PER_LEASE, PacketOwner, Segment};
