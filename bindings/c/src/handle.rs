//! Handles, by which a C program refers to the library's objects.
//!
//! A handle is a number in the form of a pointer. It consists of an index in a table, the number of earlier
//! uses of that slot, and a kind. The library never dereferences a handle that C passes. A handle that was
//! closed (once or twice), belongs to a parent process, is of another kind or never existed is reported as an
//! error. When handles were pointers, freeing a message twice crashed the process at best.
//! docs/perf/2026-11-22-c-interface.md has the cost.
//!
//! No handle value is used twice in a process. A slot whose generation count is exhausted is never used
//! again, which wastes a few bytes for every 67 million objects. Over time, each shard of a table can hold
//! 2^50 objects; at a million objects per second, that takes 35 years.
//!
//! A host or socket that a function is using is kept until the function returns, even if another thread
//! closes it in the meantime. Messages are accessed under the lock, which halves the cost of a lookup.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use crate::border::{Failure, value};
use crate::host::{Host, homa_host};
use crate::message::{Message, homa_message};
use crate::options::{Options, homa_options};
use crate::result::homa_result;
use crate::socket::{Socket, homa_socket};

/// Shards of a table, each with a lock. Each thread uses a shard of its own while there are enough.
const SHARDS: usize = 16;

/// The parts of a handle, from the lowest bit: index, shard, generation, forks, kind. The kind is not 0, so
/// that a handle never equals an address of a program.
const SHARD_AT: u32 = 24;
const GENERATION_AT: u32 = 28;
const FORKS_AT: u32 = 54;
const KIND_AT: u32 = 61;
const _: () = assert!(usize::BITS == 64 && SHARDS == 1 << (GENERATION_AT - SHARD_AT));

/// A handle type.
pub(crate) trait Handle: Sized {
    /// The object of the handle. Objects that long calls use are shared, and the call keeps a reference.
    type Object: Send + 'static;
    /// The name of the type in C.
    const NAME: &'static str;
    /// A number from 1 to 7, unique to this type.
    const KIND: usize;
    /// Whether the objects are long-lived. Long-lived objects are distributed over all shards: one thread
    /// often opens objects that many threads use, and each use of a common shard would move its cache line.
    /// Short-lived objects lie in the shard of their thread.
    const STAYS: bool = true;

    fn table(tables: &Tables) -> &Table<Self::Object>;
}

impl Handle for homa_host {
    type Object = Arc<Host>;
    const NAME: &'static str = "homa_host";
    const KIND: usize = 1;

    fn table(tables: &Tables) -> &Table<Arc<Host>> {
        &tables.hosts
    }
}

impl Handle for homa_socket {
    type Object = Arc<Socket>;
    const NAME: &'static str = "homa_socket";
    const KIND: usize = 2;

    fn table(tables: &Tables) -> &Table<Arc<Socket>> {
        &tables.sockets
    }
}

impl Handle for homa_message {
    type Object = Box<Message>;
    const NAME: &'static str = "homa_message";
    const KIND: usize = 3;
    const STAYS: bool = false;

    fn table(tables: &Tables) -> &Table<Box<Message>> {
        &tables.messages
    }
}

impl Handle for homa_options {
    type Object = Arc<Options>;
    const NAME: &'static str = "homa_options";
    const KIND: usize = 4;

    fn table(tables: &Tables) -> &Table<Arc<Options>> {
        &tables.options
    }
}

/// All open objects of this process.
#[derive(Default)]
pub(crate) struct Tables {
    hosts: Table<Arc<Host>>,
    sockets: Table<Arc<Socket>>,
    messages: Table<Box<Message>>,
    options: Table<Arc<Options>>,
    /// The tables of the parent process. They are never touched, since their locks may be held forever.
    _parents: AtomicPtr<Tables>,
}

static TABLES: AtomicPtr<Tables> = AtomicPtr::new(ptr::null_mut());
static PARENTS: AtomicPtr<Tables> = AtomicPtr::new(ptr::null_mut());

/// Number of forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Starts with empty tables in a child that was just forked.
extern "C" fn forget_parents() {
    let parents = TABLES.swap(ptr::null_mut(), AcqRel);
    if !parents.is_null() {
        PARENTS.store(parents, Relaxed);
    }
    FORKS.fetch_add(1, Relaxed);
}

fn tables() -> &'static Tables {
    let known = TABLES.load(Acquire);
    let known = if known.is_null() { make_tables() } else { known };
    // SAFETY: the pointer is not NULL, and tables are never freed.
    unsafe { &*known }
}

#[cold]
fn make_tables() -> *mut Tables {
    static HOOKED: AtomicBool = AtomicBool::new(false);
    if !HOOKED.swap(true, AcqRel) {
        // SAFETY: the function exists until the process ends, since the library is never unloaded
        // (`build.rs`). If there is no memory for the hook, a child's handles cannot be distinguished from
        // its parent's.
        unsafe { libc::pthread_atfork(None, None, Some(forget_parents)) };
    }
    let made = Tables { _parents: AtomicPtr::new(PARENTS.load(Relaxed)), ..Tables::default() };
    let made = Box::into_raw(Box::new(made));
    match TABLES.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
        Ok(_) => made,
        Err(known) => {
            // SAFETY: `made` came from `Box::into_raw` above and was not published.
            drop(unsafe { Box::from_raw(made) });
            known
        }
    }
}

/// The open objects of one kind.
pub(crate) struct Table<T> {
    shards: [Shard<T>; SHARDS],
    /// Maximum number of objects that use a slot one after another: at most the generations that a handle can
    /// represent.
    generations: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { shards: Default::default(), generations: MOST_GENERATIONS }
    }
}

/// Aligned so that shards do not share cache lines.
#[repr(align(128))]
struct Shard<T>(Mutex<Slots<T>>);

impl<T> Default for Shard<T> {
    fn default() -> Shard<T> {
        Shard(Mutex::new(Slots { slots: Vec::new(), free: Vec::new(), retired: 0 }))
    }
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    /// Number of slots with an exhausted generation count.
    retired: usize,
}

struct Slot<T> {
    /// Number of earlier objects in this slot.
    generation: usize,
    object: Option<T>,
}

/// The decoded parts of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    index: usize,
    shard: usize,
    generation: usize,
    forks: usize,
    kind: usize,
}

/// Returns the bits of a number from `from` (inclusive) to `to` (exclusive).
fn bits(of: usize, from: u32, to: u32) -> usize {
    of >> from & ((1 << (to - from)) - 1)
}

const MOST_GENERATIONS: usize = 1 << (FORKS_AT - GENERATION_AT);

impl Parts {
    fn read(handle: usize) -> Parts {
        Parts {
            index: bits(handle, 0, SHARD_AT),
            shard: bits(handle, SHARD_AT, GENERATION_AT),
            generation: bits(handle, GENERATION_AT, FORKS_AT),
            forks: bits(handle, FORKS_AT, KIND_AT),
            kind: bits(handle, KIND_AT, usize::BITS),
        }
    }

    fn number(self) -> usize {
        self.index
            | self.shard << SHARD_AT
            | self.generation << GENERATION_AT
            | self.forks << FORKS_AT
            | self.kind << KIND_AT
    }
}

/// Returns the part of [`FORKS`] that a handle stores.
fn forks() -> usize {
    bits(FORKS.load(Relaxed), 0, KIND_AT - FORKS_AT)
}

impl<T> Table<T> {
    fn shard(&self, index: usize) -> std::sync::MutexGuard<'_, Slots<T>> {
        // A poisoned lock is harmless: the slots are consistent after each statement.
        self.shards[index].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an object in a shard and returns its index and generation.
    fn insert(&self, shard: usize, object: T) -> Option<(usize, usize)> {
        let mut slots = self.shard(shard);
        if let Some(index) = slots.free.pop() {
            let slot = &mut slots.slots[index];
            slot.object = Some(object);
            return Some((index, slot.generation));
        }
        let index = slots.slots.len();
        if index >= 1 << SHARD_AT {
            return None;
        }
        slots.slots.push(Slot { generation: 0, object: Some(object) });
        Some((index, 0))
    }

    /// Calls `look` with an object, under the shard's lock.
    fn with<R>(&self, parts: Parts, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slots = self.shard(parts.shard);
        let slot = slots.slots.get_mut(parts.index).filter(|slot| slot.generation == parts.generation)?;
        slot.object.as_mut().map(look)
    }

    fn remove(&self, parts: Parts) -> Option<T> {
        let mut slots = self.shard(parts.shard);
        let slot = slots.slots.get_mut(parts.index).filter(|slot| slot.generation == parts.generation)?;
        let object = slot.object.take()?;
        // Once the generations are exhausted, this value matches no handle.
        slot.generation += 1;
        match slot.generation < self.generations {
            true => slots.free.push(parts.index),
            false => slots.retired += 1,
        }
        Some(object)
    }

    fn open(&self) -> usize {
        let used = |index| {
            let slots = self.shard(index);
            slots.slots.len() - slots.free.len() - slots.retired
        };
        (0..SHARDS).map(used).sum()
    }
}

/// Returns the next shard in turn.
fn next_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Relaxed) % SHARDS
}

/// Returns the shard of this thread.
fn own_shard() -> usize {
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let own = OWN.try_with(|own| {
        let shard = own.get().unwrap_or_else(next_shard);
        own.set(Some(shard));
        shard
    });
    own.unwrap_or(0)
}

/// Writes a handle of an object to the target of an argument.
///
/// # Safety
/// `to` is valid for a write.
pub(crate) unsafe fn write_handle<H: Handle>(to: *mut *mut H, object: H::Object) -> Result<(), Failure> {
    let shard = if H::STAYS { next_shard() } else { own_shard() };
    let Some((index, generation)) = H::table(tables()).insert(shard, object) else {
        let text = format!("there are too many objects of the kind {} open: hand some back", H::NAME);
        return Err(Failure::new(homa_result::HOMA_LIMIT, text));
    };
    let handle = Parts { index, shard, generation, forks: forks(), kind: H::KIND }.number();
    // SAFETY: `to` is valid for a write by this function's safety contract.
    unsafe { to.write(ptr::without_provenance_mut(handle)) };
    Ok(())
}

fn read<H: Handle>(handle: *const H, name: &'static str) -> Result<Parts, Failure> {
    if handle.is_null() {
        return Err(Failure::null(name));
    }
    let parts = Parts::read(handle.addr());
    if parts.kind != H::KIND {
        return Err(Failure::argument(format!("`{name}` is no {}", H::NAME)));
    }
    if parts.forks != forks() {
        return Err(Failure::argument(format!(
            "`{name}` is the parent process's: after fork() a child opens a host of its own"
        )));
    }
    Ok(parts)
}

fn closed<H: Handle>(name: &str) -> Failure {
    Failure::argument(format!("`{name}` was handed back before, or is no {}", H::NAME))
}

/// Calls a closure with the object of a handle. The closure must be short, since other threads wait for the
/// lock meanwhile.
pub(crate) fn with<H: Handle, R>(
    handle: *const H,
    name: &'static str,
    look: impl FnOnce(&mut H::Object) -> R,
) -> Result<R, Failure> {
    let parts = read(handle, name)?;
    H::table(tables()).with(parts, look).ok_or_else(|| closed::<H>(name))
}

/// Returns a reference to the object of a handle, for the duration of a function.
pub(crate) fn find<T, H: Handle<Object = Arc<T>>>(
    handle: *const H,
    name: &'static str,
) -> Result<Arc<T>, Failure> {
    with(handle, name, |object| Arc::clone(object))
}

/// Takes the object of a handle, which is invalid from then on; `None` for NULL.
pub(crate) fn take<H: Handle>(handle: *mut H, name: &'static str) -> Result<Option<H::Object>, Failure> {
    if handle.is_null() {
        return Ok(None);
    }
    let parts = read(handle, name)?;
    H::table(tables()).remove(parts).map(Some).ok_or_else(|| closed::<H>(name))
}

/// The number of open handles of this process: hosts, sockets, messages and options together. 0 at the end of
/// a program that has freed everything. Leak checkers cannot report this, since the library keeps references
/// to all open objects.
#[unsafe(no_mangle)]
pub extern "C" fn homa_open_handles() -> usize {
    value(0, || {
        let Tables { hosts, sockets, messages, options, .. } = tables();
        hosts.open() + sockets.open() + messages.open() + options.open()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_it_was_made_of_and_is_no_address() {
        let parts =
            Parts { index: 0xab_cdef, shard: 9, generation: MOST_GENERATIONS - 1, forks: 127, kind: 4 };
        assert_eq!(Parts::read(parts.number()), parts);
        assert!(parts.number() >> 48 != 0);
    }

    #[test]
    fn a_place_that_is_used_again_has_another_handle() {
        let table = Table::default();
        let object = Arc::new(());
        let (index, generation) = table.insert(3, Arc::clone(&object)).unwrap();
        let parts = Parts { index, shard: 3, generation, forks: 0, kind: 1 };
        assert!(table.with(parts, |_| ()).is_some());
        assert!(table.remove(parts).is_some());
        assert!(table.remove(parts).is_none(), "it was handed back");
        let next = table.insert(3, Arc::clone(&object)).unwrap();
        assert_eq!((next.0, table.open()), (index, 1));
        assert!(table.with(parts, |_| ()).is_none(), "the first handle is not the second's");
        assert!(table.with(Parts { shard: 4, ..parts }, |_| ()).is_none());
        assert!(table.with(Parts { index: index + 1, ..parts }, |_| ()).is_none());
        assert_eq!(Arc::strong_count(&object), 2);
    }

    #[test]
    fn a_place_that_is_used_up_is_not_used_again() {
        let table = Table { generations: 3, ..Table::default() };
        let mut seen = std::collections::HashSet::new();
        for round in 0..10 {
            let (index, generation) = table.insert(5, round).unwrap();
            let parts = Parts { index, shard: 5, generation, forks: 0, kind: 1 };
            assert!(generation < 3 && seen.insert(parts.number()), "{parts:?} was another's");
            assert_eq!((table.open(), table.with(parts, |object| *object)), (1, Some(round)));
            assert_eq!(table.remove(parts), Some(round));
            assert_eq!((table.open(), table.with(parts, |_| ())), (0, None));
        }
        assert_eq!(table.shard(5).slots.len(), 4, "three objects to a place");
    }
}
