//! Models of the shared-memory segment. Each thread stands for a process.

use loom::sync::Arc;
use loom::thread;

use super::cutoffs::{self, Set};
use super::layout::{CutoffBank, ORPHAN, Slot};
use super::lease::Leases;
use super::ports::Ports;
use super::priorities::PRIORITIES;
use super::uplink;
use crate::tenancy::sync::{AtomicU8, AtomicU64};

const BUDGET: u64 = 1_600;

/// Runs `process` for each number below `count` in parallel, and returns the results.
fn processes<T: Send + 'static>(
    count: usize,
    process: impl Fn(usize) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let begin = |number| {
        let process = process.clone();
        thread::spawn(move || process(number))
    };
    let others: Vec<_> = (1..count).map(begin).collect();
    let first = process(0);
    let join = |thread: thread::JoinHandle<T>| thread.join().expect("a process of the model ends");
    std::iter::once(first).chain(others.into_iter().map(join)).collect()
}

/// Processes raise their leases in parallel, each to the amount that it wants.
fn raised(wants: &'static [u64]) {
    let slots: Arc<Vec<Slot>> = Arc::new(wants.iter().map(|_| Slot::new()).collect());
    let process = {
        let slots = Arc::clone(&slots);
        move |mine: usize| Leases { slots: &slots, mine, budget: BUDGET }.adjust(wants[mine], 0)
    };
    let leases = processes(wants.len(), process);
    // HOST-5.
    assert!(leases.iter().sum::<u64>() <= BUDGET, "leased: {leases:?}");
    let total = Leases { slots: &slots, mine: 0, budget: BUDGET }.total();
    assert_eq!(total, leases.iter().sum::<u64>(), "what is written is what they got");
}

/// Two processes that together want more than the budget do not exceed it.
pub fn two_leases_stay_within_the_budget() {
    raised(&[1_000, 900]);
}

/// The same with three processes.
pub fn three_leases_stay_within_the_budget() {
    raised(&[1_000, 900, 700]);
}

/// One process shrinks its lease while another raises its own.
pub fn a_lease_that_shrinks_is_not_taken_twice() {
    let slots: Arc<Vec<Slot>> = Arc::new((0..2).map(|_| Slot::new()).collect());
    let adjust = |slots: &[Slot], mine, demand| Leases { slots, mine, budget: BUDGET }.adjust(demand, 0);
    assert_eq!(adjust(&slots, 0, BUDGET), BUDGET);
    let process = {
        let slots = Arc::clone(&slots);
        move |mine: usize| match mine {
            0 => {
                adjust(&slots, 0, 400);
                adjust(&slots, 0, BUDGET)
            }
            _ => adjust(&slots, 1, 1_000),
        }
    };
    let leases = processes(2, process);
    assert!(leases.iter().sum::<u64>() <= BUDGET, "leased: {leases:?}");
}

/// A set of cutoffs is read completely or not at all, even while its bank is overwritten.
pub fn cutoffs_are_read_whole() {
    let set = |n: u32| Set { levels: [n; PRIORITIES], version: n as u16, unsched_limit: Some(n) };
    let shared = Arc::new((AtomicU64::new(0), [CutoffBank::new(), CutoffBank::new()]));
    cutoffs::write(&shared.0, &shared.1, set(1));
    let process = move |number| match number {
        0 => (2..4).for_each(|n| cutoffs::write(&shared.0, &shared.1, set(n))),
        _ => {
            if let Some((number, read)) = cutoffs::read_bank(&shared.0, &shared.1) {
                assert_eq!(read, set(number as u32));
            }
        }
    };
    processes(2, process);
}

/// All packets that two processes send on the uplink in parallel are counted.
pub fn the_uplink_forgets_no_packet() {
    let idle_at = Arc::new(AtomicU64::new(0));
    let process = {
        let idle_at = Arc::clone(&idle_at);
        move |_| {
            uplink::sent(&idle_at, 0, 3);
            uplink::sent(&idle_at, 0, 5);
        }
    };
    processes(2, process);
    assert_eq!(uplink::backlog_ns(&idle_at, 0), 16);
}

/// A host with one server port, 0, and one client port, 1.
struct Table {
    servers: [AtomicU8; 1],
    clients: [AtomicU8; 1],
    orphanings: AtomicU64,
    generation: AtomicU64,
}

impl Table {
    fn new(mark: u8) -> Arc<Table> {
        Arc::new(Table {
            servers: [AtomicU8::new(mark)],
            clients: [AtomicU8::new(mark)],
            orphanings: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        })
    }

    fn ports(&self) -> Ports<'_> {
        let Table { servers, clients, orphanings, generation } = self;
        Ports { servers, clients, orphanings, generation }
    }
}

/// A process that finds an orphan also finds it counted (HOST-10).
pub fn an_orphan_is_counted_before_it_is_seen() {
    let table = Table::new(1);
    let process = move |number| match number {
        0 => {
            table.ports().orphan(0);
            table.ports().changed();
        }
        _ => {
            if table.ports().mark(0) == ORPHAN {
                assert_eq!(table.ports().orphanings(), 1);
            }
        }
    };
    processes(2, process);
}

/// A process that reads a new generation also sees the change, so that it need not check again.
pub fn a_change_of_ports_is_there_with_its_generation() {
    let table = Table::new(0);
    let process = move |number| match number {
        0 => {
            table.ports().set_mark(0, 1);
            table.ports().changed();
            table.ports().set_mark(1, 1);
            table.ports().changed();
        }
        _ => {
            let generation = table.ports().generation();
            let owners = [0, 1].map(|port| table.ports().owner(port));
            assert!(generation < 1 || owners[0] == Some(0));
            assert!(generation < 2 || owners[1] == Some(0));
        }
    };
    processes(2, process);
}
