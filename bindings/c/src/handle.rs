//! Handles: what C holds of our objects.
//!
//! A handle is a number in the form of a pointer, made of a place in a table, how often that place was used before, and a kind. So nothing
//! that C passes is ever followed: what was closed, was closed twice, belongs to a parent process, is of another kind or never was a
//! handle is an error that says so. It was a pointer at first, and a message freed twice ended the process or, worse, did not.
//! docs/perf/2026-11-22-c-interface.md says what it costs.
//!
//! No handle comes twice in a process. A place whose uses are all counted is never used again: it stays behind empty, some bytes for each
//! 67 million objects. A table has places for 2^50 objects of each shard, one after the other, which at a million a second takes 35 years.
//!
//! A host or socket that a call uses is kept until the call returns, whoever closes it meanwhile. Messages are looked at under the lock,
//! which halves what a look costs.

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

/// Parts of a table, each with a lock. Threads open in one of their own as far as there are enough.
const SHARDS: usize = 16;

/// The parts of a handle, from the lowest bit on: index, shard, generation, forks, kind. A kind is not 0, so that no handle is an address
/// that any program has.
const SHARD_AT: u32 = 24;
const GENERATION_AT: u32 = 28;
const FORKS_AT: u32 = 54;
const KIND_AT: u32 = 61;
const _: () = assert!(usize::BITS == 64 && SHARDS == 1 << (GENERATION_AT - SHARD_AT));

/// A type of handles.
pub(crate) trait Handle: Sized {
    /// What it stands for: shared where calls take their time, and keep it.
    type Object: Send + 'static;
    /// As C names it.
    const NAME: &'static str;
    /// 1 to 7, and no other's.
    const KIND: usize;
    /// Each thread has a shard of its own for what comes and goes. What stays is dealt out, since one thread often opens what many use,
    /// and those would take a cache line from each other with each call.
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

/// Everything that is open in this process.
#[derive(Default)]
pub(crate) struct Tables {
    hosts: Table<Arc<Host>>,
    sockets: Table<Arc<Socket>>,
    messages: Table<Box<Message>>,
    options: Table<Arc<Options>>,
    /// The parent process's, which are left alone: their locks may be held for ever.
    _parents: AtomicPtr<Tables>,
}

static TABLES: AtomicPtr<Tables> = AtomicPtr::new(ptr::null_mut());
static PARENTS: AtomicPtr<Tables> = AtomicPtr::new(ptr::null_mut());

/// Forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// In a child that was just forked: the library begins anew.
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
    // SAFETY: they are never freed.
    unsafe { &*known }
}

#[cold]
fn make_tables() -> *mut Tables {
    static HOOKED: AtomicBool = AtomicBool::new(false);
    if !HOOKED.swap(true, AcqRel) {
        // SAFETY: the function is there for as long as the process, since the library is never unloaded (`build.rs`). Where there is no
        // memory for the hook, children are not told apart.
        unsafe { libc::pthread_atfork(None, None, Some(forget_parents)) };
    }
    let made = Tables { _parents: AtomicPtr::new(PARENTS.load(Relaxed)), ..Tables::default() };
    let made = Box::into_raw(Box::new(made));
    match TABLES.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
        Ok(_) => made,
        Err(known) => {
            // SAFETY: it was made here, and nobody has seen it.
            drop(unsafe { Box::from_raw(made) });
            known
        }
    }
}

/// The open objects of a kind.
pub(crate) struct Table<T> {
    shards: [Shard<T>; SHARDS],
    /// How many objects a place may have, one after the other: at most what handles can tell apart.
    generations: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { shards: Default::default(), generations: MOST_GENERATIONS }
    }
}

/// Apart from its neighbours, so that threads do not take each other's cache lines.
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
    /// Places that are used up.
    retired: usize,
}

struct Slot<T> {
    /// Objects that were here before.
    generation: usize,
    object: Option<T>,
}

/// What a handle says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    index: usize,
    shard: usize,
    generation: usize,
    forks: usize,
    kind: usize,
}

/// Bits of a number from one place up to another.
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

/// The part of [`FORKS`] that handles hold.
fn forks() -> usize {
    bits(FORKS.load(Relaxed), 0, KIND_AT - FORKS_AT)
}

impl<T> Table<T> {
    fn shard(&self, index: usize) -> std::sync::MutexGuard<'_, Slots<T>> {
        // What it guards is whole between any two lines.
        self.shards[index].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object into a shard; index and generation.
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

    /// What `look` finds of an object, under the shard's lock.
    fn with<R>(&self, parts: Parts, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slots = self.shard(parts.shard);
        let slot = slots.slots.get_mut(parts.index).filter(|slot| slot.generation == parts.generation)?;
        slot.object.as_mut().map(look)
    }

    fn remove(&self, parts: Parts) -> Option<T> {
        let mut slots = self.shard(parts.shard);
        let slot = slots.slots.get_mut(parts.index).filter(|slot| slot.generation == parts.generation)?;
        let object = slot.object.take()?;
        // Of a place that is used up this is no handle's generation.
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

/// The next shard in turn.
fn next_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Relaxed) % SHARDS
}

/// The shard that is this thread's.
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

/// Writes a handle for an object to where an argument of this name points.
///
/// # Safety
/// `to` is good for a write.
pub(crate) unsafe fn give<H: Handle>(to: *mut *mut H, object: H::Object) -> Result<(), Failure> {
    let shard = if H::STAYS { next_shard() } else { own_shard() };
    let Some((index, generation)) = H::table(tables()).insert(shard, object) else {
        let text = format!("there are too many objects of the kind {} open: hand some back", H::NAME);
        return Err(Failure::new(homa_result::HOMA_LIMIT, text));
    };
    let handle = Parts { index, shard, generation, forks: forks(), kind: H::KIND }.number();
    // SAFETY: the caller's.
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

/// Looks at the object of a handle; shortly, since others wait meanwhile.
pub(crate) fn with<H: Handle, R>(
    handle: *const H,
    name: &'static str,
    look: impl FnOnce(&mut H::Object) -> R,
) -> Result<R, Failure> {
    let parts = read(handle, name)?;
    H::table(tables()).with(parts, look).ok_or_else(|| closed::<H>(name))
}

/// The object of a handle, for a call that uses it.
pub(crate) fn find<T, H: Handle<Object = Arc<T>>>(
    handle: *const H,
    name: &'static str,
) -> Result<Arc<T>, Failure> {
    with(handle, name, |object| Arc::clone(object))
}

/// The object of a handle, which is none from now on; `None` for NULL.
pub(crate) fn take<H: Handle>(handle: *mut H, name: &'static str) -> Result<Option<H::Object>, Failure> {
    if handle.is_null() {
        return Ok(None);
    }
    let parts = read(handle, name)?;
    H::table(tables()).remove(parts).map(Some).ok_or_else(|| closed::<H>(name))
}

/// How many handles of this process are open: hosts, sockets, messages and options together. 0 at the end of a program that handed back
/// everything, which tools that look for lost memory cannot tell, since the library remembers all that is open.
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
