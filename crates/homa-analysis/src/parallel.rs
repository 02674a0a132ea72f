//! Runs the same work on many items in parallel.

use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

/// Maximum number of threads. More would only compete for memory bandwidth.
const MOST_THREADS: usize = 8;
/// Minimum number of items per thread.
const LEAST_PART: usize = 1_024;

/// Splits the numbers from 0 to `count`, exclusive, into consecutive parts, and calls `of` for each part in a
/// separate thread. The results are in the order of the parts. The number of parts depends on the machine, so
/// no answer may depend on it.
pub(crate) fn in_parts<R: Send>(count: usize, of: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    in_parts_of(count, count.div_ceil(processors.min(MOST_THREADS)).max(LEAST_PART), &of)
}

fn in_parts_of<R: Send>(count: usize, part: usize, of: &(impl Fn(Range<usize>) -> R + Sync)) -> Vec<R> {
    let range = |start: usize| start..count.min(start.saturating_add(part));
    let begin = |start: usize| move || of(range(start));
    if count <= part {
        return vec![of(range(0))];
    }
    thread::scope(|scope| {
        // This thread takes the last part, and all parts for which the system cannot start a thread.
        let starts: Vec<usize> = (0..count).step_by(part).collect();
        let (last, others) = starts.split_last().expect("there are several");
        let spawn =
            |start: &usize| thread::Builder::new().spawn_scoped(scope, begin(*start)).map_err(|_| *start);
        let threads: Vec<_> = others.iter().map(spawn).collect();
        let last = of(range(*last));
        let result = |thread: Result<thread::ScopedJoinHandle<'_, R>, usize>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(start) => of(range(start)),
        };
        let mut results: Vec<R> = threads.into_iter().map(result).collect();
        results.push(last);
        results
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_one_part_and_the_parts_are_in_their_order() {
        for (count, part) in [(0, 1), (1, 1), (5, 2), (6, 2), (7, 100), (100, 3), (9, usize::MAX)] {
            let parts = in_parts_of(count, part, &|range| range.collect::<Vec<_>>());
            assert!(parts.iter().all(|of| of.len() <= part), "{count} {part}");
            assert!(parts.concat().into_iter().eq(0..count), "{count} {part}: {parts:?}");
        }
        assert_eq!(in_parts(3 * LEAST_PART, |range| range.len()).iter().sum::<usize>(), 3 * LEAST_PART);
        assert_eq!(in_parts(LEAST_PART, |range| range.len()), [LEAST_PART]);
    }

    #[test]
    fn a_panic_in_a_part_is_the_callers() {
        let panics = |at: usize| {
            let caught = std::panic::catch_unwind(|| {
                in_parts_of(4, 1, &|range| assert!(!range.contains(&at), "the part of {at}"))
            });
            caught.expect_err("it panics").downcast::<String>().expect("a text").contains("the part of")
        };
        assert!((0..4).all(panics));
    }
}
