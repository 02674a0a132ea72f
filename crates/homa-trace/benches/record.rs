//! Measures the cost of an event. The budget is 15 ns with the trace on, and one branch with it off. Reading
//! the time stamp counter takes less than the budget on a physical machine, but more in a virtual machine,
//! where only events that share the time of their stage stay within the budget.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use homa_trace::{Clock, EventKind, Ticks, Trace, packet_word};

/// Events per measured iteration. The inverse of the throughput that Criterion prints is the time of one
/// event, without loop overhead.
const EVENTS: u64 = 1_000;

fn record_some(trace: &mut Trace) {
    for id in 0..EVENTS {
        trace.record(EventKind::PacketSent, black_box(id), packet_word(0x10, 1_460), 0);
    }
}

fn record(c: &mut Criterion) {
    let mut group = c.benchmark_group("record");
    group.throughput(Throughput::Elements(EVENTS));
    let traces = [
        ("off", Trace::off()),
        ("tsc", Trace::new(1 << 16, Clock::Tsc)),
        ("monotonic", Trace::new(1 << 16, Clock::Monotonic)),
        ("virtual", Trace::new(1 << 16, Clock::Virtual)),
    ];
    for (name, mut trace) in traces {
        group.bench_function(name, |bencher| bencher.iter(|| record_some(&mut trace)));
        trace.begin_stage();
        group.bench_function(format!("{name}, one stage"), |bencher| {
            bencher.iter(|| record_some(&mut trace));
        });
    }
    group.finish();
}

/// Measures the cost of kernel timestamps per burst, in addition to the burst's events.
fn beside_real_time(c: &mut Criterion) {
    let ticks = Ticks::start();
    c.bench_function("beside real time", |bencher| bencher.iter(|| black_box(ticks).beside_real_time()));
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    record(&mut criterion);
    beside_real_time(&mut criterion);
    criterion.final_summary();
}
