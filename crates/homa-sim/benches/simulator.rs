//! Measures the cost of an event, and of a small complete run: `cargo bench -p homa-sim`.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use homa_proto::{MS, Time, US};
use homa_sim::{ClusterConfig, EventQueue, TransportConfig};
use homa_workload::Workload;

/// Number of events in the queue: about as many as with 144 hosts under load.
const WAITING: u64 = 2_000;

/// Measures the event queue. Each removed event schedules another one, usually within microseconds and
/// sometimes within milliseconds, as in a network.
fn queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("event queue");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one out and one in", |bencher| {
        let mut queue = EventQueue::new();
        for event in 0..WAITING {
            queue.push(Time::from_ns(event), event);
        }
        let mut random = 1u64;
        bencher.iter(|| {
            let (at, event) = queue.pop().expect("it is never empty");
            // A linear congruential generator (Knuth), which is cheap compared with what is measured.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let far = (random >> 60) == 0;
            let delay_ns = (random >> 33) % if far { 5 * MS } else { 3 * US };
            queue.push(at + delay_ns, black_box(event));
        });
    });
    group.finish();
}

/// Measures a run of 32 hosts in two racks for a tenth of a millisecond, with Homa at a load of 80 % with W3.
fn run(criterion: &mut Criterion) {
    let mut config = ClusterConfig::sigcomm18(Workload::named("w3").expect("a built-in workload"), 0.8, 1);
    config.hosts = 32;
    (config.warm_up_ns, config.duration_ns, config.drain_ns) = (0, MS / 10, 0);
    let homa = TransportConfig::named("homa", &config).expect("Homa is a transport");
    criterion.bench_function("a small run", |bencher| {
        bencher.iter(|| homa.run(config.clone(), &mut |_| std::ops::ControlFlow::Continue(())).hops);
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    queue(&mut criterion);
    run(&mut criterion);
    criterion.final_summary();
}
